//! A gRPC health server that says SERVING to whatever is asked, over HTTP/2 without TLS.
//!
//! In: a connection. Out: the answer, as soon as a request's stream has ended. Its frames are constant and it decodes no
//! headers, so that most of the machine is left to the probers that are measured. Not here: flow control, since an answer is
//! 7 bytes long; and anything else that a server owes to peers that it does not trust.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` from the static table, `content-type: application/grpc` as a literal that is not indexed.
const RESPONSE: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// One message of 2 bytes, not compressed: field 1 is 1, SERVING.
const SERVING: &[u8] = b"\x00\x00\x00\x00\x02\x08\x01";
/// `grpc-status: 0`, a literal that is not indexed.
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Answers until the peer goes, or says what is not HTTP/2.
pub(super) async fn converse(mut stream: TcpStream) -> Option<()> {
    let mut read = Vec::with_capacity(1024);
    let mut write = Vec::with_capacity(128);
    let mut begun = false;
    loop {
        if stream.read_buf(&mut read).await.ok()? == 0 || read.len() > 65_536 {
            return None;
        }
        if !begun {
            let Some(rest) = read.get(PREFACE.len()..) else {
                continue;
            };
            if !read.starts_with(PREFACE) {
                return None;
            }
            read = rest.to_vec();
            put(&mut write, SETTINGS, 0, 0, b"")?;
            begun = true;
        }
        let mut done = 0;
        while let Some(length) = answer(read.get(done..)?, &mut write)? {
            done += length;
        }
        read.drain(..done);
        if !write.is_empty() {
            stream.write_all(&write).await.ok()?;
            write.clear();
        }
    }
}

/// Takes the first frame and writes what it asks for. `Some(None)` while it is not complete, else how long it
/// was; `None` for what cannot be answered.
fn answer(read: &[u8], write: &mut Vec<u8>) -> Option<Option<usize>> {
    let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = read.first_chunk::<HEAD>() else {
        return Some(None);
    };
    let length = HEAD + usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?;
    let Some(payload) = read.get(HEAD..length) else {
        return Some(None);
    };
    let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
    match kind {
        SETTINGS if flags & ACK == 0 => put(write, SETTINGS, ACK, 0, b"")?,
        PING if flags & ACK == 0 => put(write, PING, ACK, 0, payload)?,
        HEADERS | DATA if flags & END_STREAM != 0 => {
            put(write, HEADERS, END_HEADERS, stream, RESPONSE)?;
            put(write, DATA, 0, stream, SERVING)?;
            put(write, HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS)?;
        }
        _ => {}
    }
    Some(Some(length))
}

fn put(write: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<()> {
    let [_, length @ ..] = u32::try_from(payload.len()).ok()?.to_be_bytes();
    write.extend_from_slice(&length);
    write.extend_from_slice(&[kind, flags]);
    write.extend_from_slice(&stream.to_be_bytes());
    write.extend_from_slice(payload);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_when_its_stream_ends() {
        let mut read = Vec::new();
        put(&mut read, HEADERS, END_HEADERS, 1, b"\x82").unwrap();
        let mut write = Vec::new();
        assert_eq!(answer(&read, &mut write), Some(Some(10)));
        assert!(write.is_empty());

        let mut read = Vec::new();
        put(&mut read, DATA, END_STREAM, 1, b"\0\0\0\0\0").unwrap();
        assert_eq!(answer(&read[..12], &mut write), Some(None));
        assert_eq!(answer(&read, &mut write), Some(Some(14)));
        assert_eq!(&write[..9], b"\0\0\x14\x01\x04\0\0\0\x01");
        assert!(write.ends_with(TRAILERS));
    }
}
