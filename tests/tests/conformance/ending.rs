//! A client that says its last word, as grpcurl does with `-d`: what is due to it comes, and then the stream ends well.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use crate::client::{Client, Way};
use crate::rules::eventually;
use crate::server::Server;
use crate::{ALL, Eds, on_every_way};

on_every_way!(
    who_asks_and_ends_its_side_at_once_is_answered,
    who_ends_its_side_and_lacks_nothing_is_let_go,
);

async fn who_asks_and_ends_its_side_at_once_is_answered(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1)]);
        // Often enough that no order of events is left out.
        for _ in 0..20 {
            let mut client = Client::open(&server, way, kind).await;
            client.want(kind, &["a"]).await;
            client.finish();
            client.says(&format!("{} +a@1", kind.as_str())).await;
            client.ends(Code::Ok).await;
        }
        eventually("no row is left", || server.clients.list().is_empty()).await;
    }
}

async fn who_ends_its_side_and_lacks_nothing_is_let_go(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.finish();
    client.ends(Code::Ok).await;
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    client.takes("ClusterLoadAssignment +a@1").await;
    client.silent().await;
    client.finish();
    client.ends(Code::Ok).await;
    // It is no client any more, whatever changes.
    eventually("no row is left", || server.clients.list().is_empty()).await;
}

#[test]
fn who_ends_its_side_and_does_not_read_is_let_go_some_seconds_later() {
    crate::run(async {
        // More than all buffers on the way hold.
        let names: Vec<String> = (0..4_000).map(|n| format!("{n:05000}")).collect();
        let state: Vec<_> = names.iter().map(|name| (Eds, name.as_str(), 1)).collect();
        let server = Server::start(&state);
        let mut client = Client::open(&server, Way::DeltaAds, Eds).await;
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        client.want(Eds, &all[..2_000]).await;
        eventually("it is there", || !server.clients.list().is_empty()).await;
        client.finish();
        let end = Instant::now();
        eventually("no row is left", || server.clients.list().is_empty()).await;
        let took = end.elapsed();
        assert!(took > Duration::from_secs(5), "it was given time: {took:?}");
    });
}
