//! What a client wants of one type, and what it has.
//!
//! In: names subscribed and given up, answers to responses. Out: [`Batch`]es of what is missing (`difference`).
//!
//! Wildcard in its forms (xDS protocol, "how the client specifies what resources to return"): `*`; and the legacy form,
//! a first request without names, for Cluster and Listener. In SotW the legacy wildcard ends with the first request that
//! has names, and an empty list after that means nothing; in delta it stays until `*` is unsubscribed.

mod difference;
mod renewal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::google::rpc::Status;

pub(super) use self::difference::{Batch, Lack};
use self::renewal::Renewal;
use super::acks::{Acks, Interest, Nack, SHOWN_NAMES};
use super::{MAX_NAME_BYTES, MAX_NAMES, MAX_UNANSWERED, Refusal, blame};
use crate::snapshot::log::Cursor;
use crate::snapshot::{Resource, ResourceType};

const WILDCARD: &str = "*";

/// What a client has of one resource, as far as we know, and since which response. Versions are kept as numbers, and not
/// with what they are of: a client that falls silent must not keep old resources in memory. There is one of these for each
/// resource of each stream, so it is small.
#[derive(Debug)]
enum Known {
    /// It said so when it connected (`initial_resource_versions`); `None` is a version that is none of ours.
    Claimed(Option<NonZeroU64>),
    /// We sent it on this stream.
    Sent(u64, Since),
    /// We sent it on this stream in a whole set, in which it may have to stand again when it is gone from the snapshot.
    InWholeSet(Arc<Resource>, Since),
    /// We sent an empty load assignment, because there is none.
    StandIn(Since),
    /// We said that it does not exist.
    Absent,
}

/// The response of a nonce, by the nonce's lower half: enough to find it among those that are not answered yet, and to
/// tell the order of any that are not two thousand million responses apart (RFC 1982).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Since(u32);

impl Since {
    fn nonce(nonce: u64) -> Self {
        let [a, b, c, d, ..] = nonce.to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }

    /// Whether it is this response or an earlier one.
    fn is_by(self, other: Self) -> bool {
        other.0.wrapping_sub(self.0) <= u32::MAX / 2
    }
}

impl Known {
    /// Whether the client has the real resource, in whatever version.
    fn is_real(&self) -> bool {
        match self {
            Self::Claimed(_) | Self::Sent(..) | Self::InWholeSet(..) => true,
            Self::StandIn(_) | Self::Absent => false,
        }
    }

    /// Whether the client has just this.
    fn is(&self, resource: &Resource) -> bool {
        match self {
            Self::Claimed(digest) => digest.is_some_and(|digest| digest.get() == resource.digest()),
            Self::Sent(digest, _) => *digest == resource.digest(),
            Self::InWholeSet(sent, _) => sent.digest() == resource.digest(),
            Self::StandIn(_) | Self::Absent => false,
        }
    }

