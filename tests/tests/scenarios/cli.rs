//! The commands: what they print and how they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use vitals_tests::backend::Mode;
use vitals_tests::lab::Scene;
use vitals_tests::process::text;
use vitals_tests::vitals::{serve, vitals};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

#[test]
fn validate_accepts_the_smallest_useful_configuration() {
    let output = vitals(&["validate", fixture("first.yaml").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "ok: 1 service with 2 endpoints, 1 fleet\n"
    );
}

#[test]
fn validate_refuses_of_the_full_configuration_only_what_is_not_supported_yet() {
    let path = fixture("vitals.yaml");
    let output = vitals(&["validate", path.to_str().unwrap()]);
    let text = text(&output);
    if output.status.code() == Some(0) {
        return;
    }
    assert_eq!(output.status.code(), Some(64), "{text}");
    let place = format!("{}:", path.display());
    let errors: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with(&place))
        .collect();
    assert!(!errors.is_empty(), "{text}");
    for error in errors {
        assert!(error.contains("not supported yet"), "{error}");
    }
}

const WRONG: &str = "\
healthChecks:
- { name: web, type: HTTP, checkInterval: 5 }
- { name: web, type: CARRIER_PIGEON }
endpointGroups:
- name: dc1
  type: NON_GCP_PRIVATE_IP_PORT
  endpoints:
  - { address: 127.0.0.300, port: 8080 }
  - { address: 127.0.0.12, port: 80800 }
backendServices:
- { name: shop, protocol: HTTP, healthCheck: wob, backends: [{ group: dc1 }], colour: red }
fleets:
- name: edge
  listeners: [{ name: http, port: 10000, routes: [{ service: shpo }] }]
";

/// Line and a word of each mistake in `WRONG`.
const MISTAKES: [(u32, &str); 8] = [
    (2, "checkInterval"),
    (3, "web"),
    (3, "CARRIER_PIGEON"),
    (8, "127.0.0.300"),
    (9, "80800"),
    (11, "wob"),
    (11, "colour"),
    (14, "shpo"),
];

fn tells_every_mistake(path: &Path, said: &str) {
    for (line, word) in MISTAKES {
        let place = format!("{}:{line}:", path.display());
        let told = said
            .lines()
            .any(|said| said.contains(&place) && said.contains(word));
        assert!(told, "line {line}, {word}, is not told:\n{said}");
    }
}

