//! One decision: the votes on an endpoint, and what they come to (semantics V1–V4). Pure.
//!
//! It knows nothing of where a vote came from, and nothing of the status that stands: [`Decision::Keep`] says that it
//! stays, and why.

use vitals_prober::tally::Verdict;

use super::Rule;

/// What a vantage brings to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Its verdict; `None`: not judged yet.
    pub verdict: Option<Verdict>,
    /// Whether it counts (semantics V1).
    pub fresh: bool,
}

/// What the votes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This is the status.
    Settled(Verdict, Rule),
    /// The present status stays.
    Keep(Rule),
    /// No vantage has ever judged.
    Unjudged,
}

/// `quorum: MAJORITY` over the votes of all assigned vantages.
#[must_use]
pub fn majority(votes: &[Vote]) -> Decision {
    if votes.iter().all(|vote| vote.verdict.is_none()) {
        return Decision::Unjudged;
    }
    let fresh: Vec<Verdict> = votes
        .iter()
        .filter(|vote| vote.fresh)
        .filter_map(|vote| vote.verdict)
        .collect();
    // V2: fresh votes from more than half of the assigned vantages, else V3.
    if fresh.len() * 2 <= votes.len() {
        return Decision::Keep(Rule::Pinned);
    }
    let healthy = fresh.iter().filter(|verdict| verdict.is_healthy()).count();
    let failing = fresh.len() - healthy;
    match healthy.cmp(&failing) {
        std::cmp::Ordering::Equal => Decision::Keep(Rule::Tie),
        std::cmp::Ordering::Greater => Decision::Settled(
            Verdict::Healthy,
            Rule::Majority {
                votes: healthy,
                of: fresh.len(),
            },
        ),
        std::cmp::Ordering::Less => {
            // V4
            let all_timeout = fresh
                .iter()
                .all(|verdict| matches!(verdict, Verdict::Timeout | Verdict::Healthy));
            let verdict = if all_timeout {
                Verdict::Timeout
            } else {
                Verdict::Unhealthy
            };
            Decision::Settled(
                verdict,
                Rule::Majority {
                    votes: failing,
                    of: fresh.len(),
                },
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(verdicts: &[Option<Verdict>]) -> Vec<Vote> {
        verdicts
            .iter()
            .map(|&verdict| Vote {
                verdict,
                fresh: true,
            })
            .collect()
    }

    const H: Option<Verdict> = Some(Verdict::Healthy);
    const U: Option<Verdict> = Some(Verdict::Unhealthy);
    const T: Option<Verdict> = Some(Verdict::Timeout);

    #[test]
    fn v2_one_vantage_decides_alone() {
        let rule = Rule::Majority { votes: 1, of: 1 };
        assert_eq!(
            majority(&fresh(&[H])),
            Decision::Settled(Verdict::Healthy, rule)
        );
        assert_eq!(
            majority(&fresh(&[T])),
            Decision::Settled(Verdict::Timeout, rule)
        );
    }

    #[test]
    fn v3_a_stale_vote_pins_and_a_tie_keeps() {
        let stale = Vote {
            verdict: U,
            fresh: false,
        };
        assert_eq!(majority(&[stale]), Decision::Keep(Rule::Pinned));
        let mut half = fresh(&[H]);
        half.push(stale);
        assert_eq!(
            majority(&half),
            Decision::Keep(Rule::Pinned),
            "one of two is not more than half"
        );
        assert_eq!(majority(&fresh(&[H, U])), Decision::Keep(Rule::Tie));
    }

    #[test]
    fn v4_timeout_only_when_all_failing_votes_are() {
        let settled = |verdict, votes, of| Decision::Settled(verdict, Rule::Majority { votes, of });
        assert_eq!(
            majority(&fresh(&[T, T, H])),
            settled(Verdict::Timeout, 2, 3)
        );
        assert_eq!(
            majority(&fresh(&[T, U, H])),
            settled(Verdict::Unhealthy, 2, 3)
        );
    }

    #[test]
    fn never_judged_is_not_a_vote() {
        assert_eq!(majority(&fresh(&[None])), Decision::Unjudged);
        assert_eq!(majority(&[]), Decision::Unjudged);
        assert_eq!(
            majority(&fresh(&[None, None, H])),
            Decision::Keep(Rule::Pinned)
        );
    }
}
