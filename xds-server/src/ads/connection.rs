//! One stream's task: requests into the state machine, its responses out.
//!
//! In: requests, the newest snapshot, a place in the crowd of those who come at once, the ends of connection and server.
//! Out: responses, the client's row, logs. Everything that it waits for is registered once for the whole stream where that
//! can be: the lists behind it are shared by all streams.
//!
//! Not here: what is sent and when (`stream`), and how it is written (`codec`, `body`).

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, Sleep, sleep};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;
use tonic::{Code, Status, Streaming};
use vitals_prober::clock;

use super::DiscoveryMessage;
use super::admission::{Admission, Entry};
use super::body::Item;
use super::clients::ClientHandle;
use super::codec::Outgoing;
use super::guest::Guest;
use super::node::{NodeIdentity, user_agent};
use crate::metrics::connections::Refused;
use crate::metrics::{Metrics, StreamGuard};
use crate::snapshot::{ResourceType, Snapshot};
use crate::stream::{Lease, Received, Refusal, Stream, Transport};
use crate::transport::Lines;

/// Heartbeats within a TTL: two may be lost.
const BEATS_PER_TTL: u32 = 3;

/// What an Envoy calls itself. Only Envoys are given endpoints apart from their load assignment (LEDS).
const ENVOY: &str = "envoy";

/// How long a client that has said its last word is still served what is due to it: long enough to wait for its turn in a
/// crowd, and bounded, because it may never read.
const AFTER_LAST_WORD: Duration = Duration::from_secs(10);

/// One stream, connected.
pub(super) struct Connection {
    stream: Stream,
    node: Option<NodeIdentity>,
    /// Who makes the stream, and what it may.
    guest: Guest,
    client: ClientHandle,
    /// What was caused before the stream opened is news only to this client, and no latency of ours.
    opened_at: Instant,
    /// The types of which it has got, or waits for, the first resources.
    asked_for: [bool; 5],
    metrics: Arc<Metrics>,
    _counted: StreamGuard,
    resource_ttl: Option<Duration>,
    /// Ticks when heartbeats are due; `None` where there are no leases.
    heartbeat: Option<Interval>,
    /// Whether the log says that it has come.
    is_logged: bool,
    /// Why it ends, for the log.
    why: Cow<'static, str>,
}

/// How a stream ends well.
type Ended = &'static str;

/// The client has cancelled it, or its connection has broken.
const GONE: Ended = "the client is gone";

/// What a request means for what is to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The first subscription to a type.
    Newcomer,
    /// Something that may need a response.
    Question,
    /// An answer, after which nothing is to be sent that was not before.
    Answer,
}

impl Connection {
    /// A stream on which nothing was said yet.
    pub(super) fn new(
        stream: Stream,
        guest: Guest,
        client: ClientHandle,
        metrics: &Arc<Metrics>,
        resource_ttl: Option<Duration>,
    ) -> Self {
        Self {
            _counted: metrics.stream(stream.transport()),
            stream,
            node: None,
            guest,
            client,
            opened_at: clock::now(),
            asked_for: [false; 5],
            metrics: Arc::clone(metrics),
            resource_ttl,
            heartbeat: None,
            is_logged: false,
            // What is true when nobody says otherwise: its task is dropped with the runtime.
            why: "the server has stopped".into(),
        }
    }

    /// Serves the stream to its end, and tells the client why if it is not the client's own.
    pub(super) async fn run<R: DiscoveryMessage>(
        mut self,
        mut inbound: Streaming<R>,
        outbound: mpsc::Sender<Item>,
        admission: Admission,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        stopping: watch::Receiver<bool>,
    ) {
        let served = self.serve(&mut inbound, &outbound, &admission, snapshots, stopping);
        match served.await {
            Ok(why) => self.why = why.into(),
            Err(status) => {
                self.why = status.message().to_owned().into();
                // It is no client any more, however long it takes to read that: no row, and nothing waits for it.
                drop(self);
                // It may be gone already; then there is nobody to tell.
                drop(outbound.send(Box::new(Err(status))).await);
            }
        }
    }