#[test]
fn validate_tells_every_mistake_with_its_place_and_ends_with_64() {
    let scene = Scene::new();
    let path = scene.config_path();
    fs::write(&path, WRONG).unwrap();
    let output = vitals(&["validate", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    tells_every_mistake(&path, &text(&output));
}

#[test]
fn serve_tells_every_mistake_binds_nothing_and_ends_with_64() {
    let scene = Scene::new();
    let path = scene.config_path();
    fs::write(&path, WRONG).unwrap();
    let at = |port| std::net::SocketAddr::new(scene.net().host(1).into(), port);
    // The ports are taken: had it tried to bind, it would end with 69.
    let _taken = [21_800, 21_801].map(|port| std::net::TcpListener::bind(at(port)).unwrap());
    let state = scene.dir().join("state");
    let output = vitals_tests::process::run(&mut serve(&path, &state, at(21_800), at(21_801)));
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    tells_every_mistake(&path, &text(&output));
    assert!(!state.exists(), "the state directory was made");
}

#[test]
fn a_configuration_that_is_not_there_ends_with_64() {
    let output = vitals(&["validate", "/nowhere/vitals.yaml"]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("/nowhere/vitals.yaml"));
}

#[test]
fn arguments_that_nobody_knows_end_with_64() {
    for arguments in [&["serve", "--colour", "red"][..], &["dance"], &["serve"]] {
        let output = vitals(arguments);
        assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    }
}

#[test]
fn status_shows_the_fleets_health_and_why() {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let server = scene.vitals(&scene.shop(&backends));
    for backend in &backends {
        server.wait_for_status(backend.name(), "HEALTHY");
    }
    backends[1].become_(Mode::ProbeStatus(418));
    server.wait_for_status(backends[1].name(), "UNHEALTHY");
    let admin = server.admin();

    let output = vitals(&["status", "--admin", &admin]);
    let table = text(&output);
    assert_eq!(output.status.code(), Some(0), "{table}");
    let row = |name: &str| -> &str {
        let (address, port) = name.rsplit_once(':').unwrap();
        table
            .lines()
            .find(|line| line.contains(address) && line.contains(port))
            .unwrap_or_else(|| panic!("no row for {name}:\n{table}"))
    };
    let well = row(backends[0].name());
    assert!(well.contains("shop") && well.contains("HEALTHY"), "{table}");
    let ill = row(backends[1].name());
    assert!(ill.contains("UNHEALTHY") && ill.contains("418"), "{table}");

    let output = vitals(&["status", "--admin", &admin, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = list.to_string();
    for backend in &backends {
        assert!(text.contains(&backend.address().ip().to_string()), "{text}");
    }
}

#[test]
fn status_of_a_server_that_is_not_there_ends_with_1() {
    let scene = Scene::new();
    let admin = format!("http://{}:21801", scene.net().host(1));
    let output = vitals(&["status", "--admin", &admin]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&admin), "{}", text(&output));
}

#[test]
fn bootstrap_of_a_fleet_that_is_not_there_ends_with_64() {
    let path = fixture("first.yaml");
    let path = path.to_str().unwrap();
    let arguments = [
        "bootstrap",
        "--config",
        path,
        "--fleet",
        "nobody",
        "--server",
        "127.0.0.1:1",
    ];
    let output = vitals(&arguments);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("nobody"), "{}", text(&output));
}

#[test]
fn an_empty_variable_counts_as_none() {
    let mut command = Command::new(vitals_tests::tools::vitals());
    command.args(["bootstrap", "--fleet", "edge", "--server", "127.0.0.1:1"]);
    command.arg("--config").arg(fixture("first.yaml"));
    command.env("VITALS_BOOTSTRAP_TLS_CA", "");
    command.env("VITALS_NODE_ID", "");
    command.env("VITALS_ENVOY_ADMIN_PORT", "");
    let output = vitals_tests::process::run(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(!printed.contains("transport_socket"), "{printed}");
    assert!(printed.contains("id: \"edge-"), "{printed}");
}

#[test]
fn a_bootstrap_for_a_fleet_with_allow_and_no_certificate_is_printed_with_a_warning() {
    let scene = Scene::new();
    let mut config = scene.shop(&scene.backends(1));
    config.0["fleets"][0]["allow"] = serde_json::json!({ "dnsNames": ["edge.example"] });
    config.save(&scene.config_path());
    let path = scene.config_path();
    let mut arguments = vec!["bootstrap", "--fleet", "edge", "--server", "127.0.0.1:1"];
    arguments.extend(["--config", path.to_str().unwrap()]);
    let warned = |arguments: &[&str]| {
        let output = vitals(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(!output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = warned(&arguments);
    assert!(
        said.contains("fleet edge") && said.contains("--tls-ca, --tls-cert and --tls-key"),
        "{said}"
    );
    arguments.extend([
        "--tls-ca",
        "/ca",
        "--tls-cert",
        "/cert",
        "--tls-key",
        "/key",
    ]);
    assert_eq!(warned(&arguments), "");
}

#[test]
fn a_bootstrap_without_a_node_id_gets_one_of_this_machine_and_says_so() {
    let path = fixture("first.yaml");
    let arguments = [
        "bootstrap",
        "--config",
        path.to_str().unwrap(),
        "--fleet",
        "edge",
        "--server",
        "127.0.0.1:1",
    ];
    let said = || String::from_utf8(vitals(&arguments).stdout).unwrap();
    let printed = said();
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let id = format!("\n  id: \"edge-{}\"\n", machine.trim());
    assert!(printed.contains(&id), "{printed}");
    assert!(
        printed.contains("# Made up where this was printed."),
        "{printed}"
    );
    assert_eq!(said(), printed, "the same each time");
}

#[test]
fn the_quickstarts_envoy_bootstrap_is_what_vitals_bootstrap_prints() {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/quickstart");
    let config = quickstart.join("vitals.yaml");
    let output = vitals(&[
        "bootstrap",
        "--config",
        config.to_str().unwrap(),
        "--fleet",
        "edge",
        "--server",
        "127.0.0.1:18000",
        "--node-id",
        "quickstart",
        "--delta",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let written = fs::read_to_string(quickstart.join("envoy.yaml")).unwrap();
    assert!(
        printed == written,
        "deploy/quickstart/envoy.yaml should be:\n{printed}"
    );
}
