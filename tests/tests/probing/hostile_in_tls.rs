//! What comes after a good handshake, and is none of what TLS, HTTP or gRPC should be (semantics P1, P4, P8, P9, P12, P14,
//! P16). Each row is judged over TLS 1.2 and 1.3 where both can do it.

use vitals_tests::hostile::Act;
use vitals_tests::hostile_tls::{ALERT, DATA, HANDSHAKE, TlsAct, Version, close_notify, gap, say};

use crate::frames::{
    CONTINUATION, HEADERS, PING, RST_STREAM, SERVING, bomb, call, frame, goaway, head, promise,
    settings,
};
use crate::table::{Row, Script, judge};

const OK: &[&str] = &["RESPONSE_OK"];
const LATE: &[&str] = &["RESPONSE_TIMEOUT"];
const CLOSED: &[&str] = &["PEER_CLOSED"];
const RESET: &[&str] = &["PEER_RESET"];
/// Layer TLS: the handshake is over, and the peer does not keep to the protocol.
const BROKEN: &[&str] = &["TLS_HANDSHAKE"];
const ALERTED: &[&str] = &["TLS_ALERT"];
const MALFORMED: &[&str] = &["MALFORMED_RESPONSE"];
const MISMATCH: &[&str] = &["BODY_MISMATCH"];
const OPEN: &[&str] = &["TLS_ESTABLISHED"];
const HTTPS: &str = "--type HTTPS";
const PONG: &str = "--type HTTPS --response PONG";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n";
const NO_ALPN: &[&str] = &[];
const H2: &[&str] = &["h2"];

