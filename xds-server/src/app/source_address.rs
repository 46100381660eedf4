//! `--source-address`: where probes come from (semantics P17).
//!
//! In: what the command line says. Out: an address of one machine, and before anything is probed, whether it is this
//! one's: every probe would be INCONCLUSIVE else, and nobody would be told why. Not here: its use (the prober).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, bail};

/// Reads the address.
pub(super) fn parse(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text
        .parse()
        .map_err(|_not_an_address| "write an IP address, without port or mask".to_owned())?;
    // An IPv4 address in IPv6's clothes could reach no IPv4 endpoint.
    let address = address.to_canonical();
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(format!(
            "{address} is not the address of one machine; leave the flag out to let the system choose"
        ));
    }
    Ok(address)
}

/// Checks that probes can come from there. UDP, because its bind looks at the address as TCP's does, and nothing is ever
/// sent to it.
pub(super) fn check(address: IpAddr) -> anyhow::Result<()> {
    let result: io::Result<_> = UdpSocket::bind(SocketAddr::new(address, 0));
    match result {
        Ok(_socket) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => bail!(
            "--source-address: this machine does not have the address {address}, so no probe can come from there; \
             name one of its own, or leave the flag out"
        ),
        Err(error) => Err(error).context(format!(
            "--source-address: no probe can come from {address}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p17_the_address_is_one_machines() {
        assert_eq!(parse("192.0.2.1"), Ok("192.0.2.1".parse().unwrap()));
        assert_eq!(parse("::ffff:192.0.2.1"), parse("192.0.2.1"));
        assert_eq!(parse("2001:db8::1"), Ok("2001:db8::1".parse().unwrap()));
        for bad in [
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "10.0.0.1:80",
            "10.0.0.0/8",
            "localhost",
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn p17_an_address_of_another_machine_is_named() {
        check("127.0.0.1".parse().unwrap()).unwrap();
        // TEST-NET-1: nobody's.
        let error = check("192.0.2.1".parse().unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("does not have the address 192.0.2.1"),
            "{error}"
        );
    }
}