    fn since(&self) -> Option<Since> {
        match self {
            Self::Sent(_, since) | Self::InWholeSet(_, since) | Self::StandIn(since) => {
                Some(*since)
            }
            Self::Claimed(_) | Self::Absent => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Subscription {
    kind: ResourceType,
    wildcard: bool,
    /// SotW: no request has had names yet, so that an empty list still means all.
    legacy: bool,
    names: BTreeSet<Arc<str>>,
    name_bytes: usize,
    known: BTreeMap<Arc<str>, Known>,
    /// To be sent whatever the client has: it asked by name, or the cluster has changed.
    again: BTreeSet<Arc<str>>,
    /// Delta: what a client had when it gave it up, by name or with the wildcard, and what nothing was said of since. Some of
    /// it may still have been on its way, so if the wildcard comes back each is sent again, or said to be removed.
    dropped: BTreeSet<Arc<str>>,
    /// A request waits for a response even if that is empty.
    answer_due: bool,
    /// What is subscribed to as it is shown, until it changes.
    shown: Option<Interest>,
    /// Up to where the changes of the snapshots are in `unsettled`; `None`: anything may differ.
    cursor: Option<Cursor>,
    /// The names of which the client may have something else than the snapshot at the cursor says. All other names are
    /// settled, and cost nothing at the next change.
    unsettled: BTreeSet<Arc<str>>,
    /// Whether `known` has grown name by name, which leaves half of its memory empty.
    sprawls: bool,
    /// Heartbeats that are still to be sent.
    renewal: Option<Renewal>,
    /// Where the last response was cut, because it was large: the next begins after it.
    cut: Option<Arc<str>>,
    acks: Acks,
}

impl Subscription {
    pub(super) fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            wildcard: false,
            legacy: kind.is_whole_set(),
            names: BTreeSet::new(),
            name_bytes: 0,
            known: BTreeMap::new(),
            again: BTreeSet::new(),
            dropped: BTreeSet::new(),
            answer_due: false,
            cursor: None,
            unsettled: BTreeSet::new(),
            sprawls: false,
            shown: None,
            renewal: None,
            cut: None,
            acks: Acks::default(),
        }
    }

    pub(super) fn acks(&self) -> &Acks {
        &self.acks
    }

    pub(super) fn acks_mut(&mut self) -> &mut Acks {
        &mut self.acks
    }

    /// Whether so much is unanswered that nothing more is sent.
    pub(super) fn must_answer_first(&self) -> bool {
        self.kind != ResourceType::Cluster && self.acks.unanswered() >= MAX_UNANSWERED
    }

    /// Takes the answer to a response; see [`Acks::answer`]. A refusal stands until everything that was refused was sent
    /// anew, removed or given up: an ACK of something else does not mend it.
    pub(super) fn answer(
        &mut self,
        nonce: &str,
        error: Option<Status>,
        now: SystemTime,
    ) -> Option<Option<Nack>> {
        let known = &self.known;
        let since_of = |name: &Arc<str>| known.get(name).and_then(Known::since);
        let blamed = |nonce: u64, message: &str| {
            let name_of = |name: &str| known.get_key_value(name).map(|(name, _)| Arc::clone(name));
            let named = blame::blamed(message, name_of);
            if !named.is_empty() {
                return named;
            }
            // A text that names nothing is about the one resource of the response, if it had one.
            let mut refused = known
                .iter()
                .filter(|(_, of)| of.since() == Some(Since::nonce(nonce)));
            match (refused.next(), refused.next()) {
                (Some((name, _)), None) => vec![Arc::clone(name)],
                _ => Vec::new(),
            }
        };
        // What a text names may have been sent before the response that it answers.
        let stands = |refused: u64, named: &[Arc<str>]| match named {
            [] => known
                .values()
                .any(|known| known.since() == Some(Since::nonce(refused))),
            named => named
                .iter()
                .filter_map(since_of)
                .any(|sent| sent.is_by(Since::nonce(refused))),
        };
        self.acks.answer(nonce, error, now, blamed, stands)
    }

    /// What is subscribed to, for people. Made anew only when it has changed: it is asked for at every response.
    pub(super) fn interest(&mut self) -> Interest {
        let (wildcard, names) = (self.wildcard, &self.names);
        let shown = self.shown.get_or_insert_with(|| {
            let all = wildcard.then(|| WILDCARD.into());
            let all = all.into_iter().chain(names.iter().cloned());
            Interest {
                names: all.take(SHOWN_NAMES).collect(),
                count: names.len() + usize::from(wildcard),
            }
        });
        shown.clone()
    }

    /// SotW: the request's names are the whole subscription. Says whether anything was added or given up.
    pub(super) fn set_names(&mut self, names: Vec<String>) -> Result<bool, Refusal> {
        self.legacy &= names.is_empty();
        let first = self.acks.nothing_sent() && !self.answer_due;
        let wildcard = self.legacy || names.iter().any(|name| name == WILDCARD);
        // Envoy unsubscribes from the last name with an empty list; some clients send one empty name.
        let wanted: BTreeSet<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| *name != WILDCARD && !name.is_empty())
            .collect();
        let same = wildcard == self.wildcard
            && wanted.len() == self.names.len()
            && wanted
                .iter()
                .zip(&self.names)
                .all(|(new, old)| **new == **old);
        // An ACK, as most requests are, says them all again.
        if same && !first {
            return Ok(false);
        }
        let bytes = wanted.iter().map(|name| name.len()).sum();
        check_limits(wanted.len(), bytes)?;
        let given_up =
            self.names.iter().any(|name| !wanted.contains(&**name)) || (self.wildcard && !wildcard);
        let mut added = wildcard && !self.wildcard;
        if added {
            self.cursor = None;
        }
        let mut new = BTreeSet::new();
        for name in wanted {
            new.insert(self.names.take(name).unwrap_or_else(|| {
                added = true;
                let name: Arc<str> = name.into();
                self.unsettled.insert(Arc::clone(&name));
                name
            }));
        }
        (self.names, self.name_bytes, self.wildcard) = (new, bytes, wildcard);
        self.shown = None;
        if given_up {
            self.forget_unwanted();
        }
        self.answer_due |= added || first;
        Ok(added || given_up || first)
    }

