//! Tests of `grpc`: answers and their verdicts, each also byte by byte.

use proptest::prelude::*;

use super::super::http2::transcript::{
    Came, END, Then, data, fields, frames, goaway, headers, hold, raw, rst_stream, settings,
};
use super::*;
use crate::check::grpc::GrpcSpec;
use crate::outcome::ReasonCode::{
    GrpcStatus, Http2Error, MalformedResponse, NotServing, PeerClosed, ResponseOk, StatusMismatch,
};
use Then::{Fin, Stall};

const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";
const CONTENT: (&str, &str) = ("content-type", "application/grpc");

fn health() -> GrpcCheck {
    GrpcCheck::alone(GrpcSpec::default(), false).unwrap()
}

fn tencent() -> GrpcCheck {
    GrpcCheck::alone(GrpcSpec::default(), true).unwrap()
}

fn by_code(codes: &str) -> GrpcCheck {
    let spec = GrpcSpec {
        method: Some("/a.B/c".into()),
        expected_codes: Some(codes.into()),
        ..GrpcSpec::default()
    };
    GrpcCheck::alone(spec, false).unwrap()
}

fn new(check: &GrpcCheck) -> Conversation {
    let peer = "192.0.2.1:50051".parse().unwrap();
    Conversation::new(check, "h.test", false, peer, Duration::from_millis(2_500))
}

/// The verdict, which must not depend on how the bytes are cut.
fn judge(check: &GrpcCheck, answer: &[Vec<u8>], then: Then) -> Came {
    let transcript = [settings(), answer.concat()].concat();
    let (whole, _) = hold(new(check), [&transcript[..]], then);
    let (single, _) = hold(new(check), transcript.chunks(1), then);
    assert_eq!(whole.code(), single.code(), "{whole:?} {single:?}");
    whole
}

fn head() -> Vec<u8> {
    headers(0, &[(":status", "200"), CONTENT])
}

fn trailers(status: &str) -> Vec<u8> {
    headers(END, &[("grpc-status", status), ("grpc-message", "")])
}

/// Trailers-only.
fn only(status: &str, message: &str) -> Vec<u8> {
    let fields = [
        (":status", "200"),
        CONTENT,
        ("grpc-status", status),
        ("grpc-message", message),
    ];
    headers(END, &fields)
}

fn encoded(encoding: &str) -> Vec<u8> {
    headers(
        0,
        &[(":status", "200"), CONTENT, ("grpc-encoding", encoding)],
    )
}

#[test]
fn p7_p12_the_request_asks_for_the_service() {
    let spec = GrpcSpec {
        service_name: Some("a.B".into()),
        ..GrpcSpec::default()
    };
    let check = GrpcCheck::alone(spec, false).unwrap();
    let (_, sent) = hold(new(&check), [], Stall);
    let sent = frames(&sent);
    assert_eq!(
        fields(&sent[1].2),
        [
            ":method: POST",
            ":scheme: http",
            ":path: /grpc.health.v1.Health/Check",
            ":authority: h.test",
            "te: trailers",
            "content-type: application/grpc",
            concat!("user-agent: grpc-vitals/", env!("CARGO_PKG_VERSION")),
            "grpc-accept-encoding: identity",
            "grpc-timeout: 2500m",
        ]
    );
    assert_eq!(sent[2].1, END);
    assert_eq!(sent[2].2, b"\0\0\0\0\x05\x0a\x03a.B");
}

#[test]
fn p13_the_request_calls_the_method_with_an_empty_message() {
    let (_, sent) = hold(new(&tencent()), [], Stall);
    let sent = frames(&sent);
    assert!(fields(&sent[1].2).contains(&":path: /TCLOUD.CLB/healthcheck".to_owned()));
    assert_eq!(sent[2].2, [0; 5]);
}

