//! Resources that expire: a TTL with what is sent, and heartbeats that renew it.
//!
//! In: that a client supports it, the server's TTL, the owner's clock in the form of [`Stream::beat`]. Out: a [`Lease`] on
//! every response, and responses without bodies for what the client has in its present version (xDS protocol, "TTL").
//!
//! Only delta clients are leased anything. In SotW, an Envoy takes a response of clusters or listeners that holds only
//! heartbeats for an empty set, and Envoy 1.40 crashes when the TTL of an assignment or a route runs out (measured).
//!
//! What a client says it has when it connects may be leased from a stream before, also by a server that grants no lease
//! any more. Therefore that is renewed at once, with the TTL or without, which ends it.

use std::time::Duration;

use super::{Response, Stream, Transport};
use crate::snapshot::{FleetSnapshot, ResourceType};

/// For how long what a response brings is to be kept without another word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lease {
    /// It says nothing of that.
    #[default]
    None,
    /// So long.
    Granted(Duration),
    /// The response has no bodies; what it names is to be kept so long from now, or for ever.
    Renewed(Option<Duration>),
}

impl Stream {
    /// The client understands TTLs, and this is the server's; `None`: what is leased from before is to be kept. Without
    /// effect in SotW.
    pub fn lease(&mut self, ttl: Option<Duration>) {
        self.ttl = (self.transport == Transport::Delta).then_some(ttl);
    }

    /// Heartbeats are due.
    pub fn beat(&mut self) {
        for subscription in self.subscriptions.iter_mut().flatten() {
            subscription.renew_all();
        }
    }

    /// The lease on what is sent. Endpoints that stand apart have none: they go with their load assignment, whose lease is
    /// theirs.
    pub(super) fn granted(&self, kind: ResourceType) -> Lease {
        match self.ttl.flatten() {
            Some(ttl) if kind != ResourceType::LbEndpoint => Lease::Granted(ttl),
            _ => Lease::None,
        }
    }

    /// The next heartbeats that are due, some hundred kilobytes of them at most.
    pub(super) fn heartbeats(&mut self, fleet: &FleetSnapshot) -> Option<Response> {
        let ttl = self.ttl?;
        ResourceType::ALL.into_iter().find_map(|kind| {
            self.slot(kind).as_ref()?;
            let of_type = fleet.of_type_for(kind, self.takes_collections);
            let subscription = self.slot(kind).as_mut()?;
            let resources = subscription.renewals(of_type)?;
            let mut response = self.number(kind, of_type.version());
            if let Some(subscription) = self.slot(kind) {
                subscription.acks_mut().was_heartbeat();
            }
            response.resources = resources;
            response.lease = Lease::Renewed(ttl);
            Some(response)
        })
    }
}
