//! `whenAllUnhealthy` at 200 endpoints (semantics H5, H6; design 5.5): one healthy endpoint gets everything, and without
//! one all of them do, or none.

use serde_json::json;
use vitals_tests::backend::Mode;
use vitals_tests::envoy::{DRAINING, FAILED, FAILED_CHECK, HEALTHY};
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::process::text;
use vitals_tests::vitals::vitals;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    h5_h6_one_healthy_of_200_gets_everything_and_without_one_all_or_none,
    h6_an_envoy_that_checks_for_itself_shares_with_those_that_rest_and_a_warning_says_so,
);

const ENDPOINTS: u8 = 200;

fn h5_h6_one_healthy_of_200_gets_everything_and_without_one_all_or_none(transport: Transport) {
    let mut lab = Lab::on(Scene::new(), transport, ENDPOINTS, |mut config| {
        config.service()["whenAllUnhealthy"] = json!("FAIL_OPEN");
        config.every(1000, 1000)
    });
    lab.config.endpoint(0)["state"] = json!("DRAINING");
    lab.config.endpoint(1)["weight"] = json!(0);
    lab.save();
    let (resting, others) = lab.backends.split_at(2);
    for backend in resting {
        lab.envoy
            .wait_for_flags(SOON, "shop", backend.name(), DRAINING);
    }
    let (last, ill) = others.split_last().unwrap();
    for backend in ill {
        backend.become_(Mode::ProbeStatus(500));
    }
    let with_flags = |flags: &str, due: usize| {
        eventually(SOON, &format!("{due} endpoints are {flags}"), || {
            let hosts = lab.envoy.hosts("shop")?;
            let count = hosts.values().filter(|seen| *seen == flags).count();
            match count == due {
                true => Ok(hosts.len()),
                false => Err(format!("{count}: {hosts:?}")),
            }
        })
    };
    let count = |requests: usize| lab.scene.counted(requests, &lab.backends).unwrap();

    // Not sooner than with none.
    with_flags(FAILED, ill.len());
    lab.scene.wait_for_traffic_to(&[last]);
    let counts = count(100);
    assert_eq!(counts.last(), Some(&100), "{counts:?}");

    last.become_(Mode::ProbeStatus(500));
    // Those that drain or have no weight are not even listed: Envoy's panic would serve them.
    assert_eq!(with_flags(FAILED, others.len()), others.len());
    lab.scene
        .wait_for_traffic_to(&others.iter().collect::<Vec<_>>());
    let counts = count(3 * others.len());
    assert_eq!(counts[..2], [0, 0], "{counts:?}");
    assert!(counts[2..].iter().all(|count| *count > 0), "{counts:?}");
    let rule = "H6 no endpoint is healthy: all share the traffic, FAIL_OPEN";
    lab.vitals.wait_for_line("shop", &["ALL", rule]);
    lab.vitals
        .wait_for_line("shop", &[ill[0].name(), "UNHEALTHY", " yes "]);

    last.become_(Mode::Healthy);
    with_flags(HEALTHY, 1);
    with_flags(DRAINING, 2);
    lab.scene.wait_for_traffic_to(&[last]);
    let counts = count(100);
    assert_eq!(counts.last(), Some(&100), "{counts:?}");

    last.become_(Mode::ProbeStatus(500));
    with_flags(FAILED, others.len());
    lab.config.service()["whenAllUnhealthy"] = json!("FAIL_CLOSED");
    lab.save();
    lab.scene.wait_for_answer(503);
    let before: u64 = lab.backends.iter().map(|b| b.requests()).sum();
    for _ in 0..20 {
        let reply = lab.scene.get("/").unwrap();
        assert_eq!(reply.status, 503, "{reply:?}");
    }
    let after: u64 = lab.backends.iter().map(|b| b.requests()).sum();
    assert_eq!(after, before, "a backend was asked");
    let rule = "H5 no endpoint is healthy: refused, FAIL_CLOSED";
    lab.vitals.wait_for_line("shop", &[rule]);
}

fn h6_an_envoy_that_checks_for_itself_shares_with_those_that_rest_and_a_warning_says_so(
    transport: Transport,
) {
    let scene = Scene::new();
    let backends = scene.backends(4);
    let mut config = scene.shop(&backends);
    config.service()["whenAllUnhealthy"] = json!("FAIL_OPEN");
    config.service()["probing"]["by"] = json!(["ENVOYS"]);
    config.endpoint(0)["state"] = json!("DRAINING");
    config.endpoint(1)["weight"] = json!(0);
    config.endpoint(2)["state"] = json!("STOPPED");
    let server = scene.vitals(&config);
    let envoy = scene.envoy(&server, transport);
    envoy.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[&backends[3]]);
    for backend in &backends {
        backend.become_(Mode::ProbeStatus(500));
    }
    envoy.wait_for_flags(SOON, "shop", backends[3].name(), FAILED_CHECK);
    // What it has found only it knows: nobody can leave the first two out for the time being.
    let sharing: Vec<_> = [0, 1, 3].iter().map(|n| &backends[*n]).collect();
    scene.wait_for_traffic_to(&sharing);
    let path = scene.config_path();
    let said = text(&vitals(&["validate", path.to_str().unwrap()]));
    let warning = "an Envoy that finds no endpoint healthy by its own check gives all of them traffic, those that drain";
    assert!(
        said.contains(warning) && said.contains(backends[0].name()),
        "{said}"
    );
}