#[test]
fn p12_a_health_check_passes_with_ok_and_serving_alone() {
    let answer = |message: &[u8], status: &str| vec![head(), data(0, message), trailers(status)];
    for (case, answer, then, code) in [
        (
            "SERVING and OK",
            answer(SERVING, "0"),
            Stall,
            Some(ResponseOk),
        ),
        (
            "in pieces",
            vec![
                head(),
                data(0, b"\0\0\0"),
                data(0, b"\0\x02\x08"),
                data(0, b"\x01"),
                trailers("0"),
            ],
            Stall,
            Some(ResponseOk),
        ),
        (
            "NOT_SERVING",
            answer(b"\0\0\0\0\x02\x08\x02", "0"),
            Stall,
            Some(NotServing),
        ),
        (
            "NOT_SERVING, without waiting for the end",
            vec![head(), data(0, b"\0\0\0\0\x02\x08\x02")],
            Stall,
            Some(NotServing),
        ),
        (
            "UNKNOWN",
            answer(b"\0\0\0\0\x02\x08\x00", "0"),
            Stall,
            Some(NotServing),
        ),
        (
            "SERVICE_UNKNOWN",
            answer(b"\0\0\0\0\x02\x08\x03", "0"),
            Stall,
            Some(NotServing),
        ),
        (
            "an empty message",
            answer(b"\0\0\0\0\0", "0"),
            Stall,
            Some(NotServing),
        ),
        (
            "OK without a message",
            answer(b"", "0"),
            Stall,
            Some(MalformedResponse),
        ),
        (
            "trailers-only OK",
            vec![only("0", "")],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "trailers-only 12",
            vec![only("12", "unknown service")],
            Stall,
            Some(GrpcStatus),
        ),
        (
            "SERVING, then another status",
            answer(SERVING, "13"),
            Stall,
            Some(GrpcStatus),
        ),
        (
            "two messages",
            vec![head(), data(0, SERVING), data(0, SERVING)],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "no HealthCheckResponse",
            answer(b"\0\0\0\0\x02{}", "0"),
            Stall,
            Some(MalformedResponse),
        ),
        (
            "no grpc-status",
            vec![head(), data(0, SERVING), headers(END, &[("x", "1")])],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "no trailers",
            vec![head(), data(END, SERVING)],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "grpc-status in the head, none at the end",
            vec![
                headers(0, &[(":status", "200"), CONTENT, ("grpc-status", "0")]),
                data(END, SERVING),
            ],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "grpc-status of words",
            answer(SERVING, "OK"),
            Stall,
            Some(MalformedResponse),
        ),
        (
            "grpc-status below 0",
            answer(SERVING, "-1"),
            Stall,
            Some(MalformedResponse),
        ),
        (
            "grpc-status beyond 32 bits",
            answer(SERVING, "4294967296"),
            Stall,
            Some(MalformedResponse),
        ),
        (
            "an empty grpc-status",
            answer(SERVING, ""),
            Stall,
            Some(MalformedResponse),
        ),
        (
            "cut off in a message",
            vec![head(), data(0, b"\0\0\0"), trailers("0")],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "4 GB announced",
            vec![head(), data(0, b"\0\xff\xff\xff\xff")],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "a flag of 2",
            vec![head(), data(0, b"\x02\0\0\0\x02")],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "HTTP 503",
            vec![headers(END, &[(":status", "503")])],
            Stall,
            Some(StatusMismatch),
        ),
        (
            "HTTP 404 with a grpc-status",
            vec![headers(
                END,
                &[(":status", "404"), CONTENT, ("grpc-status", "0")],
            )],
            Stall,
            Some(StatusMismatch),
        ),
        (
            "not gRPC",
            vec![headers(
                0,
                &[(":status", "200"), ("content-type", "text/html")],
            )],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "no content-type",
            vec![headers(0, &[(":status", "200")])],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "gRPC-Web",
            vec![headers(
                0,
                &[(":status", "200"), ("content-type", "application/grpc-web")],
            )],
            Stall,
            Some(MalformedResponse),
        ),
        (
            "a content-type with format and capitals",
            vec![
                headers(
                    0,
                    &[
                        (":status", "200"),
                        ("content-type", "Application/gRPC+proto"),
                    ],
                ),
                data(0, SERVING),
                trailers("0"),
            ],
            Stall,
            Some(ResponseOk),
        ),
        (
            "interim first",
            vec![
                headers(0, &[(":status", "103"), ("grpc-status", "5")]),
                head(),
                data(0, SERVING),
                trailers("0"),
            ],
            Stall,
            Some(ResponseOk),
        ),
        (
            "FIN before the status",
            vec![head(), data(0, SERVING)],
            Fin,
            Some(PeerClosed),
        ),
        (
            "silence before the status",
            vec![head(), data(0, SERVING)],
            Stall,
            None,
        ),
        (
            "RST_STREAM",
            vec![head(), rst_stream(8)],
            Stall,
            Some(Http2Error),
        ),
        (
            "P14: GOAWAY that covers it",
            vec![goaway(1, 0, b""), head(), data(0, SERVING), trailers("0")],
            Stall,
            Some(ResponseOk),
        ),
        ("P14: GOAWAY below it", vec![goaway(0, 0, b"")], Stall, None),
    ] {
        let came = judge(&health(), &answer, then);
        assert_eq!(came.code().1, code, "{case}: {came:?}");
    }
}

#[test]
fn p13_a_check_by_code_takes_whatever_code_is_in_its_set() {
    let (coded, all) = (tencent(), by_code("0-99"));
    for (case, check, answer, code) in [
        ("trailers-only 12", &coded, vec![only("12", "")], ResponseOk),
        (
            "12 in trailers",
            &coded,
            vec![head(), trailers("12")],
            ResponseOk,
        ),
        (
            "0 is not 12",
            &coded,
            vec![head(), data(0, SERVING), trailers("0")],
            GrpcStatus,
        ),
        (
            "messages do not matter",
            &all,
            vec![head(), data(0, b"\0\0\0\0\x01x\x01\0\0\0\0"), trailers("0")],
            ResponseOk,
        ),
        ("any of the range", &all, vec![only("99", "")], ResponseOk),
        ("beyond the range", &all, vec![only("100", "")], GrpcStatus),
        (
            "no status is no code",
            &all,
            vec![headers(END, &[(":status", "200"), CONTENT])],
            MalformedResponse,
        ),
        (
            "a code made up of HTTP 404 does not count",
            &coded,
            vec![headers(END, &[(":status", "404")])],
            StatusMismatch,
        ),
        (
            "4 GB announced",
            &all,
            vec![head(), data(0, b"\0\xff\xff\xff\xff")],
            MalformedResponse,
        ),
        (
            "RST_STREAM is no code",
            &all,
            vec![head(), rst_stream(7)],
            Http2Error,
        ),
    ] {
        let came = judge(check, &answer, Stall);
        assert_eq!(came.code().1, Some(code), "{case}: {came:?}");
    }
}

