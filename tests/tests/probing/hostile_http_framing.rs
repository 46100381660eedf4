//! HTTP over plaintext: bodies, broken framing, and answers without end (semantics P4).

use vitals_tests::hostile::Act;

use crate::table::{answer, judge, row, send};

const OK: &[&str] = &["RESPONSE_OK"];
const MALFORMED: &[&str] = &["MALFORMED_RESPONSE"];
const WINDOW: &[&str] = &["BODY_WINDOW_FULL"];
const MISMATCH: &[&str] = &["BODY_MISMATCH"];
const GET: &str = "--type HTTP";
const PONG: &str = "--type HTTP --response PONG";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

fn body(text: &str) -> Vec<Act> {
    let len = text.len();
    answer(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{text}"
    ))
}

fn chunks(text: &str) -> Vec<Act> {
    answer(format!("{CHUNKED}{text}"))
}

fn head(header: &str) -> Vec<Act> {
    answer(format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\nPONG"))
}

#[test]
fn p4_bodies() {
    let at = |n: usize| format!("{}PONG{}", "x".repeat(n), "y".repeat(100));
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 3";
    let both = format!("HTTP/1.1 200 OK\r\n{both}\r\n\r\n4\r\nPONG\r\n0\r\n\r\n");
    let split = vec![
        Act::Read,
        send(format!("{CHUNKED}2\r\nPO\r\n")),
        Act::Gap,
        send("2\r\nNG\r\n0\r\n\r\n"),
    ];
    let empty = "HTTP/1.1 204 No Content\r\n\r\n";
    let no_content = "--type HTTP --response PONG --expected-statuses 204";
    judge(vec![
        row("the string over two chunks", "P4", split, PONG, "PASS", OK),
        row(
            "the string up to byte 1,024",
            "P4",
            body(&at(1020)),
            PONG,
            "PASS",
            OK,
        ),
        row(
            "the string up to byte 1,025",
            "P4",
            body(&at(1021)),
            PONG,
            "FAIL",
            WINDOW,
        ),
        row(
            "the string behind the window",
            "P4",
            body(&at(5000)),
            PONG,
            "FAIL",
            WINDOW,
        ),
        row("another body", "P4", body("PING"), PONG, "FAIL", MISMATCH),
        row("no body", "P4", body(""), PONG, "FAIL", MISMATCH),
        row(
            "another body in chunks",
            "P4",
            chunks("4\r\nPING\r\n0\r\n\r\n"),
            PONG,
            "FAIL",
            MISMATCH,
        ),
        row(
            "framing is no body",
            "P4",
            chunks("3\r\nPON\r\n1\r\nX\r\n0\r\n\r\n"),
            PONG,
            "FAIL",
            MISMATCH,
        ),
        row(
            "204 has no body",
            "P4",
            answer(empty),
            no_content,
            "FAIL",
            MISMATCH,
        ),
        row("chunks beat a length", "P4", answer(both), PONG, "PASS", OK),
    ]);
}

#[test]
fn p4_broken_framing() {
    let extension = format!("4;{}\r\nPONG\r\n", "x".repeat(100_000));
    let garbage = b"\x16\x03\x03\x00\x02\x02\x28\r\n\r\n";
    judge(vec![
        row(
            "a chunk's size beyond 64 bits",
            "P4",
            chunks("FFFFFFFFFFFFFFFFF\r\nPONG"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a chunk's size below zero",
            "P4",
            chunks("-4\r\nPONG"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a chunk's size of nothing",
            "P4",
            chunks("\r\nPONG"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a chunk longer than its size",
            "P4",
            chunks("2\r\nPOxx"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a chunk's endless extension",
            "P4",
            chunks(&extension),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a length below zero",
            "P4",
            head("Content-Length: -1"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a length with a sign",
            "P4",
            head("Content-Length: +4"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a length beyond 64 bits",
            "P4",
            head("Content-Length: 99999999999999999999"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "two lengths",
            "P4",
            head("Content-Length: 4\r\nContent-Length: 5"),
            PONG,
            "FAIL",
            MALFORMED,
        ),
        row(
            "NUL in a header",
            "P4",
            head("X-A: b\0c"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "NUL in a header's name",
            "P4",
            head("X\0A: b"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a header without a colon",
            "P4",
            head("nonsense"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "HTTP/0.9",
            "P4",
            answer("<html>PONG</html>\r\n"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a status of letters",
            "P4",
            answer("HTTP/1.1 abc OK\r\n\r\n"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a status of four digits",
            "P4",
            answer("HTTP/1.1 2000 OK\r\n\r\n"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a status below 100",
            "P4",
            answer("HTTP/1.1 099 OK\r\n\r\n"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "HTTP/3.0",
            "P4",
            answer("HTTP/3.0 200 OK\r\n\r\n"),
            GET,
            "FAIL",
            MALFORMED,
        ),
        row(
            "SSH",
            "P4",
            vec![send("SSH-2.0-OpenSSH_9.2\r\n")],
            GET,
            "FAIL",
            MALFORMED,
        ),
        row("TLS", "P4", answer(garbage), GET, "FAIL", MALFORMED),
    ]);
}

#[test]
fn p4_without_end() {
    let start = "HTTP/1.1 200 OK\r\n";
    let then = |bytes: &str, acts: Act| vec![Act::Read, send(bytes), acts];
    let endless = |bytes: &str| Act::Endless(bytes.repeat(100).into());
    let too_large: &[&str] = &["HEADERS_TOO_LARGE"];
    let megabyte = format!("{start}X-Big: {}\r\n\r\n", "x".repeat(1 << 20));
    let until_close = "HTTP/1.0 200 OK\r\n\r\n";
    judge(vec![
        row(
            "1 MB in one header",
            "P4",
            answer(megabyte),
            GET,
            "FAIL",
            too_large,
        ),
        row(
            "headers without end",
            "P4",
            then(start, endless("X-A: b\r\n")),
            GET,
            "FAIL",
            too_large,
        ),
        row(
            "a header without end",
            "P4",
            then("HTTP/1.1 200 OK\r\nX: ", endless("x")),
            GET,
            "FAIL",
            too_large,
        ),
        row(
            "interim answers without end",
            "P4",
            vec![Act::Read, endless("HTTP/1.1 100 Continue\r\n\r\n")],
            GET,
            "FAIL",
            &["MALFORMED_RESPONSE", "FLOOD"],
        ),
        row(
            "a body without end",
            "P4",
            then(until_close, endless("x")),
            GET,
            "PASS",
            OK,
        ),
        row(
            "a body without end, searched",
            "P4",
            then(until_close, endless("x")),
            PONG,
            "FAIL",
            WINDOW,
        ),
        row(
            "chunks without end",
            "P4",
            then(CHUNKED, endless("1\r\nx\r\n")),
            PONG,
            "FAIL",
            WINDOW,
        ),
    ]);
}
