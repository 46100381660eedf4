//! One decision: the votes on an endpoint, and what they come to (semantics V1–V4). Pure.
//!
//! In: the quorum of the service, and per assigned vantage one [`Vote`]. Out: a [`Decision`]. It knows nothing of where
//! a vote came from, and nothing of the status that stands: [`Decision::Keep`] says that it stays, and why.
//!
//! Only fresh votes of vantages that do not abstain count. What each mode makes of them:
//!
//! | mode | healthy when | too few |
//! |---|---|---|
//! | MAJORITY | more than half of the votes say so; a tie keeps | votes from at most half of the assigned |
//! | ALL | all votes say so | the same |
//! | share `s` | more than `s` of the votes say so | the same |
//! | ANY | the vote that turned last says so | no vote |
//!
//! ANY is taken over the votes that count now, not over the history: when the vantage that turned last goes silent,
//! abstains or leaves, the latest turn of the others decides, so no vantage can leave a verdict behind that nobody holds
//! any more. Two votes that turned at the same instant: the failing one wins, which costs a spare endpoint and not a
//! failed request; of two alike, the vantage that comes first by name is named.
//!
//! Abstaining and silent vantages stay among the assigned: two doubted ones of three leave a third that is not more than
//! half, and the status stays (fail static).

use std::sync::Arc;
use std::time::Instant;

use vitals_prober::tally::Verdict;

use super::rule::Rule;
use crate::model::Quorum;

/// What a vantage brings to the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Who votes.
    pub vantage: Arc<str>,
    /// Its verdict; `None`: not judged yet.
    pub verdict: Option<Verdict>,
    /// When this server heard of the turn that made it.
    pub turned: Option<Instant>,
    /// Whether it is fresh (semantics V1).
    pub fresh: bool,
    /// Whether the vantage is doubted (semantics V5).
    pub abstains: bool,
}

/// What the votes come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// This is the status.
    Settled(Verdict, Rule),
    /// The present status stays.
    Keep(Kept),
    /// No vantage has ever judged.
    Unjudged,
}

/// Why the present status stays (semantics V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// As many votes for as against.
    Tie {
        /// The votes on each side.
        each: usize,
    },
    /// Too few votes count.
    TooFew {
        /// So many count.
        fresh: usize,
        /// Of so many vantages.
        assigned: usize,
    },
}

/// What `votes`, one of each assigned vantage, come to.
#[must_use]
pub fn decide(quorum: Quorum, votes: &[Vote]) -> Decision {
    if votes.iter().all(|vote| vote.verdict.is_none()) {
        return Decision::Unjudged;
    }
    let counts = |vote: &&Vote| vote.verdict.is_some() && vote.fresh && !vote.abstains;
    let counting = || votes.iter().filter(counts);
    let of = counting().count();
    let enough = match quorum {
        Quorum::Any => of > 0,
        Quorum::Majority | Quorum::All | Quorum::Share(_) => of * 2 > votes.len(),
    };
    if !enough {
        return Decision::Keep(Kept::TooFew {
            fresh: of,
            assigned: votes.len(),
        });
    }
    let healthy = counting()
        .filter(|vote| vote.verdict == Some(Verdict::Healthy))
        .count();
    let (is_healthy, rule) = match quorum {
        Quorum::Majority if healthy * 2 == of => {
            return Decision::Keep(Kept::Tie { each: healthy });
        }
        Quorum::Majority => {
            let is_healthy = healthy * 2 > of;
            let votes = if is_healthy { healthy } else { of - healthy };
            (is_healthy, Rule::Majority { votes, of })
        }
        Quorum::All => (healthy == of, Rule::All { healthy, of }),
        Quorum::Share(share) => (
            exceeds(healthy, of, share),
            Rule::Share { healthy, of, share },
        ),
        Quorum::Any => {
            let says_healthy = |vote: &Vote| vote.verdict == Some(Verdict::Healthy);
            let latest = counting().max_by(|a, b| {
                a.turned
                    .cmp(&b.turned)
                    .then_with(|| says_healthy(b).cmp(&says_healthy(a)))
                    .then_with(|| b.vantage.cmp(&a.vantage))
            });
            let Some(latest) = latest else {
                return Decision::Unjudged;
            };
            let vantage = Arc::clone(&latest.vantage);
            (says_healthy(latest), Rule::Any { vantage, of })
        }
    };
    let verdict = match is_healthy {
        true => Verdict::Healthy,
        false => kind_of_failure(counting().filter_map(|vote| vote.verdict)),
    };
    Decision::Settled(verdict, rule)
}

/// Semantics V4: TIMEOUT only when all failing votes are.
fn kind_of_failure(mut verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    if verdicts.any(|verdict| verdict == Verdict::Unhealthy) {
        Verdict::Unhealthy
    } else {
        Verdict::Timeout
    }
}

/// Whether `part` of `whole` is more than `share`; nothing of nothing is not.
#[must_use]
pub(super) fn exceeds(part: usize, whole: usize, share: f64) -> bool {
    whole > 0 && share_of(part, whole) > share
}

/// The share, 0.0–1.0; of nothing, 0.0.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of endpoints and votes are far below 2^52"
)]
pub(super) fn share_of(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests;
