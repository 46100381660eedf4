//! A check as a person wrote it: every field may be left out. [`HealthCheck::new`](super::HealthCheck::new) makes it
//! complete, or says what is wrong with it. Only the block of the check's own type is looked at, and `tls` only where
//! the type speaks TLS: that the others are not written at all is for the configuration's reader to see.

use std::time::Duration;

use super::grpc::GrpcSpec;
use super::kind::Kind;
use super::profile::Profile;
use super::tls::TlsSpec;
use super::{Method, TcpMatch};

/// A check as it was written: `None` is a field that was left out. The defaults and ranges told here are those of
/// profile GCP; semantics P2 has the table.
#[derive(Clone, Debug, Default)]
pub struct HealthCheckSpec {
    /// `profile`; default GCP.
    pub profile: Option<Profile>,
    /// `type`; must be given, save for TENCENT_ALB, whose default is TCP.
    pub kind: Option<Kind>,
    /// `checkInterval`; 100 ms–300 s, default 5 s.
    pub check_interval: Option<Duration>,
    /// `timeout`; 100 ms–300 s, at most the interval, default 5 s or the interval where that is shorter.
    pub timeout: Option<Duration>,
    /// `healthyThreshold`; 1–10, default 2.
    pub healthy_threshold: Option<u64>,
    /// `unhealthyThreshold`; 1–10, default 2.
    pub unhealthy_threshold: Option<u64>,
    /// `port`, with `portSpecification: USE_FIXED_PORT`; `None` is `USE_SERVING_PORT` (semantics P3).
    pub fixed_port: Option<u16>,
    /// `proxyHeader`; default NONE.
    pub proxy_header: Option<ProxyHeader>,
    /// `close`; default RST.
    pub close: Option<Close>,
    /// `tls`, for the types that speak it.
    pub tls: Option<TlsSpec>,
    /// `tcp`, for TCP and SSL.
    pub tcp: TcpSpec,
    /// `http`, for HTTP, HTTPS and HTTP2.
    pub http: HttpSpec,
    /// `grpc`, for GRPC and GRPC_WITH_TLS.
    pub grpc: GrpcSpec,
}

impl HealthCheckSpec {
    /// A spec of that type, all else left out.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self {
            kind: Some(kind),
            ..Self::default()
        }
    }

    /// A TCP check, all else left out.
    #[must_use]
    pub fn tcp(tcp: TcpSpec) -> Self {
        Self {
            tcp,
            ..Self::of(Kind::Tcp)
        }
    }

    /// An HTTP check, all else left out.
    #[must_use]
    pub fn http(http: HttpSpec) -> Self {
        Self {
            http,
            ..Self::of(Kind::Http)
        }
    }
}

/// `proxyHeader`: the PROXY header that opens the connection (semantics P11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProxyHeader {
    /// None.
    #[default]
    None,
    /// The line of version 1, with the addresses of the probe's own connection.
    V1,
    /// The LOCAL command of version 2.
    V2,
}

/// `close`: how a probe leaves (design 5.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Close {
    /// By a reset, which leaves no TIME_WAIT behind.
    #[default]
    Rst,
    /// By the usual exchange, for servers that complain about resets; it holds a local port for a minute.
    Fin,
}

/// `tcp:` of a check, as written.
#[derive(Clone, Debug, Default)]
pub struct TcpSpec {
    /// `request`: printable ASCII, at most 1,024 characters (semantics P5).
    pub request: Option<String>,
    /// `response`: printable ASCII, at most 1,024 characters (semantics P5).
    pub response: Option<String>,
    /// `match`; default EXACT (semantics P8).
    pub matching: Option<TcpMatch>,
}

/// `http:` of a check, as written.
#[derive(Clone, Debug, Default)]
pub struct HttpSpec {
    /// `requestPath`; starts with `/`, default `/`.
    pub request_path: Option<String>,
    /// `method`; default GET.
    pub method: Option<Method>,
    /// `expectedStatuses`: `200`, `200-299`, `http_2xx`; default 200 (semantics P6).
    pub expected_statuses: Option<Vec<String>>,
    /// `host` for the Host header (semantics P7).
    pub host: Option<String>,
    /// `response`: printable ASCII, at most 1,024 characters (semantics P4, P5).
    pub response: Option<String>,
    /// `headers`, in the order of writing.
    pub headers: Vec<(String, String)>,
}
