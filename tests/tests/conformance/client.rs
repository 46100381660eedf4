//! A gRPC client that says on a stream exactly what a test tells it, right or wrong, over any of the four ways to be served.
//!
//! In: names, nonces, versions. Out: requests on the wire; responses as [`Said`], which reads `Cluster +a@1 -b`: the type,
//! what was sent in which revision, what was removed. Every response must be expected: what a test does not take, the next
//! expectation meets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status as RpcStatus;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use vitals::snapshot::ResourceType;

use crate::server::{Server, revision_of, version};
use crate::{Cds, Eds, Lds, Leds, Rds};

/// Long enough for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Long enough for an answer that should not be there; what comes later still than that meets the next expectation.
const QUIET: Duration = Duration::from_millis(100);

/// How a client is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// State of the world, aggregated.
    SotwAds,
    /// State of the world, on the service of the type.
    SotwOwn,
    /// Incremental, aggregated.
    DeltaAds,
    /// Incremental, on the service of the type.
    DeltaOwn,
}

impl Way {
    pub(crate) fn is_sotw(self) -> bool {
        matches!(self, Self::SotwAds | Self::SotwOwn)
    }

    fn is_ads(self) -> bool {
        matches!(self, Self::SotwAds | Self::DeltaAds)
    }

    fn path(self, kind: ResourceType) -> String {
        let (service, of) = match (self.is_ads(), kind) {
            (true, _) => (
                "discovery.v3.AggregatedDiscoveryService",
                "AggregatedResources",
            ),
            (false, Cds) => ("cluster.v3.ClusterDiscoveryService", "Clusters"),
            (false, Eds) => ("endpoint.v3.EndpointDiscoveryService", "Endpoints"),
            (false, Lds) => ("listener.v3.ListenerDiscoveryService", "Listeners"),
            (false, Rds) => ("route.v3.RouteDiscoveryService", "Routes"),
            (false, Leds) => unreachable!("it has no service of its own"),
        };
        let form = if self.is_sotw() { "Stream" } else { "Delta" };
        format!("/envoy.service.{service}/{form}{of}")
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: ResourceType,
    pub(crate) version: String,
    pub(crate) nonce: String,
    /// Revision by name; `None` for an assignment that stands in for none.
    pub(crate) resources: BTreeMap<String, Option<u32>>,
    /// Delta: version by name.
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) removed: BTreeSet<String>,
    /// What came without a body, to be kept for longer.
    pub(crate) renewed: BTreeSet<String>,
    /// TTL by name, in milliseconds; `None`: it came in a `Resource` that has none.
    pub(crate) ttls: BTreeMap<String, Option<u64>>,
}

impl Display for Said {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        for (name, revision) in &self.resources {
            match revision {
                Some(revision) => write!(f, " +{name}@{revision}")?,
                None => write!(f, " +{name}@-")?,
            }
        }
        for name in &self.renewed {
            write!(f, " ~{name}")?;
        }
        self.removed
            .iter()
            .try_for_each(|name| write!(f, " -{name}"))
    }
}

impl Said {
    fn new(type_url: &str, version: String, nonce: String) -> Self {
        Self {
            kind: ResourceType::from_type_url(type_url).expect("a type that we know"),
            version,
            nonce,
            resources: BTreeMap::new(),
            versions: BTreeMap::new(),
            removed: BTreeSet::new(),
            renewed: BTreeSet::new(),
            ttls: BTreeMap::new(),
        }
    }

    fn add_body(&mut self, any: &Any) -> String {
        assert_eq!(
            any.type_url,
            self.kind.type_url(),
            "G1: every Any is of the type"
        );
        let (name, revision) = revision_of(self.kind, &any.value);
        self.resources.insert(name.clone(), revision);
        name
    }

