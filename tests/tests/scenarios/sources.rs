//! Who connects to endpoints from where: `/v1/sources` and `--source-address` (semantics P17), and the log line of a
//! transition with the times of every step (P16, S7).

use std::net::SocketAddr;

use serde_json::{Value, json};
use vitals_tests::config::endpoint;
use vitals_tests::hostile_tls::{HostileTls, TlsAct, Version, say};
use vitals_tests::lab::{Lab, NODE, Scene};
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(p17_probers_and_envoys_are_listed_with_addresses_and_ports);

fn of_kind<'v>(sources: &'v Value, kind: &str) -> Vec<&'v Value> {
    let rows = sources.as_array().expect("a list").iter();
    rows.filter(|row| row["kind"] == kind).collect()
}

fn p17_probers_and_envoys_are_listed_with_addresses_and_ports(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let ports = |purpose: &str| {
        let mut ports: Vec<u16> = lab.backends.iter().map(|b| b.address().port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let port = |port: &u16| json!({ "purpose": purpose, "protocol": "TCP", "port": port, "services": ["shop"] });
        ports.iter().map(port).collect::<Vec<_>>()
    };
    let (probes, traffic) = (ports("PROBES"), ports("TRAFFIC"));
    let sources = lab.vitals.json("/v1/sources").unwrap();
    // What Linux chooses for all of 127.0.0.0/8.
    let prober = json!({
        "kind": "PROBERS", "name": "embedded", "fleet": null, "address": "127.0.0.1", "destinations": probes,
    });
    assert_eq!(of_kind(&sources, "PROBERS"), [&prober]);
    let envoy = json!({
        "kind": "ENVOYS", "name": NODE, "fleet": "edge", "address": "127.0.0.1", "destinations": traffic,
    });
    assert_eq!(of_kind(&sources, "ENVOYS"), [&envoy]);

    // A reload shows, and an Envoy that has gone does not.
    lab.config.check()["portSpecification"] = json!("USE_FIXED_PORT");
    lab.config.check()["port"] = json!(9_999);
    lab.save();
    lab.envoy.process().kill();
    eventually(SOON, "the new port, and no Envoy", || {
        let sources = lab.vitals.json("/v1/sources")?;
        let probers = of_kind(&sources, "PROBERS");
        let right = probers.len() == 1
            && probers[0]["destinations"][0]["port"] == 9_999
            && of_kind(&sources, "ENVOYS").is_empty();
        right.then_some(()).ok_or_else(|| sources.to_string())
    });
}

#[test]
fn p17_a_source_address_is_listed_and_what_it_cannot_reach_is_told() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let mut config = scene.shop(&backends);
    let six: SocketAddr = "[::1]:9".parse().unwrap();
    config.add_endpoint(six);
    config.save(&scene.config_path());
    let source = scene.net().host(7).to_string();
    let vitals = Vitals::spawn_as(
        scene.net(),
        &scene.config_path(),
        scene.dir(),
        |mut command| {
            command.args(["--source-address", &source]);
            command
        },
    );
    vitals.wait_until_ready();
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
    let sources = vitals.json("/v1/sources").unwrap();
    let rows: Vec<_> = of_kind(&sources, "PROBERS")
        .iter()
        .map(|row| {
            (
                row["address"].clone(),
                row["destinations"][0]["port"].clone(),
            )
        })
        .collect();
    let port = backends[0].address().port();
    assert_eq!(
        rows,
        [(Value::Null, 9.into()), (source.into(), port.into())]
    );
    let log = vitals.log();
    assert!(
        log.contains("from which no IPv6 address can be probed") && log.contains("(services shop)"),
        "{log}"
    );
}

#[test]
fn s7_the_line_of_a_transition_has_the_time_of_every_step() {
    let scene = Scene::new();
    let address = SocketAddr::new(scene.net().host(11).into(), 21_970);
    let answer = say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let _backend = HostileTls::start(address, Version::Tls13, &[], vec![TlsAct::Read, answer]);
    let mut config = scene.shop(&[]);
    config.check()["type"] = json!("HTTPS");
    config.0["endpointGroups"][0]["endpoints"] = json!([endpoint(address)]);
    let vitals = scene.vitals(&config);
    vitals.wait_for_status(&address.to_string(), "HEALTHY");
    let log = eventually(SOON, "the line of the transition", || {
        let log = vitals.log();
        let line = log.lines().find(|line| line.contains("PROBING → HEALTHY"));
        line.map(str::to_owned).ok_or(log.clone())
    });
    let time = |key: &str| -> f64 {
        let rest = log
            .split_once(&format!(" {key}="))
            .unwrap_or_else(|| panic!("{key}: {log}"));
        let value = rest.1.split(' ').next().unwrap_or_default();
        value.parse().unwrap_or_else(|_| panic!("{key}: {log}"))
    };
    let steps = ["connect_ms", "tls_ms", "first_byte_ms", "total_ms"].map(time);
    assert!(steps.is_sorted() && steps[0] > 0.0, "{steps:?}: {log}");
}
