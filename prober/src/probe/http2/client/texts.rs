//! What a client says of a peer that does not keep to HTTP/2: findings with a sentence for people.
//!
//! In: what came. Out: a finding or a step. What an answer means in HTTP or gRPC is told by those.

use super::super::frame::Code;
use super::super::hpack;
use super::fields::BLOCK_LIMIT;
use super::{Client, Finding, Step, fail, quoted};
use crate::outcome::ReasonCode;

impl Client {
    /// The first bytes are not HTTP/2.
    pub(super) fn foreign(&self, start: &[u8]) -> Finding {
        let peer = self.peer;
        let begins = quoted(start);
        let text = if start.starts_with(b"HTTP/") {
            format!(
                "{peer} speaks HTTP/1 where the check expects HTTP/2; its answer begins with {begins}"
            )
        } else if matches!(start, [0x15 | 0x16, 3, ..]) {
            format!(
                "{peer} speaks TLS where the check expects HTTP/2 without it; its answer begins with {begins}; a port \
                 with TLS is checked by type GRPC_WITH_TLS"
            )
        } else {
            format!("the answer from {peer} is not HTTP/2; it begins with {begins}")
        };
        fail(ReasonCode::MalformedResponse, text)
    }

    pub(super) fn broken(&self, code: Code, what: &str) -> Step {
        let text = format!("{} broke the HTTP/2 protocol ({code}): {what}", self.peer);
        Step::Done(fail(ReasonCode::Http2Error, text))
    }

    pub(super) fn malformed(&self, problem: &str) -> Step {
        let text = format!(
            "the HTTP/2 answer from {} is malformed: {problem}",
            self.peer
        );
        Step::Done(fail(ReasonCode::MalformedResponse, text))
    }

    pub(super) fn too_large(&self) -> Step {
        let text = format!(
            "the headers from {} are larger than a probe reads ({} headers, {} KiB)",
            self.peer,
            hpack::MAX_FIELDS,
            BLOCK_LIMIT / 1024
        );
        Step::Done(fail(ReasonCode::HeadersTooLarge, text))
    }
}
