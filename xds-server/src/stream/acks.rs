//! What a client has said to what it was sent, for one type: the nonces under way, the last ACK, the last NACK.
//!
//! In: nonces sent and nonces answered. Out: whether an answer is current, and the row of `/v1/clients`. It decides
//! nothing about what is sent: that goes by what *was* sent (`subscription`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::google::rpc::Status;

/// Responses without an answer that are remembered; a client that never answers must cost no memory.
const MAX_OUTSTANDING: usize = 64;

/// How much of a client's error message is kept, in bytes.
const MAX_MESSAGE: usize = 2048;

/// A client has refused a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The version that it refused. With SotW an Envoy may name a later one than the one at fault.
    pub version: Arc<str>,
    /// What the client says, bounded.
    pub message: String,
    /// The resources that it is about, as far as its text says; a few, in the text's order.
    pub resources: Vec<Arc<str>>,
    /// When it came.
    pub at: SystemTime,
}

/// Where one type of one stream stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionStatus {
    /// What it subscribes to.
    pub interest: Interest,
    /// The version of the last response.
    pub sent_version: Option<Arc<str>>,
    /// The version of the last response that the client took.
    pub acked_version: Option<Arc<str>>,
    /// Responses that the client has not answered yet; heartbeats, which tell it nothing new, do not count.
    pub unanswered: usize,
    /// The last refusal, while the client still lacks what it refused.
    pub nack: Option<Nack>,
}

/// What a client subscribes to, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The first names, at most [`SHOWN_NAMES`]; `*`, which comes first, stands for all.
    pub names: Arc<[Arc<str>]>,
    /// How many there are in all.
    pub count: usize,
}

/// How many of the names that a client subscribes to are shown.
pub const SHOWN_NAMES: usize = 100;

/// A response that waits for an answer.
#[derive(Debug)]
struct Sent {
    nonce: u64,
    version: Arc<str>,
    /// It only renews leases.
    is_heartbeat: bool,
}

#[derive(Debug, Default)]
pub(super) struct Acks {
    outstanding: VecDeque<Sent>,
    last_nonce: u64,
    sent_version: Option<Arc<str>>,
    acked_version: Option<Arc<str>>,
    /// With the nonce of the response that was refused.
    nack: Option<(u64, Nack)>,
}

impl Acks {
    pub(super) fn sent(&mut self, nonce: u64, version: Arc<str>) {
        if self.outstanding.len() == MAX_OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Sent {
            nonce,
            version: Arc::clone(&version),
            is_heartbeat: false,
        });
        self.last_nonce = nonce;
        self.sent_version = Some(version);
    }

    /// What was sent last is a heartbeat: nobody need wait for its answer.
    pub(super) fn was_heartbeat(&mut self) {
        if let Some(last) = self.outstanding.back_mut() {
            last.is_heartbeat = true;
        }
    }

    pub(super) fn nothing_sent(&self) -> bool {
        self.last_nonce == 0
    }

    /// How many responses wait for an answer, heartbeats too.
    pub(super) fn unanswered(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether this response, or one before it, waits for an answer.
    pub(super) fn waits_for(&self, nonce: u64) -> bool {
        (self.outstanding.front()).is_some_and(|first| first.nonce <= nonce)
    }

    pub(super) fn is_last(&self, nonce: &str) -> bool {
        parse_nonce(nonce) == Some(self.last_nonce)
    }

    /// Takes the answer to a response: `None` when the nonce is none that waits for one, else the NACK, if it is one.
    /// Responses before it count as answered too: a client answers in order. `blamed`: the resources that a refusal of
    /// that nonce with that text is about. `stands`: whether the client still lacks what it refused of the response of
    /// that nonce.
    pub(super) fn answer(
        &mut self,
        nonce: &str,
        error: Option<Status>,
        now: SystemTime,
        blamed: impl Fn(u64, &str) -> Vec<Arc<str>>,
        stands: impl Fn(u64, &[Arc<str>]) -> bool,
    ) -> Option<Option<Nack>> {
        let nonce = parse_nonce(nonce)?;
        let place = self
            .outstanding
            .iter()
            .position(|sent| sent.nonce == nonce)?;
        let Sent { version, .. } = self.outstanding.drain(..=place).next_back()?;
        let Some(error) = error else {
            self.acked_version = Some(version);
            let nack = self.nack.take();
            self.nack = nack.filter(|(refused, nack)| stands(*refused, &nack.resources));
            return Some(None);
        };
        let mut message = error.message;
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let nack = Nack {
            version,
            resources: blamed(nonce, &message),
            message,
            at: now,
        };
        self.nack = Some((nonce, nack.clone()));
        Some(Some(nack))
    }

    pub(super) fn status(&self, interest: Interest) -> SubscriptionStatus {
        SubscriptionStatus {
            interest,
            sent_version: self.sent_version.clone(),
            acked_version: self.acked_version.clone(),
            unanswered: (self.outstanding.iter())
                .filter(|sent| !sent.is_heartbeat)
                .count(),
            nack: self.nack.as_ref().map(|(_, nack)| nack.clone()),
        }
    }
}

/// The number of a nonce in our own form.
pub(super) fn parse_nonce(nonce: &str) -> Option<u64> {
    // Only the form that we send: "+1" and "01" are foreign.
    nonce
        .parse::<u64>()
        .ok()
        .filter(|number| *number > 0 && number.to_string() == nonce)
}
