//! The rules that all kinds of checks share, and the list of what breaks them.

use std::time::Duration;

use super::MATCH_WINDOW;
use super::profile::Profile;

/// One rule that a spec breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CheckError {
    /// The field as the configuration names it, below the check: `timeout`, `http.expectedStatuses[1]`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// A duration as people write it: nothing at all is no number of nanoseconds.
fn shown(duration: Duration) -> String {
    match duration.is_zero() {
        true => "0s".into(),
        false => format!("{duration:?}"),
    }
}

/// What is wrong with a spec, in the order of its fields.
#[derive(Default)]
pub(super) struct Errors(Vec<CheckError>);

impl Errors {
    pub(super) fn push(&mut self, field: &str, problem: impl Into<String>) {
        self.0.push(CheckError {
            field: field.into(),
            problem: problem.into(),
        });
    }

    pub(super) fn duration(
        &mut self,
        field: &str,
        value: Option<Duration>,
        (least, greatest): (Duration, Duration),
    ) -> Option<Duration> {
        let value = value?;
        if !(least..=greatest).contains(&value) {
            self.push(
                field,
                format!(
                    "{} is out of range; {least:?} to {greatest:?} is allowed",
                    shown(value)
                ),
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

    pub(super) fn threshold(
        &mut self,
        field: &str,
        value: Option<u64>,
        default: u8,
        (least, greatest): (u8, u8),
    ) -> u8 {
        let Some(value) = value else { return default };
        match u8::try_from(value) {
            Ok(value) if (least..=greatest).contains(&value) => value,
            _ => {
                self.push(
                    field,
                    format!("{value} is out of range; {least} to {greatest} is allowed"),
                );
                default
            }
        }
    }

    /// A field that the profile does not allow (semantics P2).
    pub(super) fn not_in_profile(&mut self, field: &str, profile: Profile) {
        let problem = format!(
            "profile {} has no such thing; leave it out, or use profile GCP",
            profile.name()
        );
        self.push(field, problem);
    }

    /// Semantics P7: under TENCENT_ALB a host must be given, by the check or by the service's route.
    pub(super) fn host_given(&mut self, field: &str, host: Option<&str>, profile: Profile) {
        if host.is_none() && profile == Profile::TencentAlb {
            let problem = "profile TENCENT_ALB sends the forwarding domain name: give a host, or one literal domain \
                           in the service's route";
            self.push(field, problem);
        }
    }

    /// A host that is sent (semantics P7); TENCENT_ALB is stricter (P6).
    pub(super) fn host(&mut self, field: &str, host: &str, tencent: bool) {
        if tencent {
            let allowed =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
            if host.is_empty() || host.len() > 80 || !host.bytes().all(allowed) {
                let problem = format!(
                    "{host:?} is not a host of profile TENCENT_ALB; 1–80 characters of a-z 0-9 . - are, without a wildcard"
                );
                self.push(field, problem);
            }
        } else if host.is_empty() || host.len() > 255 || !host.bytes().all(is_host_byte) {
            let problem = format!(
                "{host:?} is not a host; write a name or an address, with :port where it matters"
            );
            self.push(field, problem);
        }
    }

    /// Semantics P5.
    pub(super) fn printable(&mut self, field: &str, text: Option<&str>) {
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

    pub(super) fn into_result<T>(self, value: T) -> Result<T, Vec<CheckError>> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.0)
        }
    }
}

fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}
