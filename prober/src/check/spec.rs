//! A check as a person wrote it: every field may be left out. [`HealthCheck::new`](super::HealthCheck::new) makes it
//! complete, or says what is wrong with it.

use std::time::Duration;

use super::{Method, TcpMatch};

/// A check as it was written: `None` is a field that was left out. Defaults are those of profile GCP (semantics P2).
#[derive(Clone, Debug, Default)]
pub struct HealthCheckSpec {
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
    /// The type and what belongs to it.
    pub protocol: ProtocolSpec,
}

/// The type of a check and its own fields, as written.
#[derive(Clone, Debug)]
pub enum ProtocolSpec {
    /// `type: TCP`
    Tcp(TcpSpec),
    /// `type: HTTP`
    Http(HttpSpec),
}

impl Default for ProtocolSpec {
    fn default() -> Self {
        Self::Tcp(TcpSpec::default())
    }
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
