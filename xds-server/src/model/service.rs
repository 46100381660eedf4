//! Backend services: what their endpoints speak, how they are checked, and where traffic goes.
//!
//! In: `config`. Out: immutable values. Where the endpoints of a backend are stands in `endpoint`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, OutlierDetection};

use super::{Endpoint, EndpointGroup, Name, NamedCheck};

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
