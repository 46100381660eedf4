//! Why an endpoint has the status that it has, in words that name the rule.
//!
//! In: what `quorum`, `guard` and the registry have decided. Out: the texts that `/v1/endpoints`, `vitals status` and
//! the log show. A status never changes without one of these.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::guard::Abstention;

/// Why an endpoint has the status that it has.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Semantics V2: so many of the votes that count are for the verdict.
    Majority {
        /// Votes for the verdict.
        votes: usize,
        /// Votes that count.
        of: usize,
    },
    /// Semantics V2, `quorum: ANY`: the latest turn is the verdict.
    Any {
        /// Whose turn was the latest.
        vantage: Arc<str>,
        /// Votes that count.
        of: usize,
    },
    /// Semantics V2, `quorum: ALL`.
    All {
        /// Votes for HEALTHY.
        healthy: usize,
        /// Votes that count.
        of: usize,
    },
    /// Semantics V2, a share.
    Share {
        /// Votes for HEALTHY.
        healthy: usize,
        /// Votes that count.
        of: usize,
        /// The share that must be exceeded.
        share: f64,
    },
    /// Semantics V3: the votes are tied; the present status stays.
    Tie {
        /// The votes on each side.
        each: usize,
    },
    /// Semantics V3: too few fresh votes; the present status stays.
    Pinned {
        /// Votes that count.
        fresh: usize,
        /// Vantages that are assigned.
        assigned: usize,
        /// Since when the status stands without enough votes.
        since: SystemTime,
    },
    /// Semantics V3: too few fresh votes for an endpoint of which nothing was ever published; the last that enough vantages
    /// said, however long ago, is more than nothing.
    LastKnown {
        /// Votes that count.
        fresh: usize,
        /// Vantages that are assigned.
        assigned: usize,
    },
    /// Semantics V5: too few votes count because this vantage, among others perhaps, is doubted; the status from before
    /// the doubt stays.
    Guarded(Arc<Abstention>),
    /// Semantics V5: after a restart no vote of this vantage takes an endpoint out before its canaries have been tried.
    CanariesFirst(Arc<str>),
    /// Semantics V8: the present check has not judged yet, or the endpoint came back while it was draining; the status
    /// before stays.
    PreviousCheck,
    /// Design 5.3: not judged yet, and another endpoint of the service is healthy.
    AwaitingFirstSuccess,
    /// Design 5.3: not judged yet, and no endpoint of the service is known to be healthy.
    BenefitOfDoubt,
    /// Semantics H1: the service has no check.
    NoCheck,
    /// Semantics H1: only Envoys check it, each for itself.
    EnvoysOnly,
    /// Semantics H1: `state: DRAINING`.
    AdminDraining,
    /// Semantics S6: `state: STOPPED`.
    AdminStopped,
    /// Semantics S6: weight 0, or a group without capacity.
    NoWeight,
    /// Design 5.6: removed from the configuration; leaves when `connectionDraining` is over.
    Removed,
}

impl Rule {
    /// Whether the status stands without enough votes (semantics V3).
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        matches!(
            self,
            Self::Pinned { .. } | Self::LastKnown { .. } | Self::Guarded(_)
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Majority { votes, of } => write!(f, "V2 majority {votes} of {of}"),
            Self::Any { vantage, of } => {
                write!(f, "V2 any: of {of} the latest turn is that of {vantage}")
            }
            Self::All { healthy, of } => write!(f, "V2 all: {healthy} of {of} say healthy"),
            Self::Share { healthy, of, share } => {
                write!(
                    f,
                    "V2 share: {healthy} of {of} say healthy, more than {share} must"
                )
            }
            Self::Tie { each } => write!(f, "V3 tie {each} to {each}: the status stays"),
            Self::Pinned {
                fresh,
                assigned,
                since,
            } => {
                let since = rfc3339(*since);
                write!(
                    f,
                    "V3 pinned since {since}: {fresh} of {assigned} votes are fresh, too few; the status stays"
                )
            }
            Self::LastKnown { fresh, assigned } => write!(
                f,
                "V3 {fresh} of {assigned} votes are fresh, too few; a first status by the last of each vantage"
            ),
            Self::Guarded(abstention) => write!(f, "V5 guard: {abstention}; the status stays"),
            Self::CanariesFirst(vantage) => write!(
                f,
                "V5 guard: {vantage} has not tried all of its canaries since the server started; the status stays"
            ),
            Self::PreviousCheck => f.write_str(
                "V8 not judged yet since the check or the endpoint came: the status before stays",
            ),
            Self::AwaitingFirstSuccess => f.write_str("S2 not judged yet, others are healthy"),
            Self::BenefitOfDoubt => {
                f.write_str("S2 not judged yet and none known to be healthy: served until judged")
            }
            Self::NoCheck => f.write_str("H1 the service has no check"),
            Self::EnvoysOnly => f.write_str("H1 only Envoys check it, each for itself"),
            Self::AdminDraining => f.write_str("H1 state: DRAINING"),
            Self::AdminStopped => f.write_str("S6 state: STOPPED"),
            Self::NoWeight => f.write_str("S6 weight 0"),
            Self::Removed => f.write_str("removed from the configuration, draining"),
        }
    }
}

/// RFC 3339, UTC, milliseconds; a time beyond the calendar shows as the epoch.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let timestamp = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_have_milliseconds_and_are_utc() {
        assert_eq!(
            rfc3339(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456)),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn each_rule_says_what_was_counted() {
        let since = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (rule, text) in [
            (Rule::Majority { votes: 2, of: 3 }, "V2 majority 2 of 3"),
            (
                Rule::Share {
                    healthy: 2,
                    of: 10,
                    share: 0.18,
                },
                "V2 share: 2 of 10 say healthy, more than 0.18 must",
            ),
            (Rule::Tie { each: 1 }, "V3 tie 1 to 1: the status stays"),
            (
                Rule::Pinned {
                    fresh: 1,
                    assigned: 3,
                    since,
                },
                "V3 pinned since 2023-11-14T22:13:20.000Z: 1 of 3 votes are fresh, too few; the status stays",
            ),
        ] {
            assert_eq!(rule.to_string(), text);
        }
    }
}
