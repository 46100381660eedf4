//! What guards tell (semantics V5): that a vantage abstains, why, and why no longer, in words.
//!
//! In: what a [`Doubt`](super::Doubt) has found. Out: the values and texts that votes, statuses, the log and the admin API
//! show. Not here: when a vantage is doubted.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::health::rule::rfc3339;

/// That a vantage abstains, since when and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Abstention {
    /// Who.
    pub vantage: Arc<str>,
    /// Since when.
    pub since: SystemTime,
    /// Why.
    pub cause: Cause,
    /// Turns within this time are undone.
    pub undone: (Instant, Instant),
}

impl Abstention {
    /// Whether a turn at this time is undone.
    #[must_use]
    pub fn undoes(&self, at: Instant) -> bool {
        let (from, until) = self.undone;
        (from..=until).contains(&at)
    }
}

/// Why a vantage is doubted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It turned too many endpoints.
    Turned {
        /// How many turned.
        turned: usize,
        /// Of how many.
        of: usize,
        /// In how many groups.
        groups: usize,
        /// Within which time.
        window: Duration,
    },
    /// None of its canaries answers.
    Canaries {
        /// Those that have answered before.
        of: Arc<[SocketAddr]>,
    },
}

/// What the canaries of a vantage say together. One that has never answered is not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// One answers, by its verdict and its latest probe; or there is none.
    Answer,
    /// Neither: some are between two verdicts.
    Unclear,
    /// The latest probe of each of these failed, not all of them to their threshold.
    Failing(Arc<[SocketAddr]>),
    /// None of these answers, by its verdict.
    Silent(Arc<[SocketAddr]>),
}

/// A canary that a vantage has tried, and that has never answered it since it was configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unanswered {
    /// Who tries.
    pub vantage: Arc<str>,
    /// What does not answer.
    pub canary: SocketAddr,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the canary {} of {} has never answered since it was configured; check the address. The guard does without it \
             until it has answered once",
            self.canary, self.vantage
        )
    }
}

/// How many canaries an abstention names.
const NAMED: usize = 4;

impl fmt::Display for Abstention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = rfc3339(self.since);
        write!(f, "{} abstains since {since}, ", self.vantage)?;
        match &self.cause {
            Cause::Turned {
                turned,
                of,
                groups,
                window,
            } => write!(
                f,
                "it turned {turned} of {of} endpoints in {groups} groups from healthy within {} s",
                window.as_secs_f64()
            ),
            Cause::Canaries { of } => {
                let named: Vec<String> = of.iter().take(NAMED).map(ToString::to_string).collect();
                let named = named.join(", ");
                let more = if of.len() > NAMED { ", …" } else { "" };
                match of.len() {
                    1 => write!(f, "its canary {named} does not answer"),
                    n => write!(f, "none of its {n} canaries answers ({named}{more})"),
                }
            }
        }
    }
}

/// Why a vantage is trusted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The share of turned endpoints is below half of `maxShare`, and a canary answers if there are any.
    Recovered {
        /// So many are still turned.
        turned: usize,
        /// Of so many.
        of: usize,
    },
    /// Another vantage finds most of the turned endpoints unhealthy too.
    Agreed,
    /// `maxHold` is over.
    HoldOver,
    /// The vantage withdrew, or no guard watches it any more.
    Gone,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovered { turned, of } => {
                write!(f, "only {turned} of {of} endpoints are still turned")
            }
            Self::Agreed => f.write_str("another vantage agrees"),
            Self::HoldOver => f.write_str("maxHold is over"),
            Self::Gone => f.write_str("it withdrew, or its guard was switched off or changed"),
        }
    }
}

/// A vantage starts or ends to abstain: one event each.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It abstains from now on.
    Started(Arc<Abstention>),
    /// It is trusted again.
    Ended(Arc<Abstention>, End),
}
