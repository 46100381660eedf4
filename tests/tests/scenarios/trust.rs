//! TLS and mutual TLS on the xDS listener: who is served, who is refused, and that the log says who and why.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use vitals_tests::authority::{Authority, replace};
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::Config;
use vitals_tests::envoy::{Envoy, FAILED, HEALTHY};
use vitals_tests::lab::{NODE, Scene};
use vitals_tests::servers::Certificate;
use vitals_tests::vitals::{Vitals, bootstrap_with};
use vitals_tests::wait::{SOON, eventually, until};
use vitals_tests::xds::{CLUSTER, XdsClient, node};
use vitals_tests::{Transport, on_both_transports};

on_both_transports!(
    an_envoy_is_served_over_tls,
    an_envoy_that_speaks_tls_to_a_plain_server_is_told_of,
    an_envoy_that_the_fleet_admits_is_served_over_mutual_tls,
    without_a_certificate_of_the_authority_a_client_gets_nothing,
    with_another_spiffe_id_a_client_gets_nothing,
    a_stream_lives_through_a_rotation_and_new_ones_meet_the_new_files,
    a_fleet_that_no_longer_admits_a_client_ends_its_stream,
);

const EDGE: &str = "spiffe://mesh/edge/1";

/// A server with mutual TLS, and its authority.
struct Stage {
    vitals: Vitals,
    backends: Vec<Backend>,
    config: Config,
    own: Certificate,
    authority: Authority,
    scene: Scene,
}

fn tls_flags(mut command: Command, own: &Certificate, client_ca: Option<&Path>) -> Command {
    command.arg("--tls-cert").arg(&own.cert);
    command.arg("--tls-key").arg(&own.key);
    if let Some(ca) = client_ca {
        command.arg("--client-ca").arg(ca);
    }
    command
}

/// Fleet `edge` admits `spiffe://mesh/edge/*`.
fn stage() -> Stage {
    let scene = Scene::new();
    let authority = Authority::new(scene.dir(), "ca");
    let own = authority.issue("server", &scene.net().host(1).to_string());
    let backends = scene.backends(2);
    let mut config = scene.shop(&backends);
    config.0["fleets"][0]["allow"] = json!({ "spiffeIds": ["spiffe://mesh/edge/*"] });
    config.save(&scene.config_path());
    let vitals = Vitals::spawn_as(scene.net(), &scene.config_path(), scene.dir(), |command| {
        tls_flags(command, &own, Some(&authority.cert))
    });
    vitals.wait_until_ready();
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    Stage {
        vitals,
        backends,
        config,
        own,
        authority,
        scene,
    }
}

impl Stage {
    fn client(&self, ca: &Path, own: Option<&Certificate>) -> XdsClient {
        XdsClient::start_tls(self.vitals.xds(), self.scene.dir(), ca, own)
    }

    /// A stream that asks for clusters ends with this code, and nothing was told on it.
    fn refused(&self, transport: Transport, ca: &Path, own: Option<&Certificate>, code: &str) {
        let mut client = self.client(ca, own);
        client.open("s", transport);
        client.send("s", first());
        let (ended, details) = client.end(SOON, "s");
        assert_eq!(ended, code, "{details}");
        assert_eq!(client.count("s", CLUSTER), 0);
        assert!(!details.contains("spiffe"), "it learns too much: {details}");
    }

    fn served(&self, transport: Transport, ca: &Path, own: &Certificate) -> XdsClient {
        let mut client = self.client(ca, Some(own));
        client.open("s", transport);
        client.send("s", first());
        let response = client.response(SOON, "s", CLUSTER, 0);
        assert_eq!(response["names"], json!(["shop"]), "{response}");
        client
    }

    /// Waits for a line of the log with all of these in it.
    fn logged(&self, words: &[&str]) {
        until(SOON, &format!("a line with {words:?}"), || {
            let log = self.vitals.log();
            log.lines()
                .any(|line| words.iter().all(|word| line.contains(word)))
        });
    }

    fn refusals(&self, reason: &str) -> f64 {
        let labels = format!("reason=\"{reason}\"");
        let metric = self.vitals.metric("vitals_refusals_total", &labels);
        metric.expect("the server has metrics")
    }
}

fn first() -> Value {
    json!({ "node": node("client-1", "edge"), "type_url": CLUSTER })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the scenario's folder is ASCII")
}

