//! One xDS stream as a state machine without sockets: requests in, responses out when asked for.
//!
//! ```text
//!  request ──► on_sotw / on_delta ──► Subscription per type ──┐
//!                                                             ├──► next() ──► Response, or nothing to say
//!  newest FleetSnapshot ──────────────────────────────────────┘
//! ```
//!
//! SotW and delta share everything but the reading of a request and the shape of a response. Responses are *pulled*:
//! the owner calls [`Stream::next`] when the transport can take one, and gets the difference between what the client
//! was sent and the newest snapshot. So a slow client never has a long queue of old states, only a larger difference.
//!
//! Order of a pass (xDS protocol, "eventual consistency considerations"):
//! additions Cluster → ClusterLoadAssignment → Listener → RouteConfiguration, then removals the other way round, save
//! that listeners leave with the additions, because a new one may want the address of an old one. A cluster that is sent anew takes its load assignment along, because a delta Envoy does not ask again (design 5.7).
//! Where endpoints stand apart (LEDS), they follow their load assignment, and go with it whole when it is sent again; what
//! leads to them waits until the client has answered a load assignment that names new ones.
//! Endpoints that change faster than the client takes them keep nothing else waiting (`turns`).
//! Nothing else waits for an ACK: an Envoy withholds the ACK of a warming cluster until it has the endpoints.
//!
//! After a NACK a resource is sent again only when its content changes or the client asks for it by name (design 5.8):
//! what counts is what was *sent*.
//!
//! Not here: gRPC (`ads`), which fleet a node belongs to, and logging: the outcome of a request is returned.

mod acks;
mod apart;
mod blame;
mod collections;
mod lease;
#[cfg(any(test, feature = "fuzzing"))]
pub mod oracle;
mod subscription;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

pub use self::acks::{Interest, Nack, SHOWN_NAMES, SubscriptionStatus};
use self::collections::CollectionSubscription;
pub use self::lease::Lease;
use self::subscription::Subscription;
use crate::snapshot::{FleetSnapshot, Resource, ResourceType};

/// The most names that a client may subscribe to for one type, or claim to have. Beyond it the stream is refused.
pub const MAX_NAMES: usize = 262_144;

/// The most bytes that the names of one type may have together.
pub const MAX_NAME_BYTES: usize = 32 << 20;

/// About how many bytes of resources go into one response, where the protocol lets a set be sent in parts. gRPC clients
/// refuse messages over 4 MiB by default.
pub const RESPONSE_BYTES: usize = 1 << 20;

/// Responses of one type that may wait for an answer. What lies unread in a slow client's buffers is old by the time it
/// is read; beyond these it gets nothing until it answers, and then the newest. Clusters are exempt: an Envoy withholds
/// their ACK while one warms, for 15 s if need be.
pub const MAX_UNANSWERED: usize = 16;

/// The two transports of the xDS protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// State of the world: `StreamAggregatedResources`.
    Sotw,
    /// Incremental: `DeltaAggregatedResources`.
    Delta,
}

impl Transport {
    /// The name in metrics, logs and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sotw => "SOTW",
            Self::Delta => "DELTA",
        }
    }
}

/// One response, still without its wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The type of all its resources.
    pub kind: ResourceType,
    /// `version_info`, `system_version_info`: a hash of the fleet's whole set of this type.
    pub version: Arc<str>,
    /// The nonce, unique within the stream.
    pub nonce: String,
    /// The resources; for SotW Cluster and Listener the whole subscribed set.
    pub resources: Vec<Arc<Resource>>,
    /// `removed_resources`; delta only.
    pub removed: Vec<Arc<str>>,
    /// Whether it answers a request rather than a change of the snapshot.
    pub is_answer: bool,
    /// For how long the client may keep what it brings.
    pub lease: Lease,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A type that we do not serve, by its URL: logged and unanswered.
    UnknownType(String),
    /// A subscription, or a change of one.
    Subscription(ResourceType),
    /// The client has taken what was sent.
    Ack(ResourceType),
    /// The client has refused what was sent.
    Nack(ResourceType, Nack),
    /// A SotW request that answers an older response than the last: superseded, without effect.
    Stale(ResourceType),
}

