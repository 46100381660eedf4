//! `unhealthyResponseCode` (semantics H5): a service's own answer while none of its endpoints is healthy.

use std::net::SocketAddr;

use serde_json::json;
use vitals_tests::backend::{Mode, PROBE_PATH};
use vitals_tests::config::endpoint;
use vitals_tests::lab::Scene;
use vitals_tests::servers::nginx;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(h5_only_its_own_requests_without_a_healthy_endpoint_get_the_code);

fn h5_only_its_own_requests_without_a_healthy_endpoint_get_the_code(transport: Transport) {
    let scene = Scene::new();
    let [coded, plain] = [scene.backend(11), scene.backend(12)];
    let refusing = SocketAddr::new(scene.net().host(13).into(), 21_950);
    let server = format!(
        "server {{ listen {refusing}; location / {{ return 503 \"its own\"; }} location {PROBE_PATH} {{ return 200; }} }}"
    );
    let _nginx = nginx(scene.dir(), &server, &[refusing]);
    let web = [coded, plain];
    let mut config = scene.shop(&web[..1]);
    config.service()["unhealthyResponseCode"] = json!(502);
    let mut routes = Vec::new();
    for (name, address) in [("plain", web[1].address()), ("refusing", refusing)] {
        config.push(
            "endpointGroups",
            json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": [endpoint(address)] }),
        );
        let mut service = config.service().clone();
        service["name"] = json!(name);
        service["backends"] = json!([{ "group": name }]);
        if name == "plain" {
            service
                .as_object_mut()
                .unwrap()
                .remove("unhealthyResponseCode");
        }
        config.push("backendServices", service);
        routes.push(json!({ "prefix": format!("/{name}"), "service": name }));
    }
    let all = config.0["fleets"][0]["listeners"][0]["routes"]
        .as_array_mut()
        .unwrap();
    all.splice(0..0, routes);
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    let answers = |path: &str, status: u16, body: &str| {
        eventually(SOON, &format!("{path} is answered with {status}"), || {
            let reply = scene.get(path)?;
            let same = reply.status == status && reply.body == body;
            same.then_some(()).ok_or_else(|| format!("{reply:?}"))
        });
    };
    answers("/", 200, web[0].name());
    answers("/plain", 200, web[1].name());
    // The service has a code, but the answer is its endpoint's.
    answers("/refusing", 503, "its own");
    for backend in &web {
        backend.become_(Mode::ProbeStatus(500));
    }
    answers("/", 502, "no healthy upstream");
    answers("/plain", 503, "no healthy upstream");
    answers("/refusing", 503, "its own");
}
