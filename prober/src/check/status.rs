//! Sets of HTTP status codes (semantics P6): codes, ranges and classes.

use std::fmt;

use super::errors::Errors;

/// A set of HTTP status codes: sorted ranges, first and last included, that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(Vec<(u16, u16)>);

impl StatusSet {
    /// The set of one code.
    pub(super) fn only(code: u16) -> Self {
        Self(vec![(code, code)])
    }

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

    /// Whether nothing passes; only on the way to an error.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn parse(items: &[String], errors: &mut Errors) -> Self {
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
