//! Clients that no client should be: each is refused or ignored, the log's and table's words aside, and nobody else notices.
//!
//! Those that ask too often, never read, vanish or hang in a handshake meet a whole server in the scenarios
//! (`hostile_xds`, `trust_hostile`); a random walk of requests is in the stream's own tests and its fuzz target.

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

use crate::client::{Client, Way, connect, connect_narrow, node};
use crate::rules::eventually;
use crate::server::Server;
use crate::{Cds, Eds, on_every_way, run};

on_every_way!(
    a_million_names_end_the_stream_and_nobody_else_s,
    a_refusal_that_is_said_again_and_again_is_answered_with_silence,
    a_node_that_changes_on_the_way_changes_nothing,
    a_node_with_a_name_without_end_is_refused_and_not_repeated,
    a_client_that_was_refused_and_does_not_read_is_none_any_more,
);

/// So many names as no fleet has; a name takes 11 bytes on the wire.
const MILLION: usize = 1_000_000;

/// A client that has assignment `a`.
async fn watching(server: &Server, way: Way) -> Client {
    let mut client = Client::open(server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    client.takes("ClusterLoadAssignment +a@1").await;
    client
}

async fn a_million_names_end_the_stream_and_nobody_else_s(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut other = watching(&server, way).await;
    let mut greedy = Client::open(&server, way, Eds).await;
    let names: Vec<String> = (0..MILLION).map(|n| format!("n-{n:07}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // SotW says all in one message; delta adds to them.
    let part = if way.is_sotw() { MILLION } else { MILLION / 10 };
    for names in names.chunks(part) {
        greedy.change_or_ask(Eds, names).await;
    }
    let why = greedy.end().await;
    assert_eq!(why.code(), Code::ResourceExhausted, "{why:?}");
    assert!(why.message().contains("names"), "{why:?}");
    eventually("its row is gone", || server.clients.list().len() == 1).await;
    server.publish(&[(Eds, "a", 2)]);
    other.takes("ClusterLoadAssignment +a@2").await;
}

async fn a_refusal_that_is_said_again_and_again_is_answered_with_silence(way: Way) {
    let server = Server::start(&[(Cds, "a", 1)]);
    let mut client = Client::open(&server, way, Cds).await;
    client.want(Cds, &[]).await;
    let said = client.says("Cluster +a@1").await;
    for _ in 0..50 {
        client.nack(&said, "no").await;
    }
    client.silent().await;
    let rows = server.clients.list();
    assert!(rows[0].of_type(Cds).unwrap().nack.is_some());
    server.publish(&[(Cds, "a", 2)]);
    client.takes("Cluster +a@2").await;
}

async fn a_node_that_changes_on_the_way_changes_nothing(way: Way) {
    let server = Server::start(&[(Eds, "a", 1), (Eds, "b", 1)]);
    let mut client = watching(&server, way).await;
    let mut stranger = node("client-2");
    stranger.cluster = "another".into();
    client.set_node(Some(stranger));
    client.want(Eds, &["a", "b"]).await;
    client.takes("ClusterLoadAssignment +b@1").await;
    let rows = server.clients.list();
    assert_eq!(
        (&*rows[0].node_id, &*rows[0].node_cluster),
        ("client-1", "edge")
    );
}

async fn a_node_with_a_name_without_end_is_refused_and_not_repeated(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.set_node(Some(node(&"x".repeat(100_000))));
    client.want(Eds, &["a"]).await;
    let why = client.end().await;
    assert_eq!(why.code(), Code::InvalidArgument, "{why:?}");
    assert!(why.message().starts_with("node.id has 100000 bytes"));
    assert!(server.clients.list().is_empty());
}

async fn a_client_that_was_refused_and_does_not_read_is_none_any_more(way: Way) {
    let names: Vec<String> = (0..3_000).map(|n| format!("cluster-{n:05}")).collect();
    let state = |revision| -> Vec<_> {
        let names = names.iter().map(String::as_str);
        names.map(|name| (Cds, name, revision)).collect()
    };
    let server = Server::start(&state(1));
    let channel = connect_narrow(server.address).await;
    let mut client = Client::on(channel, way, Cds).await;
    client.want(Cds, &[]).await;
    eventually("it is sent something", || {
        let rows = server.clients.list();
        rows.first()
            .and_then(|row| row.of_type(Cds)?.sent_version.clone())
            .is_some()
    })
    .await;
    // Nothing is read, so what comes next waits for room: first responses, then the status.
    for revision in 2..5 {
        server.publish(&state(revision));
        client.silent_unread().await;
    }
    assert_eq!(server.clients.list().len(), 1);
    // A request that ends the stream, whichever service it is on: no type, or another one's.
    let type_url = match way {
        Way::SotwAds | Way::DeltaAds => String::new(),
        Way::SotwOwn | Way::DeltaOwn => Eds.type_url().into(),
    };
    if way.is_sotw() {
        let request = DiscoveryRequest {
            type_url,
            ..DiscoveryRequest::default()
        };
        client.send_sotw(request).await;
    } else {
        let request = DeltaDiscoveryRequest {
            type_url,
            ..DeltaDiscoveryRequest::default()
        };
        client.send_delta(request).await;
    }
    eventually("its row is gone", || server.clients.list().is_empty()).await;
}

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(out, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        bytes::Buf::advance(buffer, bytes::Buf::remaining(buffer));
        Ok(Some(()))
    }
}

#[test]
fn what_is_no_message_ends_its_stream_with_a_status() {
    let nested = [0x0a, 0x7f].repeat(20_000);
    let rows: [(&str, Vec<u8>); 6] = [
        ("a key without a field", vec![0x0a]),
        ("a length beyond the end", vec![0x1a, 0xff, 0x01, b'a']),
        ("a name that is not UTF-8", vec![0x1a, 0x02, 0xff, 0xfe]),
        ("a varint without end", vec![0xff; 64]),
        ("a field of number 0", vec![0x00, 0x00]),
        ("lengths that all lie", nested),
    ];
    run(async move {
        let server = Server::start(&[(Eds, "a", 1)]);
        for way in ["Stream", "Delta"] {
            for (what, bytes) in &rows {
                let mut grpc = Grpc::new(connect(server.address).await);
                grpc.ready().await.unwrap();
                let path = format!(
                    "/envoy.service.discovery.v3.AggregatedDiscoveryService/{way}AggregatedResources"
                );
                // The request's side stays open: nothing but the message ends the stream.
                let requests = tokio_stream::once(bytes.clone()).chain(tokio_stream::pending());
                let path = PathAndQuery::try_from(path).unwrap();
                let called = grpc.streaming(Request::new(requests), path, Raw).await;
                let mut responses = called.unwrap().into_inner();
                let end = responses.message().await;
                let code = end.as_ref().err().map(Status::code);
                assert!(
                    matches!(code, Some(Code::Internal | Code::InvalidArgument)),
                    "{way}, {what}: {end:?}"
                );
            }
        }
        assert!(server.clients.list().is_empty());
        let mut client = watching(&server, Way::DeltaAds).await;
        server.publish(&[(Eds, "a", 2)]);
        client.takes("ClusterLoadAssignment +a@2").await;
    });
}
