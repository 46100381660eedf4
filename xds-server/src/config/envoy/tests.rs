//! Envoy's own fields: what is read, what is refused and where, and that the bytes are always the same.

use std::fmt::Write as _;

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, Cluster, OutlierDetection};
use envoy_types::pb::google::protobuf::{Any, Duration, UInt32Value};
use proptest::prelude::*;
use prost_reflect::DynamicMessage;

use super::*;
use crate::config::diagnostic::Sink;
use crate::config::tree;

mod bad;
mod good;
mod service;

/// Reads a document as a message: its bytes, the errors and the warnings.
fn outcome(name: &str, yaml: &[u8]) -> (Option<Vec<u8>>, Vec<String>, Vec<String>) {
    let sink = Sink::new(vec!["e.yaml"]);
    let mut budget = tree::Budget::default();
    let tree = tree::parse(yaml, 0, &mut budget, &sink);
    let read = tree.and_then(|tree| bytes(&Item::root(&tree, &sink), name));
    let (errors, warnings) = sink.finish();
    let lines =
        |list: Vec<crate::config::Diagnostic>| list.iter().map(ToString::to_string).collect();
    (read, lines(errors), lines(warnings))
}

/// The bytes of a document that is right.
fn good(name: &str, yaml: &str) -> Vec<u8> {
    let (read, errors, warnings) = outcome(name, yaml.as_bytes());
    assert!(
        errors.is_empty() && warnings.is_empty(),
        "{yaml}\n{errors:#?}{warnings:#?}"
    );
    read.unwrap()
}

/// The message of a document that is right.
fn typed<M: Message + Name + Default>(yaml: &str) -> M {
    M::decode(&*good(&M::full_name(), yaml)).unwrap()
}

/// A document that is right, printed as protobuf prints messages.
fn text(name: &str, yaml: &str) -> String {
    let message = pool::descriptors()
        .unwrap()
        .pool()
        .get_message_by_name(name)
        .unwrap();
    let bytes = good(name, yaml);
    DynamicMessage::decode(message, &*bytes)
        .unwrap()
        .to_string()
}

/// One wrong document each: its message, its text, and the lines that it must print, no more and no fewer.
struct Case(&'static str, &'static str, &'static [&'static str]);

fn check(cases: &[Case]) {
    let mut wrong = String::new();
    for Case(name, yaml, expected) in cases {
        let (_, errors, _) = outcome(name, yaml.as_bytes());
        if errors != *expected {
            writeln!(
                wrong,
                "{yaml}\n  expected {expected:#?}\n  found {errors:#?}"
            )
            .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_descriptors_are_whole_and_kept_the_rules() {
    let descriptors = pool::descriptors().expect("the build made a descriptor set");
    let mut rules = 0;
    let mut refused = 0;
    for message in descriptors.pool().all_messages() {
        let schema = descriptors.schema(&message);
        rules += schema.rules.len();
        let all = schema.deprecated.values();
        refused += all.filter(|how| **how == pool::Deprecated::Refused).count();
    }
    assert!(rules > 1_000, "{rules} fields have rules");
    assert!(refused >= 1, "{refused} fields are refused by default");
    for file in descriptors.pool().file_descriptor_protos() {
        assert_eq!(file.source_code_info, None, "{:?}", file.name);
    }
}

#[test]
fn every_message_of_envoys_takes_an_empty_map_or_says_what_is_missing() {
    let descriptors = pool::descriptors().unwrap();
    for message in descriptors.pool().all_messages() {
        let (read, errors, _) = outcome(message.full_name(), b"{}");
        for error in &errors {
            let form = error.contains(" stands where ");
            assert!(
                error.contains(": missing; ") || form,
                "{}: {error}",
                message.full_name()
            );
        }
        if let (Some(read), true) = (read, errors.is_empty()) {
            // An empty map is a value, too.
            let expected: &[u8] = match message.full_name() {
                "google.protobuf.Value" => b"\x2a\0",
                _ => b"",
            };
            assert_eq!(read, expected, "{}", message.full_name());
        }
    }
}

fn yaml() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("name"),
        Just("type"),
        Just("@type"),
        Just("value"),
        Just("thresholds"),
        Just("priority"),
        Just("interval"),
        Just("outlier_detection"),
        Just("loadAssignment"),
        Just("endpoints"),
        Just("metadata"),
        Just("filter_metadata"),
        Just("typed_config"),
        Just("monitors"),
        Just("5s"),
        Just("-1.5s"),
        Just("250ms"),
        Just("1e400"),
        Just("-0"),
        Just("00"),
        Just("18446744073709551616"),
        Just("null"),
        Just("~"),
        Just("true"),
        Just("HIGH"),
        Just("NaN"),
        Just("\"\""),
        Just("=="),
        Just("é"),
        Just("type.googleapis.com/google.protobuf.Any"),
        Just("type.googleapis.com/google.protobuf.Duration"),
        Just("type.googleapis.com/envoy.config.cluster.v3.Cluster"),
        Just("315576000001s"),
        Just("9999999999999999999999s"),
        Just("2026-01-31T12:00:00Z"),
    ];
    let leaf = prop_oneof![
        word.clone().prop_map(String::from),
        "[ -~]{0,6}".prop_map(|s| format!("{s:?}"))
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        let entry = (word.clone(), inner.clone()).prop_map(|(k, v)| format!("{k}: {v}"));
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(|v| format!("[{}]", v.join(", "))),
            prop::collection::vec(entry, 0..6).prop_map(|v| format!("{{{}}}", v.join(", "))),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused_and_what_is_read_is_a_message(yaml in yaml(), which in any::<prop::sample::Index>()) {
        let pool = pool::descriptors().unwrap().pool();
        let fixed = ["envoy.config.cluster.v3.Cluster", "google.protobuf.Any", "google.protobuf.Value",
            "envoy.config.cluster.v3.OutlierDetection", "google.protobuf.Struct"];
        let count = pool.all_messages().len();
        let at = which.index(count * 2);
        let name = match pool.all_messages().nth(at) {
            Some(message) => message.full_name().to_owned(),
            None => fixed[at % fixed.len()].to_owned(),
        };
        let (read, errors, _) = outcome(&name, yaml.as_bytes());
        prop_assert_eq!(&outcome(&name, yaml.as_bytes()).0, &read);
        match read {
            Some(read) => {
                let message = pool.get_message_by_name(&name).unwrap();
                let decoded = DynamicMessage::decode(message, &*read).unwrap();
                prop_assert_eq!(canonical::encode(&decoded), read);
            }
            None => prop_assert!(!errors.is_empty() || yaml.trim().is_empty()),
        }
    }

    #[test]
    fn bytes_that_are_no_text_or_no_yaml_do_no_harm(yaml in prop::collection::vec(any::<u8>(), 0..80)) {
        outcome("envoy.config.cluster.v3.Cluster", &yaml);
    }
}
