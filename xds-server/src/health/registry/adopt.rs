//! A new model: what its state keys still stand for is kept, what is new is seeded, what is gone is let go of.
//!
//! In: the model, what is known of the one before, once what the store remembers. Out: the set of targets for the
//! engine. Where a new target starts (semantics S2, V8) is decided here and nowhere else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vitals_prober::tally::{Tally, Verdict};
use vitals_prober::target::{Names, StateKey, Target};

use super::ballots::Watch;
use super::{
    Change, Counts, EMBEDDED_VANTAGE, EndpointRecord, Leaving, MAX_HOLD, Member, Records, Registry,
    Scope, ServiceState, TargetRecord,
};
use crate::health::{Now, Pool};
use crate::model::{AdminState, Model, Name, Service};
use crate::plan::{Plan, PlannedTarget};

/// What is known of an endpoint by its address, while the members of its service are made anew.
struct Known {
    probed: bool,
    published: Option<EndpointRecord>,
    before_turn: Option<Box<(EndpointRecord, Instant)>>,
}

impl Registry {
    /// Takes a model: keeps what its state keys still stand for, seeds what is new, lets go of what is gone. Gives the
    /// whole set of targets for the engine. Every service is touched.
    pub fn set_model(&mut self, model: &Model, now: Now) -> Vec<Target> {
        let Plan {
            mut targets,
            mut keys,
            canaries,
        } = Plan::new(model);
        let mut remembered = std::mem::take(&mut self.remembered);
        self.drop_missing_services(model);
        for service in model.services.values() {
            let keys = keys.remove(&service.name).unwrap_or_default();
            self.set_service(service, keys, &mut remembered, now);
        }
        let addresses = canaries.iter().map(|(key, canary)| (canary.address, *key));
        let ended = self.guards.set_policies(model, &addresses.collect());
        self.guard_events.extend(ended);
        for (key, canary) in canaries {
            targets.entry(key).or_insert_with(|| PlannedTarget {
                address: canary.address,
                names: Names::new(&canary.check, None, canary.address),
                check: canary.check,
                places: Vec::new(),
            });
        }
        for state in self.services.values_mut() {
            state.policy = self.guards.of(&state.service);
        }
        self.assigned.retain(|key, _| targets.contains_key(key));
        let targets = self.set_watches(targets, &mut remembered, now);
        self.set_scopes(now);
        self.forget(remembered);
        let all = |name: &Name| (name.clone(), Scope::All);
        self.touched = model.services.keys().map(all).collect();
        targets
    }

    /// Says who judges: the target `of`, or all that are not assigned by themselves. A vote of one that is assigned no
    /// more is gone. What the embedded prober is to probe follows with the next model.
    pub fn assign(&mut self, vantages: Arc<[Arc<str>]>, of: Option<StateKey>, now: Now) {
        match of {
            Some(key) => drop(self.assigned.insert(key, vantages)),
            None => self.vantages = vantages,
        }
        for (key, watch) in &mut self.watches {
            let assigned = self.assigned.get(key).unwrap_or(&self.vantages);
            watch.reassign(assigned, now);
            super::touch(&mut self.touched, &watch.places);
        }
        self.set_scopes(now);
    }

    fn set_scopes(&mut self, now: Now) {
        let happened = self.guards.set_scopes(&self.services, &self.watches, now);
        self.happened(happened);
    }

    fn drop_missing_services(&mut self, model: &Model) {
        let changes = &mut self.changes;
        self.services.retain(|name, state| {
            let stays = model.services.contains_key(name);
            if !stays {
                changes.push(Change::Service(name.clone(), None));
                let members = state.take_members();
                let published = members.filter(|(_, known)| known.published.is_some());
                let leaving = std::mem::take(&mut state.leaving).into_iter();
                let leaving = leaving.filter(|(_, leaving)| leaving.published.is_some());
                let addresses = published.map(|(address, _)| address);
                let addresses = addresses.chain(leaving.map(|(address, _)| address));
                changes.extend(
                    addresses.map(|address| Change::Endpoint((name.clone(), address), None)),
                );
            }
            stays
        });
    }

    fn set_service(
        &mut self,
        service: &Arc<Service>,
        keys: Vec<Option<StateKey>>,
        remembered: &mut Records,
        now: Now,
    ) {
        let name = &service.name;
        let state = self
            .services
            .entry(name.clone())
            .or_insert_with(|| ServiceState::new(service));
        let mut known: HashMap<SocketAddr, Known> = state.take_members().collect();
        state.announce_removals(service, &mut known, now);
        if let Some(record) = remembered.services.remove(name) {
            state.active = record.active;
            state.remembered = Some(record);
        }
        if service.failover.is_none() {
            state.active = Pool::Primary;
        }
        state.service = Arc::clone(service);
        let mut any_heard_of = false;
        let mut members = Vec::with_capacity(keys.len());
        let mut keys = keys.into_iter();
        for (backend, of_group) in service.backends.iter().enumerate() {
            for (at, endpoint) in of_group.group.endpoints.iter().enumerate() {
                let address = endpoint.address;
                let leaving = state.leaving.remove(&address);
                let known = known.remove(&address);
                let probed_before = known.as_ref().is_some_and(|known| known.probed);
                let (published, before_turn) = match known {
                    Some(known) => (known.published, known.before_turn),
                    None => (None, None),
                };
                let published = published
                    .or(leaving.and_then(|leaving| leaving.published))
                    .or_else(|| remembered.endpoints.remove(&(name.clone(), address)));
                let mut member = Member {
                    backend,
                    endpoint: at,
                    key: keys.next().flatten(),
                    published,
                    before_turn,
                };
                if endpoint.state == AdminState::Stopped {
                    // What a machine was before it was stopped says nothing of it when it runs again.
                    if member.published.take().is_some() {
                        self.changes
                            .push(Change::Endpoint((name.clone(), address), None));
                    }
                } else {
                    any_heard_of |= probed_before || member.published.is_some();
                }
                members.push(member);
            }
        }
        state.members = members;
        let gone = known
            .into_iter()
            .filter(|(_, known)| known.published.is_some());
        self.changes
            .extend(gone.map(|(address, _)| Change::Endpoint((name.clone(), address), None)));
        // Design 5.3, for a new service and for one of which no endpoint is left that was ever heard of.
        if let Some(named) = &service.check
            && !any_heard_of
        {
            state.hold_until =
                Some(now.mono + (named.check.timeout() + Duration::from_secs(1)).min(MAX_HOLD));
        }
    }

