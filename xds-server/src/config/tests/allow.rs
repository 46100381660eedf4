//! `fleets[].allow`.

use std::time::SystemTime;

use super::bad::{Case, check};
use super::*;
use crate::trust::{Identity, NotAdmitted};

fn fleet(allow: &str) -> String {
    format!("backendServices: [{{ name: shop }}]\nfleets:\n- name: edge\n  allow: {allow}")
}

#[test]
fn a_fleet_admits_whom_it_names() {
    let text = fleet(
        r#"{ spiffeIds: ["spiffe://mesh/edge/*"], dnsNames: ["*.Edge.example", 'a.example'] }"#,
    );
    let model = good(&text).model;
    let allow = model.fleets[0].allow.as_ref().unwrap();
    let named = |spiffe: Option<&str>, dns: &[&str]| Identity {
        spiffe_id: spiffe.map(Into::into),
        dns_names: dns.iter().map(|&name| name.into()).collect(),
        not_after: SystemTime::UNIX_EPOCH,
    };
    for admitted in [
        named(Some("spiffe://mesh/edge/1"), &[]),
        named(None, &["one.edge.example"]),
        named(Some("spiffe://other"), &["a.example"]),
    ] {
        assert_eq!(allow.admit(Some(&admitted)), Ok(()), "{admitted}");
    }
    let other = named(Some("spiffe://mesh/inner/1"), &["edge.example"]);
    assert_eq!(allow.admit(Some(&other)), Err(NotAdmitted::OtherName));
    assert_eq!(allow.admit(None), Err(NotAdmitted::NoCertificate));
}

#[test]
fn a_fleet_without_allow_admits_every_node_that_matches() {
    let model = good("backendServices: [{ name: shop }]\nfleets: [{ name: edge }]").model;
    assert!(model.fleets[0].allow.is_none());
}

#[test]
fn an_empty_list_of_one_kind_is_fine_beside_the_other() {
    good(&fleet(
        r#"{ spiffeIds: ["spiffe://mesh/edge/*"], dnsNames: [] }"#,
    ));
}

#[test]
fn what_admits_nobody_or_is_no_name_is_an_error() {
    const NOBODY: &str = "nobody is admitted; name spiffeIds or dnsNames, such as spiffeIds: [\"spiffe://mesh/edge/*\"], or leave allow out";
    let nobody: &'static str = format!("a.yaml:4:10 fleets[0].allow: {NOBODY}").leak();
    let case = |allow: &str, expected: &'static [&'static str]| Case(fleet(allow).leak(), expected);
    check(
        "",
        &[
            case("{}", vec![nobody].leak()),
            case("{ spiffeIds: [], dnsNames: [] }", vec![nobody].leak()),
            case(
                "{ spiffeIds: [edge, \"spiffe://\", \"spiffe:///edge\"] }",
                &[
                    "a.yaml:4:24 fleets[0].allow.spiffeIds[0]: \"edge\" is no SPIFFE ID; write spiffe://, a trust domain and a path, such as \"spiffe://mesh/edge/*\"",
                    "a.yaml:4:30 fleets[0].allow.spiffeIds[1]: \"spiffe://\" is no SPIFFE ID; write spiffe://, a trust domain and a path, such as \"spiffe://mesh/edge/*\"",
                    "a.yaml:4:43 fleets[0].allow.spiffeIds[2]: \"spiffe:///edge\" is no SPIFFE ID; write spiffe://, a trust domain and a path, such as \"spiffe://mesh/edge/*\"",
                ],
            ),
            case(
                "{ dnsNames: [\"https://a\", \"a b\", \"[a\", \"\", a.example, a.example] }",
                &[
                    "a.yaml:4:23 fleets[0].allow.dnsNames[0]: \"https://a\" is no DNS name; write one such as \"envoy-1.example.com\" or \"*.edge.example.com\"",
                    "a.yaml:4:36 fleets[0].allow.dnsNames[1]: \"a b\" is no DNS name; write one such as \"envoy-1.example.com\" or \"*.edge.example.com\"",
                    "a.yaml:4:43 fleets[0].allow.dnsNames[2]: \"[a\" is not a pattern: unclosed character class; missing ']'; use * within one part of a name and ** over several",
                    "a.yaml:4:49 fleets[0].allow.dnsNames[3]: a pattern has 1–256 characters",
                    "a.yaml:4:64 fleets[0].allow.dnsNames[5]: a.example stands here already; drop one",
                ],
            ),
        ],
    );
}
