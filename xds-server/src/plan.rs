//! Who is probed, for whom: the model's endpoints as targets (semantics V6).
//!
//! In: a [`Model`]. Out: a [`Plan`]: every state key once, with the services that it speaks for, and for every endpoint
//! of every service its key. Services that ask the same of the same address share one state and are probed once.
//! Pure. Which vantage probes a target is not decided yet: there is one, the embedded prober.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The key of every probed endpoint, by service and serving address.
    pub keys: BTreeMap<Name, BTreeMap<SocketAddr, StateKey>>,
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
    /// The services whose endpoints it speaks for.
    pub services: BTreeSet<Name>,
}

impl Plan {
    /// The plan of a model. Endpoints of stopped machines are not probed (semantics S6).
    #[must_use]
    pub fn new(model: &Model) -> Self {
        let mut plan = Self::default();
        for service in model.services.values() {
            let keys = plan.keys.entry(service.name.clone()).or_default();
            let Some(named) = &service.check else {
                continue;
            };
            let check = &named.check;
            for endpoint in service
                .backends
                .iter()
                .flat_map(|backend| &backend.group.endpoints)
            {
                if endpoint.state == AdminState::Stopped {
                    continue;
                }
                let address = endpoint.probe_address(check);
                let names = Names::new(check, None, address);
                let key = StateKey::new(address, &names, check);
                keys.insert(endpoint.address, key);
                let target = plan.targets.entry(key).or_insert_with(|| PlannedTarget {
                    address,
                    names,
                    check: Arc::clone(check),
                    services: BTreeSet::new(),
                });
                target.services.insert(service.name.clone());
            }
        }
        plan
    }
}