    /// Watches what is planned. A key that is not watched yet starts where the store remembers it, else from the status
    /// that its endpoints had under another check (semantics V8), else from nothing (S2).
    fn set_watches(
        &mut self,
        planned: BTreeMap<StateKey, PlannedTarget>,
        remembered: &mut Records,
        now: Now,
    ) -> Vec<Target> {
        let mut before = std::mem::take(&mut self.watches);
        let previous = self.published_by_key();
        let mut targets = Vec::with_capacity(planned.len());
        let watches = planned.into_iter().map(|(key, planned)| {
            let assigned = self.assigned.get(&key).unwrap_or(&self.vantages);
            let ours = || {
                let record = remembered.targets.remove(&key);
                record.unwrap_or_else(|| TargetRecord {
                    tally: previous
                        .get(&key)
                        .copied()
                        .map_or_else(Tally::new, Tally::with_previous)
                        .state(),
                    since: now.wall,
                    reason: None,
                    never_passed: true,
                })
            };
            let mut watch = before
                .remove(&key)
                .unwrap_or_else(|| Watch::new(&planned.check, assigned, ours, now));
            watch.places = planned.places.into();
            if let Some(ballot) = watch.ballot(EMBEDDED_VANTAGE) {
                targets.push(Target {
                    key,
                    address: planned.address,
                    names: planned.names,
                    check: planned.check,
                    seed: Tally::restore(ballot.record.tally),
                    pulse: Arc::clone(&ballot.pulse),
                });
            }
            (key, watch)
        });
        // Collected, not inserted one by one: that leaves no half-empty nodes.
        self.watches = watches.collect();
        self.changes
            .extend(before.into_keys().map(|key| Change::Target(key, None)));
        targets
    }

    /// By key, what its endpoints were published as. Where services disagree, HEALTHY wins: it then takes the threshold to
    /// take the endpoint out.
    fn published_by_key(&self) -> HashMap<StateKey, Verdict> {
        let mut verdicts: HashMap<StateKey, Verdict> = HashMap::new();
        for member in self.services.values().flat_map(|state| &state.members) {
            if let (Some(key), Some(record)) = (member.key, &member.published) {
                let verdict = verdicts.entry(key).or_insert(record.verdict);
                *verdict = record.verdict.min(*verdict);
            }
        }
        verdicts
    }

    /// Deletes from the store what the first model has not claimed.
    fn forget(&mut self, unclaimed: Records) {
        let targets = unclaimed.targets.into_keys();
        self.changes
            .extend(targets.map(|key| Change::Target(key, None)));
        let endpoints = unclaimed.endpoints.into_keys();
        self.changes
            .extend(endpoints.map(|key| Change::Endpoint(key, None)));
        let services = unclaimed.services.into_keys();
        self.changes
            .extend(services.map(|name| Change::Service(name, None)));
    }
}

impl ServiceState {
    /// A service of which nothing is known yet.
    fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            members: Vec::new(),
            leaving: BTreeMap::new(),
            counts: Counts::default(),
            policy: None,
            active: Pool::Primary,
            routed: false,
            remembered: None,
            hold_until: None,
            doubt_reported: false,
            view: Arc::default(),
            others_first: false,
        }
    }

    /// Its members by address; it has none afterwards.
    fn take_members(&mut self) -> impl Iterator<Item = (SocketAddr, Known)> + use<> {
        let members = std::mem::take(&mut self.members);
        let service = Arc::clone(&self.service);
        members.into_iter().filter_map(move |member| {
            let backend = service.backends.get(member.backend)?;
            let endpoint = backend.group.endpoints.get(member.endpoint)?;
            let known = Known {
                probed: member.key.is_some(),
                published: member.published,
                before_turn: member.before_turn,
            };
            Some((endpoint.address, known))
        })
    }

    /// Design 5.6: an endpoint that the new service no longer has is first DRAINING.
    fn announce_removals(
        &mut self,
        service: &Service,
        known: &mut HashMap<SocketAddr, Known>,
        now: Now,
    ) {
        if service.connection_draining.is_zero() {
            return;
        }
        let stays: HashSet<SocketAddr> = service.addresses().collect();
        let shown = self.view.endpoints.iter();
        for endpoint in shown.filter(|endpoint| endpoint.status.is_some()) {
            if !stays.contains(&endpoint.address) {
                let known = known.remove(&endpoint.address);
                self.leaving
                    .entry(endpoint.address)
                    .or_insert_with(|| Leaving {
                        until: now.mono + service.connection_draining,
                        group: Arc::clone(&endpoint.group),
                        pool: endpoint.pool,
                        by: endpoint.by,
                        probe_address: endpoint.probe_address,
                        weight: endpoint.weight,
                        published: known.and_then(|known| known.published),
                    });
            }
        }
    }
}
