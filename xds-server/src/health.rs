//! From verdicts to what the fleet is told: the types of the answer.
//!
//! In: the model, the reports of probers, what the store remembers. Out: a [`HealthView`], immutable, one value per
//! service behind an `Arc`, which `resources` renders and `admin` shows. The work is done in `registry` (state) and
//! `quorum`, `guard` and `failover` (one decision each). Everything here is pure: time is an argument, and what follows
//! from a change (logs, store, snapshots) is returned, not done.
//!
//! ```text
//! reports ─► votes ─► guard: whom is believed ─► quorum: status of each endpoint ─► failover: which of them take traffic
//! ```

pub mod failover;
pub mod guard;
pub mod quorum;
pub mod registry;
pub mod rule;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use vitals_prober::outcome::{Reason, Times};
use vitals_prober::tally::Verdict;
use vitals_prober::target::Pulse;

use self::failover::{Pools, Why};
use self::guard::{Abstention, Unanswered};
pub use self::rule::Rule;
use crate::model::{Backend, EndpointGroup, Name, ProbedBy, Service};

/// The two clocks, read together at the edge.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For deadlines.
    pub mono: Instant,
    /// For what people read and what outlives the process.
    pub wall: SystemTime,
}

/// What EDS says of an endpoint (semantics H1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdsStatus {
    /// New requests go there.
    Healthy,
    /// It answers wrongly.
    Unhealthy,
    /// It is not reached, or is silent.
    Timeout,
    /// It finishes what it has.
    Draining,
}

impl EdsStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [
        Self::Healthy,
        Self::Unhealthy,
        Self::Timeout,
        Self::Draining,
    ];

    /// The name in logs, metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Unhealthy => "UNHEALTHY",
            Self::Timeout => "TIMEOUT",
            Self::Draining => "DRAINING",
        }
    }
}

impl From<Verdict> for EdsStatus {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Healthy => Self::Healthy,
            Verdict::Unhealthy => Self::Unhealthy,
            Verdict::Timeout => Self::Timeout,
        }
    }
}

/// What people are told of an endpoint (semantics S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DetailedStatus {
    /// It answers as the check asks.
    Healthy,
    /// It answers wrongly.
    Unhealthy,
    /// It is not reached, or is silent.
    Timeout,
    /// Set to DRAINING, without weight, or removed a moment ago.
    Draining,
    /// Not judged yet.
    Probing,
    /// Only Envoys check it, each for itself: this server knows nothing of it.
    Unknown,
    /// Its service has no check.
    Disabled,
    /// Its machine is stopped.
    Stopped,
}

impl DetailedStatus {
    /// The name in logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Unhealthy => "UNHEALTHY",
            Self::Timeout => "TIMEOUT",
            Self::Draining => "DRAINING",
            Self::Probing => "PROBING",
            Self::Unknown => "UNKNOWN",
            Self::Disabled => "DISABLED",
            Self::Stopped => "STOPPED",
        }
    }
}

impl From<Verdict> for DetailedStatus {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Healthy => Self::Healthy,
            Verdict::Unhealthy => Self::Unhealthy,
            Verdict::Timeout => Self::Timeout,
        }
    }
}

/// The health of all services.
#[derive(Clone, Debug, Default)]
pub struct HealthView {
    /// By name.
    pub services: BTreeMap<Name, Arc<ServiceView>>,
}

/// One of the two pools of a service with failover backends; without them all endpoints are primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pool {
    /// Takes traffic while enough of it is healthy.
    #[default]
    Primary,
    /// Takes traffic otherwise (semantics H2).
    Failover,
}

impl Pool {
    /// The pool of a backend's endpoints.
    #[must_use]
    pub fn of(backend: &Backend) -> Self {
        if backend.failover {
            Self::Failover
        } else {
            Self::Primary
        }
    }

    /// The name in logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "PRIMARY",
            Self::Failover => "FAILOVER",
        }
    }
}

