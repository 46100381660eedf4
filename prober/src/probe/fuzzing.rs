//! Entry points for fuzz/: a peer's bytes into each reader, cut at places that the input itself names.
//!
//! In: arbitrary bytes. Out: nothing, or a panic where a reader panics or goes on for ever about a piece.
//!
//! Not part of the crate's interface: behind the feature `fuzzing`.

use std::sync::Arc;
use std::time::Duration;

use super::Finding;
use super::conversation::{Conversation, Step};
use super::tls::{Configs, Layer};
use super::{grpc, http1, http2};
use crate::check::grpc::{GrpcCheck, GrpcSpec};
use crate::check::{HealthCheck, HealthCheckSpec, HttpCheck, HttpSpec, Kind, Protocol};
use crate::clock;
use crate::outcome::ProbeResult;
use crate::tally::Tally;
use crate::target::{Names, Pulse, StateKey, Target};

const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 80);
/// The most that a conversation may want to send to a peer that sends it this.
const MAX_SENT: usize = 64 * 1024;

fn check(response: bool) -> Option<HealthCheck> {
    let spec = HealthCheckSpec::http(HttpSpec {
        response: response.then(|| "OK".into()),
        ..HttpSpec::default()
    });
    HealthCheck::new(spec).ok()
}

fn http(response: bool) -> Option<HttpCheck> {
    match check(response)?.protocol() {
        Protocol::Http(http) => Some(http.clone()),
        _ => None,
    }
}

/// The first byte says how (`response` or not, in pieces of which size), the rest is the answer.
fn cut(input: &[u8]) -> Option<(bool, impl Iterator<Item = &[u8]>)> {
    let (&how, answer) = input.split_first()?;
    Some((how & 1 == 1, answer.chunks(usize::from(how >> 1) + 1)))
}

/// An HTTP/1 probe.
pub fn http1_response(input: &[u8]) {
    if let Some((response, pieces)) = cut(input)
        && let Some(check) = check(response)
    {
        let conversation = http1::Conversation::new(Arc::new(check), "a".into(), PEER.into());
        converse(conversation, pieces);
    }
}

fn converse<'a>(mut conversation: impl Conversation, pieces: impl Iterator<Item = &'a [u8]>) {
    let (mut out, now) = (Vec::new(), clock::now());
    conversation.send(&mut out);
    for piece in pieces {
        if let Some(step) = conversation.feed(piece, now) {
            return judged(step, &conversation.missing());
        }
        conversation.send(&mut out);
        assert!(out.len() < MAX_SENT, "it answers without end");
    }
    let _text = conversation.missing();
    judged(conversation.end(), "");
}

fn judged(step: Step, missing: &str) {
    let (result, reason) = match step {
        Step::Done(finding) => finding,
        Step::Retry => http2::refused_again(PEER.into(), missing),
    };
    assert_ne!(result, ProbeResult::Inconclusive, "{reason}");
}

/// An HTTP/2 probe.
pub fn http2_response(input: &[u8]) {
    if let Some((response, pieces)) = cut(input)
        && let Some(check) = http(response)
    {
        let peer = PEER.into();
        converse(http2::Conversation::new(&check, "a", true, peer), pieces);
    }
}

/// A gRPC probe.
pub fn grpc_response(input: &[u8]) {
    if let Some((tencent, pieces)) = cut(input)
        && let Ok(check) = GrpcCheck::alone(GrpcSpec::default(), tencent)
    {
        let (peer, timeout) = (PEER.into(), Duration::from_secs(1));
        converse(
            grpc::Conversation::new(&check, "a", false, peer, timeout),
            pieces,
        );
    }
}

/// The handshake of an HTTPS or HTTP2 probe with a server that has no key.
pub fn tls_records(input: &[u8]) {
    if let Some((h2, pieces)) = cut(input)
        && let Some(target) = target(if h2 { Kind::Http2 } else { Kind::Https })
        && let Ok(mut layer) = Layer::open(&target, &Arc::default(), &Configs::default())
    {
        let (result, reason) = handshake(&mut layer, pieces);
        assert_eq!(result, ProbeResult::Fail, "{reason}");
    }
}

fn target(kind: Kind) -> Option<Target> {
    let check = Arc::new(HealthCheck::new(HealthCheckSpec::of(kind)).ok()?);
    let address = PEER.into();
    let names = Names::new(&check, None, address);
    Some(Target {
        key: StateKey::new(address, &names, &check),
        address,
        names,
        check,
        seed: Tally::new(),
        pulse: Arc::new(Pulse::default()),
    })
}

fn handshake<'a>(layer: &mut Layer, pieces: impl Iterator<Item = &'a [u8]>) -> Finding {
    let mut out = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            let before = piece.len();
            if let Err(finding) = layer.take(&mut piece) {
                return finding;
            }
            assert!(piece.len() < before, "it goes on for ever about a piece");
            assert!(layer.wire(&mut out).is_ok(), "memory takes all");
            assert!(out.len() < MAX_SENT, "it answers without end");
        }
    }
    assert!(layer.is_handshaking(), "a handshake without a key");
    layer.closed()
}
