//! What ii/xds-test-harness asks of a server: H1–H9 in SotW, D1–D6 in delta, each over ADS and over the services of one type.

use tonic::Code;

use crate::client::{Client, Way};
use crate::server::Server;
use crate::{ALL, Cds, Eds, Lds, Leds, Rds, by, on_every_way};

on_every_way!(
    h1_a_wildcard_is_answered_with_everything_in_one_response,
    h2_d2_a_change_of_one,
    h3_an_addition,
    h4_d1_named_resources_and_then_others,
    h5_a_change_of_a_named_subset,
    h6_d3_a_missing_name_arrives_when_it_exists,
    h7_what_is_kept_of_a_subscription_goes_on,
    h8_d5_after_the_last_name_is_given_up_there_is_silence,
    h8_one_empty_name_is_no_name,
    d4_a_removal_and_a_return,
);

async fn h1_a_wildcard_is_answered_with_everything_in_one_response(way: Way) {
    for kind in [Cds, Lds] {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        for wildcard in [&[] as &[&str], &["*"]] {
            let mut client = Client::open(&server, way, kind).await;
            client.want(kind, wildcard).await;
            client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
            client.silent().await;
        }
    }
}

async fn h2_d2_a_change_of_one(way: Way) {
    for kind in [Cds, Lds] {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &[]).await;
        client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
        server.publish(&[(kind, "a", 1), (kind, "b", 2)]);
        let changed = by(way, "+a@1 +b@2", "+b@2");
        client.takes(&format!("{} {changed}", kind.as_str())).await;
        client.silent().await;
    }
}

async fn h3_an_addition(way: Way) {
    for kind in [Cds, Lds] {
        let server = Server::start(&[(kind, "a", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &[]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        server.publish(&[(kind, "a", 1), (kind, "b", 1)]);
        let added = by(way, "+a@1 +b@1", "+b@1");
        client.takes(&format!("{} {added}", kind.as_str())).await;
        client.silent().await;
    }
}

async fn h4_d1_named_resources_and_then_others(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1), (kind, "c", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        client.want(kind, &["a", "b"]).await;
        let whole = way.is_sotw() && kind.is_whole_set();
        let both = if whole { "+a@1 +b@1" } else { "+b@1" };
        client.takes(&format!("{} {both}", kind.as_str())).await;
        client.silent().await;
    }
}

async fn h5_a_change_of_a_named_subset(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1), (kind, "c", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
        server.publish(&[(kind, "a", 1), (kind, "b", 2), (kind, "c", 2)]);
        let whole = way.is_sotw() && kind.is_whole_set();
        let changed = if whole { "+a@1 +b@2" } else { "+b@2" };
        client.takes(&format!("{} {changed}", kind.as_str())).await;
        server.publish(&[(kind, "a", 1), (kind, "b", 2), (kind, "c", 3)]);
        client.silent().await;
    }
}

async fn h6_d3_a_missing_name_arrives_when_it_exists(way: Way) {
    for kind in ALL {
        let server = Server::start(&[]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        match (kind, way.is_sotw()) {
            // So that no cluster warms for ever.
            (Eds, _) => drop(client.takes("ClusterLoadAssignment +a@-").await),
            (Cds | Lds, true) => drop(client.takes(kind.as_str()).await),
            (Rds | Leds, true) => client.silent().await,
            (_, false) => drop(client.takes(&format!("{} -a", kind.as_str())).await),
        }
        server.publish(&[(kind, "a", 1)]);
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        client.silent().await;
    }
}

async fn h7_what_is_kept_of_a_subscription_goes_on(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
        client.want(kind, &["a"]).await;
        client.silent().await;
        server.publish(&[(kind, "a", 1), (kind, "b", 2)]);
        client.silent().await;
        server.publish(&[(kind, "a", 2), (kind, "b", 2)]);
        client.takes(&format!("{} +a@2", kind.as_str())).await;
        client.silent().await;
    }
}

async fn h8_d5_after_the_last_name_is_given_up_there_is_silence(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
        client.want(kind, &["b"]).await;
        client.want(kind, &[]).await;
        client.silent().await;
        server.publish(&[(kind, "a", 2), (kind, "b", 2)]);
        client.silent().await;
        // The stream is still good.
        client.want(kind, &["b"]).await;
        client.takes(&format!("{} +b@2", kind.as_str())).await;
    }
}

async fn h8_one_empty_name_is_no_name(way: Way) {
    if !way.is_sotw() {
        return;
    }
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    let said = client.takes("ClusterLoadAssignment +a@1").await;
    client.ask(Eds, &[""], &said.nonce).await;
    client.silent().await;
    server.publish(&[(Eds, "a", 2)]);
    client.silent().await;
}

async fn d4_a_removal_and_a_return(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
        server.publish(&[(kind, "b", 1)]);
        match (way.is_sotw(), kind.is_whole_set()) {
            (true, true) => drop(client.takes(&format!("{} +b@1", kind.as_str())).await),
            // G18: what SotW cannot say, a client learns from the cluster or the listener.
            (true, false) => client.silent().await,
            (false, _) => drop(client.takes(&format!("{} -a", kind.as_str())).await),
        }
        server.publish(&[(kind, "a", 1), (kind, "b", 1)]);
        let whole = way.is_sotw() && kind.is_whole_set();
        let back = if whole { "+a@1 +b@1" } else { "+a@1" };
        client.takes(&format!("{} {back}", kind.as_str())).await;
        client.silent().await;
    }
}

#[test]
fn h9_two_types_on_one_stream_and_an_ack_that_names_the_wrong_one() {
    crate::run(async {
        let state = [(Cds, "a", 1), (Lds, "l", 1)];
        for way in [Way::SotwAds, Way::DeltaAds] {
            let server = Server::start(&state);
            let mut client = Client::open(&server, way, Cds).await;
            client.want(Cds, &[]).await;
            client.takes("Cluster +a@1").await;
            client.want(Lds, &[]).await;
            let listeners = client.says("Listener +l@1").await;
            // As the harness does: the second type's nonce under the first type's URL, with its names.
            match way.is_sotw() {
                true => client.ask(Cds, &[], &listeners.nonce).await,
                false => client.change(Cds, &[], &[], &listeners.nonce).await,
            }
            client.silent().await;
            server.publish(&[(Cds, "a", 2), (Lds, "l", 2)]);
            client.takes("Cluster +a@2").await;
            client.takes("Listener +l@2").await;
            client.silent().await;
        }
    });
}

#[test]
fn h9_d6_every_type_on_one_stream() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let server =
                Server::start(&[(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1), (Rds, "r", 1)]);
            let mut client = Client::open(&server, way, Cds).await;
            client.want(Cds, &[]).await;
            client.takes("Cluster +a@1").await;
            client.want(Eds, &["a"]).await;
            client.takes("ClusterLoadAssignment +a@1").await;
            client.want(Lds, &["*"]).await;
            client.takes("Listener +l@1").await;
            client.want(Rds, &["r"]).await;
            client.takes("RouteConfiguration +r@1").await;
            client.silent().await;
            server.stop();
            client.ends(Code::Unavailable).await;
        }
    });
}
