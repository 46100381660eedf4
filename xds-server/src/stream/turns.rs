//! Who goes next where endpoints change faster than a client takes responses.
//!
//! In: what endpoints have gone out, the newest snapshot. Out: what of the other types goes before more of them, if
//! anything. Endpoints come before listeners and routes, because what leads to a cluster must find them there. That is no
//! reason while those of a cluster that the client has only change: then a listener, a removal or a heartbeat would wait
//! for as long as one service flaps.
//!
//! Not here: the order of all else (`Stream::next`).

use super::collections::CollectionSubscription;
use super::subscription::Lack;
use super::{Response, Stream};
use crate::snapshot::{FleetSnapshot, ResourceType};

impl Stream {
    /// What goes before endpoints that have had their turn, or cannot have it before the client has answered. Comes when
    /// there are no clusters to send.
    pub(super) fn before_more_endpoints(&mut self, fleet: &FleetSnapshot) -> Option<Response> {
        if !(self.endpoints_went || self.endpoints_must_be_answered()) {
            return None;
        }
        let before = match self.endpoints_lack(fleet) {
            Lack::Changes => self.others(fleet),
            Lack::Nothing | Lack::News => None,
        };
        self.endpoints_went &= before.is_some();
        before
    }

    /// Whether so many endpoints are unanswered that no more are sent.
    pub(super) fn endpoints_must_be_answered(&self) -> bool {
        let [_, assignments, ..] = &self.subscriptions;
        let collections = self.collections.as_ref();
        assignments
            .as_ref()
            .is_some_and(|subscription| subscription.must_answer_first())
            || collections.is_some_and(CollectionSubscription::must_answer_first)
    }

    /// Whether endpoints that the client never had, or asks for, wait for an answer: what leads to them waits with them. It
    /// does not wait long, for they are in one of the next responses, whatever else changes.
    pub(super) fn withholds_new_endpoints(&mut self, fleet: &FleetSnapshot) -> bool {
        self.endpoints_must_be_answered() && self.endpoints_lack(fleet) == Lack::News
    }

    /// Whether removals must wait, because what cannot be said yet may still refer to what is to be removed. Endpoints
    /// refer to nothing.
    pub(super) fn referrers_wait(&self, fleet: &FleetSnapshot) -> bool {
        let mut of_types = ResourceType::ALL.into_iter().zip(&self.subscriptions);
        self.awaits_collections.is_some()
            || of_types.any(|(kind, subscription)| {
                kind != ResourceType::ClusterLoadAssignment
                    && subscription.as_ref().is_some_and(|of| {
                        of.must_answer_first()
                            || of.waits_for_held(self.transport, fleet.of_type(kind))
                    })
            })
    }

    fn endpoints_lack(&mut self, fleet: &FleetSnapshot) -> Lack {
        self.doubt_assignments(fleet);
        let [_, assignments, ..] = &mut self.subscriptions;
        let of_assignments = assignments.as_mut().map_or(Lack::Nothing, |of| {
            let kind = ResourceType::ClusterLoadAssignment;
            of.lack(fleet.of_type_for(kind, self.takes_collections))
        });
        let collections = self.collections.as_mut().zip(fleet.collections());
        let of_collections = collections.map_or(Lack::Nothing, |(of, all)| of.lack(all));
        of_assignments.max(of_collections)
    }

    fn others(&mut self, fleet: &FleetSnapshot) -> Option<Response> {
        use ResourceType::{Cluster, Listener, RouteConfiguration};
        let additions = [Listener, RouteConfiguration]
            .into_iter()
            .find_map(|kind| self.additions(kind, fleet));
        if additions.is_some() {
            return additions;
        }
        let removals = if self.referrers_wait(fleet) {
            None
        } else {
            let mut up = [RouteConfiguration, Listener, Cluster].into_iter();
            up.find_map(|kind| self.removals(kind, fleet))
        };
        removals.or_else(|| self.heartbeats(fleet))
    }
}
