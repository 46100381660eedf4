//! The protocol as a scripted grpcio client sees it: NACKs, nonces, subscriptions, what is sent and what is not.

use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::Transport;
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::Config;
use vitals_tests::lab::Scene;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::xds::{ASSIGNMENT, CLUSTER, LISTENER, XdsClient, ack, node};

/// Long enough to see that nothing is sent.
const QUIET: Duration = Duration::from_millis(1500);

struct Stage {
    client: XdsClient,
    vitals: Vitals,
    config: Config,
    backends: Vec<Backend>,
    scene: Scene,
}

fn stage() -> Stage {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let config = scene.shop(&backends);
    let vitals = scene.vitals(&config);
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    let client = XdsClient::start(vitals.xds(), scene.dir());
    Stage {
        client,
        vitals,
        config,
        backends,
        scene,
    }
}

fn first(kind: &str) -> Value {
    json!({ "node": node("client-1", "edge"), "type_url": kind })
}

/// The ACK of a delta response.
fn delta_ack(response: &Value) -> Value {
    json!({ "type_url": response["type"], "response_nonce": response["nonce"] })
}

#[test]
fn sotw_after_a_nack_nothing_until_the_content_changes() {
    let mut s = stage();
    s.client.open("s", Transport::Sotw);
    let mut request = first(ASSIGNMENT);
    request["resource_names"] = json!(["shop"]);
    s.client.send("s", request);
    let response = s.client.response(SOON, "s", ASSIGNMENT, 0);
    assert_eq!(response["names"], json!(["shop"]), "{response}");
    s.client.send(
        "s",
        json!({
            "type_url": ASSIGNMENT, "resource_names": ["shop"], "response_nonce": response["nonce"],
            "error_detail": { "code": 3, "message": "I do not like it" },
        }),
    );
    s.client.silent(QUIET, "s");
    nack_is_shown(&s, &response["version"]);
    s.backends[0].become_(Mode::ProbeStatus(500));
    let next = s.client.response(SOON, "s", ASSIGNMENT, 1);
    assert_ne!(next["version"], response["version"], "{next}");
    assert_eq!(next["health"][s.backends[0].name()], "UNHEALTHY", "{next}");
    assert_eq!(next["health"][s.backends[1].name()], "HEALTHY", "{next}");
}

#[test]
fn delta_after_a_nack_nothing_until_the_content_changes() {
    let mut s = stage();
    s.client.open("s", Transport::Delta);
    let mut request = first(ASSIGNMENT);
    request["resource_names_subscribe"] = json!(["shop"]);
    s.client.send("s", request);
    let response = s.client.response(SOON, "s", ASSIGNMENT, 0);
    let mut nack = delta_ack(&response);
    nack["error_detail"] = json!({ "code": 3, "message": "I do not like it" });
    s.client.send("s", nack);
    s.client.silent(QUIET, "s");
    nack_is_shown(&s, &Value::Null);
    s.backends[0].become_(Mode::ProbeStatus(500));
    let next = s.client.response(SOON, "s", ASSIGNMENT, 1);
    assert_ne!(next["versions"], response["versions"], "{next}");
    assert_eq!(next["health"][s.backends[0].name()], "UNHEALTHY", "{next}");
}

fn nack_is_shown(s: &Stage, version: &Value) {
    eventually(SOON, "/v1/clients shows the NACK", || {
        let client = s.vitals.client("client-1")?;
        let nack = &client["types"]["ClusterLoadAssignment"]["nack"];
        let told = nack["message"] == "I do not like it" && nack["at"].is_string();
        if told && (version.is_null() || nack["version"] == *version) {
            Ok(())
        } else {
            Err(client.to_string())
        }
    });
    let nacks = s
        .vitals
        .metric("vitals_xds_nacks_total", "type=\"ClusterLoadAssignment\"");
    assert_eq!(nacks, Ok(1.0));
}

#[test]
fn sotw_an_ack_is_not_answered_and_a_change_is_sent_once() {
    let mut s = stage();
    s.client.open("s", Transport::Sotw);
    for kind in [CLUSTER, LISTENER] {
        s.client.send("s", first(kind));
        let response = s.client.response(SOON, "s", kind, 0);
        s.client.send("s", ack(&response));
    }
    let mut request = first(ASSIGNMENT);
    request["resource_names"] = json!(["shop"]);
    s.client.send("s", request);
    let response = s.client.response(SOON, "s", ASSIGNMENT, 0);
    let mut answer = ack(&response);
    answer["resource_names"] = json!(["shop"]);
    s.client.send("s", answer);
    s.client.silent(QUIET, "s");
    s.backends[0].become_(Mode::ProbeStatus(500));
    let next = s.client.response(SOON, "s", ASSIGNMENT, 1);
    let mut answer = ack(&next);
    answer["resource_names"] = json!(["shop"]);
    s.client.send("s", answer);
    s.client.silent(QUIET, "s");
    // Only the assignment changed.
    assert_eq!(s.client.count("s", CLUSTER), 1);
    assert_eq!(s.client.count("s", LISTENER), 1);
}

