//! Envoys that check for themselves (semantics H7): what they find holds without the server, and both must agree where
//! both check.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use vitals_tests::backend::{Mode, PROBE_PATH};
use vitals_tests::config::{Config, LISTENER_PORT};
use vitals_tests::envoy::{FAILED, FAILED_CHECK, HEALTHY};
use vitals_tests::lab::Scene;
use vitals_tests::request::connect;
use vitals_tests::servers::nginx;
use vitals_tests::tcp_backend::TcpBackend;
use vitals_tests::wait::{SOON, eventually, holds, until};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    h7_an_envoy_ejects_at_the_threshold_and_goes_on_without_the_server,
    probers_and_envoys_must_both_find_it_healthy,
    an_edited_check_takes_nobody_out_before_it_has_judged,
    h4_an_envoy_closes_connections_to_what_fails_only_where_it_is_told,
);

fn by_envoys(mut config: Config) -> Config {
    config.service()["probing"]["by"] = json!(["ENVOYS"]);
    config
}

fn h7_an_envoy_ejects_at_the_threshold_and_goes_on_without_the_server(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let mut config = by_envoys(scene.shop(&backends));
    config.check()["unhealthyThreshold"] = json!(3);
    config.check()["healthyThreshold"] = json!(2);
    let mut vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[&backends[0], &backends[1]]);

    for server_runs in [true, false] {
        if !server_runs {
            vitals.kill();
        }
        let ill = &backends[0];
        // Half an interval stays until the next: none falls between the fault and the count.
        let before = ill.probes().len();
        until(SOON, "it is checked", || ill.probes().len() > before);
        ill.become_(Mode::ProbeStatus(500));
        let start = ill.probes().len();
        envoy.wait_for_flags(SOON, "shop", ill.name(), FAILED_CHECK);
        let failed = ill.probes().len() - start;
        assert_eq!(failed, 3, "unhealthyThreshold, server runs: {server_runs}");
        scene.wait_for_traffic_to(&[&backends[1]]);
        ill.become_(Mode::Healthy);
        envoy.wait_for_flags(SOON, "shop", ill.name(), HEALTHY);
        scene.wait_for_traffic_to(&[&backends[0], &backends[1]]);
    }
}

fn probers_and_envoys_must_both_find_it_healthy(transport: Transport) {
    let scene = Scene::new();
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_920);
    // Envoy's checks say who they are.
    let server = |at: SocketAddr, turned_away: &str| {
        format!(
            "server {{ listen {at}; location / {{ return 200 \"{at}\"; }}
               location {PROBE_PATH} {{ if ($http_user_agent {turned_away}) {{ return 500; }} return 200; }} }}\n"
        )
    };
    let [both, no_envoy, no_prober] = [at(11), at(12), at(13)];
    let servers = [
        server(both, "= nobody"),
        server(no_envoy, "= Envoy/HC"),
        server(no_prober, "!= Envoy/HC"),
    ];
    let _nginx = nginx(scene.dir(), &servers.concat(), &[both, no_envoy, no_prober]);
    let mut config = Config::shop(scene.net(), &[both, no_envoy, no_prober]);
    config.service()["probing"]["by"] = json!(["PROBERS", "ENVOYS"]);
    let vitals = scene.vitals(&config);
    vitals.wait_for_status(&no_prober.to_string(), "UNHEALTHY");
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    for (server, flags) in [
        (both, HEALTHY),
        (no_envoy, FAILED_CHECK),
        (no_prober, FAILED),
    ] {
        envoy.wait_for_flags(SOON, "shop", &server.to_string(), flags);
    }
    vitals.wait_for_status(&no_envoy.to_string(), "HEALTHY");
    let reached = scene.reached(12).unwrap();
    assert_eq!(reached, [both.to_string()].into());
}

