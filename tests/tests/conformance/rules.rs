//! The rules of the protocol, after go-control-plane's, Istio's, Java's and Consul's own tests (G, I, J, C), and those that
//! they all lack: what follows a NACK.

use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tonic::Code;
use vitals_tests::wait::SOON;

use crate::client::{Client, Way, node};
use crate::server::Server;
use crate::{ALL, Cds, Eds, Lds, Rds, by, on_every_way};

on_every_way!(
    after_a_nack_there_is_silence_until_the_content_changes,
    a_nack_of_a_wildcard_holds_back_nothing_else,
    g1_nonces_count_up_and_every_any_is_of_the_type,
    g2_the_node_is_of_the_first_request_for_the_whole_stream,
    g2_a_first_request_without_a_node_is_refused,
    a_node_of_no_fleet_is_refused_and_counted,
    g4_a_stale_nonce_has_no_effect_but_a_new_interest_in_delta,
    g5_after_the_end_of_a_stream_nothing_of_it_is_left,
    g6_a_server_that_stops_says_unavailable,
    g7_what_was_given_up_is_not_sent,
    g11_assignments_and_routes_have_no_wildcard_without_a_name,
    g12_who_comes_before_the_first_snapshot_is_served_when_it_is_there,
    g13_a_new_name_is_answered_though_the_set_has_the_same_version,
    g14_a_client_that_does_not_read_gets_the_newest_when_it_does,
    g16_the_first_wildcard_on_an_empty_set_is_answered,
    g18_a_deletion,
    g19_three_changes_at_once_are_one_response,
    i3_a_publication_of_the_same_content_sends_nothing,
);

async fn after_a_nack_there_is_silence_until_the_content_changes(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        let said = client.says(&format!("{} +a@1 +b@1", kind.as_str())).await;
        client.nack(&said, "I do not like it").await;
        client.silent().await;
        // The same content once more is no change.
        server.publish(&[(kind, "a", 1), (kind, "b", 1)]);
        client.silent().await;
        server.publish(&[(kind, "a", 1), (kind, "b", 2)]);
        let whole = way.is_sotw() && kind.is_whole_set();
        let changed = if whole { "+a@1 +b@2" } else { "+b@2" };
        client.takes(&format!("{} {changed}", kind.as_str())).await;
        client.silent().await;
    }
}

async fn a_nack_of_a_wildcard_holds_back_nothing_else(way: Way) {
    let server = Server::start(&[(Cds, "a", 1)]);
    let mut client = Client::open(&server, way, Cds).await;
    client.want(Cds, &[]).await;
    let said = client.says("Cluster +a@1").await;
    client.nack(&said, "no").await;
    server.publish(&[(Cds, "a", 1), (Cds, "b", 1)]);
    let added = by(way, "Cluster +a@1 +b@1", "Cluster +b@1");
    let said = client.says(added).await;
    client.nack(&said, "no").await;
    server.publish(&[(Cds, "b", 1)]);
    client.takes(by(way, "Cluster +b@1", "Cluster -a")).await;
    client.silent().await;
}

async fn g1_nonces_count_up_and_every_any_is_of_the_type(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    for revision in 1..=5 {
        server.publish(&[(Eds, "a", revision)]);
        let said = client
            .takes(&format!("ClusterLoadAssignment +a@{revision}"))
            .await;
        assert_eq!(said.nonce, revision.to_string());
        assert!(!said.version.is_empty());
    }
}

