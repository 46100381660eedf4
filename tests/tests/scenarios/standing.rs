//! How far the real Envoy has come, as `vitals status --clients` and `--wait-acked` tell a person and a script.

use std::net::TcpListener;

use serde_json::json;
use vitals_tests::Transport;
use vitals_tests::config::LISTENER_PORT;
use vitals_tests::lab::{Lab, NODE, Scene};
use vitals_tests::on_both_transports;
use vitals_tests::process::text;
use vitals_tests::vitals::{Vitals, vitals};
use vitals_tests::wait::{SOON, eventually};

on_both_transports!(
    a_script_waits_until_every_envoy_has_the_new_state,
    a_refused_listener_is_named_and_not_waited_for,
);

fn wait_acked(server: &Vitals, more: &[&str]) -> (Option<i32>, String) {
    let admin = server.admin();
    let mut arguments = vec!["status", "--admin", &admin, "--wait-acked"];
    arguments.extend_from_slice(more);
    let output = vitals(&arguments);
    (output.status.code(), text(&output))
}

fn a_script_waits_until_every_envoy_has_the_new_state(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let (code, said) = wait_acked(&lab.vitals, &["--fleet", "edge"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("acked by 1 client"), "{said}");
    // What a deployment does: save, wait, go on.
    lab.config.service()["loadBalancing"] = json!({ "policy": "LEAST_REQUEST" });
    lab.save();
    let before = lab.vitals.client(NODE).unwrap()["types"]["Cluster"]["ackedVersion"].clone();
    let (code, said) = wait_acked(&lab.vitals, &["--fleet", "edge"]);
    assert_eq!(code, Some(0), "{said}");
    let after = lab.vitals.client(NODE).unwrap()["types"]["Cluster"]["ackedVersion"].clone();
    assert_ne!(
        before, after,
        "the Envoy has the new cluster when the command ends"
    );
    // Nobody is connected of another fleet.
    let (code, said) = wait_acked(
        &lab.vitals,
        &["--fleet", "inner", "--timeout", "100ms", "--settle", "0s"],
    );
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("0 clients are connected"), "{said}");
    let shown = text(&vitals(&[
        "status",
        "--clients",
        "--admin",
        &lab.vitals.admin(),
    ]));
    assert!(shown.contains(NODE) && shown.contains("ADS"), "{shown}");
    lab.vitals.terminate(SOON);
    let (code, said) = wait_acked(&lab.vitals, &[]);
    assert_eq!(code, Some(1), "{said}");
}

fn a_refused_listener_is_named_and_not_waited_for(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let config = scene.shop(&backends);
    let server = scene.vitals(&config);
    server.wait_for_status(backends[0].name(), "HEALTHY");
    // Somebody else has the listener's address.
    let taken = TcpListener::bind((scene.net().host(1), LISTENER_PORT)).unwrap();
    let _envoy = scene.envoy(&server, transport);
    let nack = eventually(SOON, "the listener is refused, by name", || {
        let client = server.client(NODE)?;
        let nack = client["types"]["Listener"]["nack"].clone();
        match nack["resources"] == json!(["http"]) {
            true => Ok(nack),
            false => Err(client.to_string()),
        }
    });
    assert!(nack["message"].as_str().unwrap().contains("http"), "{nack}");
    let (code, said) = wait_acked(&server, &["--timeout", "30s"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("Listener: refuses http: "), "{said}");
    drop(taken);
    // The log says the same.
    assert!(
        server.log().contains("the client refuses what it was sent"),
        "{}",
        server.log()
    );
}
