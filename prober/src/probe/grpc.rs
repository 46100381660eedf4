//! gRPC as a probe speaks it (semantics P12, P13; gRPC over HTTP/2): one unary call, judged by its health answer or by its
//! status code.
//!
//! In: a gRPC check, an authority and the timeout; then the answer's parts from `http2::client`. Out: a finding:
//!
//! ```text
//!   HEAD ── HTTP 200, application/grpc ──► MESSAGE ── health: SERVING ──► TRAILERS ── status 0 ─────────────► pass
//!    │ │                                     │ NOT_SERVING, a second one,    │ another status, none, garbage
//!    │ └ ends the stream: trailers-only      ▼ compressed, too long          ▼
//!    ▼ another status or content           fail                            fail
//!   fail
//!          by code: messages are passed over; the status must be in the set ─► pass
//! ```
//!
//! A code counts only where the peer sent it as `grpc-status`: what a client library would make up (UNIMPLEMENTED for an
//! HTTP 404, UNAVAILABLE for a reset) says nothing about a gRPC server being there.
//!
//! Not here: decompression. We ask for none (`grpc-accept-encoding: identity`), and what comes compressed all the same
//! fails with a text that says so.

mod message;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::message::{Health, Messages, Progress};
use super::Finding;
use super::conversation::{self, Step};
use super::expect::fail;
use super::http2::client::{Client, Exchange};
use super::text::quoted;
use crate::check::grpc::{CodeSet, GrpcAsk, GrpcCheck};
use crate::outcome::{ProbeResult, Reason, ReasonCode};

/// What our calls call themselves; gRPC's own pattern asks for the first five letters.
const USER_AGENT: &str = concat!("grpc-vitals/", env!("CARGO_PKG_VERSION"));
/// Method of the health service (semantics P12).
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// The most of a field's value that is kept, to be shown.
const KEPT: usize = 256;

/// One gRPC probe, from the open connection to the finding.
#[derive(Debug)]
pub(crate) struct Conversation {
    client: Client,
    call: Call,
}

impl Conversation {
    /// The conversation of a check with a peer that has so much time.
    pub(crate) fn new(
        check: &GrpcCheck,
        authority: &str,
        https: bool,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Self {
        let (path, service, codes) = match check.ask() {
            GrpcAsk::Health { service } => (HEALTH, service.as_deref(), None),
            GrpcAsk::Code { method, expected } => (method.as_str(), None, Some(*expected)),
        };
        let timeout = grpc_timeout(timeout);
        let fields = [
            (":method", "POST"),
            (":scheme", if https { "https" } else { "http" }),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", USER_AGENT),
            ("grpc-accept-encoding", "identity"),
            ("grpc-timeout", &timeout),
        ];
        Self {
            client: Client::new(peer, fields, Some(&message::request(service))),
            call: Call {
                peer,
                codes,
                messages: Messages::new(codes.is_none()),
                serving: false,
                fields: Fields::default(),
            },
        }
    }
}

impl conversation::Conversation for Conversation {
    fn send(&mut self, out: &mut Vec<u8>) {
        self.client.send(out);
    }

    fn feed(&mut self, bytes: &[u8], _now: Instant) -> Option<Step> {
        self.client.feed(bytes, &mut self.call)
    }

    fn end(&mut self) -> Step {
        let peer = self.call.peer;
        Step::Done(self.client.end(|| {
            let text = format!(
                "{peer} closed the connection in the middle of the call, before its grpc-status"
            );
            fail(ReasonCode::PeerClosed, text)
        }))
    }

    fn missing(&self) -> Cow<'static, str> {
        self.client.missing(|| {
            if self.call.codes.is_some() || self.call.serving {
                "sent no grpc-status".into()
            } else {
                "sent no whole health answer".into()
            }
        })
    }
}

/// At most eight digits and a unit; milliseconds reach 27 hours.
fn grpc_timeout(timeout: Duration) -> String {
    format!("{}m", timeout.as_millis().clamp(1, 99_999_999))
}

/// The call, as far as its answer has come.
#[derive(Debug)]
struct Call {
    peer: SocketAddr,
    /// The codes that pass; `None`: the health answer decides.
    codes: Option<CodeSet>,
    messages: Messages,
    /// The health answer is there, and it is SERVING.
    serving: bool,
    fields: Fields,
}

/// The fields of one block that a call looks at.
#[derive(Debug, Default)]
struct Fields {
    content_type: Option<Box<[u8]>>,
    encoding: Option<Box<[u8]>>,
    status: Option<Box<[u8]>>,
    message: Option<Box<[u8]>>,
}

impl Exchange for Call {
    fn begin(&mut self) {
        // The encoding stands in the head and counts for the messages behind it.
        let encoding = self.fields.encoding.take();
        self.fields = Fields {
            encoding,
            ..Fields::default()
        };
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let fields = &mut self.fields;
        let place = match name {
            b"content-type" => &mut fields.content_type,
            b"grpc-encoding" => &mut fields.encoding,
            b"grpc-status" => &mut fields.status,
            b"grpc-message" => &mut fields.message,
            _ => return,
        };
        *place = Some(value.get(..KEPT).unwrap_or(value).into());
    }

