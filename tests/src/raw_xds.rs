//! An ADS client in plain bytes: for connections that are to be many, half-done, or dead in the middle.
//!
//! In: an address. Out: a socket on which HTTP/2 and a stream have begun. It answers nothing, not even a ping.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What every HTTP/2 client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A socket that gives up reading after a while.
pub fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Opens a SotW stream for a node of cluster `edge`, asks for clusters, and reads until `name` is in what came.
pub fn subscribe(socket: &mut TcpStream, name: &str) -> io::Result<()> {
    socket.write_all(&request())?;
    let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
    while !seen.windows(name.len()).any(|part| part == name.as_bytes()) {
        match socket.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => seen.extend_from_slice(&chunk[..n]),
        }
    }
    Ok(())
}

/// Reads until the server ends the connection; an error when it does not.
pub fn wait_for_end(socket: &mut TcpStream) -> io::Result<()> {
    let mut chunk = [0; 4096];
    loop {
        match socket.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, 4, 0, 0, &[]);
    // HPACK: POST and http by index, the rest as literals.
    let mut head = vec![0x83, 0x86, 0x04];
    text(&mut head, PATH);
    head.push(0x01);
    text(&mut head, "vitals");
    head.extend([0x0f, 0x10]);
    text(&mut head, "application/grpc");
    head.push(0x00);
    text(&mut head, "te");
    text(&mut head, "trailers");
    frame(&mut bytes, 1, 0x4, 1, &head);
    let mut node = vec![0x0a];
    text(&mut node, "raw");
    node.push(0x12);
    text(&mut node, "edge");
    let mut message = vec![0x12, u8::try_from(node.len()).expect("short")];
    message.extend(node);
    message.push(0x22);
    text(&mut message, crate::xds::CLUSTER);
    let length = u32::try_from(message.len()).expect("short");
    let grpc = [&[0][..], &length.to_be_bytes(), &message].concat();
    frame(&mut bytes, 0, 0, 1, &grpc);
    bytes
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A text of less than 127 bytes after its length, as HPACK and protobuf have it.
fn text(out: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 127);
    out.push(u8::try_from(text.len()).expect("short"));
    out.extend_from_slice(text.as_bytes());
}
