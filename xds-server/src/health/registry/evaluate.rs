//! One service's view out of its state and its votes: what is decided for each endpoint, and what is held.
//!
//! In: the service's state, the votes by state key, the time. Out: the new view (kept in the state), transitions,
//! changes for the store. Pure but for the state that it is given.

use std::net::SocketAddr;
use std::sync::Arc;

use vitals_prober::outcome::Times;
use vitals_prober::tally::Verdict;
use vitals_prober::target::StateKey;

use super::{Change, EndpointRecord, ServiceState};
use crate::health::quorum::{self, Decision, Vote};
use crate::health::{
    DetailedStatus, EdsStatus, EndpointView, Now, Pool, Routing, Rule, ServiceView, Transition,
    VoteView,
};
use crate::model::{AdminState, Backend, Endpoint, Name};

/// What came of evaluating one service.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    pub(super) transitions: Vec<Transition>,
    pub(super) changes: Vec<Change>,
    pub(super) benefit_of_doubt: bool,
    pub(super) newly_pinned: usize,
    pub(super) unpinned: bool,
}

/// What the votes say of one endpoint, before the operator's word and the first-word rules.
struct Judged<'m> {
    backend: &'m Backend,
    endpoint: &'m Endpoint,
    verdict: Option<Verdict>,
    rule: Rule,
    votes: Vec<VoteView>,
}

impl ServiceState {
    pub(super) fn evaluate(
        &mut self,
        votes: impl Fn(&StateKey) -> Option<VoteView>,
        times: impl Fn(&StateKey) -> Option<Times>,
        now: Now,
    ) -> Evaluation {
        let mut evaluation = Evaluation::default();
        self.end_drainings(now, &mut evaluation);
        let service = Arc::clone(&self.service);
        let mut judged = Vec::new();
        for backend in &service.backends {
            for endpoint in &backend.group.endpoints {
                judged.push(self.judge(backend, endpoint, &votes, now, &mut evaluation));
            }
        }

        let served = |j: &&Judged<'_>| {
            j.endpoint.state == AdminState::Active
                && service.weight_of(j.backend, j.endpoint).is_some()
        };
        let any_healthy = judged
            .iter()
            .filter(served)
            .any(|j| j.verdict == Some(Verdict::Healthy));
        let any_unjudged = judged.iter().filter(served).any(|j| j.verdict.is_none());
        // Design 5.3. Held also when some endpoints have failed and others have not been heard of: to answer then would
        // be to say that all are down.
        if any_healthy || !any_unjudged || self.hold_until.is_some_and(|until| until <= now.mono) {
            self.hold_until = None;
        }
        let held = self.hold_until.is_some();
        let doubt = !held && !any_healthy && any_unjudged;
        evaluation.benefit_of_doubt = doubt && !self.doubt_reported;
        self.doubt_reported = doubt;

        let mut endpoints: Vec<EndpointView> = judged
            .into_iter()
            .map(|judged| self.view_of(judged, any_healthy || held, now))
            .collect();
        endpoints.extend(self.leaving.iter().map(|(address, leaving)| EndpointView {
            group: leaving.group.clone(),
            address: *address,
            locality: leaving.locality.clone(),
            pool: leaving.pool,
            by: leaving.by,
            probe_address: leaving.probe_address,
            weight: leaving.weight,
            status: Some(EdsStatus::Draining),
            detailed: DetailedStatus::Draining,
            reason: None,
            since: now.wall,
            rule: Rule::Removed,
            pinned: false,
            votes: Vec::new(),
        }));

