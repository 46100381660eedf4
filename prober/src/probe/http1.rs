//! HTTP/1 as a probe speaks it (semantics P4, P7): the request as bytes, and the reader of the answer.
//!
//! In: an HTTP check and a host; then the answer's bytes as they come, and the peer's FIN. Out: the request; a finding
//! as soon as there is one.
//!
//! ```text
//!        ┌── 1xx, save 101 ──┐
//!        ▼                   │   final status              `response` given
//!      HEAD ─────────────────┴──► in the pass set? ──yes──► BODY ──the string is there─────────► pass
//!        │ not HTTP/1,               │ no    │ no `response`  │ over, or 1,024 bytes without it ► fail
//!        │ too large, FIN            ▼       ▼                │ FIN before its end
//!        ▼                          fail    pass              ▼
//!       fail                                                 fail
//! ```
//!
//! Everything is bounded: 32 KiB and 128 headers for a head, 32 interim heads, 1,024 bytes of body. Where framing
//! speaks twice, Transfer-Encoding beats Content-Length (RFC 9112 §6.3). The framing is only looked at when a body is
//! wanted: without `response` the verdict falls with the status.
//!
//! Not here: sockets and deadlines (`probe`), the transfer codings themselves (`body`). Redirects are never followed,
//! no body is decompressed.

mod body;

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::net::SocketAddr;

use httparse::{Error as ParseError, Header, ParserConfig, Response};

use self::body::{Body, Framing, Progress};
use super::Finding;
use super::text::quoted;
use crate::check::{HttpCheck, MATCH_WINDOW};
use crate::outcome::{ProbeResult, Reason, ReasonCode};

/// The largest head that a probe reads.
const HEAD_LIMIT: usize = 32 * 1024;
/// The most headers in one head.
const MAX_HEADERS: usize = 128;
/// The most interim (1xx) responses before the final one.
const MAX_INTERIM: u8 = 32;
/// As long as no more bytes than this were there, each new one can show that the answer is not HTTP/1.
const STATUS_START: usize = 16;

/// What our requests call themselves, unless the check's own headers say otherwise.
const USER_AGENT: &str = concat!("vitals/", env!("CARGO_PKG_VERSION"));

