//! The validated configuration: services, groups, endpoints, checks, fleets.
//!
//! In: what `config` read and found free of errors. Out: one immutable value behind an `Arc`, that `plan`, `health` and
//! `resources` read. Every reference is resolved and every default filled in, so nobody downstream checks again.
//!
//! Not here: anything that changes by itself. Health is `health`'s; addresses of names will be `dns`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use globset::GlobMatcher;
use vitals_prober::check::HealthCheck;

/// A name of the configuration: 1–63 of `a-z0-9-`. It is also the name of the Envoy resource.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The name, if it is one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let valid = (1..=63).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        valid.then(|| Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Health checks by name, also those that no service uses. One that gets its host from a service's routes (semantics
    /// P7) is whole only there.
    pub checks: BTreeMap<Name, Arc<HealthCheck>>,
    /// Backend services by name.
    pub services: BTreeMap<Name, Arc<Service>>,
    /// Fleets in the order of writing: the first that matches a node takes it.
    pub fleets: Vec<Arc<Fleet>>,
}

/// A health check under the name that the configuration gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCheck {
    /// Its name; not part of its content (semantics V6).
    pub name: Name,
    /// Its content.
    pub check: Arc<HealthCheck>,
}

/// A backend service: becomes a Cluster and a ClusterLoadAssignment of its name.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name.
    pub name: Name,
    /// What its endpoints speak.
    pub protocol: Protocol,
    /// Its check; `None`: DISABLED, all endpoints are served (semantics S5, H1).
    pub check: Option<NamedCheck>,
    /// Where its endpoints come from, in the order of writing.
    pub backends: Vec<Backend>,
    /// How Envoy chooses among its endpoints.
    pub policy: LbPolicy,
    /// How long a removed endpoint is DRAINING before it is omitted.
    pub connection_draining: Duration,
}

impl Service {
    /// All its endpoints, each with its group, in the order of writing.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Backend, &Endpoint)> {
        self.backends.iter().flat_map(|backend| {
            let endpoints = backend.group.endpoints.iter();
            endpoints.map(move |endpoint| (backend, endpoint))
        })
    }

    /// The serving addresses of all its endpoints.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.endpoints().map(|(_, endpoint)| endpoint.address)
    }

    /// The share of traffic of one endpoint; `None`: no new requests (semantics S6; Envoy refuses a weight of 0).
    /// Where a group has less than its whole capacity, all weights of the service count in hundredths (design 5.5).
    #[must_use]
    pub fn weight_of(&self, backend: &Backend, endpoint: &Endpoint) -> Option<u32> {
        let whole = self.backends.iter().all(|backend| backend.capacity >= 1.0);
        let weight = if whole {
            f64::from(endpoint.weight)
        } else {
            f64::from(endpoint.weight) * backend.capacity * 100.0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 100,000 by validation"
        )]
        let weight = weight.round() as u32;
        (weight > 0).then_some(weight)
    }
}

/// The protocol of a service's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1
    Http,
    /// HTTP/2 with prior knowledge, without TLS.
    H2c,
    /// gRPC over `H2c`.
    Grpc,
    /// Bytes.
    Tcp,
}

impl Protocol {
    /// Whether an HTTP route can lead there.
    #[must_use]
    pub fn is_http(self) -> bool {
        !matches!(self, Self::Tcp)
    }
}

/// `loadBalancing.policy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LbPolicy {
    /// Each in turn, by weight.
    #[default]
    RoundRobin,
    /// Of two at random, the one with fewer requests under way.
    LeastRequest,
    /// At random, by weight.
    Random,
}

/// One group of a service.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The group.
    pub group: Arc<EndpointGroup>,
    /// The share of its endpoints' weights that is used; 0.0–1.0.
    pub capacity: f64,
}

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

/// A fleet of Envoys that are served alike.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Its name.
    pub name: Name,
    /// Which nodes belong to it.
    pub matcher: NodeMatcher,
    /// The services that it is told of: those named, or all.
    pub services: BTreeSet<Name>,
    /// The listeners that its Envoys open.
    pub listeners: Vec<Listener>,
}

/// `fleets[].match`: every condition that is given must hold; none given matches every node.
#[derive(Clone, Debug, Default)]
pub struct NodeMatcher {
    /// A glob on `node.id`.
    pub id: Option<GlobMatcher>,
    /// A glob on `node.cluster`.
    pub cluster: Option<GlobMatcher>,
    /// Globs on top-level string fields of `node.metadata`.
    pub metadata: BTreeMap<String, GlobMatcher>,
}

/// A listener: becomes a Listener, and for HTTP a RouteConfiguration, of its name.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name.
    pub name: Name,
    /// Where Envoy listens.
    pub address: SocketAddr,
    /// What it does with a connection.
    pub kind: ListenerKind,
}

/// What a listener does with a connection.
#[derive(Clone, Debug)]
pub enum ListenerKind {
    /// HTTP, by routes: the first that matches, in the order of writing.
    Http(Vec<Route>),
    /// A TCP proxy to a TCP service.
    Tcp(Name),
}

/// One HTTP route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Hosts: `*`, `*.example.com`, `example.com`, `example.*` as in Envoy's VirtualHost.domains.
    pub domains: Vec<String>,
    /// Path prefix; starts with `/`.
    pub prefix: String,
    /// Where the request goes.
    pub service: Name,
}

impl NodeMatcher {
    /// Whether a node with these properties belongs to the fleet. `metadata` looks a top-level string field up.
    pub fn matches<'n>(
        &self,
        id: &str,
        cluster: &str,
        metadata: impl Fn(&str) -> Option<&'n str>,
    ) -> bool {
        self.id.as_ref().is_none_or(|glob| glob.is_match(id))
            && self
                .cluster
                .as_ref()
                .is_none_or(|glob| glob.is_match(cluster))
            && self
                .metadata
                .iter()
                .all(|(key, glob)| metadata(key).is_some_and(|value| glob.is_match(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_63_of_lower_case_digits_and_hyphens() {
        for good in ["a", "shop-2", &"x".repeat(63)] {
            assert!(Name::new(good).is_some(), "{good}");
        }
        for bad in ["", "Shop", "a_b", "a.b", "ü", &"x".repeat(64)] {
            assert!(Name::new(bad).is_none(), "{bad}");
        }
    }

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
