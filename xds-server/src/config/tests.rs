//! The contract files, bad input, and input that means harm.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{EndpointDiscovery, LbPolicy, ListenerKind, Protocol};

mod allow;
mod bad;
mod checks;
mod traffic;

const VITALS: &str = include_str!("testdata/vitals.yaml");
const FIRST: &str = include_str!("testdata/first.yaml");

fn lines(result: Result<Loaded, Vec<Diagnostic>>) -> Vec<String> {
    match result {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn errors(text: &str) -> Vec<String> {
    lines(parse_sources(&[Source::new("a.yaml", text)]))
}

fn good(text: &str) -> Loaded {
    parse_sources(&[Source::new("a.yaml", text)])
        .unwrap_or_else(|e| panic!("{text}\n{:?}", lines(Err(e))))
}

#[test]
fn the_full_example_prints_what_is_not_supported_yet_and_nothing_else() {
    let found = lines(parse_sources(&[Source::new("vitals.yaml", VITALS)]));
    let expected = include_str!("testdata/vitals.expected");
    assert_eq!(found.join("\n") + "\n", expected);
}

#[test]
fn the_full_example_in_a_folder_prints_the_same() {
    // Its parts in files of their own: references and names hold across files.
    let starts = [
        "healthChecks:",
        "endpointGroups:",
        "backendServices:",
        "fleets:",
    ];
    let mut sources: Vec<Source> = Vec::new();
    for line in VITALS.lines() {
        if sources.is_empty() || starts.contains(&line) {
            sources.push(Source::new(format!("{}.yaml", sources.len()), ""));
        }
        let bytes = &mut sources.last_mut().unwrap().bytes;
        bytes.extend(format!("{line}\n").bytes());
    }
    assert_eq!(sources.len(), 5);
    let tails = |lines: Vec<String>| -> Vec<String> {
        let tail = |line: &String| line.split_once(' ').unwrap().1.to_owned();
        lines.iter().map(tail).collect()
    };
    assert_eq!(tails(lines(parse_sources(&sources))), tails(errors(VITALS)));
}

#[test]
fn the_first_example_runs() {
    let loaded = good(FIRST);
    assert_eq!(loaded.warnings, []);
    let service = &loaded.model.services["shop"];
    assert_eq!(
        (service.protocol, service.policy),
        (Protocol::Http, LbPolicy::RoundRobin)
    );
    assert_eq!(service.connection_draining, Duration::ZERO);
    assert_eq!(service.check.as_ref().unwrap().name.as_str(), "web");
    let group = &service.backends[0].group;
    let addresses: Vec<String> = group
        .endpoints
        .iter()
        .map(|e| e.address.to_string())
        .collect();
    assert_eq!(addresses, ["127.0.0.11:8080", "127.0.0.12:8080"]);
    let fleet = &loaded.model.fleets[0];
    assert!(fleet.matcher.matches("any", "edge", |_| None));
    assert!(!fleet.matcher.matches("any", "edge2", |_| None));
    assert_eq!(
        fleet
            .services
            .iter()
            .map(|n| n.as_str())
            .collect::<Vec<_>>(),
        ["shop"]
    );
    let listener = &fleet.listeners[0];
    assert_eq!(
        listener.address,
        "0.0.0.0:10000".parse::<SocketAddr>().unwrap()
    );
    let ListenerKind::Http(routes) = &listener.kind else {
        panic!("an HTTP listener")
    };
    assert_eq!(
        (&*routes[0].prefix, &*routes[0].domains),
        ("/", &["*".to_owned()][..])
    );
}

#[test]
fn values_that_say_what_happens_anyway_are_taken() {
    good(
        "healthChecks: [{ name: web, profile: GCP, type: HTTP, proxyHeader: NONE, close: RST, portSpecification: USE_SERVING_PORT }]
endpointGroups: [{ name: g, type: INTERNET_IP_PORT, endpoints: [{ address: 10.0.0.1, port: 1 }] }]
backendServices:
- name: a
  healthCheck: web
  whenAllUnhealthy: FAIL_CLOSED
  closeConnectionsOnUnhealthy: false
  probing: { by: [PROBERS], quorum: MAJORITY }
  sessionAffinity: { type: NONE }
  loadBalancing: { policy: LEAST_REQUEST }
  backends: [{ group: g, failover: false, capacity: 0.5, probing: { by: [PROBERS] } }]
fleets: [{ name: f, endpointDiscovery: EDS, services: [a] }]",
    );
}

#[test]
fn s5_a_service_without_backends_or_check_is_a_service() {
    let loaded =
        good("backendServices: [{ name: a }, { name: b, healthCheck: none, protocol: TCP }]");
    assert!(loaded.model.services["a"].backends.is_empty());
    assert!(loaded.model.services["b"].check.is_none());
}

#[test]
fn a_fleet_may_have_its_endpoints_apart() {
    let loaded =
        good("fleets: [{ name: a, match: { id: a }, endpointDiscovery: LEDS }, { name: b }]");
    let discoveries = loaded.model.fleets.iter().map(|f| f.endpoint_discovery);
    let due = [EndpointDiscovery::Leds, EndpointDiscovery::Eds];
    assert_eq!(discoveries.collect::<Vec<_>>(), due);
    let text = "fleets: [{ name: a, endpointDiscovery: HDS }]";
    let errors = parse_sources(&[Source::new("a.yaml", text)]).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        r#"a.yaml:1:40 fleets[0].endpointDiscovery: "HDS" is not one of EDS, LEDS; did you mean EDS?"#
    );
}

#[test]
fn a_fleet_behind_one_that_matches_all_is_a_warning() {
    let loaded = good("fleets: [{ name: all }, { name: edge, match: { id: 'a*' } }]");
    assert_eq!(
        loaded.warnings[0].to_string(),
        "a.yaml:1:33 fleets[1].name: no node is left for this fleet: all stands before it and matches every one; move all to the end"
    );
}

#[test]
fn globs_match_across_separators() {
    let loaded = good("fleets: [{ name: f, match: { id: 'a/*/c?', metadata: { 'k.l': v* } } }]");
    let matcher = &loaded.model.fleets[0].matcher;
    let metadata = |key: &str| (key == "k.l").then_some("v1");
    assert!(matcher.matches("a/b/x/c1", "", metadata));
    assert!(!matcher.matches("a/b/x/c12", "", metadata));
    assert!(!matcher.matches("a/b/x/c1", "", |_| None));
}

#[test]
fn anchors_and_aliases_are_expanded() {
    let loaded = good(
        "endpointGroups:
- { name: a, type: &t GCE_VM_IP_PORT, endpoints: &e [{ address: 10.0.0.1, port: 1 }] }
- { name: b, type: *t, endpoints: *e }
backendServices: [{ name: s, backends: [{ group: a }] }, { name: t, backends: [{ group: b }] }]",
    );
    assert_eq!(
        loaded.model.services["t"].backends[0].group.endpoints.len(),
        1
    );
}

#[test]
fn a_byte_order_mark_is_tolerated_and_shifts_no_column() {
    good("\u{feff}backendServices: [{ name: a }]");
    assert_eq!(
        errors("\u{feff}backendService: []")[0]
            .split_once(": ")
            .unwrap()
            .0,
        "a.yaml:1:1 backendService"
    );
}

#[test]
fn what_stands_in_an_unreadable_file_is_not_called_missing() {
    let sources = [
        Source::new("a.yaml", "healthChecks: [{ name: web, type: HTTP"),
        Source::new("b.yaml", "backendServices: [{ name: a, healthCheck: web }]"),
    ];
    let found = lines(parse_sources(&sources));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("a.yaml:"), "{found:?}");
}

