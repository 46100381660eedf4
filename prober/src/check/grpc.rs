//! What a gRPC check asks and expects.

use std::fmt;

use super::errors::Errors;

/// Method of TENCENT_ALB's checks (semantics P2).
const TENCENT_METHOD: &str = "/TCLOUD.CLB/healthcheck";
/// Codes of TENCENT_ALB's checks (semantics P2): UNIMPLEMENTED shows that a gRPC server is there.
const TENCENT_CODE: u8 = 12;
/// The greatest code that a check may name (semantics P2).
const MAX_CODE: u8 = 99;

/// `grpc:` of a check, as written.
#[derive(Clone, Debug, Default)]
pub struct GrpcSpec {
    /// `host` for :authority (semantics P7).
    pub host: Option<String>,
    /// `serviceName`, asked of grpc.health.v1 (semantics P12).
    pub service_name: Option<String>,
    /// `method`: `/Package.Class/method` (semantics P13).
    pub method: Option<String>,
    /// `expectedCodes`: `12`, `20,25`, `0-99`, `12,25,30-40` (semantics P13).
    pub expected_codes: Option<String>,
}

/// What a gRPC check asks and expects (semantics P12, P13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcCheck {
    host: Option<String>,
    ask: GrpcAsk,
}

/// Which call is made, and what of its answer counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcAsk {
    /// `grpc.health.v1.Health/Check` must say SERVING (semantics P12).
    Health {
        /// The service that is asked for; `None` is the server as a whole.
        service: Option<String>,
    },
    /// The call must end with one of these codes (semantics P13).
    Code {
        /// `/Package.Class/method`
        method: String,
        /// The codes that pass.
        expected: CodeSet,
    },
}

impl GrpcCheck {
    /// Validates `grpc:` of a check; `tencent`: under profile TENCENT_ALB.
    pub(super) fn new(spec: GrpcSpec, tencent: bool, errors: &mut Errors) -> Self {
        if let Some(host) = &spec.host {
            errors.host("grpc.host", host, tencent);
        }
        if let Some(service) = &spec.service_name {
            check_service(service, tencent || spec.method.is_some(), errors);
        }
        let expected = spec
            .expected_codes
            .as_deref()
            .map(|codes| CodeSet::parse(codes, errors));
        if let Some(method) = &spec.method {
            check_method(method, tencent, errors);
        }
        let ask = match (spec.method, expected) {
            (method, expected) if tencent => GrpcAsk::Code {
                method: method.unwrap_or_else(|| TENCENT_METHOD.into()),
                expected: expected.unwrap_or_else(|| CodeSet::only(TENCENT_CODE)),
            },
            (Some(method), expected) => {
                if expected.is_none() {
                    errors.push(
                        "grpc.expectedCodes",
                        "a check by method needs the codes that pass, such as \"0\" or \"0,12\"",
                    );
                }
                GrpcAsk::Code {
                    method,
                    expected: expected.unwrap_or(CodeSet(0)),
                }
            }
            (None, Some(_)) => {
                errors.push(
                    "grpc.expectedCodes",
                    "codes need a method to be called; give grpc.method, or leave expectedCodes out for grpc.health.v1",
                );
                GrpcAsk::Health { service: None }
            }
            (None, None) => GrpcAsk::Health {
                service: spec.service_name,
            },
        };
        Self {
            host: spec.host,
            ask,
        }
    }

    /// A check without the rest of a health check around it.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn alone(spec: GrpcSpec, tencent: bool) -> Result<Self, Vec<super::CheckError>> {
        let mut errors = Errors::default();
        let check = Self::new(spec, tencent, &mut errors);
        errors.into_result(check)
    }

    /// The :authority that the check itself names (semantics P7).
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Which call is made, and what of its answer counts.
    #[must_use]
    pub fn ask(&self) -> &GrpcAsk {
        &self.ask
    }
}

fn check_service(service: &str, by_code: bool, errors: &mut Errors) {
    if by_code {
        let problem = "serviceName belongs to grpc.health.v1, and a check by method and code does not ask that; \
                       leave one of them out";
        errors.push("grpc.serviceName", problem);
    }
    if service.is_empty() {
        errors.push(
            "grpc.serviceName",
            "an empty name asks for the server as a whole; leave it out for that",
        );
    } else if service.len() > 1024 || !service.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        errors.push(
            "grpc.serviceName",
            "a service name is at most 1,024 printable ASCII characters",
        );
    }
}

/// Semantics P6, P13.
fn check_method(method: &str, tencent: bool, errors: &mut Errors) {
    let parts = method.strip_prefix('/').and_then(|m| m.split_once('/'));
    let allowed =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_') || (tencent && b == b'-');
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(allowed);
    if method.len() > 200 || !parts.is_some_and(|(class, name)| is_name(class) && is_name(name)) {
        let problem = format!(
            "{method:?} is not a gRPC method; write /Package.Class/method, at most 200 characters"
        );
        errors.push("grpc.method", problem);
    }
}

/// A set of gRPC status codes, 0 to 99 (semantics P13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSet(u128);

impl CodeSet {
    fn only(code: u8) -> Self {
        Self(1 << code)
    }

    /// Whether the set has that code.
    #[must_use]
    pub fn contains(self, code: u32) -> bool {
        code <= u32::from(MAX_CODE) && self.0 >> code & 1 == 1
    }

