//! The frames of HTTP/2 (RFC 9113 §4, §6, §7): their names, and how ours are written.
//!
//! In: what a frame says. Out: its bytes, appended to a buffer. What comes is read by `client`.

use std::fmt;

/// The length of a frame's head.
pub(super) const HEAD: usize = 9;
/// The largest payload that a peer may send without being told otherwise.
pub(super) const MAX_PAYLOAD: usize = 16_384;

/// What a client sends first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The kinds of frames that a probe knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Unknown kinds are ignored (RFC 9113 §4.1).
    Unknown,
}

impl Kind {
    const ALL: [(Self, &'static str); 10] = [
        (Self::Data, "DATA"),
        (Self::Headers, "HEADERS"),
        (Self::Priority, "PRIORITY"),
        (Self::RstStream, "RST_STREAM"),
        (Self::Settings, "SETTINGS"),
        (Self::PushPromise, "PUSH_PROMISE"),
        (Self::Ping, "PING"),
        (Self::GoAway, "GOAWAY"),
        (Self::WindowUpdate, "WINDOW_UPDATE"),
        (Self::Continuation, "CONTINUATION"),
    ];

    pub(super) fn of(code: u8) -> Self {
        Self::ALL
            .get(usize::from(code))
            .map_or(Self::Unknown, |&(kind, _)| kind)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|&&(kind, _)| kind == self)
            .map_or("unknown", |&(_, name)| name)
    }

    fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|&(kind, _)| kind == self);
        place
            .and_then(|place| u8::try_from(place).ok())
            .unwrap_or(u8::MAX)
    }
}

/// Flags; ACK and END_STREAM share a bit.
pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// Settings that a probe sends or heeds.
pub(super) const ENABLE_PUSH: u16 = 0x2;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// An error code, for people (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

impl Code {
    pub(super) const PROTOCOL_ERROR: Self = Self(0x1);
    pub(super) const FLOW_CONTROL_ERROR: Self = Self(0x3);
    pub(super) const FRAME_SIZE_ERROR: Self = Self(0x6);
    pub(super) const COMPRESSION_ERROR: Self = Self(0x9);
    pub(super) const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {}", self.0),
        }
    }
}

/// The head of a frame that has come.
pub(super) struct FrameHead {
    pub(super) len: u32,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = bytes.first_chunk::<{ HEAD }>()?;
        Some(Self {
            len: u32::from_be_bytes([0, a, b, c]),
            kind: Kind::of(kind),
            flags,
            stream: u32::from_be_bytes(*stream) & 0x7fff_ffff,
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends one frame.
pub(super) fn write(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    // Nothing that a probe sends comes near 2^24 bytes; `write_headers` cuts at MAX_PAYLOAD.
    let len = u32::try_from(payload.len())
        .unwrap_or_default()
        .to_be_bytes();
    out.extend_from_slice(len.get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind.code(), flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends SETTINGS.
pub(super) fn write_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(settings.len() * 6);
    for (id, value) in settings {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    write(Kind::Settings, 0, 0, &payload, out);
}

/// Appends a header block, in as many frames as it takes.
pub(super) fn write_headers(block: &[u8], end_stream: bool, stream: u32, out: &mut Vec<u8>) {
    let mut pieces = block.chunks(MAX_PAYLOAD).peekable();
    let (mut kind, mut flags) = (Kind::Headers, if end_stream { END_STREAM } else { 0 });
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= END_HEADERS;
        }
        write(kind, flags, stream, piece, out);
        (kind, flags) = (Kind::Continuation, 0);
    }
}

/// The big-endian number at the start of a payload.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
