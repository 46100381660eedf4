//! The state behind the health view: what was published, what the votes are, who is leaving.
//!
//! In: models, reports of probes, the passing of time, once what the store remembers. Out: targets for the engine, and
//! per step an [`Update`]: the new views, the transitions to log, the records to store. It owns no task, reads no clock
//! and does no I/O; the publisher drives it.
//!
//! What a step costs follows from what has happened, not from how many endpoints there are: reports and stale votes mark
//! the endpoints that they speak of (`Scope`), and only those are evaluated again. All endpoints of a service are
//! evaluated when its configuration changes, and all that were never judged when what those are served as changes.
//!
//! An endpoint's life (design 5.3, 5.6; semantics S1–S6, V8, H1):
//!
//! ```text
//!   added ──► PROBING ──first verdict──► HEALTHY ◄──votes──► UNHEALTHY / TIMEOUT
//!                │ (no healthy one in the service: served)        │
//!                └──────────── removed ◄──────────────────────────┘
//!                                 │ connectionDraining > 0
//!                                 ▼
//!                             DRAINING ──► gone
//! ```

mod adopt;
mod ballots;
mod canaries;
mod evaluate;
mod guards;
mod member;
mod reasons;
mod records;
mod steps;
#[cfg(test)]
mod tests;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use vitals_prober::engine::Report;
use vitals_prober::target::StateKey;

use self::ballots::{Ballot, Watch};
use self::guards::{Guards, Happened};
use self::reasons::Reasons;
pub use self::records::{
    Change, EndpointKey, EndpointRecord, Records, ServiceRecord, TargetRecord, Update,
};
use super::failover::Pools;
use super::guard::Event;
use super::{HealthView, Now, Pool, ServiceView};
use crate::model::{EndpointGroup, Name, ProbedBy, Service};
use crate::plan::Place;

/// The longest that a service's load assignment is held (design 5.3).
const MAX_HOLD: Duration = Duration::from_secs(5);

/// The name under which the embedded prober votes.
pub const EMBEDDED_VANTAGE: &str = "embedded";

/// The state of one service.
#[derive(Debug)]
struct ServiceState {
    service: Arc<Service>,
    /// Its endpoints, in the order of the configuration.
    members: Vec<Member>,
    leaving: BTreeMap<SocketAddr, Leaving>,
    counts: Counts,
    /// Which guard watches who judges it; `None`: no prober does.
    policy: Option<usize>,
    /// The pool that takes traffic, and whether that has been decided since the server started.
    active: Pool,
    routed: bool,
    /// How it stood before the server started, until it is decided.
    remembered: Option<ServiceRecord>,
    /// Until when its load assignment may be held; `None` once it was released.
    hold_until: Option<Instant>,
    doubt_reported: bool,
    /// First the members, in their order, then who is leaving.
    view: Arc<ServiceView>,
    /// Whether the view shows those that were never judged as waiting for others (design 5.3), not as served.
    others_first: bool,
}

/// The state of one endpoint of a service.
#[derive(Debug)]
struct Member {
    /// Which of the service's backends it belongs to.
    backend: usize,
    /// Which of the group's endpoints it is.
    endpoint: usize,
    /// Whose votes count for it; `None` is not probed.
    key: Option<StateKey>,
    /// What was published of it last; `None` until it is judged.
    published: Option<EndpointRecord>,
    /// What was published before that, while it was healthy, and when it ceased to be (semantics V5).
    before_turn: Option<Box<(EndpointRecord, Instant)>>,
}

/// How many of a service's members are what.
#[derive(Debug, Default)]
struct Counts {
    /// Those that may get new requests.
    pools: Pools,
    /// Those whose status stands without enough fresh votes (semantics V3).
    pinned: usize,
}

/// An endpoint that was removed from the configuration and is draining.
#[derive(Clone, Debug)]
struct Leaving {
    until: Instant,
    group: Arc<EndpointGroup>,
    pool: Pool,
    by: Option<ProbedBy>,
    probe_address: Option<SocketAddr>,
    weight: Option<u32>,
    /// Kept for the case that it comes back.
    published: Option<EndpointRecord>,
}

/// What of a service is to be evaluated again.
#[derive(Debug)]
enum Scope {
    /// Everything: its configuration is new.
    All,
    /// These of its members, and what holds for the service as a whole.
    Members(BTreeSet<usize>),
}

impl Default for Scope {
    fn default() -> Self {
        Self::Members(BTreeSet::new())
    }
}

