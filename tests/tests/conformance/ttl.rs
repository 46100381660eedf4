//! G15: resources that expire, for delta clients that say that they understand it, from a server that is told to. In SotW
//! nothing expires: heartbeats of clusters would remove them all, and Envoy 1.40 crashes when a TTL runs out.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;

use crate::client::{Client, Said, Way, node};
use crate::rules::eventually;
use crate::server::Server;
use crate::{Cds, Eds, on_every_way};

on_every_way!(
    g15_a_full_body_and_then_heartbeats_without,
    g15_who_does_not_understand_it_gets_no_ttl_and_no_heartbeats,
);

const TTL: Duration = Duration::from_millis(600);

const UNDERSTANDS: [&str; 2] = [
    "xds.config.supports-resource-ttl",
    "xds.config.resource-in-sotw",
];

fn node_with(features: &[&str]) -> Node {
    Node {
        client_features: features.iter().map(|&feature| feature.into()).collect(),
        ..node("client-1")
    }
}

async fn client(server: &Server, way: Way) -> Client {
    let mut client = Client::open(server, way, Eds).await;
    client.set_node(Some(node_with(&UNDERSTANDS)));
    client
}

fn has_ttl(said: &Said, ttl: Option<u64>) {
    assert!(!said.ttls.is_empty(), "{said}");
    assert!(
        said.ttls.values().all(|has| *has == ttl),
        "{said}: {:?}",
        said.ttls
    );
}

async fn g15_a_full_body_and_then_heartbeats_without(way: Way) {
    if way.is_sotw() {
        return;
    }
    let server = Server::leasing(&[(Eds, "a", 1), (Eds, "b", 1)], TTL);
    let mut client = client(&server, way).await;
    client.want(Eds, &["a", "b", "none"]).await;
    let full = client
        .takes("ClusterLoadAssignment +a@1 +b@1 +none@-")
        .await;
    has_ttl(&full, Some(600));
    for _ in 0..3 {
        let beat = client.takes("ClusterLoadAssignment ~a ~b ~none").await;
        has_ttl(&beat, Some(600));
        assert_eq!(beat.version, full.version, "the same version");
        for (name, version) in &beat.versions {
            assert_eq!(full.versions.get(name), Some(version));
        }
    }
    server.publish(&[(Eds, "a", 2), (Eds, "b", 1)]);
    // A heartbeat may be under way.
    let mut next = client.next().await;
    while next.resources.is_empty() {
        client.ack(&next).await;
        next = client.next().await;
    }
    assert_eq!(next.to_string(), "ClusterLoadAssignment +a@2");
    has_ttl(&next, Some(600));
    client.ack(&next).await;
    // What is given up is not renewed.
    client.want(Eds, &["a"]).await;
    let mut beat = client.next().await;
    while beat.renewed.len() > 1 {
        client.ack(&beat).await;
        beat = client.next().await;
    }
    assert_eq!(beat.to_string(), "ClusterLoadAssignment ~a");
    // Who does not answer is not beaten for ever; who answers again is.
    let mut last = beat;
    while let Some(said) = client.soon(600).await {
        last = said;
    }
    client.ack(&last).await;
    client.takes("ClusterLoadAssignment ~a").await;
}

async fn g15_who_does_not_understand_it_gets_no_ttl_and_no_heartbeats(way: Way) {
    let server = Server::leasing(&[(Eds, "a", 1)], TTL);
    // In SotW nobody is understood to.
    let not_enough = &UNDERSTANDS[usize::from(!way.is_sotw())..];
    for features in [&[], not_enough] {
        let mut client = Client::open(&server, way, Eds).await;
        client.set_node(Some(node_with(features)));
        client.want(Eds, &["a"]).await;
        let full = client.takes("ClusterLoadAssignment +a@1").await;
        assert!(full.ttls.values().all(Option::is_none), "{:?}", full.ttls);
        if let Some(said) = client.soon(900).await {
            panic!("nothing should come: {said}");
        }
    }
}

#[test]
fn g15_clusters_are_renewed_too() {
    crate::run(async {
        let server = Server::leasing(&[(Cds, "a", 1)], TTL);
        let mut delta = client(&server, Way::DeltaAds).await;
        delta.want(Cds, &[]).await;
        has_ttl(&delta.takes("Cluster +a@1").await, Some(600));
        delta.takes("Cluster ~a").await;
    });
}

#[test]
fn g15_what_a_client_has_from_before_is_renewed_at_once_also_by_a_server_without_ttl() {
    crate::run(async {
        for (ttl, told) in [(Some(TTL), Some(600)), (None, None)] {
            let state = [(Cds, "a", 1), (Cds, "b", 2)];
            let server = match ttl {
                Some(ttl) => Server::leasing(&state, ttl),
                None => Server::start(&state),
            };
            let mut client = client(&server, Way::DeltaAds).await;
            client.resume(Cds, &[], &[("a", 1), ("b", 1)]).await;
            client.takes("Cluster +b@2").await;
            let beat = client.takes("Cluster ~a ~b").await;
            // Without a TTL it ends the one that the client may have.
            has_ttl(&beat, told);
            if ttl.is_none() {
                assert_eq!(client.soon(900).await, None);
            }
        }
    });
}

#[test]
fn g15_who_has_not_answered_a_heartbeat_yet_has_everything_all_the_same() {
    crate::run(async {
        let server = Server::leasing(&[(Eds, "a", 1)], TTL);
        let mut client = client(&server, Way::DeltaAds).await;
        client.want(Eds, &["a"]).await;
        client.takes("ClusterLoadAssignment +a@1").await;
        let has_acked = || {
            let rows = server.clients.list();
            rows.iter().all(|row| row.has_acked(&server.fleet()))
        };
        eventually("it has acked", has_acked).await;
        let beat = client.says("ClusterLoadAssignment ~a").await;
        client.says("ClusterLoadAssignment ~a").await;
        assert!(has_acked(), "{:?}", server.clients.list());
        // A response among heartbeats is waited for.
        server.publish(&[(Eds, "a", 2)]);
        let mut said = client.next().await;
        while said.resources.is_empty() {
            said = client.next().await;
        }
        client.ack(&beat).await;
        client.silent().await;
        assert!(!has_acked());
        client.ack(&said).await;
        eventually("it has acked", has_acked).await;
    });
}
