//! The guards of all services: which share a policy, which vantages they watch, whom they doubt (semantics V5).
//!
//! In: the services and their targets, turns of votes, the time. Out: per event the policy that it concerns. What doubt
//! is, is `health::guard`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vitals_prober::tally::Verdict;
use vitals_prober::target::StateKey;

use super::ServiceState;
use super::ballots::{Turn, Watch};
use crate::health::Now;
use crate::health::guard::{Abstention, Doubt, Event};
use crate::model::{Guard, Model, Name, Service};

type Services = BTreeMap<Name, ServiceState>;
type Watches = BTreeMap<StateKey, Watch>;

/// The guards of all services.
#[derive(Debug, Default)]
pub(super) struct Guards {
    policies: Vec<Policy>,
}

/// One policy, for all services that have it.
#[derive(Debug)]
struct Policy {
    guard: Guard,
    canaries: Vec<StateKey>,
    doubts: BTreeMap<Arc<str>, Doubt>,
}

/// What has happened, and to the services of which policy.
pub(super) type Happened = (usize, Event);

impl Guards {
    /// Takes the policies of a model, with the targets of their canaries: those that were there keep what they know.
    pub(super) fn set_policies(
        &mut self,
        model: &Model,
        canaries: &BTreeMap<SocketAddr, StateKey>,
    ) -> Vec<Event> {
        let mut before = std::mem::take(&mut self.policies);
        for service in model
            .services
            .values()
            .filter(|service| is_guarded(service))
        {
            if self.of(service).is_some() {
                continue;
            }
            let known = before.iter().position(|p| p.guard == service.guard);
            let mut policy = match known {
                Some(at) => before.swap_remove(at),
                None => Policy {
                    guard: service.guard.clone(),
                    canaries: Vec::new(),
                    doubts: BTreeMap::new(),
                },
            };
            let addresses = policy.guard.canaries.iter();
            policy.canaries = addresses
                .filter_map(|address| canaries.get(address).copied())
                .collect();
            self.policies.push(policy);
        }
        let gone = before.iter_mut().flat_map(|p| p.doubts.values_mut());
        gone.filter_map(Doubt::dissolve).collect()
    }

    /// The policy of a service; `None` where no prober judges its endpoints.
    pub(super) fn of(&self, service: &Service) -> Option<usize> {
        let same = |policy: &Policy| policy.guard == service.guard;
        self.policies
            .iter()
            .position(same)
            .filter(|_| is_guarded(service))
    }

    /// Looks anew who judges what, after a model or an assignment. A vantage that is new here has turned what it finds
    /// unhealthy and the fleet is told to be healthy: after a restart that is what it had turned while it was doubted.
    pub(super) fn set_scopes(
        &mut self,
        services: &Services,
        watches: &Watches,
        now: Now,
    ) -> Vec<Happened> {
        let mut happened = Vec::new();
        for at in 0..self.policies.len() {
            let mut totals: BTreeMap<Arc<str>, usize> = BTreeMap::new();
            let mut window = Duration::ZERO;
            for watch in watches.values().filter(|w| concerns(w, at, services)) {
                window = window.max(watch.guard_window());
                for ballot in &watch.ballots {
                    match totals.get_mut(&ballot.vantage) {
                        Some(total) => *total += 1,
                        None => drop(totals.insert(Arc::clone(&ballot.vantage), 1)),
                    }
                }
            }
            let Some(policy) = self.policies.get_mut(at) else {
                continue;
            };
            policy.doubts.retain(|vantage, doubt| {
                let stays = totals.contains_key(vantage);
                if !stays {
                    happened.extend(doubt.dissolve().map(|event| (at, event)));
                }
                stays
            });
            let mut new = Vec::new();
            for (vantage, total) in totals {
                let guard = &policy.guard;
                let doubt = policy
                    .doubts
                    .entry(Arc::clone(&vantage))
                    .or_insert_with(|| {
                        new.push(Arc::clone(&vantage));
                        Doubt::new(Arc::clone(&vantage), guard.clone(), now)
                    });
                doubt.set_scope(total, window, |key| {
                    watches.get(key).is_some_and(|watch| {
                        concerns(watch, at, services) && watch.ballot(&vantage).is_some()
                    })
                });
            }
            for vantage in new {
                for (key, watch) in watches.iter().filter(|(_, w)| concerns(w, at, services)) {
                    let verdict = watch.ballot(&vantage).and_then(|b| b.record.tally.verdict);
                    if let Some(after) = verdict.filter(|verdict| !verdict.is_healthy()) {
                        let turn = Turn {
                            before: None,
                            after,
                        };
                        happened
                            .extend(self.heed_at(at, *key, &vantage, turn, services, watches, now));
                    }
                }
            }
        }
        happened
    }

