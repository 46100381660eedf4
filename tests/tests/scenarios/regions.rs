//! `fleets[].regionOrder` (semantics H10): each fleet's traffic goes to the nearest region that has a healthy endpoint.

use serde_json::json;
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::{LISTENER_PORT, endpoint};
use vitals_tests::envoy::{Envoy, HEALTHY};
use vitals_tests::http_client::get;
use vitals_tests::lab::Scene;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(h10_each_fleet_goes_to_its_nearest_region_that_is_healthy);

fn h10_each_fleet_goes_to_its_nearest_region_that_is_healthy(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(3);
    let mut config = scene.shop(&backends[..1]);
    config.0["endpointGroups"][0]["locality"] = json!({ "region": "east", "zone": "a" });
    for (name, region, backend) in [
        ("dc2", "west", &backends[1]),
        ("dc3", "south", &backends[2]),
    ] {
        config.push(
            "endpointGroups",
            json!({
                "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "locality": { "region": region, "zone": "a" },
                "endpoints": [endpoint(backend.address())],
            }),
        );
    }
    config.service()["backends"] =
        json!([{ "group": "dc1" }, { "group": "dc2" }, { "group": "dc3" }]);
    let mut west = config.0["fleets"][0].clone();
    west["name"] = json!("west");
    west["match"]["cluster"] = json!("west");
    west["listeners"][0]["port"] = json!(LISTENER_PORT + 1);
    // South is in no order: it comes last.
    config.0["fleets"][0]["regionOrder"] = json!(["east", "west"]);
    west["regionOrder"] = json!(["west", "east"]);
    config.push("fleets", west);
    let vitals = scene.vitals(&config);
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    let at_east = scene.envoy(&vitals, transport);
    let bootstrap = vitals.bootstrap("west", "envoy-2", transport);
    let at_west = Envoy::spawn("envoy-2", &bootstrap, scene.dir());
    let envoys = [at_east, at_west];
    for envoy in &envoys {
        envoy.wait_until_live(SOON);
    }
    let go_to = |fleet: u16, expected: &Backend| {
        let url = format!("http://{}:{}/", scene.net().host(1), LISTENER_PORT + fleet);
        eventually(
            SOON,
            &format!("fleet {fleet} goes to {}", expected.name()),
            || {
                for _ in 0..10 {
                    let reply = get(&url)?;
                    if reply.status != 200 || reply.body != expected.name() {
                        return Err(format!("{reply:?}"));
                    }
                }
                Ok(())
            },
        );
    };
    let [east, west, south] = &backends[..] else {
        unreachable!()
    };
    for (fleet, order) in [
        ("edge", "east, west, then others"),
        ("west", "west, east, then others"),
    ] {
        let words = ["(H10)", order, "Services: shop"];
        let text = vitals.status().unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("fleet {fleet} ")));
        assert!(
            line.is_some_and(|line| words.iter().all(|word| line.contains(word))),
            "{text}"
        );
    }
    go_to(0, east);
    go_to(1, west);
    east.become_(Mode::ProbeStatus(500));
    go_to(0, west);
    go_to(1, west);
    west.become_(Mode::ProbeStatus(500));
    go_to(0, south);
    go_to(1, south);
    east.become_(Mode::Healthy);
    go_to(0, east);
    go_to(1, east);
    for envoy in &envoys {
        envoy.wait_for_flags(SOON, "shop", east.name(), HEALTHY);
    }
}
