//! Fifteen bugs that other xDS servers had, each with the test that would catch it here, by its number in the project's
//! list. What was wrong there stands with each.

use std::collections::BTreeMap;

use tonic::Code;

use crate::client::{Client, Way, connect, node};
use crate::rules::{eventually, subscribed};
use crate::server::Server;
use crate::{Cds, Eds, Lds, Rds, by, on_every_way};

on_every_way!(
    bug_03_a_subscription_is_not_lost_under_fast_pushes,
    bug_04_a_client_that_does_not_read_holds_up_nobody,
    bug_05_a_subset_of_the_names_is_answered_and_goes_on,
    bug_06_one_missing_assignment_freezes_nothing_else,
    bug_07_what_does_not_exist_is_still_subscribed_to,
    bug_10_an_empty_subscription_is_no_wildcard,
    bug_11_a_name_given_up_and_taken_again_is_answered,
    bug_12_ten_thousand_streams_leave_nothing_behind,
    bug_13_one_change_is_one_small_response_and_versions_survive_a_restart,
    bug_14_a_storm_of_reconnects_is_served_whole,
    bug_15_a_flapping_endpoint_pushes_its_assignment_alone,
);

/// Warming for ever: CDS had changed, EDS had the same version and was not sent.
#[test]
fn bug_01_a_changed_cluster_takes_its_assignment_along_and_no_other() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let state = |a, b| {
                [
                    (Cds, "a", a),
                    (Cds, "b", b),
                    (Eds, "a", 1),
                    (Eds, "b", 1),
                    (Lds, "l", 1),
                    (Rds, "r", 1),
                ]
            };
            let server = Server::start(&state(1, 1));
            let mut client = subscribed(&server, way, &["a", "b"]).await;
            server.publish(&state(2, 1));
            let clusters = by(way, "Cluster +a@2 +b@1", "Cluster +a@2");
            // The ACK of the cluster is withheld, as an Envoy does while it warms.
            let said = client.says(clusters).await;
            client.takes("ClusterLoadAssignment +a@1").await;
            client.ack(&said).await;
            client.silent().await;
            // Also for one that was refused before.
            server.publish(&state(3, 1));
            let said = client.next().await;
            client
                .nack(&said, "Error adding/updating cluster(s) a: no")
                .await;
            client.takes("ClusterLoadAssignment +a@1").await;
            server.publish(&state(4, 1));
            client
                .takes(by(way, "Cluster +a@4 +b@1", "Cluster +a@4"))
                .await;
            client.takes("ClusterLoadAssignment +a@1").await;
            client.silent().await;
        }
    });
}

/// Endpoints lost: an ACK of EDS that was under way when the cluster changed marked them as delivered; and where any ACK
/// was waited for, nothing came at all.
#[test]
fn bug_02_a_change_of_the_cluster_voids_an_ack_under_way_and_nothing_waits_for_acks() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let state = |cluster, assignment, rest| {
                [
                    (Cds, "a", cluster),
                    (Eds, "a", assignment),
                    (Lds, "l", rest),
                    (Rds, "r", rest),
                ]
            };
            let server = Server::start(&state(1, 1, 1));
            let mut client = subscribed(&server, way, &["a"]).await;
            server.publish(&state(1, 2, 1));
            let assignment = client.says("ClusterLoadAssignment +a@2").await;
            // The cluster changes, and only then comes the ACK.
            server.publish(&state(2, 2, 2));
            client.ack(&assignment).await;
            client.says("Cluster +a@2").await;
            client.says("ClusterLoadAssignment +a@2").await;
            client.says("Listener +l@2").await;
            client.says("RouteConfiguration +r@2").await;
            // Not one of them was acknowledged, and the next change comes all the same.
            server.publish(&state(3, 2, 2));
            client.says("Cluster +a@3").await;
            client.says("ClusterLoadAssignment +a@2").await;
            client.silent().await;
        }
    });
}

