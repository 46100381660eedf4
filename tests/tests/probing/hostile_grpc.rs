//! gRPC with prior knowledge over raw HTTP/2 frames: answers and going away (semantics P12, P13, P14).

use vitals_tests::hostile::Act;

use crate::frames::{DATA, SERVING, begin, call, frame, goaway, head, trailers, trailers_only};
use crate::table::{Row, Script, answer, judge, row};

const OK: &[&str] = &["RESPONSE_OK"];
const NOT_SERVING: &[&str] = &["NOT_SERVING"];
const STATUS: &[&str] = &["GRPC_STATUS"];
const MALFORMED: &[&str] = &["MALFORMED_RESPONSE"];
const LATE: &[&str] = &["RESPONSE_TIMEOUT"];
const GRPC: &str = "--type GRPC";

#[test]
fn p12_p13_answers() {
    let status = |value| [0, 0, 0, 0, 2, 8, value];
    let by_code = "--type GRPC --grpc-method /a.B/c --grpc-expected-codes 12,25,30-40";
    let tencent = "--profile TENCENT_ALB --type GRPC --timeout 2s --host app.example.com";
    let two = [SERVING, SERVING].concat();
    judge(vec![
        row(
            "SERVING",
            "P12",
            answer(call(SERVING, "0")),
            GRPC,
            "PASS",
            OK,
        ),
        row(
            "NOT_SERVING",
            "P12",
            answer(call(&status(2), "0")),
            GRPC,
            "FAIL",
            NOT_SERVING,
        ),
        row(
            "UNKNOWN",
            "P12",
            answer(call(&status(0), "0")),
            GRPC,
            "FAIL",
            NOT_SERVING,
        ),
        row(
            "SERVICE_UNKNOWN",
            "P12",
            answer(call(&status(3), "0")),
            GRPC,
            "FAIL",
            NOT_SERVING,
        ),
        row(
            "a state without a name",
            "P12",
            answer(call(&status(9), "0")),
            GRPC,
            "FAIL",
            NOT_SERVING,
        ),
        row(
            "an empty message",
            "P12",
            answer(call(&[0; 5], "0")),
            GRPC,
            "FAIL",
            NOT_SERVING,
        ),
        row(
            "OK without a message",
            "P12",
            answer(call(&[], "0")),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
        row(
            "trailers-only, OK",
            "P12",
            answer(trailers_only("0")),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
        row(
            "SERVING, but INTERNAL",
            "P12",
            answer(call(SERVING, "13")),
            GRPC,
            "FAIL",
            STATUS,
        ),
        row(
            "trailers-only, UNIMPLEMENTED",
            "P12",
            answer(trailers_only("12")),
            GRPC,
            "FAIL",
            STATUS,
        ),
        row(
            "UNIMPLEMENTED, as expected",
            "P13",
            answer(trailers_only("12")),
            by_code,
            "PASS",
            OK,
        ),
        row(
            "UNIMPLEMENTED, by profile",
            "P13",
            answer(trailers_only("12")),
            tencent,
            "PASS",
            OK,
        ),
        row(
            "a code in a range",
            "P13",
            answer(trailers_only("33")),
            by_code,
            "PASS",
            OK,
        ),
        row(
            "a code in no range",
            "P13",
            answer(trailers_only("5")),
            by_code,
            "FAIL",
            STATUS,
        ),
        row(
            "two messages",
            "P12",
            answer(call(&two, "0")),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a code that is none",
            "P12",
            answer(call(SERVING, "x")),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
    ]);
}

#[test]
fn p14_goaway() {
    let refuses = || begin(&[goaway(0)]);
    let covers = begin(&[goaway(1), head(), frame(DATA, 0, 1, SERVING), trailers("0")]);
    let in_turn = |name, turns, result, codes| Row {
        name,
        rule: "P14",
        script: Script::Tcp(turns),
        flags: GRPC.into(),
        result,
        codes,
    };
    judge(vec![
        row(
            "GOAWAY that covers our stream",
            "P14",
            covers,
            GRPC,
            "PASS",
            OK,
        ),
        in_turn(
            "GOAWAY, then SERVING",
            vec![refuses(), answer(call(SERVING, "0"))],
            "PASS",
            OK,
        ),
        in_turn(
            "GOAWAY each time",
            vec![refuses()],
            "FAIL",
            &["HTTP2_GOAWAY"],
        ),
        in_turn(
            "GOAWAY, then NOT_SERVING",
            vec![refuses(), answer(call(&[0, 0, 0, 0, 2, 8, 2], "0"))],
            "FAIL",
            NOT_SERVING,
        ),
        in_turn(
            "GOAWAY, then silence",
            vec![refuses(), vec![Act::Read]],
            "TIMEOUT",
            LATE,
        ),
    ]);
}
