//! One service's view out of its state and its votes: what is decided for each endpoint, and what is held.
//!
//! In: the service's state, the votes by state key, the time, and which endpoints something has happened to. Out: the new
//! view (kept in the state), transitions, changes for the store. Pure but for the state that it is given. How each
//! endpoint's view comes about is `views`'s.
//!
//! ```text
//! scope ─► judge each: votes → published, counts ─► of the service: held? in doubt? ─► view of each ─► transitions
//!                                                       │ changed: the unjudged too ▲
//!                                                       ├───────────────────────────┘
//!                                                       └─► which pool takes traffic ─► rerouting
//! ```

use std::sync::Arc;

use vitals_prober::outcome::Times;
use vitals_prober::tally::Verdict;
use vitals_prober::target::StateKey;

use super::guards::Doubts;
use super::{Change, Counts, Member, Scope, ServiceRecord, ServiceState};
use crate::health::failover::{self, Choice};
use crate::health::{Now, Pool, Rerouting, Routing, Rule, ServiceView, Transition, VoteView};
use crate::model::{AdminState, Backend, Endpoint, Name, Service};

/// What came of evaluating one service.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    pub(super) transitions: Vec<Transition>,
    pub(super) changes: Vec<Change>,
    pub(super) benefit_of_doubt: bool,
    pub(super) newly_pinned: usize,
    pub(super) unpinned: bool,
    /// How many are pinned, where that has changed.
    pub(super) pinned_now: Option<usize>,
    /// Whether the fleet may be told something else than before.
    pub(super) serves_otherwise: bool,
    pub(super) evaluated: usize,
    pub(super) rerouted: Option<Rerouting>,
}

/// What the votes say of one endpoint, before the operator's word and the first-word rules.
pub(super) struct Judged<'m> {
    pub(super) member: usize,
    pub(super) backend: &'m Backend,
    pub(super) endpoint: &'m Endpoint,
    pub(super) key: Option<StateKey>,
    pub(super) verdict: Option<Verdict>,
    pub(super) rule: Rule,
    pub(super) votes: Box<[VoteView]>,
    pub(super) deciding: Option<usize>,
}

/// How a member counts: its pool, whether it is healthy, whether it was never judged.
type Counted = (Pool, bool, bool);

/// A member's backend and endpoint in the model.
fn found<'m>(service: &'m Service, member: &Member) -> Option<(&'m Backend, &'m Endpoint)> {
    let backend = service.backends.get(member.backend)?;
    Some((backend, backend.group.endpoints.get(member.endpoint)?))
}

/// Whether new requests may go there, as far as the operator is concerned.
fn takes_requests(service: &Service, backend: &Backend, endpoint: &Endpoint) -> bool {
    endpoint.state == AdminState::Active && service.weight_of(backend, endpoint).is_some()
}

impl ServiceState {
    pub(super) fn evaluate(
        &mut self,
        scope: &Scope,
        votes: impl Fn(&StateKey) -> Box<[VoteView]>,
        times: impl Fn(&StateKey, &str) -> Option<Times>,
        doubts: &Doubts,
        now: Now,
    ) -> Evaluation {
        let mut evaluation = Evaluation::default();
        let some_left = self.end_drainings(now, &mut evaluation);
        let (service, pinned_before) = (Arc::clone(&self.service), self.counts.pinned);
        let mut judged = Vec::new();
        match scope {
            Scope::All => self.counts = Counts::default(),
            Scope::Members(members) => {
                for &member in members {
                    if let Some((pool, healthy, unjudged)) = self.counted(member, &service) {
                        let counts = self.counts.pools.of_mut(pool);
                        counts.healthy -= usize::from(healthy);
                        counts.unjudged -= usize::from(unjudged);
                        counts.counted -= 1;
                    }
                }
            }
        }
        for member in scope.members(self.members.len()) {
            judged.extend(self.judge(member, &service, &votes, doubts, now, &mut evaluation));
        }
        for judged in &judged {
            if let Some((pool, healthy, unjudged)) = self.counted(judged.member, &service) {
                let counts = self.counts.pools.of_mut(pool);
                counts.healthy += usize::from(healthy);
                counts.unjudged += usize::from(unjudged);
                counts.counted += 1;
            }
        }

        let held_before = self.view.held;
        let held = self.decide_hold(now, &mut evaluation);
        let others_first = self.counts.pools.healthy() > 0 || held;
        if others_first != self.others_first {
            self.others_first = others_first;
            // Whoever was never judged is shown otherwise now. Judging again changes nothing of what is published.
            for member in 0..self.members.len() {
                let unjudged = self
                    .counted(member, &service)
                    .is_some_and(|counted| counted.2);
                if !scope.has(member) && unjudged {
                    judged.extend(self.judge(
                        member,
                        &service,
                        &votes,
                        doubts,
                        now,
                        &mut evaluation,
                    ));
                }
            }
        }
        evaluation.evaluated = judged.len();
        evaluation.serves_otherwise |= held != held_before || some_left;

        let choice = self.route(&service, &mut evaluation);
        let endpoints = match scope {
            Scope::All => self.all_views(judged, &times, now, &mut evaluation),
            Scope::Members(_) => self.some_views(judged, &times, now, &mut evaluation),
        };
        let pinned = self.counts.pinned;
        evaluation.newly_pinned = if pinned > pinned_before { pinned } else { 0 };
        evaluation.pinned_now = (pinned != pinned_before).then_some(pinned);
        evaluation.unpinned = pinned_before > 0 && pinned == 0;
        let mut view = ServiceView {
            held,
            routing: choice.routing,
            why: choice.why,
            since: None,
            pools: self.counts.pools,
            pinned,
            abstaining: doubts.abstaining.clone(),
            leaves_out_draining: false,
            unanswered: doubts.unanswered.clone(),
            endpoints,
        };
        view.leaves_out_draining = view.has_to_leave_out_draining(&service);
        self.show(view, now, &mut evaluation);
        evaluation
    }