async fn g2_the_node_is_of_the_first_request_for_the_whole_stream(way: Way) {
    let server = Server::start(&[(Eds, "a", 1), (Eds, "b", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    client.takes("ClusterLoadAssignment +a@1").await;
    // Another node on the same stream changes nothing.
    client.set_node(Some(node("somebody-else")));
    client.want(Eds, &["a", "b"]).await;
    client.takes("ClusterLoadAssignment +b@1").await;
    let rows = server.clients.list();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].node_id, "client-1");
}

async fn g2_a_first_request_without_a_node_is_refused(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.set_node(None);
    client.want(Eds, &["a"]).await;
    let why = client.ends(Code::InvalidArgument).await;
    assert!(why.contains("node"), "{why}");
}

#[test]
fn g3_an_empty_type_ends_an_aggregated_stream_and_is_implied_elsewhere() {
    crate::run(async {
        let server = Server::start(&[(Eds, "a", 1)]);
        let mut client = Client::open(&server, Way::SotwAds, Eds).await;
        client.send_sotw(DiscoveryRequest::default()).await;
        client.ends(Code::InvalidArgument).await;
        let mut client = Client::open(&server, Way::DeltaAds, Eds).await;
        client.send_delta(DeltaDiscoveryRequest::default()).await;
        client.ends(Code::InvalidArgument).await;
        // Every other test over a service of one type leaves the type out; this one names it.
        let mut client = Client::open(&server, Way::SotwOwn, Eds).await;
        let named = DiscoveryRequest {
            type_url: Eds.type_url().into(),
            resource_names: vec!["a".into()],
            ..DiscoveryRequest::default()
        };
        client.send_sotw(named).await;
        client.says("ClusterLoadAssignment +a@1").await;
    });
}

#[test]
fn g3_an_unknown_type_is_unanswered_on_ads_and_the_stream_goes_on() {
    crate::run(async {
        let server = Server::start(&[(Eds, "a", 1)]);
        let type_url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
        let mut sotw = Client::open(&server, Way::SotwAds, Eds).await;
        let unknown = DiscoveryRequest {
            type_url: type_url.into(),
            ..DiscoveryRequest::default()
        };
        sotw.send_sotw(unknown).await;
        let mut delta = Client::open(&server, Way::DeltaAds, Eds).await;
        let unknown = DeltaDiscoveryRequest {
            type_url: type_url.into(),
            ..DeltaDiscoveryRequest::default()
        };
        delta.send_delta(unknown).await;
        for mut client in [sotw, delta] {
            client.want(Eds, &["a"]).await;
            client.takes("ClusterLoadAssignment +a@1").await;
            client.silent().await;
        }
    });
}

#[test]
fn g3_a_foreign_type_ends_a_stream_of_one_type() {
    crate::run(async {
        let server = Server::start(&[]);
        for kind in ALL {
            for foreign in ALL.into_iter().filter(|other| *other != kind) {
                let mut client = Client::open(&server, Way::SotwOwn, kind).await;
                let request = DiscoveryRequest {
                    type_url: foreign.type_url().into(),
                    ..DiscoveryRequest::default()
                };
                client.send_sotw(request).await;
                let why = client.ends(Code::InvalidArgument).await;
                assert!(why.contains(kind.type_url()), "{why}");
            }
            let mut client = Client::open(&server, Way::DeltaOwn, kind).await;
            let request = DeltaDiscoveryRequest {
                type_url: "type.googleapis.com/x.Y".into(),
                ..DeltaDiscoveryRequest::default()
            };
            client.send_delta(request).await;
            client.ends(Code::InvalidArgument).await;
        }
    });
}

async fn a_node_of_no_fleet_is_refused_and_counted(way: Way) {
    let server = Server::start(&[(Cds, "a", 1)]);
    let mut client = Client::open(&server, way, Cds).await;
    client.want(Cds, &[]).await;
    client.takes("Cluster +a@1").await;
    server.publish_no_fleet();
    let said = client.ends(Code::NotFound).await;
    assert!(
        said.contains("client-1") && said.contains("fleets[].match"),
        "{said}"
    );
    let mut other = Client::open(&server, way, Cds).await;
    other.want(Cds, &[]).await;
    other.ends(Code::NotFound).await;
    let counted = "vitals_refusals_total{listener=\"xds\",reason=\"no_fleet\"} 2";
    assert!(server.counts(counted));
}

async fn g4_a_stale_nonce_has_no_effect_but_a_new_interest_in_delta(way: Way) {
    let server = Server::start(&[(Eds, "a", 1), (Eds, "b", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    let first = client.takes("ClusterLoadAssignment +a@1").await;
    server.publish(&[(Eds, "a", 2), (Eds, "b", 1)]);
    let second = client.says("ClusterLoadAssignment +a@2").await;
    for stale in [&*first.nonce, "garbage", "-1", "18446744073709551616"] {
        match way.is_sotw() {
            true => client.ask(Eds, &["a", "b"], stale).await,
            // Giving up what it has not is no effect.
            false => client.change(Eds, &[], &[], stale).await,
        }
    }
    client.silent().await;
    match way.is_sotw() {
        // The right nonce arms it again.
        true => client.ask(Eds, &["a", "b"], &second.nonce).await,
        false => client.change(Eds, &["b"], &[], &first.nonce).await,
    }
    client.takes("ClusterLoadAssignment +b@1").await;
}

async fn g5_after_the_end_of_a_stream_nothing_of_it_is_left(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    // A later request supersedes an earlier one.
    client.want(Eds, &["x"]).await;
    client.takes("ClusterLoadAssignment +x@-").await;
    client.want(Eds, &["a"]).await;
    client.takes("ClusterLoadAssignment +a@1").await;
    client.silent().await;
    server.publish(&[(Eds, "a", 1), (Eds, "x", 1)]);
    client.silent().await;
    assert_eq!(server.clients.list().len(), 1);
    drop(client);
    eventually("the table is empty", || server.clients.list().is_empty()).await;
    server.end().await;
}

async fn g6_a_server_that_stops_says_unavailable(way: Way) {
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    client.takes("ClusterLoadAssignment +a@1").await;
    server.stop();
    client.ends(Code::Unavailable).await;
    server.end().await;
}

async fn g7_what_was_given_up_is_not_sent(way: Way) {
    let server = Server::start(&[(Eds, "a", 1), (Eds, "b", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a", "b"]).await;
    client.takes("ClusterLoadAssignment +a@1 +b@1").await;
    client.want(Eds, &["b"]).await;
    client.silent().await;
    server.publish(&[(Eds, "a", 2), (Eds, "b", 2)]);
    client.takes("ClusterLoadAssignment +b@2").await;
    client.silent().await;
}

#[test]
fn g8_sotw_the_forms_of_the_wildcard() {
    crate::run(async {
        let server = Server::start(&[(Cds, "a", 1), (Cds, "b", 1)]);
        for way in [Way::SotwAds, Way::SotwOwn] {
            server.publish(&[(Cds, "a", 1), (Cds, "b", 1)]);
            // The legacy form stays until there is a name,
            let mut client = Client::open(&server, way, Cds).await;
            client.want(Cds, &[]).await;
            client.takes("Cluster +a@1 +b@1").await;
            client.want(Cds, &[]).await;
            client.silent().await;
            // ends with it,
            client.want(Cds, &["a"]).await;
            client.takes("Cluster +a@1").await;
            server.publish(&[(Cds, "a", 1), (Cds, "b", 2)]);
            client.silent().await;
            // and does not come back.
            client.want(Cds, &[]).await;
            client.silent().await;
            server.publish(&[(Cds, "a", 2), (Cds, "b", 2)]);
            client.silent().await;
            // The star comes back, also beside names.
            client.want(Cds, &["*", "x"]).await;
            client.takes("Cluster +a@2 +b@2").await;
            server.publish(&[(Cds, "a", 2), (Cds, "b", 3)]);
            client.takes("Cluster +a@2 +b@3").await;
            // A name that is asked for is answered.
            client.want(Cds, &["b"]).await;
            client.takes("Cluster +b@3").await;
            server.publish(&[(Cds, "a", 3), (Cds, "b", 3)]);
            client.silent().await;
        }
    });
}

#[test]
fn g9_delta_the_forms_of_the_wildcard() {
    crate::run(async {
        let server = Server::start(&[]);
        for way in [Way::DeltaAds, Way::DeltaOwn] {
            server.publish(&[(Cds, "a", 1)]);
            let mut client = Client::open(&server, way, Cds).await;
            client.change(Cds, &[], &[], "").await;
            client.takes("Cluster +a@1").await;
            // The legacy form lives on beside names,
            client.change(Cds, &["b"], &[], "").await;
            client.takes("Cluster -b").await;
            server.publish(&[(Cds, "a", 2), (Cds, "b", 1)]);
            client.takes("Cluster +a@2 +b@1").await;
            // and ends when the star is given up; what is named stays. What was never asked for is ignored.
            client.change(Cds, &[], &["*", "never"], "").await;
            client.silent().await;
            server.publish(&[(Cds, "a", 3), (Cds, "b", 2)]);
            client.takes("Cluster +b@2").await;
            client.silent().await;
        }
    });
}

#[test]
fn g10_a_name_given_up_that_the_wildcard_covers_is_sent_again_or_said_to_be_gone() {
    crate::run(async {
        let server = Server::start(&[(Lds, "a", 1)]);
        for way in [Way::DeltaAds, Way::DeltaOwn] {
            let mut client = Client::open(&server, way, Lds).await;
            client.change(Lds, &["*", "a", "b"], &[], "").await;
            client.takes("Listener +a@1 -b").await;
            client.change(Lds, &[], &["a", "b"], "").await;
            client.takes("Listener +a@1 -b").await;
            client.silent().await;
        }
    });
}

async fn g11_assignments_and_routes_have_no_wildcard_without_a_name(way: Way) {
    for kind in [Eds, Rds] {
        let server = Server::start(&[(kind, "a", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &[]).await;
        client.silent().await;
        client.want(kind, &["a"]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
    }
}

async fn g12_who_comes_before_the_first_snapshot_is_served_when_it_is_there(way: Way) {
    let server = Server::unsynced();
    let address = server.address;
    let early = tokio::spawn(async move {
        let channel = crate::client::connect(address).await;
        let mut client = Client::on(channel, way, Cds).await;
        client.want(Cds, &[]).await;
        client.takes("Cluster +a@1").await;
        client
    });
    tokio::task::yield_now().await;
    server.publish(&[(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1)]);
    let mut client = early.await.unwrap();
    server.publish(&[(Cds, "a", 2), (Eds, "a", 1), (Lds, "l", 1)]);
    client.takes("Cluster +a@2").await;
    client.silent().await;
}

#[test]
fn g12_a_change_of_clusters_is_told_to_nobody_else() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let state = [(Cds, "a", 1), (Eds, "b", 1), (Lds, "l", 1), (Rds, "r", 1)];
            let server = Server::start(&state);
            let mut client = subscribed(&server, way, &["b"]).await;
            server.publish(&[(Cds, "a", 2), (Eds, "b", 1), (Lds, "l", 1), (Rds, "r", 1)]);
            client.takes("Cluster +a@2").await;
            client.silent().await;
        }
    });
}

async fn g13_a_new_name_is_answered_though_the_set_has_the_same_version(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        let first = client.takes(&format!("{} +a@1", kind.as_str())).await;
        client.want(kind, &["a", "b"]).await;
        let whole = way.is_sotw() && kind.is_whole_set();
        let both = if whole { "+a@1 +b@1" } else { "+b@1" };
        let second = client.takes(&format!("{} {both}", kind.as_str())).await;
        assert_eq!(first.version, second.version);
        // Said again it is not news; in delta nothing is said.
        client.want(kind, &["b", "a"]).await;
        client.silent().await;
    }
}

async fn g14_a_client_that_does_not_read_gets_the_newest_when_it_does(way: Way) {
    let server = Server::start(&[(Eds, "a", 0)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    for revision in 1..=1_000 {
        server.publish(&[(Eds, "a", revision)]);
        if revision % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut responses = 0;
    loop {
        let said = client.next().await;
        client.ack(&said).await;
        responses += 1;
        if said.resources["a"] == Some(1_000) {
            break;
        }
    }
    assert!(responses <= 40, "{responses} responses for one reader");
    client.silent().await;
}

async fn g16_the_first_wildcard_on_an_empty_set_is_answered(way: Way) {
    for kind in [Cds, Lds] {
        let server = Server::start(&[]);
        for wildcard in [&[] as &[&str], &["*"]] {
            let mut client = Client::open(&server, way, kind).await;
            client.want(kind, wildcard).await;
            client.takes(kind.as_str()).await;
            client.silent().await;
        }
    }
}

#[test]
fn g17_initial_versions_say_what_need_not_be_sent() {
    crate::run(async {
        let state = [(Cds, "a", 1), (Cds, "b", 2), (Eds, "a", 1), (Eds, "b", 1)];
        let server = Server::start(&state);
        for way in [Way::DeltaAds, Way::DeltaOwn] {
            // Everything is there: silence.
            let mut client = Client::open(&server, way, Cds).await;
            client.resume(Cds, &[], &[("a", 1), ("b", 2)]).await;
            client.silent().await;
            // One is old, one was deleted meanwhile.
            let mut client = Client::open(&server, way, Cds).await;
            client
                .resume(Cds, &[], &[("a", 1), ("b", 1), ("gone", 1)])
                .await;
            client.takes("Cluster +b@2").await;
            client.takes("Cluster -gone").await;
            client.silent().await;
        }
        // Listeners that are gone leave at once.
        server.publish(&[(Lds, "l", 2)]);
        let mut client = Client::open(&server, Way::DeltaAds, Lds).await;
        client.resume(Lds, &["*"], &[("l", 1), ("gone", 1)]).await;
        client.takes("Listener +l@2 -gone").await;
    });
}

async fn g18_a_deletion(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        server.publish(&[]);
        match (way.is_sotw(), kind.is_whole_set()) {
            // The remainder, though it is empty.
            (true, true) => drop(client.takes(kind.as_str()).await),
            (true, false) => {}
            (false, _) => drop(client.takes(&format!("{} -a", kind.as_str())).await),
        }
        client.silent().await;
    }
}

async fn g19_three_changes_at_once_are_one_response(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        client.silent().await;
        for revision in 2..=4 {
            server.publish(&[(kind, "a", revision)]);
        }
        client.takes(&format!("{} +a@4", kind.as_str())).await;
        client.silent().await;
    }
}

#[test]
fn i1_a_nonce_of_another_stream_does_not_keep_a_first_request_from_its_answer() {
    crate::run(async {
        let server = Server::start(&[(Eds, "a", 1), (Eds, "b", 1)]);
        for way in [Way::SotwAds, Way::SotwOwn] {
            let mut client = Client::open(&server, way, Eds).await;
            client.ask(Eds, &["a", "b"], "17").await;
            let said = client.says("ClusterLoadAssignment +a@1 +b@1").await;
            // The same names in another order are an ACK; fewer are no question.
            client.ask(Eds, &["b", "a"], &said.nonce).await;
            client.silent().await;
            client.ask(Eds, &["b"], &said.nonce).await;
            client.silent().await;
        }
        for way in [Way::DeltaAds, Way::DeltaOwn] {
            let mut client = Client::open(&server, way, Eds).await;
            client.change(Eds, &["a"], &[], "17").await;
            client.takes("ClusterLoadAssignment +a@1").await;
            client.silent().await;
        }
    });
}

#[test]
fn i2_a_reconnect_that_speaks_of_assignments_before_clusters() {
    crate::run(async {
        let server = Server::start(&[(Cds, "a", 1), (Eds, "a", 1)]);
        let mut client = Client::open(&server, Way::DeltaAds, Eds).await;
        client.resume(Eds, &["a"], &[("a", 1)]).await;
        // No cluster vouches for it yet.
        client.takes("ClusterLoadAssignment +a@1").await;
        client.resume(Cds, &[], &[("a", 1), ("gone", 1)]).await;
        client.takes("Cluster -gone").await;
        client.silent().await;
    });
}

async fn i3_a_publication_of_the_same_content_sends_nothing(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        server.publish(&[(kind, "a", 1)]);
        client.silent().await;
        // There and back before anybody looked.
        server.publish(&[(kind, "a", 2)]);
        server.publish(&[(kind, "a", 1)]);
        client.silent().await;
    }
}

#[test]
fn i3_endpoints_that_come_and_go_change_their_assignment_only() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let state = |revision| {
                [
                    (Cds, "a", 1),
                    (Eds, "a", revision),
                    (Lds, "l", 1),
                    (Rds, "r", 1),
                ]
            };
            let server = Server::start(&state(1));
            let mut client = subscribed(&server, way, &["a"]).await;
            for revision in [2, 1, 3] {
                server.publish(&state(revision));
                client
                    .takes(&format!("ClusterLoadAssignment +a@{revision}"))
                    .await;
                client.silent().await;
            }
        }
    });
}

#[test]
fn j1_an_assignment_is_sent_with_its_cluster_and_an_unknown_one_is_empty() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let server = Server::start(&[(Cds, "a", 1), (Eds, "a", 1)]);
            let mut client = Client::open(&server, way, Cds).await;
            client.want(Cds, &[]).await;
            client.takes("Cluster +a@1").await;
            client.want(Eds, &["a", "unknown"]).await;
            client.takes("ClusterLoadAssignment +a@1 +unknown@-").await;
            server.publish(&[(Cds, "a", 2), (Eds, "a", 1)]);
            client.takes("Cluster +a@2").await;
            client.takes("ClusterLoadAssignment +a@1").await;
            client.silent().await;
        }
    });
}

/// A client on an aggregated stream that has everything: all clusters and listeners, these assignments, route `r`.
pub(crate) async fn subscribed(server: &Server, way: Way, assignments: &[&str]) -> Client {
    let mut client = Client::open(server, way, Cds).await;
    for (kind, names) in [
        (Cds, &[] as &[&str]),
        (Eds, assignments),
        (Lds, &[]),
        (Rds, &["r"]),
    ] {
        client.want(kind, names).await;
        let said = client.next().await;
        assert_eq!(said.kind, kind);
        client.ack(&said).await;
    }
    client.silent().await;
    client
}

/// Waits for what the server does on the same thread.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let look = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.expect(what);
}
