//! Clients that do the wrong thing, by mistake or on purpose: each gets its answer, and nobody else notices.

use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::Transport;
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::lab::Scene;
use vitals_tests::on_both_transports;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, until};
use vitals_tests::xds::{ASSIGNMENT, CLUSTER, XdsClient, node};

on_both_transports!(
    an_empty_type_url_is_an_invalid_argument,
    no_node_is_an_invalid_argument,
    a_node_of_no_fleet_is_not_found,
    an_unknown_type_is_ignored_and_the_stream_goes_on,
    a_hundred_thousand_names_are_answered,
    a_message_of_50_mb_is_refused,
    garbage_nonces_are_ignored,
    a_client_that_never_reads_delays_nobody,
);

/// More than any of this may cost the server.
const MEMORY_MIB: u64 = 400;

struct Stage {
    client: XdsClient,
    vitals: Vitals,
    backends: Vec<Backend>,
    _scene: Scene,
}

fn stage(endpoints: u8) -> Stage {
    let scene = Scene::new();
    let backends = scene.backends(endpoints);
    let vitals = scene.vitals(&scene.shop(&backends));
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    let client = XdsClient::start(vitals.xds(), scene.dir());
    Stage {
        client,
        vitals,
        backends,
        _scene: scene,
    }
}

fn first(kind: &str) -> Value {
    json!({ "node": node("client-1", "edge"), "type_url": kind })
}

/// The field that subscribes.
fn names_key(transport: Transport) -> &'static str {
    match transport {
        Transport::Sotw => "resource_names",
        Transport::Delta | Transport::Leds => "resource_names_subscribe",
    }
}

impl Stage {
    /// The server still serves a client that behaves, and has not grown fat.
    fn is_well(&mut self, transport: Transport) {
        self.client.open("good", transport);
        self.client.send("good", first(CLUSTER));
        let response = self.client.response(SOON, "good", CLUSTER, 0);
        assert_eq!(response["names"], json!(["shop"]), "{response}");
        self.client.close("good");
        let memory = self.vitals.process().resident_mib();
        assert!(memory < MEMORY_MIB, "the server has {memory} MiB");
    }

    fn ends_with(&mut self, transport: Transport, request: Value, code: &str) {
        self.client.open("bad", transport);
        self.client.send("bad", request);
        let (ended, details) = self.client.end(SOON, "bad");
        assert_eq!(ended, code, "{details}");
        assert!(!details.is_empty(), "the client is not told why");
        self.is_well(transport);
    }
}

fn an_empty_type_url_is_an_invalid_argument(transport: Transport) {
    stage(1).ends_with(transport, first(""), "INVALID_ARGUMENT");
}

fn no_node_is_an_invalid_argument(transport: Transport) {
    let request = json!({ "type_url": CLUSTER });
    stage(1).ends_with(transport, request, "INVALID_ARGUMENT");
}

fn a_node_of_no_fleet_is_not_found(transport: Transport) {
    let request = json!({ "node": node("client-1", "stranger"), "type_url": CLUSTER });
    stage(1).ends_with(transport, request, "NOT_FOUND");
}

fn an_unknown_type_is_ignored_and_the_stream_goes_on(transport: Transport) {
    let mut s = stage(1);
    s.client.open("odd", transport);
    let unknown = "type.googleapis.com/envoy.config.unheard.v9.Of";
    s.client.send("odd", first(unknown));
    s.client.send("odd", json!({ "type_url": CLUSTER }));
    let response = s.client.response(SOON, "odd", CLUSTER, 0);
    assert_eq!(response["names"], json!(["shop"]), "{response}");
    assert_eq!(s.client.count("odd", unknown), 0);
    until(SOON, "the log tells of the type", || {
        s.vitals.log().contains("envoy.config.unheard.v9.Of")
    });
    s.is_well(transport);
}

fn a_hundred_thousand_names_are_answered(transport: Transport) {
    let mut s = stage(1);
    s.client.open("many", transport);
    let mut request = first(ASSIGNMENT);
    request[names_key(transport)] = json!(["shop"]);
    s.client.send_large("many", request, 100_000, 0);
    let answered = vitals_tests::wait::eventually(SOON, "an answer or a refusal", || {
        let events = s.client.events("many");
        events
            .iter()
            .find(|event| event["event"] == "end" || event["type"] == ASSIGNMENT)
            .cloned()
            .ok_or_else(|| format!("{} events", events.len()))
    });
    if answered["event"] == "end" {
        assert_eq!(answered["code"], "RESOURCE_EXHAUSTED", "{answered}");
    } else {
        let names = answered["names"].as_array().unwrap();
        assert!(names.contains(&json!("shop")), "{names:?}");
    }
    s.is_well(transport);
}

fn a_message_of_50_mb_is_refused(transport: Transport) {
    let mut s = stage(1);
    s.client.open("fat", transport);
    s.client.send_large("fat", first(CLUSTER), 0, 50 << 20);
    let (code, details) = s.client.end(SOON, "fat");
    assert!(
        ["RESOURCE_EXHAUSTED", "OUT_OF_RANGE"].contains(&code.as_str()),
        "{code}: {details}"
    );
    let refused = s.vitals.metric("vitals_refusals_total", "reason=\"size\"");
    assert_eq!(refused, Ok(1.0));
    s.is_well(transport);
}

fn garbage_nonces_are_ignored(transport: Transport) {
    let mut s = stage(1);
    s.client.open("odd", transport);
    s.client.send("odd", first(CLUSTER));
    let response = s.client.response(SOON, "odd", CLUSTER, 0);
    for nonce in ["", "garbage", "-1", "18446744073709551616", "\u{1f600}"] {
        let mut stale = json!({ "type_url": CLUSTER });
        // An empty one would be a first request, or in delta a spontaneous one.
        if !nonce.is_empty() {
            stale["response_nonce"] = json!(nonce);
            s.client.send("odd", stale);
        }
    }
    s.client.silent(Duration::from_secs(1), "odd");
    s.client.send(
        "odd",
        json!({ "type_url": CLUSTER, "response_nonce": response["nonce"] }),
    );
    s.is_well(transport);
}

fn a_client_that_never_reads_delays_nobody(transport: Transport) {
    let mut s = stage(2);
    let key = names_key(transport);
    let mut request = first(ASSIGNMENT);
    request[key] = json!(["shop"]);
    s.client.open_deaf("deaf", transport);
    // A name that is asked for again is answered again; nobody takes the answers.
    for number in 0..400 {
        let mut more = request.clone();
        more[key] = json!(["shop", format!("other-{number}")]);
        s.client.send("deaf", more);
    }
    s.client.open("quick", transport);
    s.client.send("quick", request);
    let _first = s.client.response(SOON, "quick", ASSIGNMENT, 0);
    s.backends[1].become_(Mode::ProbeStatus(500));
    let next = s.client.response(SOON, "quick", ASSIGNMENT, 1);
    assert_eq!(next["health"][s.backends[1].name()], "UNHEALTHY", "{next}");
    s.is_well(transport);
}
