//! The one timer that each target has: its next slot, or the deadline of its probe under way.
//!
//! In: index and time. Out: who is due, earliest first. One ordered set per worker instead of a timer per endpoint;
//! moving a timer removes the old entry, so nothing stale is ever kept or met.

use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Instant, usize)>,
    at: Vec<Option<Instant>>,
}

impl Timers {
    /// Makes room for so many targets more, and no more than that.
    pub(super) fn reserve(&mut self, more: usize) {
        self.at.reserve_exact(more);
    }

    /// Sets the timer of `index`, instead of the one it had.
    pub(super) fn set(&mut self, index: usize, at: Instant) {
        if self.at.len() <= index {
            self.at.resize(index + 1, None);
        }
        if let Some(slot) = self.at.get_mut(index) {
            if let Some(before) = slot.replace(at) {
                self.queue.remove(&(before, index));
            }
            self.queue.insert((at, index));
        }
    }

    /// Drops the timer of `index`.
    pub(super) fn clear(&mut self, index: usize) {
        if let Some(at) = self.at.get_mut(index).and_then(Option::take) {
            self.queue.remove(&(at, index));
        }
    }

    /// When the earliest timer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Takes the earliest timer that is due at `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<usize> {
        let &(at, index) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.clear(index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn a_target_has_one_timer_and_the_earliest_comes_first() {
        let now = clock::now();
        let at = |s| now + Duration::from_secs(s);
        let mut timers = Timers::default();
        timers.set(3, at(1));
        timers.set(1, at(2));
        timers.set(3, at(3));
        timers.set(2, at(4));
        timers.clear(2);
        timers.clear(9);
        assert_eq!(timers.next(), Some(at(2)));
        assert_eq!(timers.pop(at(1)), None);
        assert_eq!(timers.pop(at(9)), Some(1));
        assert_eq!(timers.pop(at(9)), Some(3));
        assert_eq!(timers.pop(at(9)), None);
    }
}
