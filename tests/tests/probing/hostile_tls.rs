//! What answers a ClientHello, and is no TLS or bad TLS (semantics P1, P10, P12, P16).

use vitals_tests::hostile::Act;

use crate::table::{Row, Script, answer, judge, row};

const BROKEN: &[&str] = &["TLS_HANDSHAKE"];
const LATE: &[&str] = &["TLS_TIMEOUT"];
const HTTPS: &str = "--type HTTPS";
const SSL: &str = "--type SSL";

/// A TLS record that says how long it is and has so many bytes.
fn record(kind: u8, len: u16, payload: &[u8]) -> Vec<u8> {
    let mut record = vec![kind, 3, 3];
    record.extend(len.to_be_bytes());
    record.extend(payload);
    record
}

#[test]
fn p10_handshakes() {
    let just_over = record(22, 16_385, &[1; 16_385]);
    let far_over = record(22, u16::MAX, &[1; 20_000]);
    let alert = record(21, 2, &[2, 40]);
    let no_protocol = record(21, 2, &[2, 120]);
    let empty = record(22, 0, &[]);
    let trickle = Act::Trickle(record(22, 16_000, &[0; 64]));
    let hello_requests = record(22, 4, &[0; 4]);
    judge(vec![
        row(
            "a record of 16 KB and 1",
            "P10",
            answer(just_over),
            HTTPS,
            "FAIL",
            BROKEN,
        ),
        row(
            "a record of 64 KB",
            "P10",
            answer(far_over),
            HTTPS,
            "FAIL",
            BROKEN,
        ),
        row(
            "empty records without end",
            "P10",
            vec![Act::Read, Act::Endless(empty)],
            HTTPS,
            "FAIL",
            BROKEN,
        ),
        row(
            "HelloRequest without end",
            "P10",
            vec![Act::Read, Act::Endless(hello_requests)],
            HTTPS,
            "FAIL",
            BROKEN,
        ),
        row(
            "an alert",
            "P10",
            answer(&alert),
            HTTPS,
            "FAIL",
            &["TLS_ALERT"],
        ),
        row(
            "an alert, to SSL",
            "P8",
            answer(&alert),
            SSL,
            "FAIL",
            &["TLS_ALERT"],
        ),
        row(
            "no_application_protocol",
            "P12",
            answer(no_protocol),
            "--type HTTP2",
            "FAIL",
            &["NO_ALPN"],
        ),
        row(
            "plaintext HTTP",
            "P10",
            answer("HTTP/1.1 400 Bad Request\r\n\r\n"),
            HTTPS,
            "FAIL",
            BROKEN,
        ),
        row(
            "plaintext HTTP, to gRPC",
            "P12",
            answer("HTTP/1.1 400 Bad Request\r\n\r\n"),
            "--type GRPC_WITH_TLS",
            "FAIL",
            BROKEN,
        ),
        row(
            "a greeting",
            "P10",
            vec![Act::Send(b"220 mail ESMTP\r\n".to_vec())],
            SSL,
            "FAIL",
            BROKEN,
        ),
        row(
            "FIN",
            "P10",
            vec![Act::Read, Act::Fin],
            HTTPS,
            "FAIL",
            &["TLS_CLOSED"],
        ),
        row(
            "RST",
            "P16",
            vec![Act::Read, Act::Reset],
            HTTPS,
            "FAIL",
            &["PEER_RESET"],
        ),
        row("nothing", "P16", vec![Act::Read], HTTPS, "TIMEOUT", LATE),
        row(
            "nothing, to SSL",
            "P16",
            vec![Act::Read],
            SSL,
            "TIMEOUT",
            LATE,
        ),
        row(
            "a byte each 100 ms",
            "P1",
            vec![Act::Read, trickle],
            HTTPS,
            "TIMEOUT",
            LATE,
        ),
        Row {
            name: "nothing listens",
            rule: "P16",
            script: Script::Nobody,
            flags: SSL.into(),
            result: "TIMEOUT",
            codes: &["CONNECT_REFUSED"],
        },
    ]);
}
