//! The guards of all services: which share a policy, which vantages they watch, whom they doubt (semantics V5).
//!
//! In: the services and their targets, turns of votes, the time. Out: per event the policy that it concerns, and for each
//! service whose votes do not count. What doubt is, is `health::guard`'s; what canaries say, `canaries`'.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vitals_prober::tally::Verdict;
use vitals_prober::target::StateKey;

use super::ServiceState;
use super::ballots::{Turn, Watch};
use super::canaries::Canaries;
use crate::health::Now;
use crate::health::guard::{Abstention, Doubt, Event, Unanswered};
use crate::model::{Guard, Model, Name, Service};

type Services = BTreeMap<Name, ServiceState>;
type Watches = BTreeMap<StateKey, Watch>;

/// The guards of all services.
#[derive(Debug, Default)]
pub(super) struct Guards {
    policies: Vec<Policy>,
    /// Which policies have a target as a canary.
    by_canary: HashMap<StateKey, Vec<usize>>,
    /// Policies of which more has changed than their events say.
    touched: BTreeSet<usize>,
    /// Canaries that have never answered: all that are known, and those that are new.
    unanswered: BTreeSet<Unanswered>,
    newly_unanswered: Vec<Unanswered>,
}

/// Whose votes do not count for the endpoints of a service, and what else there is to say of its guard.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// They are doubted.
    pub(super) abstaining: Vec<Arc<Abstention>>,
    /// Their canaries have not been tried since the server started: nothing that is served as healthy turns by them.
    pub(super) untried: Vec<Arc<str>>,
    /// Canaries that have never answered.
    pub(super) unanswered: Vec<Unanswered>,
}

/// One policy, for all services that have it.
#[derive(Debug)]
struct Policy {
    guard: Guard,
    canaries: Canaries,
    doubts: BTreeMap<Arc<str>, Doubt>,
}

/// What a policy is about.
#[derive(Debug, Default)]
struct Scope {
    /// The longest window of its checks.
    window: Duration,
    judged: BTreeMap<Arc<str>, Judged>,
}

