//! A validated health check: what is asked of an endpoint, how often, and what counts as an answer.
//!
//! In: a [`HealthCheckSpec`], each field as a person wrote it or left it out. Out: a [`HealthCheck`] with every default
//! filled in and every rule of semantics P2–P6 kept; its fields are private, so no other value can exist. All errors
//! are reported at once, each with the field it belongs to.
//!
//! Not here: names, YAML, places in files (the server's `config`), and what an endpoint adds to a check (`target`).

mod errors;
mod http;
mod spec;
mod status;
mod tcp;

use std::time::Duration;

pub use self::errors::CheckError;
use self::errors::Errors;
pub use self::http::{HttpCheck, Method};
pub use self::spec::{HealthCheckSpec, HttpSpec, ProtocolSpec, TcpSpec};
pub use self::status::StatusSet;
pub use self::tcp::{TcpCheck, TcpMatch};
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
    interval: Duration,
    timeout: Duration,
    thresholds: Thresholds,
    fixed_port: Option<u16>,
    protocol: Protocol,
}

/// The type of a check and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Connect, and where strings are given, send and match.
    Tcp(TcpCheck),
    /// One HTTP/1.1 request.
    Http(HttpCheck),
}

impl HealthCheck {
    /// Validates a spec.
    ///
    /// # Errors
    /// Every rule that the spec breaks, in the order of the fields.
    pub fn new(spec: HealthCheckSpec) -> Result<Self, Vec<CheckError>> {
        let mut errors = Errors::default();
        let interval = errors
            .duration("checkInterval", spec.check_interval)
            .unwrap_or(Duration::from_secs(5));
        let timeout = errors
            .duration("timeout", spec.timeout)
            .unwrap_or_else(|| interval.min(Duration::from_secs(5)));
        if timeout > interval {
            let problem = format!(
                "{timeout:?} is longer than checkInterval ({interval:?}); a probe must end before the next starts, \
                 so shorten it to at most {interval:?}"
            );
            errors.push("timeout", problem);
        }
        let thresholds = Thresholds {
            healthy: errors.threshold("healthyThreshold", spec.healthy_threshold),
            unhealthy: errors.threshold("unhealthyThreshold", spec.unhealthy_threshold),
        };
        if spec.fixed_port == Some(0) {
            errors.push("port", "0 is not a port; 1–65535 is");
        }
        let protocol = match spec.protocol {
            ProtocolSpec::Tcp(tcp) => Protocol::Tcp(TcpCheck::new(tcp, &mut errors)),
            ProtocolSpec::Http(http) => Protocol::Http(HttpCheck::new(http, &mut errors)),
        };
        errors.into_result(Self {
            interval,
            timeout,
            thresholds,
            fixed_port: spec.fixed_port,
            protocol,
        })
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

    /// The type of the check and what belongs to it.
    #[must_use]
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// The type's name, as in the configuration: `TCP`, `HTTP`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self.protocol {
            Protocol::Tcp(_) => "TCP",
            Protocol::Http(_) => "HTTP",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(http: HttpSpec) -> Result<HealthCheck, Vec<CheckError>> {
        HealthCheck::new(HealthCheckSpec {
            protocol: ProtocolSpec::Http(http),
            ..HealthCheckSpec::default()
        })
    }

    fn fields(result: Result<HealthCheck, Vec<CheckError>>) -> Vec<String> {
        result
            .expect_err("the spec must be refused")
            .into_iter()
            .map(|e| e.field)
            .collect()
    }

    #[test]
    fn p2_defaults_of_profile_gcp() {
        let check = http(HttpSpec::default()).unwrap();
        assert_eq!(check.interval(), Duration::from_secs(5));
        assert_eq!(check.timeout(), Duration::from_secs(5));
        assert_eq!(
            check.thresholds(),
            Thresholds {
                healthy: 2,
                unhealthy: 2
            }
        );
        let Protocol::Http(http) = check.protocol() else {
            panic!("an HTTP check")
        };
        assert_eq!((http.method(), http.request_path()), (Method::Get, "/"));
        assert_eq!(http.expected_statuses().ranges(), [(200, 200)]);
    }

    #[test]
    fn p2_all_errors_come_at_once() {
        let spec = HealthCheckSpec {
            check_interval: Some(Duration::from_secs(1)),
            timeout: Some(Duration::from_secs(2)),
            healthy_threshold: Some(0),
            unhealthy_threshold: Some(11),
            fixed_port: Some(0),
            protocol: ProtocolSpec::Tcp(TcpSpec {
                matching: Some(TcpMatch::Prefix),
                ..TcpSpec::default()
            }),
        };
        assert_eq!(
            fields(HealthCheck::new(spec)),
            [
                "timeout",
                "healthyThreshold",
                "unhealthyThreshold",
                "port",
                "tcp.match"
            ]
        );
    }

    #[test]
    fn p2_a_short_interval_shortens_the_default_timeout() {
        let spec = HealthCheckSpec {
            check_interval: Some(Duration::from_secs(1)),
            ..HealthCheckSpec::default()
        };
        assert_eq!(
            HealthCheck::new(spec).unwrap().timeout(),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn p5_strings_are_printable_ascii_and_bounded() {
        let with = |response: &str| {
            http(HttpSpec {
                response: Some(response.into()),
                ..HttpSpec::default()
            })
        };
        assert!(with(&"x".repeat(1024)).is_ok());
        assert_eq!(fields(with(&"x".repeat(1025))), ["http.response"]);
        assert_eq!(fields(with("grün")), ["http.response"]);
        assert_eq!(fields(with("two\nlines")), ["http.response"]);
        assert_eq!(fields(with("")), ["http.response"]);
    }

    #[test]
    fn p6_status_sets_take_codes_ranges_and_classes() {
        let with = |items: &[&str]| {
            http(HttpSpec {
                expected_statuses: Some(items.iter().map(|&s| s.into()).collect()),
                ..HttpSpec::default()
            })
        };
        let check = with(&["http_3xx", "204", "200-203", "418"]).unwrap();
        let Protocol::Http(http) = check.protocol() else {
            panic!("an HTTP check")
        };
        assert_eq!(
            http.expected_statuses().ranges(),
            [(200, 204), (300, 399), (418, 418)]
        );
        assert_eq!(
            http.expected_statuses().to_string(),
            "200-204, 300-399, 418"
        );
        for bad in [
            "2xx",
            "99",
            "600",
            "299-200",
            "http_6xx",
            "0200",
            "+20",
            "",
            "200-",
            "http_+2xx",
        ] {
            assert_eq!(
                fields(with(&[bad])),
                ["http.expectedStatuses[0]"],
                "{bad:?}"
            );
        }
        assert_eq!(fields(with(&[])), ["http.expectedStatuses"]);
    }

    #[test]
    fn p6_head_has_no_body_to_match() {
        let spec = HttpSpec {
            method: Some(Method::Head),
            response: Some("ok".into()),
            ..HttpSpec::default()
        };
        assert_eq!(fields(http(spec)), ["http.response"]);
    }

    #[test]
    fn headers_cannot_split_the_request() {
        let with = |name: &str, value: &str| {
            http(HttpSpec {
                headers: vec![(name.into(), value.into())],
                ..HttpSpec::default()
            })
        };
        assert!(with("x-probe", "vitals").is_ok());
        assert_eq!(fields(with("x", "a\r\nb: c")), ["http.headers.x"]);
        assert_eq!(fields(with("x y", "a")), ["http.headers.x y"]);
        assert_eq!(fields(with("Host", "a")), ["http.headers.Host"]);
        assert_eq!(
            fields(with("Content-Length", "5")),
            ["http.headers.Content-Length"]
        );
    }
}
