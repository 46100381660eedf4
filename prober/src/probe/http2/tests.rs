//! Tests of `http2`: nasty answers and their verdicts, each also byte by byte.

use proptest::prelude::*;

use super::client::MAX_IDLE_FRAMES;
use super::transcript::{
    Came, END, Then, WHOLE, block, data, fields, frames, goaway, headers, hold, raw, rst_stream,
    settings,
};
use super::*;
use crate::check::{HealthCheck, HealthCheckSpec, HttpSpec, Method, Protocol};
use ReasonCode::{
    BodyMismatch, BodyWindowFull, HeadersTooLarge, Http2Error, Http2Goaway, MalformedResponse,
    PeerClosed, ResponseOk, StatusMismatch,
};
use Then::{Fin, Stall};

fn check(spec: HttpSpec) -> HttpCheck {
    let spec = HealthCheckSpec::http(spec);
    let check = HealthCheck::new(spec).unwrap();
    let Protocol::Http(http) = check.protocol() else {
        panic!("{check:?}")
    };
    http.clone()
}

fn plain() -> HttpCheck {
    check(HttpSpec::default())
}

fn wanting(response: &str) -> HttpCheck {
    check(HttpSpec {
        response: Some(response.into()),
        ..HttpSpec::default()
    })
}

fn new(check: &HttpCheck) -> Conversation {
    let peer = "192.0.2.1:443".parse().unwrap();
    Conversation::new(check, "h.test", true, peer)
}

/// The verdict, which must not depend on how the bytes are cut.
fn judge(check: &HttpCheck, transcript: &[u8], then: Then) -> Came {
    let (whole, _) = hold(new(check), [transcript], then);
    let (single, _) = hold(new(check), transcript.chunks(1), then);
    assert_eq!(whole.code(), single.code(), "{whole:?} {single:?}");
    whole
}

fn ok(flags: u8) -> Vec<u8> {
    headers(flags, &[(":status", "200"), ("server", "x")])
}

fn status(code: &str, flags: u8) -> Vec<u8> {
    headers(flags, &[(":status", code)])
}

#[test]
fn p4_p7_the_request() {
    let check = check(HttpSpec {
        method: Some(Method::Head),
        request_path: Some("/healthz?a=1".into()),
        headers: vec![
            ("X-One".into(), "1".into()),
            ("Keep-Alive".into(), "5".into()),
            ("User-Agent".into(), "me".into()),
        ],
        ..HttpSpec::default()
    });
    let (_, sent) = hold(new(&check), [], Stall);
    let sent = frames(&sent);
    assert_eq!(sent.len(), 2);
    assert_eq!((sent[0].0, sent[0].1), ("SETTINGS", 0));
    assert_eq!((sent[1].0, sent[1].1), ("HEADERS", END | WHOLE));
    assert_eq!(
        fields(&sent[1].2),
        [
            ":method: HEAD",
            ":scheme: https",
            ":authority: h.test",
            ":path: /healthz?a=1",
            "accept: */*",
            "x-one: 1",
            "user-agent: me"
        ]
    );
}

#[test]
fn a_request_of_many_headers_goes_out_in_frames_that_every_peer_takes() {
    let value = "v".repeat(4096);
    let check = check(HttpSpec {
        headers: (0..7).map(|i| (format!("x-{i}"), value.clone())).collect(),
        ..HttpSpec::default()
    });
    let (_, sent) = hold(new(&check), [], Stall);
    let sent = frames(&sent);
    let kinds: Vec<_> = sent
        .iter()
        .map(|(kind, flags, _)| (*kind, *flags))
        .collect();
    assert_eq!(kinds[1..], [("HEADERS", END), ("CONTINUATION", WHOLE)]);
    let block = [&sent[1].2[..], &sent[2].2].concat();
    assert_eq!(fields(&block).len(), 4 + 2 + 7);
}

