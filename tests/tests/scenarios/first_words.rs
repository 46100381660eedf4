//! What an Envoy is told before everything is judged (design §5.3, semantics S2).

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::envoy::{FAILED, HEALTHY};
use vitals_tests::lab::Scene;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    a_dead_and_a_live_endpoint_at_the_start_and_no_request_fails,
    silent_endpoints_alone_hold_envoy_for_a_few_seconds_only,
    a_service_new_by_reload_starts_without_a_failed_request,
);

fn a_dead_and_a_live_endpoint_at_the_start_and_no_request_fails(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(2);
    backends[0].become_(Mode::Closed);
    let config = scene.shop(&backends);
    config.save(&scene.config_path());
    let vitals = Vitals::spawn(scene.net(), &scene.config_path(), scene.dir());
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    let reached = scene.reached(100).expect("no request fails");
    assert_eq!(reached.len(), 1, "{reached:?}");
    assert!(reached.contains(backends[1].name()), "{reached:?}");
    envoy.wait_for_flags(SOON, "shop", backends[0].name(), FAILED);
}

fn silent_endpoints_alone_hold_envoy_for_a_few_seconds_only(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(2);
    for backend in &backends {
        backend.become_(Mode::Silent);
    }
    // min(timeout + 1 s, 5 s) = 5 s of hold. Envoy itself would give up waiting after 15 s.
    let config = scene.shop(&backends).every(10_000, 10_000);
    let vitals = scene.vitals(&config);
    let start = Instant::now();
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(12),
        "live only after {took:?}: that is Envoy's own patience, not the end of the hold"
    );
    // Nobody is judged yet, and a service without any healthy endpoint is of no use: they are given the chance.
    let hosts = envoy.hosts("shop").unwrap();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert!(hosts.values().all(|flags| flags == HEALTHY), "{hosts:?}");
    // S2: unhealthy on the first verdict.
    envoy.wait_for_flags(SOON, "shop", backends[0].name(), FAILED);
}

fn a_service_new_by_reload_starts_without_a_failed_request(transport: Transport) {
    let scene = Scene::new();
    let old = scene.backends(1);
    let mut config = scene.shop(&old);
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[&old[0]]);
    let new: Vec<Backend> = (21..23).map(|host| scene.backend(host)).collect();
    let addresses: Vec<SocketAddr> = new.iter().map(Backend::address).collect();
    config.push(
        "endpointGroups",
        serde_json::json!({
            "name": "dc2", "type": "NON_GCP_PRIVATE_IP_PORT",
            "endpoints": addresses.iter().map(|a| vitals_tests::config::endpoint(*a)).collect::<Vec<_>>(),
        }),
    );
    config.push(
        "backendServices",
        serde_json::json!({
            "name": "cart", "protocol": "HTTP", "healthCheck": "web",
            "backends": [{ "group": "dc2" }], "probing": { "by": ["PROBERS"] },
        }),
    );
    config.0["fleets"][0]["listeners"][0]["routes"] = serde_json::json!([{ "service": "cart" }]);
    let load = scene.load();
    config.save(&scene.config_path());
    eventually(SOON, "requests reach the new service", || {
        let count = new[0].requests();
        (count > 10).then_some(()).ok_or_else(|| format!("{count}"))
    });
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