        let pinned = endpoints.iter().filter(|endpoint| endpoint.pinned).count();
        evaluation.newly_pinned = if pinned > self.pinned { pinned } else { 0 };
        evaluation.unpinned = self.pinned > 0 && pinned == 0;
        self.pinned = pinned;
        self.compare(&mut endpoints, &times, &mut evaluation);
        self.view = Arc::new(ServiceView {
            held,
            routing: Routing::default(),
            endpoints,
        });
        evaluation
    }

    fn end_drainings(&mut self, now: Now, evaluation: &mut Evaluation) {
        let (name, published) = (&self.service.name, &mut self.published);
        self.leaving.retain(|address, leaving| {
            let stays = leaving.until > now.mono;
            if !stays && published.remove(address).is_some() {
                evaluation
                    .changes
                    .push(Change::Endpoint((name.clone(), *address), None));
            }
            stays
        });
    }

    /// Votes → verdict (semantics V2–V4, V8), and what is published from it.
    fn judge<'m>(
        &mut self,
        backend: &'m Backend,
        endpoint: &'m Endpoint,
        votes: impl Fn(&StateKey) -> Option<VoteView>,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> Judged<'m> {
        let address = endpoint.address;
        let key = self.keys.get(&address).copied();
        let votes: Vec<VoteView> = key.iter().filter_map(votes).collect();
        let ballots: Vec<Vote> = votes
            .iter()
            .map(|vote| Vote {
                verdict: vote.verdict,
                fresh: vote.fresh,
            })
            .collect();
        let standing = self.published.get(&address).map(|record| record.verdict);
        let (verdict, rule) = if self.service.check.is_none() {
            (Some(Verdict::Healthy), Rule::NoCheck)
        } else {
            match quorum::majority(&ballots) {
                Decision::Settled(verdict, rule) => (Some(verdict), rule),
                // Too few votes or a tie on an endpoint that was never published: the votes that there are must do.
                Decision::Keep(rule) => (
                    standing.or(votes.iter().find_map(|vote| vote.verdict)),
                    rule,
                ),
                Decision::Unjudged => (standing, Rule::PreviousCheck),
            }
        };
        if let Some(verdict) = verdict
            && endpoint.state != AdminState::Stopped
        {
            let deciding = votes.iter().find(|vote| vote.verdict == Some(verdict));
            self.publish(address, verdict, deciding, key, now, evaluation);
        }
        Judged {
            backend,
            endpoint,
            verdict,
            rule,
            votes,
        }
    }

    fn publish(
        &mut self,
        address: SocketAddr,
        verdict: Verdict,
        deciding: Option<&VoteView>,
        key: Option<StateKey>,
        now: Now,
        evaluation: &mut Evaluation,
    ) {
        let before = self.published.get(&address);
        let changed = before.is_none_or(|record| record.verdict != verdict);
        let decided_by = if deciding.is_some() {
            key
        } else {
            before.and_then(|record| record.key)
        };
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
            key: decided_by,
        };
        if before != Some(&record) {
            let name: Name = self.service.name.clone();
            evaluation
                .changes
                .push(Change::Endpoint((name, address), Some(record.clone())));
            self.published.insert(address, record);
        }
    }

    /// The operator's word first (semantics H1, S6), then the verdict, then the rules of the first word (design 5.3).
    fn view_of(&self, judged: Judged<'_>, others_are_healthy: bool, now: Now) -> EndpointView {
        let Judged {
            backend,
            endpoint,
            verdict,
            rule,
            votes,
        } = judged;
        let weight = self.service.weight_of(backend, endpoint);
        let published = self.published.get(&endpoint.address);
        let (status, detailed, rule) = match (endpoint.state, weight, verdict) {
            (AdminState::Stopped, ..) => (None, DetailedStatus::Stopped, Rule::AdminStopped),
            (AdminState::Draining, ..) => (
                Some(EdsStatus::Draining),
                DetailedStatus::Draining,
                Rule::AdminDraining,
            ),
            (AdminState::Active, None, _) => (
                Some(EdsStatus::Draining),
                DetailedStatus::Draining,
                Rule::NoWeight,
            ),
            (AdminState::Active, Some(_), Some(_)) if rule == Rule::NoCheck => {
                (Some(EdsStatus::Healthy), DetailedStatus::Disabled, rule)
            }
            (AdminState::Active, Some(_), Some(verdict)) => {
                (Some(verdict.into()), verdict.into(), rule)
            }
            (AdminState::Active, Some(_), None) if others_are_healthy => (
                Some(EdsStatus::Unhealthy),
                DetailedStatus::Probing,
                Rule::AwaitingFirstSuccess,
            ),
            (AdminState::Active, Some(_), None) => (
                Some(EdsStatus::Healthy),
                DetailedStatus::Probing,
                Rule::BenefitOfDoubt,
            ),
        };
        let by_verdict = verdict.is_some_and(|verdict| DetailedStatus::from(verdict) == detailed);
        EndpointView {
            group: backend.group.name.clone(),
            address: endpoint.address,
            locality: backend.group.locality.clone(),
            pool: Pool::of(backend),
            by: self.service.check.as_ref().map(|_| backend.by),
            probe_address: self
                .service
                .check
                .as_ref()
                .map(|named| endpoint.probe_address(&named.check)),
            weight,
            status,
            detailed,
            reason: published
                .filter(|_| by_verdict)
                .and_then(|record| record.reason.clone()),
            since: published
                .filter(|_| by_verdict)
                .map_or(now.wall, |record| record.since),
            rule,
            pinned: rule == Rule::Pinned,
            votes,
        }
    }

    /// Holds the new endpoints against the last view: keeps `since` where nothing changed, and names what did (S7).
    /// An endpoint's first appearance is no transition, so neither is a restart.
    fn compare(
        &self,
        endpoints: &mut [EndpointView],
        times: impl Fn(&StateKey) -> Option<Times>,
        evaluation: &mut Evaluation,
    ) {
        let before: std::collections::HashMap<SocketAddr, &EndpointView> = self
            .view
            .endpoints
            .iter()
            .map(|endpoint| (endpoint.address, endpoint))
            .collect();
        for endpoint in endpoints {
            let Some(before) = before.get(&endpoint.address) else {
                continue;
            };
            if before.detailed == endpoint.detailed {
                endpoint.since = before.since;
                continue;
            }
            let deciding = endpoint.votes.iter().find(|vote| {
                vote.verdict
                    .is_some_and(|verdict| DetailedStatus::from(verdict) == endpoint.detailed)
            });
            evaluation.transitions.push(Transition {
                service: self.service.name.clone(),
                group: endpoint.group.clone(),
                address: endpoint.address,
                from: before.detailed,
                to: endpoint.detailed,
                reason: deciding.and_then(|vote| vote.reason.clone()),
                times: deciding.and_then(|_| times(self.keys.get(&endpoint.address)?)),
                vantage: deciding.map(|vote| Arc::clone(&vote.vantage)),
                rule: endpoint.rule,
            });
        }
    }
}
