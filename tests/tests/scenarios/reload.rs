//! A reload changes what was edited and nothing else.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use vitals_tests::backend::Mode;
use vitals_tests::envoy::{FAILED, HEALTHY};
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::wait::{SOON, eventually, holds};
use vitals_tests::{Transport, on_both_transports};

on_both_transports!(
    an_endpoint_comes_and_goes_and_the_others_keep_since_and_phase,
    a_check_that_is_edited_keeps_the_status_until_it_judges,
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