impl Scope {
    fn add(&mut self, member: usize) {
        match self {
            Self::All => {}
            Self::Members(members) => drop(members.insert(member)),
        }
    }

    /// The members in it, of so many.
    fn members(&self, count: usize) -> impl Iterator<Item = usize> {
        let (all, some) = match self {
            Self::All => (0..count, None),
            Self::Members(members) => (0..0, Some(members)),
        };
        all.chain(some.into_iter().flatten().copied())
    }

    fn has(&self, member: usize) -> bool {
        match self {
            Self::All => true,
            Self::Members(members) => members.contains(&member),
        }
    }
}

/// The state behind the health view.
#[derive(Debug)]
pub struct Registry {
    /// Who judges targets, but for those that are assigned to others.
    vantages: Arc<[Arc<str>]>,
    assigned: BTreeMap<StateKey, Arc<[Arc<str>]>>,
    services: BTreeMap<Name, ServiceState>,
    watches: BTreeMap<StateKey, Watch>,
    guards: Guards,
    touched: BTreeMap<Name, Scope>,
    changes: Vec<Change>,
    guard_events: Vec<Event>,
    reasons: Reasons,
    /// What the store remembered and no model has claimed yet.
    remembered: Records,
}

impl Registry {
    /// A registry that knows what the store remembers, and no model yet. The embedded prober is assigned to everything.
    #[must_use]
    pub fn new(mut remembered: Records) -> Self {
        let mut reasons = Reasons::default();
        let of_targets = remembered.targets.values_mut().map(|r| &mut r.reason);
        let of_endpoints = remembered.endpoints.values_mut().map(|r| &mut r.reason);
        of_targets
            .chain(of_endpoints)
            .for_each(|reason| reasons.share(reason));
        Self {
            vantages: [EMBEDDED_VANTAGE.into()].into(),
            assigned: BTreeMap::new(),
            services: BTreeMap::new(),
            watches: BTreeMap::new(),
            guards: Guards::default(),
            touched: BTreeMap::new(),
            changes: Vec::new(),
            guard_events: Vec::new(),
            reasons,
            remembered,
        }
    }

    /// Takes a probe's report, of which this server hears now. One on a target that is gone, from a vantage that is not
    /// assigned to it, or that is not newer than the last is without effect.
    pub fn on_report(&mut self, vantage: &str, report: Report, now: Now) {
        let key = report.key;
        let Some(watch) = self.watches.get_mut(&key) else {
            return;
        };
        let Some(ballot) = watch.ballot_mut(vantage) else {
            return;
        };
        let serial = ballot.serial();
        let turn = ballot.take(report, &mut self.reasons, now);
        if ballot.serial() == serial {
            return;
        }
        if vantage == EMBEDDED_VANTAGE {
            let record = ballot.record.clone();
            self.changes.push(Change::Target(key, Some(record)));
        }
        touch(&mut self.touched, &watch.places);
        if let Some(turn) = turn {
            let (services, watches) = (&self.services, &self.watches);
            let happened = self.guards.heed(key, vantage, turn, services, watches, now);
            self.happened(happened);
            let happened = self.guards.heed_canary(&key, &self.watches, now);
            self.happened(happened);
        }
    }

    /// A judged probe of a vantage elsewhere, of which this server hears now: it keeps the vote fresh. (The embedded
    /// prober's engine writes its pulses itself.)
    pub fn on_beat(&self, vantage: &str, key: &StateKey, at: SystemTime, took: Duration, now: Now) {
        let watch = self.watches.get(key);
        if let Some(ballot) = watch.and_then(|watch| watch.ballot(vantage)) {
            ballot.pulse.beat(at, now.mono, took);
        }
    }

    /// A vantage has withdrawn, and takes its votes along (semantics V1). It stays assigned.
    pub fn withdraw(&mut self, vantage: &str, now: Now) {
        for (key, watch) in &mut self.watches {
            let Some(ballot) = watch.ballot_mut(vantage) else {
                continue;
            };
            let name = Arc::clone(&ballot.vantage);
            *ballot = Ballot::empty(&name, now);
            if vantage == EMBEDDED_VANTAGE {
                self.changes.push(Change::Target(*key, None));
            }
            touch(&mut self.touched, &watch.places);
        }
        let happened = self.guards.withdraw(vantage);
        self.happened(happened);
    }

