//! ADS over gRPC: one task per stream that carries requests into a [`Stream`] and its responses out.
//!
//! In: gRPC streams, the newest [`Snapshot`]. Out: responses, the table of clients, logs. A response is made only when
//! the transport can take it (one slot), so a client that does not read costs one response and delays nobody.
//!
//! Not here: what is sent and when (`stream`), and listening (`app`).

pub mod admission;
mod body;
pub mod clients;
pub mod codec;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf::value::Kind;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;
use vitals_prober::clock;

use self::admission::{Admission, Entry};
use self::body::Travelling;
pub use self::body::put_in_place;
use self::clients::{ClientHandle, Clients};
use self::codec::{Form, Outgoing};
use crate::metrics::Metrics;
use crate::snapshot::{FleetSnapshot, Snapshot};
use crate::stream::{Received, Refusal, Stream, Transport};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    include!(concat!(
        env!("OUT_DIR"),
        "/envoy.service.discovery.v3.AggregatedDiscoveryService.rs"
    ));
}

use generated::aggregated_discovery_service_server::AggregatedDiscoveryService;
pub use generated::aggregated_discovery_service_server::AggregatedDiscoveryServiceServer;

/// The largest request that is read, in bytes: 262,144 names, or versions of as many resources, fit; a client that sends
/// more is refused with OUT_OF_RANGE before it is decoded.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// What an Envoy calls itself. Only Envoys are given endpoints apart from their load assignment (LEDS).
const ENVOY: &str = "envoy";