    /// Which pool takes traffic, and whether all share it or requests are refused (semantics H2, H3, H5, H6). What holds
    /// when the server starts is no event.
    fn route(&mut self, service: &Service, evaluation: &mut Evaluation) -> Choice {
        let choice = failover::choose(
            service.failover.as_ref(),
            service.when_all_unhealthy,
            self.active,
            &self.counts.pools,
        );
        let from = Routing {
            active: self.active,
            open: self.view.routing.open,
        };
        let (was, why) = (self.view.why, choice.why);
        let first = !std::mem::replace(&mut self.routed, true);
        if choice.routing != from || first {
            evaluation.serves_otherwise = true;
        }
        let turned = choice.routing != from || was.is_refusal() != why.is_refusal();
        if choice.routing.active != from.active || (turned && !first) {
            evaluation.rerouted = Some(Rerouting {
                service: service.name.clone(),
                from,
                to: choice.routing,
                was,
                why,
            });
        }
        self.active = choice.routing.active;
        choice
    }

    /// Takes the new view of the service. Since when it stands as it does: since its status, its active pool or the kind of
    /// its reason is another; after a restart, since when it did before.
    fn show(&mut self, mut view: ServiceView, now: Now, evaluation: &mut Evaluation) {
        let before = &self.view;
        let stands = view.status() == before.status()
            && view.why.is_like(&before.why)
            && view.routing.active == before.routing.active;
        let remembered = self.remembered.take();
        let since = match (before.since, remembered) {
            (Some(since), _) if stands => since,
            (None, Some(record)) if record.active == view.routing.active => record.since,
            _ => now.wall,
        };
        view.since = Some(since);
        let record = ServiceRecord {
            active: self.active,
            since,
        };
        if (before.since.is_none() || !stands) && remembered != Some(record) {
            let name: Name = self.service.name.clone();
            evaluation.changes.push(Change::Service(name, Some(record)));
        }
        self.view = Arc::new(view);
    }

    /// The group of one of its endpoints, and what was published of it.
    pub(super) fn published_of(&self, member: usize) -> Option<(&Name, Option<Verdict>)> {
        let member = self.members.get(member)?;
        let backend = self.service.backends.get(member.backend)?;
        let verdict = member.published.as_ref().map(|record| record.verdict);
        Some((&backend.group.name, verdict))
    }

    /// How a member counts; `None` where it takes no new requests.
    fn counted(&self, member: usize, service: &Service) -> Option<Counted> {
        let member = self.members.get(member)?;
        let (backend, endpoint) = found(service, member)?;
        let verdict = member.published.as_ref().map(|record| record.verdict);
        takes_requests(service, backend, endpoint).then(|| {
            let healthy = verdict == Some(Verdict::Healthy);
            (Pool::of(backend), healthy, verdict.is_none())
        })
    }

    /// Design 5.3: whether the load assignment is held. Held also when some endpoints have failed and others have not been
    /// heard of: to answer then would be to say that all are down.
    fn decide_hold(&mut self, now: Now, evaluation: &mut Evaluation) -> bool {
        let pools = &self.counts.pools;
        let (any_healthy, any_unjudged) = (pools.healthy() > 0, pools.unjudged() > 0);
        if any_healthy || !any_unjudged || self.hold_until.is_some_and(|until| until <= now.mono) {
            self.hold_until = None;
        }
        let held = self.hold_until.is_some();
        let doubt = !held && !any_healthy && any_unjudged;
        evaluation.benefit_of_doubt = doubt && !self.doubt_reported;
        self.doubt_reported = doubt;
        held
    }

    /// Forgets who has drained. Whether anybody has.
    fn end_drainings(&mut self, now: Now, evaluation: &mut Evaluation) -> bool {
        let name = &self.service.name;
        let before = self.leaving.len();
        self.leaving.retain(|address, leaving| {
            let stays = leaving.until > now.mono;
            if !stays && leaving.published.is_some() {
                evaluation
                    .changes
                    .push(Change::Endpoint((name.clone(), *address), None));
            }
            stays
        });
        self.leaving.len() != before
    }

    /// Votes → verdict (semantics V2–V5, V8), and what is published from it.
    fn judge<'m>(
        &mut self,
        member: usize,
        service: &'m Service,
        votes: impl Fn(&StateKey) -> Box<[VoteView]>,
        doubts: &Doubts,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> Option<Judged<'m>> {
        let state = self.members.get_mut(member)?;
        let (backend, endpoint) = found(service, state)?;
        let key = state.key;
        let votes = key.as_ref().map(votes).unwrap_or_default();
        let before = state.published.clone();
        let (verdict, rule, deciding) = if service.check.is_none() {
            (Some(Verdict::Healthy), Rule::NoCheck, None)
        } else if !backend.by.probers {
            (Some(Verdict::Healthy), Rule::EnvoysOnly, None)
        } else {
            state.weigh(service, &votes, &doubts.untried, now)
        };
        if let Some(verdict) = verdict
            && endpoint.state != AdminState::Stopped
        {
            let deciding = deciding.and_then(|at| votes.get(at));
            state.publish(verdict, deciding, now);
        }
        if state.published != before {
            let change = (service.name.clone(), endpoint.address);
            let record = state.published.clone();
            evaluation.changes.push(Change::Endpoint(change, record));
        }
        Some(Judged {
            member,
            backend,
            endpoint,
            key,
            verdict,
            rule,
            votes,
            deciding,
        })
    }
}
