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
use std::sync::Arc;
use std::time::Instant;

use httparse::{Error as ParseError, Header, ParserConfig, Response};

use self::body::{Body, Framing, Progress};
use super::Finding;
use super::conversation::{self, Step};
use super::expect::{Expect, fail};
use super::text::quoted;
use crate::check::{HealthCheck, HttpCheck, Protocol};
use crate::outcome::ReasonCode;

/// The largest head that a probe reads.
const HEAD_LIMIT: usize = 32 * 1024;
/// The most headers in one head.
const MAX_HEADERS: usize = 128;
/// The most interim (1xx) responses before the final one.
const MAX_INTERIM: u8 = 32;
/// As long as no more bytes than this were there, each new one can show that the answer is not HTTP/1.
const STATUS_START: usize = 16;

/// What our requests call themselves, unless the check's own headers say otherwise.
pub(super) const USER_AGENT: &str = concat!("vitals/", env!("CARGO_PKG_VERSION"));

/// Writes the request of a check (semantics P7).
fn write_request(check: &HttpCheck, host: &str, out: &mut Vec<u8>) {
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

/// One request and its answer.
#[derive(Debug)]
pub(super) struct Conversation {
    check: Arc<HealthCheck>,
    host: Arc<str>,
    peer: SocketAddr,
    asked: bool,
    reader: Reader,
}

impl Conversation {
    pub(super) fn new(check: Arc<HealthCheck>, host: Arc<str>, peer: SocketAddr) -> Self {
        Self {
            check,
            host,
            peer,
            asked: false,
            reader: Reader::default(),
        }
    }

    /// The reader, and what it is asked; `None` never happens: an HTTP check begins this conversation.
    fn parts(&mut self) -> Option<(&mut Reader, Ask<'_>)> {
        let peer = self.peer;
        match self.check.protocol() {
            Protocol::Http(check) | Protocol::Http2(check) => {
                Some((&mut self.reader, Ask { check, peer }))
            }
            Protocol::Tcp(_) | Protocol::Grpc(_) => None,
        }
    }
}

impl conversation::Conversation for Conversation {
    fn send(&mut self, out: &mut Vec<u8>) {
        if self.asked {
            return;
        }
        self.asked = true;
        if let Protocol::Http(check) | Protocol::Http2(check) = self.check.protocol() {
            write_request(check, &self.host, out);
        }
    }

    fn feed(&mut self, bytes: &[u8], _now: Instant) -> Option<Step> {
        let (reader, ask) = self.parts()?;
        reader.feed(&ask, bytes).map(Step::Done)
    }

    fn end(&mut self) -> Step {
        Step::Done(match self.parts() {
            Some((reader, ask)) => reader.end(&ask),
            None => fail(ReasonCode::PeerClosed, String::new()),
        })
    }

    fn missing(&self) -> Cow<'static, str> {
        self.reader.missing()
    }
}

/// What is expected, of whom.
#[derive(Clone, Copy, Debug)]
struct Ask<'a> {
    check: &'a HttpCheck,
    peer: SocketAddr,
}

impl Ask<'_> {
    fn expect(&self) -> Expect<'_> {
        Expect {
            statuses: self.check.expected_statuses(),
            response: self.check.response(),
            peer: self.peer,
        }
    }
}

/// Reads one answer.
#[derive(Debug, Default)]
struct Reader {
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
    fn feed(&mut self, ask: &Ask<'_>, bytes: &[u8]) -> Option<Finding> {
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
        let (status, expect) = (*status, ask.expect());
        let wanted = ask.check.response().unwrap_or_default();
        match body.feed(rest, wanted.as_bytes()) {
            Progress::More => None,
            Progress::Found => Some(Expect::found()),
            Progress::Full => Some(expect.full(status, body.window())),
            Progress::Over => Some(expect.over(status, body.window())),
            Progress::Bad(problem) => Some(malformed(ask, problem, body.window())),
        }
    }

    /// The peer has closed its side.
    fn end(&self, ask: &Ask<'_>) -> Finding {
        if let Some((status, body)) = &self.body {
            return if body.ends_with_the_connection() {
                ask.expect().over(*status, body.window())
            } else {
                ask.expect().cut_off(*status)
            };
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
    fn missing(&self) -> Cow<'static, str> {
        match &self.body {
            Some((status, body)) => Expect::missing(*status, body.window().len()),
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
        if let Some(finding) = ask.expect().status(status) {
            return Some(finding);
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

fn malformed(ask: &Ask<'_>, problem: &str, start: &[u8]) -> Finding {
    if matches!(start, [0x15 | 0x16, 3, ..]) {
        let text = format!(
            "{} speaks TLS where the check expects HTTP without it; its answer begins with {}; a port with TLS is \
             checked by type HTTPS",
            ask.peer,
            quoted(start)
        );
        return fail(ReasonCode::MalformedResponse, text);
    }
    let text = format!(
        "the answer from {} is not HTTP/1 ({problem}); it begins with {}",
        ask.peer,
        quoted(start)
    );
    fail(ReasonCode::MalformedResponse, text)
}

#[cfg(test)]
mod tests;