fn an_edited_check_takes_nobody_out_before_it_has_judged(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let mut config = by_envoys(scene.shop(&backends));
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[&backends[0], &backends[1]]);
    let load = scene.load();
    let start = Instant::now();
    // Another check altogether, which both pass.
    config.check()["http"]["requestPath"] = json!("/other");
    config.check()["healthyThreshold"] = json!(5);
    let before: Vec<_> = backends.iter().map(|b| b.probes().len()).collect();
    config.save(&scene.config_path());
    let page = || envoy.admin("/config_dump?resource=dynamic_active_clusters");
    eventually(SOON, "Envoy asks the new check", || {
        let page = page()?.body;
        page.contains("/other").then_some(()).ok_or(page)
    });
    eventually(SOON, "50 requests were sent since", || {
        let count = load.count_since(start);
        (count >= 50).then_some(()).ok_or_else(|| count.to_string())
    });
    let failures = load.failures_since(start);
    assert!(failures.is_empty(), "{failures:?}");
    for (backend, before) in backends.iter().zip(before) {
        assert!(
            backend.probes().len() <= before + 8,
            "the old check goes on"
        );
    }
    // The old and the new differ in their verdict on one of them: it leaves when the new one has judged.
    backends[0].become_(Mode::ProbeStatus(500));
    config.check()["http"]["requestPath"] = json!(PROBE_PATH);
    config.save(&scene.config_path());
    envoy.wait_for_flags(SOON, "shop", backends[0].name(), FAILED_CHECK);
    envoy.wait_for_flags(SOON, "shop", backends[1].name(), HEALTHY);
    scene.wait_for_traffic_to(&[&backends[1]]);
    let failures = load.failures_since(start);
    assert!(failures.is_empty(), "{failures:?}");
}

fn h4_an_envoy_closes_connections_to_what_fails_only_where_it_is_told(transport: Transport) {
    let scene = Scene::new();
    // What is checked is beside the database (semantics P3), so that it can fail while the database goes on.
    let doctor = scene.backend(11);
    let db = TcpBackend::start(SocketAddr::new(scene.net().host(12).into(), 0));
    let mut config = by_envoys(Config::shop(scene.net(), &[db.address()]));
    *config.endpoint(0) = json!({
        "address": db.address().ip().to_string(), "port": db.address().port(),
        "healthCheckAddress": doctor.address().ip().to_string(),
        "healthCheckPort": doctor.address().port(),
    });
    config.service()["protocol"] = json!("TCP");
    let mut closing = config.service().clone();
    closing["name"] = json!("closing");
    closing["closeConnectionsOnUnhealthy"] = json!(true);
    config.push("backendServices", closing);
    let front = |n: u16| SocketAddr::new(scene.net().host(1).into(), LISTENER_PORT + n);
    config.0["fleets"][0]["listeners"] = json!([
        { "name": "stays", "address": front(0).ip().to_string(), "port": front(0).port(), "service": "shop" },
        { "name": "closes", "address": front(1).ip().to_string(), "port": front(1).port(), "service": "closing" },
    ]);
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    let open = |at: SocketAddr| {
        eventually(SOON, "the database greets through Envoy", || {
            let stream = connect(at, None).map_err(|error| error.to_string())?;
            let mut reader = BufReader::new(stream);
            let mut greeting = String::new();
            match reader.read_line(&mut greeting) {
                Ok(length) if length > 0 => Ok(reader),
                other => Err(format!("{other:?}")),
            }
        })
    };
    let (mut stays, mut closes) = (open(front(0)), open(front(1)));
    let name = db.address().to_string();
    doctor.become_(Mode::ProbeStatus(500));
    for cluster in ["shop", "closing"] {
        envoy.wait_for_flags(SOON, cluster, &name, FAILED_CHECK);
    }
    let ended = closes.read(&mut [0; 16]);
    assert!(matches!(ended, Ok(0)), "{ended:?}");
    stays.get_ref().set_nonblocking(true).unwrap();
    holds(
        Duration::from_secs(1),
        "the other connection stays",
        || match stays.read(&mut [0; 16]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
}
