//! From verdicts to what the fleet is told: the types of the answer.
//!
//! In: the model, the reports of probers, what the store remembers. Out: a [`HealthView`], immutable, one value per
//! service behind an `Arc`, which `resources` renders and `admin` shows. The work is done in `registry` (state) and
//! `quorum` (one decision). Everything here is pure: time is an argument, and what follows from a change (logs, store,
//! snapshots) is returned, not done.

pub mod quorum;
pub mod registry;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use vitals_prober::outcome::{Reason, Times};
use vitals_prober::tally::Verdict;
use vitals_prober::target::Pulse;

use crate::model::{Backend, Locality, Name, ProbedBy};

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

/// Why an endpoint has the status that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Semantics V2: so many of the fresh votes are for the verdict.
    Majority {
        /// Votes for the verdict.
        votes: usize,
        /// Fresh votes.
        of: usize,
    },
    /// Semantics V3: the fresh votes are tied; the present status stays.
    Tie,
    /// Semantics V3: too few fresh votes; the present status stays.
    Pinned,
    /// Semantics V8: the present check has not judged yet, or the endpoint came back while it was draining; the status
    /// before stays.
    PreviousCheck,
    /// Design 5.3: not judged yet, and another endpoint of the service is healthy.
    AwaitingFirstSuccess,
    /// Design 5.3: not judged yet, and no endpoint of the service is known to be healthy.
    BenefitOfDoubt,
    /// Semantics H1: the service has no check.
    NoCheck,
    /// Semantics H1: `state: DRAINING`.
    AdminDraining,
    /// Semantics S6: `state: STOPPED`.
    AdminStopped,
    /// Semantics S6: weight 0, or a group without capacity.
    NoWeight,
    /// Design 5.6: removed from the configuration; leaves when `connectionDraining` is over.
    Removed,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Majority { votes, of } => write!(f, "V2 majority {votes} of {of}"),
            Self::Tie => f.write_str("V3 votes are tied, the status stays"),
            Self::Pinned => f.write_str("V3 pinned: too few fresh votes, the status stays"),
            Self::PreviousCheck => f.write_str(
                "V8 not judged yet since the check or the endpoint came: the status before stays",
            ),
            Self::AwaitingFirstSuccess => f.write_str("S2 not judged yet, others are healthy"),
            Self::BenefitOfDoubt => {
                f.write_str("S2 not judged yet and none known to be healthy: served until judged")
            }
            Self::NoCheck => f.write_str("H1 the service has no check"),
            Self::AdminDraining => f.write_str("H1 state: DRAINING"),
            Self::AdminStopped => f.write_str("S6 state: STOPPED"),
            Self::NoWeight => f.write_str("S6 weight 0"),
            Self::Removed => f.write_str("removed from the configuration, draining"),
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
}

/// Which endpoints of a service take traffic, beyond the status of each (semantics H2, H3, H5, H6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The pool that takes traffic.
    pub active: Pool,
    /// Whether all endpoints share the traffic because none is healthy: FAIL_OPEN, or the last resort over both pools.
    /// While it holds, endpoints that drain or have no weight are not published (H6).
    pub open: bool,
}

/// The health of one service.
#[derive(Clone, Debug, Default)]
pub struct ServiceView {
    /// Whether its load assignment may not be answered yet (design 5.3).
    pub held: bool,
    /// Which endpoints take traffic.
    pub routing: Routing,
    /// Its endpoints in the order of the configuration, then those that are leaving.
    pub endpoints: Vec<EndpointView>,
}

/// The health of one endpoint of one service.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// The group that it belongs to.
    pub group: Name,
    /// Where traffic goes.
    pub address: SocketAddr,
    /// Where it is.
    pub locality: Locality,
    /// The pool that it belongs to.
    pub pool: Pool,
    /// Who checks it; `None`: nobody.
    pub by: Option<ProbedBy>,
    /// Where it is checked (semantics P3); `None` where it is not.
    pub probe_address: Option<SocketAddr>,
    /// Its share of traffic, `capacity` included; `None` is none.
    pub weight: Option<u32>,
    /// What EDS says; `None` is omitted.
    pub status: Option<EdsStatus>,
    /// What people are told.
    pub detailed: DetailedStatus,
    /// What the deciding probe met; `None` where no probe decided.
    pub reason: Option<Reason>,
    /// Since when it has its detailed status.
    pub since: SystemTime,
    /// Why it has it.
    pub rule: Rule,
    /// Whether the status stands without enough fresh votes (semantics V3).
    pub pinned: bool,
    /// What each vantage says.
    pub votes: Vec<VoteView>,
}

/// One vantage's vote on an endpoint.
#[derive(Clone, Debug)]
pub struct VoteView {
    /// Who votes.
    pub vantage: Arc<str>,
    /// The verdict; `None` is not judged yet.
    pub verdict: Option<Verdict>,
    /// What the probe that made the verdict met.
    pub reason: Option<Reason>,
    /// Since when it stands; `None` while there is none.
    pub since: Option<SystemTime>,
    /// Consecutive probes that speak against the verdict.
    pub opposing: u8,
    /// Whether it counts (semantics V1).
    pub fresh: bool,
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
    pub reason: Option<Reason>,
    /// How long its steps took.
    pub times: Option<Times>,
    /// The vantage that made it.
    pub vantage: Option<Arc<str>>,
    /// Why.
    pub rule: Rule,
}

/// Semantics V1: how long a vote is fresh after the last judged probe.
#[must_use]
pub fn freshness(interval: Duration) -> Duration {
    (interval * 3).max(Duration::from_secs(15))
}
