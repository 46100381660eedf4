//! What people are told of endpoints: every detailed status at once, beside what EDS says (semantics S2, S5, S6, H1).

use std::net::SocketAddr;

use serde_json::{Value, json};
use vitals_tests::backend::Mode;
use vitals_tests::config::endpoint;
use vitals_tests::lab::Scene;
use vitals_tests::wait::{SOON, eventually};

#[test]
fn s2_s5_s6_each_endpoint_is_told_in_its_own_words() {
    let scene = Scene::new();
    let backends = scene.backends(7);
    let [well, wrong, gone, draining, weightless, stopped, unchecked] = &backends[..] else {
        unreachable!()
    };
    wrong.become_(Mode::ProbeStatus(503));
    gone.become_(Mode::Closed);
    let mut config = scene.shop(&backends[..6]);
    config.endpoint(3)["state"] = json!("DRAINING");
    config.endpoint(4)["weight"] = json!(0);
    config.endpoint(5)["state"] = json!("STOPPED");
    // Under TENCENT_ALB nothing is said before a threshold is reached, here after twenty seconds.
    let silent: SocketAddr = SocketAddr::new(scene.net().host(40).into(), 21_980);
    let _silent = std::net::TcpListener::bind(silent).unwrap();
    config.push(
        "healthChecks",
        json!({
            "name": "alb", "profile": "TENCENT_ALB", "type": "HTTP", "checkInterval": "3s", "timeout": "2s",
            "healthyThreshold": 10, "unhealthyThreshold": 10,
            "http": { "host": "a.example", "expectedStatuses": ["http_2xx"] },
        }),
    );
    for (name, check, address) in [
        ("alb", Some("alb"), silent),
        ("unchecked", None, unchecked.address()),
    ] {
        config.push(
            "endpointGroups",
            json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": [endpoint(address)] }),
        );
        let mut service =
            json!({ "name": name, "protocol": "HTTP", "backends": [{ "group": name }] });
        if let Some(check) = check {
            service["healthCheck"] = json!(check);
            service["probing"] = json!({ "by": ["PROBERS"] });
        }
        config.push("backendServices", service);
    }
    let vitals = scene.vitals(&config);
    let told = |address: SocketAddr| {
        let entry = vitals.endpoint(&address.to_string())?;
        Ok::<_, String>((entry["status"].clone(), entry["detailedStatus"].clone()))
    };
    let due = [
        (well, Some("HEALTHY"), "HEALTHY"),
        (wrong, Some("UNHEALTHY"), "UNHEALTHY"),
        (gone, Some("TIMEOUT"), "TIMEOUT"),
        (draining, Some("DRAINING"), "DRAINING"),
        (weightless, Some("DRAINING"), "DRAINING"),
        (stopped, None, "STOPPED"),
        (unchecked, Some("HEALTHY"), "DISABLED"),
    ];
    for (backend, status, detailed) in due {
        let due = (Value::from(status), Value::from(detailed));
        eventually(SOON, &format!("{} is {detailed}", backend.name()), || {
            let told = told(backend.address())?;
            (told == due)
                .then_some(())
                .ok_or_else(|| format!("{told:?}"))
        });
    }
    // A probe of it has timed out by now, and it is no verdict.
    let probing = eventually(SOON, "the first probe of the silent one", || {
        let entry = vitals.endpoint(&silent.to_string())?;
        let failed = entry["votes"][0]["lastFailure"]["outcome"] == "TIMEOUT";
        failed
            .then(|| entry.clone())
            .ok_or_else(|| entry.to_string())
    });
    assert_eq!(probing["detailedStatus"], "PROBING", "{probing}");
    assert_eq!(probing["votes"][0]["verdict"], Value::Null, "{probing}");
    // DRAINING and weight 0 are probed; stopped machines, and those without a check, are not.
    for (backend, probed) in [
        (draining, true),
        (weightless, true),
        (stopped, false),
        (unchecked, false),
    ] {
        assert_eq!(!backend.probes().is_empty(), probed, "{}", backend.name());
    }
}