    /// Looks for votes that went stale (semantics V1), which is a look at every target, and at the guards, and does what
    /// [`Registry::expire`] does.
    pub fn tick(&mut self, now: Now) {
        for watch in self.watches.values_mut() {
            if watch.look(now) {
                touch(&mut self.touched, &watch.places);
            }
        }
        let happened = self.guards.tick(&self.watches, now);
        self.happened(happened);
        self.expire(now);
    }

    /// Whoever abstains, or does not any more, changes the count of all that share the guard.
    fn happened(&mut self, happened: Vec<Happened>) {
        let mut policies = self.guards.take_touched();
        for (policy, event) in happened {
            policies.insert(policy);
            self.guard_events.push(event);
        }
        if policies.is_empty() {
            return;
        }
        let concerned =
            |state: &ServiceState| state.policy.is_some_and(|at| policies.contains(&at));
        for (name, _) in self.services.iter().filter(|(_, state)| concerned(state)) {
            self.touched.insert(name.clone(), Scope::All);
        }
    }

    /// Ends holds and drainings whose time is over.
    pub fn expire(&mut self, now: Now) {
        for (name, state) in &self.services {
            let hold_is_over = state.hold_until.is_some_and(|until| until <= now.mono);
            if hold_is_over
                || state
                    .leaving
                    .values()
                    .any(|leaving| leaving.until <= now.mono)
            {
                self.touched.entry(name.clone()).or_default();
            }
        }
    }

    /// When [`Registry::expire`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let of_service = |state: &ServiceState| {
            state
                .leaving
                .values()
                .map(|leaving| leaving.until)
                .chain(state.hold_until)
                .min()
        };
        self.services.values().filter_map(of_service).min()
    }

    /// Whether anything has changed since the last [`Registry::update`].
    #[must_use]
    pub fn is_touched(&self) -> bool {
        !(self.touched.is_empty() && self.changes.is_empty() && self.guard_events.is_empty())
    }

    /// Evaluates what was touched and says what came of it.
    pub fn update(&mut self, now: Now) -> Update {
        let mut update = Update::default();
        let (watches, guards) = (&self.watches, &self.guards);
        for (name, scope) in std::mem::take(&mut self.touched) {
            let Some(state) = self.services.get_mut(&name) else {
                continue;
            };
            let doubts = guards.doubts(state.policy);
            let votes = |key: &StateKey| {
                let watch = watches.get(key);
                watch
                    .map(|watch| watch.votes(&doubts.abstaining))
                    .unwrap_or_default()
            };
            let times = |key: &StateKey, vantage: &str| watches.get(key)?.times(vantage);
            let mut evaluation = state.evaluate(&scope, votes, times, &doubts, now);
            self.changes.append(&mut evaluation.changes);
            update.transitions.append(&mut evaluation.transitions);
            update.evaluated += evaluation.evaluated;
            if evaluation.benefit_of_doubt {
                update.benefit_of_doubt.push(name.clone());
            }
            if evaluation.unpinned {
                update.unpinned.push(name.clone());
            }
            if evaluation.newly_pinned > 0 {
                update.pinned.push((name.clone(), evaluation.newly_pinned));
            }
            update.rerouted.extend(evaluation.rerouted);
            let pinned_now = evaluation.pinned_now.map(|pinned| (name.clone(), pinned));
            update.pinned_now.extend(pinned_now);
            if evaluation.serves_otherwise {
                update.services.insert(name);
            }
        }
        update.guards = std::mem::take(&mut self.guard_events);
        update.unanswered = self.guards.take_unanswered();
        update.changes = std::mem::take(&mut self.changes);
        update
    }

    /// The health of all services as of the last update.
    #[must_use]
    pub fn view(&self) -> HealthView {
        let views = self
            .services
            .iter()
            .map(|(name, state)| (name.clone(), Arc::clone(&state.view)));
        HealthView {
            services: views.collect(),
        }
    }

    /// Under how many guard policies each vantage abstains (semantics V5).
    #[must_use]
    pub fn abstaining(&self) -> BTreeMap<Arc<str>, usize> {
        self.guards.active()
    }
}

/// Has these endpoints evaluated again.
fn touch(touched: &mut BTreeMap<Name, Scope>, places: &[Place]) {
    for place in places {
        match touched.get_mut(&place.service) {
            Some(scope) => scope.add(place.endpoint),
            None => {
                let scope = Scope::Members([place.endpoint].into());
                touched.insert(place.service.clone(), scope);
            }
        }
    }
}
