//! One service's view out of its state and its votes: what is decided for each endpoint, and what is held.
//!
//! In: the service's state, the votes by state key, the time, and which endpoints something has happened to. Out: the new
//! view (kept in the state), transitions, changes for the store. Pure but for the state that it is given.
//!
//! ```text
//! scope ─► judge each: votes → published, counts ─► of the service: held? in doubt? ─► view of each ─► transitions
//!                                                       │ changed: the unjudged too ▲
//!                                                       └───────────────────────────┘
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vitals_prober::outcome::Times;
use vitals_prober::tally::Verdict;
use vitals_prober::target::StateKey;

use super::{Change, Counts, EndpointRecord, Member, Scope, ServiceState};
use crate::health::quorum::{self, Decision, Vote};
use crate::health::{
    DetailedStatus, EdsStatus, EndpointView, Now, Pool, Routing, Rule, ServiceView, Transition,
    VoteView,
};
use crate::model::{AdminState, Backend, Endpoint, Service};

/// What came of evaluating one service.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    pub(super) transitions: Vec<Transition>,
    pub(super) changes: Vec<Change>,
    pub(super) benefit_of_doubt: bool,
    pub(super) newly_pinned: usize,
    pub(super) unpinned: bool,
    /// Whether the fleet may be told something else than before.
    pub(super) serves_otherwise: bool,
    pub(super) evaluated: usize,
}

