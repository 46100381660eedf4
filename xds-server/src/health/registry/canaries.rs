//! The canaries of one policy: what they say of each vantage (semantics V5).
//!
//! In: the ballots of the canaries' targets, the time. Out: the [`Word`] of all of them together, which vantages have not
//! tried them since the server started, and which canaries have never answered. What follows is `health::guard`'s.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vitals_prober::target::StateKey;

use super::ballots::{Heard, Watch};
use crate::health::Now;
use crate::health::guard::{Unanswered, Word};

type Watches = BTreeMap<StateKey, Watch>;

/// The canaries of one policy.
#[derive(Debug, Default)]
pub(super) struct Canaries {
    all: Vec<(SocketAddr, StateKey)>,
    /// Vantages that have not tried all of them since the server started.
    pub(super) untried: Vec<Arc<str>>,
    /// Those that were tried and have never answered.
    pub(super) unanswered: Vec<Unanswered>,
}

impl Canaries {
    pub(super) fn set(&mut self, all: impl Iterator<Item = (SocketAddr, StateKey)>) {
        self.all = all.collect();
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &StateKey> {
        self.all.iter().map(|(_, key)| key)
    }

    /// What they say of a vantage.
    pub(super) fn word(&self, vantage: &str, watches: &Watches) -> Word {
        let mut counted = Vec::new();
        let (mut all_silent, mut all_failing) = (true, true);
        for (address, key) in &self.all {
            let ballot = watches.get(key).and_then(|watch| watch.ballot(vantage));
            let heard = match ballot.map(|ballot| ballot.heard_last()) {
                None | Some(Heard::Nothing) => continue,
                Some(Heard::Answer) => return Word::Answer,
                Some(heard) => heard,
            };
            all_silent &= heard == Heard::Silence;
            all_failing &= heard != Heard::FirstAnswer;
            counted.push(*address);
        }
        match (counted.is_empty(), all_silent, all_failing) {
            (true, ..) => Word::Answer,
            (_, true, _) => Word::Silent(counted.into()),
            (_, _, true) => Word::Failing(counted.into()),
            _ => Word::Unclear,
        }
    }

    /// Looks who has tried them, and which do not answer. Whether that is otherwise than before.
    pub(super) fn look<'v>(
        &mut self,
        vantages: impl Iterator<Item = &'v Arc<str>>,
        watches: &Watches,
        now: Now,
    ) -> bool {
        let (mut untried, mut unanswered) = (Vec::new(), Vec::new());
        for vantage in vantages {
            let mut waits = false;
            for (address, key) in &self.all {
                let Some(watch) = watches.get(key) else {
                    continue;
                };
                let Some(ballot) = watch.ballot(vantage) else {
                    continue;
                };
                waits |= ballot.is_untried(&watch.check, now);
                if ballot.has_never_answered() {
                    unanswered.push(Unanswered {
                        vantage: Arc::clone(vantage),
                        canary: *address,
                    });
                }
            }
            if waits {
                untried.push(Arc::clone(vantage));
            }
        }
        let changed = untried != self.untried || unanswered != self.unanswered;
        self.untried = untried;
        self.unanswered = unanswered;
        changed
    }
}
