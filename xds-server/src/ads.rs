//! Discovery over gRPC: one task per stream that carries requests into a [`Stream`] and its responses out.
//!
//! In: gRPC streams, the newest [`Snapshot`]. Out: responses, the table of clients, logs. A response is made only when
//! the transport can take it (one slot), so a client that does not read costs one response and delays nobody.
//!
//! Not here: what is sent and when (`stream`), and listening (`app`).

pub mod admission;
mod body;
pub mod clients;
pub mod codec;
mod connection;
pub(crate) mod converse;
mod guest;
mod health;
mod node;
mod places;
pub(crate) mod reflection;
mod services;

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;
use vitals_prober::clock;

use self::admission::Admission;
use self::body::Travelling;
pub use self::body::put_in_place;
use self::clients::Clients;
use self::codec::Form;
use self::connection::Connection;
use self::guest::Guest;
use self::services::Responses;
use crate::metrics::Metrics;
use crate::snapshot::{ResourceType, Snapshot};
use crate::stream::{Received, Refusal, Stream, Transport};

pub use self::places::Places;
pub use self::services::routes;

/// The largest request that is read, in bytes: 262,144 names, or versions of as many resources, fit; a client that sends
/// more is refused with OUT_OF_RANGE before it is decoded.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// What serves every discovery stream, aggregated or of one type.
#[derive(Clone, Debug)]
pub struct Ads {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    clients: Arc<Clients>,
    metrics: Arc<Metrics>,
    admission: Admission,
    /// Turns true when the server stops: every stream then ends.
    stopping: watch::Receiver<bool>,
    /// `--resource-ttl`
    resource_ttl: Option<Duration>,
}

impl Ads {
    /// A service that serves the newest of `snapshots` until `stopping` turns true.
    #[must_use]
    pub fn new(
        snapshots: watch::Receiver<Arc<Snapshot>>,
        clients: Arc<Clients>,
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            snapshots,
            clients,
            metrics,
            admission: Admission::new(admission::PLACES),
            stopping,
            resource_ttl: None,
        }
    }

    /// Has clients that understand it forget what they were sent when they have heard nothing for so long.
    #[must_use]
    pub fn with_resource_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.resource_ttl = ttl;
        self
    }

    fn start<R: DiscoveryMessage>(
        &self,
        request: Request<Streaming<R>>,
        only: Option<ResourceType>,
    ) -> Result<Response<Responses>, Status> {
        let guest = Guest::enter(request.extensions(), Arc::clone(&self.metrics));
        let inbound = request.into_inner();
        // One slot: what does not fit is made later, out of newer state.
        let (outbound, responses) = mpsc::channel(1);
        let stream = only.map_or_else(
            || Stream::new(R::TRANSPORT),
            |kind| Stream::of_type(R::TRANSPORT, kind),
        );
        let client = self.clients.connect(R::TRANSPORT, only, guest.address());
        let id = client.id();
        let connection = Connection::new(stream, guest, client, &self.metrics, self.resource_ttl);
        let span = tracing::info_span!(
            "ads_stream",
            stream = id,
            transport = R::TRANSPORT.as_str(),
            service = only.map_or("ADS", ResourceType::service),
            node_id = tracing::field::Empty
        );
        let run = connection.run(
            inbound,
            outbound,
            self.admission.clone(),
            self.snapshots.clone(),
            self.stopping.clone(),
        );
        // Ends with the client's stream, at the latest when `stopping` turns true; `run` says how.
        tokio::spawn(run.instrument(span));
        // The body that tonic makes of an empty stream is replaced by this one.
        let mut response = Response::new(tokio_stream::empty());
        response
            .extensions_mut()
            .insert(Travelling::new::<R::Form>(responses));
        Ok(response)
    }
}

/// What the two request types have in common.
trait DiscoveryMessage: Send + 'static {
    const TRANSPORT: Transport;
    /// How its responses are written.
    type Form: Form;
    fn take_node(&mut self) -> Option<Node>;
    fn type_url(&self) -> &str;
    fn feed(self, stream: &mut Stream) -> Result<Received, Refusal>;
}

impl DiscoveryMessage for DiscoveryRequest {
    const TRANSPORT: Transport = Transport::Sotw;
    type Form = codec::Sotw;

    fn take_node(&mut self) -> Option<Node> {
        self.node.take()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn feed(self, stream: &mut Stream) -> Result<Received, Refusal> {
        stream.on_sotw(self, clock::wall())
    }
}

impl DiscoveryMessage for DeltaDiscoveryRequest {
    const TRANSPORT: Transport = Transport::Delta;
    type Form = codec::Delta;

    fn take_node(&mut self) -> Option<Node> {
        self.node.take()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn feed(self, stream: &mut Stream) -> Result<Received, Refusal> {
        stream.on_delta(self, clock::wall())
    }
}
