//! The state behind the health view: what was published, what the votes are, who is leaving.
//!
//! In: models, reports of probes, the passing of time, once what the store remembers. Out: targets for the engine, and
//! per step an [`Update`]: the new views, the transitions to log, the records to store. It owns no task, reads no clock
//! and does no I/O; the publisher drives it.
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
mod evaluate;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use vitals_prober::check::HealthCheck;
use vitals_prober::engine::Report;
use vitals_prober::outcome::{Reason, Times};
use vitals_prober::tally::{Step, TallyState, Verdict};
use vitals_prober::target::{Pulse, StateKey};

use super::{HealthView, Now, Pool, ServiceView, Transition, VoteView, freshness};
use crate::model::{Locality, Name, ProbedBy, Service};

/// What an endpoint of a service is called in the store: the service's name and the serving address.
pub type EndpointKey = (Name, SocketAddr);

/// The state of a target that outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// Its counters.
    pub tally: TallyState,
    /// Since when its verdict stands.
    pub since: SystemTime,
    /// What the probe met that made it.
    pub reason: Option<Reason>,
}

/// The published status of an endpoint, as it outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRecord {
    /// The verdict that was published last.
    pub verdict: Verdict,
    /// Since when.
    pub since: SystemTime,
    /// What the deciding probe met.
    pub reason: Option<Reason>,
    /// The state key that decided; `None` where no check did.
    pub key: Option<StateKey>,
}

/// What the store remembers when the server starts.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Targets by state key.
    pub targets: BTreeMap<StateKey, TargetRecord>,
    /// Endpoints by service and address.
    pub endpoints: BTreeMap<EndpointKey, EndpointRecord>,
}

/// A change for the store; `None` deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A target's record.
    Target(StateKey, Option<TargetRecord>),
    /// An endpoint's record.
    Endpoint(EndpointKey, Option<EndpointRecord>),
}

/// What came of a step.
#[derive(Debug, Default)]
pub struct Update {
    /// The services whose view was made anew.
    pub services: BTreeSet<Name>,
    /// Detailed statuses that changed.
    pub transitions: Vec<Transition>,
    /// What is to be stored.
    pub changes: Vec<Change>,
    /// Services that serve unjudged endpoints because none is known to be healthy (design 5.3): one event each.
    pub benefit_of_doubt: Vec<Name>,
    /// Services whose endpoints are now pinned, with how many (semantics V3): one event each.
    pub pinned: Vec<(Name, usize)>,
    /// Services of which no endpoint is pinned any more: one event each.
    pub unpinned: Vec<Name>,
}

/// The longest that a service's load assignment is held (design 5.3).
const MAX_HOLD: Duration = Duration::from_secs(5);

/// The name under which the embedded prober votes.
pub const EMBEDDED_VANTAGE: &str = "embedded";

/// The state of one planned target.
#[derive(Debug)]
struct Watch {
    check: Arc<HealthCheck>,
    services: BTreeSet<Name>,
    pulse: Arc<Pulse>,
    /// From when on silence counts, before the first judged probe: the target came, or the server started.
    waiting_since: SystemTime,
    fresh: bool,
    record: TargetRecord,
    times: Option<Times>,
}

/// The state of one service.
#[derive(Debug)]
struct ServiceState {
    service: Arc<Service>,
    keys: BTreeMap<SocketAddr, StateKey>,
    published: BTreeMap<SocketAddr, EndpointRecord>,
    leaving: BTreeMap<SocketAddr, Leaving>,
    /// Until when its load assignment may be held; `None` once it was released.
    hold_until: Option<Instant>,
    doubt_reported: bool,
    pinned: usize,
    view: Arc<ServiceView>,
}

/// An endpoint that was removed from the configuration and is draining.
#[derive(Clone, Debug)]
struct Leaving {
    until: Instant,
    group: Name,
    locality: Locality,
    pool: Pool,
    by: Option<ProbedBy>,
    probe_address: Option<SocketAddr>,
    weight: Option<u32>,
}

