//! Who is probed, for whom: the model's endpoints as targets (semantics V6).
//!
//! In: a [`Model`]. Out: a [`Plan`]: every state key once, with the services that it speaks for, and for every endpoint
//! of every service its key. Services that ask the same of the same address share one state and are probed once.
//! Pure. Which vantage probes a target is not decided yet: there is one, the embedded prober.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vitals_prober::check::HealthCheck;
use vitals_prober::target::{Names, StateKey};

use crate::model::{AdminState, Model, Name};

/// All that is probed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Every target once.
    pub targets: BTreeMap<StateKey, PlannedTarget>,
    /// By service, the keys of its endpoints in the order of [`Service::endpoints`](crate::model::Service::endpoints);
    /// `None` is not probed.
    pub keys: BTreeMap<Name, Vec<Option<StateKey>>>,
}

/// One target and whom it speaks for.
#[derive(Clone, Debug)]
pub struct PlannedTarget {
    /// Where the probe connects to.
    pub address: SocketAddr,
    /// What it calls the endpoint (semantics P7, P10).
    pub names: Names,
    /// What it asks.
    pub check: Arc<HealthCheck>,
    /// The endpoints that it speaks for.
    pub places: Vec<Place>,
}

/// An endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The service.
    pub service: Name,
    /// Which of its endpoints, in the order of [`Service::endpoints`](crate::model::Service::endpoints).
    pub endpoint: usize,
}

impl Plan {
    /// The plan of a model. Endpoints of stopped machines are not probed (semantics S6).
    #[must_use]
    pub fn new(model: &Model) -> Self {
        let mut plan = Self::default();
        for service in model.services.values() {
            let keys = plan.keys.entry(service.name.clone()).or_default();
            for (at, (_, endpoint)) in service.endpoints().enumerate() {
                let check = service.check.as_ref().map(|named| &named.check);
                let Some(check) = check.filter(|_| endpoint.state != AdminState::Stopped) else {
                    keys.push(None);
                    continue;
                };
                let address = endpoint.probe_address(check);
                let names = Names::new(check, None, address);
                let key = StateKey::new(address, &names, check);
                keys.push(Some(key));
                let target = plan.targets.entry(key).or_insert_with(|| PlannedTarget {
                    address,
                    names,
                    check: Arc::clone(check),
                    // Most targets speak for one.
                    places: Vec::with_capacity(1),
                });
                target.places.push(Place {
                    service: service.name.clone(),
                    endpoint: at,
                });
            }
        }
        plan
    }
}
