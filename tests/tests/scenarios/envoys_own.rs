//! Envoy's own fields of a service: what the configuration says in them, Envoy does.

use serde_json::json;
use vitals_tests::backend::Mode;
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    outlier_detection_ejects_an_endpoint_that_fails_only_its_clients,
    circuit_breakers_refuse_what_is_too_much_and_a_reload_opens_them,
);

fn outlier_detection_ejects_an_endpoint_that_fails_only_its_clients(transport: Transport) {
    let lab = Lab::on(Scene::new(), transport, 2, |mut config| {
        config.service()["outlierDetection"] = json!({
            "consecutive5xx": 3, "interval": "250ms", "base_ejection_time": "300s",
            "maxEjectionPercent": 100,
        });
        config
    });
    let [good, bad] = &lab.backends[..] else {
        panic!("there are two backends");
    };
    bad.become_(Mode::TrafficStatus(500));
    eventually(SOON, "requests reach only the other one", || {
        let reached = lab.scene.reached(10)?;
        match reached.contains(bad.name()) {
            true => Err(format!("{reached:?}")),
            false => Ok(()),
        }
    });
    lab.envoy
        .wait_for_flags(SOON, "shop", bad.name(), "/failed_outlier_check");
    lab.envoy
        .wait_for_flags(SOON, "shop", good.name(), "healthy");
    // Its probes pass, and they are what EDS says; the ejection is Envoy's own.
    let entry = lab.vitals.endpoint(bad.name()).unwrap();
    assert_eq!(entry["status"], "HEALTHY", "{entry}");
}

fn circuit_breakers_refuse_what_is_too_much_and_a_reload_opens_them(transport: Transport) {
    let mut lab = Lab::start(transport, 1);
    lab.config.service()["circuitBreakers"] = json!({
        "thresholds": [{ "priority": "DEFAULT", "max_requests": 0 }],
    });
    lab.save();
    eventually(SOON, "the breaker is open", || {
        let reply = lab.scene.get("/")?;
        match reply.status {
            503 if reply.body.contains("overflow") => Ok(()),
            _ => Err(format!("{reply:?}")),
        }
    });
    lab.config.service()["circuitBreakers"]["thresholds"][0]["max_requests"] = json!(100);
    lab.save();
    lab.scene
        .wait_for_traffic_to(&lab.backends.iter().collect::<Vec<_>>());
}
