//! HTTP/2 as a probe speaks it (semantics P4, P7, P12): one request, and what its answer is held against.
//!
//! In: an HTTP check and an authority; then the answer's parts from `client`. Out: a finding as soon as there is one: at
//! the end of the headers, or, with `response`, when the first 1,024 bytes of the body have it or cannot have it.
//!
//! ```text
//!  Conversation ─── bytes ──► client ─── head, data, over ──► Answer ──► finding
//!                               │ frame, hpack, huffman          │ expect
//! ```
//!
//! Redirects are never followed, no body is decompressed, trailers are of no interest. gRPC is in `grpc`, over the same
//! client.

pub(super) mod client;
mod frame;
mod hpack;
mod huffman;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Instant;

use self::client::{Client, Exchange};
use super::Finding;
use super::conversation::{self, Step};
use super::expect::{Expect, Sight, fail, look};
use super::http1::USER_AGENT;
use crate::check::{HttpCheck, StatusSet};
use crate::outcome::ReasonCode;

/// What would break an HTTP/2 request that carried it (RFC 9113 §8.2.2); a check's own headers go without.
const CONNECTION_HEADERS: [&str; 2] = ["keep-alive", "proxy-connection"];

/// One HTTP/2 probe, from the open connection to the finding.
#[derive(Debug)]
pub(crate) struct Conversation {
    client: Client,
    answer: Answer,
}

impl Conversation {
    /// The conversation of a check with a peer.
    pub(crate) fn new(check: &HttpCheck, authority: &str, https: bool, peer: SocketAddr) -> Self {
        let headers: Vec<(String, &str)> = check
            .headers()
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
            .filter(|(name, _)| !CONNECTION_HEADERS.contains(&name.as_str()))
            .collect();
        let own = |wanted: &str| headers.iter().any(|(name, _)| name == wanted);
        let pseudo = [
            (":method", check.method().as_str()),
            (":scheme", if https { "https" } else { "http" }),
            (":authority", authority),
            (":path", check.request_path()),
        ];
        let usual = [("user-agent", USER_AGENT), ("accept", "*/*")];
        let fields = pseudo
            .into_iter()
            .chain(usual.into_iter().filter(|(name, _)| !own(name)))
            .chain(headers.iter().map(|(name, value)| (name.as_str(), *value)));
        Self {
            client: Client::new(peer, fields, None),
            answer: Answer {
                statuses: check.expected_statuses().clone(),
                response: check.response().map(Into::into),
                peer,
                status: 0,
                window: Vec::new(),
            },
        }
    }
}

impl conversation::Conversation for Conversation {
    fn send(&mut self, out: &mut Vec<u8>) {
        self.client.send(out);
    }

    fn feed(&mut self, bytes: &[u8], _now: Instant) -> Option<Step> {
        self.client.feed(bytes, &mut self.answer)
    }

    fn end(&mut self) -> Step {
        let answer = &self.answer;
        Step::Done(self.client.end(|| answer.expect().cut_off(answer.status)))
    }

    fn missing(&self) -> Cow<'static, str> {
        let answer = &self.answer;
        self.client
            .missing(|| Expect::missing(answer.status, answer.window.len()))
    }
}

/// The finding when a second connection was refused by GOAWAY too (semantics P14); `missing` is that conversation's.
pub(super) fn refused_again(peer: SocketAddr, missing: &str) -> Finding {
    let text =
        format!("{peer} refused the request by GOAWAY on two connections in a row; {missing}");
    fail(ReasonCode::Http2Goaway, text)
}

/// The answer, as far as it has come.
#[derive(Debug)]
struct Answer {
    statuses: StatusSet,
    response: Option<Box<str>>,
    peer: SocketAddr,
    status: u16,
    window: Vec<u8>,
}

impl Answer {
    fn expect(&self) -> Expect<'_> {
        Expect {
            statuses: &self.statuses,
            response: self.response.as_deref(),
            peer: self.peer,
        }
    }
}

impl Exchange for Answer {
    fn begin(&mut self) {}

    fn field(&mut self, _name: &[u8], _value: &[u8]) {}

    fn head(&mut self, status: u16) -> Option<Finding> {
        self.status = status;
        self.expect().status(status)
    }

    fn data(&mut self, bytes: &[u8]) -> Option<Finding> {
        let wanted = self.response.as_deref().unwrap_or_default();
        match look(&mut self.window, bytes, wanted.as_bytes()) {
            Sight::More => None,
            Sight::Found => Some(Expect::found()),
            Sight::Full => Some(self.expect().full(self.status, &self.window)),
        }
    }

    fn over(&mut self, _by_fields: bool) -> Finding {
        self.expect().over(self.status, &self.window)
    }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod real;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) mod transcript;
