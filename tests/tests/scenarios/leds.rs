//! Endpoints apart from their load assignment (LEDS): what Envoy has is exactly what the server has, through flips,
//! additions, removals, broken connections and restarts; and whoever is no Envoy that speaks delta gets plain EDS.
//!
//! The other scenarios run in LEDS too (`on_every_transport`); here is what is special about it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::Config;
use vitals_tests::envoy::{DRAINING, Envoy, FAILED, HEALTHY};
use vitals_tests::lab::{Lab, NODE, Scene};
use vitals_tests::line::Line;
use vitals_tests::security::in_the_clear;
use vitals_tests::vitals::{Vitals, bootstrap};
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::xds::{ASSIGNMENT, CLUSTER, ENDPOINT, XdsClient, node};
use vitals_tests::{Transport, in_leds};

in_leds!(
    a_flip_is_one_small_resource_and_an_exchange_of_pools_none,
    additions_and_removals_leave_the_endpoints_exact,
    a_group_that_stops_and_starts_again_leaves_the_endpoints_exact,
    a_collection_that_lost_most_of_its_endpoints_gets_a_new_path,
    what_was_removed_while_the_line_was_cut_is_gone,
    what_was_removed_while_the_server_was_away_is_gone,
    a_changed_cluster_is_warm_at_once,
    an_envoy_that_names_itself_in_every_subscription_is_understood,
    a_fleet_turns_from_eds_to_leds_and_back_without_a_failed_request,
    others_get_plain_eds,
    what_is_refused_is_shown_and_not_sent_again,
);

const SICK: Mode = Mode::ProbeStatus(500);
/// Long enough to see that nothing is sent.
const QUIET: Duration = Duration::from_millis(1500);

/// Waits until Envoy has exactly these hosts with these flags.
#[track_caller]
fn wait_for_exactly(envoy: &Envoy, expected: &[(&Backend, &str)]) {
    let expected: BTreeMap<String, String> = expected
        .iter()
        .map(|(backend, flags)| (backend.name().to_owned(), (*flags).to_owned()))
        .collect();
    eventually(SOON, &format!("Envoy has exactly {expected:?}"), || {
        let hosts = envoy.hosts("shop")?;
        match hosts == expected {
            true => Ok(()),
            false => Err(format!("{hosts:?}")),
        }
    });
}

/// The collections that the Envoy is subscribed to.
fn collections(vitals: &Vitals) -> BTreeSet<String> {
    eventually(SOON, "the Envoy is subscribed to collections", || {
        let client = vitals.client(NODE)?;
        let globs = client["types"]["LbEndpoint"]["subscribed"].as_array();
        let globs = globs.into_iter().flatten().filter_map(Value::as_str);
        let globs: BTreeSet<String> = globs.map(str::to_owned).collect();
        match globs.is_empty() {
            true => Err(client.to_string()),
            false => Ok(globs),
        }
    })
}

/// How many responses of the two types went out.
fn pushes(vitals: &Vitals) -> [f64; 2] {
    ["ClusterLoadAssignment", "LbEndpoint"].map(|kind| {
        let labels = format!("type=\"{kind}\"");
        vitals.metric("vitals_xds_pushes_total", &labels).unwrap()
    })
}

fn a_flip_is_one_small_resource_and_an_exchange_of_pools_none(transport: Transport) {
    let scene = Scene::new();
    let other = scene.backend(40);
    let address = other.address();
    let lab = Lab::on(scene, transport, 3, move |mut config| {
        config.fail_over_to(&[address], json!({ "ratio": 0.6 }));
        config
    });
    let [a, b, c] = &lab.backends[..] else {
        unreachable!()
    };
    wait_for_exactly(
        &lab.envoy,
        &[(a, HEALTHY), (b, HEALTHY), (c, HEALTHY), (&other, HEALTHY)],
    );
    let globs = collections(&lab.vitals);
    assert_eq!(globs.len(), 2, "{globs:?}");
    let before = pushes(&lab.vitals);
    a.become_(SICK);
    lab.envoy.wait_for_flags(SOON, "shop", a.name(), FAILED);
    assert_eq!(pushes(&lab.vitals), [before[0], before[1] + 1.0]);
    // 1 of 3 is less than 0.6.
    b.become_(SICK);
    eventually(SOON, "Envoy has exchanged the pools", || {
        let priorities = lab.envoy.priorities("shop")?;
        let due = priorities[other.name()] == "0" && priorities[a.name()] == "1";
        due.then_some(()).ok_or_else(|| format!("{priorities:?}"))
    });
    lab.scene.wait_for_traffic_to(&[&other]);
    let exchanged = pushes(&lab.vitals);
    assert_eq!(exchanged, [before[0] + 1.0, before[1] + 2.0]);
    assert_eq!(collections(&lab.vitals), globs);
    wait_for_exactly(
        &lab.envoy,
        &[(a, FAILED), (b, FAILED), (c, HEALTHY), (&other, HEALTHY)],
    );
}

