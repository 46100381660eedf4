//! `/v1/sources` (semantics P17): who connects to endpoints from where, on which ports; for firewall rules.
//!
//! In: the running model, the prober's `--source-address`, the connected clients. Out: a row for each source address, with
//! the ports that it connects to and the services behind them.
//!
//! Where probes come from when no address is given is the kernel's choice for each destination. It is asked: a UDP socket
//! that is connected to the endpoint's address shows the local one that its routes give, and nothing is sent. A
//! destination without a route has a row without an address: its probes are INCONCLUSIVE until there is one.
//!
//! An Envoy's address is that of its connection to this server. Behind an address translation, or with several
//! interfaces, it may reach its endpoints from another one, which nobody here can see.
//!
//! Not here: HTTP (`admin`), who probes what target (`plan`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use serde::{Deserialize, Serialize};

use crate::ads::clients::Client;
use crate::health::registry::EMBEDDED_VANTAGE;
use crate::model::{Model, Name};
use crate::plan::Plan;

/// One element of `/v1/sources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// PROBERS or ENVOYS.
    pub kind: String,
    /// The prober's name, or the Envoy's `node.id`.
    pub name: String,
    /// The fleet of an Envoy.
    pub fleet: Option<String>,
    /// Where its connections come from; `null` where this is not known.
    pub address: Option<IpAddr>,
    /// What they go to, by port.
    pub destinations: Vec<Destination>,
}

/// A port that a source connects to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// PROBES, TRAFFIC, or CANARY: a canary of a guard, which a prober connects to (semantics V5). An Envoy probes where
    /// `probing.by` has ENVOYS.
    pub purpose: String,
    /// TCP: so far nothing goes over another transport.
    pub protocol: String,
    /// The endpoints' port.
    pub port: u16,
    /// The services whose endpoints have it; of a canary, those whose guard names it.
    pub services: Vec<String>,
}

type Ports = BTreeMap<u16, BTreeSet<Name>>;

/// All sources: the prober's by address, then Envoys in the order of connecting. `fixed` is `--source-address`; `local`
/// tells the local address of connections to another one.
pub(super) fn sources(
    model: &Model,
    fixed: Option<IpAddr>,
    clients: &[Client],
    local: impl FnMut(IpAddr) -> Option<IpAddr>,
) -> Vec<Source> {
    let mut rows = probers(model, fixed, local);
    let mut by_fleet: BTreeMap<Name, Vec<Destination>> = BTreeMap::new();
    rows.extend(clients.iter().map(|client| {
        let fleet = client.fleet.as_ref();
        let destinations = fleet.map(|fleet| {
            let known = by_fleet.entry(fleet.clone());
            &*known.or_insert_with(|| of_fleet(model, fleet))
        });
        Source {
            kind: "ENVOYS".into(),
            name: client.node_id.clone(),
            fleet: fleet.map(Name::to_string),
            address: client.peer.map(|peer| peer.ip().to_canonical()),
            destinations: destinations.cloned().unwrap_or_default(),
        }
    }));
    rows
}

