//! What the table of clients says of a stream: whether it has taken the present state, and what it refuses. It is what
//! `/v1/clients`, `vitals status --clients` and `--wait-acked` show.

use vitals::ads::clients;
use vitals::snapshot::ResourceType;

use crate::client::{Client, Way};
use crate::rules::eventually;
use crate::server::Server;
use crate::{ALL, Cds, Eds, Rds, on_every_way};

on_every_way!(
    a_client_has_acked_when_it_has_answered_all_of_the_present_state,
    a_refusal_stands_until_what_it_names_is_sent_anew,
    a_refusal_of_a_removal_in_a_whole_set_ends_with_the_next_ack,
    a_client_that_wants_much_is_shown_in_few_names,
);

/// The only client.
fn row(server: &Server) -> clients::Client {
    let rows = server.clients.list();
    assert_eq!(rows.len(), 1);
    rows.into_iter().next().unwrap()
}

fn has_acked(server: &Server) -> bool {
    row(server).has_acked(&server.fleet())
}

/// Waits for the row of a type to be as it should.
async fn shows(
    server: &Server,
    kind: ResourceType,
    what: &str,
    holds: impl Fn(&vitals::stream::SubscriptionStatus) -> bool,
) {
    let look = || {
        let rows = server.clients.list();
        rows.iter().any(|row| row.of_type(kind).is_some_and(&holds))
    };
    eventually(what, look).await;
}

async fn a_client_has_acked_when_it_has_answered_all_of_the_present_state(way: Way) {
    for kind in ALL {
        let server = Server::start(&[(kind, "a", 1)]);
        let mut client = Client::open(&server, way, kind).await;
        client.want(kind, &["a"]).await;
        let said = client.says(&format!("{} +a@1", kind.as_str())).await;
        assert!(!has_acked(&server), "it has not answered");
        client.ack(&said).await;
        eventually("it has acked", || has_acked(&server)).await;
        // A new state, of which it has not heard yet.
        server.publish(&[(kind, "a", 2)]);
        assert!(!has_acked(&server));
        let said = client.says(&format!("{} +a@2", kind.as_str())).await;
        assert!(!has_acked(&server));
        client.nack(&said, "no").await;
        shows(&server, kind, "the refusal", |status| status.nack.is_some()).await;
        assert!(!has_acked(&server), "a refusal is no ACK");
        server.publish(&[(kind, "a", 3)]);
        client.takes(&format!("{} +a@3", kind.as_str())).await;
        eventually("it has acked", || has_acked(&server)).await;
        // What it does not want changes: it has all of that state too.
        server.publish(&[(kind, "a", 3), (kind, "other", 1)]);
        eventually("it has acked", || has_acked(&server)).await;
        // While something is held, nobody has everything.
        server.publish_holding(&[(kind, "a", 3)], &[(Rds, "held")]);
        client.silent().await;
        assert!(!has_acked(&server));
    }
}

async fn a_refusal_stands_until_what_it_names_is_sent_anew(way: Way) {
    let server = Server::start(&[(Eds, "a", 1), (Eds, "b", 1)]);
    let mut client = Client::open(&server, way, Eds).await;
    client.want(Eds, &["a", "b"]).await;
    let said = client.says("ClusterLoadAssignment +a@1 +b@1").await;
    client.nack(&said, "cannot take b: too many").await;
    shows(&server, Eds, "which one is refused", |status| {
        status.nack.as_ref().is_some_and(|nack| {
            nack.message == "cannot take b: too many" && *nack.resources == ["b".into()]
        })
    })
    .await;
    // The other one does not mend it,
    server.publish(&[(Eds, "a", 2), (Eds, "b", 1)]);
    client.takes("ClusterLoadAssignment +a@2").await;
    client.silent().await;
    assert!(row(&server).of_type(Eds).unwrap().nack.is_some());
    // and is not waited for.
    server.publish(&[(Eds, "a", 2), (Eds, "b", 2)]);
    client.takes("ClusterLoadAssignment +b@2").await;
    shows(&server, Eds, "no refusal", |status| status.nack.is_none()).await;
    eventually("it has acked", || has_acked(&server)).await;
}

async fn a_refusal_of_a_removal_in_a_whole_set_ends_with_the_next_ack(way: Way) {
    let server = Server::start(&[(Cds, "a", 1), (Cds, "b", 1)]);
    let mut client = Client::open(&server, way, Cds).await;
    client.want(Cds, &[]).await;
    let said = client.says("Cluster +a@1 +b@1").await;
    client
        .nack(&said, "Error adding/updating cluster(s) b: no")
        .await;
    shows(&server, Cds, "the refusal", |status| status.nack.is_some()).await;
    server.publish(&[(Cds, "a", 1)]);
    let said = client.next().await;
    client.ack(&said).await;
    shows(&server, Cds, "no refusal", |status| status.nack.is_none()).await;
    eventually("it has acked", || has_acked(&server)).await;
}

async fn a_client_that_wants_much_is_shown_in_few_names(way: Way) {
    let names: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let server = Server::start(&[]);
    let mut client = Client::open(&server, way, Rds).await;
    client.want(Rds, &all).await;
    shows(&server, Rds, "a few names and how many", |status| {
        status.interest.names.len() == vitals::stream::SHOWN_NAMES
            && status.interest.count == 10_000
    })
    .await;
}
