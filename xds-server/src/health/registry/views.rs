//! What is shown of each endpoint of a service, out of what was judged of it; and what of that is news (semantics S7).
//!
//! In: verdicts and rules (`evaluate`), the operator's word, the views before. Out: the new views, transitions, and how many
//! are pinned.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vitals_prober::outcome::Times;
use vitals_prober::target::StateKey;

use super::ServiceState;
use super::evaluate::{Evaluation, Judged};
use crate::health::{
    DetailedStatus, EdsStatus, EndpointView, Now, Pool, Rule, Transition, VoteView,
};
use crate::model::AdminState;

impl ServiceState {
    /// The views of all endpoints, made anew. The one before of each is found by its address: it may stand elsewhere now.
    pub(super) fn all_views(
        &mut self,
        judged: Vec<Judged<'_>>,
        times: impl Fn(&StateKey, &str) -> Option<Times>,
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
            let old = old.get(&judged.endpoint.address).copied();
            views.push(Arc::new(
                self.view_after(old, judged, &times, now, evaluation),
            ));
        }
        for (address, leaving) in &self.leaving {
            let mut view = EndpointView {
                group: Arc::clone(&leaving.group),
                address: *address,
                pool: leaving.pool,
                by: leaving.by,
                probe_address: leaving.probe_address,
                weight: leaving.weight,
                status: Some(EdsStatus::Draining),
                detailed: DetailedStatus::Draining,
                reason: None,
                since: now.wall,
                rule: Rule::Removed,
                pinned: None,
                votes: Box::default(),
            };
            let old = old.get(address).copied();
            self.compare(old, &mut view, None, |_| None, evaluation);
            views.push(Arc::new(view));
        }
        views
    }

    /// The views of these endpoints made anew, those of the others as they were.
    pub(super) fn some_views(
        &mut self,
        judged: Vec<Judged<'_>>,
        times: impl Fn(&StateKey, &str) -> Option<Times>,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> Vec<Arc<EndpointView>> {
        let mut views = self.view.endpoints.clone();
        for judged in judged {
            let Some(place) = views.get_mut(judged.member) else {
                continue;
            };
            let view = self.view_after(Some(place), judged, &times, now, evaluation);
            evaluation.serves_otherwise |= view.status != place.status;
            self.counts.pinned -= usize::from(place.pinned.is_some());
            *place = Arc::new(view);
        }
        let mut at = 0;
        views.retain(|view| {
            at += 1;
            at <= self.members.len() || self.leaving.contains_key(&view.address)
        });
        views
    }

    /// The view of one endpoint, counted, and told where it is otherwise than the one before.
    fn view_after(
        &mut self,
        before: Option<&EndpointView>,
        judged: Judged<'_>,
        times: impl Fn(&StateKey, &str) -> Option<Times>,
        now: Now,
        evaluation: &mut Evaluation,
    ) -> EndpointView {
        let (key, deciding) = (judged.key, judged.deciding);
        let mut view = self.view_of(judged, now);
        let times = |vantage: &str| times(&key?, vantage);
        self.compare(before, &mut view, deciding, times, evaluation);
        self.counts.pinned += usize::from(view.pinned.is_some());
        view
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
            deciding: _,
            key: _,
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
            (AdminState::Active, Some(_), Some(_)) if rule == Rule::EnvoysOnly => {
                (Some(EdsStatus::Healthy), DetailedStatus::Unknown, rule)
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
            pinned: rule.is_pinned().then_some(now.wall),
            rule,
            votes,
        }
    }

    /// Holds an endpoint's new view against the one before: keeps `since` where nothing changed, and names what did (S7).
    /// An endpoint's first appearance is no transition, so neither is a restart.
    fn compare(
        &self,
        before: Option<&EndpointView>,
        view: &mut EndpointView,
        deciding: Option<usize>,
        times: impl FnOnce(&str) -> Option<Times>,
        evaluation: &mut Evaluation,
    ) {
        let Some(before) = before else { return };
        if view.pinned.is_some()
            && let Some(pinned) = before.pinned
        {
            view.pinned = Some(pinned);
            if let Rule::Pinned { since, .. } = &mut view.rule {
                *since = pinned;
            }
        }
        if before.detailed == view.detailed {
            view.since = before.since;
            return;
        }
        let by_verdict = |vote: &&VoteView| {
            let verdict = vote.verdict.map(DetailedStatus::from);
            verdict == Some(view.detailed)
        };
        let deciding = deciding
            .and_then(|at| view.votes.get(at))
            .filter(by_verdict);
        evaluation.transitions.push(Transition {
            service: self.service.name.clone(),
            group: view.group.name.clone(),
            address: view.address,
            from: before.detailed,
            to: view.detailed,
            reason: deciding.and_then(|vote| vote.reason.clone()),
            times: deciding.and_then(|vote| times(&vote.vantage)),
            vantage: deciding.map(|vote| Arc::clone(&vote.vantage)),
            rule: view.rule.clone(),
        });
    }
}
