//! An invalid configuration changes nothing but what is said about it.

use serde_json::{Value, json};
use vitals_tests::config::save;
use vitals_tests::envoy::HEALTHY;
use vitals_tests::lab::Lab;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(an_invalid_reload_changes_nothing_and_a_fix_is_taken);

fn an_invalid_reload_changes_nothing_and_a_fix_is_taken(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let load = lab.scene.load();
    let before = served(&lab);
    let cds = lab.envoy.stat("cluster_manager.cds.update_success");
    assert_eq!(readyz(&lab).1["reload"], "ok");

    // Two mistakes, and an endpoint fewer: nothing of it may be taken.
    let mut wrong = lab.config.clone();
    wrong.remove_endpoint(0);
    wrong.check()["checkInterval"] = json!("soon");
    wrong.service()["healthCheck"] = json!("nobody");
    wrong.save(&lab.scene.config_path());
    let errors = wait_for_reload(&lab, "error");
    let text = errors.to_string();
    assert!(
        errors.as_array().is_some_and(|list| list.len() == 2),
        "{text}"
    );
    assert!(
        text.contains("checkInterval") && text.contains("nobody"),
        "{text}"
    );
    assert!(text.contains("vitals.yaml:"), "{text}");
    wait_for_metric(&lab, "error", 1.0);
    assert!(
        lab.vitals.log().contains("nobody"),
        "the log says what is wrong"
    );

    // Not YAML at all.
    save(&lab.scene.config_path(), "fleets: [");
    wait_for_metric(&lab, "error", 2.0);
    wait_for_reload(&lab, "error");

    assert_eq!(served(&lab), before);
    let hosts = lab.envoy.hosts("shop").unwrap();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert!(hosts.values().all(|flags| flags == HEALTHY), "{hosts:?}");
    assert_eq!(lab.envoy.stat("cluster_manager.cds.update_success"), cds);

    let third = lab.scene.backend(23);
    lab.config.add_endpoint(third.address());
    lab.save();
    lab.envoy
        .wait_for_flags(SOON, "shop", third.name(), HEALTHY);
    let errors = wait_for_reload(&lab, "ok");
    assert_eq!(errors, json!([]));
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// What Vitals says of its endpoints, save what every probe changes.
fn served(lab: &Lab) -> Value {
    let mut endpoints = lab.vitals.json("/v1/endpoints").unwrap();
    for endpoint in endpoints.as_array_mut().unwrap() {
        endpoint.as_object_mut().unwrap().remove("votes");
    }
    endpoints
}

fn readyz(lab: &Lab) -> (u16, Value) {
    vitals_tests::http_client::get_json(&format!("{}/readyz", lab.vitals.admin())).unwrap()
}

/// Waits until `/readyz` tells this result, with 200; returns its errors.
fn wait_for_reload(lab: &Lab, result: &str) -> Value {
    eventually(SOON, &format!("/readyz says reload: {result}"), || {
        let (status, body) = readyz(lab);
        assert_eq!(status, 200, "a running model is a ready server: {body}");
        if body["reload"] == result {
            Ok(body["errors"].clone())
        } else {
            Err(body.to_string())
        }
    })
}

fn wait_for_metric(lab: &Lab, result: &str, at_least: f64) {
    eventually(SOON, "the failed reload is counted", || {
        let count = lab.vitals.metric(
            "vitals_config_reloads_total",
            &format!("result=\"{result}\""),
        )?;
        (count >= at_least)
            .then_some(())
            .ok_or_else(|| format!("{count}"))
    });
}
