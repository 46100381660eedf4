//! A validated health check: what is asked of an endpoint, how often, and what counts as an answer.
//!
//! In: a [`HealthCheckSpec`], each field as a person wrote it or left it out. Out: a [`HealthCheck`] with every default
//! filled in and every rule of semantics P2–P13 kept; its fields are private, so no other value can exist. All errors
//! are reported at once, each with the field it belongs to.
//!
//! Not here: names, YAML, places in files (the server's `config`), and what an endpoint adds to a check (`target`).

mod errors;
pub mod grpc;
mod http;
mod kind;
mod profile;
mod spec;
mod status;
mod tcp;
mod tls;

use std::time::Duration;

pub use self::errors::CheckError;
use self::errors::Errors;
pub use self::grpc::{CodeSet, GrpcAsk, GrpcCheck, GrpcSpec};
pub use self::http::{HttpCheck, Method};
pub use self::kind::Kind;
pub use self::profile::Profile;
pub use self::spec::{Close, HealthCheckSpec, HttpSpec, ProxyHeader, TcpSpec};
pub use self::status::StatusSet;
pub use self::tcp::{TcpCheck, TcpMatch};
pub use self::tls::{Roots, TlsCheck, TlsSpec, is_dns_name};
use crate::tally::Thresholds;

/// The bytes of the decoded body, or of a TCP answer's string, that a check may look at (semantics P4, P5).
pub const MATCH_WINDOW: usize = 1024;

/// Least and greatest interval and timeout outside TENCENT_ALB (semantics P2).
pub const DURATION_RANGE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(300));

/// Least and greatest threshold outside TENCENT_ALB (semantics P2).
pub const THRESHOLD_RANGE: (u8, u8) = (1, 10);

/// A complete, valid health check. Equality is equality of content (semantics V6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    profile: Profile,
    kind: Kind,
    interval: Duration,
    timeout: Duration,
    thresholds: Thresholds,
    fixed_port: Option<u16>,
    proxy_header: ProxyHeader,
    close: Close,
    tls: Option<TlsCheck>,
    protocol: Protocol,
}

/// What is said once the transport is ready; whether that is TLS is [`HealthCheck::tls`]'s to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing, or strings that are sent and matched.
    Tcp(TcpCheck),
    /// One HTTP/1.1 request.
    Http(HttpCheck),
    /// One HTTP/2 request.
    Http2(HttpCheck),
    /// One RPC over HTTP/2.
    Grpc(GrpcCheck),
}

impl HealthCheck {
    /// Validates a spec.
    ///
    /// # Errors
    /// Every rule that the spec breaks, in the order of the fields.
    pub fn new(spec: HealthCheckSpec) -> Result<Self, Vec<CheckError>> {
        let mut errors = Errors::default();
        let profile = spec.profile.unwrap_or_default();
        let kind = kind(spec.kind, profile, &mut errors);
        let (interval, timeout) = durations(&spec, profile, &mut errors);
        let mut threshold = |field, value| {
            errors.threshold(field, value, profile.threshold(), profile.threshold_range())
        };
        let thresholds = Thresholds {
            healthy: threshold("healthyThreshold", spec.healthy_threshold),
            unhealthy: threshold("unhealthyThreshold", spec.unhealthy_threshold),
            at_first: profile == Profile::TencentAlb,
        };
        match spec.fixed_port {
            Some(0) => errors.push("port", "0 is not a port; 1–65535 is"),
            None if !profile.has_serving_port() => {
                let problem = format!(
                    "profile {} does not probe the serving port; give a port and portSpecification: USE_FIXED_PORT",
                    profile.name()
                );
                errors.push("portSpecification", problem);
            }
            _ => {}
        }
        let proxy_header = spec.proxy_header.unwrap_or_default();
        if proxy_header != ProxyHeader::None && !profile.has_proxy_header() {
            errors.not_in_profile("proxyHeader", profile);
        }
        let tls = kind
            .is_tls()
            .then(|| TlsCheck::new(spec.tls.unwrap_or_default(), &mut errors));
        let protocol = match kind {
            Kind::Tcp | Kind::Ssl => Protocol::Tcp(TcpCheck::new(spec.tcp, profile, &mut errors)),
            Kind::Http | Kind::Https => {
                Protocol::Http(HttpCheck::new(spec.http, profile, &mut errors))
            }
            Kind::Http2 => Protocol::Http2(HttpCheck::new(spec.http, profile, &mut errors)),
            Kind::Grpc | Kind::GrpcWithTls => {
                errors.host_given("grpc.host", spec.grpc.host.as_deref(), profile);
                let tencent = profile == Profile::TencentAlb;
                Protocol::Grpc(GrpcCheck::new(spec.grpc, tencent, &mut errors))
            }
        };
        errors.into_result(Self {
            profile,
            kind,
            interval,
            timeout,
            thresholds,
            fixed_port: spec.fixed_port,
            proxy_header,
            close: spec.close.unwrap_or_default(),
            tls,
            protocol,
        })
    }

