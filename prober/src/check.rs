//! A validated health check: what is asked of an endpoint, how often, and what counts as an answer.
//!
//! In: a [`HealthCheckSpec`], each field as a person wrote it or left it out. Out: a [`HealthCheck`] with every default
//! filled in and every rule of semantics P2–P6 kept; its fields are private, so no other value can exist. All errors
//! are reported at once, each with the field it belongs to.
//!
//! Not here: names, YAML, places in files (the server's `config`), and what an endpoint adds to a check (`target`).

use std::fmt;
use std::time::Duration;

use crate::tally::Thresholds;

/// The bytes of the decoded body, or of a TCP answer's string, that a check may look at (semantics P4, P5).
pub const MATCH_WINDOW: usize = 1024;

/// Least and greatest interval and timeout outside TENCENT_ALB (semantics P2).
pub const DURATION_RANGE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(300));

/// Least and greatest threshold outside TENCENT_ALB (semantics P2).
pub const THRESHOLD_RANGE: (u8, u8) = (1, 10);

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

/// One rule that a spec breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CheckError {
    /// The field as the configuration names it, below the check: `timeout`, `http.expectedStatuses[1]`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

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

/// What a TCP check sends and expects (semantics P8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpCheck {
    request: Option<String>,
    response: Option<String>,
    matching: TcpMatch,
}

/// How the received bytes are held against `response` (semantics P8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TcpMatch {
    /// All bytes that come are the string and no more.
    #[default]
    Exact,
    /// The bytes begin with the string.
    Prefix,
    /// The string stands somewhere in the first bytes.
    Contains,
}

/// What an HTTP check asks and expects (semantics P4, P6, P7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    request_path: String,
    method: Method,
    expected_statuses: StatusSet,
    host: Option<String>,
    response: Option<String>,
    headers: Vec<(String, String)>,
}

/// The method of an HTTP check (semantics P6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    #[default]
    Get,
    /// HEAD: the answer has no body, whatever its headers say.
    Head,
}

impl Method {
    /// As it stands in the request line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// A set of HTTP status codes: sorted ranges, first and last included, that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(Vec<(u16, u16)>);

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

impl TcpCheck {
    fn new(spec: TcpSpec, errors: &mut Errors) -> Self {
        for (field, text) in [
            ("tcp.request", &spec.request),
            ("tcp.response", &spec.response),
        ] {
            errors.printable(field, text.as_deref());
        }
        if spec.matching.is_some() && spec.response.is_none() {
            errors.push(
                "tcp.match",
                "there is no response to match; give tcp.response, or leave match out",
            );
        }
        Self {
            request: spec.request,
            response: spec.response,
            matching: spec.matching.unwrap_or_default(),
        }
    }

    /// What is sent once the connection is open.
    #[must_use]
    pub fn request(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// What must come back.
    #[must_use]
    pub fn response(&self) -> Option<&str> {
        self.response.as_deref()
    }

    /// How it must come back.
    #[must_use]
    pub fn matching(&self) -> TcpMatch {
        self.matching
    }
}

impl HttpCheck {
    fn new(spec: HttpSpec, errors: &mut Errors) -> Self {
        let request_path = spec.request_path.unwrap_or_else(|| "/".into());
        if !request_path.starts_with('/') {
            errors.push(
                "http.requestPath",
                format!("{request_path:?} does not start with /; write an absolute path"),
            );
        }
        if request_path.len() > 2048 || !request_path.bytes().all(|b| b.is_ascii_graphic()) {
            let problem = "a request path is at most 2,048 printable ASCII characters without spaces; \
                           percent-encode the rest";
            errors.push("http.requestPath", problem);
        }
        let method = spec.method.unwrap_or_default();
        if method == Method::Head && spec.response.is_some() {
            errors.push(
                "http.response",
                "an answer to HEAD has no body to match; use method: GET, or drop response",
            );
        }
        errors.printable("http.response", spec.response.as_deref());
        if let Some(host) = &spec.host
            && (host.is_empty() || host.len() > 255 || !host.bytes().all(is_host_byte))
        {
            let problem = format!(
                "{host:?} is not a host; write a name or an address, with :port where it matters"
            );
            errors.push("http.host", problem);
        }
        for (name, value) in &spec.headers {
            check_header(name, value, errors);
        }
        let expected_statuses = match &spec.expected_statuses {
            None => StatusSet(vec![(200, 200)]),
            Some(items) => StatusSet::parse(items, errors),
        };
        Self {
            request_path,
            method,
            expected_statuses,
            host: spec.host,
            response: spec.response,
            headers: spec.headers,
        }
    }

    /// The path and query of the request.
    #[must_use]
    pub fn request_path(&self) -> &str {
        &self.request_path
    }