/// The state behind the health view.
#[derive(Debug)]
pub struct Registry {
    vantage: Arc<str>,
    services: BTreeMap<Name, ServiceState>,
    watches: BTreeMap<StateKey, Watch>,
    touched: BTreeSet<Name>,
    changes: Vec<Change>,
    /// What the store remembered and no model has claimed yet.
    remembered: Records,
}

impl Registry {
    /// A registry that knows what the store remembers, and no model yet.
    #[must_use]
    pub fn new(remembered: Records) -> Self {
        Self {
            vantage: EMBEDDED_VANTAGE.into(),
            services: BTreeMap::new(),
            watches: BTreeMap::new(),
            touched: BTreeSet::new(),
            changes: Vec::new(),
            remembered,
        }
    }
    /// Takes a probe's report. One on a target that is gone is without effect.
    pub fn on_report(&mut self, report: Report) {
        let Some(watch) = self.watches.get_mut(&report.key) else {
            return;
        };
        watch.record.tally = report.tally;
        if let Step::Judged { from, to } = report.step {
            if from != Some(to) {
                watch.record.since = report.at;
            }
            watch.record.reason = Some(report.outcome.reason);
            watch.times = Some(report.outcome.times);
            watch.fresh = true;
        }
        self.changes
            .push(Change::Target(report.key, Some(watch.record.clone())));
        self.touched.extend(watch.services.iter().cloned());
    }

    /// Lets time pass: votes go stale, holds and drainings end.
    pub fn tick(&mut self, now: Now) {
        for watch in self.watches.values_mut() {
            let last = watch
                .pulse
                .last()
                .map_or(watch.waiting_since, |(at, _)| at.max(watch.waiting_since));
            // A wall clock that was set back makes the last probe lie ahead: that is no silence.
            let silence = now.wall.duration_since(last).unwrap_or_default();
            let fresh = silence <= freshness(watch.check.interval());
            if fresh != watch.fresh {
                watch.fresh = fresh;
                self.touched.extend(watch.services.iter().cloned());
            }
        }
        for (name, state) in &self.services {
            let hold_is_over = state.hold_until.is_some_and(|until| until <= now.mono);
            if hold_is_over
                || state
                    .leaving
                    .values()
                    .any(|leaving| leaving.until <= now.mono)
            {
                self.touched.insert(name.clone());
            }
        }
    }

    /// When [`Registry::tick`] has something to do besides looking for stale votes.
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
        !self.touched.is_empty() || !self.changes.is_empty()
    }

    /// Makes the views of all touched services anew and says what came of it.
    pub fn update(&mut self, now: Now) -> Update {
        let mut update = Update {
            services: std::mem::take(&mut self.touched),
            ..Update::default()
        };
        let (watches, vantage) = (&self.watches, &self.vantage);
        let votes = |key: &StateKey| watches.get(key).map(|watch| watch.vote(vantage));
        let times = |key: &StateKey| watches.get(key).and_then(|watch| watch.times);
        for name in &update.services {
            if let Some(state) = self.services.get_mut(name) {
                let mut evaluation = state.evaluate(votes, times, now);
                self.changes.append(&mut evaluation.changes);
                update.transitions.append(&mut evaluation.transitions);
                if evaluation.benefit_of_doubt {
                    update.benefit_of_doubt.push(name.clone());
                }
                if evaluation.unpinned {
                    update.unpinned.push(name.clone());
                }
                if evaluation.newly_pinned > 0 {
                    update.pinned.push((name.clone(), evaluation.newly_pinned));
                }
            }
        }
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
}

impl Watch {
    fn vote(&self, vantage: &Arc<str>) -> VoteView {
        let verdict = self.record.tally.verdict;
        VoteView {
            vantage: Arc::clone(vantage),
            verdict,
            reason: self.record.reason.clone(),
            since: verdict.map(|_| self.record.since),
            opposing: self.record.tally.opposing,
            fresh: self.fresh,
            pulse: Arc::clone(&self.pulse),
        }
    }
}
