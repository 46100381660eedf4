//! What goes out of the registry, and into it once: the records that outlive the process, and what came of a step.
//!
//! Here are only their forms. How they are stored is `store`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use vitals_prober::outcome::Reason;
use vitals_prober::tally::{TallyState, Verdict};
use vitals_prober::target::StateKey;

use crate::health::guard::{Event, Unanswered};
use crate::health::{Pool, Rerouting, Transition};
use crate::model::Name;

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
    pub reason: Option<Arc<Reason>>,
    /// Whether no probe has passed since the target came; only of interest for canaries (semantics V5).
    pub never_passed: bool,
}

/// The published status of an endpoint, as it outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRecord {
    /// The verdict that was published last.
    pub verdict: Verdict,
    /// Since when.
    pub since: SystemTime,
    /// What the deciding probe met.
    pub reason: Option<Arc<Reason>>,
    /// The state key that decided; `None` where no check did.
    pub key: Option<StateKey>,
}

/// Where the traffic of a service goes, as it outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// The pool that takes it; without failover backends, the primaries.
    pub active: Pool,
    /// Since when the service stands as it does.
    pub since: SystemTime,
}

/// What the store remembers when the server starts.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Targets by state key.
    pub targets: BTreeMap<StateKey, TargetRecord>,
    /// Endpoints by service and address.
    pub endpoints: BTreeMap<EndpointKey, EndpointRecord>,
    /// Services by name.
    pub services: BTreeMap<Name, ServiceRecord>,
}

/// A change for the store; `None` deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A target's record.
    Target(StateKey, Option<TargetRecord>),
    /// An endpoint's record.
    Endpoint(EndpointKey, Option<EndpointRecord>),
    /// A service's record.
    Service(Name, Option<ServiceRecord>),
}

/// What came of a step.
#[derive(Debug, Default)]
pub struct Update {
    /// The services of which the fleet may be told something else than before.
    pub services: BTreeSet<Name>,
    /// How many endpoints were evaluated, each as often as it was.
    pub evaluated: usize,
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
    /// How many endpoints of a service are pinned, where that has changed.
    pub pinned_now: Vec<(Name, usize)>,
    /// Vantages that start or end to abstain (semantics V5).
    pub guards: Vec<Event>,
    /// Canaries that were tried and have never answered (semantics V5): one event each.
    pub unanswered: Vec<Unanswered>,
    /// Services whose traffic goes elsewhere now (semantics H2, H3, H6): one event each.
    pub rerouted: Vec<Rerouting>,
}
