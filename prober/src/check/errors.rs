//! The rules that all kinds of checks share, and the list of what breaks them.

use std::time::Duration;

use super::{DURATION_RANGE, MATCH_WINDOW, THRESHOLD_RANGE};

/// One rule that a spec breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CheckError {
    /// The field as the configuration names it, below the check: `timeout`, `http.expectedStatuses[1]`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
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

    pub(super) fn duration(&mut self, field: &str, value: Option<Duration>) -> Option<Duration> {
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

    pub(super) fn threshold(&mut self, field: &str, value: Option<u64>) -> u8 {
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
