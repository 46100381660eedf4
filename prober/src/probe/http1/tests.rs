//! Tests of `http1`: nasty answers and their verdicts, each also byte by byte.

use proptest::prelude::*;

use super::*;
use crate::check::{HealthCheck, HealthCheckSpec, HttpSpec, Method, Protocol};
use crate::outcome::{ProbeResult, Reason};
use ReasonCode::{
    BodyMismatch, BodyWindowFull, HeadersTooLarge, MalformedResponse, PeerClosed, ResponseOk,
    StatusMismatch,
};

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// With FIN.
    Fin,
    /// Not: the peer stalls, and without a finding the deadline will end it.
    Stall,
}
use Then::{Fin, Stall};

fn check(spec: HttpSpec) -> HealthCheck {
    HealthCheck::new(HealthCheckSpec::http(spec)).unwrap()
}

fn plain() -> HealthCheck {
    check(HttpSpec::default())
}

fn wanting(response: &str) -> HealthCheck {
    check(HttpSpec {
        response: Some(response.into()),
        ..HttpSpec::default()
    })
}

fn passing(statuses: &[&str]) -> HealthCheck {
    check(HttpSpec {
        expected_statuses: Some(statuses.iter().map(|&s| s.into()).collect()),
        ..HttpSpec::default()
    })
}

fn http(check: &HealthCheck) -> &HttpCheck {
    match check.protocol() {
        Protocol::Http(http) => http,
        other => panic!("not an HTTP check: {other:?}"),
    }
}

/// The finding for an answer in these pieces; `None`: only the deadline can end it.
fn judge<'a>(
    check: &HealthCheck,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    then: Then,
) -> Option<Reason> {
    let ask = Ask {
        check: http(check),
        peer: "127.0.0.11:8080".parse().unwrap(),
    };
    let mut reader = Reader::default();
    for piece in pieces {
        if let Some((result, reason)) = reader.feed(&ask, piece) {
            assert_eq!(
                result == ProbeResult::Pass,
                reason.code == ResponseOk,
                "{reason}"
            );
            return Some(reason);
        }
    }
    (then == Fin).then(|| reader.end(&ask).1)
}

/// The code for an answer, in one block and byte by byte.
fn code(check: &HealthCheck, answer: &[u8], then: Then) -> Option<ReasonCode> {
    let block = judge(check, [answer], then).map(|reason| reason.code);
    let single = judge(check, answer.chunks(1), then).map(|reason| reason.code);
    assert_eq!(block, single, "in one block, and byte by byte");
    block
}