/// Which endpoints of a service take traffic, beyond the status of each (semantics H2, H3, H5, H6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The pool that takes traffic.
    pub active: Pool,
    /// Whether all endpoints share the traffic because none is healthy: FAIL_OPEN, or the last resort over both pools.
    pub open: bool,
}

/// The health of one service.
#[derive(Clone, Debug, Default)]
pub struct ServiceView {
    /// Whether its load assignment may not be answered yet (design 5.3).
    pub held: bool,
    /// Which endpoints take traffic.
    pub routing: Routing,
    /// Why.
    pub why: Why,
    /// Since when its status and the kind of `why` are so; `None` before that was decided for the first time.
    pub since: Option<SystemTime>,
    /// How its pools stand.
    pub pools: Pools,
    /// How many statuses stand without enough fresh votes (semantics V3).
    pub pinned: usize,
    /// The vantages that abstain from voting on its endpoints (semantics V5).
    pub abstaining: Vec<Arc<Abstention>>,
    /// Whether endpoints that drain or have no weight are not published: an Envoy that is told of no healthy endpoint and
    /// of no wish to refuse would send requests there (semantics H6; measured).
    pub leaves_out_draining: bool,
    /// Canaries of its guard that were tried and have never answered (semantics V5).
    pub unanswered: Vec<Unanswered>,
    /// Its endpoints in the order of the configuration, then those that are leaving. One that nothing was said of is the
    /// same value as in the view before.
    pub endpoints: Vec<Arc<EndpointView>>,
}

impl ServiceView {
    /// The routing as Envoys follow it: where the first pool has no healthy endpoint they use the other by themselves. That
    /// is so while primaries are not judged yet, which is no reason to fail over (semantics H2) but leaves them nothing to
    /// serve.
    #[must_use]
    pub fn followed(&self) -> Routing {
        let Routing { active, open } = self.routing;
        let other = match active {
            Pool::Primary => Pool::Failover,
            Pool::Failover => Pool::Primary,
        };
        let healthy = |pool| self.pools.of(pool).healthy;
        let spills = !open && healthy(active) == 0 && healthy(other) > 0;
        Routing {
            active: if spills { other } else { active },
            open,
        }
    }

    /// What [`ServiceView::leaves_out_draining`] has to be, after its routing and its endpoints.
    #[must_use]
    pub fn has_to_leave_out_draining(&self, service: &Service) -> bool {
        let none_healthy = || {
            let mut statuses = self.endpoints.iter().map(|endpoint| endpoint.status);
            statuses.all(|status| status != Some(EdsStatus::Healthy))
        };
        self.routing.open || (!service.refuses_when_all_unhealthy() && none_healthy())
    }

    /// What EDS says of one of its endpoints; `None` where it is omitted.
    #[must_use]
    pub fn told_of(&self, endpoint: &EndpointView) -> Option<EdsStatus> {
        let drains = endpoint.status == Some(EdsStatus::Draining) || endpoint.weight.is_none();
        endpoint
            .status
            .filter(|_| !(self.leaves_out_draining && drains))
    }

    /// What people are told of it as a whole (semantics S5). HEALTHY: an endpoint is; UNHEALTHY: none is; PROBING: none is
    /// known to be, and some are not judged; DRAINING: none takes new requests; DISABLED: there is no check; UNKNOWN:
    /// there is no endpoint, or only Envoys check them.
    #[must_use]
    pub fn status(&self) -> DetailedStatus {
        for uniform in [DetailedStatus::Unknown, DetailedStatus::Disabled] {
            // S5: also of none.
            if self.endpoints.iter().all(|e| e.detailed == uniform) {
                return uniform;
            }
        }
        let pools = &self.pools;
        match (pools.healthy(), pools.unjudged(), pools.counted()) {
            (1.., ..) if !self.held => DetailedStatus::Healthy,
            (_, _, 0) => DetailedStatus::Draining,
            (0, 0, _) => DetailedStatus::Unhealthy,
            _ => DetailedStatus::Probing,
        }
    }
}

