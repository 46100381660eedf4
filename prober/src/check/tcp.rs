//! What a TCP or SSL check sends and expects.

use super::errors::Errors;
use super::profile::Profile;
use super::spec::TcpSpec;

/// What a TCP or SSL check sends and expects (semantics P8).
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

impl TcpCheck {
    pub(super) fn new(spec: TcpSpec, profile: Profile, errors: &mut Errors) -> Self {
        for (field, text, allowed) in [
            ("tcp.request", &spec.request, profile.has_request()),
            ("tcp.response", &spec.response, profile.has_response()),
        ] {
            if text.is_some() && !allowed {
                errors.not_in_profile(field, profile);
            }
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