/// The ADS service.
#[derive(Clone, Debug)]
pub struct Ads {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    clients: Arc<Clients>,
    metrics: Arc<Metrics>,
    admission: Admission,
    /// Turns true when the server stops: every stream then ends.
    stopping: watch::Receiver<bool>,
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
        }
    }

    fn start<R: DiscoveryMessage>(
        &self,
        request: Request<Streaming<R>>,
    ) -> Response<ReceiverStream<Result<Outgoing, Status>>> {
        let (peer, inbound) = (request.remote_addr(), request.into_inner());
        // One slot: what does not fit is made later, out of newer state.
        let (outbound, responses) = mpsc::channel(1);
        let connection = Connection {
            stream: Stream::new(R::TRANSPORT),
            node: None,
            client: self.clients.connect(R::TRANSPORT, peer),
            opened_at: clock::now(),
            asked_for: [false; 5],
            metrics: Arc::clone(&self.metrics),
        };
        let span = tracing::info_span!(
            "ads_stream",
            stream = connection.client.id(),
            transport = R::TRANSPORT.as_str(),
            node_id = tracing::field::Empty
        );
        let (admission, snapshots, stopping, guard) = (
            self.admission.clone(),
            self.snapshots.clone(),
            self.stopping.clone(),
            self.metrics.stream(R::TRANSPORT),
        );
        // Ends with the client's stream, at the latest when `stopping` turns true; `run` says how.
        tokio::spawn(
            async move {
                let _guard = guard;
                if let Err(status) = connection
                    .run(inbound, &outbound, admission, snapshots, stopping)
                    .await
                {
                    // The client may be gone already; then there is nobody to tell.
                    drop(outbound.send(Err(status)).await);
                }
            }
            .instrument(span),
        );
        // The body that tonic makes of an empty stream is replaced by this one.
        let mut response = Response::new(ReceiverStream::new(mpsc::channel(1).1));
        response
            .extensions_mut()
            .insert(Travelling::new::<R::Form>(responses));
        response
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<Outgoing, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<Outgoing, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Ok(self.start(request))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Ok(self.start(request))
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

/// What a stream needs to know of its node. Envoy's node message can be large; this is kept as long as the stream.
#[derive(Debug)]
struct NodeIdentity {
    id: String,
    cluster: String,
    metadata: HashMap<String, String>,
}

impl NodeIdentity {
    fn new(node: Node) -> Self {
        let fields = node
            .metadata
            .map(|metadata| metadata.fields)
            .unwrap_or_default();
        let strings = fields
            .into_iter()
            .filter_map(|(key, value)| match value.kind {
                Some(Kind::StringValue(text)) => Some((key, text)),
                _ => None,
            });
        Self {
            id: node.id,
            cluster: node.cluster,
            metadata: strings.collect(),
        }
    }

    fn fleet<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Arc<FleetSnapshot>> {
        snapshot.fleet_of(&self.id, &self.cluster, |key| {
            self.metadata.get(key).map(String::as_str)
        })
    }

    fn no_fleet(&self) -> Status {
        tracing::warn!(
            node_id = self.id,
            node_cluster = self.cluster,
            "no fleet matches this node; its stream is refused"
        );
        Status::not_found(format!(
            "no fleet matches node id {:?}, cluster {:?}; see fleets[].match in the server's configuration",
            self.id, self.cluster
        ))
    }
}

/// One stream, connected.
struct Connection {
    stream: Stream,
    node: Option<NodeIdentity>,
    client: ClientHandle,
    /// What was caused before the stream opened is news only to this client, and no latency of ours.
    opened_at: Instant,
    /// The types of which it has got, or waits for, the first resources.
    asked_for: [bool; 5],
    metrics: Arc<Metrics>,
}

impl Connection {
    /// Serves the stream. Ends well when the client ends it; with a status when the client did wrong, no fleet matches
    /// (any more), or the server stops.
    async fn run<R: DiscoveryMessage>(
        mut self,
        mut inbound: Streaming<R>,
        outbound: &mpsc::Sender<Result<Outgoing, Status>>,
        admission: Admission,
        mut snapshots: watch::Receiver<Arc<Snapshot>>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), Status> {
        // Whether the client may lack something.
        let mut behind = false;
        let mut entry = Entry::default();
        // Once for the whole stream: each begins and ends with an entry in a list that all streams share.
        let (stopped, closed) = (stopping.wait_for(|stopping| *stopping), outbound.closed());
        tokio::pin!(stopped, closed);
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => {
                    return Err(Status::unavailable("the server is stopping; reconnect"));
                }
                request = inbound.message() => match request {
                    Ok(Some(request)) => {
                        // A clone: the request may be long in the taking, and the publisher must not wait for the lock.
                        let snapshot = Arc::clone(&snapshots.borrow());
                        if self.on_request(request, &snapshot)? {
                            entry.ask(&admission);
                        }
                        behind = true;
                    }
                    Ok(None) => return Ok(()),
                    Err(status) => {
                        tracing::debug!(%status, "the stream broke");
                        return Err(status);
                    }
                },
                changed = snapshots.changed() => {
                    if changed.is_err() {
                        return Err(Status::unavailable("the server is stopping; reconnect"));
                    }
                    behind = self.node.is_some();
                }
                () = entry.turn(), if !matches!(entry, Entry::Outside) => {}
                slot = outbound.reserve(), if behind && !entry.is_waiting() => {
                    let Ok(slot) = slot else { return Ok(()) };
                    let snapshot = Arc::clone(&snapshots.borrow_and_update());
                    match self.next(&snapshot)? {
                        Some(outgoing) => slot.send(Ok(outgoing)),
                        None => {
                            behind = false;
                            entry.leave();
                        }
                    }
                }
                () = &mut closed => return Ok(()),
            }
        }
    }

    /// Says whether it is the first subscription to a type.
    fn on_request<R: DiscoveryMessage>(
        &mut self,
        mut request: R,
        snapshot: &Snapshot,
    ) -> Result<bool, Status> {
        self.identify(request.take_node(), snapshot)?;
        tracing::trace!(type_url = request.type_url(), "request");
        let mut is_first = false;
        match request.feed(&mut self.stream) {
            Ok(Received::UnknownType(type_url)) => {
                let shown: String = type_url.chars().take(200).collect();
                tracing::warn!(
                    type_url = shown,
                    "the client asks for a type that is not served; it gets no answer"
                );
            }
            Ok(Received::Nack(kind, nack)) => {
                self.metrics.nack(kind);
                tracing::warn!(
                    r#type = kind.as_str(), version = %nack.version, detail = nack.message,
                    "the client refuses what it was sent"
                );
            }
            Ok(Received::Stale(kind)) => {
                tracing::debug!(r#type = kind.as_str(), "a request with a stale nonce")
            }
            Ok(Received::Subscription(kind)) => {
                let asked = self.asked_for.get_mut(kind.index());
                is_first = asked.is_some_and(|asked| !std::mem::replace(asked, true));
            }
            Ok(Received::Ack(_)) => {}
            Err(refusal @ Refusal::EmptyTypeUrl) => {
                return Err(Status::invalid_argument(refusal.to_string()));
            }
            Err(refusal @ Refusal::TooManyNames) => {
                tracing::warn!(%refusal, "the stream is refused");
                return Err(Status::resource_exhausted(refusal.to_string()));
            }
        }
        self.client.set_types(self.stream.status());
        Ok(is_first)
    }

    /// The node comes with the first request, and counts for the whole stream (`set_node_on_first_message_only`).
    fn identify(&mut self, node: Option<Node>, snapshot: &Snapshot) -> Result<(), Status> {
        if self.node.is_some() {
            return Ok(());
        }
        let Some(node) = node else {
            return Err(Status::invalid_argument(
                "the first request on a stream must have a node",
            ));
        };
        let user_agent = user_agent(&node);
        if node.user_agent_name == ENVOY {
            self.stream.take_collections();
        }
        let node = NodeIdentity::new(node);
        tracing::Span::current().record("node_id", &*node.id);
        let fleet = node.fleet(snapshot).ok_or_else(|| node.no_fleet())?;
        tracing::info!(fleet = %fleet.name(), node_cluster = node.cluster, user_agent, "client connected");
        self.client
            .set_node(&node.id, &node.cluster, fleet.name(), user_agent);
        self.node = Some(node);
        Ok(())
    }

    fn next(&mut self, snapshot: &Snapshot) -> Result<Option<Outgoing>, Status> {
        let Some(node) = &self.node else {
            return Ok(None);
        };
        let fleet = node.fleet(snapshot).ok_or_else(|| node.no_fleet())?;
        self.client.set_fleet(fleet.name());
        let Some(response) = self.stream.next(fleet) else {
            return Ok(None);
        };
        tracing::debug!(
            r#type = response.kind.as_str(), version = %response.version, nonce = response.nonce,
            resources = response.resources.len(), removed = response.removed.len(), "response"
        );
        self.metrics.push(response.kind);
        self.client.set_types(self.stream.status());
        let caused_at = snapshot
            .caused_at()
            .filter(|at| !response.is_answer && *at > self.opened_at);
        Ok(Some(Outgoing {
            response,
            caused_at,
            metrics: Arc::clone(&self.metrics),
        }))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.node.is_some() {
            tracing::info!("client disconnected");
        }
    }
}

fn user_agent(node: &Node) -> String {
    use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
    let version = match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
            build.version.as_ref().map_or_else(String::new, |version| {
                format!(
                    "{}.{}.{}",
                    version.major_number, version.minor_number, version.patch
                )
            })
        }
        None => String::new(),
    };
    let text = format!("{} {version}", node.user_agent_name);
    text.trim().chars().take(128).collect()
}