    fn add(&mut self, resource: &Resource) {
        match &resource.resource {
            Some(any) => assert_eq!(self.add_body(any), resource.name),
            None => assert!(self.renewed.insert(resource.name.clone())),
        }
        let ttl = resource.ttl.as_ref().map(|ttl| {
            u64::try_from(ttl.seconds * 1000 + i64::from(ttl.nanos) / 1_000_000).unwrap()
        });
        self.ttls.insert(resource.name.clone(), ttl);
    }
}

impl From<DiscoveryResponse> for Said {
    fn from(response: DiscoveryResponse) -> Self {
        let DiscoveryResponse {
            type_url,
            version_info,
            nonce,
            resources,
            ..
        } = response;
        let mut said = Self::new(&type_url, version_info, nonce);
        for any in &resources {
            said.add_body(any);
        }
        said
    }
}

impl From<DeltaDiscoveryResponse> for Said {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        let DeltaDiscoveryResponse {
            type_url,
            system_version_info,
            nonce,
            resources,
            removed_resources,
            ..
        } = response;
        let mut said = Self::new(&type_url, system_version_info, nonce);
        said.removed = removed_resources.into_iter().collect();
        for resource in &resources {
            said.add(resource);
            said.versions
                .insert(resource.name.clone(), resource.version.clone());
        }
        said
    }
}

enum Wire {
    Sotw(mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>),
    Delta(
        mpsc::Sender<DeltaDiscoveryRequest>,
        Streaming<DeltaDiscoveryResponse>,
    ),
}

/// One stream.
pub(crate) struct Client {
    way: Way,
    kind: ResourceType,
    wire: Wire,
    /// Sent with the next request.
    node: Option<Node>,
    /// By type: the names asked for, and the nonce of the last response.
    asked: BTreeMap<ResourceType, BTreeSet<String>>,
    nonces: BTreeMap<ResourceType, String>,
}

/// A connection, for streams that share one.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

/// A connection on which little fits that is not read.
pub(crate) async fn connect_narrow(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535);
    endpoint.connect().await.unwrap()
}

pub(crate) fn node(id: &str) -> Node {
    Node {
        id: id.into(),
        cluster: "edge".into(),
        ..Node::default()
    }
}

impl Client {
    /// Opens a stream on a connection of its own; `kind` says which service, where each type has its own.
    pub(crate) async fn open(server: &Server, way: Way, kind: ResourceType) -> Self {
        Self::on(connect(server.address).await, way, kind).await
    }

    /// Opens a stream on a connection.
    pub(crate) async fn on(channel: Channel, way: Way, kind: ResourceType) -> Self {
        let wire = if way.is_sotw() {
            let (send, requests) = mpsc::channel(64);
            Wire::Sotw(send, call(channel, way.path(kind), requests).await)
        } else {
            let (send, requests) = mpsc::channel(64);
            Wire::Delta(send, call(channel, way.path(kind), requests).await)
        };
        Self {
            way,
            kind,
            wire,
            node: Some(node("client-1")),
            asked: BTreeMap::new(),
            nonces: BTreeMap::new(),
        }
    }

    /// Changes the node that the next request carries; `None`: it carries none.
    pub(crate) fn set_node(&mut self, node: Option<Node>) {
        self.node = node;
    }

    /// The type URL of a request: implied where the service says it.
    fn type_url(&self, kind: ResourceType) -> String {
        match self.way.is_ads() {
            true => kind.type_url().into(),
            false => {
                assert_eq!(kind, self.kind, "a stream of one type");
                String::new()
            }
        }
    }

    /// Sends a SotW request as it is, with the node if that is still due.
    pub(crate) async fn send_sotw(&mut self, mut request: DiscoveryRequest) {
        request.node = self.node.take();
        let Wire::Sotw(requests, _) = &self.wire else {
            panic!("a SotW request on a delta stream")
        };
        requests.send(request).await.unwrap();
    }

