//! The side of a stream that is for endpoints apart from their load assignment (LEDS): how its collections hang together
//! with the other types.
//!
//! In: requests for LbEndpoint, load assignments that go out. Out: which load assignments are doubted, which collections
//! go again, and what waits for new ones. What is sent of a collection is in `collections`.

use std::time::SystemTime;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use super::subscription::Batch;
use super::{Received, Refusal, Stream, Transport, received};
use crate::snapshot::{FleetSnapshot, ResourceType};

impl Stream {
    /// Says that the client takes endpoints apart from their load assignment (LEDS): an Envoy that speaks delta on an
    /// aggregated stream, where it asks for them. To all others LbEndpoint is a type that is not served.
    pub fn take_collections(&mut self) {
        self.takes_collections = self.transport == Transport::Delta && self.only.is_none();
    }

    /// Endpoints that stand apart. What a client says it has of them counts for nothing: an Envoy says nothing (measured).
    pub(super) fn on_collections(
        &mut self,
        request: DeltaDiscoveryRequest,
        now: SystemTime,
    ) -> Result<Received, Refusal> {
        let changes = self.collections.is_none()
            || !request.resource_names_subscribe.is_empty()
            || !request.resource_names_unsubscribe.is_empty();
        let collections = self.collections.get_or_insert_default();
        let answer = collections.answer(&request.response_nonce, request.error_detail, now);
        collections.subscribe(request.resource_names_subscribe)?;
        collections.unsubscribe(&request.resource_names_unsubscribe);
        let kind = ResourceType::LbEndpoint;
        Ok(received(kind, answer, changes, &request.response_nonce))
    }

    /// Where endpoints stand apart, no word of a client that it has a load assignment is taken: if its connection broke
    /// after a cluster had changed, it would warm up without one, and then wait in vain for collections that the cluster
    /// before it is subscribed to. Load assignments without endpoints are small.
    pub(super) fn doubt_assignments(&mut self, fleet: &FleetSnapshot) {
        let [_, assignments, ..] = &mut self.subscriptions;
        if let (Some(assignments), Some(_)) = (assignments, fleet.collections())
            && std::mem::take(&mut self.doubts_assignments)
        {
            assignments.distrust_claims(|_| false);
        }
    }

    /// Load assignments go out. Collections of those that are sent again go again too, and new ones are waited for.
    pub(super) fn note_assignments(&mut self, fleet: &FleetSnapshot, batch: &Batch, nonce: u64) {
        let Some(all) = fleet.collections() else {
            return;
        };
        for name in &batch.changed {
            let Some(assignment) = all.assignment(name) else {
                continue;
            };
            let subscribed = self.collections.as_mut().is_some_and(|wanted| {
                if batch.again.contains(name) {
                    wanted.send_again(assignment.collections());
                }
                wanted.wants_all(assignment.collections())
            });
            if !subscribed && !assignment.collections().is_empty() {
                self.awaits_collections = Some(nonce);
            }
        }
    }

    /// What leads to a cluster comes after its endpoints, which an Envoy asks for when it has the load assignment, and before
    /// it answers that (measured). One that answers without asking is not waited for. Nor are answers to later load
    /// assignments: where some change all the time, there is always one on its way.
    pub(super) fn must_await_collections(&mut self) -> bool {
        let [_, assignments, ..] = &self.subscriptions;
        let assignments = assignments.as_ref();
        let waits = |nonce: &u64| assignments.is_some_and(|of| of.acks().waits_for(*nonce));
        self.awaits_collections = self.awaits_collections.filter(waits);
        self.awaits_collections.is_some()
    }
}
