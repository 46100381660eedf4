//! The strings of a TCP or SSL check: `request` is sent, the answer held against `response` (semantics P8).
//!
//! In: bytes as they come, the peer's FIN, time. Out: a finding as soon as there is one.
//!
//! ```text
//! COLLECTING ──a byte that cannot fit──────────────► BODY_MISMATCH
//!     │ the string is there
//!     ├── PREFIX, CONTAINS ────────────────────────► pass
//!     ▼ EXACT
//!   QUIET ── FIN, RST, 100 ms or the deadline ─────► pass
//!     └───── another byte ─────────────────────────► BODY_MISMATCH
//! ```
//!
//! EXACT cannot end with the string: the answer might go on. FIN ends it; without one, 100 ms of silence must do.
//! CONTAINS looks at the first 1,024 bytes, as everywhere else. Without
//! `response` the verdict falls when the request is on its way. Checks without strings have no conversation at all.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Finding;
use super::conversation::{self, Step};
use super::text::{SHOWN, quoted};
use crate::check::{HealthCheck, MATCH_WINDOW, Protocol, TcpCheck, TcpMatch};
use crate::outcome::{ProbeResult, Reason, ReasonCode};

/// How long nothing may follow an exact answer (semantics P8).
const QUIET: Duration = Duration::from_millis(100);

/// The strings of one probe.
#[derive(Debug)]
pub(super) struct Conversation {
    check: Arc<HealthCheck>,
    peer: SocketAddr,
    asked: bool,
    reader: Reader,
}

impl Conversation {
    pub(super) fn new(check: Arc<HealthCheck>, peer: SocketAddr) -> Self {
        Self {
            check,
            peer,
            asked: false,
            reader: Reader::default(),
        }
    }

    fn strings(&self) -> Option<&TcpCheck> {
        match self.check.protocol() {
            Protocol::Tcp(check) => Some(check),
            Protocol::Http(_) | Protocol::Http2(_) | Protocol::Grpc(_) => None,
        }
    }

    /// The reader, and what it is asked; `None` where no answer is asked for.
    fn parts(&mut self) -> Option<(&mut Reader, Ask<'_>)> {
        let Protocol::Tcp(check) = self.check.protocol() else {
            return None;
        };
        let ask = Ask {
            expected: check.response()?.as_bytes(),
            matching: check.matching(),
            peer: self.peer,
        };
        Some((&mut self.reader, ask))
    }
}

impl conversation::Conversation for Conversation {
    fn send(&mut self, out: &mut Vec<u8>) {
        if self.asked {
            return;
        }
        self.asked = true;
        if let Some(request) = self.strings().and_then(TcpCheck::request) {
            out.extend_from_slice(request.as_bytes());
        }
    }

    fn sent(&mut self) -> Option<Step> {
        let reads = self.parts().is_some();
        (!reads).then(|| Step::Done(connected()))
    }

    fn feed(&mut self, bytes: &[u8], now: Instant) -> Option<Step> {
        let (reader, ask) = self.parts()?;
        reader.feed(&ask, bytes, now).map(Step::Done)
    }

    fn end(&mut self) -> Step {
        Step::Done(match self.parts() {
            Some((reader, ask)) => reader.end(&ask),
            None => connected(),
        })
    }

    fn quiet_until(&self) -> Option<Instant> {
        self.reader.quiet_until()
    }

    fn missing(&self) -> Cow<'static, str> {
        if self.strings().is_some_and(|tcp| tcp.response().is_some()) {
            self.reader.missing()
        } else {
            "it did not take the request".into()
        }
    }
}

/// What is expected, of whom.
#[derive(Clone, Copy, Debug)]
struct Ask<'a> {
    expected: &'a [u8],
    matching: TcpMatch,
    peer: SocketAddr,
}

/// Collects the answer.
#[derive(Debug, Default)]
struct Reader {
    got: Vec<u8>,
    quiet_until: Option<Instant>,
}

/// The finding of a check that asks for no answer.
pub(super) fn connected() -> Finding {
    (
        ProbeResult::Pass,
        Reason::new(ReasonCode::Connected, "the connection opened"),
    )
}

/// The finding when the answer is as expected.
pub(super) fn passed() -> Finding {
    (
        ProbeResult::Pass,
        Reason::new(
            ReasonCode::ResponseOk,
            "the answer is what the check expects",
        ),
    )
}

impl Reader {
    /// Set once the whole of an exact answer has come: until when nothing may follow.
    fn quiet_until(&self) -> Option<Instant> {
        self.quiet_until
    }

    /// More bytes have come.
    fn feed(&mut self, ask: &Ask<'_>, bytes: &[u8], now: Instant) -> Option<Finding> {
        // Bytes beyond the string are kept only to be shown.
        let room = match ask.matching {
            TcpMatch::Exact | TcpMatch::Prefix => ask.expected.len() + SHOWN,
            TcpMatch::Contains => MATCH_WINDOW,
        };
        let take = bytes.len().min(room.saturating_sub(self.got.len()));
        self.got
            .extend_from_slice(bytes.get(..take).unwrap_or_default());
        match ask.matching {
            TcpMatch::Contains => {
                if find(&self.got, ask.expected) {
                    Some(passed())
                } else if self.got.len() >= MATCH_WINDOW {
                    let text = format!(
                        "the first {MATCH_WINDOW} bytes from {} do not contain {}; they begin with {}",
                        ask.peer,
                        quoted(ask.expected),
                        quoted(&self.got)
                    );
                    Some((
                        ProbeResult::Fail,
                        Reason::new(ReasonCode::BodyWindowFull, text),
                    ))
                } else {
                    None
                }
            }
            TcpMatch::Exact if self.got == ask.expected => {
                self.quiet_until = Some(now + QUIET);
                None
            }
            TcpMatch::Prefix if self.got.starts_with(ask.expected) => Some(passed()),
            TcpMatch::Exact | TcpMatch::Prefix if ask.expected.starts_with(&self.got) => None,
            TcpMatch::Exact | TcpMatch::Prefix => Some(self.mismatch(ask)),
        }
    }

