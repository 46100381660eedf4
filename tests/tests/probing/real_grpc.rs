//! A health server on grpcio, with and without TLS (semantics P10, P12, P13).

use std::net::SocketAddr;

use vitals_tests::lab::Scene;
use vitals_tests::probe::{expect, probe};
use vitals_tests::servers::{Certificate, grpcio};

#[test]
fn p12_p13_grpcio() {
    let scene = Scene::new();
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_920 + u16::from(host));
    let (plain, tls) = (at(11), at(12));
    let certificate = Certificate::self_signed(scene.dir(), "rpc.example");
    let _plain = grpcio(scene.dir(), plain, None);
    let _tls = grpcio(scene.dir(), tls, Some(&certificate));
    for (address, kind) in [(plain, "GRPC"), (tls, "GRPC_WITH_TLS")] {
        let with = |flags: &str| format!("--type {kind} {flags}");
        expect(address, &with(""), "PASS", "RESPONSE_OK");
        expect(address, &with("--grpc-service sick"), "FAIL", "NOT_SERVING");
        expect(
            address,
            &with("--grpc-service nobody"),
            "FAIL",
            "GRPC_STATUS",
        );
        let other = "--grpc-method /a.B/c --grpc-expected-codes";
        expect(
            address,
            &with(&format!("{other} 12")),
            "PASS",
            "RESPONSE_OK",
        );
        expect(
            address,
            &with(&format!("{other} 0-11")),
            "FAIL",
            "GRPC_STATUS",
        );
    }
    let six = "[::1]:0".parse().unwrap();
    let six = std::net::TcpListener::bind::<SocketAddr>(six).and_then(|free| free.local_addr());
    let six = six.unwrap();
    let _six = grpcio(scene.dir(), six, None);
    expect(six, "--type GRPC", "PASS", "RESPONSE_OK");
    let verified = format!(
        "--type GRPC_WITH_TLS --host rpc.example --tls-verify --tls-roots {}",
        certificate.cert.display()
    );
    expect(tls, &verified, "PASS", "RESPONSE_OK");
    expect(
        tls,
        "--type GRPC_WITH_TLS --tls-verify",
        "FAIL",
        "TLS_CERTIFICATE",
    );
    // The wrong one of both: said at once, and not by the deadline.
    expect(plain, "--type GRPC_WITH_TLS", "FAIL", "TLS_HANDSHAKE");
    let plain_to_tls = probe(tls, "--type GRPC --timeout 30s").unwrap();
    let due = plain_to_tls.is("FAIL", &["PEER_CLOSED", "PEER_RESET", "MALFORMED_RESPONSE"]);
    due.unwrap_or_else(|problem| panic!("{problem}"));
    let took = plain_to_tls.document["probes"][0]["times"]["totalMs"].as_f64();
    assert!(took.unwrap() < 20_000.0, "{plain_to_tls:?}");
}
