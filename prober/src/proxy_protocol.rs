//! The PROXY protocol's header as a probe writes it (semantics P11).
//!
//! In: which version, and the addresses of the probe's own connection. Out: the bytes that open the connection, before
//! a ClientHello too. Pure; written from the PROXY protocol's specification, versions 1 and 2, sections 2.1 and 2.2.
//!
//! Version 2 says LOCAL: the connection is the sender's own, so it carries no addresses and the receiver takes the
//! real ones. Version 1 knows no such word but UNKNOWN, which many servers refuse; so it tells the connection's own
//! addresses, as Google's probes do. Not here: reading such headers.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::check::ProxyHeader;

/// Version 2: the signature, then version 2 and LOCAL, no address family, no bytes of addresses.
const V2_LOCAL: [u8; 16] = *b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// The longest line of version 1, with its end.
const V1_MAX: usize = 107;

/// Appends the header. `local` is this side of the connection, `peer` the other; both of one family.
pub fn write(header: ProxyHeader, local: SocketAddr, peer: SocketAddr, out: &mut Vec<u8>) {
    match header {
        ProxyHeader::None => {}
        ProxyHeader::V1 => {
            let family = if peer.is_ipv4() { "TCP4" } else { "TCP6" };
            let mut line = String::with_capacity(V1_MAX);
            // Writing to a String cannot fail; an empty line would be an incomplete header, which no server passes.
            write!(
                line,
                "PROXY {family} {} {} {} {}\r\n",
                local.ip(),
                peer.ip(),
                local.port(),
                peer.port()
            )
            .unwrap_or_default();
            out.extend_from_slice(line.as_bytes());
        }
        ProxyHeader::V2 => out.extend_from_slice(&V2_LOCAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(header: ProxyHeader, local: &str, peer: &str) -> Vec<u8> {
        let mut out = Vec::new();
        write(
            header,
            local.parse().unwrap(),
            peer.parse().unwrap(),
            &mut out,
        );
        out
    }

    #[test]
    fn p11_version_1_tells_the_connections_own_addresses() {
        assert_eq!(
            written(ProxyHeader::V1, "192.0.2.1:40000", "198.51.100.7:443"),
            b"PROXY TCP4 192.0.2.1 198.51.100.7 40000 443\r\n"
        );
        assert_eq!(
            written(ProxyHeader::V1, "[2001:db8::1]:65535", "[2001:db8::2]:80"),
            b"PROXY TCP6 2001:db8::1 2001:db8::2 65535 80\r\n"
        );
        let long = "[1111:2222:3333:4444:5555:6666:7777:8888]:65535";
        assert!(written(ProxyHeader::V1, long, long).len() <= V1_MAX);
    }

    #[test]
    fn p11_version_2_is_the_local_command() {
        let v2 = written(ProxyHeader::V2, "[2001:db8::1]:65535", "[2001:db8::2]:80");
        assert_eq!(v2, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
        assert_eq!(
            written(ProxyHeader::None, "192.0.2.1:1", "192.0.2.2:2"),
            b""
        );
    }
}