/// A row for each version.
fn over(
    versions: &[Version],
    alpn: &'static [&'static str],
    line: (&'static str, &'static str),
    acts: Vec<TlsAct>,
    flags: &str,
    due: (&'static str, &'static [&'static str]),
) -> Vec<Row> {
    let of = |version: &Version| Row {
        name: line.0,
        rule: line.1,
        script: Script::Tls(*version, alpn, acts.clone()),
        flags: flags.into(),
        result: due.0,
        codes: due.1,
    };
    versions.iter().map(of).collect()
}

/// After the request, these acts; HTTPS or SSL.
fn both(
    line: (&'static str, &'static str),
    acts: Vec<TlsAct>,
    flags: &str,
    due: (&'static str, &'static [&'static str]),
) -> Vec<Row> {
    let acts = [vec![TlsAct::Read], acts].concat();
    over(&Version::ALL, NO_ALPN, line, acts, flags, due)
}

/// After the preface, these acts; HTTP/2 over TLS 1.3.
fn h2(
    line: (&'static str, &'static str),
    acts: Vec<TlsAct>,
    flags: &str,
    due: (&'static str, &'static [&'static str]),
) -> Vec<Row> {
    let acts = [vec![TlsAct::Read], acts].concat();
    over(&[Version::Tls13], H2, line, acts, flags, due)
}

fn fin() -> TlsAct {
    TlsAct::Tcp(Act::Fin)
}

fn raw(bytes: &[u8]) -> TlsAct {
    TlsAct::Tcp(Act::Send(bytes.to_vec()))
}

#[test]
fn p4_p16_ends_within_tls() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Le";
    let part = format!("{HEAD}PIN");
    let old = "HTTP/1.0 200 OK\r\n\r\nsome PONG";
    let other = "HTTP/1.0 200 OK\r\n\r\nsome";
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let fail = |codes| ("FAIL", codes);
    judge(
        [
            both(("200", "P4"), vec![say(whole)], HTTPS, ("PASS", OK)),
            both(
                ("200 in two records", "P4"),
                vec![say(cut), gap(), say("ngth: 0\r\n\r\n")],
                HTTPS,
                ("PASS", OK),
            ),
            both(
                ("close_notify without an answer", "P4"),
                vec![close_notify(), gap()],
                HTTPS,
                fail(CLOSED),
            ),
            both(
                ("close_notify within the head", "P4"),
                vec![say(cut), close_notify()],
                HTTPS,
                fail(CLOSED),
            ),
            both(
                ("close_notify within the body", "P4"),
                vec![say(&part), gap(), close_notify()],
                PONG,
                fail(CLOSED),
            ),
            both(
                ("FIN without close_notify, no answer", "P4"),
                vec![fin()],
                HTTPS,
                fail(CLOSED),
            ),
            both(
                ("FIN without close_notify within the head", "P4"),
                vec![say(cut), gap(), fin()],
                HTTPS,
                fail(CLOSED),
            ),
            both(
                ("FIN without close_notify within the body", "P4"),
                vec![say(&part), gap(), fin()],
                PONG,
                fail(CLOSED),
            ),
            both(
                ("half a record, then FIN", "P4"),
                vec![raw(&[23, 3, 3, 0, 200, 1, 2, 3]), gap(), fin()],
                HTTPS,
                fail(CLOSED),
            ),
            both(
                ("HTTP/1.0, body until close_notify", "P4"),
                vec![say(old), close_notify()],
                PONG,
                ("PASS", OK),
            ),
            both(
                ("HTTP/1.0, another body until close_notify", "P4"),
                vec![say(other), close_notify()],
                PONG,
                fail(MISMATCH),
            ),
            both(
                ("an answer, then garbage", "P4"),
                vec![say(whole), gap(), raw(b"garbage")],
                HTTPS,
                ("PASS", OK),
            ),
            both(
                ("RST after the handshake", "P16"),
                vec![TlsAct::Tcp(Act::Reset)],
                HTTPS,
                fail(RESET),
            ),
            both(
                ("RST within the head", "P16"),
                vec![say(cut), gap(), TlsAct::Tcp(Act::Reset)],
                HTTPS,
                fail(RESET),
            ),
            over(
                &Version::ALL,
                NO_ALPN,
                ("closes while we write", "P16"),
                vec![TlsAct::Tcp(Act::Close)],
                HTTPS,
                fail(&["PEER_RESET", "PEER_CLOSED"]),
            ),
            both(
                ("a fatal alert after the handshake", "P16"),
                vec![TlsAct::Record(ALERT, vec![2, 80])],
                HTTPS,
                fail(ALERTED),
            ),
            both(
                ("a fatal alert within the head", "P16"),
                vec![say(cut), gap(), TlsAct::Record(ALERT, vec![2, 80])],
                HTTPS,
                fail(ALERTED),
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    );
}

#[test]
fn p1_p16_silences_within_tls() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let timeout = ("TIMEOUT", LATE);
    judge(
        [
            both(("never answers", "P16"), vec![], HTTPS, timeout),
            both(
                ("a byte of the head each 100 ms", "P1"),
                vec![TlsAct::Trickle(HEAD.into())],
                HTTPS,
                timeout,
            ),
            both(
                ("a byte of a record each 100 ms", "P1"),
                vec![TlsAct::TrickleRecord(whole.into())],
                HTTPS,
                timeout,
            ),
            both(
                ("a byte of the body each 100 ms", "P1"),
                vec![say(HEAD), TlsAct::Trickle(b"x".to_vec())],
                PONG,
                timeout,
            ),
            both(
                ("10 MB announced, then nothing", "P4"),
                vec![say("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n")],
                HTTPS,
                ("PASS", OK),
            ),
            both(
                ("half a record, then nothing", "P16"),
                vec![raw(&[23, 3, 3, 0, 200, 1, 2, 3])],
                HTTPS,
                timeout,
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    );
}

#[test]
fn p16_records_that_break_tls() {
    let garbage = [&[23, 3, 3, 0, 64][..], &[0x5a; 64]].concat();
    let hello_request = [0; 4];
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let fail = |codes| ("FAIL", codes);
    let only = |version, line, acts, flags, due| {
        let acts = [vec![TlsAct::Read], acts].concat();
        over(&[version], NO_ALPN, line, acts, flags, due)
    };
    // Type, length, lifetime, age, nonce, a ticket of four bytes, no extensions.
    let ticket: &[u8] = &[
        4, 0, 0, 18, 0, 0, 14, 16, 0, 0, 0, 0, 1, 0, 0, 4, 1, 2, 3, 4, 0, 0,
    ];
    judge(
        [
            both(
                ("a record of garbage", "P16"),
                vec![raw(&garbage)],
                HTTPS,
                fail(BROKEN),
            ),
            both(
                ("plaintext after the handshake", "P16"),
                vec![raw(b"HTTP/1.1 200 OK\r\n\r\n")],
                HTTPS,
                fail(BROKEN),
            ),
            both(
                ("an alert in plaintext after the handshake", "P16"),
                vec![raw(&[21, 3, 3, 0, 2, 2, 80])],
                HTTPS,
                fail(BROKEN),
            ),
            both(
                ("a record of 16 KB and 1", "P16"),
                vec![say(vec![b'x'; 16_385])],
                HTTPS,
                fail(BROKEN),
            ),
            both(
                ("a record of no known type", "P16"),
                vec![TlsAct::Record(99, vec![1])],
                HTTPS,
                fail(BROKEN),
            ),
            both(
                ("empty records without end", "P16"),
                vec![TlsAct::Endless(DATA, vec![])],
                HTTPS,
                fail(&["TLS_HANDSHAKE", "FLOOD"]),
            ),
            both(
                ("warnings without end", "P16"),
                vec![TlsAct::Endless(ALERT, vec![1, 90])],
                HTTPS,
                fail(&["TLS_HANDSHAKE", "TLS_ALERT", "FLOOD"]),
            ),
            both(
                ("a ServerHello once more", "P16"),
                vec![TlsAct::Record(HANDSHAKE, vec![2, 0, 0, 1, 0])],
                HTTPS,
                fail(BROKEN),
            ),
            only(
                Version::Tls12,
                ("HelloRequest, then an answer", "P4"),
                vec![TlsAct::Record(HANDSHAKE, hello_request.into()), say(whole)],
                HTTPS,
                ("PASS", OK),
            ),
            only(
                Version::Tls12,
                ("HelloRequest without end", "P16"),
                vec![TlsAct::Endless(HANDSHAKE, hello_request.into())],
                HTTPS,
                fail(&["TLS_HANDSHAKE", "FLOOD"]),
            ),
            only(
                Version::Tls13,
                ("NewSessionTicket, then an answer", "P4"),
                vec![TlsAct::Record(HANDSHAKE, ticket.into()), say(whole)],
                HTTPS,
                ("PASS", OK),
            ),
            only(
                Version::Tls13,
                ("NewSessionTicket without end", "P16"),
                vec![TlsAct::Endless(HANDSHAKE, ticket.into())],
                HTTPS,
                fail(&["FLOOD"]),
            ),
            over(
                &[Version::Tls13],
                NO_ALPN,
                ("KeyUpdate without end", "P16"),
                vec![TlsAct::KeyUpdates],
                HTTPS,
                fail(&["TLS_HANDSHAKE", "FLOOD"]),
            ),
            both(
                ("headers without end", "P4"),
                vec![
                    say("HTTP/1.1 200 OK\r\n"),
                    TlsAct::Endless(DATA, b"X-A: b\r\n".repeat(100)),
                ],
                HTTPS,
                fail(&["HEADERS_TOO_LARGE"]),
            ),
            both(
                ("a chunk's size beyond 64 bits", "P4"),
                vec![say(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nPONG",
                )],
                PONG,
                fail(MALFORMED),
            ),
            both(
                ("HTTP/2, not asked for", "P4"),
                vec![say(settings())],
                HTTPS,
                fail(MALFORMED),
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    );
}

#[test]
fn p8_p9_ssl() {
    const SSL: &str = "--type SSL";
    const STRING: &str = "--type SSL --response PONG";
    let any = |line, acts, flags, due| over(&Version::ALL, NO_ALPN, line, acts, flags, due);
    let pass = ("PASS", OK);
    let open = ("PASS", OPEN);
    // So late that no machine is so busy that it sees the end of the handshake and this in one wake-up.
    let later = |act| [vec![gap(); 10], vec![act]].concat();
    judge(
        [
            any(("accepts, then hangs", "P8"), vec![], SSL, open),
            any(("close_notify", "P9"), vec![close_notify()], SSL, open),
            any(("FIN", "P9"), vec![fin()], SSL, open),
            any(
                ("RST later", "P9"),
                later(TlsAct::Tcp(Act::Reset)),
                SSL,
                open,
            ),
            any(
                ("an alert later", "P9"),
                later(TlsAct::Record(ALERT, vec![2, 80])),
                SSL,
                open,
            ),
            any(
                ("talks without end", "P9"),
                vec![TlsAct::Endless(DATA, vec![0; 4096])],
                SSL,
                open,
            ),
            any(("PONG, and silence", "P8"), vec![say("PONG")], STRING, pass),
            any(
                ("PONG, and close_notify", "P8"),
                vec![say("PONG"), close_notify()],
                STRING,
                pass,
            ),
            any(
                ("PO, NG", "P8"),
                vec![say("PO"), gap(), say("NG")],
                STRING,
                pass,
            ),
            any(
                ("PONG and a line's end", "P8"),
                vec![say("PONG\r\n")],
                STRING,
                ("FAIL", MISMATCH),
            ),
            any(
                ("something without end", "P8"),
                vec![TlsAct::Endless(DATA, vec![b'x'; 4096])],
                STRING,
                ("FAIL", MISMATCH),
            ),
            any(
                ("close_notify before the string", "P8"),
                vec![say("PO"), gap(), close_notify()],
                STRING,
                ("FAIL", CLOSED),
            ),
            any(
                ("FIN before the string", "P8"),
                vec![say("PO"), gap(), fin()],
                STRING,
                ("FAIL", CLOSED),
            ),
            any(
                ("an alert before the string", "P16"),
                vec![say("PO"), gap(), TlsAct::Record(ALERT, vec![2, 80])],
                STRING,
                ("FAIL", ALERTED),
            ),
            any(
                ("half a record before the string", "P16"),
                vec![say("PO"), gap(), raw(&[23, 3, 3, 0, 32, 1, 2])],
                STRING,
                ("TIMEOUT", LATE),
            ),
            any(
                ("a byte each 100 ms", "P1"),
                vec![TlsAct::Trickle(b"P".to_vec())],
                "--type SSL --response PONG --match CONTAINS",
                ("TIMEOUT", LATE),
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    );
}

#[test]
fn p12_p14_http2_and_grpc() {
    const HTTP2: &str = "--type HTTP2";
    const GRPC: &str = "--type GRPC_WITH_TLS";
    let huge = [0, 255, 255, 255, 255, 8, 1];
    let compressed = [1, 0, 0, 0, 2, 8, 1];
    let no_end: &[&str] = &["HTTP2_ERROR", "FLOOD"];
    let whole = call(SERVING, "0");
    let fail = |codes| ("FAIL", codes);
    let timeout = ("TIMEOUT", LATE);
    let half = || say([settings(), head()].concat());
    let alert = || TlsAct::Record(ALERT, vec![2, 80]);
    let mut rows = Vec::new();
    // What ends or holds up any conversation in HTTP/2.
    for flags in [HTTP2, GRPC] {
        rows.extend([
            h2(("never answers", "P16"), vec![], flags, timeout),
            h2(
                ("SETTINGS alone", "P16"),
                vec![say(settings())],
                flags,
                timeout,
            ),
            h2(
                ("a byte each 100 ms", "P1"),
                vec![TlsAct::Trickle(whole.clone())],
                flags,
                timeout,
            ),
            h2(
                ("SETTINGS without end", "P12"),
                vec![TlsAct::Endless(DATA, settings().repeat(50))],
                flags,
                fail(no_end),
            ),
            h2(
                ("CONTINUATION without end", "P12"),
                vec![
                    say([settings(), frame(HEADERS, 0, 1, &[0x88])].concat()),
                    TlsAct::Endless(DATA, frame(CONTINUATION, 0, 1, &[]).repeat(50)),
                ],
                flags,
                fail(no_end),
            ),
            h2(
                ("PING without end", "P12"),
                vec![
                    say(settings()),
                    TlsAct::Endless(DATA, frame(PING, 0, 0, &[0; 8]).repeat(50)),
                ],
                flags,
                fail(no_end),
            ),
            h2(
                ("a header bomb", "P12"),
                vec![say([settings(), bomb()].concat())],
                flags,
                fail(&["HEADERS_TOO_LARGE"]),
            ),
            h2(
                ("PUSH_PROMISE", "P12"),
                vec![say([settings(), promise()].concat())],
                flags,
                fail(&["HTTP2_ERROR"]),
            ),
            h2(
                ("RST_STREAM", "P12"),
                vec![say(
                    [settings(), frame(RST_STREAM, 0, 1, &[0, 0, 0, 7])].concat()
                )],
                flags,
                fail(&["HTTP2_ERROR"]),
            ),
            h2(
                ("close_notify without an answer", "P12"),
                vec![close_notify()],
                flags,
                fail(CLOSED),
            ),
            h2(
                ("FIN after SETTINGS", "P12"),
                vec![say(settings()), gap(), fin()],
                flags,
                fail(CLOSED),
            ),
            h2(
                ("an alert after SETTINGS", "P16"),
                vec![say(settings()), gap(), alert()],
                flags,
                fail(ALERTED),
            ),
            h2(
                ("RST after SETTINGS", "P16"),
                vec![say(settings()), gap(), TlsAct::Tcp(Act::Reset)],
                flags,
                fail(RESET),
            ),
            h2(
                ("a record of garbage", "P16"),
                vec![say(settings()), raw(&[23, 3, 3, 0, 2, 1, 2])],
                flags,
                fail(BROKEN),
            ),
            h2(
                ("HTTP/1.1", "P12"),
                vec![say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
                flags,
                fail(MALFORMED),
            ),
            h2(
                ("GOAWAY each time", "P14"),
                vec![say([settings(), goaway(0)].concat())],
                flags,
                fail(&["HTTP2_GOAWAY"]),
            ),
            over(
                &[Version::Tls13],
                H2,
                ("KeyUpdate without end", "P16"),
                vec![TlsAct::KeyUpdates],
                flags,
                fail(&["TLS_HANDSHAKE", "FLOOD"]),
            ),
            over(
                &Version::ALL,
                NO_ALPN,
                ("no ALPN", "P12"),
                vec![TlsAct::Read, say(&whole)],
                flags,
                fail(&["NO_ALPN"]),
            ),
        ]);
    }
    rows.extend([
        h2(("SERVING", "P12"), vec![say(&whole)], GRPC, ("PASS", OK)),
        h2(("200 by HTTP/2", "P4"), vec![half()], HTTP2, ("PASS", OK)),
        h2(
            ("a message of 4 GB", "P12"),
            vec![say(call(&huge, "0"))],
            GRPC,
            fail(MALFORMED),
        ),
        h2(
            ("a compressed message", "P12"),
            vec![say(call(&compressed, "0"))],
            GRPC,
            fail(MALFORMED),
        ),
        h2(
            ("close_notify before grpc-status", "P12"),
            vec![half(), gap(), close_notify()],
            GRPC,
            fail(CLOSED),
        ),
        h2(
            ("FIN without close_notify before grpc-status", "P12"),
            vec![half(), gap(), fin()],
            GRPC,
            fail(CLOSED),
        ),
        h2(("no grpc-status", "P1"), vec![half()], GRPC, timeout),
    ]);
    judge(rows.into_iter().flatten().collect());
}
