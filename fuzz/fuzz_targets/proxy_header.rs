//! The PROXY protocol's header: written for arbitrary addresses, it must read back as these by a reader of its own.
//!
//! The reader follows the protocol's specification, sections 2.1 and 2.2, and shares nothing with the writer but the
//! standard library's form of an address.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use vitals_prober::check::ProxyHeader;
use vitals_prober::proxy_protocol::write;

#[derive(Debug, Arbitrary)]
enum Ends {
    V4(([u8; 4], u16), ([u8; 4], u16)),
    V6(([u8; 16], u16), ([u8; 16], u16)),
}

#[derive(Debug, Arbitrary)]
struct Input {
    version: u8,
    ends: Ends,
    before: Vec<u8>,
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let (local, peer): (SocketAddr, SocketAddr) = match input.ends {
        Ends::V4(local, peer) => (local.into(), peer.into()),
        Ends::V6(local, peer) => (local.into(), peer.into()),
    };
    let header = match input.version % 3 {
        0 => ProxyHeader::None,
        1 => ProxyHeader::V1,
        _ => ProxyHeader::V2,
    };
    let mut out = input.before.clone();
    write(header, local, peer, &mut out);
    let written = out
        .strip_prefix(&*input.before)
        .expect("what stands there stays");
    match header {
        ProxyHeader::None => assert!(written.is_empty()),
        ProxyHeader::V1 => assert_eq!(read_v1(written), Some((local, peer))),
        ProxyHeader::V2 => assert!(is_local_v2(written)),
    }
});

/// Section 2.1: one line of at most 107 bytes: PROXY, family, source, destination, their ports; single spaces, CRLF.
fn read_v1(header: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    if header.len() > 107 {
        return None;
    }
    let line = std::str::from_utf8(header).ok()?.strip_suffix("\r\n")?;
    let ["PROXY", family, from, to, from_port, to_port] = line.split(' ').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let address = |text: &str| {
        let address: IpAddr = text.parse().ok()?;
        let right = if family == "TCP4" {
            text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        } else {
            family == "TCP6" && text.contains(':')
        };
        right.then_some(address)
    };
    let port = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        // No leading zeroes.
        (plain && (text == "0" || !text.starts_with('0'))).then_some(text.parse().ok()?)
    };
    let from = SocketAddr::new(address(from)?, port(from_port)?);
    Some((from, SocketAddr::new(address(to)?, port(to_port)?)))
}

/// Section 2.2: twelve bytes of signature, version 2 and LOCAL, any family, a length, and so many bytes and no more.
fn is_local_v2(header: &[u8]) -> bool {
    let signature = [
        0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a,
    ];
    let Some([0x20, _family, high, low, rest @ ..]) = header.strip_prefix(&signature) else {
        return false;
    };
    rest.len() == usize::from(u16::from_be_bytes([*high, *low]))
}
