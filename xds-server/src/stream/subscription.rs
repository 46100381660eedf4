//! What a client wants of one type, what it has, and the difference to a snapshot.
//!
//! In: names subscribed and given up. Out: [`Batch`]es of what is missing, additions and removals apart.
//!
//! Wildcard in its forms (xDS protocol, "how the client specifies what resources to return"): `*`; and the legacy form,
//! a first request without names, for Cluster and Listener. In SotW the legacy wildcard ends with the first request that
//! has names, and an empty list after that means nothing; in delta it stays until `*` is unsubscribed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::acks::Acks;
use super::{MAX_NAME_BYTES, MAX_NAMES, RESPONSE_BYTES, Refusal, Transport};
use crate::resources::empty_assignment;
use crate::snapshot::{Resource, ResourceType, TypeSnapshot};

const WILDCARD: &str = "*";

/// What is sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) resources: Vec<Arc<Resource>>,
    /// Names of the resources that the client does not have in this version.
    pub(super) changed: Vec<Arc<str>>,
    pub(super) removed: Vec<Arc<str>>,
    pub(super) is_answer: bool,
}

/// What a client has of one resource, as far as we know.
#[derive(Debug)]
enum Known {
    /// It said so when it connected (`initial_resource_versions`).
    Claimed(Arc<str>),
    /// We sent it on this stream.
    Sent(Arc<Resource>),
    /// We said that it does not exist.
    Absent,
}