#[test]
fn a_long_answer_to_a_check_by_code_is_passed_over_up_to_the_window() {
    let mut answer = vec![head(), data(0, b"\0\0\0\xff\0")];
    answer.extend((0..4).map(|_| data(0, &[0; 16_320])));
    answer.push(trailers("0"));
    assert_eq!(
        judge(&by_code("0"), &answer, Stall).code().1,
        Some(ResponseOk)
    );
}

#[test]
fn p12_compressed_messages_fail_unless_they_are_not() {
    const FLAGGED: &[u8] = b"\x01\0\0\0\x02\x08\x01";
    let came = judge(&health(), &[encoded("gzip"), data(0, FLAGGED)], Stall);
    assert_eq!(
        came.text(),
        "the gRPC answer from 192.0.2.1:50051 is malformed: a message compressed with \"gzip\", although the probe accepts identity only"
    );
    assert_eq!(came.code(), ("fail", Some(MalformedResponse)));
    let came = judge(&health(), &[head(), data(0, FLAGGED)], Stall);
    assert_eq!(came.code(), ("fail", Some(MalformedResponse)));
    for (head, message) in [(encoded("identity"), FLAGGED), (encoded("gzip"), SERVING)] {
        let came = judge(&health(), &[head, data(0, message), trailers("0")], Stall);
        assert_eq!(came.code(), ("pass", Some(ResponseOk)), "{came:?}");
    }
}

#[test]
fn texts_say_what_came_and_what_was_expected() {
    let text =
        |check: &GrpcCheck, answer: &[Vec<u8>]| judge(check, answer, Stall).text().to_owned();
    for (check, answer, wanted) in [
        (
            health(),
            vec![only("12", "unknown service grpc.health.v1.Health")],
            "the call to 192.0.2.1:50051 ended with gRPC status 12 (UNIMPLEMENTED), \"unknown service grpc.health.v1.Health\"; it has no grpc.health.v1.Health; the check expects OK",
        ),
        (
            by_code("12,25,30-40"),
            vec![only("42", "")],
            "the call to 192.0.2.1:50051 ended with gRPC status 42; the check expects 12,25,30-40",
        ),
        (
            tencent(),
            vec![only("12", "")],
            "the call ended with gRPC status 12 (UNIMPLEMENTED), as the check expects (12)",
        ),
        (
            health(),
            vec![head(), data(0, b"\0\0\0\0\x02\x08\x02")],
            "192.0.2.1:50051 answers that its status is NOT_SERVING; the check expects SERVING",
        ),
        (
            health(),
            vec![headers(
                0,
                &[(":status", "200"), ("content-type", "text/html")],
            )],
            "the gRPC answer from 192.0.2.1:50051 is malformed: content-type \"text/html\" where application/grpc is due",
        ),
        (health(), vec![head()], "sent no whole health answer"),
        (
            health(),
            vec![head(), data(0, SERVING)],
            "sent no grpc-status",
        ),
    ] {
        assert_eq!(text(&check, &answer), wanted);
    }
}

#[test]
fn a_grpc_timeout_has_at_most_eight_digits() {
    assert_eq!(grpc_timeout(Duration::from_secs(300)), "300000m");
    assert_eq!(grpc_timeout(Duration::from_micros(1)), "1m");
    assert_eq!(grpc_timeout(Duration::MAX), "99999999m");
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..30);
    prop_oneof![
        2 => Just(head()),
        2 => Just(data(0, SERVING)),
        1 => Just(trailers("0")),
        1 => Just(encoded("identity")),
        2 => bytes.clone().prop_map(|bytes| data(0, &bytes)),
        1 => (0..4_u8, 0..4_u8).prop_map(|(flag, len)| data(0, &[flag, 0, 0, 0, len])),
        1 => (0..11_u8, any::<u8>(), bytes).prop_map(|(kind, flags, bytes)| raw(kind, flags, 1, &bytes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn p12_p13_arbitrary_answers_neither_panic_nor_depend_on_the_cut(
        pieces in prop::collection::vec(piece(), 0..8),
        fin in any::<bool>(),
    ) {
        for check in [health(), by_code("0,12")] {
            judge(&check, &pieces, if fin { Fin } else { Stall });
        }
    }
}
