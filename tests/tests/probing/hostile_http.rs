//! HTTP over plaintext: statuses, ends and silences (semantics P1, P4, P6, P16).

use vitals_tests::hostile::Act;

use crate::table::{Row, Script, answer, judge, row, send};

const OK: &[&str] = &["RESPONSE_OK"];
const STATUS: &[&str] = &["STATUS_MISMATCH"];
const LATE: &[&str] = &["RESPONSE_TIMEOUT"];
const CLOSED: &[&str] = &["PEER_CLOSED"];
const RESET: &[&str] = &["PEER_RESET"];
const GET: &str = "--type HTTP";
const PONG: &str = "--type HTTP --response PONG";

fn status(code: &str) -> Vec<Act> {
    answer(format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\n\r\n"))
}

#[test]
fn p4_p6_statuses() {
    let any = "--type HTTP --expected-statuses 204,206,301";
    let with_place =
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
    let classes = "--type HTTP --expected-statuses http_1xx";
    let then_ok = format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let mut rows = vec![
        row("200", "P4", status("200 OK"), GET, "PASS", OK),
        row(
            "200 without a reason phrase",
            "P4",
            status("200"),
            GET,
            "PASS",
            OK,
        ),
        row(
            "200 and an empty reason phrase",
            "P4",
            status("200 "),
            GET,
            "PASS",
            OK,
        ),
        row("204", "P4", status("204 No Content"), GET, "FAIL", STATUS),
        row(
            "206",
            "P4",
            status("206 Partial Content"),
            GET,
            "FAIL",
            STATUS,
        ),
        row("301", "P4", status("301 Moved"), GET, "FAIL", STATUS),
        row(
            "204, in the set",
            "P6",
            status("204 No Content"),
            any,
            "PASS",
            OK,
        ),
        row(
            "206, in the set",
            "P6",
            status("206 Partial Content"),
            any,
            "PASS",
            OK,
        ),
        row(
            "301, in the set",
            "P6",
            status("301 Moved"),
            any,
            "PASS",
            OK,
        ),
        row(
            "302 that leads elsewhere",
            "P4",
            answer(with_place),
            GET,
            "FAIL",
            STATUS,
        ),
        row("600", "P4", status("600 Beyond"), GET, "FAIL", STATUS),
        row("103, 100, 200", "P4", answer(then_ok), GET, "PASS", OK),
        row("101 is final", "P4", answer(switching), GET, "FAIL", STATUS),
        row(
            "101, in the set",
            "P6",
            answer(switching),
            classes,
            "PASS",
            OK,
        ),
    ];
    rows.push(row(
        "an interim answer, then nothing",
        "P1",
        answer(interim),
        GET,
        "TIMEOUT",
        LATE,
    ));
    rows.push(row(
        "HEAD, answered with a length and no body",
        "P6",
        answer("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        "--type HTTP --method HEAD",
        "PASS",
        OK,
    ));
    judge(rows);
}

#[test]
fn p4_p16_ends() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Le";
    let old = "HTTP/1.0 200 OK\r\n\r\nsome PONG";
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nPIN";
    let then = |bytes: &str, act: Act| vec![Act::Read, send(bytes), Act::Gap, act];
    judge(vec![
        row(
            "HTTP/1.0, body until FIN",
            "P4",
            then(old, Act::Fin),
            PONG,
            "PASS",
            OK,
        ),
        row(
            "HTTP/1.0, body until FIN, without the string",
            "P4",
            then("HTTP/1.0 200 OK\r\n\r\nsome", Act::Fin),
            PONG,
            "FAIL",
            &["BODY_MISMATCH"],
        ),
        row(
            "FIN within the headers",
            "P4",
            then(cut, Act::Fin),
            GET,
            "FAIL",
            CLOSED,
        ),
        row(
            "RST within the headers",
            "P16",
            then(cut, Act::Reset),
            GET,
            "FAIL",
            RESET,
        ),
        row(
            "FIN within the body",
            "P4",
            then(short, Act::Fin),
            PONG,
            "FAIL",
            CLOSED,
        ),
        row(
            "RST within the body",
            "P16",
            then(short, Act::Reset),
            PONG,
            "FAIL",
            RESET,
        ),
        row(
            "FIN without an answer",
            "P4",
            vec![Act::Read, Act::Fin],
            GET,
            "FAIL",
            CLOSED,
        ),
        row(
            "RST after the request",
            "P16",
            vec![Act::Read, Act::Reset],
            GET,
            "FAIL",
            RESET,
        ),
        row(
            "RST after accept",
            "P16",
            vec![Act::Reset],
            GET,
            "FAIL",
            RESET,
        ),
        row(
            "closes while the request is written",
            "P16",
            vec![Act::Close],
            GET,
            "FAIL",
            &["PEER_RESET", "PEER_CLOSED"],
        ),
        row(
            "an answer, then RST",
            "P4",
            then("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Act::Reset),
            GET,
            "PASS",
            OK,
        ),
    ]);
}

#[test]
fn p1_p16_silences() {
    let large = "HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n";
    let early = format!("{large}{}PONG", "x".repeat(96));
    let trickle = |bytes: &str| vec![Act::Read, Act::Trickle(bytes.into())];
    let mut rows = vec![
        row(
            "10 MB announced, then nothing",
            "P4",
            answer(large),
            GET,
            "PASS",
            OK,
        ),
        row(
            "the string at byte 100, then nothing",
            "P4",
            answer(early),
            PONG,
            "PASS",
            OK,
        ),
        row(
            "no string, then nothing",
            "P1",
            answer(format!("{large}x")),
            PONG,
            "TIMEOUT",
            LATE,
        ),
        row(
            "a byte of the head each 100 ms",
            "P1",
            trickle(large),
            GET,
            "TIMEOUT",
            LATE,
        ),
        row(
            "never answers",
            "P16",
            vec![Act::Read],
            GET,
            "TIMEOUT",
            LATE,
        ),
        row("never reads", "P16", vec![Act::Gap], GET, "TIMEOUT", LATE),
        Row {
            name: "nothing listens",
            rule: "P16",
            script: Script::Nobody,
            flags: GET.into(),
            result: "TIMEOUT",
            codes: &["CONNECT_REFUSED"],
        },
    ];
    rows.push(row(
        "a byte of the body each 100 ms",
        "P1",
        vec![Act::Read, send(large), Act::Trickle(b"x".to_vec())],
        PONG,
        "TIMEOUT",
        LATE,
    ));
    judge(rows);
}