    /// Sends a delta request as it is, with the node if that is still due.
    pub(crate) async fn send_delta(&mut self, mut request: DeltaDiscoveryRequest) {
        request.node = self.node.take();
        let Wire::Delta(requests, _) = &self.wire else {
            panic!("a delta request on a SotW stream")
        };
        requests.send(request).await.unwrap();
    }

    /// A SotW request with a nonce.
    pub(crate) async fn ask(&mut self, kind: ResourceType, names: &[&str], nonce: &str) {
        let request = DiscoveryRequest {
            type_url: self.type_url(kind),
            resource_names: strings(names),
            response_nonce: nonce.into(),
            ..DiscoveryRequest::default()
        };
        self.send_sotw(request).await;
    }

    /// A delta request with a nonce.
    pub(crate) async fn change(
        &mut self,
        kind: ResourceType,
        subscribe: &[&str],
        unsubscribe: &[&str],
        nonce: &str,
    ) {
        let request = DeltaDiscoveryRequest {
            type_url: self.type_url(kind),
            resource_names_subscribe: strings(subscribe),
            resource_names_unsubscribe: strings(unsubscribe),
            response_nonce: nonce.into(),
            ..DeltaDiscoveryRequest::default()
        };
        self.send_delta(request).await;
    }

    /// The first delta request of a type on a new stream, by a client that has something.
    pub(crate) async fn resume(&mut self, kind: ResourceType, names: &[&str], has: &[(&str, u32)]) {
        let has = has
            .iter()
            .map(|&(name, revision)| (name.to_owned(), version(kind, name, revision)));
        let request = DeltaDiscoveryRequest {
            type_url: self.type_url(kind),
            resource_names_subscribe: strings(names),
            initial_resource_versions: has.collect(),
            ..DeltaDiscoveryRequest::default()
        };
        self.asked.insert(kind, set(names));
        self.send_delta(request).await;
    }

    /// Wants exactly these names from now on, said as the transport says it. None at first, of clusters or listeners:
    /// everything.
    pub(crate) async fn want(&mut self, kind: ResourceType, names: &[&str]) {
        let new = set(names);
        let old = self.asked.insert(kind, new.clone()).unwrap_or_default();
        if self.way.is_sotw() {
            let nonce = self.nonces.get(&kind).cloned().unwrap_or_default();
            self.ask(kind, names, &nonce).await;
            return;
        }
        let added: Vec<&str> = new.difference(&old).map(String::as_str).collect();
        let given_up: Vec<&str> = old.difference(&new).map(String::as_str).collect();
        self.change(kind, &added, &given_up, "").await;
    }

    /// Asks for these names: in SotW for no others, in delta also for them.
    pub(crate) async fn change_or_ask(&mut self, kind: ResourceType, names: &[&str]) {
        match self.way.is_sotw() {
            true => self.ask(kind, names, "").await,
            false => self.change(kind, names, &[], "").await,
        }
    }

    /// Lets some time pass without a look at what comes.
    pub(crate) async fn silent_unread(&self) {
        tokio::time::sleep(QUIET).await;
    }