/// Why a request ends the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// On an aggregated stream every request names its type.
    #[error("the request has no type_url; on an aggregated stream every request names its type")]
    EmptyTypeUrl,
    /// On a stream of one type, another type.
    #[error(
        "the request's type_url is of another type; this service serves {} alone", .0.type_url()
    )]
    ForeignType(ResourceType),
    /// More names than a stream may hold.
    #[error(
        "more than {MAX_NAMES} resource names (or {MAX_NAME_BYTES} bytes of them) of one type on one stream"
    )]
    TooManyNames,
}

/// The state of one stream.
#[derive(Debug)]
pub struct Stream {
    transport: Transport,
    /// The one type of the stream's service; `None` on an aggregated one.
    only: Option<ResourceType>,
    /// Boxed: most streams want two or four of the five, and there are thousands of streams.
    subscriptions: [Option<Box<Subscription>>; 5],
    /// What it wants of LbEndpoint, whose place in `subscriptions` stays empty.
    collections: Option<CollectionSubscription>,
    takes_collections: bool,
    /// Where endpoints stand apart, all load assignments are sent again.
    doubts_assignments: bool,
    /// The nonce of the last load assignments that told the client of collections that it had not subscribed to, while it
    /// has not answered them.
    awaits_collections: Option<u64>,
    /// Endpoints went out since the other types were last looked at.
    endpoints_went: bool,
    last_nonce: u64,
    /// `Some`: the client understands TTLs, and this is the server's.
    ttl: Option<Option<Duration>>,
}

