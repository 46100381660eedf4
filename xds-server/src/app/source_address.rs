//! `--source-address`: where probes come from (semantics P17).
//!
//! In: what the command line says. Out: an address of one machine, and before anything is probed, whether it is this
//! one's, and whether it is of the endpoints' family: probes would be INCONCLUSIVE else, and nobody would be told why. Not here: its use (the prober).

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, bail};

use crate::model::{Model, Name};
use crate::plan::Plan;

/// So many services are named in a warning.
const SHOWN: usize = 10;

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

/// Tells the log when a configuration has endpoints that cannot be probed from there.
pub(super) fn warn(source: Option<IpAddr>, model: &Model) {
    if let Some(source) = source
        && let Some(text) = of_other_family(source, model)
    {
        tracing::warn!("{text}");
    }
}

/// Which endpoints are of another family than the probes' source; `None`: none.
fn of_other_family(source: IpAddr, model: &Model) -> Option<String> {
    let (mut endpoints, mut services) = (0_usize, BTreeSet::new());
    for target in Plan::new(model).targets.into_values() {
        if target.address.is_ipv4() != source.is_ipv4() {
            endpoints += 1;
            services.extend(target.places.into_iter().map(|place| place.service));
        }
    }
    let (ours, theirs) = match source {
        IpAddr::V4(_) => ("IPv4", "IPv6"),
        IpAddr::V6(_) => ("IPv6", "IPv4"),
    };
    let names: Vec<_> = services.iter().take(SHOWN).map(Name::as_str).collect();
    let more = match services.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (endpoints > 0).then(|| {
        format!(
            "--source-address {source} is of {ours}, from which no {theirs} address can be probed: so many of them are \
             never judged: {endpoints} (services {}{more}); leave the flag out, or give those endpoints a \
             healthCheckAddress of {ours}",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p17_endpoints_of_the_other_family_are_told() {
        let text = "\
healthChecks: [{ name: web, type: HTTP }]
endpointGroups:
- { name: g, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{ address: 192.0.2.1, port: 80 }, { address: '2001:db8::1', port: 80 }] }
- { name: m, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{ address: '2001:db8::2', port: 80, healthCheckAddress: 192.0.2.2 }] }
backendServices:
- { name: a, protocol: HTTP, healthCheck: web, backends: [{ group: g }], probing: { by: [PROBERS] } }
- { name: b, protocol: HTTP, healthCheck: web, backends: [{ group: m }], probing: { by: [PROBERS] } }
fleets: [{ name: edge }]
";
        let sources = [crate::config::Source::new("a.yaml", text)];
        let model = crate::config::parse_sources(&sources).unwrap().model;
        let told = |source: &str| of_other_family(source.parse().unwrap(), &model);
        let of_four = told("192.0.2.9").unwrap();
        assert!(
            of_four.contains("no IPv6 address") && of_four.contains("never judged: 1 (services a)"),
            "{of_four}"
        );
        let of_six = told("2001:db8::9").unwrap();
        assert!(
            of_six.contains("no IPv4 address")
                && of_six.contains("never judged: 2 (services a, b)"),
            "{of_six}"
        );
        assert_eq!(
            of_other_family("192.0.2.9".parse().unwrap(), &Model::default()),
            None
        );
    }

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