    /// The request's method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The statuses that pass.
    #[must_use]
    pub fn expected_statuses(&self) -> &StatusSet {
        &self.expected_statuses
    }

    /// The Host header that the check itself names (semantics P7).
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// What the body must hold (semantics P4).
    #[must_use]
    pub fn response(&self) -> Option<&str> {
        self.response.as_deref()
    }

    /// Headers of the check itself, in the order of sending.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }
}

impl StatusSet {
    /// Whether the set has that code.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0
            .iter()
            .any(|&(first, last)| (first..=last).contains(&status))
    }

    /// The ranges, first and last included, sorted.
    #[must_use]
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    fn parse(items: &[String], errors: &mut Errors) -> Self {
        if items.is_empty() {
            errors.push(
                "http.expectedStatuses",
                "an empty list passes nothing; leave it out for 200",
            );
        }
        let mut ranges = Vec::new();
        for (i, item) in items.iter().enumerate() {
            match parse_status_item(item) {
                Some(range) => ranges.push(range),
                None => {
                    let problem = format!(
                        "{item:?} is not a set of statuses; write a code (\"200\"), a range (\"200-299\") or a class \
                         (\"http_2xx\"), within 100–599"
                    );
                    errors.push(&format!("http.expectedStatuses[{i}]"), problem);
                }
            }
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

fn parse_status_item(item: &str) -> Option<(u16, u16)> {
    let digits = |text: &str, len: usize| {
        (text.len() == len && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse::<u16>().ok())?
    };
    let code = |text: &str| digits(text, 3).filter(|code| (100..=599).contains(code));
    if let Some(class) = item
        .strip_prefix("http_")
        .and_then(|rest| rest.strip_suffix("xx"))
    {
        let class = digits(class, 1).filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let (first, last) = match item.split_once('-') {
        Some((first, last)) => (code(first)?, code(last)?),
        None => (code(item)?, code(item)?),
    };
    (first <= last).then_some((first, last))
}

fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}

/// Headers that frame the request or that the probe writes itself.
const OWN_HEADERS: [&str; 7] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
    "expect",
];

fn check_header(name: &str, value: &str, errors: &mut Errors) {
    let field = format!("http.headers.{name}");
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        errors.push(
            &field,
            format!("{name:?} is not a header name; letters, digits and - are"),
        );
    } else if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        let hint = if name.eq_ignore_ascii_case("host") {
            "; use http.host"
        } else {
            "; leave it out"
        };
        errors.push(&field, format!("the probe sets {name} itself{hint}"));
    }
    if value.len() > 4096
        || !value
            .bytes()
            .all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
    {
        errors.push(
            &field,
            "a header value is at most 4,096 printable ASCII characters on one line",
        );
    }
}

#[derive(Default)]
struct Errors(Vec<CheckError>);

impl Errors {
    fn push(&mut self, field: &str, problem: impl Into<String>) {
        self.0.push(CheckError {
            field: field.into(),
            problem: problem.into(),
        });
    }

    fn duration(&mut self, field: &str, value: Option<Duration>) -> Option<Duration> {
        let value = value?;
        let (least, greatest) = DURATION_RANGE;
        if !(least..=greatest).contains(&value) {
            self.push(
                field,
                format!("{value:?} is out of range; {least:?} to {greatest:?} is allowed"),
            );
            return None;
        }
        if value.subsec_nanos() % 1_000_000 != 0 {
            self.push(
                field,
                format!("{value:?} is finer than a millisecond; round it"),
            );
        }
        Some(value)
    }

    fn threshold(&mut self, field: &str, value: Option<u64>) -> u8 {
        let (least, greatest) = THRESHOLD_RANGE;
        let Some(value) = value else { return 2 };
        match u8::try_from(value) {
            Ok(value) if (least..=greatest).contains(&value) => value,
            _ => {
                self.push(
                    field,
                    format!("{value} is out of range; {least} to {greatest} is allowed"),
                );
                2
            }
        }
    }

    /// Semantics P5.
    fn printable(&mut self, field: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        if text.is_empty() {
            self.push(field, "an empty string asks for nothing; leave it out");
        } else if text.len() > MATCH_WINDOW {
            self.push(
                field,
                format!(
                    "{} characters are too many; at most {MATCH_WINDOW} are allowed",
                    text.len()
                ),
            );
        }
        if let Some(bad) = text.chars().find(|c| !(' '..='~').contains(c)) {
            self.push(
                field,
                format!("{bad:?} is not printable ASCII, and nothing else is allowed here"),
            );
        }
    }

    fn into_result<T>(self, value: T) -> Result<T, Vec<CheckError>> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.0)
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