    fn head(&mut self, status: u16) -> Option<Finding> {
        let peer = self.peer;
        if status != 200 {
            let text = format!(
                "HTTP {status} from {peer} instead of a gRPC answer, which always comes with HTTP 200; is it a gRPC server?"
            );
            return Some(fail(ReasonCode::StatusMismatch, text));
        }
        let content_type = self.fields.content_type.as_deref();
        if !content_type.is_some_and(is_grpc) {
            let got = content_type.map_or_else(
                || "no content-type".to_owned(),
                |got| format!("content-type {}", quoted(got)),
            );
            return Some(self.malformed(&format!("{got} where application/grpc is due")));
        }
        None
    }

    fn data(&mut self, bytes: &[u8]) -> Option<Finding> {
        let mut rest = bytes;
        loop {
            let problem = match self.messages.next(&mut rest) {
                Progress::More => return None,
                Progress::Compressed if self.plain_encoding() => {
                    self.messages.take_as_it_is();
                    continue;
                }
                Progress::Compressed => match self.fields.encoding.as_deref() {
                    Some(encoding) => format!(
                        "a message compressed with {}, although the probe accepts identity only",
                        quoted(encoding)
                    ),
                    None => "a message that is compressed, it does not say how".to_owned(),
                },
                Progress::TooLong(len) => {
                    format!("a message of {len} bytes, longer than a probe reads")
                }
                Progress::BadFlag(flag) => {
                    format!("a message with the compression flag {flag}, which is neither 0 nor 1")
                }
                Progress::Message(_) if self.codes.is_some() => continue,
                Progress::Message(_) if self.serving => {
                    "a second message, where a health check has one answer".to_owned()
                }
                Progress::Message(Health::Serving) => {
                    self.serving = true;
                    continue;
                }
                Progress::Message(Health::Broken) => {
                    "a message that is no HealthCheckResponse".to_owned()
                }
                Progress::Message(health) => {
                    let text = format!(
                        "{} answers that its status is {health}; the check expects SERVING",
                        self.peer
                    );
                    return Some(fail(ReasonCode::NotServing, text));
                }
            };
            return Some(self.malformed(&problem));
        }
    }

    fn over(&mut self, by_fields: bool) -> Finding {
        let status = if by_fields {
            self.fields.status.as_deref()
        } else {
            None
        };
        let Some(status) = status else {
            return self.malformed("it ended without a grpc-status");
        };
        let Some(code) = parse_status(status) else {
            return self.malformed(&format!("its grpc-status is {}", quoted(status)));
        };
        if self.codes.is_none() && code != 0 {
            return self.wrong_code(code, "OK");
        }
        if let Some(codes) = self.codes
            && !codes.contains(code)
        {
            return self.wrong_code(code, &codes.to_string());
        }
        if self.messages.within() {
            return self.malformed("it ended in the middle of a message");
        }
        if let Some(codes) = self.codes {
            let text = format!(
                "the call ended with {}, as the check expects ({codes})",
                named(code)
            );
            return (ProbeResult::Pass, Reason::new(ReasonCode::ResponseOk, text));
        }
        if !self.serving {
            return self.malformed("the call ended with OK, but without a health answer");
        }
        let text = "the health service answers SERVING";
        (ProbeResult::Pass, Reason::new(ReasonCode::ResponseOk, text))
    }
}

impl Call {
    fn plain_encoding(&self) -> bool {
        self.fields.encoding.as_deref() == Some(b"identity")
    }

    fn wrong_code(&self, code: u32, expected: &str) -> Finding {
        let told = self
            .fields
            .message
            .as_deref()
            .filter(|message| !message.is_empty())
            .map_or_else(String::new, |message| format!(", {}", quoted(message)));
        let hint = match code {
            5 if self.codes.is_none() => "; it does not know the service that is asked for",
            12 if self.codes.is_none() => "; it has no grpc.health.v1.Health",
            _ => "",
        };
        let text = format!(
            "the call to {} ended with {}{told}{hint}; the check expects {expected}",
            self.peer,
            named(code)
        );
        fail(ReasonCode::GrpcStatus, text)
    }

    fn malformed(&self, problem: &str) -> Finding {
        let text = format!("the gRPC answer from {} is malformed: {problem}", self.peer);
        fail(ReasonCode::MalformedResponse, text)
    }
}

/// `application/grpc`, with a format or parameters behind it.
fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    content_type
        .split_at_checked(GRPC.len())
        .is_some_and(|(start, rest)| {
            start.eq_ignore_ascii_case(GRPC) && matches!(rest, [] | [b'+' | b';' | b' ', ..])
        })
}

/// A decimal number; more digits than ten are no code.
fn parse_status(value: &[u8]) -> Option<u32> {
    if value.is_empty() || value.len() > 10 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A status code with its name.
fn named(code: u32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    match NAMES.get(code as usize) {
        Some(name) => format!("gRPC status {code} ({name})"),
        None => format!("gRPC status {code}"),
    }
}

#[cfg(test)]
mod tests;
