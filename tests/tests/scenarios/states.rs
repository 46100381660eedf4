//! Words of the operator beside the verdicts of the checks: DRAINING, STOPPED, weight 0, removal (semantics S6, H1).

use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::backend::Mode;
use vitals_tests::envoy::{DRAINING, HEALTHY};
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::wait::{SOON, eventually, until};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    state_draining_drains_one_and_touches_no_other,
    a_removed_endpoint_drains_first,
    weight_zero_is_probed_but_gets_nothing,
    a_stopped_endpoint_is_omitted,
    h6_fail_open_sends_nothing_to_an_endpoint_that_drains_also_when_it_is_the_last,
);

fn since(lab: &Lab, n: usize) -> Value {
    lab.vitals.endpoint(lab.backends[n].name()).unwrap()["since"].clone()
}

fn state_draining_drains_one_and_touches_no_other(transport: Transport) {
    let mut lab = Lab::start(transport, 3);
    let before = since(&lab, 1);
    lab.config.endpoint(0)["state"] = json!("DRAINING");
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[0].name(), DRAINING);
    lab.scene
        .wait_for_traffic_to(&[&lab.backends[1], &lab.backends[2]]);
    let hosts = lab.envoy.hosts("shop").unwrap();
    assert_eq!(hosts[lab.backends[1].name()], HEALTHY, "{hosts:?}");
    assert_eq!(since(&lab, 1), before);
    lab.vitals
        .wait_for_status(lab.backends[0].name(), "DRAINING");
    // It stays in EDS while it is configured, and is probed.
    let probes = lab.backends[0].probes().len();
    until(SOON, "it is still probed", || {
        lab.backends[0].probes().len() > probes
    });
    lab.config.endpoint(0)["state"] = json!("ACTIVE");
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[0].name(), HEALTHY);
}

fn a_removed_endpoint_drains_first(transport: Transport) {
    let mut lab = Lab::on(Scene::new(), transport, 2, |mut config| {
        config.service()["connectionDraining"] = json!("2s");
        config
    });
    let gone = lab.backends[0].name().to_owned();
    let load = lab.scene.load();
    lab.config.remove_endpoint(0);
    lab.save();
    lab.envoy.wait_for_flags(SOON, "shop", &gone, DRAINING);
    lab.envoy.wait_until_gone(SOON, "shop", &gone);
    eventually(SOON, "vitals no longer lists it", || {
        match lab.vitals.endpoint(&gone) {
            Ok(entry) => Err(entry.to_string()),
            Err(_) => Ok(()),
        }
    });
    lab.scene.wait_for_traffic_to(&[&lab.backends[1]]);
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn weight_zero_is_probed_but_gets_nothing(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    lab.config.endpoint(0)["weight"] = json!(0);
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[0].name(), DRAINING);
    lab.scene.wait_for_traffic_to(&[&lab.backends[1]]);
    let probes = lab.backends[0].probes().len();
    until(SOON, "it is still probed", || {
        lab.backends[0].probes().len() > probes
    });
    lab.config.endpoint(0)["weight"] = json!(1);
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[0].name(), HEALTHY);
}

fn a_stopped_endpoint_is_omitted(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let stopped = lab.backends[0].name().to_owned();
    lab.config.endpoint(0)["state"] = json!("STOPPED");
    lab.save();
    lab.envoy.wait_until_gone(SOON, "shop", &stopped);
    let entry = eventually(SOON, "vitals says that it is stopped", || {
        let entry = lab.vitals.endpoint(&stopped)?;
        if entry["detailedStatus"] == "STOPPED" {
            Ok(entry)
        } else {
            Err(entry.to_string())
        }
    });
    assert!(entry["status"].is_null(), "{entry}");
    let probes = lab.backends[0].probes().len();
    let others = lab.backends[1].probes().len();
    until(SOON, "the other has been probed four times more", || {
        lab.backends[1].probes().len() >= others + 4
    });
    // One may have been under way.
    let more = lab.backends[0].probes().len() - probes;
    assert!(more <= 1, "{more} probes of a stopped machine");
    lab.config.endpoint(0)["state"] = json!("ACTIVE");
    lab.save();
    lab.envoy
        .wait_for_flags(SOON + Duration::from_secs(5), "shop", &stopped, HEALTHY);
}

fn h6_fail_open_sends_nothing_to_an_endpoint_that_drains_also_when_it_is_the_last(
    transport: Transport,
) {
    let mut lab = Lab::on(Scene::new(), transport, 2, |mut config| {
        config.service()["whenAllUnhealthy"] = json!("FAIL_OPEN");
        config
    });
    lab.config.endpoint(0)["state"] = json!("DRAINING");
    lab.config.endpoint(1)["weight"] = json!(0);
    lab.save();
    eventually(SOON, "requests are refused", || {
        let reply = lab.scene.get("/")?;
        (reply.status == 503)
            .then_some(())
            .ok_or_else(|| format!("{reply:?}"))
    });
    // One that fails shows what FAIL_OPEN is for.
    lab.backends[1].become_(Mode::ProbeStatus(500));
    lab.config.endpoint(1)["weight"] = json!(1);
    lab.save();
    lab.vitals
        .wait_for_status(lab.backends[1].name(), "UNHEALTHY");
    lab.scene.wait_for_traffic_to(&[&lab.backends[1]]);
}