    fn parse(text: &str, errors: &mut Errors) -> Self {
        let mut set = 0;
        for item in text.split(',') {
            match parse_item(item.trim_ascii()) {
                Some((first, last)) => set |= (first..=last).fold(0, |bits, code| bits | 1 << code),
                None => {
                    let problem = format!(
                        "{item:?} is not a set of gRPC codes; write a code (\"12\") or a range (\"0-99\"), several with \
                         commas, within 0–{MAX_CODE}"
                    );
                    errors.push("grpc.expectedCodes", problem);
                }
            }
        }
        Self(set)
    }
}

fn parse_item(item: &str) -> Option<(u8, u8)> {
    let code = |text: &str| {
        let digits = matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u8>().ok())?
    };
    let (first, last) = match item.split_once('-') {
        Some((first, last)) => (code(first)?, code(last)?),
        None => (code(item)?, code(item)?),
    };
    (first <= last).then_some((first, last))
}

/// As it is written: `12,25,30-40`.
impl fmt::Display for CodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut code = 0;
        while code <= u32::from(MAX_CODE) {
            let first = code;
            while self.contains(code) {
                code += 1;
            }
            match code - first {
                0 => {
                    code += 1;
                    continue;
                }
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", code - 1)?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(spec: GrpcSpec, tencent: bool) -> Result<GrpcCheck, Vec<String>> {
        GrpcCheck::alone(spec, tencent)
            .map_err(|errors| errors.into_iter().map(|e| e.field).collect())
    }

    fn by_code(method: Option<&str>, codes: Option<&str>) -> GrpcSpec {
        GrpcSpec {
            method: method.map(Into::into),
            expected_codes: codes.map(Into::into),
            ..GrpcSpec::default()
        }
    }

    #[test]
    fn p12_the_default_asks_the_health_service_for_the_whole_server() {
        let check = new(GrpcSpec::default(), false).unwrap();
        assert_eq!(check.ask(), &GrpcAsk::Health { service: None });
    }

    #[test]
    fn p2_p13_tencent_asks_its_own_method_for_unimplemented() {
        let check = new(GrpcSpec::default(), true).unwrap();
        let GrpcAsk::Code { method, expected } = check.ask() else {
            panic!("by code")
        };
        assert_eq!(method, "/TCLOUD.CLB/healthcheck");
        assert_eq!(expected.to_string(), "12");
        assert!(expected.contains(12) && !expected.contains(0) && !expected.contains(140));
        let check = new(by_code(Some("/a.B/c"), Some("0-99")), true).unwrap();
        assert!(matches!(check.ask(), GrpcAsk::Code { expected, .. } if expected.contains(99)));
    }

    #[test]
    fn p13_sets_of_codes_are_read_and_shown_alike() {
        for (text, shown) in [
            ("12", "12"),
            ("20,25", "20,25"),
            ("0-99", "0-99"),
            ("12,25,30-40", "12,25,30-40"),
            ("3, 1-2,2", "1-3"),
            ("0", "0"),
        ] {
            let check = new(by_code(Some("/a.B/c"), Some(text)), false).unwrap();
            let GrpcAsk::Code { expected, .. } = check.ask() else {
                panic!("by code")
            };
            assert_eq!(expected.to_string(), shown);
        }
        for bad in [
            "", "100", "-1", "1-", "5-3", "a", "1;2", "1,,2", "+1", "012",
        ] {
            let refused = new(by_code(Some("/a.B/c"), Some(bad)), false).unwrap_err();
            assert!(
                refused.iter().all(|f| f == "grpc.expectedCodes"),
                "{bad:?} {refused:?}"
            );
        }
    }

    #[test]
    fn p13_method_and_codes_come_together_and_without_a_service_name() {
        let refused = |spec, tencent| new(spec, tencent).unwrap_err();
        assert_eq!(
            refused(by_code(Some("/a.B/c"), None), false),
            ["grpc.expectedCodes"]
        );
        assert_eq!(
            refused(by_code(None, Some("0")), false),
            ["grpc.expectedCodes"]
        );
        assert!(new(by_code(None, Some("0")), true).is_ok());
        assert!(new(by_code(Some("/a.B/c"), None), true).is_ok());
        let both = GrpcSpec {
            service_name: Some("a.B".into()),
            ..by_code(Some("/a.B/c"), Some("0"))
        };
        assert_eq!(refused(both, false), ["grpc.serviceName"]);
        for bad in [
            "", "/", "a.B/c", "/a.B", "/a.B/", "//c", "/a.B/c/d", "/a b/c", "/a?/c",
        ] {
            assert_eq!(
                refused(by_code(Some(bad), Some("0")), false),
                ["grpc.method"],
                "{bad:?}"
            );
        }
    }

    #[test]
    fn p7_p12_host_and_service_name() {
        let with = |host: &str, service: &str, tencent| {
            let spec = GrpcSpec {
                host: (!host.is_empty()).then(|| host.into()),
                service_name: Some(service.into()),
                ..GrpcSpec::default()
            };
            new(spec, tencent)
        };
        let check = with("h.test:80", "a.B", false).unwrap();
        assert_eq!(check.host(), Some("h.test:80"));
        assert_eq!(with("a b", "x", false).unwrap_err(), ["grpc.host"]);
        assert_eq!(with("", "", false).unwrap_err(), ["grpc.serviceName"]);
        assert_eq!(with("", "ä", false).unwrap_err(), ["grpc.serviceName"]);
        assert_eq!(
            with("H.test", "x", true).unwrap_err(),
            ["grpc.host", "grpc.serviceName"]
        );
    }
}