#[test]
fn p4_verdicts_of_whole_answers() {
    let (plain, ok_wanted) = (plain(), wanting("OK"));
    let long = vec![b'x'; 1024];
    for (rule, check, answer, then, code) in [
        (
            "P4: at the end of the headers",
            &plain,
            vec![ok(0)],
            Stall,
            Some(ResponseOk),
        ),
        (
            "P4: END_STREAM on HEADERS",
            &plain,
            vec![ok(END)],
            Stall,
            Some(ResponseOk),
        ),
        (
            "P4: 204 is not 200",
            &plain,
            vec![status("204", END)],
            Stall,
            Some(StatusMismatch),
        ),
        (
            "P4: 301 is not followed",
            &plain,
            vec![status("301", END)],
            Stall,
            Some(StatusMismatch),
        ),
        (
            "P4: interim 1xx are skipped",
            &plain,
            vec![status("103", 0), status("100", 0), ok(0)],
            Stall,
            Some(ResponseOk),
        ),
        (
            "P4: 101 is final",
            &plain,
            vec![status("101", 0)],
            Stall,
            Some(StatusMismatch),
        ),
        (
            "found",
            &ok_wanted,
            vec![ok(0), data(0, b"..OK..")],
            Stall,
            Some(ResponseOk),
        ),
        (
            "found across frames",
            &ok_wanted,
            vec![ok(0), data(0, b"..O"), data(0, b""), data(0, b"K")],
            Stall,
            Some(ResponseOk),
        ),
        (
            "not found yet",
            &ok_wanted,
            vec![ok(0), data(0, b"..O")],
            Stall,
            None,
        ),
        (
            "over by DATA",
            &ok_wanted,
            vec![ok(0), data(END, b"no")],
            Stall,
            Some(BodyMismatch),
        ),
        (
            "found in the last",
            &ok_wanted,
            vec![ok(0), data(END, b"OK")],
            Stall,
            Some(ResponseOk),
        ),
        (
            "over, empty",
            &ok_wanted,
            vec![ok(END)],
            Stall,
            Some(BodyMismatch),
        ),
        (
            "over by trailers",
            &ok_wanted,
            vec![ok(0), data(0, b"no"), headers(END, &[("x-sum", "1")])],
            Stall,
            Some(BodyMismatch),
        ),
        (
            "window full",
            &ok_wanted,
            vec![ok(0), data(0, &long)],
            Stall,
            Some(BodyWindowFull),
        ),
        (
            "FIN within",
            &ok_wanted,
            vec![ok(0), data(0, b"no")],
            Fin,
            Some(PeerClosed),
        ),
        ("FIN before the head", &plain, vec![], Fin, Some(PeerClosed)),
        ("FIN before SETTINGS", &plain, vec![], Fin, Some(PeerClosed)),
        ("P1: nothing", &plain, vec![], Stall, None),
    ] {
        let transcript = [settings(), answer.concat()].concat();
        let came = judge(check, &transcript, then);
        assert_eq!(came.code().1, code, "{rule}: {came:?}");
    }
    let came = judge(&plain, b"", Fin);
    assert_eq!(came.code().1, Some(PeerClosed), "{came:?}");
}

#[test]
fn padding_priority_continuation_and_unknown_frames_are_taken_as_they_come() {
    let block = block(&[(":status", "200"), ("x", "1")]);
    let padded = [&[3][..], &block, &[0; 3]].concat();
    let both = [&[2, 0, 0, 0, 0, 9][..], &block, &[0; 2]].concat();
    let (a, b) = block.split_at(2);
    for answer in [
        vec![raw(1, WHOLE | 0x8, 1, &padded)],
        vec![raw(1, WHOLE | 0x28, 1, &both)],
        vec![raw(1, 0, 1, a), raw(9, 0, 1, &[]), raw(9, WHOLE, 1, b)],
        vec![
            raw(0xfa, 0xff, 77, b"grease"),
            raw(2, 0, 3, &[0; 5]),
            raw(1, WHOLE, 1, &block),
        ],
    ] {
        let body = raw(0, 0x8, 1, b"\x04..O\0\0\0\0");
        let transcript = [settings(), answer.concat(), body, data(0, b"K")].concat();
        let came = judge(&wanting("OK"), &transcript, Stall);
        assert_eq!(came.code(), ("pass", Some(ResponseOk)), "{came:?}");
    }
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let transcript = [
        settings(),
        raw(6, 0, 0, b"12345678"),
        raw(6, 1, 0, b"ourping!"),
    ]
    .concat();
    let (_, sent) = hold(new(&plain()), [&transcript[..]], Stall);
    let replies = &frames(&sent)[2..];
    assert_eq!(
        replies,
        [("SETTINGS", 1, vec![]), ("PING", 1, b"12345678".to_vec())]
    );
}

