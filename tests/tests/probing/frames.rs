//! HTTP/2 frames by hand, and gRPC answers made of them.
//!
//! In: parts. Out: bytes, right or wrong. Not here: what is due for them.

use vitals_tests::hostile::Act;

use crate::table::answer;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A field that no table keeps.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).unwrap();
    let mut field = vec![0, len(name)];
    field.extend(name.bytes());
    field.push(len(value));
    field.extend(value.bytes());
    field
}

pub(crate) fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

pub(crate) fn head() -> Vec<u8> {
    let block = [vec![0x88], field("content-type", "application/grpc")].concat();
    frame(HEADERS, END_HEADERS, 1, &block)
}

pub(crate) fn trailers(code: &str) -> Vec<u8> {
    frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &field("grpc-status", code),
    )
}

pub(crate) fn trailers_only(code: &str) -> Vec<u8> {
    let content = field("content-type", "application/grpc");
    let block = [vec![0x88], content, field("grpc-status", code)].concat();
    [
        settings(),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block),
    ]
    .concat()
}

/// A whole answer with this in its DATA.
pub(crate) fn call(data: &[u8], code: &str) -> Vec<u8> {
    [settings(), head(), frame(DATA, 0, 1, data), trailers(code)].concat()
}

pub(crate) fn begin(more: &[Vec<u8>]) -> Vec<Act> {
    answer([settings(), more.concat()].concat())
}

pub(crate) fn flood(first: &[Vec<u8>], again: &[u8]) -> Vec<Act> {
    let mut acts = begin(first);
    acts.push(Act::Endless(again.repeat(50)));
    acts
}

pub(crate) fn goaway(last: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &payload)
}

/// A promise of a stream that nobody asked for.
pub(crate) fn promise() -> Vec<u8> {
    let payload = [0, 0, 0, 2, 0x82, 0x87, 0x84];
    frame(PUSH_PROMISE, END_HEADERS, 1, &payload)
}

/// A head of one field of 3,900 bytes into the table, then a thousand times out of it.
pub(crate) fn bomb() -> Vec<u8> {
    let mut block = vec![0x88, 0x40, 1, b'x', 0x7f, 0xbd, 0x1d];
    block.extend([b'y'; 3900]);
    block.extend([0xbe; 1000]);
    frame(HEADERS, END_HEADERS, 1, &block)
}
