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

use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, OutlierDetection};
use globset::GlobMatcher;
use vitals_prober::check::HealthCheck;

use crate::trust::Allow;

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
    /// How Envoy speaks TLS to them; `Some` exactly where the protocol is one over TLS.
    pub tls: Option<UpstreamTls>,
    /// Its check; `None`: DISABLED, all endpoints are served (semantics S5, H1).
    pub check: Option<NamedCheck>,
    /// Where its endpoints come from, in the order of writing.
    pub backends: Vec<Backend>,
    /// When traffic goes from the primary backends to the failover backends; `Some` exactly where it has both.
    pub failover: Option<Failover>,
    /// What becomes of requests while no endpoint is healthy. With failover backends `dropTrafficIfUnhealthy` says it
    /// (semantics H3).
    pub when_all_unhealthy: WhenAllUnhealthy,
    /// The status of the response to a request that no endpoint can take; `None` is Envoy's 503; 200–599
    /// (semantics H5).
    pub unhealthy_response_code: Option<u16>,
    /// Whether an Envoy that finds an endpoint unhealthy closes the connections to it (semantics H4).
    pub close_connections_on_unhealthy: bool,
    /// How votes come to a status.
    pub quorum: Quorum,
    /// When a vantage that finds too much unhealthy is doubted.
    pub guard: Guard,
    /// How Envoy chooses among its endpoints.
    pub policy: LbPolicy,
    /// What keeps a client with one endpoint.
    pub affinity: Affinity,
    /// How long a removed endpoint is DRAINING before it is omitted.
    pub connection_draining: Duration,
    /// Envoy's passive checks.
    pub outlier_detection: Option<OutlierDetection>,
    /// Envoy's limits on connections and requests.
    pub circuit_breakers: Option<CircuitBreakers>,
}

impl Service {
    /// A service of this name with every default, without check or endpoints.
    #[must_use]
    pub fn new(name: Name, protocol: Protocol) -> Self {
        Self {
            name,
            protocol,
            tls: None,
            check: None,
            backends: Vec::new(),
            failover: None,
            when_all_unhealthy: WhenAllUnhealthy::default(),
            unhealthy_response_code: None,
            close_connections_on_unhealthy: false,
            quorum: Quorum::default(),
            guard: Guard::default(),
            policy: LbPolicy::default(),
            affinity: Affinity::default(),
            connection_draining: Duration::ZERO,
            outlier_detection: None,
            circuit_breakers: None,
        }
    }

    /// Whether Envoys check endpoints of it (semantics H7).
    #[must_use]
    pub fn has_envoy_checks(&self) -> bool {
        self.check.is_some() && self.backends.iter().any(|backend| backend.by.envoys)
    }

    /// Whether requests are refused while no endpoint is healthy; else all share them. With failover backends theirs is
    /// the word (semantics H3, H5, H6).
    #[must_use]
    pub fn refuses_when_all_unhealthy(&self) -> bool {
        match self.failover {
            Some(failover) => failover.drop_traffic_if_unhealthy,
            None => self.when_all_unhealthy == WhenAllUnhealthy::FailClosed,
        }
    }

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
    /// Where a group has less than its whole capacity, all weights of the service count in hundredths (design 5.5); what is
    /// less than one of those is one, because only 0 is none.
    #[must_use]
    pub fn weight_of(&self, backend: &Backend, endpoint: &Endpoint) -> Option<u32> {
        if !backend.gives_weight(endpoint) {
            return None;
        }
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
        let rounded = weight.round() as u32;
        Some(rounded.max(1))
    }
}

/// The protocol of a service's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/2 with prior knowledge, without TLS.
    H2c,
    /// gRPC over `H2c`.
    Grpc,
    /// gRPC over `Http2`.
    GrpcWithTls,
    /// Bytes.
    Tcp,
    /// Bytes over TLS.
    Ssl,
}

impl Protocol {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Self; 8] = [
        Self::Http,
        Self::Https,
        Self::Http2,
        Self::H2c,
        Self::Grpc,
        Self::GrpcWithTls,
        Self::Tcp,
        Self::Ssl,
    ];

    /// Its name in the configuration: `HTTP`, `GRPC_WITH_TLS`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Http2 => "HTTP2",
            Self::H2c => "H2C",
            Self::Grpc => "GRPC",
            Self::GrpcWithTls => "GRPC_WITH_TLS",
            Self::Tcp => "TCP",
            Self::Ssl => "SSL",
        }
    }

    /// Whether an HTTP route can lead there.
    #[must_use]
    pub fn is_http(self) -> bool {
        !matches!(self, Self::Tcp | Self::Ssl)
    }

    /// Whether Envoy speaks HTTP/2 to it.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(
            self,
            Self::Http2 | Self::H2c | Self::Grpc | Self::GrpcWithTls
        )
    }

    /// Whether Envoy speaks TLS to it.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(
            self,
            Self::Https | Self::Http2 | Self::GrpcWithTls | Self::Ssl
        )
    }
}