#[test]
fn p4_nasty_answers_get_the_right_verdict() {
    let long = |before: usize| {
        let mut body = vec![b'.'; before];
        body.extend_from_slice(b"needle");
        body
    };
    let with = |head: &str, body: &[u8]| [head.as_bytes(), body].concat();
    let ok = "HTTP/1.1 200 OK\r\n";
    let length = |n: usize| format!("{ok}Content-Length: {n}\r\n\r\n");
    let head = check(HttpSpec {
        method: Some(Method::Head),
        ..HttpSpec::default()
    });
    let needle = wanting("needle");
    // (what, check, answer, then, code; the numbers are those of the list of nasty inputs)
    type Row = (&'static str, HealthCheck, Vec<u8>, Then, Option<ReasonCode>);
    #[rustfmt::skip]
    let table: Vec<Row> = vec![
        ("1 split over two chunks", needle.clone(),
            with(ok, b"Transfer-Encoding: chunked\r\n\r\n4\r\nxnee\r\n3;a=b\r\ndle\r\n"), Stall, Some(ResponseOk)),
        ("2 no response, 10 MB announced, stall", plain(), length(10_000_000).into(), Stall, Some(ResponseOk)),
        ("2 found at byte 100, stall", needle.clone(), with(&length(10_000_000), &long(100)), Stall, Some(ResponseOk)),
        ("2 not found, stall", needle.clone(), with(&length(10_000_000), b"....."), Stall, None),
        ("3 over by length", needle.clone(), with(&length(4), b"none"), Stall, Some(BodyMismatch)),
        ("3 over by last chunk", needle.clone(),
            with(ok, b"transfer-encoding: gzip, Chunked\r\n\r\n4\r\nnone\r\n0\r\n"), Stall, Some(BodyMismatch)),
        ("3 over by FIN", needle.clone(), with(ok, b"\r\nnone"), Fin, Some(BodyMismatch)),
        ("3 an empty body", needle.clone(), length(0).into(), Stall, Some(BodyMismatch)),
        ("3 the string stands behind the end", needle.clone(), with(&length(4), b"nonneedle"), Stall, Some(BodyMismatch)),
        ("window full", needle.clone(), with(&length(10_000), &long(1019)), Stall, Some(BodyWindowFull)),
        ("just within the window", needle.clone(), with(&length(10_000), &long(1018)), Stall, Some(ResponseOk)),
        ("4 103, 100, 200", plain(),
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n".into(),
            Stall, Some(ResponseOk)),
        ("4 101 is final", plain(), b"HTTP/1.1 101 Switching\r\n\r\n".into(), Stall, Some(StatusMismatch)),
        ("4 101 in the set", passing(&["http_1xx"]), b"HTTP/1.1 101 Switching\r\n\r\n".into(), Stall, Some(ResponseOk)),
        ("5 HTTP/1.0 until FIN", needle.clone(), b"HTTP/1.0 200 OK\r\n\r\n...needle".into(), Fin, Some(ResponseOk)),
        ("5 FIN in the head", plain(), b"HTTP/1.1 200 OK\r\nServer: x".into(), Fin, Some(PeerClosed)),
        ("5 FIN without a byte", plain(), b"".into(), Fin, Some(PeerClosed)),
        ("FIN in a body of a length", needle.clone(), with(&length(100), b"half"), Fin, Some(PeerClosed)),
        ("FIN in a chunk", needle.clone(),
            with(ok, b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf"), Fin, Some(PeerClosed)),
        ("6 204", plain(), b"HTTP/1.1 204 No Content\r\n\r\n".into(), Stall, Some(StatusMismatch)),
        ("6 206", plain(), b"HTTP/1.1 206 Partial\r\n\r\n".into(), Stall, Some(StatusMismatch)),
        ("6 301", plain(), b"HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n".into(), Stall, Some(StatusMismatch)),
        ("6 301 in the set", passing(&["200-399"]), b"HTTP/1.1 301 Moved\r\n\r\n".into(), Stall, Some(ResponseOk)),
        ("a code beyond 599", plain(), b"HTTP/1.1 999 No\r\n\r\n".into(), Stall, Some(StatusMismatch)),
        ("a code below 100", plain(), b"HTTP/1.1 099 No\r\n\r\n".into(), Stall, Some(MalformedResponse)),
        ("8 no reason phrase", plain(), b"HTTP/1.1 200\r\n\r\n".into(), Stall, Some(ResponseOk)),
        ("9 HEAD with a length and no body", head.clone(), length(500).into(), Stall, Some(ResponseOk)),
        ("bare line feeds", plain(), b"HTTP/1.1 200 OK\nServer: x\n\n".into(), Stall, Some(ResponseOk)),
        ("HTTP/0.9", plain(), b"<html>hello</html>".into(), Stall, Some(MalformedResponse)),
        ("HTTP/2", plain(), b"HTTP/2.0 200 OK\r\n\r\n".into(), Stall, Some(MalformedResponse)),
        ("another protocol, no line end", plain(), b"SSH-2.0".into(), Stall, Some(MalformedResponse)),
        ("TLS alert", plain(), b"\x15\x03\x01\x00\x02\x02\x46".into(), Stall, Some(MalformedResponse)),
        ("NUL in a header", plain(), b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n".into(), Stall, Some(MalformedResponse)),
        ("NUL in a name", plain(), b"HTTP/1.1 200 OK\r\nServer-na\0me".into(), Fin, Some(MalformedResponse)),
        ("all NUL", plain(), vec![0; 64], Stall, Some(MalformedResponse)),
        ("1 MB in one header", plain(), with(&format!("{ok}A: "), &vec![b'a'; 1 << 20]), Stall, Some(HeadersTooLarge)),
        ("1 MB of headers", plain(), with(ok, &b"A: a\r\n".repeat(175_000)), Stall, Some(HeadersTooLarge)),
        ("endless 1xx", plain(), b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000), Stall, Some(MalformedResponse)),
        ("negative length, body wanted", needle.clone(), with(ok, b"Content-Length: -1\r\n\r\n"), Stall, Some(MalformedResponse)),
        ("negative length, no body wanted", plain(), with(ok, b"Content-Length: -1\r\n\r\n"), Stall, Some(ResponseOk)),
        ("length beyond 64 bits", needle.clone(),
            with(ok, b"Content-Length: 99999999999999999999\r\n\r\n"), Stall, Some(MalformedResponse)),
        ("two lengths", needle.clone(), with(ok, b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), Stall, Some(MalformedResponse)),
        ("one length twice", needle.clone(), with(ok, b"Content-Length: 6, 6\r\n\r\nneedle"), Stall, Some(ResponseOk)),
        ("chunked beats length", needle.clone(),
            with(ok, b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nneedle\r\n"), Stall, Some(ResponseOk)),
        ("chunk size overflow", needle.clone(),
            with(ok, b"Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n"), Stall, Some(MalformedResponse)),
        ("greatest chunk size", needle.clone(),
            with(ok, b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nneedle"), Stall, Some(ResponseOk)),
        ("chunk without a size", needle.clone(), with(ok, b"Transfer-Encoding: chunked\r\n\r\n\r\n"), Stall, Some(MalformedResponse)),
        ("chunk size not hex", needle.clone(), with(ok, b"Transfer-Encoding: chunked\r\n\r\n4x\r\n"), Stall, Some(MalformedResponse)),
        ("chunk longer than its size", needle.clone(),
            with(ok, b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"), Stall, Some(MalformedResponse)),
        ("endless chunk extension", needle.clone(),
            with(ok, &[&b"Transfer-Encoding: chunked\r\n\r\n2;"[..], &[b'e'; 9000]].concat()), Stall, Some(MalformedResponse)),
        ("204 has no body", check(HttpSpec {
            response: Some("needle".into()),
            expected_statuses: Some(vec!["204".into()]),
            ..HttpSpec::default()
        }), b"HTTP/1.1 204 No\r\nContent-Length: 6\r\n\r\nneedle".into(), Stall, Some(BodyMismatch)),
    ];
    for (what, check, answer, then, expected) in table {
        assert_eq!(code(&check, &answer, then), expected, "{what}");
    }
}

#[test]
fn p4_128_headers_are_read_and_129_are_too_many() {
    let answer = |n: usize| [&b"HTTP/1.1 200 OK\r\n"[..], &b"A: a\r\n".repeat(n), b"\r\n"].concat();
    assert_eq!(code(&plain(), &answer(128), Stall), Some(ResponseOk));
    assert_eq!(code(&plain(), &answer(129), Stall), Some(HeadersTooLarge));
}

#[test]
fn reasons_tell_what_came_and_what_was_expected() {
    for (check, answer, text) in [
        (
            plain(),
            &b"HTTP/1.1 503 No\r\n\r\n"[..],
            "HTTP 503 from 127.0.0.11:8080; the check expects 200",
        ),
        (
            passing(&["http_2xx", "404"]),
            b"HTTP/1.1 500 No\r\n\r\n",
            "HTTP 500 from 127.0.0.11:8080; the check expects 200-299, 404",
        ),
        (
            wanting("OK"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnot\"\n",
            r#"HTTP 200 from 127.0.0.11:8080, but its whole body of 5 bytes does not contain "OK"; it begins with "not\"\n""#,
        ),
        (
            wanting("OK"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            r#"HTTP 200 from 127.0.0.11:8080 with an empty body; the check expects "OK" in it"#,
        ),
        (
            plain(),
            b"SSH-2.0-x\r\n",
            r#"the answer from 127.0.0.11:8080 is not HTTP/1 (invalid HTTP version); it begins with "SSH-2.0-x\r\n""#,
        ),
    ] {
        assert_eq!(judge(&check, [answer], Stall).unwrap().text, text);
    }
}

#[test]
fn p4_a_passing_reason_is_not_allocated() {
    let reason = judge(&plain(), [&b"HTTP/1.1 200 OK\r\n\r\n"[..]], Stall).unwrap();
    assert!(matches!(reason.text, Cow::Borrowed(_)));
}

#[test]
fn p7_the_request_names_the_host_and_keeps_the_checks_own_headers() {
    let request = |spec: HttpSpec| {
        let check = check(spec);
        let mut out = Vec::new();
        write_request(http(&check), "[2001:db8::1]:8080", &mut out);
        String::from_utf8(out).unwrap()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        request(HttpSpec {
            request_path: Some("/healthz?a=b".into()),
            headers: vec![("X-Probe".into(), "1".into())],
            ..HttpSpec::default()
        }),
        format!(
            "GET /healthz?a=b HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\nUser-Agent: vitals/{version}\r\n\
             Accept: */*\r\nConnection: close\r\nX-Probe: 1\r\n\r\n"
        )
    );
    assert_eq!(
        request(HttpSpec {
            method: Some(Method::Head),
            headers: vec![
                ("user-agent".into(), "me".into()),
                ("ACCEPT".into(), "text/html".into())
            ],
            ..HttpSpec::default()
        }),
        "HEAD / HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\nConnection: close\r\nuser-agent: me\r\n\
         ACCEPT: text/html\r\n\r\n"
    );
}

fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |text: &'static str| Just(text.as_bytes().to_vec());
    prop_oneof![
        4 => fixed("HTTP/1.1 200 OK\r\n"),
        2 => fixed("\r\n"),
        1 => fixed("HTTP/1.1 100 \r\n\r\n"),
        1 => fixed("HTTP/1.0 503 No\n"),
        1 => fixed("Content-Length: 9\r\n\r\n"),
        2 => fixed("Transfer-Encoding: chunked\r\n\r\n"),
        2 => fixed("4\r\nnee"),
        2 => fixed("dle\r\n"),
        1 => fixed("0\r\n\r\n"),
        1 => fixed("X: \t y \r\n"),
        1 => "[0-9a-f;: \r\n]{0,6}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ]
}

proptest! {
    #[test]
    fn p4_the_verdict_does_not_depend_on_how_the_bytes_are_cut(
        fragments in prop::collection::vec(fragment(), 0..10),
        cuts in prop::collection::vec(1usize..40, 1..8),
        wants_body: bool,
        fin: bool,
    ) {
        let check = if wants_body { wanting("needle") } else { plain() };
        let then = if fin { Fin } else { Stall };
        let answer = fragments.concat();
        let whole = judge(&check, [&answer[..]], then).map(|reason| reason.code);
        let single = judge(&check, answer.chunks(1), then).map(|reason| reason.code);
        let mut pieces = Vec::new();
        let mut rest = &answer[..];
        for cut in cuts.into_iter().cycle() {
            if rest.is_empty() { break; }
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        let cut = judge(&check, pieces, then).map(|reason| reason.code);
        prop_assert_eq!(cut, whole);
        // A stalled answer that is malformed behind its last line end may be found out only at the deadline.
        if single != whole { prop_assert!(single.is_none() && then == Stall, "{:?} {:?}", single, whole); }
    }
}
