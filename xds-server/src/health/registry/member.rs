//! One endpoint of a service: what its votes come to, what was published of it, and what is taken back.
//!
//! In: the votes of all assigned vantages, the service's quorum, the time. Out: the verdict that stands, by which rule, and
//! whose vote made it. What the operator's word and the rest of the service make of that is `evaluate`'s.

use std::sync::Arc;

use vitals_prober::tally::Verdict;

use super::{EndpointRecord, Member};
use crate::health::guard::Abstention;
use crate::health::quorum::{self, Decision, Kept, Vote};
use crate::health::{Now, Rule, VoteView};
use crate::model::Service;

impl Member {
    /// What the votes come to for it: the verdict that stands then, by which rule, and which of the votes made it. `None`
    /// is PROBING. `untried`: vantages that have yet to try their canaries (semantics V5).
    pub(super) fn weigh(
        &mut self,
        service: &Service,
        votes: &[VoteView],
        untried: &[Arc<str>],
        now: Now,
    ) -> (Option<Verdict>, Rule, Option<usize>) {
        let mut ballots: Vec<Vote> = votes
            .iter()
            .map(|vote| Vote {
                vantage: Arc::clone(&vote.vantage),
                verdict: vote.verdict,
                turned: vote.turned,
                fresh: vote.fresh,
                abstains: vote.abstains.is_some(),
            })
            .collect();
        let standing = |member: &Self| member.published.as_ref().map(|record| record.verdict);
        let kept = match quorum::decide(service.quorum, &ballots) {
            Decision::Settled(verdict, rule) => {
                let turns = !verdict.is_healthy() && standing(self) == Some(Verdict::Healthy);
                let asks = |vote: &&VoteView| {
                    vote.verdict.is_some_and(|verdict| !verdict.is_healthy())
                        && untried.contains(&vote.vantage)
                };
                if let Some(vote) = votes.iter().find(asks).filter(|_| turns) {
                    let rule = Rule::CanariesFirst(Arc::clone(&vote.vantage));
                    return (Some(Verdict::Healthy), rule, None);
                }
                let deciding = deciding(verdict, &rule, votes);
                return (Some(verdict), rule, deciding);
            }
            Decision::Unjudged => return (standing(self), Rule::PreviousCheck, None),
            Decision::Keep(kept) => kept,
        };
        // Semantics V5: what was published by the turns that brought a vantage into doubt is taken back.
        let doubted = |vote: &&VoteView| {
            let abstention = vote.abstains.as_ref();
            abstention.is_some_and(|doubt| vote.turned.is_some_and(|at| doubt.undoes(at)))
        };
        let undone = votes
            .iter()
            .filter(doubted)
            .filter_map(|vote| vote.abstains.as_ref())
            .find(|abstention| self.undo(abstention));
        let doubted = |vote: &VoteView| vote.abstains.clone().filter(|_| vote.fresh);
        let rule = match (kept, undone.cloned()) {
            (_, Some(abstention)) => Rule::Guarded(abstention),
            (Kept::Tie { each }, None) => Rule::Tie { each },
            (Kept::TooFew { fresh, assigned }, None) => match votes.iter().find_map(doubted) {
                Some(abstention) => Rule::Guarded(abstention),
                None => Rule::Pinned {
                    fresh,
                    assigned,
                    since: now.wall,
                },
            },
        };
        if let Some(standing) = standing(self) {
            return (Some(standing), rule, None);
        }
        // Never published, as an endpoint of a service that is new here: the last that enough vantages said, however long
        // ago, is more than nothing.
        for ballot in &mut ballots {
            ballot.fresh = true;
        }
        match quorum::decide(service.quorum, &ballots) {
            Decision::Settled(verdict, by) => {
                let deciding = deciding(verdict, &by, votes);
                let rule = match rule {
                    Rule::Pinned {
                        fresh, assigned, ..
                    } => Rule::LastKnown { fresh, assigned },
                    other => other,
                };
                (Some(verdict), rule, deciding)
            }
            Decision::Keep(_) | Decision::Unjudged => (None, rule, None),
        }
    }

    /// Goes back to what was published before it ceased to be healthy, where that was by a turn that is in doubt. Whether
    /// it was.
    fn undo(&mut self, abstention: &Abstention) -> bool {
        let turn = self.before_turn.take_if(|turn| abstention.undoes(turn.1));
        let undone = turn.is_some();
        if let Some(turn) = turn {
            self.published = Some(turn.0);
        }
        undone
    }

    /// Takes a verdict as the published one.
    pub(super) fn publish(&mut self, verdict: Verdict, deciding: Option<&VoteView>, now: Now) {
        let before = self.published.as_ref();
        let changed = before.is_none_or(|record| record.verdict != verdict);
        let record = EndpointRecord {
            verdict,
            since: match before {
                Some(record) if !changed => record.since,
                _ => deciding.and_then(|vote| vote.since).unwrap_or(now.wall),
            },
            reason: match deciding {
                Some(vote) => vote.reason.clone(),
                None => before
                    .filter(|_| !changed)
                    .and_then(|record| record.reason.clone()),
            },
            key: match deciding {
                Some(_) => self.key,
                None => before.and_then(|record| record.key),
            },
        };
        if before == Some(&record) {
            return;
        }
        let old = self.published.replace(record);
        match old {
            _ if verdict.is_healthy() => self.before_turn = None,
            Some(old) if old.verdict.is_healthy() => {
                self.before_turn = Some(Box::new((old, now.mono)));
            }
            _ => {}
        }
    }
}

/// Which vote made the verdict: of those that count and say it, the one that turned last.
fn deciding(verdict: Verdict, rule: &Rule, votes: &[VoteView]) -> Option<usize> {
    let says = |vote: &VoteView| match rule {
        Rule::Any { vantage, .. } => vote.vantage == *vantage,
        _ => vote.verdict == Some(verdict),
    };
    let counts = |vote: &VoteView| vote.fresh && vote.abstains.is_none();
    let mut votes: Vec<(usize, &VoteView)> = votes.iter().enumerate().collect();
    votes.retain(|(_, vote)| says(vote));
    let latest = votes
        .iter()
        .max_by_key(|(_, vote)| (counts(vote), vote.turned));
    latest.map(|(at, _)| *at)
}