fn an_envoy_is_served_over_tls(transport: Transport) {
    let scene = Scene::new();
    let authority = Authority::new(scene.dir(), "ca");
    let own = authority.issue("server", "vitals.example");
    let backends = scene.backends(2);
    scene.shop(&backends).save(&scene.config_path());
    let vitals = Vitals::spawn_as(scene.net(), &scene.config_path(), scene.dir(), |command| {
        tls_flags(command, &own, None)
    });
    vitals.wait_until_ready();
    let tls = ["--tls-ca", text(&authority.cert), "--tls-sni"];
    let envoy = |sni: &str, name: &str| {
        let flags = [&tls[..], &[sni]].concat();
        let path = scene.config_path();
        let config = bootstrap_with(&path, "edge", vitals.xds(), name, transport, &flags);
        Envoy::spawn(name, &config, scene.dir())
    };
    // One that expects another server does not listen to this one.
    let misled = envoy("other.example", "misled");
    let good = envoy("vitals.example", NODE);
    good.wait_until_live(SOON);
    scene.wait_for_traffic_to(&backends.iter().collect::<Vec<_>>());
    eventually(SOON, "the misled one has tried", || {
        let failed = misled.stat("cluster.vitals.ssl.fail_verify_san")?;
        (failed > 0).then_some(()).ok_or_else(|| failed.to_string())
    });
    assert!(vitals.client("misled").is_err());
}

fn an_envoy_that_speaks_tls_to_a_plain_server_is_told_of(transport: Transport) {
    let scene = Scene::new();
    let authority = Authority::new(scene.dir(), "ca");
    let backends = scene.backends(1);
    let vitals = scene.vitals(&scene.shop(&backends));
    let mut client = XdsClient::start_tls(vitals.xds(), scene.dir(), &authority.cert, None);
    client.open("s", transport);
    client.send("s", first());
    assert_eq!(client.end(SOON, "s").0, "UNAVAILABLE");
    until(SOON, "the log says so", || {
        let log = vitals.log();
        log.lines().any(|line| {
            [
                "refused: this looks like TLS",
                "reason=\"tls\"",
                "no --tls-cert",
                "127.",
            ]
            .iter()
            .all(|word| line.contains(word))
        })
    });
    let counted = vitals.metric("vitals_refusals_total", "listener=\"xds\",reason=\"tls\"");
    assert!(counted.unwrap() >= 1.0);
}

fn an_envoy_that_the_fleet_admits_is_served_over_mutual_tls(transport: Transport) {
    let s = stage();
    let pair = s.authority.issue("envoy", EDGE);
    let flags = [
        "--tls-ca",
        text(&s.authority.cert),
        "--tls-cert",
        text(&pair.cert),
        "--tls-key",
        text(&pair.key),
    ];
    let path = s.scene.config_path();
    let config = bootstrap_with(&path, "edge", s.vitals.xds(), NODE, transport, &flags);
    let envoy = Envoy::spawn(NODE, &config, s.scene.dir());
    envoy.wait_until_live(SOON);
    s.scene
        .wait_for_traffic_to(&s.backends.iter().collect::<Vec<_>>());
    s.backends[0].become_(Mode::ProbeStatus(500));
    envoy.wait_for_flags(SOON, "shop", s.backends[0].name(), FAILED);
    envoy.wait_for_flags(SOON, "shop", s.backends[1].name(), HEALTHY);
}

fn without_a_certificate_of_the_authority_a_client_gets_nothing(transport: Transport) {
    let s = stage();
    let ca = s.authority.cert.clone();
    let peer = s.scene.net().host(1).to_string();
    s.refused(transport, &ca, None, "UNAVAILABLE");
    s.logged(&[
        "refused",
        "reason=\"handshake\"",
        "shown no certificate",
        "127.",
    ]);
    let other = Authority::new(s.scene.dir(), "other");
    let foreign = other.issue("envoy", EDGE);
    s.refused(transport, &ca, Some(&foreign), "UNAVAILABLE");
    s.logged(&[
        "refused",
        "reason=\"handshake\"",
        EDGE,
        "issued by",
        "none of the authorities in --client-ca",
    ]);
    assert!(s.refusals("handshake") >= 2.0);
    // Plain HTTP/2 to the same port.
    let mut plain = XdsClient::start(s.vitals.xds(), s.scene.dir());
    plain.open("s", transport);
    plain.send("s", first());
    assert_eq!(plain.end(SOON, "s").0, "UNAVAILABLE");
    s.logged(&["refused", "reason=\"handshake\"", "does not speak TLS"]);
    assert!(s.vitals.client("client-1").is_err(), "{peer}");
    let good = s.authority.issue("envoy", EDGE);
    drop(s.served(transport, &ca, &good));
}

fn with_another_spiffe_id_a_client_gets_nothing(transport: Transport) {
    let s = stage();
    let ca = s.authority.cert.clone();
    for (file, name, shown) in [
        ("inner", "spiffe://mesh/inner/1", "spiffe://mesh/inner/1"),
        ("deeper", "spiffe://mesh/edge/1/2", "spiffe://mesh/edge/1/2"),
        ("dns", "edge.example", "edge.example"),
    ] {
        let pair = s.authority.issue(file, name);
        s.refused(transport, &ca, Some(&pair), "PERMISSION_DENIED");
        s.logged(&[
            "refused",
            "reason=\"other_name\"",
            shown,
            "fleet edge",
            "client-1",
        ]);
    }
    assert_eq!(s.refusals("other_name"), 3.0);
    assert!(s.vitals.client("client-1").is_err());
}

