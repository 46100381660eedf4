//! The difference between what a client has of one type and a snapshot: what it lacks, and what it must lose.
//!
//! In: a subscription, the newest snapshot. Out: [`Batch`]es, additions and removals apart; what is in a batch counts as
//! sent. In which order the types take turns is the stream's.

use std::sync::Arc;

use super::{Known, Subscription};
use crate::resources::empty_assignment;
use crate::snapshot::{Resource, ResourceType, TypeSnapshot};
use crate::stream::{RESPONSE_BYTES, Transport};

/// What is sent together.
#[derive(Debug, Default)]
pub(in crate::stream) struct Batch {
    pub(in crate::stream) resources: Vec<Arc<Resource>>,
    /// Names of the resources that the client does not have in this version.
    pub(in crate::stream) changed: Vec<Arc<str>>,
    pub(in crate::stream) removed: Vec<Arc<str>>,
    pub(in crate::stream) is_answer: bool,
}

impl Subscription {
    /// What the client lacks of the snapshot, or `None` when it lacks nothing. `nonce` is that of the response.
    ///
    /// Nothing refers to a listener, so those that are gone leave in the same response: a listener that was renamed
    /// keeps its address, and an Envoy refuses two on one.
    pub(in crate::stream) fn additions(
        &mut self,
        transport: Transport,
        snapshot: &TypeSnapshot,
        nonce: u64,
    ) -> Option<Batch> {
        if self.must_answer_first()
            || self.is_in_step(snapshot)
            || self.waits_for_held(transport, snapshot)
        {
            return None;
        }
        let whole_set = transport == Transport::Sotw && self.kind.is_whole_set();
        let mut batch = Batch {
            is_answer: self.answer_due || !self.again.is_empty(),
            ..Batch::default()
        };
        let mut bytes = 0;
        for resource in self.lacking(snapshot) {
            bytes += resource.any().len();
            batch.changed.push(Arc::clone(resource.name()));
            batch.resources.push(resource);
            if bytes >= RESPONSE_BYTES && !whole_set {
                break;
            }
        }
        let gone = if self.kind == ResourceType::Listener {
            self.gone(snapshot)
        } else {
            Vec::new()
        };
        if transport == Transport::Delta {
            batch.removed = self.absent_by_request(snapshot);
            batch.removed.extend(
                gone.iter()
                    .filter(|name| !self.again.contains(*name))
                    .cloned(),
            );
        } else if !whole_set {
            // EDS and RDS are silent about what is not there.
            self.answer_due = false;
        }
        let nothing = batch.resources.is_empty() && batch.removed.is_empty() && gone.is_empty();
        if nothing && !self.answer_due {
            return None;
        }
        self.answer_due = false;
        self.lose(&gone);
        if whole_set {
            batch.resources = self.whole_set_before_removals(snapshot);
        }
        self.note_sent(&batch, snapshot, nonce);
        Some(batch)
    }

    /// What the client has and should no longer have, or `None`. Comes after the additions of all types.
    pub(in crate::stream) fn removals(
        &mut self,
        transport: Transport,
        snapshot: &TypeSnapshot,
        nonce: u64,
    ) -> Option<Batch> {
        if self.is_in_step(snapshot) {
            return None;
        }
        self.in_step_with = Some(snapshot.state());
        let gone = self.gone(snapshot);
        if gone.is_empty() {
            return None;
        }
        self.lose(&gone);
        match transport {
            // Envoy keeps what it had when a response leaves it out; only its cluster's or listener's removal counts.
            Transport::Sotw if !self.kind.is_whole_set() => None,
            Transport::Sotw => {
                let batch = Batch {
                    resources: self.wanted(snapshot).map(Arc::clone).collect(),
                    ..Batch::default()
                };
                // The whole set is said anew, so its answer speaks of all of it.
                self.note_sent(&batch, snapshot, nonce);
                Some(batch)
            }
            Transport::Delta => Some(Batch {
                removed: gone,
                ..Batch::default()
            }),
        }
    }

    /// Whether a whole set cannot be said yet: what is held would be missing, and a client takes that for a deletion.
    pub(in crate::stream) fn waits_for_held(
        &self,
        transport: Transport,
        snapshot: &TypeSnapshot,
    ) -> bool {
        transport == Transport::Sotw
            && self.kind.is_whole_set()
            && snapshot.held().iter().any(|name| self.wants(name))
    }

    fn is_in_step(&self, snapshot: &TypeSnapshot) -> bool {
        self.in_step_with == Some(snapshot.state()) && self.again.is_empty() && !self.answer_due
    }

    /// What the client has and the snapshot does not.
    fn gone(&self, snapshot: &TypeSnapshot) -> Vec<Arc<str>> {
        let gone = self
            .known
            .iter()
            .filter(|(name, known)| known.version().is_some() && !exists(snapshot, name));
        gone.map(|(name, _)| Arc::clone(name)).collect()
    }

    fn lose(&mut self, gone: &[Arc<str>]) {
        for name in gone {
            self.again.remove(name);
            if self.names.contains(name) {
                self.known.insert(Arc::clone(name), Known::Absent);
            } else {
                self.known.remove(name);
            }
        }
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
                Some(Known::Absent | Known::StandIn(_)) => self.again.contains(*name),
                Some(Known::Claimed(_) | Known::Sent(..)) => false,
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
            Known::Sent(resource, _) if !exists(snapshot, name) => Some(resource),
            Known::Sent(..) | Known::Claimed(_) | Known::StandIn(_) | Known::Absent => None,
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

    fn note_sent(&mut self, batch: &Batch, snapshot: &TypeSnapshot, nonce: u64) {
        for resource in &batch.resources {
            let name = resource.name();
            self.again.remove(name);
            let made_up =
                self.kind == ResourceType::ClusterLoadAssignment && !exists(snapshot, name);
            let known = if made_up {
                Known::StandIn(nonce)
            } else {
                Known::Sent(Arc::clone(resource), nonce)
            };
            self.known.insert(Arc::clone(name), known);
        }
        for name in &batch.removed {
            self.again.remove(name);
            if self.names.contains(name) {
                self.known.insert(Arc::clone(name), Known::Absent);
            }
        }
        self.in_step_with = None;
    }
}

/// Whether the snapshot has the resource, be it one that may not be answered yet.
fn exists(snapshot: &TypeSnapshot, name: &str) -> bool {
    snapshot.resources().contains_key(name) || snapshot.is_held(name)
}