    /// Delta: the first request of this type on the stream.
    pub(super) fn begin_delta(
        &mut self,
        subscribe: Vec<String>,
        has: HashMap<String, String>,
    ) -> Result<(), Refusal> {
        self.wildcard = self.legacy && subscribe.is_empty();
        self.subscribe(subscribe)?;
        // A client that has nothing waits to hear that there is nothing (xds.md G16); one that has all is left in peace.
        self.answer_due = self.wildcard && has.is_empty();
        for (name, version) in has {
            let name = Arc::from(name);
            if self.wants(&name) {
                // It has it: no need to answer the subscription, unless the version proves old (xds.md G17).
                self.again.remove(&name);
                let digest = Resource::digest_of(&version).and_then(NonZeroU64::new);
                self.known.insert(name, Known::Claimed(digest));
            }
        }
        Ok(())
    }

    /// Delta: every name asked for is answered, also one that the client has (DeltaDiscoveryRequest,
    /// `resource_names_subscribe`).
    pub(super) fn subscribe(&mut self, names: Vec<String>) -> Result<(), Refusal> {
        if !names.is_empty() {
            self.shown = None;
        }
        for name in names {
            if name == WILDCARD {
                if !self.wildcard {
                    self.cursor = None;
                }
                self.wildcard = true;
                self.answer_due = true;
                self.again.extend(self.dropped.iter().cloned());
                continue;
            }
            let name: Arc<str> = name.into();
            if self.names.insert(Arc::clone(&name)) {
                self.name_bytes += name.len();
                check_limits(self.names.len(), self.name_bytes)?;
            }
            self.again.insert(name);
        }
        Ok(())
    }

    /// Delta: gives names up. A name that the wildcard still covers is sent again, or said to be removed: the client has
    /// dropped what it had (xds.md G10).
    pub(super) fn unsubscribe(&mut self, names: &[String]) {
        if !names.is_empty() {
            self.shown = None;
        }
        for name in names {
            if name == WILDCARD {
                self.wildcard = false;
                self.answer_due = false;
                // What is to be sent again only because it was given up before, it may have as well.
                self.dropped.extend(
                    (self.known.keys().chain(&self.again))
                        .filter(|name| !self.names.contains(*name))
                        .cloned(),
                );
                self.forget_unwanted();
            } else if let Some(name) = self.names.take(name.as_str()) {
                self.name_bytes -= name.len();
                self.again.remove(&name);
                // Only what it was told of before: a client cannot make us remember names of its invention.
                match self.known.remove(&name) {
                    Some(_) if self.wildcard => drop(self.again.insert(name)),
                    // Given up before, and nothing was said of it since.
                    None if self.wildcard && self.dropped.contains(&name) => {
                        self.again.insert(name);
                    }
                    // The response may still be on its way, as with a wildcard that is given up.
                    Some(known) if known.is_real() => drop(self.dropped.insert(name)),
                    Some(_) | None => {}
                }
            }
        }
    }

    /// The resource's dependent has changed: send it along, if the client has it or waits for it.
    pub(super) fn send_again(&mut self, name: &Arc<str>) {
        if self.wants(name) {
            self.again.insert(Arc::clone(name));
        }
    }

    /// Whether the client said that it has this resource, and was not sent it since.
    pub(super) fn is_claimed(&self, name: &str) -> bool {
        matches!(self.known.get(name), Some(Known::Claimed(_)))
    }

    /// Sends everything again that the client claims to have and `proven` does not vouch for.
    pub(super) fn distrust_claims(&mut self, proven: impl Fn(&str) -> bool) {
        let doubtful = self.known.keys().filter(|name| !proven(name)).cloned();
        self.again.extend(doubtful);
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    fn forget_unwanted(&mut self) {
        let wildcard = self.wildcard;
        self.known
            .retain(|name, _| wildcard || self.names.contains(name));
        self.again
            .retain(|name| wildcard || self.names.contains(name));
        self.unsettled
            .retain(|name| wildcard || self.names.contains(name));
    }
}

pub(super) fn check_limits(names: usize, bytes: usize) -> Result<(), Refusal> {
    if names > MAX_NAMES || bytes > MAX_NAME_BYTES {
        Err(Refusal::TooManyNames)
    } else {
        Ok(())
    }
}