fn additions_and_removals_leave_the_endpoints_exact(transport: Transport) {
    let mut lab = Lab::start(transport, 3);
    let globs = collections(&lab.vitals);
    let fourth = lab.scene.backend(24);
    lab.config.add_endpoint(fourth.address());
    lab.config.remove_endpoint(0);
    lab.save();
    let [_, b, c] = &lab.backends[..] else {
        unreachable!()
    };
    wait_for_exactly(
        &lab.envoy,
        &[(b, HEALTHY), (c, HEALTHY), (&fourth, HEALTHY)],
    );
    lab.scene.wait_for_traffic_to(&[b, c, &fourth]);
    // One that left comes back, another drains.
    lab.config.add_endpoint(lab.backends[0].address());
    lab.config.endpoint(0)["state"] = json!("DRAINING");
    lab.save();
    let [a, b, c] = &lab.backends[..] else {
        unreachable!()
    };
    wait_for_exactly(
        &lab.envoy,
        &[
            (a, HEALTHY),
            (b, DRAINING),
            (c, HEALTHY),
            (&fourth, HEALTHY),
        ],
    );
    assert_eq!(collections(&lab.vitals), globs, "no reason for a new path");
}

fn a_group_that_stops_and_starts_again_leaves_the_endpoints_exact(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(3);
    let [a, b, other] = &backends[..] else {
        unreachable!()
    };
    let mut config = scene.shop(&backends[..2]);
    config.add_group("dc2", &[other.address()]);
    config.service()["backends"] = json!([{ "group": "dc1" }, { "group": "dc2" }]);
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    wait_for_exactly(&envoy, &[(a, HEALTHY), (b, HEALTHY), (other, HEALTHY)]);
    assert_eq!(collections(&vitals).len(), 2);
    // An Envoy waits for each collection that is named to it, and an empty one cannot be said.
    config.0["endpointGroups"][1]["endpoints"][0]["state"] = json!("STOPPED");
    config.save(&scene.config_path());
    wait_for_exactly(&envoy, &[(a, HEALTHY), (b, HEALTHY)]);
    a.become_(SICK);
    wait_for_exactly(&envoy, &[(a, FAILED), (b, HEALTHY)]);
    config.0["endpointGroups"][1]["endpoints"][0]["state"] = json!("ACTIVE");
    config.save(&scene.config_path());
    wait_for_exactly(&envoy, &[(a, FAILED), (b, HEALTHY), (other, HEALTHY)]);
    scene.wait_for_traffic_to(&[b, other]);
}

