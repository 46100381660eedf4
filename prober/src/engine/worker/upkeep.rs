//! What changes a worker's targets as a whole: a new set, and putting things right after a fault.
//!
//! In: the newest set, or a target (or all) that something went wrong with. Out: entries, timers and the in-flight
//! count that agree with each other again. Known targets are not disturbed by a new set: counters, phase and a probe
//! under way go on. Not here: the loop itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::timers::Timers;
use super::{Entry, Worker};
use crate::schedule::Schedule;
use crate::target::Target;

impl Worker {
    /// Makes the targets exactly these.
    pub(super) fn apply(&mut self, targets: Vec<Target>, now: Instant) {
        self.generation += 1;
        let generation = self.generation;
        // Exactly: doubling would leave a large set with half as much again.
        let more = targets.len().saturating_sub(self.entries.len());
        self.entries.reserve_exact(more);
        self.index.reserve(more);
        self.timers.reserve(more);
        for target in targets {
            if let Some(entry) = self
                .index
                .get(&target.key)
                .and_then(|&index| self.entries.get_mut(index))
            {
                // The same key is the same content; only what is shared with the caller is taken anew. Another pulse
                // is another life: the target was gone in a set that this worker never saw, and nobody knows of its
                // tally any more.
                if !Arc::ptr_eq(&entry.target.pulse, &target.pulse) {
                    entry.tally = target.seed;
                }
                entry.target = target;
                entry.generation = generation;
                continue;
            }
            let state = target.seed.state();
            let judged = state.verdict.is_some() || state.previous.is_some();
            let interval = target.check.interval();
            let schedule = Schedule::new(&self.spread, target.key, interval, judged, now);
            let (key, due) = (target.key, schedule.due());
            let index = self.entries.insert(Entry {
                tally: target.seed,
                target,
                schedule,
                attempt: None,
                sessions: None,
                serial: 0,
                lateness: Duration::ZERO,
                backlog: None,
                generation,
            });
            self.index.insert(key, index);
            self.timers.set(index, due);
        }
        let Self {
            entries,
            index,
            timers,
            waiting,
            in_flight,
            ..
        } = self;
        entries.retain(|at, entry| {
            if entry.generation == generation {
                return true;
            }
            index.remove(&entry.target.key);
            timers.clear(at);
            waiting.remove(entry.schedule.due(), at);
            *in_flight -= usize::from(entry.attempt.is_some());
            false
        });
    }

    /// Drops the probe under way and waits for the next slot.
    pub(super) fn reset(&mut self, index: usize, now: Instant) {
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        if entry.attempt.take().is_some() {
            self.in_flight -= 1;
        }
        self.waiting.remove(entry.schedule.due(), index);
        entry.schedule.resume(now);
        self.timers.set(index, entry.schedule.due());
    }

    /// After a fault of the loop itself: everything but the targets and their tallies is made anew.
    pub(super) fn recover(&mut self, now: Instant) {
        self.timers = Timers::default();
        self.waiting.clear();
        self.in_flight = 0;
        self.index.clear();
        for (index, entry) in &mut self.entries {
            entry.attempt = None;
            entry.schedule.resume(now);
            self.index.insert(entry.target.key, index);
            self.timers.set(index, entry.schedule.due());
        }
    }
}
