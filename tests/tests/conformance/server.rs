//! The server's own xDS listener, on a loopback port, fed with snapshots that a test makes.
//!
//! In: resources as `(type, name, revision)`. Out: a [`Server`] whose state a test changes at will. All else is what
//! `vitals serve` runs: [`serve_xds`], streams, codec, gRPC, TCP.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vitals::ads::clients::Clients;
use vitals::app::{bind, serve_xds};
use vitals::metrics::Metrics;
use vitals::model::{Name, NodeMatcher};
use vitals::snapshot::{FleetSnapshot, Resource, ResourceType, Snapshot};
use vitals::transport::{Door, Entrance, Limits, Listening};
use vitals_prober::clock;

use crate::{Cds, Eds, Lds, Leds, Rds};

/// A state of the fleet: what there is, in which revision.
pub(crate) type State<'a> = &'a [(ResourceType, &'a str, u32)];

/// A server with one fleet, to which every node belongs.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) clients: Arc<Clients>,
    metrics: Arc<Metrics>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    /// A server that serves `state`.
    pub(crate) fn start(state: State<'_>) -> Self {
        let server = Self::unsynced();
        server.publish(state);
        server
    }

    /// A server with `--resource-ttl`.
    pub(crate) fn leasing(state: State<'_>, ttl: Duration) -> Self {
        let server = Self::spawn(Some(ttl), Limits::default());
        server.publish(state);
        server
    }

    /// A server that has nothing to serve yet.
    pub(crate) fn unsynced() -> Self {
        Self::spawn(None, Limits::default())
    }

    /// A server that lets peers have so much.
    pub(crate) fn limiting(state: State<'_>, limits: Limits) -> Self {
        let server = Self::spawn(None, limits);
        server.publish(state);
        server
    }

    fn spawn(ttl: Option<Duration>, limits: Limits) -> Self {
        let listener = bind("the test", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (snapshots, snapshots_out) = watch::channel(Arc::new(Snapshot::default()));
        let (stop, stopping) = watch::channel(false);
        let clients = Arc::new(Clients::default());
        let table = Arc::clone(&clients);
        let metrics = Metrics::new();
        let counted = Arc::clone(&metrics);
        // Ends with `stop`.
        let task = tokio::spawn(async move {
            let metrics = counted;
            let entrance = Entrance {
                listener,
                http: Listening::Http2,
                tls: None,
                door: Door::new("xds", limits, Arc::clone(&metrics)),
            };
            let served = serve_xds(entrance, snapshots_out, table, metrics, stopping, ttl);
            served.await.unwrap();
        });
        Self {
            address,
            clients,
            metrics,
            snapshots,
            stop,
            task,
        }
    }

    /// Publishes a state.
    pub(crate) fn publish(&self, state: State<'_>) {
        self.publish_holding(state, &[]);
    }

    /// Publishes a state in which some resources exist and must not be answered yet.
    pub(crate) fn publish_holding(&self, state: State<'_>, held: &[(ResourceType, &str)]) {
        let resources = state
            .iter()
            .map(|&(kind, name, revision)| Arc::new(resource(kind, name, revision)));
        let held: BTreeSet<_> = held
            .iter()
            .map(|&(kind, name)| (kind, Arc::from(name)))
            .collect();
        let fleet = FleetSnapshot::new(
            Name::new("edge").unwrap(),
            NodeMatcher::default(),
            resources,
            held,
        );
        let snapshot = Snapshot::new(vec![Arc::new(fleet.unwrap())], Some(clock::now()));
        self.snapshots.send_replace(Arc::new(snapshot));
    }

    /// Publishes that there is no fleet any more.
    pub(crate) fn publish_no_fleet(&self) {
        let snapshot = Snapshot::new(Vec::new(), Some(clock::now()));
        self.snapshots.send_replace(Arc::new(snapshot));
    }

    /// Whether this line is in the metrics.
    pub(crate) fn counts(&self, line: &str) -> bool {
        let text = self.metrics.encode().unwrap();
        text.lines().any(|has| has == line)
    }

    /// What is served now.
    pub(crate) fn fleet(&self) -> Arc<FleetSnapshot> {
        let snapshot = self.snapshots.borrow();
        Arc::clone(snapshot.fleet(&Name::new("edge").unwrap()).unwrap())
    }

    /// Tells it to stop.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops it, and sees that it ends.
    pub(crate) async fn end(self) {
        self.stop();
        tokio::time::timeout(Duration::from_secs(10), self.task)
            .await
            .expect("the server ends when it is told to")
            .unwrap();
    }
}

/// A resource whose content is `revision`; [`revision_of`] reads it back.
pub(crate) fn resource(kind: ResourceType, name: &str, revision: u32) -> Resource {
    let (text, shared, name) = (
        revision.to_string(),
        Arc::<str>::from(name),
        name.to_owned(),
    );
    match kind {
        Cds => {
            let message = Cluster {
                name,
                alt_stat_name: text,
                ..Cluster::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        Eds => {
            let message = ClusterLoadAssignment {
                cluster_name: name,
                named_endpoints: [(text, Default::default())].into(),
                ..ClusterLoadAssignment::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        Lds => {
            let message = Listener {
                name,
                stat_prefix: text,
                ..Listener::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        Rds => {
            let message = RouteConfiguration {
                name,
                internal_only_headers: vec![text],
                ..RouteConfiguration::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        Leds => unreachable!("no test here has endpoints apart"),
    }
}

/// Name and revision of an encoded resource; an assignment that stands in for none has no revision.
pub(crate) fn revision_of(kind: ResourceType, value: &[u8]) -> (String, Option<u32>) {
    use prost::Message;
    let (name, text) = match kind {
        Cds => {
            let message = Cluster::decode(value).unwrap();
            (message.name, Some(message.alt_stat_name))
        }
        Eds => {
            let message = ClusterLoadAssignment::decode(value).unwrap();
            (
                message.cluster_name,
                message.named_endpoints.into_keys().next(),
            )
        }
        Lds => {
            let message = Listener::decode(value).unwrap();
            (message.name, Some(message.stat_prefix))
        }
        Rds => {
            let message = RouteConfiguration::decode(value).unwrap();
            (
                message.name,
                message.internal_only_headers.into_iter().next(),
            )
        }
        Leds => unreachable!("no test here has endpoints apart"),
    };
    (name, text.map(|text| text.parse().unwrap()))
}

/// The version of a resource.
pub(crate) fn version(kind: ResourceType, name: &str, revision: u32) -> String {
    resource(kind, name, revision).version().to_string()
}