impl Known {
    fn version(&self) -> Option<&Arc<str>> {
        match self {
            Self::Claimed(version) => Some(version),
            Self::Sent(resource) => Some(resource.version()),
            Self::Absent => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Subscription {
    kind: ResourceType,
    wildcard: bool,
    /// SotW: no request has had names yet, so that an empty list still means all.
    legacy: bool,
    names: BTreeSet<Arc<str>>,
    name_bytes: usize,
    known: BTreeMap<Arc<str>, Known>,
    /// To be sent whatever the client has: it asked by name, or the cluster has changed.
    again: BTreeSet<Arc<str>>,
    /// Delta: what a client had when it gave the wildcard up. Some of it may still have been on its way, so if the
    /// wildcard comes back each is sent again, or said to be removed.
    dropped: BTreeSet<Arc<str>>,
    /// A request waits for a response even if that is empty.
    answer_due: bool,
    /// The state of the snapshot that the client is known to have in full.
    in_step_with: Option<u128>,
    acks: Acks,
}

impl Subscription {
    pub(super) fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            wildcard: false,
            legacy: kind.is_whole_set(),
            names: BTreeSet::new(),
            name_bytes: 0,
            known: BTreeMap::new(),
            again: BTreeSet::new(),
            dropped: BTreeSet::new(),
            answer_due: false,
            in_step_with: None,
            acks: Acks::default(),
        }
    }

    pub(super) fn acks(&self) -> &Acks {
        &self.acks
    }

    pub(super) fn acks_mut(&mut self) -> &mut Acks {
        &mut self.acks
    }

    pub(super) fn interest(&self) -> Vec<Arc<str>> {
        let all = self.wildcard.then(|| WILDCARD.into());
        all.into_iter().chain(self.names.iter().cloned()).collect()
    }

    /// SotW: the request's names are the whole subscription. Says whether anything was added or given up.
    pub(super) fn set_names(&mut self, names: Vec<String>) -> Result<bool, Refusal> {
        self.legacy &= names.is_empty();
        let first = self.acks.nothing_sent() && !self.answer_due;
        let wildcard = self.legacy || names.iter().any(|name| name == WILDCARD);
        // Envoy unsubscribes from the last name with an empty list; some clients send one empty name.
        let wanted: BTreeSet<Arc<str>> = names
            .into_iter()
            .filter(|name| name != WILDCARD && !name.is_empty())
            .map(Into::into)
            .collect();
        let bytes = wanted.iter().map(|name| name.len()).sum();
        check_limits(wanted.len(), bytes)?;
        let given_up =
            self.names.difference(&wanted).next().is_some() || (self.wildcard && !wildcard);
        let added = wanted.difference(&self.names).next().is_some() || (wildcard && !self.wildcard);
        (self.names, self.name_bytes, self.wildcard) = (wanted, bytes, wildcard);
        if given_up {
            self.forget_unwanted();
        }
        self.answer_due |= added || first;
        self.in_step_with = None;
        Ok(added || given_up || first)
    }

    /// Delta: the first request of this type on the stream.
    pub(super) fn begin_delta(
        &mut self,
        subscribe: Vec<String>,
        has: HashMap<String, String>,
    ) -> Result<(), Refusal> {
        self.wildcard = self.legacy && subscribe.is_empty();
        self.subscribe(subscribe)?;
        // A client that has nothing waits to hear that there is nothing (xds.md G16); one that has all is left in peace.
        self.answer_due = self.wildcard && has.is_empty();
        for (name, version) in has {
            let name = Arc::from(name);
            if self.wants(&name) {
                // It has it: no need to answer the subscription, unless the version proves old (xds.md G17).
                self.again.remove(&name);
                self.known.insert(name, Known::Claimed(version.into()));
            }
        }
        Ok(())
    }

    /// Delta: every name asked for is answered, also one that the client has (DeltaDiscoveryRequest,
    /// `resource_names_subscribe`).
    pub(super) fn subscribe(&mut self, names: Vec<String>) -> Result<(), Refusal> {
        for name in names {
            if name == WILDCARD {
                self.wildcard = true;
                self.answer_due = true;
                self.again.append(&mut self.dropped);
                continue;
            }
            let name: Arc<str> = name.into();
            if self.names.insert(Arc::clone(&name)) {
                self.name_bytes += name.len();
                check_limits(self.names.len(), self.name_bytes)?;
            }
            self.again.insert(name);
        }
        Ok(())
    }

    /// Delta: gives names up. A name that the wildcard still covers is sent again, or said to be removed: the client has
    /// dropped what it had (xds.md G10).
    pub(super) fn unsubscribe(&mut self, names: &[String]) {
        for name in names {
            if name == WILDCARD {
                self.wildcard = false;
                self.answer_due = false;
                self.dropped.extend(
                    self.known
                        .keys()
                        .filter(|name| !self.names.contains(*name))
                        .cloned(),
                );
                self.forget_unwanted();
            } else if let Some(name) = self.names.take(name.as_str()) {
                self.name_bytes -= name.len();
                self.known.remove(&name);
                self.again.remove(&name);
                if self.wildcard {
                    self.again.insert(name);
                }
            }
        }
    }

    /// The resource's dependent has changed: send it along, if the client has it or waits for it.
    pub(super) fn send_again(&mut self, name: &Arc<str>) {
        if self.wants(name) {
            self.again.insert(Arc::clone(name));
        }
    }

    /// Whether the client said that it has this resource, and was not sent it since.
    pub(super) fn is_claimed(&self, name: &str) -> bool {
        matches!(self.known.get(name), Some(Known::Claimed(_)))
    }

    /// Sends everything again that the client claims to have and `proven` does not vouch for.
    pub(super) fn distrust_claims(&mut self, proven: impl Fn(&str) -> bool) {
        let doubtful = self.known.keys().filter(|name| !proven(name)).cloned();
        self.again.extend(doubtful);
    }

    /// What the client lacks of the snapshot, or `None` when it lacks nothing.
    pub(super) fn additions(
        &mut self,
        transport: Transport,
        snapshot: &TypeSnapshot,
    ) -> Option<Batch> {
        if self.is_in_step(snapshot) || self.waits_for_held(transport, snapshot) {
            return None;
        }
        let mut batch = Batch {
            is_answer: self.answer_due || !self.again.is_empty(),
            ..Batch::default()
        };
        let mut bytes = 0;
        for resource in self.lacking(snapshot) {
            bytes += resource.any().len();
            batch.changed.push(Arc::clone(resource.name()));
            batch.resources.push(resource);
            if bytes >= RESPONSE_BYTES
                && !(transport == Transport::Sotw && self.kind.is_whole_set())
            {
                break;
            }
        }
        match transport {
            Transport::Sotw if self.kind.is_whole_set() => {
                if batch.resources.is_empty() && !self.answer_due {
                    return None;
                }
                batch.resources = self.whole_set_before_removals(snapshot);
            }
            Transport::Sotw => self.answer_due = false,
            Transport::Delta => batch.removed = self.absent_by_request(snapshot),
        }
        if batch.resources.is_empty() && batch.removed.is_empty() && !self.answer_due {
            return None;
        }
        self.answer_due = false;
        self.note_sent(&batch);
        Some(batch)
    }

    /// What the client has and should no longer have, or `None`. Comes after the additions of all types.
    pub(super) fn removals(
        &mut self,
        transport: Transport,
        snapshot: &TypeSnapshot,
    ) -> Option<Batch> {
        if self.is_in_step(snapshot) || self.waits_for_held(transport, snapshot) {
            return None;
        }
        self.in_step_with = Some(snapshot.state());
        let gone: Vec<Arc<str>> = (self.known.iter())
            .filter(|(name, known)| known.version().is_some() && !exists(snapshot, name))
            .filter(|(_, known)| !is_stand_in(known))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if gone.is_empty() {
            return None;
        }
        for name in &gone {
            self.again.remove(name);
            if self.names.contains(name) {
                self.known.insert(Arc::clone(name), Known::Absent);
            } else {
                self.known.remove(name);
            }
        }
        match transport {
            // Envoy keeps what it had when a response leaves it out; only its cluster's or listener's removal counts.
            Transport::Sotw if !self.kind.is_whole_set() => None,
            Transport::Sotw => {
                let resources = self.wanted(snapshot).map(Arc::clone).collect();
                Some(Batch {
                    resources,
                    ..Batch::default()
                })
            }
            Transport::Delta => Some(Batch {
                removed: gone,
                ..Batch::default()
            }),
        }
    }

    fn is_in_step(&self, snapshot: &TypeSnapshot) -> bool {
        self.in_step_with == Some(snapshot.state()) && self.again.is_empty() && !self.answer_due
    }

    /// Whether a whole set cannot be said yet: what is held would be missing, and a client takes that for a deletion.
    fn waits_for_held(&self, transport: Transport, snapshot: &TypeSnapshot) -> bool {
        transport == Transport::Sotw
            && self.kind.is_whole_set()
            && snapshot.held().iter().any(|name| self.wants(name))
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// The resources of the snapshot that the client wants.
    fn wanted<'s>(
        &'s self,
        snapshot: &'s TypeSnapshot,
    ) -> Box<dyn Iterator<Item = &'s Arc<Resource>> + 's> {
        if self.wildcard {
            Box::new(snapshot.resources().values())
        } else {
            Box::new(
                self.names
                    .iter()
                    .filter_map(|name| snapshot.resources().get(name)),
            )
        }
    }

    /// The resources that the client wants and does not have, or must be sent again. A load assignment that does not
    /// exist is answered with an empty one, once: a cluster that waits for it would warm until its time-out.
    fn lacking<'s>(
        &'s self,
        snapshot: &'s TypeSnapshot,
    ) -> impl Iterator<Item = Arc<Resource>> + 's {
        let existing = self.wanted(snapshot).filter(|resource| {
            self.again.contains(resource.name())
                || self.known.get(resource.name()).and_then(Known::version)
                    != Some(resource.version())
        });
        let is_eds = self.kind == ResourceType::ClusterLoadAssignment;
        // What the client has of a load assignment that is gone falls to the removal pass.
        let stand_ins = (self.names.iter().filter(move |_| is_eds)).filter(|name| {
            let untold = match self.known.get(*name) {
                None => true,
                Some(Known::Absent) => self.again.contains(*name),
                Some(known) => self.again.contains(*name) && is_stand_in(known),
            };
            untold && !exists(snapshot, name)
        });
        existing
            .map(Arc::clone)
            .chain(stand_ins.map(|name| Arc::new(empty_assignment(Arc::clone(name)))))
    }

    /// SotW, whole sets: what is wanted, and what the client has and will lose in the removal pass. Were it left out now,
    /// a cluster would go before the routes that lead to it.
    fn whole_set_before_removals(&self, snapshot: &TypeSnapshot) -> Vec<Arc<Resource>> {
        let lingering = self.known.iter().filter_map(|(name, known)| match known {
            Known::Sent(resource) if !exists(snapshot, name) => Some(resource),
            Known::Sent(_) | Known::Claimed(_) | Known::Absent => None,
        });
        self.wanted(snapshot)
            .chain(lingering)
            .map(Arc::clone)
            .collect()
    }

    /// Delta: the names that were asked for and do not exist. (Load assignments get a stand-in.)
    fn absent_by_request(&self, snapshot: &TypeSnapshot) -> Vec<Arc<str>> {
        let asked = self.again.iter().filter(|name| !exists(snapshot, name));
        match self.kind {
            ResourceType::ClusterLoadAssignment => asked
                .filter(|name| !self.names.contains(*name))
                .cloned()
                .collect(),
            ResourceType::Cluster | ResourceType::Listener | ResourceType::RouteConfiguration => {
                asked.cloned().collect()
            }
        }
    }

    fn note_sent(&mut self, batch: &Batch) {
        for resource in &batch.resources {
            self.again.remove(resource.name());
            self.known.insert(
                Arc::clone(resource.name()),
                Known::Sent(Arc::clone(resource)),
            );
        }
        for name in &batch.removed {
            self.again.remove(name);
            self.known.insert(Arc::clone(name), Known::Absent);
        }
        self.in_step_with = None;
    }

    fn forget_unwanted(&mut self) {
        let wildcard = self.wildcard;
        self.known
            .retain(|name, _| wildcard || self.names.contains(name));
        self.again
            .retain(|name| wildcard || self.names.contains(name));
        self.in_step_with = None;
    }
}

/// Whether the snapshot has the resource, be it one that may not be answered yet.
fn exists(snapshot: &TypeSnapshot, name: &str) -> bool {
    snapshot.resources().contains_key(name) || snapshot.is_held(name)
}

/// Whether what the client has is the empty load assignment that we made up because there was none.
fn is_stand_in(known: &Known) -> bool {
    match known {
        Known::Sent(resource) => {
            resource.kind() == ResourceType::ClusterLoadAssignment
                && *resource.version() == *empty_assignment(Arc::clone(resource.name())).version()
        }
        Known::Claimed(_) | Known::Absent => false,
    }
}

fn check_limits(names: usize, bytes: usize) -> Result<(), Refusal> {
    if names > MAX_NAMES || bytes > MAX_NAME_BYTES {
        Err(Refusal::TooManyNames)
    } else {
        Ok(())
    }
}
