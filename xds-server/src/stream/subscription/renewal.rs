//! What of one type a client has in its present version, for heartbeats.
//!
//! In: that all is to be renewed, the newest snapshot. Out: the resources, in parts, each once. What the client does not
//! have in its present version is sent whole anyway.

use std::ops::Bound;
use std::sync::Arc;

use super::{Known, Subscription};
use crate::resources::empty_assignment;
use crate::snapshot::{Resource, TypeSnapshot};
use crate::stream::RESPONSE_BYTES;

/// About how many bytes a resource takes in a heartbeat beside its name: version, TTL, lengths.
const OVERHEAD: usize = 40;

/// How far a round of renewals has come.
#[derive(Debug)]
pub(super) enum Renewal {
    /// Nothing was renewed yet.
    Start,
    /// All up to this name.
    After(Arc<str>),
}

impl Subscription {
    /// Starts a round; one that is under way starts anew.
    pub(in crate::stream) fn renew_all(&mut self) {
        if !self.known.is_empty() {
            self.renewal = Some(Renewal::Start);
        }
    }

    /// The next part of the round, or `None` when there is none, or the client must answer first.
    pub(in crate::stream) fn renewals(
        &mut self,
        snapshot: &TypeSnapshot,
    ) -> Option<Vec<Arc<Resource>>> {
        if self.must_answer_first() {
            return None;
        }
        let from = match self.renewal.take()? {
            Renewal::Start => Bound::Unbounded,
            Renewal::After(name) => Bound::Excluded(name),
        };
        let (mut part, mut bytes) = (Vec::new(), 0);
        for (name, known) in self.known.range((from, Bound::Unbounded)) {
            let present = snapshot.resources().get(name);
            let resource = match known {
                Known::StandIn(_) => Arc::new(empty_assignment(Arc::clone(name))),
                Known::Claimed(_) | Known::Sent(..) | Known::InWholeSet(..) => match present {
                    Some(present) if known.is(present) => Arc::clone(present),
                    _ => continue,
                },
                Known::Absent => continue,
            };
            bytes += name.len() + OVERHEAD;
            part.push(resource);
            if bytes >= RESPONSE_BYTES {
                self.renewal = Some(Renewal::After(Arc::clone(name)));
                break;
            }
        }
        (!part.is_empty()).then_some(part)
    }
}
