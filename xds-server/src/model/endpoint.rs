//! Groups and their endpoints: addresses, where they are, what is probed of each.
//!
//! In: `config`. Out: immutable values. Whether an endpoint is healthy is `health`'s to say.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vitals_prober::check::HealthCheck;

use super::Name;

/// A named set of endpoints in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointGroup {
    /// Its name.
    pub name: Name,
    /// What kind of endpoints it holds.
    pub kind: GroupKind,
    /// Where they are.
    pub locality: Locality,
    /// The endpoints, in the order of writing; no two share address and port.
    pub endpoints: Vec<Endpoint>,
}

/// `endpointGroups[].type`, the kinds that have addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// `GCE_VM_IP_PORT`
    GceVmIpPort,
    /// `NON_GCP_PRIVATE_IP_PORT`: hybrid, on-premises.
    NonGcpPrivateIpPort,
    /// `INTERNET_IP_PORT`
    InternetIpPort,
}

/// A region and a zone; either may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Locality {
    /// The region.
    pub region: Arc<str>,
    /// The zone.
    pub zone: Arc<str>,
}

/// One address that traffic can go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where traffic goes.
    pub address: SocketAddr,
    /// Relative share of traffic, 0–1,000; 0 takes no new requests but is still probed (semantics S6).
    pub weight: u32,
    /// What the operator says of it.
    pub state: AdminState,
    /// The interface that is probed instead of `address` (semantics P3).
    pub health_check_address: Option<IpAddr>,
    /// The port that is probed instead of the serving port (semantics P3); 1–65535.
    pub health_check_port: Option<u16>,
}

/// `state:` of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminState {
    /// Served as its health says.
    #[default]
    Active,
    /// Existing connections only; still probed (semantics H1).
    Draining,
    /// The machine is stopped: neither probed nor published (semantics S6).
    Stopped,
}

impl Endpoint {
    /// Where `check` probes this endpoint (semantics P3): the endpoint's own `healthCheckPort` is the most specific word,
    /// then the check's fixed port, then the serving port.
    #[must_use]
    pub fn probe_address(&self, check: &HealthCheck) -> SocketAddr {
        let port = self
            .health_check_port
            .or(check.fixed_port())
            .unwrap_or(self.address.port());
        SocketAddr::new(self.health_check_address.unwrap_or(self.address.ip()), port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p3_the_endpoints_own_port_and_address_win_over_the_checks() {
        use vitals_prober::check::{HealthCheckSpec, Kind};
        let serving = HealthCheck::new(HealthCheckSpec::of(Kind::Tcp)).unwrap();
        let fixed = HealthCheck::new(HealthCheckSpec {
            fixed_port: Some(9000),
            ..HealthCheckSpec::of(Kind::Tcp)
        })
        .unwrap();
        let mut endpoint = Endpoint {
            address: "127.0.0.1:80".parse().unwrap(),
            weight: 1,
            state: AdminState::Active,
            health_check_address: None,
            health_check_port: None,
        };
        assert_eq!(endpoint.probe_address(&serving).to_string(), "127.0.0.1:80");
        assert_eq!(endpoint.probe_address(&fixed).to_string(), "127.0.0.1:9000");
        endpoint.health_check_port = Some(9001);
        endpoint.health_check_address = Some("127.0.0.9".parse().unwrap());
        assert_eq!(endpoint.probe_address(&fixed).to_string(), "127.0.0.9:9001");
    }
}
