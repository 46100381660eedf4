//! Due targets that wait for their start: regular slots first, then first probes.
//!
//! In: targets that are due and find no room. Out: who starts next. A regular slot says nothing any more when it starts too
//! late; a first probe is better late than never (semantics S3, P16). So when a large configuration starts, whose first
//! probes are due faster than they can be run, those wait for the slots that follow them, not the other way round.

use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Waiting {
    regular: BTreeSet<(Instant, usize)>,
    first: BTreeSet<(Instant, usize)>,
}

impl Waiting {
    /// Has a target wait for its first probe.
    pub(super) fn add_first(&mut self, due: Instant, index: usize) {
        self.first.insert((due, index));
    }

    /// Has a target wait for a regular slot.
    pub(super) fn add(&mut self, due: Instant, index: usize) {
        self.regular.insert((due, index));
    }

    /// Whether a regular slot waits.
    pub(super) fn any_regular(&self) -> bool {
        !self.regular.is_empty()
    }

    /// Takes a target out. Whether it was there.
    pub(super) fn remove(&mut self, due: Instant, index: usize) -> bool {
        self.regular.remove(&(due, index)) || self.first.remove(&(due, index))
    }

    /// Takes out who starts next: of each kind, who was due first.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let next = self.regular.pop_first();
        next.or_else(|| self.first.pop_first())
            .map(|(_, index)| index)
    }

    /// Lets all of them go.
    pub(super) fn clear(&mut self) {
        self.regular.clear();
        self.first.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn p16_a_regular_slot_does_not_wait_for_first_probes_that_were_due_before_it() {
        let now = clock::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut waiting = Waiting::default();
        waiting.add_first(at(2), 2);
        waiting.add_first(at(1), 1);
        waiting.add(at(9), 9);
        waiting.add(at(8), 8);
        waiting.add(at(7), 7);
        assert!(waiting.remove(at(7), 7) && !waiting.remove(at(7), 7));
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop()).collect();
        assert_eq!(order, [8, 9, 1, 2]);
        assert!(!waiting.any_regular());
    }
}