    /// The end of the stream, whatever comes before.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.try_next().await {
                return status;
            }
        }
    }

    /// Says its last word: the request side ends, the other stays open.
    pub(crate) fn finish(&mut self) {
        match &mut self.wire {
            Wire::Sotw(requests, _) => *requests = mpsc::channel(1).0,
            Wire::Delta(requests, _) => *requests = mpsc::channel(1).0,
        }
    }

    /// Takes what was said.
    pub(crate) async fn ack(&mut self, said: &Said) {
        self.answer(said, None).await;
    }

    /// Refuses what was said.
    pub(crate) async fn nack(&mut self, said: &Said, message: &str) {
        let error = RpcStatus {
            code: 3,
            message: message.into(),
            ..RpcStatus::default()
        };
        self.answer(said, Some(error)).await;
    }

    async fn answer(&mut self, said: &Said, error_detail: Option<RpcStatus>) {
        let names = self.asked.get(&said.kind).cloned().unwrap_or_default();
        let (type_url, response_nonce) = (self.type_url(said.kind), said.nonce.clone());
        if self.way.is_sotw() {
            let version_info = match error_detail {
                None => said.version.clone(),
                Some(_) => String::new(),
            };
            let request = DiscoveryRequest {
                type_url,
                response_nonce,
                error_detail,
                version_info,
                resource_names: names.into_iter().collect(),
                ..DiscoveryRequest::default()
            };
            self.send_sotw(request).await;
        } else {
            let request = DeltaDiscoveryRequest {
                type_url,
                response_nonce,
                error_detail,
                ..DeltaDiscoveryRequest::default()
            };
            self.send_delta(request).await;
        }
    }

    async fn receive(&mut self) -> Result<Said, Status> {
        let said = match &mut self.wire {
            Wire::Sotw(_, responses) => responses.message().await?.map(Said::from),
            Wire::Delta(_, responses) => responses.message().await?.map(Said::from),
        };
        let said = said.ok_or_else(|| Status::ok("the stream has ended"))?;
        self.nonces.insert(said.kind, said.nonce.clone());
        Ok(said)
    }

    /// The next response, or the end.
    pub(crate) async fn try_next(&mut self) -> Result<Said, Status> {
        let next = tokio::time::timeout(PATIENCE, self.receive()).await;
        next.expect("something comes on the stream")
    }

    /// The next response, if there is one within so many milliseconds. A time-out that elapses loses nothing: what is partly
    /// read stays with the stream.
    pub(crate) async fn soon(&mut self, ms: u64) -> Option<Said> {
        let next = tokio::time::timeout(Duration::from_millis(ms), self.receive()).await;
        next.ok().map(|said| said.expect("a response"))
    }

    /// The next response.
    pub(crate) async fn next(&mut self) -> Said {
        self.try_next().await.expect("a response")
    }

    /// The next response is this; it is not answered.
    #[track_caller]
    pub(crate) fn says(&mut self, expected: &str) -> impl Future<Output = Said> {
        let place = std::panic::Location::caller();
        async move {
            let said = self.next().await;
            assert_eq!(said.to_string(), expected, "at {place}");
            said
        }
    }

    /// The next response is this, and is acknowledged.
    #[track_caller]
    pub(crate) fn takes(&mut self, expected: &str) -> impl Future<Output = Said> {
        let place = std::panic::Location::caller();
        async move {
            let said = self.next().await;
            assert_eq!(said.to_string(), expected, "at {place}");
            self.ack(&said).await;
            said
        }
    }

    /// Nothing comes.
    #[track_caller]
    pub(crate) fn silent(&mut self) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            if let Ok(came) = tokio::time::timeout(QUIET, self.receive()).await {
                let what = came.map(|said| said.to_string());
                panic!("nothing should come, at {place}; it is {what:?}");
            }
        }
    }

    /// The stream ends with this code; returns why.
    pub(crate) async fn ends(&mut self, code: Code) -> String {
        match self.try_next().await {
            Err(status) if status.code() == code => status.message().to_owned(),
            other => panic!("should end with {code:?}; it is {other:?}"),
        }
    }

    /// Whether these names are others than those asked for last.
    pub(crate) fn asks_for(&self, kind: ResourceType, names: &[&str]) -> bool {
        self.asked
            .get(&kind)
            .map_or(!names.is_empty(), |asked| *asked != set(names))
    }

    pub(crate) fn is_sotw(&self) -> bool {
        self.way.is_sotw()
    }
}

async fn call<Q, A>(channel: Channel, path: String, requests: mpsc::Receiver<Q>) -> Streaming<A>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(path).unwrap();
    let request = Request::new(ReceiverStream::new(requests));
    let codec = ProstCodec::<Q, A>::default();
    grpc.streaming(request, path, codec)
        .await
        .unwrap()
        .into_inner()
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.into()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.into()).collect()
}
