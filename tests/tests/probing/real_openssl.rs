//! OpenSSL's own server, and Python's, which is OpenSSL too: one version of TLS alone, and an end right after the handshake (semantics P8, P9, P10).

use std::net::SocketAddr;

use vitals_tests::lab::Scene;
use vitals_tests::probe::{Verdict, expect, probe};
use vitals_tests::servers::{Certificate, s_server, tls_leaver};

fn version(verdict: &Verdict) -> String {
    let steps = verdict.document["probes"][0]["steps"].as_array().unwrap();
    let mut steps = steps.iter();
    let established = steps.find(|step| step["step"] == "TLS_ESTABLISHED");
    established.unwrap()["version"].to_string()
}

#[test]
fn p10_one_version_alone() {
    let scene = Scene::new();
    let certificate = Certificate::self_signed(scene.dir(), "one.example");
    for (host, flag, digit) in [(11, "-tls1_2", "1_2"), (12, "-tls1_3", "1_3")] {
        let address = SocketAddr::new(scene.net().host(host).into(), 21_930 + u16::from(host));
        let _server = s_server(scene.dir(), address, &certificate, &format!("{flag} -www"));
        let ssl = expect(address, "--type SSL", "PASS", "TLS_ESTABLISHED");
        let https = expect(
            address,
            "--type HTTPS --response s_server",
            "PASS",
            "RESPONSE_OK",
        );
        for verdict in [ssl, https] {
            let version = version(&verdict).replace('.', "_");
            assert!(version.contains(digit), "{flag}: {version}");
        }
        expect(address, "--type HTTP2", "FAIL", "NO_ALPN");
    }
}

#[test]
fn p10_too_old() {
    let scene = Scene::new();
    let certificate = Certificate::self_signed(scene.dir(), "old.example");
    let address = SocketAddr::new(scene.net().host(11).into(), 21_935);
    let flags = "-tls1_1 -cipher DEFAULT@SECLEVEL=0 -www";
    let _server = s_server(scene.dir(), address, &certificate, flags);
    expect(address, "--type SSL", "FAIL", "TLS_ALERT");
}

#[test]
fn p9_leaves_after_the_handshake() {
    let scene = Scene::new();
    let certificate = Certificate::self_signed(scene.dir(), "gone.example");
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_930 + u16::from(host));
    for (host, version) in [(13, "TLSv1_2"), (14, "TLSv1_3")] {
        let _server = tls_leaver(scene.dir(), at(host), &certificate, version);
        expect(at(host), "--type SSL", "PASS", "TLS_ESTABLISHED");
        let https = probe(at(host), "--type HTTPS").unwrap();
        let due = https.is("FAIL", &["PEER_CLOSED", "PEER_RESET"]);
        due.unwrap_or_else(|problem| panic!("{problem}"));
    }
}