fn a_collection_that_lost_most_of_its_endpoints_gets_a_new_path(transport: Transport) {
    let scene = Scene::new();
    // Nobody checks them, and nobody is there.
    let addresses = |hosts: std::ops::Range<u8>| -> Vec<SocketAddr> {
        hosts
            .map(|host| (scene.net().host(host), 80).into())
            .collect()
    };
    let config = |hosts| {
        let mut config = Config::shop(scene.net(), &addresses(hosts));
        config.service()["healthCheck"] = json!("none");
        config.service().as_object_mut().unwrap().remove("probing");
        config
    };
    let vitals = scene.vitals(&config(50..200));
    let envoy = scene.envoy(&vitals, transport);
    let exact = |hosts| {
        let expected: BTreeSet<String> =
            addresses(hosts).iter().map(SocketAddr::to_string).collect();
        eventually(SOON, "Envoy has exactly these", || {
            let hosts: BTreeSet<String> = envoy.hosts("shop")?.into_keys().collect();
            match hosts == expected {
                true => Ok(()),
                false => Err(format!("{hosts:?}")),
            }
        });
    };
    exact(50..200);
    let first = collections(&vitals);
    config(50..130).save(&scene.config_path());
    exact(50..130);
    assert_eq!(collections(&vitals), first, "70 have left, 80 are there");
    config(50..100).save(&scene.config_path());
    exact(50..100);
    eventually(SOON, "the Envoy has given the old path up", || {
        let second = collections(&vitals);
        let is_new = second.len() == 1 && second.is_disjoint(&first);
        is_new.then_some(()).ok_or_else(|| format!("{second:?}"))
    });
    config(50..101).save(&scene.config_path());
    exact(50..101);
}

fn what_was_removed_while_the_line_was_cut_is_gone(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(4);
    let [a, b, c, d] = &backends[..] else {
        unreachable!()
    };
    let mut config = scene.shop(&backends[..3]);
    let vitals = in_the_clear(|| scene.vitals(&config));
    let line = Line::new((scene.net().host(2), 0).into(), vitals.xds());
    let text = bootstrap(
        &scene.config_path(),
        "edge",
        line.address(),
        NODE,
        transport,
    );
    let envoy = Envoy::spawn(NODE, &text, scene.dir());
    envoy.wait_until_live(SOON);
    wait_for_exactly(&envoy, &[(a, HEALTHY), (b, HEALTHY), (c, HEALTHY)]);
    let globs = collections(&vitals);
    for round in 0..2 {
        line.cut();
        eventually(SOON, "the Envoy is gone", || match vitals.client(NODE) {
            Ok(client) => Err(client.to_string()),
            Err(_) => Ok(()),
        });
        if round == 0 {
            config.remove_endpoint(0);
            config.add_endpoint(d.address());
            b.become_(SICK);
        } else {
            // The other way round.
            config.remove_endpoint(2);
            config.add_endpoint(a.address());
            b.become_(Mode::Healthy);
        }
        config.save(&scene.config_path());
        let there = if round == 0 { d } else { a };
        vitals.wait_for_status(there.name(), "HEALTHY");
        vitals.wait_for_status(b.name(), if round == 0 { "UNHEALTHY" } else { "HEALTHY" });
        line.mend();
        let flags = if round == 0 { FAILED } else { HEALTHY };
        wait_for_exactly(&envoy, &[(b, flags), (c, HEALTHY), (there, HEALTHY)]);
        assert_eq!(collections(&vitals), globs, "the same server");
    }
    scene.wait_for_traffic_to(&[a, b, c]);
}