impl Stream {
    /// An aggregated stream on which nothing was said yet.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            only: None,
            subscriptions: Default::default(),
            collections: None,
            takes_collections: false,
            doubts_assignments: false,
            awaits_collections: None,
            endpoints_went: false,
            last_nonce: 0,
            ttl: None,
        }
    }

    /// A stream of a service of one type: requests need not name it, and may name no other.
    #[must_use]
    pub fn of_type(transport: Transport, kind: ResourceType) -> Self {
        Self {
            only: Some(kind),
            ..Self::new(transport)
        }
    }

    /// How it is served.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Takes a SotW request. `now` is only written down beside a NACK.
    ///
    /// # Errors
    /// When the stream must end.
    pub fn on_sotw(
        &mut self,
        request: DiscoveryRequest,
        now: SystemTime,
    ) -> Result<Received, Refusal> {
        let Some(kind) = self.resource_type(&request.type_url)? else {
            return Ok(Received::UnknownType(request.type_url));
        };
        let slot = self.slot(kind);
        let first = slot.is_none();
        let subscription = slot.get_or_insert_with(|| Box::new(Subscription::new(kind)));
        let mut received = Received::Subscription(kind);
        if !first && !request.response_nonce.is_empty() {
            let current = subscription.acks().nothing_sent()
                || subscription.acks().is_last(&request.response_nonce);
            // A refusal counts also when a newer response is on its way already.
            if let Some(answer) =
                subscription.answer(&request.response_nonce, request.error_detail, now)
            {
                received = answer.map_or(Received::Ack(kind), |nack| Received::Nack(kind, nack));
            }
            // A nonce that we never sent for this type on this stream can come from a stream before (then there was no
            // response yet, and the request subscribes) or from a confused client.
            if !current {
                let refused = matches!(received, Received::Nack(..));
                return Ok(if refused {
                    received
                } else {
                    Received::Stale(kind)
                });
            }
        }
        if subscription.set_names(request.resource_names)? && matches!(received, Received::Ack(_)) {
            received = Received::Subscription(kind);
        }
        Ok(received)
    }

    /// Takes a delta request. Subscriptions count whatever the nonce says: only the last response's can be acknowledged,
    /// but a change of interest is never stale (xds.md bug 3). `now` is only written down beside a NACK.
    ///
    /// # Errors
    /// When the stream must end.
    pub fn on_delta(
        &mut self,
        request: DeltaDiscoveryRequest,
        now: SystemTime,
    ) -> Result<Received, Refusal> {
        let Some(kind) = self.resource_type(&request.type_url)? else {
            return Ok(Received::UnknownType(request.type_url));
        };
        if kind == ResourceType::LbEndpoint {
            return self.on_collections(request, now);
        }
        let first = self.slot(kind).is_none();
        let subscription = self
            .slot(kind)
            .get_or_insert_with(|| Box::new(Subscription::new(kind)));
        if first {
            if request.initial_resource_versions.len() > MAX_NAMES {
                return Err(Refusal::TooManyNames);
            }
            subscription.begin_delta(
                request.resource_names_subscribe,
                request.initial_resource_versions,
            )?;
            subscription.unsubscribe(&request.resource_names_unsubscribe);
            self.distrust_unproven_assignments(kind);
            if self.ttl.is_some()
                && let Some(subscription) = self.slot(kind)
            {
                subscription.renew_all();
            }
            return Ok(Received::Subscription(kind));
        }
        let changes = !request.resource_names_subscribe.is_empty()
            || !request.resource_names_unsubscribe.is_empty();
        let answer = subscription.answer(&request.response_nonce, request.error_detail, now);
        subscription.subscribe(request.resource_names_subscribe)?;
        subscription.unsubscribe(&request.resource_names_unsubscribe);
        Ok(received(kind, answer, changes, &request.response_nonce))
    }

    /// The next response that brings the client closer to `fleet`, or `None` when it has everything, or must answer
    /// first. The response counts as sent from here on.
    pub fn next(&mut self, fleet: &FleetSnapshot) -> Option<Response> {
        let additions = ResourceType::ALL.into_iter().find_map(|kind| {
            let before = match kind {
                ResourceType::ClusterLoadAssignment => self.before_more_endpoints(fleet),
                _ => None,
            };
            before.or_else(|| self.additions(kind, fleet))
        });
        if let Some(additions) = &additions {
            self.endpoints_went |= matches!(
                additions.kind,
                ResourceType::ClusterLoadAssignment | ResourceType::LbEndpoint
            ) && !matches!(additions.lease, Lease::Renewed(_));
        }
        if additions.is_some() {
            return additions;
        }
        let waits = self.referrers_wait(fleet) || self.endpoints_must_be_answered();
        let mut removals = || {
            let mut up = ResourceType::ALL.into_iter().rev();
            up.find_map(|kind| self.removals(kind, fleet))
        };
        let removed = if waits { None } else { removals() };
        removed.or_else(|| self.heartbeats(fleet))
    }

    /// Where a type stands, for `/v1/clients`; `None`: it is not subscribed.
    pub fn status(&mut self, kind: ResourceType) -> Option<SubscriptionStatus> {
        if kind == ResourceType::LbEndpoint {
            let collections = self.collections.as_mut()?;
            let interest = collections.interest();
            return Some(collections.acks().status(interest));
        }
        let subscription = self.slot(kind).as_mut()?;
        let interest = subscription.interest();
        Some(subscription.acks().status(interest))
    }

    /// Whether something is withheld until the client has answered; [`Stream::next`] may then give more after an answer.
    /// After other answers it gives nothing that it has not given before.
    #[must_use]
    pub fn waits_for_answers(&self) -> bool {
        let mut subscriptions = self.subscriptions.iter().flatten();
        self.awaits_collections.is_some()
            || self.endpoints_must_be_answered()
            || subscriptions.any(|subscription| subscription.must_answer_first())
    }

    fn additions(&mut self, kind: ResourceType, fleet: &FleetSnapshot) -> Option<Response> {
        let (transport, nonce) = (self.transport, self.last_nonce + 1);
        if kind == ResourceType::LbEndpoint {
            let collections = fleet.collections()?;
            let batch = self.collections.as_mut()?.next(collections, nonce)?;
            return Some(self.respond(kind, collections.version(), batch));
        }
        if kind > ResourceType::LbEndpoint
            && (self.must_await_collections() || self.withholds_new_endpoints(fleet))
        {
            return None;
        }
        // Before the plain form of load assignments is asked for: to make it costs.
        self.slot(kind).as_ref()?;
        let of_type = fleet.of_type_for(kind, self.takes_collections);
        if kind == ResourceType::ClusterLoadAssignment {
            self.doubt_assignments(fleet);
        }
        let batch = self
            .slot(kind)
            .as_mut()?
            .additions(transport, of_type, nonce)?;
        if kind == ResourceType::Cluster
            && let Some(assignments) = self.slot(ResourceType::ClusterLoadAssignment)
        {
            for cluster in &batch.changed {
                assignments.send_again(cluster);
            }
        }
        if kind == ResourceType::ClusterLoadAssignment && self.takes_collections {
            self.note_assignments(fleet, &batch, nonce);
        }
        Some(self.respond(kind, of_type.version(), batch))
    }

    fn removals(&mut self, kind: ResourceType, fleet: &FleetSnapshot) -> Option<Response> {
        let (transport, nonce) = (self.transport, self.last_nonce + 1);
        self.slot(kind).as_ref()?;
        let of_type = fleet.of_type_for(kind, self.takes_collections);
        let batch = self
            .slot(kind)
            .as_mut()?
            .removals(transport, of_type, nonce)?;
        Some(self.respond(kind, of_type.version(), batch))
    }

    fn respond(
        &mut self,
        kind: ResourceType,
        version: &Arc<str>,
        batch: subscription::Batch,
    ) -> Response {
        Response {
            resources: batch.resources,
            removed: batch.removed,
            is_answer: batch.is_answer,
            lease: self.granted(kind),
            ..self.number(kind, version)
        }
    }

    /// An empty response with the next nonce, noted as sent.
    fn number(&mut self, kind: ResourceType, version: &Arc<str>) -> Response {
        self.last_nonce += 1;
        let nonce = self.last_nonce;
        if kind == ResourceType::LbEndpoint
            && let Some(collections) = &mut self.collections
        {
            collections.sent(nonce, Arc::clone(version));
        } else if let Some(subscription) = self.slot(kind) {
            subscription.acks_mut().sent(nonce, Arc::clone(version));
        }
        Response {
            kind,
            version: Arc::clone(version),
            nonce: nonce.to_string(),
            resources: Vec::new(),
            removed: Vec::new(),
            is_answer: false,
            lease: Lease::None,
        }
    }

    /// A client that says it has a load assignment has forgotten it if the cluster has changed meanwhile (xds.md bug 9):
    /// its word is taken only for clusters that it also says to have. (Of those the ones that have changed are sent, and
    /// take their load assignment along.)
    fn distrust_unproven_assignments(&mut self, kind: ResourceType) {
        if kind != ResourceType::ClusterLoadAssignment {
            return;
        }
        self.doubts_assignments = self.takes_collections;
        let [clusters, assignments, ..] = &mut self.subscriptions;
        if let Some(assignments) = assignments {
            assignments.distrust_claims(|name| {
                clusters
                    .as_ref()
                    .is_some_and(|clusters| clusters.is_claimed(name))
            });
        }
    }

    /// The type that a request is about, if we serve it.
    fn resource_type(&self, type_url: &str) -> Result<Option<ResourceType>, Refusal> {
        let named = ResourceType::from_type_url(type_url);
        let named =
            named.filter(|kind| *kind != ResourceType::LbEndpoint || self.takes_collections);
        match self.only {
            None if type_url.is_empty() => Err(Refusal::EmptyTypeUrl),
            None => Ok(named),
            Some(only) if type_url.is_empty() || named == Some(only) => Ok(Some(only)),
            Some(only) => Err(Refusal::ForeignType(only)),
        }
    }

    fn slot(&mut self, kind: ResourceType) -> &mut Option<Box<Subscription>> {
        let [clusters, assignments, endpoints, listeners, routes] = &mut self.subscriptions;
        match kind {
            ResourceType::Cluster => clusters,
            ResourceType::ClusterLoadAssignment => assignments,
            ResourceType::LbEndpoint => endpoints,
            ResourceType::Listener => listeners,
            ResourceType::RouteConfiguration => routes,
        }
    }
}

/// What a delta request came to that answered this, and changed subscriptions or not.
fn received(
    kind: ResourceType,
    answer: Option<Option<Nack>>,
    changes: bool,
    nonce: &str,
) -> Received {
    match answer {
        Some(Some(nack)) => Received::Nack(kind, nack),
        Some(None) if !changes => Received::Ack(kind),
        None if !changes && !nonce.is_empty() => Received::Stale(kind),
        _ => Received::Subscription(kind),
    }
}
