//! A new model: what its state keys still stand for is kept, what is new is seeded, what is gone is let go of.
//!
//! In: the model, what is known of the one before, once what the store remembers. Out: the set of targets for the
//! engine. Where a new target starts (semantics S2, V8) is decided here and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vitals_prober::tally::{Tally, Verdict};
use vitals_prober::target::{StateKey, Target};

use super::{Change, Leaving, MAX_HOLD, Records, Registry, ServiceState, TargetRecord, Watch};
use crate::health::Now;
use crate::model::{AdminState, Model, Service};
use crate::plan::Plan;

impl Registry {
    /// Takes a model: keeps what its state keys still stand for, seeds what is new, lets go of what is gone. Gives the
    /// whole set of targets for the engine. Every service is touched.
    pub fn set_model(&mut self, model: &Model, now: Now) -> Vec<Target> {
        let mut plan = Plan::new(model);
        let remembered = std::mem::take(&mut self.remembered);
        self.drop_missing_services(model);
        for service in model.services.values() {
            let keys = plan.keys.remove(&service.name).unwrap_or_default();
            self.set_service(service, keys, &remembered, now);
        }
        let targets = self.set_watches(&plan, &remembered, now);
        self.forget_unclaimed(remembered);
        self.touched = model.services.keys().cloned().collect();
        targets
    }

    fn drop_missing_services(&mut self, model: &Model) {
        let changes = &mut self.changes;
        self.services.retain(|name, state| {
            let stays = model.services.contains_key(name);
            if !stays {
                let addresses = state.published.keys();
                changes.extend(
                    addresses.map(|address| Change::Endpoint((name.clone(), *address), None)),
                );
            }
            stays
        });
    }

    fn set_service(
        &mut self,
        service: &Arc<Service>,
        keys: BTreeMap<SocketAddr, StateKey>,
        remembered: &Records,
        now: Now,
    ) {
        let state = self
            .services
            .entry(service.name.clone())
            .or_insert_with(|| ServiceState {
                service: Arc::clone(service),
                keys: BTreeMap::new(),
                published: BTreeMap::new(),
                leaving: BTreeMap::new(),
                hold_until: None,
                doubt_reported: false,
                pinned: 0,
                view: Arc::default(),
            });
        state.announce_removals(service, now);
        state.service = Arc::clone(service);
        let probed_before = std::mem::replace(&mut state.keys, keys);
        let mut present = BTreeSet::new();
        for endpoint in service
            .backends
            .iter()
            .flat_map(|backend| &backend.group.endpoints)
        {
            state.leaving.remove(&endpoint.address);
            if endpoint.state == AdminState::Stopped {
                // What a machine was before it was stopped says nothing of it when it runs again.
                continue;
            }
            present.insert(endpoint.address);
            if let Some(record) = remembered
                .endpoints
                .get(&(service.name.clone(), endpoint.address))
            {
                state
                    .published
                    .entry(endpoint.address)
                    .or_insert_with(|| record.clone());
            }
        }
        let (name, changes, leaving) = (&service.name, &mut self.changes, &state.leaving);
        state.published.retain(|address, _| {
            // What is draining keeps its status, for the case that it comes back.
            let stays = present.contains(address) || leaving.contains_key(address);
            if !stays {
                changes.push(Change::Endpoint((name.clone(), *address), None));
            }
            stays
        });
        // Design 5.3, for a new service and for one of which no endpoint is left that was ever heard of.
        let heard_of =
            |address| probed_before.contains_key(address) || state.published.contains_key(address);
        if let Some(named) = &service.check
            && !present.iter().any(heard_of)
        {
            state.hold_until =
                Some(now.mono + (named.check.timeout() + Duration::from_secs(1)).min(MAX_HOLD));
        }
    }

    /// Watches what is planned. A key that is not watched yet starts where the store remembers it, else from the status
    /// that its endpoints had under another check (semantics V8), else from nothing (S2).
    fn set_watches(&mut self, plan: &Plan, remembered: &Records, now: Now) -> Vec<Target> {
        let mut before = std::mem::take(&mut self.watches);
        let previous = self.published_by_key();
        let mut targets = Vec::with_capacity(plan.targets.len());
        for (&key, planned) in &plan.targets {
            let watch = before.remove(&key).unwrap_or_else(|| {
                let record =
                    remembered
                        .targets
                        .get(&key)
                        .cloned()
                        .unwrap_or_else(|| TargetRecord {
                            tally: previous
                                .get(&key)
                                .copied()
                                .map_or_else(Tally::new, Tally::with_previous)
                                .state(),
                            since: now.wall,
                            reason: None,
                        });
                Watch {
                    check: Arc::clone(&planned.check),
                    services: BTreeSet::new(),
                    pulse: Arc::default(),
                    waiting_since: now.wall,
                    fresh: true,
                    record,
                    times: None,
                }
            });
            targets.push(Target {
                key,
                address: planned.address,
                names: planned.names.clone(),
                check: Arc::clone(&planned.check),
                seed: Tally::restore(watch.record.tally),
                pulse: Arc::clone(&watch.pulse),
            });
            self.watches.insert(
                key,
                Watch {
                    services: planned.services.clone(),
                    ..watch
                },
            );
        }
        self.changes
            .extend(before.into_keys().map(|key| Change::Target(key, None)));
        targets
    }

    /// By key, what its endpoints were published as. Where services disagree, HEALTHY wins: it then takes the threshold to
    /// take the endpoint out.
    fn published_by_key(&self) -> HashMap<StateKey, Verdict> {
        let mut verdicts: HashMap<StateKey, Verdict> = HashMap::new();
        for state in self.services.values() {
            for (address, key) in &state.keys {
                if let Some(record) = state.published.get(address) {
                    let verdict = verdicts.entry(*key).or_insert(record.verdict);
                    *verdict = record.verdict.min(*verdict);
                }
            }
        }
        verdicts
    }

    /// Deletes from the store what the first model has no use for.
    fn forget_unclaimed(&mut self, remembered: Records) {
        let targets = remembered
            .targets
            .into_keys()
            .filter(|key| !self.watches.contains_key(key));
        self.changes
            .extend(targets.map(|key| Change::Target(key, None)));
        let services = &self.services;
        let endpoints = remembered.endpoints.into_keys().filter(|(name, address)| {
            !services
                .get(name)
                .is_some_and(|state| state.published.contains_key(address))
        });
        self.changes
            .extend(endpoints.map(|key| Change::Endpoint(key, None)));
    }
}

impl ServiceState {
    /// Design 5.6: an endpoint that the new service no longer has is first DRAINING.
    fn announce_removals(&mut self, service: &Service, now: Now) {
        if service.connection_draining.is_zero() {
            return;
        }
        let stays: BTreeSet<SocketAddr> = service.addresses().collect();
        for endpoint in self
            .view
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.status.is_some())
        {
            if !stays.contains(&endpoint.address) {
                self.leaving
                    .entry(endpoint.address)
                    .or_insert_with(|| Leaving {
                        until: now.mono + service.connection_draining,
                        group: endpoint.group.clone(),
                        locality: endpoint.locality.clone(),
                        pool: endpoint.pool,
                        by: endpoint.by,
                        probe_address: endpoint.probe_address,
                        weight: endpoint.weight,
                    });
            }
        }
    }
}
