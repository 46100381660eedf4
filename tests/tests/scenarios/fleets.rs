//! Which node gets what, and what happens to a node that nobody knows.

use std::net::SocketAddr;

use serde_json::json;
use vitals_tests::config::LISTENER_PORT;
use vitals_tests::envoy::Envoy;
use vitals_tests::http_client::get;
use vitals_tests::lab::Scene;
use vitals_tests::vitals::bootstrap;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    two_fleets_by_node_cluster,
    a_node_that_matches_no_fleet_retries_until_one_does,
);

fn two_fleets_by_node_cluster(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let mut config = scene.shop(&backends[..1]);
    config.0["fleets"][0]["match"] = json!({ "cluster": "edge*" });
    config.0["fleets"][0]["services"] = json!(["shop"]);
    let inner = config.0["fleets"][0].clone();
    config.push("fleets", inner);
    config.0["fleets"][1]["name"] = json!("inner");
    config.0["fleets"][1]["match"] = json!({ "cluster": "inner" });
    config.0["fleets"][1]["services"] = json!(["cart"]);
    config.0["fleets"][1]["listeners"][0]["port"] = json!(LISTENER_PORT + 1);
    config.0["fleets"][1]["listeners"][0]["routes"] = json!([{ "service": "cart" }]);
    let group = json!({
        "name": "dc2", "type": "NON_GCP_PRIVATE_IP_PORT",
        "endpoints": [vitals_tests::config::endpoint(backends[1].address())],
    });
    config.push("endpointGroups", group);
    let mut cart = config.service().clone();
    cart["name"] = json!("cart");
    cart["backends"] = json!([{ "group": "dc2" }]);
    config.push("backendServices", cart);
    let vitals = scene.vitals(&config);
    let edge = Envoy::spawn(
        "edge-1",
        &vitals.bootstrap("edge", "edge-1", transport),
        scene.dir(),
    );
    let inner = Envoy::spawn(
        "inner-1",
        &vitals.bootstrap("inner", "inner-1", transport),
        scene.dir(),
    );
    edge.wait_until_live(SOON);
    inner.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[&backends[0]]);
    let listener = SocketAddr::new(scene.net().host(1).into(), LISTENER_PORT + 1);
    eventually(SOON, "the inner fleet reaches its service", || {
        let reply = get(&format!("http://{listener}/"))?;
        if reply.body == backends[1].name() {
            Ok(())
        } else {
            Err(format!("{reply:?}"))
        }
    });
    for (node, fleet) in [("edge-1", "edge"), ("inner-1", "inner")] {
        let client = vitals.client(node).unwrap();
        assert_eq!(client["fleet"], fleet, "{client}");
    }
    // Nobody is told of services that are not theirs.
    assert!(edge.hosts("cart").unwrap().is_empty());
    assert!(inner.hosts("shop").unwrap().is_empty());
}

fn a_node_that_matches_no_fleet_retries_until_one_does(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let mut config = scene.shop(&backends);
    let vitals = scene.vitals(&config);
    // A bootstrap made with another configuration, in which the node's cluster is `stranger`.
    let mut other = config.clone();
    other.0["fleets"][0]["match"] = json!({ "cluster": "stranger" });
    let other_path = scene.dir().join("other.yaml");
    other.save(&other_path);
    let bootstrap = bootstrap(&other_path, "edge", vitals.xds(), "lost-1", transport);
    let envoy = Envoy::spawn("lost-1", &bootstrap, scene.dir());
    eventually(SOON, "the log tells of the node", || {
        let log = vitals.log();
        let told = log.lines().any(|line| {
            line.contains("lost-1") && line.contains("stranger") && line.contains("fleet")
        });
        told.then_some(())
            .ok_or_else(|| "no line with node id, node cluster and the word fleet".into())
    });
    assert!(vitals.client("lost-1").is_err());
    assert_eq!(envoy.admin("/ready").unwrap().status, 503);
    config.0["fleets"][0]["match"] = json!({ "cluster": "*" });
    config.save(&scene.config_path());
    envoy.wait_until_live(SOON * 2);
    scene.wait_for_traffic_to(&[&backends[0]]);
}