fn what_was_removed_while_the_server_was_away_is_gone(transport: Transport) {
    let mut lab = Lab::start(transport, 3);
    let globs = collections(&lab.vitals);
    let load = lab.scene.load();
    let fourth = lab.scene.backend(24);
    lab.vitals.kill();
    lab.config.remove_endpoint(0);
    lab.config.add_endpoint(fourth.address());
    lab.save();
    lab.vitals.start_again();
    let [_, b, c] = &lab.backends[..] else {
        unreachable!()
    };
    wait_for_exactly(
        &lab.envoy,
        &[(b, HEALTHY), (c, HEALTHY), (&fourth, HEALTHY)],
    );
    b.become_(SICK);
    wait_for_exactly(&lab.envoy, &[(b, FAILED), (c, HEALTHY), (&fourth, HEALTHY)]);
    let new = collections(&lab.vitals);
    assert!(new.is_disjoint(&globs), "{new:?}");
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn a_changed_cluster_is_warm_at_once(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let load = lab.scene.load();
    let changes = |envoy: &Envoy| {
        let warming = envoy.stat("cluster_manager.warming_clusters").unwrap();
        (
            envoy.stat("cluster_manager.cluster_modified").unwrap(),
            warming,
        )
    };
    let (before, _) = changes(&lab.envoy);
    // Three changes in a row, so that one may come while another still warms.
    for limit in 1..4 {
        lab.config.service()["circuitBreakers"] =
            json!({ "thresholds": [{ "maxRequests": 1000 + limit }] });
        lab.save();
        eventually(SOON, "the change is published", || {
            let now = changes(&lab.envoy).0;
            (now >= before + limit).then_some(()).ok_or(now.to_string())
        });
    }
    // An Envoy that has not got all gives up after 15 s.
    eventually(
        Duration::from_secs(5),
        "the cluster is warm",
        || match changes(&lab.envoy) {
            (_, 0) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    lab.backends[0].become_(SICK);
    wait_for_exactly(
        &lab.envoy,
        &[(&lab.backends[0], FAILED), (&lab.backends[1], HEALTHY)],
    );
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn a_fleet_turns_from_eds_to_leds_and_back_without_a_failed_request(transport: Transport) {
    let mut lab = Lab::on(Scene::new(), transport, 3, |mut config| {
        config.0["fleets"][0]["endpointDiscovery"] = json!("EDS");
        config
    });
    let load = lab.scene.load();
    let types = |vitals: &Vitals| vitals.client(NODE).unwrap()["types"].clone();
    assert!(types(&lab.vitals).get("LbEndpoint").is_none());
    lab.config.0["fleets"][0]["endpointDiscovery"] = json!("LEDS");
    lab.save();
    assert_eq!(collections(&lab.vitals).len(), 1);
    let [a, b, c] = &lab.backends[..] else {
        unreachable!()
    };
    a.become_(SICK);
    wait_for_exactly(&lab.envoy, &[(a, FAILED), (b, HEALTHY), (c, HEALTHY)]);
    lab.config.0["fleets"][0]["endpointDiscovery"] = json!("EDS");
    lab.save();
    eventually(SOON, "it has given the collection up", || {
        let types = types(&lab.vitals);
        let left = types["LbEndpoint"]["subscribed"].as_array().map(Vec::len);
        (left == Some(0)).then_some(()).ok_or(types.to_string())
    });
    let [a, b, c] = &lab.backends[..] else {
        unreachable!()
    };
    b.become_(SICK);
    wait_for_exactly(&lab.envoy, &[(a, FAILED), (b, FAILED), (c, HEALTHY)]);
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn an_envoy_that_names_itself_in_every_subscription_is_understood(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(3);
    let [a, b, c] = &backends[..] else {
        unreachable!()
    };
    let mut config = scene.shop(&backends);
    let vitals = scene.vitals(&config);
    let text = vitals.bootstrap("edge", NODE, transport);
    let text = format!("{text}\nnode_context_params: [cluster, user_agent_name]\n");
    let envoy = Envoy::spawn(NODE, &text, scene.dir());
    envoy.wait_until_live(SOON);
    wait_for_exactly(&envoy, &[(a, HEALTHY), (b, HEALTHY), (c, HEALTHY)]);
    let globs = collections(&vitals);
    let named =
        |glob: &String| glob.ends_with("?xds.node.cluster=edge&xds.node.user_agent_name=envoy");
    assert!(globs.iter().all(named), "{globs:?}");
    b.become_(SICK);
    config.remove_endpoint(2);
    config.save(&scene.config_path());
    wait_for_exactly(&envoy, &[(a, HEALTHY), (b, FAILED)]);
}

/// A scripted client beside two backends.
struct Stage {
    client: XdsClient,
    vitals: Vitals,
    backends: Vec<Backend>,
    _scene: Scene,
}

fn stage() -> Stage {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let vitals = scene.vitals(&scene.shop(&backends));
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    Stage {
        client: XdsClient::start(vitals.xds(), scene.dir()),
        vitals,
        backends,
        _scene: scene,
    }
}

/// The first request of somebody who calls himself that.
fn first(kind: &str, user_agent: &str) -> Value {
    let mut node = node("client-1", "edge");
    node["user_agent_name"] = json!(user_agent);
    json!({ "node": node, "type_url": kind })
}

fn others_get_plain_eds(transport: Transport) {
    let mut s = stage();
    let names = s.backends.iter().map(Backend::name);
    let all: Value = names
        .map(|name| (name.to_owned(), json!("HEALTHY")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    for (stream, user_agent, form) in [
        ("sotw", "envoy", Transport::Sotw),
        ("grpc", "gRPC C-core", Transport::Sotw),
        ("delta", "go-control-plane", transport),
        ("nobody", "", transport),
    ] {
        s.client.open(stream, form);
        let mut request = first(ASSIGNMENT, user_agent);
        let key = if form.is_delta() {
            "resource_names_subscribe"
        } else {
            "resource_names"
        };
        request[key] = json!(["shop"]);
        s.client.send(stream, request);
        let response = s.client.response(SOON, stream, ASSIGNMENT, 0);
        assert_eq!(response["health"], all, "{stream}: {response}");
        assert_eq!(response["collections"], json!([]), "{stream}: {response}");
        // What is not for it is a type that is not served.
        let mut request = json!({ "type_url": ENDPOINT });
        request[key] = json!(["xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/x/*"]);
        s.client.send(stream, request);
    }
    s.backends[0].become_(SICK);
    for stream in ["sotw", "grpc", "delta", "nobody"] {
        let next = s.client.response(SOON, stream, ASSIGNMENT, 1);
        assert_eq!(next["health"][s.backends[0].name()], "UNHEALTHY", "{next}");
        assert_eq!(next["health"][s.backends[1].name()], "HEALTHY", "{next}");
        assert_eq!(s.client.count(stream, ENDPOINT), 0);
    }
    s.vitals.wait_for_log(&["LbEndpoint", "not served"]);
}

fn what_is_refused_is_shown_and_not_sent_again(transport: Transport) {
    let mut s = stage();
    s.client.open("s", transport);
    s.client.send("s", first(CLUSTER, "envoy"));
    let subscribe =
        |kind: &str, name: &Value| json!({ "type_url": kind, "resource_names_subscribe": [name] });
    s.client.send("s", subscribe(ASSIGNMENT, &json!("shop")));
    let assignment = s.client.response(SOON, "s", ASSIGNMENT, 0);
    assert_eq!(assignment["health"], json!({}), "{assignment}");
    let glob = &assignment["collections"][0];
    s.client.send("s", subscribe(ENDPOINT, glob));
    let whole = s.client.response(SOON, "s", ENDPOINT, 0);
    assert_eq!(whole["names"].as_array().map(Vec::len), Some(2), "{whole}");
    let path = glob.as_str().unwrap().trim_end_matches('*');
    assert!(whole["names"][0].as_str().unwrap().starts_with(path));
    s.client.send(
        "s",
        json!({
            "type_url": ENDPOINT, "response_nonce": whole["nonce"],
            "error_detail": { "code": 3, "message": "I do not like it" },
        }),
    );
    let nack = || -> Result<Value, String> {
        let client = s.vitals.client("client-1")?;
        Ok(client["types"]["LbEndpoint"]["nack"].clone())
    };
    eventually(SOON, "the refusal is shown", || {
        let nack = nack()?;
        match nack["message"] == "I do not like it" {
            true => Ok(()),
            false => Err(nack.to_string()),
        }
    });
    s.client.silent(QUIET, "s");
    for (backend, skip) in [(0, 1), (1, 2)] {
        s.backends[backend].become_(SICK);
        let next = s.client.response(SOON, "s", ENDPOINT, skip);
        let due = json!({ s.backends[backend].name(): "UNHEALTHY" });
        assert_eq!(next["health"], due, "that one and no other: {next}");
        // With the five bytes of its gRPC frame.
        assert!(next["bytes"].as_u64().unwrap() <= 295, "{next}");
        s.client.send(
            "s",
            json!({ "type_url": ENDPOINT, "response_nonce": next["nonce"] }),
        );
    }
    eventually(SOON, "nothing that was refused is left", || {
        nack().and_then(|nack| nack.is_null().then_some(()).ok_or(nack.to_string()))
    });
    assert_eq!(s.client.count("s", ASSIGNMENT), 1);
}