#[test]
fn broken_rules_of_the_protocol_fail_with_their_name() {
    let hello = settings;
    let begun = || [settings(), ok(0)].concat();
    let set = |id: u16, value: u32| {
        raw(
            4,
            0,
            0,
            &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat(),
        )
    };
    for (transcript, named) in [
        (ok(0), "PROTOCOL_ERROR"),
        (raw(4, 1, 0, &[]), "PROTOCOL_ERROR"),
        (
            [hello(), data(0, b"x")].concat(),
            "DATA before the response head",
        ),
        ([begun(), raw(0, 0, 3, b"OK")].concat(), "DATA on stream 3"),
        ([begun(), raw(0, 0, 0, b"OK")].concat(), "DATA on stream 0"),
        ([begun(), raw(0, 8, 1, b"")].concat(), "FRAME_SIZE_ERROR"),
        ([begun(), raw(0, 8, 1, b"\x05..")].concat(), "more padding"),
        (
            [hello(), raw(1, WHOLE, 2, &[0x88])].concat(),
            "HEADERS on stream 2",
        ),
        (
            [hello(), raw(1, WHOLE | 8, 1, &[9, 0x88])].concat(),
            "PROTOCOL_ERROR",
        ),
        (
            [hello(), raw(1, WHOLE | 0x20, 1, &[0; 4])].concat(),
            "PROTOCOL_ERROR",
        ),
        (
            [hello(), raw(5, WHOLE, 1, &[0, 0, 0, 2, 0x82])].concat(),
            "PUSH_PROMISE",
        ),
        (
            [hello(), raw(9, WHOLE, 1, &[0x88])].concat(),
            "CONTINUATION of nothing",
        ),
        (
            [hello(), raw(1, 0, 1, &[0x88]), hello()].concat(),
            "in the middle of a header block",
        ),
        (
            [hello(), raw(1, 0, 1, &[0x88]), raw(0xfa, 0, 1, &[])].concat(),
            "middle of a header",
        ),
        (
            [hello(), raw(1, 0, 1, &[0x88]), raw(9, WHOLE, 3, &[])].concat(),
            "on stream 3",
        ),
        (
            [hello(), raw(1, WHOLE, 1, &[0xff])].concat(),
            "COMPRESSION_ERROR",
        ),
        (
            [hello(), raw(3, 0, 1, &[0; 3])].concat(),
            "FRAME_SIZE_ERROR",
        ),
        (
            [hello(), raw(3, 0, 3, &[0; 4])].concat(),
            "RST_STREAM on stream 3",
        ),
        (raw(4, 0, 1, &[]), "SETTINGS on stream 1"),
        (raw(4, 0, 0, &[0; 5]), "FRAME_SIZE_ERROR"),
        (
            [hello(), raw(4, 1, 0, &[0; 6])].concat(),
            "FRAME_SIZE_ERROR",
        ),
        (set(2, 2), "ENABLE_PUSH 2"),
        (set(4, 0x8000_0000), "FLOW_CONTROL_ERROR"),
        (set(5, 16_383), "MAX_FRAME_SIZE 16383"),
        (
            [hello(), raw(6, 0, 0, &[0; 7])].concat(),
            "FRAME_SIZE_ERROR",
        ),
        (
            [hello(), raw(6, 0, 1, &[0; 8])].concat(),
            "PING on stream 1",
        ),
        (
            [hello(), raw(7, 0, 0, &[0; 7])].concat(),
            "FRAME_SIZE_ERROR",
        ),
        (
            [hello(), raw(8, 0, 0, &[0; 4])].concat(),
            "WINDOW_UPDATE by 0",
        ),
        (
            [hello(), raw(8, 0, 1, &[0; 3])].concat(),
            "FRAME_SIZE_ERROR",
        ),
        (
            [hello(), raw(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat(),
            "FLOW_CONTROL_ERROR",
        ),
        (
            [hello(), raw(8, 0, 1, &[0x70, 0, 0, 0]), set(4, 0x7000_0000)].concat(),
            "FLOW_CONTROL_ERROR",
        ),
        (
            [hello(), vec![0, 0x40, 1, 0xfa, 0, 0, 0, 0, 0]].concat(),
            "16385 bytes",
        ),
        (
            [hello(), vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
            "FRAME_SIZE_ERROR",
        ),
    ] {
        let came = judge(&wanting("OK"), &transcript, Stall);
        assert_eq!(came.code(), ("fail", Some(Http2Error)), "{named}: {came:?}");
        assert!(came.text().contains(named), "{named}: {came:?}");
    }
}

#[test]
fn p4_heads_that_http_2_forbids_are_malformed() {
    for (answer, problem) in [
        (headers(0, &[("server", "x")]), "no :status"),
        (
            headers(0, &[(":status", "200"), (":status", "200")]),
            "two statuses",
        ),
        (
            headers(0, &[("x", "1"), (":status", "200")]),
            "behind a header",
        ),
        (headers(0, &[(":status", "99")]), "none"),
        (headers(0, &[(":status", "0200")]), "none"),
        (headers(0, &[(":path", "/")]), "no answer has"),
        (headers(0, &[(":status", "200"), ("X", "1")]), "name"),
        (
            headers(0, &[(":status", "200"), ("", "1")]),
            "without a name",
        ),
        (headers(0, &[(":status", "200"), ("x", "a\0b")]), "NUL"),
        (
            headers(0, &[(":status", "200"), ("x", "a\r\nb")]),
            "NUL, CR or LF",
        ),
        (headers(END, &[(":status", "103")]), "ends the stream"),
        (
            [ok(0), headers(0, &[("x", "1")])].concat(),
            "do not end the stream",
        ),
        ([ok(0), ok(END)].concat(), "status in the trailers"),
        (status("103", 0).repeat(33), "interim"),
    ] {
        let came = judge(&wanting("OK"), &[settings(), answer].concat(), Stall);
        assert_eq!(
            came.code(),
            ("fail", Some(MalformedResponse)),
            "{problem}: {came:?}"
        );
        assert!(came.text().contains(problem), "{problem}: {came:?}");
    }
}

#[test]
fn floods_and_bombs_end_early_and_small() {
    let ping = raw(6, 0, 0, &[0; 8]);
    let empty = data(0, b"");
    let piece = raw(9, 0, 1, &[0; 1]);
    let open = [settings(), raw(1, 0, 1, &[0x88])].concat();
    let large_piece = raw(9, 0, 1, &[0x88; 16_384]);
    let flood = |start: Vec<u8>, frame: &[u8]| [start, frame.repeat(2000)].concat();
    let mut bomb = b"\x88\x40\x01a\x7f\xa1\x1e".to_vec();
    bomb.extend([b'x'; 4000]);
    bomb.extend([0xbe; 100]);
    let fields: Vec<String> = (0..200).map(|i| format!("x-{i}")).collect();
    let many: Vec<_> = std::iter::once((":status", "200"))
        .chain(fields.iter().map(|name| (name.as_str(), "")))
        .collect();
    for (transcript, code) in [
        (flood(vec![], &settings()), Http2Error),
        (flood(settings(), &ping), Http2Error),
        (flood([settings(), ok(0)].concat(), &empty), Http2Error),
        (flood(settings(), &raw(0xfa, 0, 0, &[])), Http2Error),
        (
            [settings(), raw(0xfa, 0, 0, &[0; 16_384]).repeat(9)].concat(),
            Http2Error,
        ),
        (flood(settings(), &raw(8, 0, 1, &[0, 0, 0, 1])), Http2Error),
        (flood(open.clone(), &piece), Http2Error),
        (flood(open, &large_piece), HeadersTooLarge),
        (
            [settings(), raw(1, WHOLE, 1, &bomb)].concat(),
            HeadersTooLarge,
        ),
        ([settings(), headers(0, &many)].concat(), HeadersTooLarge),
    ] {
        let came = judge(&wanting("OK"), &transcript, Stall);
        assert_eq!(came.code(), ("fail", Some(code)), "{came:?}");
    }
    const { assert!(MAX_IDLE_FRAMES < 2000) };
}

#[test]
fn p4_a_peer_that_pads_forever_meets_the_window_of_the_stream() {
    let padded = raw(0, 8, 1, &[&[255][..], b"x", &[0; 255]].concat());
    let begun = [settings(), ok(0)].concat();
    let transcript = [begun.clone(), padded.repeat(255)].concat();
    let came = judge(&wanting("OK"), &transcript, Stall);
    // 255 × 257 is the window to the byte: it may not send more, so waiting serves nobody.
    assert_eq!(came.code(), ("fail", Some(MalformedResponse)), "{came:?}");
    let transcript = [
        begun,
        padded.repeat(254),
        raw(0, 8, 1, &[&[255][..], b"xx", &[0; 255]].concat()),
    ];
    let came = judge(&wanting("OK"), &transcript.concat(), Stall);
    assert!(came.text().contains("FLOW_CONTROL_ERROR"), "{came:?}");
}

#[test]
fn rst_stream_fails_in_each_state_with_its_codes_name() {
    let came = judge(&plain(), &[settings(), rst_stream(7)].concat(), Stall);
    assert_eq!(
        came.text(),
        "192.0.2.1:443 broke the request off with RST_STREAM (REFUSED_STREAM) before its answer was whole"
    );
    assert_eq!(came.code(), ("fail", Some(Http2Error)));
    let body = [settings(), ok(0), data(0, b"O"), rst_stream(0)].concat();
    assert!(
        judge(&wanting("OK"), &body, Stall)
            .text()
            .contains("NO_ERROR")
    );
    let interim = [settings(), status("100", 0), rst_stream(0xff)].concat();
    assert!(
        judge(&plain(), &interim, Stall)
            .text()
            .contains("error code 255")
    );
    // The verdict fell before it.
    let after = [settings(), ok(0), rst_stream(8)].concat();
    assert_eq!(judge(&plain(), &after, Stall).code().0, "pass");
}

#[test]
fn p14_goaway_that_covers_the_stream_does_not_fail_it_and_a_lower_one_retries() {
    let covered = |goaway: Vec<u8>| [settings(), goaway, ok(0)].concat();
    for last in [1, 5, 0x7fff_ffff, 0xffff_ffff] {
        let came = judge(&plain(), &covered(goaway(last, 0, b"")), Stall);
        assert_eq!(came.code().0, "pass", "{last}: {came:?}");
    }
    assert_eq!(
        judge(&plain(), &covered(goaway(0, 0, b"")), Stall),
        Came::Retry
    );
    // Graceful: first everything is covered, then nothing.
    let graceful = [
        settings(),
        goaway(0x7fff_ffff, 0, b""),
        goaway(0, 0, b"bye"),
    ]
    .concat();
    assert_eq!(judge(&plain(), &graceful, Stall), Came::Retry);
    assert_eq!(judge(&plain(), &goaway(0, 2, b""), Stall), Came::Retry);
    let closed = [settings(), goaway(1, 11, b"too_many_pings")].concat();
    let came = judge(&plain(), &closed, Fin);
    assert_eq!(came.code(), ("fail", Some(Http2Goaway)));
    assert_eq!(
        came.text(),
        "192.0.2.1:443 sent GOAWAY (ENHANCE_YOUR_CALM, \"too_many_pings\") and closed the connection without a whole answer"
    );
}

#[test]
fn p14_the_second_refusal_says_what_the_last_goaway_said() {
    let mut conversation = new(&plain());
    let transcript = [settings(), goaway(0, 11, b"")].concat();
    let now = crate::clock::now();
    conversation::Conversation::feed(&mut conversation, &transcript, now).unwrap();
    let missing = conversation::Conversation::missing(&conversation);
    let (_, reason) = refused_again("192.0.2.1:443".parse().unwrap(), &missing);
    assert_eq!(reason.code, Http2Goaway);
    assert_eq!(
        reason.text,
        "192.0.2.1:443 refused the request by GOAWAY on two connections in a row; the last one said GOAWAY (ENHANCE_YOUR_CALM)"
    );
}

#[test]
fn p12_a_peer_of_another_protocol_fails_at_once_and_is_named() {
    for (answer, text) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            "192.0.2.1:443 speaks HTTP/1 where the check expects HTTP/2; its answer begins with \"HTTP/1.1 400 Bad Request\\r\\n\"",
        ),
        (
            b"\x15\x03\x01\0\x02\x02\x46",
            "192.0.2.1:443 speaks TLS where the check expects HTTP/2 without it; its answer begins with \"\\x15\\x03\\x01\\x00\\x02\\x02F\"; a port with TLS is checked by type GRPC_WITH_TLS",
        ),
        (
            b"SSH-2.0-x\r\n",
            "the answer from 192.0.2.1:443 is not HTTP/2; it begins with \"SSH-2.0-x\\r\\n\"",
        ),
    ] {
        let came = judge(&plain(), answer, Stall);
        assert_eq!(came.code(), ("fail", Some(MalformedResponse)));
        assert_eq!(came.text(), text);
    }
    let came = judge(&plain(), b"-ER", Fin);
    assert_eq!(came.code(), ("fail", Some(MalformedResponse)), "{came:?}");
}

#[test]
fn p1_a_timeout_can_say_what_is_missing() {
    for (transcript, missing) in [
        (vec![], "sent no answer"),
        (
            vec![0, 0],
            "sent no whole SETTINGS frame, only \"\\x00\\x00\"",
        ),
        (settings(), "sent no complete response head"),
        (
            [settings(), status("100", 0)].concat(),
            "sent no final status, only interim ones,",
        ),
        (
            [settings(), ok(0), data(0, b"abc")].concat(),
            "after HTTP 200 and 3 bytes of body the expected string did not come",
        ),
        (
            [settings(), goaway(1, 0, b"")].concat(),
            "after GOAWAY (NO_ERROR) sent no complete response head",
        ),
    ] {
        assert_eq!(judge(&wanting("OK"), &transcript, Stall).text(), missing);
    }
}

/// Frames that are often right, and bytes that are not.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        4 => (0..11_u8, any::<u8>(), 0..3_u32, payload.clone()).prop_map(|(k, f, s, p)| raw(k, f, s, &p)),
        2 => Just(settings()),
        2 => (0..2_u8).prop_map(ok),
        1 => (0..2_u8).prop_map(|flags| headers(flags, &[("x", "y")])),
        2 => payload.clone().prop_map(|p| data(0, &p)),
        1 => (0..3_u32, any::<u32>()).prop_map(|(last, code)| goaway(last, code, b"x")),
        1 => payload,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn p4_arbitrary_frames_neither_panic_nor_depend_on_the_cut(
        frames in prop::collection::vec(frame(), 0..12),
        fin in any::<bool>(),
        first in any::<bool>(),
    ) {
        let start = if first { settings() } else { vec![] };
        judge(&wanting("OK"), &[start, frames.concat()].concat(), if fin { Fin } else { Stall });
    }

    #[test]
    fn p4_arbitrary_bytes_neither_panic_nor_depend_on_the_cut(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        judge(&plain(), &bytes, Stall);
        judge(&plain(), &[settings(), bytes].concat(), Fin);
    }
}