/// What one vantage judges under a policy.
#[derive(Debug, Default)]
struct Judged {
    total: usize,
    /// What of it the vantage finds unhealthy.
    failing: Vec<(StateKey, Verdict)>,
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
                    canaries: Canaries::default(),
                    doubts: BTreeMap::new(),
                },
            };
            let addresses = policy.guard.canaries.iter();
            policy
                .canaries
                .set(addresses.filter_map(|address| Some((*address, *canaries.get(address)?))));
            self.policies.push(policy);
        }
        self.by_canary.clear();
        for (at, policy) in self.policies.iter().enumerate() {
            for key in policy.canaries.keys() {
                self.by_canary.entry(*key).or_default().push(at);
            }
        }
        self.touched.clear();
        let policies = &self.policies;
        let is_known = |known: &Unanswered| {
            let mut all = policies.iter().flat_map(|p| &p.canaries.unanswered);
            all.any(|canary| canary == known)
        };
        self.unanswered.retain(is_known);
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
        for (at, scope) in self.scopes(services, watches).into_iter().enumerate() {
            let Some(policy) = self.policies.get_mut(at) else {
                continue;
            };
            policy.doubts.retain(|vantage, doubt| {
                let stays = scope.judged.contains_key(vantage);
                if !stays {
                    happened.extend(doubt.dissolve().map(|event| (at, event)));
                }
                stays
            });
            let mut new = Vec::new();
            for (vantage, Judged { total, failing }) in scope.judged {
                let doubt = policy.doubts.entry(Arc::clone(&vantage));
                let doubt = doubt.or_insert_with(|| {
                    new.push((Arc::clone(&vantage), failing));
                    Doubt::new(Arc::clone(&vantage), policy.guard.clone(), now)
                });
                doubt.set_scope(total, scope.window, |key| {
                    watches.get(key).is_some_and(|watch| {
                        policies_of(watch, services).contains(&at)
                            && watch.ballot(&vantage).is_some()
                    })
                });
            }
            for (vantage, failing) in new {
                for (key, after) in failing {
                    let turn = Turn {
                        before: None,
                        after,
                    };
                    happened.extend(self.heed_at(at, key, &vantage, turn, services, watches, now));
                }
                happened.extend(self.resume(at, &vantage, now));
            }
        }
        happened.extend(self.look_at_all_canaries(watches, now));
        happened
    }

    /// What each policy is about, by one look at every target: there may be as many policies as services.
    fn scopes(&self, services: &Services, watches: &Watches) -> Vec<Scope> {
        let mut scopes = Vec::new();
        scopes.resize_with(self.policies.len(), Scope::default);
        for (key, watch) in watches {
            for at in policies_of(watch, services) {
                let Some(scope) = scopes.get_mut(at) else {
                    continue;
                };
                scope.window = scope.window.max(watch.guard_window());
                for ballot in &watch.ballots {
                    let judged = match scope.judged.get_mut(&ballot.vantage) {
                        Some(judged) => judged,
                        None => scope.judged.entry(Arc::clone(&ballot.vantage)).or_default(),
                    };
                    judged.total += 1;
                    let verdict = ballot.record.tally.verdict;
                    let failing = verdict.filter(|verdict| !verdict.is_healthy());
                    judged
                        .failing
                        .extend(failing.map(|verdict| (*key, verdict)));
                }
            }
        }
        scopes
    }

    /// A doubt from before a restart, or under a policy that was edited, goes on. Only of a vantage that judges alone:
    /// with others, one may also find unhealthy what they keep in rotation because it was outvoted.
    fn resume(&mut self, at: usize, vantage: &str, now: Now) -> Option<Happened> {
        let policy = self.policies.get_mut(at)?;
        let alone = policy.doubts.len() < 2;
        let doubt = policy.doubts.get_mut(vantage).filter(|_| alone)?;
        doubt.resume(now).map(|event| (at, event))
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
        let policies = watches.get(&key).map(|watch| policies_of(watch, services));
        let heed = |at| self.heed_at(at, key, vantage, turn, services, watches, now);
        policies.into_iter().flatten().filter_map(heed).collect()
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
        let event = event.or_else(|| {
            let word = policy.canaries.word(vantage, watches);
            doubt.canaries(word, true, now)
        });
        event.map(|event| (at, event))
    }

    /// Lets time pass, and looks at the canaries.
    pub(super) fn tick(&mut self, watches: &Watches, now: Now) -> Vec<Happened> {
        let mut happened = self.look_at_all_canaries(watches, now);
        for (at, policy) in self.policies.iter_mut().enumerate() {
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

    /// A canary's vote was heard: what its policies say of the vantages, at once and not at the next tick.
    pub(super) fn heed_canary(
        &mut self,
        key: &StateKey,
        watches: &Watches,
        now: Now,
    ) -> Vec<Happened> {
        let policies = self.by_canary.get(key).cloned().unwrap_or_default();
        let look = |at: usize| self.look_at_canaries(at, watches, now);
        policies.into_iter().flat_map(look).collect()
    }

    fn look_at_all_canaries(&mut self, watches: &Watches, now: Now) -> Vec<Happened> {
        let policies = 0..self.policies.len();
        policies
            .flat_map(|at| self.look_at_canaries(at, watches, now))
            .collect()
    }

    /// Which vantages reach none of their canaries, and which have not tried them yet.
    fn look_at_canaries(&mut self, at: usize, watches: &Watches, now: Now) -> Vec<Happened> {
        let mut happened = Vec::new();
        let Some(policy) = self.policies.get_mut(at) else {
            return happened;
        };
        if policy.canaries.keys().next().is_none() {
            return happened;
        }
        for (vantage, doubt) in &mut policy.doubts {
            let word = policy.canaries.word(vantage, watches);
            let event = doubt.canaries(word, false, now);
            happened.extend(event.map(|event| (at, event)));
        }
        let before = policy.canaries.unanswered.clone();
        if policy.canaries.look(policy.doubts.keys(), watches, now) {
            self.touched.insert(at);
        }
        let after = &policy.canaries.unanswered;
        for gone in before.iter().filter(|known| !after.contains(known)) {
            self.unanswered.remove(gone);
        }
        for new in after {
            if self.unanswered.insert(new.clone()) {
                self.newly_unanswered.push(new.clone());
            }
        }
        happened
    }

    /// Policies of which more has changed than their events say; each is told once.
    pub(super) fn take_touched(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.touched)
    }

    /// Canaries that have never answered; each is told once.
    pub(super) fn take_unanswered(&mut self) -> Vec<Unanswered> {
        std::mem::take(&mut self.newly_unanswered)
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

    /// What a policy makes of votes.
    pub(super) fn doubts(&self, policy: Option<usize>) -> Doubts {
        let Some(policy) = policy.and_then(|at| self.policies.get(at)) else {
            return Doubts::default();
        };
        let abstaining = policy.doubts.values().filter_map(Doubt::abstention);
        Doubts {
            abstaining: abstaining.cloned().collect(),
            untried: policy.canaries.untried.clone(),
            unanswered: policy.canaries.unanswered.clone(),
        }
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

/// The policies of the services that a target speaks for, each once.
fn policies_of(watch: &Watch, services: &Services) -> BTreeSet<usize> {
    let places = watch.places.iter();
    places
        .filter_map(|place| services.get(&place.service)?.policy)
        .collect()
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
