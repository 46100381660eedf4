//! gRPC with prior knowledge over raw HTTP/2 frames: faults and floods (semantics P1, P12, P16).

use vitals_tests::hostile::Act;

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SERVING, begin, bomb,
    call, field, flood, frame, head, promise, settings,
};
use crate::table::{answer, judge, row};

const MALFORMED: &[&str] = &["MALFORMED_RESPONSE"];
const BROKEN: &[&str] = &["HTTP2_ERROR"];
const LATE: &[&str] = &["RESPONSE_TIMEOUT"];
const GRPC: &str = "--type GRPC";

#[test]
fn p12_faults() {
    let html = [vec![0x88], field("content-type", "text/html")].concat();
    let html = frame(HEADERS, END_HEADERS | END_STREAM, 1, &html);
    // :status 503, from no table.
    let unavailable = frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &field(":status", "503"),
    );
    let huge = [0, 255, 255, 255, 255, 8, 1];
    let compressed = [1, 0, 0, 0, 2, 8, 1];
    let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 7]);
    let serving = frame(DATA, 0, 1, SERVING);
    let fin = || vec![Act::Gap, Act::Fin];
    let half = || begin(&[head(), serving.clone()]);
    let alert = b"\x15\x03\x03\x00\x02\x02\x46";
    judge(vec![
        row(
            "a message of 4 GB",
            "P12",
            answer(call(&huge, "0")),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
        row(
            "a compressed message",
            "P12",
            answer(call(&compressed, "0")),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
        row(
            "PUSH_PROMISE",
            "P12",
            begin(&[promise()]),
            GRPC,
            "FAIL",
            BROKEN,
        ),
        row("RST_STREAM", "P12", begin(&[reset]), GRPC, "FAIL", BROKEN),
        row(
            "HTTP 503",
            "P12",
            begin(&[unavailable]),
            GRPC,
            "FAIL",
            &["STATUS_MISMATCH"],
        ),
        row("HTML", "P12", begin(&[html]), GRPC, "FAIL", MALFORMED),
        row(
            "HTTP/1.1",
            "P12",
            answer("HTTP/1.1 400 Bad Request\r\n\r\n"),
            GRPC,
            "FAIL",
            MALFORMED,
        ),
        row("a TLS alert", "P12", answer(alert), GRPC, "FAIL", MALFORMED),
        row(
            "DATA before the head",
            "P12",
            begin(&[frame(DATA, 0, 1, SERVING)]),
            GRPC,
            "FAIL",
            BROKEN,
        ),
        row(
            "a frame beyond 16 KB",
            "P12",
            begin(&[frame(DATA, 0, 1, &[0; 16_385])]),
            GRPC,
            "FAIL",
            BROKEN,
        ),
        row("no SETTINGS", "P12", answer(head()), GRPC, "FAIL", BROKEN),
        row(
            "FIN before grpc-status",
            "P12",
            [half(), fin()].concat(),
            GRPC,
            "FAIL",
            &["PEER_CLOSED"],
        ),
        row(
            "FIN before SETTINGS",
            "P12",
            vec![Act::Read, Act::Fin],
            GRPC,
            "FAIL",
            &["PEER_CLOSED"],
        ),
        row(
            "RST after accept",
            "P16",
            vec![Act::Reset],
            GRPC,
            "FAIL",
            &["PEER_RESET"],
        ),
        row(
            "closes while we write",
            "P16",
            vec![Act::Close],
            GRPC,
            "FAIL",
            &["PEER_CLOSED", "PEER_RESET"],
        ),
        row("no grpc-status", "P1", half(), GRPC, "TIMEOUT", LATE),
        row("no head", "P1", begin(&[]), GRPC, "TIMEOUT", LATE),
        row(
            "never answers",
            "P16",
            vec![Act::Read],
            GRPC,
            "TIMEOUT",
            LATE,
        ),
        row(
            "a byte each 100 ms",
            "P1",
            vec![Act::Read, Act::Trickle(call(SERVING, "0"))],
            GRPC,
            "TIMEOUT",
            LATE,
        ),
    ]);
}

#[test]
fn p12_floods() {
    let ping = frame(PING, 0, 0, &[0; 8]);
    let more = frame(CONTINUATION, 0, 1, &[]);
    let much = frame(CONTINUATION, 0, 1, &[0; 1000]);
    let interim = frame(HEADERS, END_HEADERS, 1, &field(":status", "103"));
    let open_block = || frame(HEADERS, 0, 1, &[0x88]);
    let empty_data = frame(DATA, 0, 1, &[]);
    let unknown = frame(99, 0, 0, &[0; 100]);
    let no_end: &[&str] = &["HTTP2_ERROR", "FLOOD"];
    let messages = frame(DATA, 0, 1, &[0, 0, 0, 0, 0].repeat(1000));
    let by_code = "--type GRPC --grpc-method /a.B/c --grpc-expected-codes 0";
    judge(vec![
        row(
            "SETTINGS",
            "P12",
            flood(&[], &settings()),
            GRPC,
            "FAIL",
            no_end,
        ),
        row("PING", "P12", flood(&[], &ping), GRPC, "FAIL", no_end),
        row(
            "empty CONTINUATION",
            "P12",
            flood(&[open_block()], &more),
            GRPC,
            "FAIL",
            no_end,
        ),
        row(
            "CONTINUATION",
            "P12",
            flood(&[open_block()], &much),
            GRPC,
            "FAIL",
            &["HTTP2_ERROR", "FLOOD", "HEADERS_TOO_LARGE"],
        ),
        row(
            "interim heads",
            "P12",
            flood(&[], &interim),
            GRPC,
            "FAIL",
            &["HTTP2_ERROR", "FLOOD", "MALFORMED_RESPONSE"],
        ),
        row(
            "empty DATA",
            "P12",
            flood(&[head()], &empty_data),
            GRPC,
            "FAIL",
            no_end,
        ),
        row(
            "frames of no known kind",
            "P12",
            flood(&[], &unknown),
            GRPC,
            "FAIL",
            no_end,
        ),
        row(
            "messages",
            "P13",
            flood(&[head()], &messages),
            by_code,
            "FAIL",
            &["HTTP2_ERROR", "FLOOD", "MALFORMED_RESPONSE"],
        ),
        row(
            "a header bomb",
            "P12",
            begin(&[bomb()]),
            GRPC,
            "FAIL",
            &["HEADERS_TOO_LARGE"],
        ),
    ]);
}
