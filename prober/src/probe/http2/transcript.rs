//! What an HTTP/2 peer says, for tests: frames as bytes, and a conversation held against them.

use super::super::conversation::{Conversation, Step};
use super::frame::{self, Kind};
use super::hpack;
use crate::clock;
use crate::outcome::{ProbeResult, Reason, ReasonCode};

pub(in crate::probe) const END: u8 = frame::END_STREAM;
pub(in crate::probe) const WHOLE: u8 = frame::END_HEADERS;

/// A frame of any kind.
pub(in crate::probe) fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = vec![len[1], len[2], len[3], kind, flags];
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

pub(in crate::probe) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        hpack::write_field(name, value, &mut out);
    }
    out
}

pub(in crate::probe) fn settings() -> Vec<u8> {
    raw(4, 0, 0, &[0, 3, 0, 0, 0, 100])
}

pub(in crate::probe) fn headers(flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    raw(1, flags | WHOLE, 1, &block(fields))
}

pub(in crate::probe) fn data(flags: u8, bytes: &[u8]) -> Vec<u8> {
    raw(0, flags, 1, bytes)
}

pub(in crate::probe) fn goaway(last: u32, code: u32, debug: &[u8]) -> Vec<u8> {
    let payload = [&last.to_be_bytes()[..], &code.to_be_bytes(), debug].concat();
    raw(7, 0, 0, &payload)
}

pub(in crate::probe) fn rst_stream(code: u32) -> Vec<u8> {
    raw(3, 0, 1, &code.to_be_bytes())
}

/// How a transcript ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::probe) enum Then {
    Fin,
    /// The peer stalls: without a finding only the deadline can end it.
    Stall,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::probe) enum Came {
    Pass(Reason),
    Fail(Reason),
    Retry,
    /// Nothing, with what is missing.
    Nothing(String),
}

impl Came {
    fn of(step: Step) -> Self {
        match step {
            Step::Retry => Self::Retry,
            Step::Done((ProbeResult::Pass, reason)) => Self::Pass(reason),
            Step::Done((ProbeResult::Fail, reason)) => Self::Fail(reason),
            Step::Done(other) => panic!("{other:?}"),
        }
    }

    /// Without the texts, which may show more or less of what came.
    pub(in crate::probe) fn code(&self) -> (&'static str, Option<ReasonCode>) {
        match self {
            Self::Pass(reason) => ("pass", Some(reason.code)),
            Self::Fail(reason) => ("fail", Some(reason.code)),
            Self::Retry => ("retry", None),
            Self::Nothing(_) => ("nothing", None),
        }
    }

    pub(in crate::probe) fn text(&self) -> &str {
        match self {
            Self::Pass(reason) | Self::Fail(reason) => &reason.text,
            Self::Retry => "",
            Self::Nothing(missing) => missing,
        }
    }
}

/// Holds a conversation; also what it sent.
pub(in crate::probe) fn hold<'a>(
    mut conversation: impl Conversation,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    then: Then,
) -> (Came, Vec<u8>) {
    let (mut out, now) = (Vec::new(), clock::now());
    conversation.send(&mut out);
    for piece in pieces {
        if let Some(step) = conversation.feed(piece, now) {
            return (Came::of(step), out);
        }
        conversation.send(&mut out);
        assert!(out.len() < 32 * 1024, "it answers without end");
    }
    let came = match then {
        Then::Fin => Came::of(conversation.end()),
        Then::Stall => Came::Nothing(conversation.missing().into_owned()),
    };
    (came, out)
}

/// The frames of a request, behind the preface: name, flags, payload.
pub(in crate::probe) fn frames(sent: &[u8]) -> Vec<(&'static str, u8, Vec<u8>)> {
    let mut rest = sent.strip_prefix(frame::PREFACE).expect("the preface");
    let mut frames = Vec::new();
    while let [_, a, b, kind, flags, _, _, _, _, behind @ ..] = rest {
        let (payload, next) = behind.split_at(usize::from(*a) << 8 | usize::from(*b));
        frames.push((Kind::of(*kind).name(), *flags, payload.to_vec()));
        rest = next;
    }
    frames
}

/// The fields of a block, `name: value`.
pub(in crate::probe) fn fields(block: &[u8]) -> Vec<String> {
    let mut fields = Vec::new();
    hpack::Decoder::default()
        .block(block, |name, value| {
            let text = String::from_utf8_lossy;
            fields.push(format!("{}: {}", text(name), text(value)));
        })
        .unwrap();
    fields
}
