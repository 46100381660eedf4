//! TCP with and without strings (semantics P8, P9, P16).

use std::net::SocketAddr;

use vitals_tests::hostile::{Act, Full};
use vitals_tests::lab::Scene;
use vitals_tests::net::{Net, Turn};
use vitals_tests::probe::{expect, probe};

use crate::table::{Row, Script, answer, judge, row, send};

const OPEN: &[&str] = &["CONNECTED"];
const OK: &[&str] = &["RESPONSE_OK"];
const MISMATCH: &[&str] = &["BODY_MISMATCH"];
const LATE: &[&str] = &["RESPONSE_TIMEOUT"];
const CLOSED: &[&str] = &["PEER_CLOSED"];
const TCP: &str = "--type TCP";
const PONG: &str = "--type TCP --response PONG";
const PREFIX: &str = "--type TCP --response PONG --match PREFIX";
const CONTAINS: &str = "--type TCP --response PONG --match CONTAINS";
const ASK: &str = "--type TCP --request PING --response PONG";
const TELL: &str = "--type TCP --request PING";

fn say(text: &str) -> Vec<Act> {
    vec![send(text)]
}

fn nothing_listens(flags: &str) -> Row {
    Row {
        name: "nothing listens",
        rule: "P16",
        script: Script::Nobody,
        flags: flags.into(),
        result: "TIMEOUT",
        codes: &["CONNECT_REFUSED"],
    }
}

#[test]
fn p9_without_strings() {
    // So late that no machine is so busy that it sees the connection open and reset in one wake-up.
    let later = [vec![Act::Gap; 10], vec![Act::Reset]].concat();
    judge(vec![
        row("accepts, then hangs", "P8", vec![], TCP, "PASS", OPEN),
        row("accepts, then FIN", "P9", vec![Act::Fin], TCP, "PASS", OPEN),
        row("accepts, then RST", "P9", later, TCP, "PASS", OPEN),
        row(
            "talks without end",
            "P9",
            vec![Act::Endless(vec![0; 4096])],
            TCP,
            "PASS",
            OPEN,
        ),
        nothing_listens(TCP),
    ]);
}

#[test]
fn p8_with_strings() {
    let pieces = vec![send("PO"), Act::Gap, send("NG")];
    let more = vec![send("PONG"), Act::Gap, send("!")];
    let then = |text: &str, act: Act| vec![send(text), Act::Gap, act];
    let endless = || vec![Act::Endless(vec![b'x'; 4096])];
    judge(vec![
        row("PO, NG", "P8", pieces, PONG, "PASS", OK),
        row("PONG, and silence", "P8", say("PONG"), PONG, "PASS", OK),
        row(
            "PONG, and FIN",
            "P8",
            then("PONG", Act::Fin),
            PONG,
            "PASS",
            OK,
        ),
        row(
            "PONG, and RST",
            "P8",
            then("PONG", Act::Reset),
            PONG,
            "PASS",
            OK,
        ),
        row(
            "PONG and a line's end",
            "P8",
            say("PONG\r\n"),
            PONG,
            "FAIL",
            MISMATCH,
        ),
        row(
            "PONG, and more soon after",
            "P8",
            more,
            PONG,
            "FAIL",
            MISMATCH,
        ),
        row("something else", "P8", say("-ERR"), PONG, "FAIL", MISMATCH),
        row(
            "something without end",
            "P8",
            endless(),
            PONG,
            "FAIL",
            MISMATCH,
        ),
        row(
            "FIN before the string",
            "P8",
            then("PO", Act::Fin),
            PONG,
            "FAIL",
            CLOSED,
        ),
        row(
            "RST before the string",
            "P16",
            then("PO", Act::Reset),
            PONG,
            "FAIL",
            &["PEER_RESET"],
        ),
        row(
            "RST after accept",
            "P16",
            vec![Act::Reset],
            PONG,
            "FAIL",
            &["PEER_RESET"],
        ),
        row("nothing", "P16", vec![], PONG, "TIMEOUT", LATE),
        row("half of it", "P1", say("PO"), PONG, "TIMEOUT", LATE),
        nothing_listens(PONG),
    ]);
}