    /// Ends well when the client ends the stream, once it has what is due to it; with a status when the client did wrong, no
    /// fleet matches (any more) or admits it, its connection is to end, or the server stops.
    async fn serve<R: DiscoveryMessage>(
        &mut self,
        inbound: &mut Streaming<R>,
        outbound: &mpsc::Sender<Item>,
        admission: &Admission,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<Ended, Status> {
        // Whether the client may lack something.
        let mut behind = false;
        // When it has said its last word: until then it is served what it has asked for.
        let mut last_word: Option<Pin<Box<Sleep>>> = None;
        let mut entry = Entry::default();
        let mut changes = WatchStream::from_changes(snapshots.clone());
        let (stopped, closed) = (stopping.wait_for(|stopping| *stopping), outbound.closed());
        let ending = self.guest.ending();
        tokio::pin!(stopped, closed, ending);
        loop {
            if last_word.is_some() && !behind {
                return Ok("the client has ended it");
            }
            tokio::select! {
                biased;
                _ = &mut stopped => {
                    return Err(Status::unavailable("the server is stopping; reconnect"));
                }
                why = &mut ending => return Err(Status::unavailable(why)),
                status = self.guest.turn(self.node.is_some()), if self.guest.is_timed(self.node.is_some()) => {
                    if let Some(status) = status {
                        return Err(status);
                    }
                }
                request = inbound.message(), if last_word.is_none() && self.guest.may_ask() => match request {
                    Ok(Some(request)) => {
                        // A clone: the request may be long in the taking, and the publisher must not wait for the lock.
                        let snapshot = Arc::clone(&snapshots.borrow());
                        self.guest.has_asked();
                        let heard = self.on_request(request, &snapshot)?;
                        if heard == Heard::Newcomer {
                            entry.ask(admission);
                        }
                        behind |= heard != Heard::Answer;
                    }
                    Ok(None) => last_word = Some(Box::pin(sleep(AFTER_LAST_WORD))),
                    Err(status) if status.code() == Code::OutOfRange => {
                        self.guest.refuse(Refused::Size, status.message());
                        return Err(status);
                    }
                    Err(status) => {
                        tracing::debug!(%status, "the stream broke");
                        return Err(status);
                    }
                },
                changed = changes.next() => {
                    if changed.is_none() {
                        return Err(Status::unavailable("the server is stopping; reconnect"));
                    }
                    behind = self.node.is_some();
                }
                () = tick(self.heartbeat.as_mut()) => {
                    self.stream.beat();
                    behind = true;
                }
                () = lapse(last_word.as_mut()), if last_word.is_some() => {
                    return Ok("the client has ended its side, and does not read");
                }
                () = entry.turn(), if !matches!(entry, Entry::Outside) => {}
                slot = outbound.reserve(), if behind && !entry.is_waiting() => {
                    let Ok(slot) = slot else { return Ok(GONE) };
                    // The newest, also if its change was not heard of yet.
                    let snapshot = Arc::clone(&snapshots.borrow());
                    match self.next(&snapshot)? {
                        Some(outgoing) => slot.send(Box::new(Ok(outgoing))),
                        None => {
                            behind = false;
                            entry.leave();
                        }
                    }
                }
                () = &mut closed => return Ok(GONE),
            }
        }
    }

    fn on_request<R: DiscoveryMessage>(
        &mut self,
        mut request: R,
        snapshot: &Snapshot,
    ) -> Result<Heard, Status> {
        self.identify(request.take_node(), snapshot)?;
        tracing::trace!(type_url = request.type_url(), "request");
        let withheld = self.stream.waits_for_answers();
        let (kind, heard) = match request.feed(&mut self.stream) {
            Ok(Received::UnknownType(type_url)) => {
                if let Some(left_out) = self.guest.line(Lines::Complaints) {
                    let shown: String = type_url.chars().take(200).collect();
                    tracing::warn!(
                        type_url = shown,
                        left_out,
                        "the client asks for a type that is not served; it gets no answer"
                    );
                }
                return Ok(Heard::Answer);
            }
            Ok(Received::Nack(kind, nack)) => {
                self.metrics.nack(kind);
                if let Some(left_out) = self.guest.line(Lines::Complaints) {
                    tracing::warn!(
                        r#type = kind.as_str(), version = %nack.version, resources = ?nack.resources, detail = nack.message,
                        left_out, "the client refuses what it was sent"
                    );
                }
                (kind, Heard::Question)
            }
            Ok(Received::Stale(kind)) => {
                tracing::debug!(r#type = kind.as_str(), "a request with a stale nonce");
                (kind, Heard::Question)
            }
            Ok(Received::Subscription(kind)) => {
                let asked = self.asked_for.get_mut(kind.index());
                let first = asked.is_some_and(|asked| !std::mem::replace(asked, true));
                (
                    kind,
                    if first {
                        Heard::Newcomer
                    } else {
                        Heard::Question
                    },
                )
            }
            Ok(Received::Ack(kind)) if withheld => (kind, Heard::Question),
            Ok(Received::Ack(kind)) => (kind, Heard::Answer),
            Err(refusal @ (Refusal::EmptyTypeUrl | Refusal::ForeignType(_))) => {
                return Err(Status::invalid_argument(refusal.to_string()));
            }
            Err(refusal @ Refusal::TooManyNames) => {
                self.guest.refuse(Refused::Names, &refusal.to_string());
                return Err(Status::resource_exhausted(refusal.to_string()));
            }
        };
        self.note_status(kind);
        Ok(heard)
    }

    fn note_status(&mut self, kind: ResourceType) {
        if let Some(status) = self.stream.status(kind) {
            self.client.set_type(kind, status);
        }
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
        let leases = understands_leases(&node, self.stream.transport());
        let node = NodeIdentity::new(node).map_err(|error| {
            self.guest.refuse(Refused::Size, &error.to_string());
            Status::invalid_argument(error.to_string())
        })?;
        tracing::Span::current().record("node_id", &*node.id);
        let fleet = (node.fleet(snapshot)).ok_or_else(|| self.guest.without_fleet(&node))?;
        self.guest.admit(fleet, &node.id, &node.cluster)?;
        if let Some(left_out) = self.guest.line(Lines::Comings) {
            self.is_logged = true;
            tracing::info!(fleet = %fleet.name(), node_cluster = node.cluster, user_agent, left_out, "client connected");
        }
        self.client
            .set_node(&node.id, &node.cluster, fleet.name(), user_agent);
        self.node = Some(node);
        if leases {
            self.stream.lease(self.resource_ttl);
            self.heartbeat = self.resource_ttl.map(|ttl| {
                let period = (ttl / BEATS_PER_TTL).max(Duration::from_millis(1));
                let mut beats =
                    tokio::time::interval_at(tokio::time::Instant::now() + period, period);
                beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
                beats
            });
        }
        Ok(())
    }

    fn next(&mut self, snapshot: &Snapshot) -> Result<Option<Outgoing>, Status> {
        let Some(node) = &self.node else {
            return Ok(None);
        };
        let fleet = (node.fleet(snapshot)).ok_or_else(|| self.guest.without_fleet(node))?;
        self.guest.admit(fleet, &node.id, &node.cluster)?;
        self.client.set_fleet(fleet.name());
        let Some(response) = self.stream.next(fleet) else {
            self.client.set_caught_up(fleet);
            return Ok(None);
        };
        tracing::debug!(
            r#type = response.kind.as_str(), version = %response.version, nonce = response.nonce,
            resources = response.resources.len(), removed = response.removed.len(), "response"
        );
        if !matches!(response.lease, Lease::Renewed(_)) {
            self.metrics.push(response.kind);
        }
        self.note_status(response.kind);
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
        if self.is_logged {
            tracing::info!(why = &*self.why, "client disconnected");
        }
    }
}

/// Whether a client that says it understands TTLs is served so that it may be given some (`stream::Lease` says why not all).
fn understands_leases(node: &Node, transport: Transport) -> bool {
    let mut features = node.client_features.iter();
    transport == Transport::Delta
        && features.any(|feature| feature == "xds.config.supports-resource-ttl")
}

async fn lapse(time: Option<&mut Pin<Box<Sleep>>>) {
    match time {
        Some(time) => time.await,
        None => std::future::pending().await,
    }
}

async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}