#[test]
fn names_are_unique_across_files_and_the_first_is_named() {
    let text = "backendServices: [{ name: a }]";
    let sources = [Source::new("a.yaml", text), Source::new("b.yaml", text)];
    assert_eq!(
        lines(parse_sources(&sources)),
        [
            "b.yaml:1:27 backendServices[0].name: another backend service has the name a already, at a.yaml:1:27; rename one"
        ]
    );
}

#[test]
fn the_digest_knows_names_and_contents() {
    let digest = |name: &str, text: &str| Digest::new(&[Source::new(name, text)], &BTreeMap::new());
    assert_eq!(digest("a", "x"), digest("a", "x"));
    assert_ne!(digest("a", "x"), digest("b", "x"));
    assert_ne!(digest("a", "bx"), digest("ab", "x"));
}

#[test]
fn folders_are_read_by_name_without_hidden_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let paths = [folder.path().to_owned()];
    let found = lines(load(&paths));
    assert_eq!(
        found,
        [format!(
            "{}:1:1 the folder has no *.yaml or *.yml; put one there, or name a file",
            folder.path().display()
        )]
    );
    write("b.yaml", "fleets: [{ name: last }]");
    write("a.yml", "fleets: [{ name: first, match: { id: x } }]");
    write(".hidden.yaml", "rubbish");
    write("notes.txt", "rubbish");
    let loaded = load(&paths).unwrap();
    let names: Vec<_> = loaded
        .model
        .fleets
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    assert_eq!(names, ["first", "last"]);
}

#[test]
fn unreadable_paths_and_no_paths_are_errors() {
    assert_eq!(
        lines(load(&[
            "/nonexistent/vitals.yaml".into(),
            "/dev/null".into()
        ])),
        [
            "/nonexistent/vitals.yaml:1:1 cannot be read: No such file or directory (os error 2); name a readable file or folder",
            "/dev/null:1:1 is not a regular file; name one"
        ]
    );
    assert_eq!(lines(load(&[])).len(), 1);
}

