//! What an HTTP check asks and expects.

use super::errors::Errors;
use super::profile::Profile;
use super::spec::HttpSpec;
use super::status::StatusSet;

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

impl HttpCheck {
    pub(super) fn new(spec: HttpSpec, profile: Profile, errors: &mut Errors) -> Self {
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
        if profile == Profile::TencentAlb
            && (request_path.len() > 200 || !request_path.bytes().all(is_tencent_path_byte))
        {
            let problem =
                "a path of profile TENCENT_ALB is 1–200 characters of A-Z a-z 0-9 . - _ / = ?";
            errors.push("http.requestPath", problem);
        }
        let method = spec.method.unwrap_or_else(|| profile.method());
        if method == Method::Head && spec.response.is_some() {
            errors.push(
                "http.response",
                "an answer to HEAD has no body to match; use method: GET, or drop response",
            );
        }
        if spec.response.is_some() && !profile.has_response() {
            errors.not_in_profile("http.response", profile);
        }
        errors.printable("http.response", spec.response.as_deref());
        if let Some(host) = &spec.host {
            errors.host("http.host", host, profile == Profile::TencentAlb);
        }
        errors.host_given("http.host", spec.host.as_deref(), profile);
        for (name, value) in &spec.headers {
            check_header(name, value, errors);
        }
        let expected_statuses = statuses(spec.expected_statuses.as_deref(), profile, errors);
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

fn is_tencent_path_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b".-_/=?".contains(&b)
}

/// The pass set (semantics P2, P6).
fn statuses(items: Option<&[String]>, profile: Profile, errors: &mut Errors) -> StatusSet {
    const FIELD: &str = "http.expectedStatuses";
    let Some(items) = items else {
        if profile == Profile::TencentAlb {
            let problem = "profile TENCENT_ALB has no default; name the classes that pass, such as [http_2xx, http_3xx]";
            errors.push(FIELD, problem);
        }
        return StatusSet::only(200);
    };
    let set = StatusSet::parse(items, errors);
    if profile == Profile::TencentAlb {
        for (i, item) in items.iter().enumerate() {
            if !item.starts_with("http_") {
                let problem = format!(
                    "{item:?} is not a class, and profile TENCENT_ALB takes nothing else; write http_2xx"
                );
                errors.push(&format!("{FIELD}[{i}]"), problem);
            }
        }
    }
    if profile == Profile::GcpLegacy && !set.is_empty() && set != StatusSet::only(200) {
        let problem = format!(
            "profile GCP_LEGACY passes 200 and nothing else, not {set}; leave it out, or use profile GCP"
        );
        errors.push(FIELD, problem);
    }
    set
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