fn probers(
    model: &Model,
    fixed: Option<IpAddr>,
    mut local: impl FnMut(IpAddr) -> Option<IpAddr>,
) -> Vec<Source> {
    let mut chosen: BTreeMap<IpAddr, Option<IpAddr>> = BTreeMap::new();
    // Of probes, and of canaries.
    let mut by_source: BTreeMap<Option<IpAddr>, [Ports; 2]> = BTreeMap::new();
    let plan = Plan::new(model);
    let targets = plan.targets.into_values().map(|target| {
        let services = target.places.into_iter().map(|place| place.service);
        let services: Vec<Name> = services.collect();
        (target.address, services, false)
    });
    let canaries = plan.canaries.into_values().map(|canary| {
        let guards = model.services.values();
        let named = guards.filter(|service| service.guard.canaries.contains(&canary.address));
        let services = named.map(|service| service.name.clone()).collect();
        (canary.address, services, true)
    });
    for (address, of, is_canary) in targets.chain(canaries) {
        let to = address.ip();
        let from = match fixed {
            // An endpoint of the other family cannot be probed from there.
            Some(fixed) if fixed.is_ipv4() != to.is_ipv4() => None,
            Some(fixed) => Some(fixed),
            None => *chosen.entry(to).or_insert_with(|| local(to)),
        };
        let [probes, canaries] = by_source.entry(from).or_default();
        let ports = if is_canary { canaries } else { probes };
        let services = ports.entry(address.port()).or_default();
        services.extend(of);
    }
    let row = |(address, [probes, canaries]): (Option<IpAddr>, [Ports; 2])| {
        let mut all = destinations("PROBES", &probes);
        all.extend(destinations("CANARY", &canaries));
        Source {
            kind: "PROBERS".into(),
            name: EMBEDDED_VANTAGE.into(),
            fleet: None,
            address,
            destinations: all,
        }
    };
    by_source.into_iter().map(row).collect()
}

/// Where the Envoys of a fleet send traffic, and the checks that they run themselves (semantics H7).
fn of_fleet(model: &Model, fleet: &Name) -> Vec<Destination> {
    let (mut probes, mut traffic) = (Ports::new(), Ports::new());
    let fleet = model.fleets.iter().find(|known| known.name == *fleet);
    let told = fleet.into_iter().flat_map(|fleet| &fleet.services);
    for service in told.filter_map(|name| model.services.get(name)) {
        for (backend, endpoint) in service.endpoints() {
            add(&mut traffic, endpoint.address.port(), &service.name);
            if let Some(named) = service.check.as_ref().filter(|_| backend.by.envoys) {
                let port = endpoint.probe_address(&named.check).port();
                add(&mut probes, port, &service.name);
            }
        }
    }
    let mut all = destinations("PROBES", &probes);
    all.extend(destinations("TRAFFIC", &traffic));
    all
}

fn add(ports: &mut Ports, port: u16, service: &Name) {
    let services = ports.entry(port).or_default();
    if !services.contains(service) {
        services.insert(service.clone());
    }
}

fn destinations(purpose: &str, ports: &Ports) -> Vec<Destination> {
    let of = |(port, services): (&u16, &BTreeSet<Name>)| Destination {
        purpose: purpose.into(),
        protocol: "TCP".into(),
        port: *port,
        services: services.iter().map(Name::to_string).collect(),
    };
    ports.iter().map(of).collect()
}