// Input that means harm: an error, soon, in little memory.

#[test]
fn alias_bombs_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..40 {
        let star = vec![format!("*a{}", i - 1); 10].join(", ");
        writeln!(text, "a{i}: &a{i} [{star}]").unwrap();
    }
    let found = errors(&text);
    let bomb = found
        .iter()
        .find(|line| line.contains("with the alias *a5"))
        .unwrap();
    assert!(bomb.contains("more than 2000000 keys and values"), "{bomb}");

    // Many bytes, few nodes.
    let long = "x".repeat(1 << 20);
    let text = format!("a: &a {long}\nb: [{}]", vec!["*a"; 100_000].join(", "));
    assert!(errors(&text)[0].contains("64 MiB of text"));

    // Deep instead of wide.
    let mut text = "a0: &a0 [x]\n".to_owned();
    for i in 1..100 {
        writeln!(text, "a{i}: &a{i} [*a{}]", i - 1).unwrap();
    }
    assert!(errors(&text)[0].contains("nested more than 64 deep"));
}

#[test]
fn ten_megabytes_of_anything_are_refused_or_read_in_bounded_time() {
    const SIZE: usize = 10 << 20;
    for (unit, what) in [
        ("[", "keys and values"),
        ("- ", "nested more than 64 deep"),
        ("? ", "keys and values"),
        ("a: ", "keys and values"),
        ("[a,", "keys and values"),
        ("*a ", "keys and values"),
        ("\"", "not YAML"),
        ("x", "map"),
        ("x ", "map"),
        ("'x' ", "not YAML"),
        ("\t", "empty"),
        ("#", "empty"),
        ("\n", "empty"),
        ("%a\n", "not YAML"),
        ("---\n", "second document"),
        ("...\n", "empty"),
        ("|\n", "map"),
        ("\\", "map"),
    ] {
        let text = unit.repeat(SIZE / unit.len());
        let found = errors(&text);
        assert!(
            found.len() == 1 && found[0].len() < 600 && found[0].contains(what),
            "{unit:?}: {found:?}"
        );
    }
}

#[test]
fn large_files_are_refused_by_size() {
    let found = errors(&"#".repeat(text::MAX_FILE + 1));
    assert_eq!(
        found,
        ["a.yaml:1:1 the file has more than 32 MiB; split the configuration or make it smaller"]
    );
}

/// A valid configuration of that many endpoints.
fn large(endpoints: u32) -> String {
    let mut text = String::from("healthChecks: [{ name: web, type: HTTP }]\nendpointGroups:\n");
    for i in 0..endpoints {
        if i % 1000 == 0 {
            let g = i / 1000;
            writeln!(text, "- name: g{g}\n  type: GCE_VM_IP_PORT\n  locality: {{ region: r, zone: z{g} }}\n  endpoints:").unwrap();
        }
        let ip = std::net::Ipv4Addr::from(0x0a00_0000 + i);
        writeln!(
            text,
            "  - {{ address: {ip}, port: 8080, weight: 100, state: ACTIVE, healthCheckPort: 9000 }}"
        )
        .unwrap();
    }
    text.push_str("backendServices:\n- name: all\n  healthCheck: web\n  backends:\n");
    for g in 0..endpoints.div_ceil(1000) {
        writeln!(text, "  - {{ group: g{g} }}").unwrap();
    }
    text
}

#[test]
fn a_hundred_thousand_endpoints_are_read() {
    let loaded = good(&large(100_000));
    let service = &loaded.model.services["all"];
    let count: usize = service
        .backends
        .iter()
        .map(|b| b.group.endpoints.len())
        .sum();
    assert_eq!(count, 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        drop(parse_sources(&[Source::new("a.yaml", bytes)]));
    }

    #[test]
    fn random_yaml_signs_never_panic(text in "[-a\\[\\]{}:,?&*!|>'\"%@#` \n\t0.~<=]{0,80}") {
        drop(parse_sources(&[Source::new("a.yaml", text)]));
    }

    #[test]
    fn a_damaged_example_never_panics(
        at in 0.0..1.0f64,
        length in 0usize..40,
        patch in "[-a\\[\\]{}:,?&*!|>'\"%@#` \n\t0.~<=ü]{0,12}",
        first in any::<bool>(),
    ) {
        let text = if first { FIRST } else { VITALS };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let start = (at * text.len() as f64) as usize;
        let mut bytes = text.as_bytes().to_vec();
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, patch.bytes());
        drop(parse_sources(&[Source::new("a.yaml", bytes)]));
    }
}
