//! The difference between what a client has of one type and a snapshot: what it lacks, and what it must lose.
//!
//! In: a subscription, the newest snapshot. Out: [`Batch`]es, additions and removals apart; what is in a batch counts as
//! sent. In which order the types take turns is the stream's.
//!
//! Nothing is compared that cannot differ: the snapshot's log names what changed since the stream last looked, and what it
//! named stays unsettled until it was sent or found equal. So a change costs a stream as much as it changes, whatever the
//! fleet has. Only a stream that is new, or has not looked for longer than the log reaches back, compares everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Known, Since, Subscription};
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
    /// Names of the resources that are sent whatever the client has.
    pub(in crate::stream) again: Vec<Arc<str>>,
    pub(in crate::stream) is_answer: bool,
}

/// What a client lacks, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::stream) enum Lack {
    Nothing,
    /// It has all that it wants, but some of it in an older state.
    Changes,
    /// It was never sent some of what it wants, or asks for it.
    News,
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
        if self.must_answer_first() {
            return None;
        }
        self.catch_up(snapshot);
        if self.is_settled() || self.waits_for_held(transport, snapshot) {
            return None;
        }
        let whole_set = transport == Transport::Sotw && self.kind.is_whole_set();
        let mut batch = Batch {
            is_answer: self.answer_due || !self.again.is_empty(),
            ..Batch::default()
        };
        let mut bytes = 0;
        // Begun with the first each time, one that changes as fast as responses are taken would keep the rest waiting.
        let cut = self.cut.take();
        let after = self.lacking(snapshot, |name| cut.as_ref().is_none_or(|cut| name > cut));
        let up_to = self.lacking(snapshot, |name| cut.as_ref().is_some_and(|cut| name <= cut));
        let mut cut_at = None;
        for resource in after.chain(up_to) {
            bytes += resource.delta_entry().len();
            batch.changed.push(Arc::clone(resource.name()));
            if self.again.contains(resource.name()) {
                batch.again.push(Arc::clone(resource.name()));
            }
            let name = Arc::clone(resource.name());
            batch.resources.push(resource);
            if bytes >= RESPONSE_BYTES && !whole_set {
                cut_at = Some(name);
                break;
            }
        }
        self.cut = cut_at;
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
        self.note_sent(transport, &batch, snapshot, nonce);
        Some(batch)
    }

    /// What the client lacks of the snapshot.
    pub(in crate::stream) fn lack(&mut self, snapshot: &TypeSnapshot) -> Lack {
        self.catch_up(snapshot);
        // What is held is not sent, and what it has and should lose falls to the removal pass.
        let is_due = |name: &Arc<str>| {
            let has = || self.known.get(name).is_some_and(Known::is_real);
            snapshot.resources().contains_key(name) || !(snapshot.is_held(name) || has())
        };
        if self.answer_due || self.again.iter().any(is_due) {
            return Lack::News;
        }
        let of = |name: &Arc<str>| match (snapshot.resources().get(name), self.known.get(name)) {
            (Some(present), Some(known)) if known.is(present) => Lack::Nothing,
            (Some(_), Some(known)) if known.is_real() => Lack::Changes,
            (Some(_), _) if self.wants(name) => Lack::News,
            _ => Lack::Nothing,
        };
        self.unsettled.iter().map(of).max().unwrap_or(Lack::Nothing)
    }

    /// What the client has and should no longer have, or `None`. Comes after the additions of all types, when there are
    /// none left: then all but what is to be removed is settled.
    pub(in crate::stream) fn removals(
        &mut self,
        transport: Transport,
        snapshot: &TypeSnapshot,
        nonce: u64,
    ) -> Option<Batch> {
        let gone = self.gone(snapshot);
        self.unsettled.clear();
        if std::mem::take(&mut self.sprawls) {
            self.known = std::mem::take(&mut self.known).into_iter().collect();
        }
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
                self.note_sent(transport, &batch, snapshot, nonce);
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

    /// Takes in what changed on the way to this snapshot.
    pub(super) fn catch_up(&mut self, snapshot: &TypeSnapshot) {
        let log = snapshot.log();
        if self.cursor.as_ref().is_some_and(|cursor| log.is_at(cursor)) {
            return;
        }
        let before = self.cursor.replace(log.cursor());
        match before.as_ref().and_then(|before| log.since(before)) {
            Some(changed) => {
                for name in changed {
                    if self.wants(name) || self.known.contains_key(name) {
                        self.unsettled.insert(Arc::clone(name));
                    }
                }
            }
            None => self.unsettle_everything(snapshot),
        }
    }

    fn unsettle_everything(&mut self, snapshot: &TypeSnapshot) {
        // Thousands of streams have the same names: one copy of each is enough.
        let shared = |name: Arc<str>| match snapshot.resources().get_key_value(&name) {
            Some((shared, _)) => Arc::clone(shared),
            None => name,
        };
        self.names = std::mem::take(&mut self.names)
            .into_iter()
            .map(shared)
            .collect();
        self.again = std::mem::take(&mut self.again)
            .into_iter()
            .map(shared)
            .collect();
        let known = std::mem::take(&mut self.known).into_iter();
        self.known = known.map(|(name, known)| (shared(name), known)).collect();
        self.shown = None;
        self.sprawls = true;
        let all: BTreeSet<_> = if self.wildcard {
            snapshot.resources().keys().cloned().collect()
        } else {
            self.names.clone()
        };
        self.unsettled = all;
        self.unsettled.extend(self.names.iter().cloned());
        self.unsettled.extend(self.known.keys().cloned());
    }

    fn is_settled(&self) -> bool {
        self.unsettled.is_empty() && self.again.is_empty() && !self.answer_due
    }

    /// What the client has and the snapshot does not.
    fn gone(&self, snapshot: &TypeSnapshot) -> Vec<Arc<str>> {
        let is_gone = |name: &&Arc<str>| {
            self.known.get(*name).is_some_and(Known::is_real) && !exists(snapshot, name)
        };
        self.unsettled.iter().filter(is_gone).cloned().collect()
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
        is_meant: impl Fn(&Arc<str>) -> bool + Copy + 's,
    ) -> impl Iterator<Item = Arc<Resource>> + 's {
        let candidates = move || {
            let all = self.unsettled.union(&self.again);
            all.filter(move |name| is_meant(name))
        };
        let existing = candidates().filter_map(move |name| {
            let resource = snapshot.resources().get(name)?;
            let lacks = self.again.contains(name)
                || !self.known.get(name).is_some_and(|known| known.is(resource));
            (self.wants(name) && lacks).then_some(resource)
        });
        // What the client has of a load assignment that is gone falls to the removal pass.
        let is_eds = self.kind == ResourceType::ClusterLoadAssignment;
        let stand_ins = candidates().filter(move |name| {
            let untold = match self.known.get(*name) {
                None => true,
                Some(Known::Absent | Known::StandIn(_)) => self.again.contains(*name),
                Some(Known::Claimed(_) | Known::Sent(..) | Known::InWholeSet(..)) => false,
            };
            is_eds && untold && self.names.contains(*name) && !exists(snapshot, name)
        });
        existing
            .map(Arc::clone)
            .chain(stand_ins.map(|name| Arc::new(empty_assignment(Arc::clone(name)))))
    }

    /// SotW, whole sets: what is wanted, and what the client has and will lose in the removal pass. Were it left out now,
    /// a cluster would go before the routes that lead to it.
    fn whole_set_before_removals(&self, snapshot: &TypeSnapshot) -> Vec<Arc<Resource>> {
        let lingering = self.known.iter().filter_map(|(name, known)| match known {
            Known::InWholeSet(resource, _) if !exists(snapshot, name) => Some(resource),
            Known::InWholeSet(..)
            | Known::Sent(..)
            | Known::Claimed(_)
            | Known::StandIn(_)
            | Known::Absent => None,
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
            ResourceType::Cluster
            | ResourceType::LbEndpoint
            | ResourceType::Listener
            | ResourceType::RouteConfiguration => asked.cloned().collect(),
        }
    }

    fn note_sent(
        &mut self,
        transport: Transport,
        batch: &Batch,
        snapshot: &TypeSnapshot,
        nonce: u64,
    ) {
        let whole_set = transport == Transport::Sotw && self.kind.is_whole_set();
        let since = Since::nonce(nonce);
        for resource in &batch.resources {
            let name = resource.name();
            self.again.remove(name);
            self.dropped.remove(name);
            if exists(snapshot, name) {
                self.unsettled.remove(name);
            }
            let made_up =
                self.kind == ResourceType::ClusterLoadAssignment && !exists(snapshot, name);
            let known = if made_up {
                Known::StandIn(since)
            } else if whole_set {
                Known::InWholeSet(Arc::clone(resource), since)
            } else {
                Known::Sent(resource.digest(), since)
            };
            self.known.insert(Arc::clone(name), known);
        }
        for name in &batch.removed {
            self.again.remove(name);
            self.dropped.remove(name);
            if self.names.contains(name) {
                self.known.insert(Arc::clone(name), Known::Absent);
            }
        }
    }
}

/// Whether the snapshot has the resource, be it one that may not be answered yet.
fn exists(snapshot: &TypeSnapshot, name: &str) -> bool {
    snapshot.resources().contains_key(name) || snapshot.is_held(name)
}
