//! What an Envoy makes of a check that it runs itself (semantics H7).
//!
//! In: a check, and the service whose endpoints it is asked of, or its protocol. Out: whether Envoy's own health checks
//! can say the same, and where they do, in what they still differ from a prober's. Pure. `config` holds `probing.by`
//! against it, the resources render only what is expressible, `vitals explain` lists the deviations.
//!
//! What is said of Envoy was measured on 1.40: it ejects at the first failure of every gRPC check, of a body that lacks
//! the string, and of a status that is neither expected nor retriable; network errors, timeouts, retriable statuses and
//! TCP mismatches count to the threshold.
//!
//! Not here: the health check as Envoy's message (`resources`).

use std::time::Duration;

use vitals_prober::check::{
    Close, GrpcAsk, HealthCheck, Kind, Protocol as Asks, ProxyHeader, TcpMatch,
};

use crate::model::{Protocol, Service};

/// Above this a check's timeout is worth a warning: an Envoy is not live before it has checked every endpoint once, and
/// one that hangs delays it by the whole timeout.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(5);

/// How much later than the interval an Envoy's next check may start, in percent of the interval; spread evenly.
pub const INTERVAL_JITTER_PERCENT: u32 = 10;

/// The longest that an Envoy waits before the first check of an endpoint.
const MAX_INITIAL_JITTER: Duration = Duration::from_secs(1);

/// Over which time the first checks of a cluster are spread: min(interval, 1 s).
#[must_use]
pub fn initial_jitter(check: &HealthCheck) -> Duration {
    check.interval().min(MAX_INITIAL_JITTER)
}

/// Why an Envoy cannot run a check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}; {nearest}")]
pub struct Inexpressible {
    /// The field of the check that stands in the way, as the configuration names it: `tcp.match`.
    pub field: &'static str,
    /// What Envoy does instead.
    pub why: String,
    /// The nearest that it can do.
    pub nearest: &'static str,
}

impl Inexpressible {
    fn new(field: &'static str, why: impl Into<String>, nearest: &'static str) -> Self {
        Self {
            field,
            why: why.into(),
            nearest,
        }
    }
}

/// Whether an Envoy can run `check` on endpoints that speak `protocol`.
///
/// # Errors
/// The first field that it has no words for.
pub fn expressible(check: &HealthCheck, protocol: Protocol) -> Result<(), Inexpressible> {
    match check.protocol() {
        Asks::Tcp(tcp) => match (tcp.request(), tcp.response(), tcp.matching()) {
            (_, Some(_), TcpMatch::Exact) => Err(Inexpressible::new(
                "tcp.match",
                "Envoy looks for the string anywhere in the answer, and cannot tell EXACT",
                "write match: CONTAINS",
            )),
            (_, Some(_), TcpMatch::Prefix) => Err(Inexpressible::new(
                "tcp.match",
                "Envoy looks for the string anywhere in the answer, and cannot tell PREFIX",
                "write match: CONTAINS",
            )),
            (Some(_), None, _) => Err(Inexpressible::new(
                "tcp.request",
                "Envoy closes without sending where it awaits no answer",
                "add a response with match: CONTAINS, or drop the request",
            )),
            (_, Some(_), TcpMatch::Contains) | (None, None, _) => Ok(()),
        },
        Asks::Http(http) | Asks::Http2(http) => {
            if http.response().is_some() && check.thresholds().unhealthy > 1 {
                return Err(Inexpressible::new(
                    "http.response",
                    "Envoy ejects at the first body without the string, whatever unhealthyThreshold says",
                    "write unhealthyThreshold: 1, or drop the response",
                ));
            }
            Ok(())
        }
        Asks::Grpc(grpc) => {
            if !protocol.is_http2() {
                return Err(Inexpressible::new(
                    "type",
                    format!(
                        "Envoy asks gRPC over the service's own protocol, and {} is not HTTP/2",
                        protocol.name()
                    ),
                    "use a check of another type, such as TCP",
                ));
            }
            if matches!(grpc.ask(), GrpcAsk::Code { .. }) {
                return Err(Inexpressible::new(
                    "grpc.method",
                    "Envoy asks grpc.health.v1 and nothing else",
                    "use grpc.serviceName of profile GCP, or a check of type TCP",
                ));
            }
            if check.thresholds().unhealthy > 1 {
                return Err(Inexpressible::new(
                    "unhealthyThreshold",
                    "Envoy ejects at the first gRPC check that fails, whatever it says",
                    "write unhealthyThreshold: 1",
                ));
            }
            Ok(())
        }
    }
}