#[test]
fn delta_what_the_client_has_is_not_sent_again_and_what_is_gone_is_removed() {
    let mut s = stage();
    s.client.open("s", Transport::Delta);
    s.client.send("s", first(CLUSTER));
    let response = s.client.response(SOON, "s", CLUSTER, 0);
    let version = response["versions"]["shop"].clone();
    assert!(version.is_string(), "{response}");
    s.client.close("s");
    // The same client comes again and says what it has; one thing is no more.
    s.client.open("t", Transport::Delta);
    let mut again = first(CLUSTER);
    again["initial_resource_versions"] = json!({ "shop": version, "gone": "1" });
    s.client.send("t", again);
    let response = s.client.response(SOON, "t", CLUSTER, 0);
    assert_eq!(response["names"], json!([]), "{response}");
    assert_eq!(response["removed"], json!(["gone"]), "{response}");
    s.client.send("t", delta_ack(&response));
    s.client.silent(QUIET, "t");
}

#[test]
fn versions_are_the_same_after_a_restart() {
    let mut s = stage();
    let versions = |s: &mut Stage, stream: &str| {
        s.client.open(stream, Transport::Delta);
        s.client.send(stream, first(CLUSTER));
        let clusters = s.client.response(SOON, stream, CLUSTER, 0)["versions"].clone();
        let request = json!({ "type_url": ASSIGNMENT, "resource_names_subscribe": ["shop"] });
        s.client.send(stream, request);
        let assignments = s.client.response(SOON, stream, ASSIGNMENT, 0)["versions"].clone();
        (clusters, assignments)
    };
    let before = versions(&mut s, "before");
    s.vitals.terminate(SOON);
    s.vitals.start_again();
    assert_eq!(versions(&mut s, "after"), before);
}

#[test]
fn delta_an_endpoint_that_flips_sends_one_assignment_only() {
    let mut s = stage();
    s.client.open("s", Transport::Delta);
    s.client.send("s", first(CLUSTER));
    let clusters = s.client.response(SOON, "s", CLUSTER, 0);
    s.client.send("s", delta_ack(&clusters));
    let request = json!({ "type_url": ASSIGNMENT, "resource_names_subscribe": ["shop"] });
    s.client.send("s", request);
    let assignment = s.client.response(SOON, "s", ASSIGNMENT, 0);
    s.client.send("s", delta_ack(&assignment));
    s.backends[1].become_(Mode::Closed);
    let next = s.client.response(SOON, "s", ASSIGNMENT, 1);
    assert_eq!(next["names"], json!(["shop"]), "{next}");
    assert_eq!(next["health"][s.backends[1].name()], "TIMEOUT", "{next}");
    s.client.send("s", delta_ack(&next));
    s.client.silent(QUIET, "s");
    assert_eq!(s.client.count("s", CLUSTER), 1);
}

#[test]
fn design_5_7_an_assignment_travels_with_its_changed_cluster() {
    let mut s = stage();
    s.client.open("s", Transport::Delta);
    s.client.send("s", first(CLUSTER));
    let clusters = s.client.response(SOON, "s", CLUSTER, 0);
    s.client.send("s", delta_ack(&clusters));
    let request = json!({ "type_url": ASSIGNMENT, "resource_names_subscribe": ["shop"] });
    s.client.send("s", request);
    let assignment = s.client.response(SOON, "s", ASSIGNMENT, 0);
    s.client.send("s", delta_ack(&assignment));
    s.config.service()["loadBalancing"] = json!({ "policy": "LEAST_REQUEST" });
    s.config.save(&s.scene.config_path());
    let changed = s.client.response(SOON, "s", CLUSTER, 1);
    assert_eq!(changed["names"], json!(["shop"]), "{changed}");
    // Unasked, and without waiting for the ACK of the cluster.
    let with_it = s.client.response(SOON, "s", ASSIGNMENT, 1);
    assert_eq!(with_it["versions"], assignment["versions"], "{with_it}");
}

#[test]
fn a_name_that_does_not_exist_arrives_when_it_does() {
    let mut s = stage();
    s.client.open("s", Transport::Delta);
    let mut request = first(ASSIGNMENT);
    request["resource_names_subscribe"] = json!(["shop", "cart"]);
    s.client.send("s", request);
    let response = s.client.response(SOON, "s", ASSIGNMENT, 0);
    // What does not exist is answered with an assignment without endpoints, so that no cluster warms for ever.
    assert_eq!(response["names"], json!(["shop", "cart"]), "{response}");
    let stand_in = response["versions"]["cart"].clone();
    s.client.send("s", delta_ack(&response));
    let mut cart = s.config.service().clone();
    cart["name"] = json!("cart");
    s.config.push("backendServices", cart);
    s.config.save(&s.scene.config_path());
    eventually(SOON, "cart arrives", || {
        let events = s.client.events("s");
        let came = events.iter().any(|event| {
            let version = &event["versions"]["cart"];
            !version.is_null() && *version != stand_in
        });
        came.then_some(()).ok_or_else(|| format!("{events:?}"))
    });
}