    /// Whose health checks it behaves like.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// From the start of one probe to the start of the next (semantics S3).
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// From the start of the connect to the verdict, at most (semantics P1).
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How many consecutive probes turn a target.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The port that is probed instead of the serving port (semantics P3).
    #[must_use]
    pub fn fixed_port(&self) -> Option<u16> {
        self.fixed_port
    }

    /// The PROXY header that opens the connection (semantics P11).
    #[must_use]
    pub fn proxy_header(&self) -> ProxyHeader {
        self.proxy_header
    }

    /// How a probe leaves.
    #[must_use]
    pub fn close(&self) -> Close {
        self.close
    }

    /// What is asked of TLS; `None`: there is none (semantics P10).
    #[must_use]
    pub fn tls(&self) -> Option<&TlsCheck> {
        self.tls.as_ref()
    }

    /// Whether the probe speaks TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What is said once the transport is ready.
    #[must_use]
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// The host that the check itself names (semantics P7).
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match &self.protocol {
            Protocol::Tcp(_) => None,
            Protocol::Http(http) | Protocol::Http2(http) => http.host(),
            Protocol::Grpc(grpc) => grpc.host(),
        }
    }

    /// The type's name, as in the configuration: `TCP`, `GRPC_WITH_TLS`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.kind.name()
    }
}

fn kind(written: Option<Kind>, profile: Profile, errors: &mut Errors) -> Kind {
    let names = || {
        let names: Vec<_> = profile.kinds().iter().map(|kind| kind.name()).collect();
        names.join(", ")
    };
    match written.or(profile.default_kind()) {
        None => {
            let problem = format!("a check has a type; write one of {}", names());
            errors.push("type", problem);
            Kind::Tcp
        }
        Some(kind) => {
            if !profile.kinds().contains(&kind) {
                let problem = format!(
                    "profile {} has no type {}; it has {}",
                    profile.name(),
                    kind.name(),
                    names()
                );
                errors.push("type", problem);
            }
            kind
        }
    }
}

/// Interval and timeout (semantics P2).
fn durations(
    spec: &HealthCheckSpec,
    profile: Profile,
    errors: &mut Errors,
) -> (Duration, Duration) {
    let interval = errors
        .duration(
            "checkInterval",
            spec.check_interval,
            profile.interval_range(),
        )
        .unwrap_or(Profile::INTERVAL);
    let timeout = errors
        .duration("timeout", spec.timeout, profile.timeout_range())
        .unwrap_or_else(|| profile.timeout(interval));
    let problem = if profile == Profile::TencentAlb && timeout >= interval {
        format!(
            "{timeout:?} is not shorter than checkInterval ({interval:?}), as profile TENCENT_ALB wants it; \
             shorten it, but not below 2s, or lengthen checkInterval"
        )
    } else if timeout > interval {
        format!(
            "{timeout:?} is longer than checkInterval ({interval:?}); a probe must end before the next starts, \
             so shorten it to at most {interval:?}"
        )
    } else {
        return (interval, timeout);
    };
    errors.push("timeout", problem);
    (interval, timeout)
}

#[cfg(test)]
mod tests;