/// In what an Envoy's check differs from a prober's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deviation {
    /// The interval runs from the end of one check to the start of the next (S3: start to start).
    EndToStart,
    /// Every interval is longer by chance, and so is the wait for the first check.
    Jitter,
    /// A fault of the Envoy's machine counts against the endpoint (P16: INCONCLUSIVE).
    NoInconclusive,
    /// The first failure of an endpoint that never passed says nothing yet, as it counts as unhealthy from the start; the
    /// first pass makes it healthy at once, also where the profile wants a threshold (S2).
    FirstWord,
    /// The check passes at the end of the body, not at the end of the headers, or where the string is found (P4).
    WholeBody,
    /// A status of 600 or more ejects at once, whatever the threshold.
    StrangeStatus,
    /// `close` is not heeded.
    Close,
    /// A TCP check without a response leaves before it has sent its PROXY header (P11).
    NoProxyHeader,
    /// A certificate whose keyUsage does not allow the handshake fails, also where nothing is verified (P10).
    KeyUsage,
    /// HTTP/2 is spoken whatever ALPN chose (P12).
    AnyAlpn,
    /// Where all share the traffic because an Envoy itself finds none healthy, DRAINING and weight-0 endpoints do too: this
    /// server, which would omit them, does not know (H6).
    DrainingInPanic,
}

impl Deviation {
    /// The difference in words, on one line.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::EndToStart => {
                "the interval runs from the end of a check to the start of the next (S3: start to start)"
            }
            Self::Jitter => {
                "every interval is up to 10 % longer by chance, and the first check waits up to min(interval, 1 s)"
            }
            Self::NoInconclusive => {
                "a fault of the Envoy's own machine counts against the endpoint (P16: INCONCLUSIVE)"
            }
            Self::FirstWord => {
                "an endpoint counts as failed until its first pass, which decides at once (S2: a threshold)"
            }
            Self::WholeBody => {
                "a check passes at the end of the body (P4: at the end of the headers, or at the string)"
            }
            Self::StrangeStatus => {
                "a status of 600 or more ejects at once, whatever the threshold (S1)"
            }
            Self::Close => "the connection is closed Envoy's way: close is for probers",
            Self::NoProxyHeader => {
                "without a response to wait for, the connection is closed before the PROXY header is sent (P11)"
            }
            Self::KeyUsage => {
                "a certificate whose keyUsage does not allow the handshake fails, verified or not (P10: any passes)"
            }
            Self::AnyAlpn => "HTTP/2 is spoken whatever ALPN chose (P12: h2 must be chosen)",
            Self::DrainingInPanic => {
                "an Envoy that itself finds none healthy sends requests to DRAINING and weight-0 endpoints too (H6)"
            }
        }
    }
}

/// In what an Envoy's check of a service's endpoints differs from a prober's, of a check that is [`expressible`] for the
/// service's protocol; of one that is not, nothing: it is not run.
#[must_use]
pub fn deviations(check: &HealthCheck, service: &Service) -> Vec<Deviation> {
    if expressible(check, service.protocol).is_err() {
        return Vec::new();
    }
    let mut found = vec![
        Deviation::EndToStart,
        Deviation::Jitter,
        Deviation::NoInconclusive,
    ];
    if check.thresholds().at_first {
        found.push(Deviation::FirstWord);
    }
    if matches!(check.protocol(), Asks::Http(_) | Asks::Http2(_)) {
        found.push(Deviation::WholeBody);
        if check.thresholds().unhealthy > 1 {
            found.push(Deviation::StrangeStatus);
        }
    }
    if check.close() == Close::Fin {
        found.push(Deviation::Close);
    }
    if let Asks::Tcp(tcp) = check.protocol()
        && check.kind() == Kind::Tcp
        && tcp.response().is_none()
        && check.proxy_header() != ProxyHeader::None
    {
        found.push(Deviation::NoProxyHeader);
    }
    if check.is_tls() {
        found.push(Deviation::KeyUsage);
    }
    if matches!(check.kind(), Kind::Http2 | Kind::GrpcWithTls) {
        found.push(Deviation::AnyAlpn);
    }
    if !service.refuses_when_all_unhealthy() {
        found.push(Deviation::DrainingInPanic);
    }
    found
}

#[cfg(test)]
mod tests;