/// The health of one endpoint of one service.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// The group that it belongs to, which says where it is.
    pub group: Arc<EndpointGroup>,
    /// Where traffic goes.
    pub address: SocketAddr,
    /// The pool that it belongs to.
    pub pool: Pool,
    /// Who checks it; `None`: nobody.
    pub by: Option<ProbedBy>,
    /// Where it is checked (semantics P3); `None` where it is not.
    pub probe_address: Option<SocketAddr>,
    /// Its share of traffic, `capacity` included; `None` is none.
    pub weight: Option<u32>,
    /// What EDS says, where the service as a whole does not leave it out ([`ServiceView::told_of`]); `None` is omitted.
    pub status: Option<EdsStatus>,
    /// What people are told.
    pub detailed: DetailedStatus,
    /// What the deciding probe met; `None` where no probe decided.
    pub reason: Option<Arc<Reason>>,
    /// Since when it has its detailed status.
    pub since: SystemTime,
    /// Why it has it.
    pub rule: Rule,
    /// Since when the status stands without enough fresh votes (semantics V3); `None`: it does not.
    pub pinned: Option<SystemTime>,
    /// What each vantage says.
    pub votes: Box<[VoteView]>,
}

impl EndpointView {
    /// Whether new requests go there, as far as this server decides it, while its service's routing is
    /// [followed](ServiceView::followed) like this.
    #[must_use]
    pub fn takes_traffic(&self, routing: Routing) -> bool {
        match self.status {
            Some(EdsStatus::Healthy) => routing.open || self.pool == routing.active,
            Some(EdsStatus::Unhealthy | EdsStatus::Timeout) => routing.open,
            Some(EdsStatus::Draining) | None => false,
        }
    }
}

/// One vantage's vote on an endpoint.
#[derive(Clone, Debug)]
pub struct VoteView {
    /// Who votes.
    pub vantage: Arc<str>,
    /// The verdict; `None` is not judged yet.
    pub verdict: Option<Verdict>,
    /// What the probe that made the verdict met.
    pub reason: Option<Arc<Reason>>,
    /// Since when it stands; `None` while there is none.
    pub since: Option<SystemTime>,
    /// Consecutive probes that speak against the verdict.
    pub opposing: u8,
    /// When this server heard of the turn that made it.
    pub turned: Option<Instant>,
    /// Whether it is fresh (semantics V1); one that is not does not count.
    pub fresh: bool,
    /// That the vantage is doubted (semantics V5); then it does not count either.
    pub abstains: Option<Arc<Abstention>>,
    /// The last signs of life of its probing.
    pub pulse: Arc<Pulse>,
}

/// An endpoint's detailed status has changed (semantics S7).
#[derive(Clone, Debug)]
pub struct Transition {
    /// The service.
    pub service: Name,
    /// The group.
    pub group: Name,
    /// The endpoint.
    pub address: SocketAddr,
    /// The status before.
    pub from: DetailedStatus,
    /// The status now.
    pub to: DetailedStatus,
    /// The deciding probe, where one decided.
    pub reason: Option<Arc<Reason>>,
    /// How long its steps took.
    pub times: Option<Times>,
    /// The vantage that made it.
    pub vantage: Option<Arc<str>>,
    /// Why.
    pub rule: Rule,
}

/// The routing of a service has changed, or requests to it are refused now, or no longer (semantics H2, H3, H5, H6).
#[derive(Clone, Debug, PartialEq)]
pub struct Rerouting {
    /// The service.
    pub service: Name,
    /// What it was.
    pub from: Routing,
    /// What it is.
    pub to: Routing,
    /// Why it was so.
    pub was: Why,
    /// Why.
    pub why: Why,
}

impl Rerouting {
    /// What is over by it, for people; `None` where that needs no words.
    #[must_use]
    pub fn ending(&self) -> Option<&'static str> {
        self.was.ending().filter(|_| !self.was.is_like(&self.why))
    }
}

/// Semantics V1: how long a vote is fresh after the last judged probe.
#[must_use]
pub fn freshness(interval: Duration) -> Duration {
    (interval * 3).max(Duration::from_secs(15))
}

#[cfg(test)]
mod tests;
