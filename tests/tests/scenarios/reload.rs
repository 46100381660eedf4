//! A reload changes what was edited and nothing else.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use vitals_tests::backend::Mode;
use vitals_tests::envoy::{FAILED, HEALTHY};
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::wait::{SOON, eventually, holds};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    an_endpoint_comes_and_goes_and_the_others_keep_since_and_phase,
    a_check_that_is_edited_keeps_the_status_until_it_judges,
    a_renamed_listener_goes_on_at_its_address,
    a_listener_turns_to_another_service_while_a_new_one_is_still_held,
);

const INTERVAL: Duration = Duration::from_secs(1);

fn since(lab: &Lab) -> Vec<Value> {
    lab.backends
        .iter()
        .map(|backend| lab.vitals.endpoint(backend.name()).unwrap()["since"].clone())
        .collect()
}

fn an_endpoint_comes_and_goes_and_the_others_keep_since_and_phase(transport: Transport) {
    let mut lab = Lab::on(Scene::alone(), transport, 3, |config| {
        config.every(1000, 1000)
    });
    // One of them is ill, so that both kinds of state are seen to stay.
    lab.backends[2].become_(Mode::ProbeStatus(500));
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[2].name(), FAILED);
    let before = since(&lab);
    assert!(before.iter().all(Value::is_string), "{before:?}");
    let begin = Instant::now();
    wait_for_probes(&lab, begin, 2);

    let fourth = lab.scene.backend(24);
    lab.config.add_endpoint(fourth.address());
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "shop", fourth.name(), HEALTHY);
    wait_for_probes(&lab, Instant::now(), 2);
    lab.scene
        .wait_for_traffic_to(&[&lab.backends[0], &lab.backends[1], &fourth]);
    lab.config.remove_endpoint(3);
    lab.save();
    lab.envoy.wait_until_gone(SOON, "shop", fourth.name());
    wait_for_probes(&lab, Instant::now(), 2);

    assert_eq!(since(&lab), before);
    for backend in &lab.backends {
        let times: Vec<Instant> = backend
            .probes()
            .into_iter()
            .filter(|t| *t > begin)
            .collect();
        for pair in times.windows(2) {
            let gap = pair[1] - pair[0];
            let off = gap.abs_diff(INTERVAL);
            assert!(
                off < INTERVAL / 3,
                "{}: {gap:?} between two probes: {:?}",
                backend.name(),
                times.iter().map(|t| *t - begin).collect::<Vec<_>>()
            );
        }
    }
}

/// Waits until each backend has been probed `count` times after `from`.
fn wait_for_probes(lab: &Lab, from: Instant, count: usize) {
    for backend in &lab.backends {
        eventually(SOON, "the probes go on", || {
            let seen = backend.probes().iter().filter(|t| **t > from).count();
            (seen >= count)
                .then_some(())
                .ok_or_else(|| format!("{seen} probes of {}", backend.name()))
        });
    }
}

fn a_check_that_is_edited_keeps_the_status_until_it_judges(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    lab.backends[1].become_(Mode::ProbeStatus(500));
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[1].name(), FAILED);
    // V8: another check content is another state key; what is published stays until the new check has judged.
    lab.config.check()["http"]["requestPath"] = serde_json::json!("/healthz?edited");
    lab.save();
    holds(
        Duration::from_secs(4),
        "Envoy sees one healthy and one failed host",
        || {
            let hosts = lab.envoy.hosts("shop")?;
            let flags: Vec<&str> = lab
                .backends
                .iter()
                .map(|b| hosts.get(b.name()).map_or("gone", String::as_str))
                .collect();
            if flags == [HEALTHY, FAILED] {
                Ok(())
            } else {
                Err(format!("{flags:?}"))
            }
        },
    );
    lab.backends[1].become_(Mode::Healthy);
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[1].name(), HEALTHY);
}

/// An Envoy refuses a listener on the address of another, and what it has refused is not sent again.
fn a_renamed_listener_goes_on_at_its_address(transport: Transport) {
    let mut lab = Lab::start(transport, 1);
    lab.config.0["fleets"][0]["listeners"][0]["name"] = json!("renamed");
    lab.save();
    eventually(SOON, "Envoy has the listener under its new name", || {
        let names = lab.envoy.listeners()?;
        (names == ["renamed"])
            .then_some(())
            .ok_or_else(|| format!("{names:?}"))
    });
    lab.scene.wait_for_traffic_to(&[&lab.backends[0]]);
    let client = lab.vitals.client(vitals_tests::lab::NODE).unwrap();
    assert_eq!(client["types"]["Listener"]["nack"], Value::Null, "{client}");
}

/// The old service must not leave before the listener has turned, which in SotW waits for the new listener.
fn a_listener_turns_to_another_service_while_a_new_one_is_still_held(transport: Transport) {
    let mut lab = Lab::start(transport, 1);
    let second = lab.scene.backend(22);
    let silent = lab.scene.backend(23);
    silent.become_(Mode::Silent);
    for (group, backend) in [("dc2", &second), ("dc3", &silent)] {
        let group = json!({
            "name": group, "type": "NON_GCP_PRIVATE_IP_PORT",
            "endpoints": [vitals_tests::config::endpoint(backend.address())],
        });
        lab.config.push("endpointGroups", group);
    }
    let service = |name: &str, group: &str| {
        json!({
            "name": name, "protocol": "HTTP", "healthCheck": "web",
            "backends": [{ "group": group }], "probing": { "by": ["PROBERS"] },
        })
    };
    lab.config.push("backendServices", service("cart", "dc2"));
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "cart", second.name(), HEALTHY);
    let load = lab.scene.load();

    lab.config.0["fleets"][0]["listeners"][0]["routes"] = json!([{ "service": "cart" }]);
    let slow = service("slow", "dc3");
    lab.config.0["backendServices"] = json!([service("cart", "dc2"), slow]);
    let address = lab.config.0["fleets"][0]["listeners"][0]["address"].clone();
    let held = json!({ "name": "held", "address": address, "port": 21899, "routes": [{ "service": "slow" }] });
    lab.config.0["fleets"][0]["listeners"]
        .as_array_mut()
        .unwrap()
        .push(held);
    lab.save();
    eventually(SOON, "both listeners are there", || {
        let names = lab.envoy.listeners()?;
        (names.len() == 2)
            .then_some(())
            .ok_or_else(|| format!("{names:?}"))
    });
    eventually(SOON, "requests reach cart", || {
        let count = second.requests();
        (count > 10).then_some(()).ok_or_else(|| format!("{count}"))
    });
    let failed: Vec<_> = load
        .samples()
        .into_iter()
        .filter(|sample| !sample.ok())
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}