/// The local address that this machine's routes give connections to another; `None` without a route.
pub(super) fn by_routes(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    // Any port: routes do not look at it.
    socket.connect(SocketAddr::new(to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::config;
    use crate::stream::Transport;

    const CONFIG: &str = "\
healthChecks:
- { name: web, type: HTTP }
- { name: side, type: TCP, portSpecification: USE_FIXED_PORT, port: 9000 }
endpointGroups:
- { name: g, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{ address: 192.0.2.1, port: 80 }, { address: 198.51.100.1, port: 81 }] }
- { name: six, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{ address: '2001:db8::1', port: 80 }] }
backendServices:
- { name: a, protocol: HTTP, healthCheck: web, backends: [{ group: g }], probing: { by: [PROBERS] } }
- { name: b, protocol: HTTP, healthCheck: side, backends: [{ group: g }], probing: { by: [PROBERS] } }
- { name: c, protocol: HTTP, healthCheck: web, backends: [{ group: six }], probing: { by: [PROBERS] } }
- { name: d, protocol: TCP, healthCheck: side, backends: [{ group: g }], probing: { by: [ENVOYS] } }
- { name: e, protocol: HTTP, healthCheck: web, backends: [{ group: g }], probing: { by: [PROBERS], guard: { canaries: ['192.0.2.9:53'] } } }
- { name: unprobed, protocol: TCP, backends: [{ group: six }] }
fleets:
- { name: edge, services: [a, c, d, unprobed] }
";

    fn model() -> Model {
        let sources = [config::Source::new("a.yaml", CONFIG)];
        config::parse_sources(&sources).unwrap().model
    }

    /// The row as `address: port=services …`.
    fn text(rows: &[Source]) -> Vec<String> {
        let row = |row: &Source| {
            let ports = row.destinations.iter();
            let ports: Vec<_> = ports
                .map(|to| {
                    let canary = if to.purpose == "CANARY" {
                        "CANARY "
                    } else {
                        ""
                    };
                    format!(
                        "{canary}{}/{}={}",
                        to.protocol,
                        to.port,
                        to.services.join("+")
                    )
                })
                .collect();
            let address = row
                .address
                .map_or("-".into(), |address| address.to_string());
            format!("{} {} {address}: {}", row.kind, row.name, ports.join(" "))
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn p17_probes_come_from_where_routes_say() {
        // As a machine with two interfaces and no IPv6.
        let mut asked = Vec::new();
        let routes = |to: IpAddr| {
            asked.push(to);
            match to {
                IpAddr::V4(to) if to.octets()[0] == 192 => Some("10.0.0.1".parse().unwrap()),
                IpAddr::V4(_) => Some("172.16.0.1".parse().unwrap()),
                IpAddr::V6(_) => None,
            }
        };
        assert_eq!(
            text(&sources(&model(), None, &[], routes)),
            [
                "PROBERS embedded -: TCP/80=c",
                "PROBERS embedded 10.0.0.1: TCP/80=a+e TCP/9000=b CANARY TCP/53=e",
                "PROBERS embedded 172.16.0.1: TCP/81=a+e TCP/9000=b",
            ]
        );
        assert_eq!(asked.len(), 4, "each address once: {asked:?}");
    }

    #[test]
    fn p17_a_source_address_is_said_as_it_is_given() {
        let fixed = Some("10.0.0.9".parse().unwrap());
        let rows = sources(&model(), fixed, &[], |_| panic!("nobody is asked"));
        assert_eq!(
            text(&rows),
            [
                "PROBERS embedded -: TCP/80=c",
                "PROBERS embedded 10.0.0.9: TCP/80=a+e TCP/81=a+e TCP/9000=b CANARY TCP/53=e",
            ]
        );
        assert!(
            rows.iter()
                .all(|row| { row.destinations.iter().all(|to| to.purpose != "TRAFFIC") })
        );
    }

    #[test]
    fn p17_connected_envoys_are_told_with_the_ports_of_their_fleet() {
        let envoy = |id: &str, fleet: &str, peer: &str| Client {
            node_id: id.into(),
            node_cluster: String::new(),
            fleet: Name::new(fleet),
            transport: Transport::Delta,
            only: None,
            connected_at: UNIX_EPOCH,
            user_agent: String::new(),
            peer: Some(peer.parse().unwrap()),
            caught_up: None,
            types: Vec::new(),
        };
        let envoys = [
            // As an IPv6 listener sees an IPv4 client.
            envoy("e1", "edge", "[::ffff:10.1.0.1]:4000"),
            // Of a fleet that a reload has taken.
            envoy("e2", "gone", "10.1.0.2:4000"),
        ];
        let empty = Model {
            services: BTreeMap::new(),
            ..model()
        };
        let of = |model: &Model| text(&sources(model, None, &envoys, |_| None));
        let rows = of(&model());
        assert_eq!(
            rows[rows.len() - 2..],
            [
                "ENVOYS e1 10.1.0.1: TCP/9000=d TCP/80=a+c+d+unprobed TCP/81=a+d",
                "ENVOYS e2 10.1.0.2: "
            ]
        );
        assert_eq!(of(&empty), ["ENVOYS e1 10.1.0.1: ", "ENVOYS e2 10.1.0.2: "]);
    }

    #[test]
    fn p17_the_kernel_is_asked() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(by_routes(loopback), Some(loopback));
        // Without leave, nothing can be connected to a broadcast address.
        assert_eq!(by_routes("255.255.255.255".parse().unwrap()), None);
    }
}