    /// A vantage's vote on a target was heard.
    pub(super) fn heed(
        &mut self,
        key: StateKey,
        vantage: &str,
        turn: Turn,
        services: &Services,
        watches: &Watches,
        now: Now,
    ) -> Vec<Happened> {
        if turn.before.map(Verdict::is_healthy) == Some(turn.after.is_healthy()) {
            return Vec::new();
        }
        let places = watches.get(&key).map_or(&[][..], |watch| &watch.places);
        let policies: BTreeSet<usize> = places
            .iter()
            .filter_map(|place| services.get(&place.service)?.policy)
            .collect();
        let heed = |at| self.heed_at(at, key, vantage, turn, services, watches, now);
        policies.into_iter().filter_map(heed).collect()
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one turn, and all that there is to see of it"
    )]
    fn heed_at(
        &mut self,
        at: usize,
        key: StateKey,
        vantage: &str,
        turn: Turn,
        services: &Services,
        watches: &Watches,
        now: Now,
    ) -> Option<Happened> {
        let policy = self.policies.get_mut(at)?;
        let silent = policy.silent();
        let alone = policy.doubts.len() < 2;
        let doubt = policy.doubts.get_mut(vantage)?;
        if turn.after.is_healthy() {
            return doubt.recover(&key).map(|event| (at, event));
        }
        let mut groups = BTreeSet::new();
        let mut served_as_healthy = false;
        for place in &watches.get(&key)?.places {
            let service = services.get(&place.service);
            let Some(state) = service.filter(|state| state.policy == Some(at)) else {
                continue;
            };
            if let Some((group, verdict)) = state.published_of(place.endpoint) {
                groups.insert(group.clone());
                served_as_healthy |= verdict.is_some_and(Verdict::is_healthy);
            }
        }
        // A first word is a turn where it speaks against what the fleet is told.
        if turn.before.is_none() && !served_as_healthy {
            return None;
        }
        let groups = groups.into_iter().collect();
        let event = doubt.turn(key, groups, now, |doubt| {
            !alone && another_agrees(doubt, vantage, &silent, watches)
        });
        event.map(|event| (at, event))
    }

    /// Lets time pass, and looks at the canaries.
    pub(super) fn tick(&mut self, watches: &Watches, now: Now) -> Vec<Happened> {
        let mut happened = Vec::new();
        for (at, policy) in self.policies.iter_mut().enumerate() {
            let canaries: Vec<&Watch> = policy
                .canaries
                .iter()
                .filter_map(|key| watches.get(key))
                .collect();
            if !canaries.is_empty() {
                for (vantage, doubt) in &mut policy.doubts {
                    let fails = |watch: &&Watch| {
                        let ballot = watch.ballot(vantage);
                        let verdict = ballot.and_then(|ballot| ballot.record.tally.verdict);
                        verdict.is_some_and(|verdict| !verdict.is_healthy())
                    };
                    let silent = canaries.iter().all(fails);
                    let event = doubt.canaries(canaries.len(), silent, now);
                    happened.extend(event.map(|event| (at, event)));
                }
            }
            let silent = policy.silent();
            let alone = policy.doubts.len() < 2;
            for (vantage, doubt) in &mut policy.doubts {
                let event = doubt.tick(now, |doubt| {
                    !alone && another_agrees(doubt, vantage, &silent, watches)
                });
                happened.extend(event.map(|event| (at, event)));
            }
        }
        happened
    }

    /// A vantage has withdrawn: nothing that it said is left to doubt.
    pub(super) fn withdraw(&mut self, vantage: &str) -> Vec<Happened> {
        let policies = self.policies.iter_mut().enumerate();
        policies
            .filter_map(|(at, policy)| {
                let event = policy.doubts.get_mut(vantage)?.dissolve()?;
                Some((at, event))
            })
            .collect()
    }

    /// Who abstains under a policy.
    pub(super) fn abstaining(&self, policy: Option<usize>) -> Vec<Arc<Abstention>> {
        let policy = policy.and_then(|at| self.policies.get(at));
        let doubts = policy.into_iter().flat_map(|policy| policy.doubts.values());
        doubts.filter_map(Doubt::abstention).cloned().collect()
    }

    /// Under how many policies each vantage abstains.
    pub(super) fn active(&self) -> BTreeMap<Arc<str>, usize> {
        let mut active: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (vantage, doubt) in self.policies.iter().flat_map(|policy| &policy.doubts) {
            *active.entry(Arc::clone(vantage)).or_default() +=
                usize::from(doubt.abstention().is_some());
        }
        active
    }
}

impl Policy {
    /// The vantages whose canaries are silent: they are no witnesses for others.
    fn silent(&self) -> Vec<Arc<str>> {
        let doubts = self.doubts.iter();
        doubts
            .filter(|(_, doubt)| doubt.has_silent_canaries())
            .map(|(vantage, _)| Arc::clone(vantage))
            .collect()
    }
}

/// Whether probers judge endpoints of it.
fn is_guarded(service: &Service) -> bool {
    service.check.is_some() && service.backends.iter().any(|backend| backend.by.probers)
}

/// Whether a target speaks for an endpoint of a service of this policy.
fn concerns(watch: &Watch, policy: usize, services: &Services) -> bool {
    watch.places.iter().any(|place| {
        let state = services.get(&place.service);
        state.is_some_and(|state| state.policy == Some(policy))
    })
}

/// Whether another vantage, which is no doubtful witness itself for want of its canaries, finds more than half of what
/// turned unhealthy too.
fn another_agrees(doubt: &Doubt, vantage: &str, silent: &[Arc<str>], watches: &Watches) -> bool {
    let mut failing: BTreeMap<&str, usize> = BTreeMap::new();
    let suspects = doubt.suspects();
    let needed = suspects.len() / 2 + 1;
    for watch in suspects.filter_map(|key| watches.get(key)) {
        for ballot in &watch.ballots {
            let verdict = ballot.record.tally.verdict;
            let fails = verdict.is_some_and(|verdict| !verdict.is_healthy());
            if fails
                && ballot.fresh
                && *ballot.vantage != *vantage
                && !silent.contains(&ballot.vantage)
            {
                *failing.entry(&ballot.vantage).or_default() += 1;
            }
        }
    }
    failing.values().any(|count| *count >= needed)
}