/// What the votes say of one endpoint, before the operator's word and the first-word rules.
struct Judged<'m> {
    member: usize,
    backend: &'m Backend,
    endpoint: &'m Endpoint,
    key: Option<StateKey>,
    verdict: Option<Verdict>,
    rule: Rule,
    votes: Vec<VoteView>,
}

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
        votes: impl Fn(&StateKey) -> Option<VoteView>,
        times: impl Fn(&StateKey) -> Option<Times>,
        now: Now,
    ) -> Evaluation {
        let mut evaluation = Evaluation::default();
        let some_left = self.end_drainings(now, &mut evaluation);
        let (service, pinned_before) = (Arc::clone(&self.service), self.counts.pinned);
        let mut judged = Vec::new();
        match scope {
            Scope::All => {
                self.counts = Counts::default();
                for member in 0..self.members.len() {
                    judged.extend(self.judge(member, &service, &votes, now, &mut evaluation));
                }
            }
            Scope::Members(members) => {
                for &member in members {
                    let (healthy, unjudged) = self.counted(member, &service);
                    self.counts.healthy -= usize::from(healthy);
                    self.counts.unjudged -= usize::from(unjudged);
                    judged.extend(self.judge(member, &service, &votes, now, &mut evaluation));
                }
            }
        }
        for judged in &judged {
            let (healthy, unjudged) = self.counted(judged.member, &service);
            self.counts.healthy += usize::from(healthy);
            self.counts.unjudged += usize::from(unjudged);
        }

        let held_before = self.view.held;
        let held = self.decide_hold(now, &mut evaluation);
        let others_first = self.counts.healthy > 0 || held;
        if others_first != self.others_first {
            self.others_first = others_first;
            // Whoever was never judged is shown otherwise now. Judging again changes nothing of what is published.
            for member in 0..self.members.len() {
                if !scope.has(member) && self.counted(member, &service).1 {
                    judged.extend(self.judge(member, &service, &votes, now, &mut evaluation));
                }
            }
        }
        evaluation.evaluated = judged.len();
        evaluation.serves_otherwise |= held != held_before || some_left;

        let endpoints = match scope {
            Scope::All => self.all_views(judged, &times, now, &mut evaluation),
            Scope::Members(_) => self.some_views(judged, &times, now, &mut evaluation),
        };
        let pinned = self.counts.pinned;
        evaluation.newly_pinned = if pinned > pinned_before { pinned } else { 0 };
        evaluation.unpinned = pinned_before > 0 && pinned == 0;
        self.view = Arc::new(ServiceView {
            held,
            routing: Routing::default(),
            endpoints,
        });
        evaluation
    }

    /// Whether a member counts among the healthy, and among the never judged.
    fn counted(&self, member: usize, service: &Service) -> (bool, bool) {
        let Some(member) = self.members.get(member) else {
            return (false, false);
        };
        let counts = found(service, member)
            .is_some_and(|(backend, endpoint)| takes_requests(service, backend, endpoint));
        let verdict = member.published.as_ref().map(|record| record.verdict);
        (
            counts && verdict == Some(Verdict::Healthy),
            counts && verdict.is_none(),
        )
    }

    /// Design 5.3: whether the load assignment is held. Held also when some endpoints have failed and others have not been
    /// heard of: to answer then would be to say that all are down.
    fn decide_hold(&mut self, now: Now, evaluation: &mut Evaluation) -> bool {
        let (any_healthy, any_unjudged) = (self.counts.healthy > 0, self.counts.unjudged > 0);
        if any_healthy || !any_unjudged || self.hold_until.is_some_and(|until| until <= now.mono) {
            self.hold_until = None;
        }
        let held = self.hold_until.is_some();
        let doubt = !held && !any_healthy && any_unjudged;
        evaluation.benefit_of_doubt = doubt && !self.doubt_reported;
        self.doubt_reported = doubt;
        held
    }

    /// The views of all endpoints, made anew. The one before of each is found by its address: it may stand elsewhere now.
    fn all_views(
        &mut self,
        judged: Vec<Judged<'_>>,
        times: impl Fn(&StateKey) -> Option<Times>,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> Vec<Arc<EndpointView>> {
        evaluation.serves_otherwise = true;
        let old = Arc::clone(&self.view);
        let old: HashMap<SocketAddr, &EndpointView> = old
            .endpoints
            .iter()
            .map(|old| (old.address, &**old))
            .collect();
        let mut views = Vec::with_capacity(judged.len() + self.leaving.len());
        for judged in judged {
            let key = judged.key;
            let mut view = self.view_of(judged, now);
            let times = || times(&key?);
            self.compare(
                old.get(&view.address).copied(),
                &mut view,
                times,
                evaluation,
            );
            self.counts.pinned += usize::from(view.pinned);
            views.push(Arc::new(view));
        }
        for (address, leaving) in &self.leaving {
            let mut view = EndpointView {
                group: Arc::clone(&leaving.group),
                address: *address,
                pool: leaving.pool,
                by: leaving.by,
                weight: leaving.weight,
                status: Some(EdsStatus::Draining),
                detailed: DetailedStatus::Draining,
                reason: None,
                since: now.wall,
                rule: Rule::Removed,
                pinned: false,
                votes: Vec::new(),
            };
            self.compare(old.get(address).copied(), &mut view, || None, evaluation);
            views.push(Arc::new(view));
        }
        views
    }

    /// The views of these endpoints made anew, those of the others as they were.
    fn some_views(
        &mut self,
        judged: Vec<Judged<'_>>,
        times: impl Fn(&StateKey) -> Option<Times>,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> Vec<Arc<EndpointView>> {
        let mut views = self.view.endpoints.clone();
        for judged in judged {
            let (member, key) = (judged.member, judged.key);
            let Some(place) = views.get_mut(member) else {
                continue;
            };
            let mut view = self.view_of(judged, now);
            let times = || times(&key?);
            self.compare(Some(place), &mut view, times, evaluation);
            evaluation.serves_otherwise |= view.status != place.status;
            self.counts.pinned += usize::from(view.pinned);
            self.counts.pinned -= usize::from(place.pinned);
            *place = Arc::new(view);
        }
        let mut at = 0;
        views.retain(|view| {
            at += 1;
            at <= self.members.len() || self.leaving.contains_key(&view.address)
        });
        views
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

    /// Votes → verdict (semantics V2–V4, V8), and what is published from it.
    fn judge<'m>(
        &mut self,
        member: usize,
        service: &'m Service,
        votes: impl Fn(&StateKey) -> Option<VoteView>,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> Option<Judged<'m>> {
        let state = self.members.get_mut(member)?;
        let (backend, endpoint) = found(service, state)?;
        let key = state.key;
        let votes: Vec<VoteView> = key.iter().filter_map(votes).collect();
        let ballots: Vec<Vote> = votes
            .iter()
            .map(|vote| Vote {
                verdict: vote.verdict,
                fresh: vote.fresh,
            })
            .collect();
        let standing = state.published.as_ref().map(|record| record.verdict);
        let (verdict, rule) = if service.check.is_none() {
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
            if state.publish(verdict, deciding, now) {
                let change = (service.name.clone(), endpoint.address);
                let record = state.published.clone();
                evaluation.changes.push(Change::Endpoint(change, record));
            }
        }
        Some(Judged {
            member,
            backend,
            endpoint,
            key,
            verdict,
            rule,
            votes,
        })
    }

    /// The operator's word first (semantics H1, S6), then the verdict, then the rules of the first word (design 5.3).
    fn view_of(&self, judged: Judged<'_>, now: Now) -> EndpointView {
        let Judged {
            member,
            backend,
            endpoint,
            verdict,
            rule,
            votes,
            ..
        } = judged;
        let weight = self.service.weight_of(backend, endpoint);
        let member = self.members.get(member);
        let published = member.and_then(|member| member.published.as_ref());
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
            (AdminState::Active, Some(_), None) if self.others_first => (
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
            group: Arc::clone(&backend.group),
            address: endpoint.address,
            pool: Pool::of(backend),
            by: self.service.check.as_ref().map(|_| backend.by),
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

    /// Holds an endpoint's new view against the one before: keeps `since` where nothing changed, and names what did (S7).
    /// An endpoint's first appearance is no transition, so neither is a restart.
    fn compare(
        &self,
        before: Option<&EndpointView>,
        view: &mut EndpointView,
        times: impl FnOnce() -> Option<Times>,
        evaluation: &mut Evaluation,
    ) {
        let Some(before) = before else { return };
        if before.detailed == view.detailed {
            view.since = before.since;
            return;
        }
        let deciding = view.votes.iter().find(|vote| {
            vote.verdict
                .is_some_and(|verdict| DetailedStatus::from(verdict) == view.detailed)
        });
        evaluation.transitions.push(Transition {
            service: self.service.name.clone(),
            group: view.group.name.clone(),
            address: view.address,
            from: before.detailed,
            to: view.detailed,
            reason: deciding.and_then(|vote| vote.reason.clone()),
            times: deciding.and_then(|_| times()),
            vantage: deciding.map(|vote| Arc::clone(&vote.vantage)),
            rule: view.rule,
        });
    }
}

impl Member {
    /// Takes a verdict as the published one. Whether the record has changed by it.
    fn publish(&mut self, verdict: Verdict, deciding: Option<&VoteView>, now: Now) -> bool {
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
        let differs = before != Some(&record);
        if differs {
            self.published = Some(record);
        }
        differs
    }
}