/// `tls:` of a service: the TLS from Envoy to its endpoints.
///
/// An Envoy and the prober verify alike but for one thing: a certificate that says of itself that it is an authority
/// (`CA:TRUE`), as `openssl req -x509` makes them, an Envoy takes from a server where the roots vouch for it, and a check with
/// `tls.verify` and `vitals probe --tls-verify` refuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The name that Envoy asks for; `None` asks for none.
    pub sni: Option<String>,
    /// The certificates that the endpoints' are validated against; `None` validates nothing.
    pub verify: Option<UpstreamRoots>,
}

/// Where the certificates stand that endpoints' are validated against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamRoots {
    /// The Envoy machine's own roots.
    System,
    /// PEM, as the file that `tls.roots` names had it when the configuration was read.
    Pem(Arc<str>),
}

/// `failover:` of a service (semantics H2, H3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failover {
    /// Below this share of healthy primaries traffic goes to the failover backends; 0.0–1.0; 0: when none is healthy.
    pub ratio: f64,
    /// From this share on it comes back; at least `ratio`.
    pub failback_ratio: f64,
    /// Whether requests are refused while no endpoint of either pool is healthy; else all share them.
    pub drop_traffic_if_unhealthy: bool,
}

/// `whenAllUnhealthy` (semantics H5, H6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenAllUnhealthy {
    /// Requests are refused.
    #[default]
    FailClosed,
    /// All endpoints get traffic.
    FailOpen,
}

/// `probing.quorum` (semantics V2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Quorum {
    /// Of the fresh votes, more than half decide.
    #[default]
    Majority,
    /// The latest transition wins, whichever prober made it.
    Any,
    /// Healthy only when all fresh votes say so.
    All,
    /// Healthy when more than this share of the fresh votes say so; 0.0 ≤ share < 1.0.
    Share(f64),
}

/// `probing.guard` (semantics V5).
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Whether there is one.
    pub enabled: bool,
    /// A vantage that turns more than this share of its endpoints from healthy abstains; over 0.0, at most 1.0.
    pub max_share: f64,
    /// The fewest endpoints of which a share says anything; at least 1.
    pub min_endpoints: u32,
    /// The longest that a vantage abstains.
    pub max_hold: Duration,
    /// Addresses that must be reachable over TCP from a vantage that is trusted.
    pub canaries: Vec<SocketAddr>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            enabled: true,
            max_share: 0.5,
            min_endpoints: 10,
            max_hold: Duration::from_secs(300),
            canaries: Vec::new(),
        }
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
    /// By a hash, on a ring.
    RingHash,
    /// By a hash, in a table that changes little.
    Maglev,
}

impl LbPolicy {
    /// Whether it chooses by a hash, so that affinity can hold.
    #[must_use]
    pub fn is_hashing(self) -> bool {
        matches!(self, Self::RingHash | Self::Maglev)
    }
}

/// `sessionAffinity` (semantics H8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// None.
    #[default]
    None,
    /// By the client's address.
    ClientIp,
    /// By a request header of this name.
    Header(String),
    /// By a cookie, which Envoy sets where it is missing.
    Cookie {
        /// Its name.
        name: String,
        /// How long it lives; zero: as long as the browser is open.
        ttl: Duration,
    },
}

/// One group of a service.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The group.
    pub group: Arc<EndpointGroup>,
    /// The share of its endpoints' weights that is used; 0.0–1.0.
    pub capacity: f64,
    /// Whether its endpoints take traffic only when the primary ones don't (semantics H2).
    pub failover: bool,
    /// Who checks its endpoints.
    pub by: ProbedBy,
}

impl Backend {
    /// Whether one of its endpoints has a share of traffic at all, be it small (semantics S6).
    #[must_use]
    pub fn gives_weight(&self, endpoint: &Endpoint) -> bool {
        endpoint.weight > 0 && self.capacity > 0.0
    }
}

/// `probing.by` of one backend: at least one where the service has a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedBy {
    /// This server's prober, and later remote ones.
    pub probers: bool,
    /// Every Envoy for itself (semantics H7). With `probers` both must find an endpoint healthy.
    pub envoys: bool,
}

impl ProbedBy {
    /// Only probers: the default of `GCE_VM_IP_PORT` groups.
    pub const PROBERS: Self = Self {
        probers: true,
        envoys: false,
    };
    /// Only Envoys.
    pub const ENVOYS: Self = Self {
        probers: false,
        envoys: true,
    };
    /// Both: the default of hybrid and internet groups.
    pub const BOTH: Self = Self {
        probers: true,
        envoys: true,
    };
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
    /// Whom it admits by certificate; `None`: every node that matches.
    pub allow: Option<Arc<Allow>>,
    /// The services that it is told of: those named, or all.
    pub services: BTreeSet<Name>,
    /// The listeners that its Envoys open.
    pub listeners: Vec<Listener>,
    /// The order in which regions take traffic, nearest first; empty: all alike (semantics H10).
    pub region_order: Vec<Arc<str>>,
    /// In which form its Envoys learn of endpoints.
    pub endpoint_discovery: EndpointDiscovery,
}

/// `fleets[].endpointDiscovery`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointDiscovery {
    /// All endpoints of a service in one resource.
    #[default]
    Eds,
    /// Each endpoint a resource of its own, for Envoys that speak delta; all others get the first form.
    Leds,
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