    /// The peer has closed its side.
    fn end(&self, ask: &Ask<'_>) -> Finding {
        if self.quiet_until.is_some() {
            passed()
        } else if ask.matching == TcpMatch::Contains && !self.got.is_empty() {
            self.mismatch(ask)
        } else {
            let text = match self.got.as_slice() {
                [] => format!(
                    "{} closed the connection without an answer; the check expects {}",
                    ask.peer,
                    quoted(ask.expected)
                ),
                got => format!(
                    "{} closed the connection after {}; the check expects {}",
                    ask.peer,
                    quoted(got),
                    quoted(ask.expected)
                ),
            };
            (ProbeResult::Fail, Reason::new(ReasonCode::PeerClosed, text))
        }
    }

    /// What has not come, for the sentence of a deadline.
    fn missing(&self) -> Cow<'static, str> {
        if self.got.is_empty() {
            "nothing came back".into()
        } else {
            format!("only {} came back", quoted(&self.got)).into()
        }
    }

    fn mismatch(&self, ask: &Ask<'_>) -> Finding {
        let how = match ask.matching {
            TcpMatch::Exact => "exactly",
            TcpMatch::Prefix => "an answer that begins with",
            TcpMatch::Contains => "an answer that contains",
        };
        let text = format!(
            "{} answered {}; the check expects {how} {}",
            ask.peer,
            quoted(&self.got),
            quoted(ask.expected)
        );
        (
            ProbeResult::Fail,
            Reason::new(ReasonCode::BodyMismatch, text),
        )
    }
}

/// Whether `needle` stands in `hay`. Both are bounded by the match window.
pub(super) fn find(hay: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || hay.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock;

    fn ask(expected: &str, matching: TcpMatch) -> Ask<'_> {
        Ask {
            expected: expected.as_bytes(),
            matching,
            peer: "127.0.0.1:7".parse().unwrap(),
        }
    }

    /// The code that comes of these pieces, and of FIN after them when they decide nothing.
    fn judge(ask: &Ask<'_>, pieces: &[&[u8]]) -> ReasonCode {
        let now = clock::now();
        let mut reader = Reader::default();
        for piece in pieces {
            if let Some((_, reason)) = reader.feed(ask, piece, now) {
                return reason.code;
            }
        }
        reader.end(ask).1.code
    }

    #[test]
    fn p8_exact_prefix_and_contains() {
        use ReasonCode::{BodyMismatch, BodyWindowFull, PeerClosed, ResponseOk};
        let long = [b'x'; 2000];
        for (matching, pieces, code) in [
            (TcpMatch::Exact, &[&b"PO"[..], b"NG"][..], ResponseOk),
            (TcpMatch::Exact, &[b"PONG\r\n"], BodyMismatch),
            (TcpMatch::Exact, &[b"PONG", b"\n"], BodyMismatch),
            (TcpMatch::Exact, &[b"PA"], BodyMismatch),
            (TcpMatch::Exact, &[b"PO"], PeerClosed),
            (TcpMatch::Exact, &[], PeerClosed),
            (TcpMatch::Prefix, &[b"PONG\r\n"], ResponseOk),
            (TcpMatch::Prefix, &[b"PO", b"NGxyz"], ResponseOk),
            (TcpMatch::Prefix, &[b"+PONG"], BodyMismatch),
            (TcpMatch::Contains, &[b"+PO", b"NG\r\n"], ResponseOk),
            (TcpMatch::Contains, &[b"+PING"], BodyMismatch),
            (TcpMatch::Contains, &[], PeerClosed),
            (TcpMatch::Contains, &[&long], BodyWindowFull),
        ] {
            assert_eq!(
                judge(&ask("PONG", matching), pieces),
                code,
                "{matching:?} {pieces:?}"
            );
        }
    }

    #[test]
    fn p8_an_exact_answer_waits_for_a_quiet_100_ms() {
        let (ask, now) = (ask("PONG", TcpMatch::Exact), clock::now());
        let mut reader = Reader::default();
        assert!(reader.feed(&ask, b"PON", now).is_none());
        assert_eq!(reader.quiet_until(), None);
        assert!(reader.feed(&ask, b"G", now).is_none());
        assert_eq!(reader.quiet_until(), Some(now + QUIET));
    }

    #[test]
    fn a_mismatch_tells_what_came_and_what_was_expected() {
        let ask = ask("PONG", TcpMatch::Exact);
        let (_, reason) = Reader::default()
            .feed(&ask, b"-ERR\r\n", clock::now())
            .unwrap();
        assert_eq!(
            reason.text,
            r#"127.0.0.1:7 answered "-ERR\r\n"; the check expects exactly "PONG""#
        );
    }

    proptest! {
        #[test]
        fn p8_the_verdict_does_not_depend_on_how_the_bytes_are_cut(
            answer in "[PONG\r]{0,9}",
            matching in prop::sample::select(vec![TcpMatch::Exact, TcpMatch::Prefix, TcpMatch::Contains]),
        ) {
            let ask = ask("PONG", matching);
            let single: Vec<&[u8]> = answer.as_bytes().chunks(1).collect();
            let whole: Vec<&[u8]> = answer.as_bytes().chunks(answer.len().max(1)).collect();
            prop_assert_eq!(judge(&ask, &single), judge(&ask, &whole));
        }
    }
}