/// Writes the request of a check (semantics P7).
pub(super) fn write_request(check: &HttpCheck, host: &str, out: &mut Vec<u8>) {
    let own = |name: &str| {
        check
            .headers()
            .iter()
            .any(|(header, _)| header.eq_ignore_ascii_case(name))
    };
    for part in [
        check.method().as_str(),
        " ",
        check.request_path(),
        " HTTP/1.1\r\nHost: ",
        host,
        "\r\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in [("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !own(name) {
            write_header(name, value, out);
        }
    }
    write_header("Connection", "close", out);
    for (name, value) in check.headers() {
        write_header(name, value, out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_header(name: &str, value: &str, out: &mut Vec<u8>) {
    for part in [name, ": ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// What is expected, of whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) check: &'a HttpCheck,
    pub(super) peer: SocketAddr,
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// A head that has not come whole in one piece; empty in the usual case.
    head: Vec<u8>,
    interim: u8,
    /// The final status is there and fits; its body is wanted.
    body: Option<(u16, Body)>,
}

enum Head {
    Partial,
    Whole {
        len: usize,
        status: u16,
        framing: Result<Framing, &'static str>,
    },
    TooLarge,
    Malformed(ParseError),
}

impl Reader {
    /// More bytes have come.
    pub(super) fn feed(&mut self, ask: &Ask<'_>, bytes: &[u8]) -> Option<Finding> {
        let mut rest = bytes;
        while self.body.is_none() {
            let (status, framing) = match self.next_head(&mut rest) {
                Head::Partial => return None,
                Head::Whole {
                    status, framing, ..
                } => (status, framing),
                Head::TooLarge => {
                    let text = format!(
                        "the headers from {} are larger than a probe reads ({MAX_HEADERS} headers, {} KiB)",
                        ask.peer,
                        HEAD_LIMIT / 1024
                    );
                    return Some(fail(ReasonCode::HeadersTooLarge, text));
                }
                Head::Malformed(error) => {
                    let start = if self.head.is_empty() {
                        rest
                    } else {
                        &self.head
                    };
                    return Some(malformed(ask, &error.to_string(), start));
                }
            };
            if let Some(finding) = self.judge(ask, status, framing) {
                return Some(finding);
            }
        }
        let (status, body) = self.body.as_mut()?;
        let wanted = ask.check.response().unwrap_or_default();
        let text = match body.feed(rest, wanted.as_bytes()) {
            Progress::More => return None,
            Progress::Found => {
                return Some((
                    ProbeResult::Pass,
                    Reason::new(
                        ReasonCode::ResponseOk,
                        "the status and the body are what the check expects",
                    ),
                ));
            }
            Progress::Full => {
                let text = format!(
                    "HTTP {status} from {}, but the first {MATCH_WINDOW} bytes of the body do not contain {}; they begin with {}",
                    ask.peer,
                    quoted(wanted.as_bytes()),
                    quoted(body.window())
                );
                return Some(fail(ReasonCode::BodyWindowFull, text));
            }
            Progress::Bad(problem) => {
                return Some(malformed(ask, problem, body.window()));
            }
            Progress::Over => over_text(ask, *status, body, wanted),
        };
        Some(fail(ReasonCode::BodyMismatch, text))
    }

    /// The peer has closed its side.
    pub(super) fn end(&self, ask: &Ask<'_>) -> Finding {
        if let Some((status, body)) = &self.body {
            let wanted = ask.check.response().unwrap_or_default();
            if body.ends_with_the_connection() {
                let text = over_text(ask, *status, body, wanted);
                return fail(ReasonCode::BodyMismatch, text);
            }
            let text = format!(
                "HTTP {status} from {}, but it closed the connection in the middle of the body, before {}",
                ask.peer,
                quoted(wanted.as_bytes())
            );
            return fail(ReasonCode::PeerClosed, text);
        }
        // Bytes without a line's end are not looked at as they come, so they are now.
        match parse_head(&self.head) {
            Head::Malformed(error) => malformed(ask, &error.to_string(), &self.head),
            Head::Partial | Head::Whole { .. } | Head::TooLarge => {
                let text = if self.head.is_empty() {
                    format!("{} closed the connection without an answer", ask.peer)
                } else {
                    format!(
                        "{} closed the connection in the middle of the headers, after {}",
                        ask.peer,
                        quoted(&self.head)
                    )
                };
                fail(ReasonCode::PeerClosed, text)
            }
        }
    }

    /// What has not come, for the sentence of a deadline.
    pub(super) fn missing(&self) -> Cow<'static, str> {
        match &self.body {
            Some((status, body)) => format!(
                "after HTTP {status} and {} bytes of body the expected string did not come",
                body.window().len()
            )
            .into(),
            None if self.head.is_empty() && self.interim == 0 => "sent no answer".into(),
            None if self.head.is_empty() => "sent no final status, only interim ones,".into(),
            None => format!(
                "did not finish its headers (they begin with {})",
                quoted(&self.head)
            )
            .into(),
        }
    }

    /// The next head out of what was kept and what has come; `rest` is left behind it.
    fn next_head(&mut self, rest: &mut &[u8]) -> Head {
        if self.head.is_empty() {
            let window = rest.get(..HEAD_LIMIT).unwrap_or(rest);
            let head = parse_head(window);
            match head {
                Head::Whole { len, .. } => *rest = rest.get(len..).unwrap_or_default(),
                Head::Partial => self.head.extend_from_slice(window),
                Head::TooLarge | Head::Malformed(_) => {}
            }
            return head;
        }
        let kept = self.head.len();
        let take = rest.len().min(HEAD_LIMIT - kept);
        let (new, _) = rest.split_at_checked(take).unwrap_or_default();
        self.head.extend_from_slice(new);
        // A head ends with a line; parsing only then keeps a peer that trickles from costing a parse per byte.
        if kept > STATUS_START && self.head.len() < HEAD_LIMIT && !new.contains(&b'\n') {
            return Head::Partial;
        }
        let head = parse_head(&self.head);
        if let Head::Whole { len, .. } = head {
            *rest = rest.get(len.saturating_sub(kept)..).unwrap_or_default();
            self.head.clear();
        }
        head
    }

    /// A whole head: a finding, or another head or a body follows.
    fn judge(
        &mut self,
        ask: &Ask<'_>,
        status: u16,
        framing: Result<Framing, &'static str>,
    ) -> Option<Finding> {
        if (100..200).contains(&status) && status != 101 {
            self.interim += 1;
            return (self.interim > MAX_INTERIM).then(|| {
                let problem = format!("more than {MAX_INTERIM} interim (1xx) responses");
                malformed(ask, &problem, format!("HTTP {status}").as_bytes())
            });
        }
        let expected = ask.check.expected_statuses();
        if !expected.contains(status) {
            let text = format!(
                "HTTP {status} from {}; the check expects {expected}",
                ask.peer
            );
            return Some(fail(ReasonCode::StatusMismatch, text));
        }
        if ask.check.response().is_none() {
            let text = if status == 200 {
                "HTTP 200, as the check expects"
            } else {
                "the HTTP status is one that the check expects"
            };
            return Some((ProbeResult::Pass, Reason::new(ReasonCode::ResponseOk, text)));
        }
        let framing = match framing {
            // RFC 9112 §6.3: these have no body, whatever their headers say.
            _ if matches!(status, 101 | 204 | 304) => Framing::Length(0),
            Ok(framing) => framing,
            Err(problem) => {
                return Some(malformed(ask, problem, format!("HTTP {status}").as_bytes()));
            }
        };
        self.body = Some((status, Body::new(framing)));
        None
    }
}

/// Parses a head from its first byte. What is not whole within the limit is too large.
fn parse_head(bytes: &[u8]) -> Head {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut response = Response::new(&mut []);
    match ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    ) {
        Ok(httparse::Status::Complete(len)) => match response.code {
            Some(status) if status >= 100 => Head::Whole {
                len,
                status,
                framing: Framing::of(response.headers),
            },
            _ => Head::Malformed(ParseError::Status),
        },
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_LIMIT => Head::TooLarge,
        Ok(httparse::Status::Partial) => Head::Partial,
        Err(ParseError::TooManyHeaders) => Head::TooLarge,
        Err(error) => Head::Malformed(error),
    }
}

fn over_text(ask: &Ask<'_>, status: u16, body: &Body, wanted: &str) -> String {
    let wanted = quoted(wanted.as_bytes());
    if body.window().is_empty() {
        return format!(
            "HTTP {status} from {} with an empty body; the check expects {wanted} in it",
            ask.peer
        );
    }
    format!(
        "HTTP {status} from {}, but its whole body of {} bytes does not contain {wanted}; it begins with {}",
        ask.peer,
        body.window().len(),
        quoted(body.window())
    )
}

fn malformed(ask: &Ask<'_>, problem: &str, start: &[u8]) -> Finding {
    let text = format!(
        "the answer from {} is not HTTP/1 ({problem}); it begins with {}",
        ask.peer,
        quoted(start)
    );
    fail(ReasonCode::MalformedResponse, text)
}

fn fail(code: ReasonCode, text: String) -> Finding {
    (ProbeResult::Fail, Reason::new(code, text))
}

#[cfg(test)]
mod tests;