#[test]
fn p8_ways_to_match_and_requests() {
    let trickle = vec![Act::Trickle(b"x".to_vec())];
    judge(vec![
        row(
            "PREFIX, and more",
            "P8",
            say("PONG\r\n"),
            PREFIX,
            "PASS",
            OK,
        ),
        row(
            "PREFIX, elsewhere",
            "P8",
            say("+PONG"),
            PREFIX,
            "FAIL",
            MISMATCH,
        ),
        row(
            "CONTAINS",
            "P8",
            vec![send("+PO"), Act::Gap, send("NG\r\n")],
            CONTAINS,
            "PASS",
            OK,
        ),
        row(
            "CONTAINS, not",
            "P8",
            vec![send("PING"), Act::Fin],
            CONTAINS,
            "FAIL",
            MISMATCH,
        ),
        row(
            "CONTAINS, without end",
            "P8",
            vec![Act::Endless(vec![b'x'; 999])],
            CONTAINS,
            "FAIL",
            &["BODY_WINDOW_FULL"],
        ),
        row(
            "a byte each 100 ms",
            "P1",
            trickle,
            CONTAINS,
            "TIMEOUT",
            LATE,
        ),
        row("asked and answered", "P8", answer("PONG"), ASK, "PASS", OK),
        row(
            "asked, no answer",
            "P8",
            vec![Act::Read],
            ASK,
            "TIMEOUT",
            LATE,
        ),
        row(
            "request alone, junk back",
            "P8",
            answer("junk"),
            TELL,
            "PASS",
            OPEN,
        ),
        row(
            "request alone, nothing back",
            "P8",
            vec![Act::Read],
            TELL,
            "PASS",
            OPEN,
        ),
        row(
            "closes while we write",
            "P16",
            vec![Act::Close],
            ASK,
            "FAIL",
            &["PEER_CLOSED", "PEER_RESET"],
        ),
    ]);
}

#[test]
fn p16_a_connect_that_is_not_answered() {
    let _turn = Turn::shared();
    let address = SocketAddr::new(Net::new().host(11).into(), 21_901);
    let _full = Full::start(address);
    for kind in ["TCP", "HTTP", "HTTPS", "GRPC"] {
        let flags = format!("--type {kind} --timeout 500ms");
        expect(address, &flags, "TIMEOUT", "CONNECT_TIMEOUT");
    }
}

#[test]
fn p8_p16_a_connection_that_the_kernel_takes_and_nobody_accepts() {
    let _turn = Turn::shared();
    let address = SocketAddr::new(Net::new().host(11).into(), 21_902);
    // As a process that is stopped: it listens, and that is all.
    let _stopped = std::net::TcpListener::bind(address).unwrap();
    expect(address, TCP, "PASS", "CONNECTED");
    for (flags, code) in [
        (PONG, "RESPONSE_TIMEOUT"),
        ("--type HTTP", "RESPONSE_TIMEOUT"),
        ("--type SSL", "TLS_TIMEOUT"),
        ("--type HTTPS", "TLS_TIMEOUT"),
        ("--type HTTP2", "TLS_TIMEOUT"),
        ("--type GRPC", "RESPONSE_TIMEOUT"),
    ] {
        let flags = format!("{flags} --timeout 500ms");
        expect(address, &flags, "TIMEOUT", code);
    }
}

#[test]
fn p16_our_own_side() {
    let scene = Scene::new();
    let backend = scene.backend(11);
    // TEST-NET-1: on no machine's interface.
    let flags = "--type TCP --source-address 192.0.2.1";
    let verdict = probe(backend.address(), flags).unwrap();
    let due = verdict.is("INCONCLUSIVE", &["LOCAL_PORTS", "LOCAL_ERROR"]);
    due.unwrap_or_else(|problem| panic!("{problem}"));
}
