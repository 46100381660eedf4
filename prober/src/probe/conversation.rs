//! What is said over a connection once it is ready, plaintext or TLS: sans-IO, one implementation per protocol.
//!
//! In: the peer's bytes, its FIN, time. Out: bytes to send, and a [`Step`] as soon as there is one.
//!
//! ```text
//! ready ─► send ─► (all is on its way) sent ─┐
//!            ▲                               ▼
//!            └───────── feed ◄──────── bytes, FIN ► end
//! ```
//!
//! Not here: sockets, the deadline, TLS (`probe`), which conversation a check means (`begin` picks it, no more).

use std::borrow::Cow;
use std::time::Instant;

use super::{Finding, grpc, http1, http2, tcp};
use crate::check::Protocol;
use crate::target::Target;

/// What a conversation wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The verdict.
    Done(Finding),
    /// GOAWAY below our stream: once more on a fresh connection within the same deadline (semantics P14).
    Retry,
}

/// One side of a protocol: ours.
pub(crate) trait Conversation: std::fmt::Debug {
    /// Appends what is to be sent now; called once when the transport is ready and after every `feed`.
    fn send(&mut self, out: &mut Vec<u8>);

    /// All that `send` gave is on its way. For conversations that want no answer.
    fn sent(&mut self) -> Option<Step> {
        None
    }

    /// Takes bytes from the peer.
    fn feed(&mut self, bytes: &[u8], now: Instant) -> Option<Step>;

    /// The peer has closed its side.
    fn end(&mut self) -> Step;

    /// When silence up to then, or the peer's leaving in any way, makes a pass (semantics P8).
    fn quiet_until(&self) -> Option<Instant> {
        None
    }

    /// What has not come yet, for the text of a timeout ("no complete response head came").
    fn missing(&self) -> Cow<'static, str>;
}

/// The conversation that a target's check asks for; `None` when it asks for a connection only (semantics P9).
pub(super) fn begin(target: &Target) -> Option<Box<dyn Conversation + Send>> {
    let (check, peer) = (&target.check, target.address);
    let (host, tls) = (&target.names.host, check.is_tls());
    Some(match check.protocol() {
        Protocol::Tcp(tcp) if tcp.request().is_none() && tcp.response().is_none() => return None,
        Protocol::Tcp(_) => Box::new(tcp::Conversation::new(check.clone(), peer)),
        Protocol::Http(_) => Box::new(http1::Conversation::new(check.clone(), host.clone(), peer)),
        Protocol::Http2(http) => Box::new(http2::Conversation::new(http, host, tls, peer)),
        Protocol::Grpc(grpc) => Box::new(grpc::Conversation::new(
            grpc,
            host,
            tls,
            peer,
            check.timeout(),
        )),
    })
}