/// Subscriptions ignored: a request that crossed a push was stale, and dropped for good.
async fn bug_03_a_subscription_is_not_lost_under_fast_pushes(way: Way) {
    let server = Server::start(&[(Eds, "a", 0), (Eds, "b", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a"]).await;
    let first = client.takes("ClusterLoadAssignment +a@0").await;
    for revision in 1..=10 {
        server.publish(&[(Eds, "a", revision), (Eds, "b", 1)]);
        client
            .takes(&format!("ClusterLoadAssignment +a@{revision}"))
            .await;
    }
    if way.is_sotw() {
        // Stale: without effect. The client says it again when it answers the response that it crossed with.
        client.ask(Eds, &["a", "b"], &first.nonce).await;
        client.silent().await;
        client.want(Eds, &["a", "b"]).await;
        client.takes("ClusterLoadAssignment +b@1").await;
    } else {
        // What is said in delta is said once, so it counts.
        client.change(Eds, &["b"], &[], &first.nonce).await;
        client.takes("ClusterLoadAssignment +b@1").await;
        client.change(Eds, &[], &["b"], &first.nonce).await;
        client.silent().await;
        server.publish(&[(Eds, "a", 10), (Eds, "b", 2)]);
    }
    client.silent().await;
}

/// The whole cache hung: a send to a client that did not read was waited for under the lock.
async fn bug_04_a_client_that_does_not_read_holds_up_nobody(way: Way) {
    let names: Vec<String> = (0..200).map(|n| format!("{n:02000}")).collect();
    let state = |revision| -> Vec<_> {
        let named = names.iter().map(|name| (Eds, &**name, revision));
        named.chain([(Eds, "a", revision)]).collect()
    };
    let server = Server::start(&state(0));
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut deaf = Client::open(&server, way, Eds).await;
    deaf.want(Eds, &all).await;
    let mut quick = Client::open(&server, way, Eds).await;
    quick.want(Eds, &["a"]).await;
    for revision in 0..50 {
        server.publish(&state(revision));
        quick
            .takes(&format!("ClusterLoadAssignment +a@{revision}"))
            .await;
    }
    // When it reads it comes to the newest, without all that was in between.
    let mut has = BTreeMap::new();
    let mut responses = 0;
    while has.len() < names.len() || has.values().any(|revision| *revision != Some(49)) {
        let said = deaf.next().await;
        deaf.ack(&said).await;
        has.extend(said.resources);
        responses += 1;
    }
    assert!(responses < 40, "{responses} responses");
}

/// Stale endpoints until the next reconnect: a request for fewer names than the snapshot has was neither answered nor kept.
async fn bug_05_a_subset_of_the_names_is_answered_and_goes_on(way: Way) {
    let server = Server::start(&[(Cds, "a", 1), (Eds, "a", 1), (Eds, "b", 1), (Eds, "c", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["b"]).await;
    client.takes("ClusterLoadAssignment +b@1").await;
    for revision in 2..5 {
        server.publish(&[(Eds, "a", 1), (Eds, "b", revision), (Eds, "c", 1)]);
        client
            .takes(&format!("ClusterLoadAssignment +b@{revision}"))
            .await;
    }
    client.silent().await;
}

/// One missing load assignment froze the whole configuration of a client.
async fn bug_06_one_missing_assignment_freezes_nothing_else(way: Way) {
    let server = Server::unsynced();
    server.publish_holding(&[(Eds, "a", 1)], &[(Eds, "held")]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a", "held", "unknown"]).await;
    client.takes("ClusterLoadAssignment +a@1 +unknown@-").await;
    server.publish_holding(&[(Eds, "a", 2)], &[(Eds, "held")]);
    client.takes("ClusterLoadAssignment +a@2").await;
    client.silent().await;
    server.publish(&[(Eds, "a", 2), (Eds, "held", 1)]);
    client.takes("ClusterLoadAssignment +held@1").await;
}

/// "Does not exist" in `removed_resources` also dropped the subscription.
async fn bug_07_what_does_not_exist_is_still_subscribed_to(way: Way) {
    for kind in [Cds, Lds, Rds] {
        let server = Server::start(&[(kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        client
            .takes(&format!("{} +b@1{}", kind.as_str(), by(way, "", " -a")))
            .await;
        for revision in 1..3 {
            server.publish(&[(kind, "a", revision), (kind, "b", 1)]);
            let whole = way.is_sotw() && kind.is_whole_set();
            let b = if whole { " +b@1" } else { "" };
            client
                .takes(&format!("{} +a@{revision}{b}", kind.as_str()))
                .await;
            server.publish(&[(kind, "b", 1)]);
            match (way.is_sotw(), whole) {
                (true, true) => drop(client.takes(&format!("{} +b@1", kind.as_str())).await),
                (true, false) => client.silent().await,
                (false, _) => drop(client.takes(&format!("{} -a", kind.as_str())).await),
            }
        }
        client.silent().await;
    }
}

/// What was deleted while a client was away lived on.
#[test]
fn bug_08_what_was_deleted_while_the_client_was_away_is_removed() {
    crate::run(async {
        for kind in [Cds, Eds, Lds, Rds] {
            for way in [Way::DeltaAds, Way::DeltaOwn] {
                let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
                let names = if kind.is_whole_set() {
                    &["*"] as &[&str]
                } else {
                    &["a", "b"]
                };
                let mut client = Client::open(&server, way, kind).await;
                client.want(kind, names).await;
                client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
                drop(client);
                server.publish(&[(kind, "a", 1)]);
                let mut client = Client::open(&server, way, kind).await;
                client.resume(kind, names, &[("a", 1), ("b", 1)]).await;
                let (mut removed, mut stand_in) = (false, false);
                while !removed && !stand_in {
                    let said = client.next().await;
                    client.ack(&said).await;
                    removed = said.removed.contains("b");
                    stand_in = said.resources.get("b") == Some(&None);
                }
                client.silent().await;
            }
        }
    });
}

/// 503 after a reconnect: versions were equal, and Envoy had forgotten the assignment of a cluster that had changed.
#[test]
fn bug_09_a_claimed_assignment_is_trusted_only_beside_its_unchanged_cluster() {
    crate::run(async {
        let server = Server::start(&[(Cds, "a", 2), (Cds, "b", 1), (Eds, "a", 1), (Eds, "b", 1)]);
        let mut client = Client::open(&server, Way::DeltaAds, Cds).await;
        client.resume(Cds, &[], &[("a", 1), ("b", 1)]).await;
        client.resume(Eds, &["a", "b"], &[("a", 1), ("b", 1)]).await;
        client.takes("Cluster +a@2").await;
        client.takes("ClusterLoadAssignment +a@1").await;
        client.silent().await;
        // Where no cluster can vouch, as on the service of assignments alone, all is said again.
        let mut client = Client::open(&server, Way::DeltaOwn, Eds).await;
        client.resume(Eds, &["a", "b"], &[("a", 1), ("b", 1)]).await;
        client.takes("ClusterLoadAssignment +a@1 +b@1").await;
    });
}

/// An empty set of names was taken for the wildcard.
async fn bug_10_an_empty_subscription_is_no_wildcard(way: Way) {
    for kind in [Cds, Lds] {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        client.takes(&format!("{} +a@1", kind.as_str())).await;
        client.want(kind, &[]).await;
        client.silent().await;
        server.publish(&[(kind, "a", 2), (kind, "b", 2)]);
        client.silent().await;
    }
}

/// A resource that was subscribed to again in the same version was not answered; one that was given up came all the same.
async fn bug_11_a_name_given_up_and_taken_again_is_answered(way: Way) {
    for kind in [Cds, Eds, Lds, Rds] {
        let server = Server::start(&[(kind, "a", 1), (kind, "b", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a", "b"]).await;
        client.takes(&format!("{} +a@1 +b@1", kind.as_str())).await;
        client.want(kind, &["b"]).await;
        client.silent().await;
        client.want(kind, &["a", "b"]).await;
        let whole = way.is_sotw() && kind.is_whole_set();
        let again = if whole { "+a@1 +b@1" } else { "+a@1" };
        client.takes(&format!("{} {again}", kind.as_str())).await;
        if !way.is_sotw() {
            // In delta every name that is asked for is answered, also one that was not given up.
            client.change(kind, &["b"], &[], "").await;
            client.takes(&format!("{} +b@1", kind.as_str())).await;
        }
        client.silent().await;
    }
}

/// 31,631 tasks were left of streams that had ended.
async fn bug_12_ten_thousand_streams_leave_nothing_behind(way: Way) {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let server = Server::start(&[(Eds, "a", 1)]);
    let mut connection = connect(server.address).await;
    let mut client = Client::on(connection.clone(), way, Eds).await;
    client.want(Eds, &["a"]).await;
    client.takes("ClusterLoadAssignment +a@1").await;
    drop(client);
    eventually("the first stream ends", || server.clients.list().is_empty()).await;
    let before = tasks();
    // 2,500 for each of the four ways; each ends in another state.
    for round in 0..625 {
        if round % 100 == 0 {
            // A client's HTTP/2 gives a connection up on which it has given up too many streams.
            connection = connect(server.address).await;
        }
        let _silent = Client::on(connection.clone(), way, Eds).await;
        let mut refused = Client::on(connection.clone(), way, Eds).await;
        refused.set_node(None);
        refused.want(Eds, &["a"]).await;
        refused.ends(Code::InvalidArgument).await;
        let mut asked = Client::on(connection.clone(), way, Eds).await;
        asked.want(Eds, &["a"]).await;
        let mut served = Client::on(connection.clone(), way, Eds).await;
        served.want(Eds, &["a"]).await;
        served.next().await;
        server.publish(&[(Eds, "a", round)]);
    }
    eventually("every stream's row is gone", || {
        server.clients.list().is_empty()
    })
    .await;
    eventually("every stream's task is gone", || tasks() <= before).await;
    server.end().await;
}

/// One endpoint's change was 10,000 responses; versions were counters, which collide after a restart.
async fn bug_13_one_change_is_one_small_response_and_versions_survive_a_restart(way: Way) {
    let names: Vec<String> = (0..500).map(|n| format!("service-{n}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state: Vec<_> = all.iter().map(|name| (Eds, *name, 1)).collect();
    let server = Server::start(&state);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &all).await;
    let first = client.next().await;
    assert_eq!(first.resources.len(), 500);
    client.ack(&first).await;
    state[250].2 = 2;
    server.publish(&state);
    let changed = client.takes("ClusterLoadAssignment +service-250@2").await;
    client.silent().await;
    // The same content on another server, and after another history, has the same versions.
    let other = Server::start(&state);
    let mut client = Client::open(&other, way, Eds).await;
    client.want(Eds, &all).await;
    let again = client.next().await;
    assert_eq!(again.version, changed.version);
    assert_ne!(again.version, first.version);
    for (name, version) in &changed.versions {
        assert_eq!(again.versions.get(name), Some(version));
    }
}

/// A thousand reconnects at once took the server down; a server that knew nothing yet served emptiness; a cap on sessions
/// locked clients out.
async fn bug_14_a_storm_of_reconnects_is_served_whole(way: Way) {
    const STREAMS: usize = 500;
    let server = Server::unsynced();
    let address = server.address;
    let mut storm = tokio::task::JoinSet::new();
    for n in 0..STREAMS {
        storm.spawn(async move {
            let mut client = Client::on(connect(address).await, way, Cds).await;
            client.set_node(Some(node(&format!("client-{n}"))));
            if way.is_sotw() {
                client.want(Cds, &["*", "x"]).await;
                client.says("Cluster +a@1 +b@1").await;
            } else {
                // Of what it has nothing is sent again; `x` shows that nothing else would come.
                client.resume(Cds, &["*", "x"], &[("a", 1), ("b", 1)]).await;
                client.says("Cluster -x").await;
            }
            client
        });
    }
    tokio::task::yield_now().await;
    server.publish(&[(Cds, "a", 1), (Cds, "b", 1)]);
    let clients = storm.join_all().await;
    assert_eq!(clients.len(), STREAMS);
    assert_eq!(server.clients.list().len(), STREAMS);
}

/// Endpoints that flapped made the server push everything.
async fn bug_15_a_flapping_endpoint_pushes_its_assignment_alone(way: Way) {
    let state = |revision| {
        [
            (Cds, "a", 1),
            (Eds, "a", revision),
            (Eds, "b", 1),
            (Lds, "l", 1),
            (Rds, "r", 1),
        ]
    };
    let server = Server::start(&state(1));
    let mut others: Vec<Client> = Vec::new();
    for kind in [Cds, Lds, Rds] {
        let mut client = Client::open(&server, way, kind).await;
        let names = if kind == Rds { &["r"] as &[&str] } else { &[] };
        client.want(kind, names).await;
        let said = client.next().await;
        client.ack(&said).await;
        others.push(client);
    }
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a", "b"]).await;
    client.takes("ClusterLoadAssignment +a@1 +b@1").await;
    for flap in 0..100 {
        let revision = 2 - flap % 2;
        server.publish(&state(revision));
        client
            .takes(&format!("ClusterLoadAssignment +a@{revision}"))
            .await;
        // What changes nothing is not pushed.
        server.publish(&state(revision));
    }
    client.silent().await;
    for mut other in others {
        other.silent().await;
    }
}