fn a_stream_lives_through_a_rotation_and_new_ones_meet_the_new_files(transport: Transport) {
    let s = stage();
    let (old_ca, own) = (s.scene.dir().join("old-ca.pem"), &s.own);
    std::fs::copy(&s.authority.cert, &old_ca).unwrap();
    let old_pair = s.authority.issue("envoy", EDGE);
    let mut live = s.served(transport, &old_ca, &old_pair);

    let reloads = |result: &str| {
        let labels = format!("result=\"{result}\"");
        s.vitals.metric("vitals_secret_reloads_total", &labels)
    };
    // A broken file: the one before stays.
    let key = std::fs::read_to_string(&own.key).unwrap();
    replace(&own.key, "-----BEGIN PRIVATE KEY-----\nbroken");
    until(SOON, "the broken key is counted", || {
        reloads("error") == Ok(1.0)
    });
    s.logged(&[
        "ERROR",
        "TLS files are refused, those before stay",
        "--tls-key",
    ]);
    let files_are_right = || s.vitals.metric("vitals_secrets_ok", "what=\"tls\"");
    assert_eq!(files_are_right(), Ok(0.0));
    drop(s.served(transport, &old_ca, &old_pair));
    replace(&own.key, &key);
    s.logged(&["INFO", "TLS files are as before and right again"]);
    assert_eq!(files_are_right(), Ok(1.0));

    let new = Authority::new(s.scene.dir(), "new");
    let new_pair = new.issue("envoy", EDGE);
    new.issue_as(&s.scene.net().host(1).to_string(), own);
    replace(
        &s.authority.cert,
        &std::fs::read_to_string(&new.cert).unwrap(),
    );
    eventually(SOON, "a client of the new authority is served", || {
        let mut client = s.client(&new.cert, Some(&new_pair));
        client.open("s", transport);
        client.send("s", first());
        let came = eventually(SOON, "an answer or an end", || {
            let events = client.events("s");
            events.first().cloned().ok_or_else(|| "nothing".into())
        });
        (came["type"] == CLUSTER)
            .then_some(())
            .ok_or_else(|| came.to_string())
    });
    assert!(reloads("ok").unwrap() >= 1.0);
    // The server is another now, and to whom trusts it the old certificate is worth nothing.
    s.refused(transport, &old_ca, Some(&old_pair), "UNAVAILABLE");
    s.refused(transport, &new.cert, Some(&old_pair), "UNAVAILABLE");

    let mut more = json!({ "type_url": vitals_tests::xds::ASSIGNMENT });
    let key = match transport {
        Transport::Sotw => "resource_names",
        Transport::Delta | Transport::Leds => "resource_names_subscribe",
    };
    more[key] = json!(["shop"]);
    live.send("s", more);
    let assignment = live.response(SOON, "s", vitals_tests::xds::ASSIGNMENT, 0);
    assert_eq!(assignment["names"], json!(["shop"]), "{assignment}");
}

fn a_fleet_that_no_longer_admits_a_client_ends_its_stream(transport: Transport) {
    let mut s = stage();
    let ca = s.authority.cert.clone();
    let pair = s.authority.issue("envoy", EDGE);
    let client = s.served(transport, &ca, &pair);
    s.config.0["fleets"][0]["allow"] = json!({ "spiffeIds": ["spiffe://mesh/edge/2"] });
    s.config.save(&s.scene.config_path());
    let (code, details) = client.end(SOON, "s");
    assert_eq!(code, "PERMISSION_DENIED", "{details}");
    s.logged(&["refused", EDGE, "fleet edge", "client-1"]);
}

#[test]
fn a_fleet_with_allow_wants_a_server_that_asks_for_certificates() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let mut config = scene.shop(&backends);
    let vitals = scene.vitals(&config);
    config.0["fleets"][0]["allow"] = json!({ "dnsNames": ["edge.example"] });
    config.save(&scene.config_path());
    eventually(SOON, "the reload is refused", || {
        let ready = vitals.json("/readyz")?;
        let errors = ready["errors"].to_string();
        (ready["reload"] == "error" && errors.contains("--client-ca"))
            .then_some(())
            .ok_or_else(|| ready.to_string())
    });
    drop(vitals);
    let at = |port| std::net::SocketAddr::new(scene.net().host(2).into(), port);
    let state = scene.dir().join("other-state");
    let output = vitals_tests::process::run(&mut vitals_tests::vitals::serve(
        &scene.config_path(),
        &state,
        at(21_800),
        at(21_801),
    ));
    let said = vitals_tests::process::text(&output);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("fleet edge") && said.contains("--client-ca"),
        "{said}"
    );
}
