//! Who is due when (semantics S3, P16): start-to-start slots with a hashed phase.
//!
//! In: a target's key, its interval, the engine's origin, and the times at which its probes really start and end. Out:
//! when it is due next, how late a start is, and whether it is too late to say anything about the endpoint.
//!
//! ```text
//!          first (never judged): now + a tick by hash within min(interval, 1 s)
//!            │ begin                              a known state starts here
//!            ▼                                       │
//!         RUNNING ──end, before the next slot──►  WAITING for a slot of its grid ──begin, too late──► WAITING for the
//!            ▲  │                                    │                              (LOCAL_LATE)      slot after now
//!            │  └──end, a slot has passed──► DUE NOW │ begin
//!            └───────────────────────────────────────┘
//! ```
//!
//! The grid is `origin + a tick by hash(key, vantage) within the interval + n × interval`, so that a reload moves
//! nothing, endpoints are spread evenly, and two vantages do not probe in step. Slots are counted from start to start: a
//! slow probe does not push the next one away (S3). Probes of one target never overlap: a slot that has come while the
//! previous probe ran is due at once when it ends, and earlier missed ones are skipped. Lateness is our own fault only,
//! so the delay by the target's own probe does not count as lateness. A first probe that waits for its turn, or for room
//! under the cap, is never too late (P16), but what it waited is told as its lateness all the same: to count from when it
//! could start would hide how long a large configuration has no first word.
//!
//! Pure: no clock, no sockets, no queue. The in-flight cap and the timers are the engine's.

use std::time::{Duration, Instant};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::target::StateKey;

/// A never-judged target's first probe starts within this time (semantics S3).
pub const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// Phases are whole ticks, so that several probes start in one wake-up and its work is done with warm caches: 10 % less
/// CPU time for a TCP probe, at 5,000 a second, than with phases at any time. No probe starts later than due for it.
const TICK: Duration = Duration::from_millis(10);

/// How late our own timers may be before a probe says nothing about the endpoint: max(timeout / 4, 250 ms) (semantics
/// P16).
#[must_use]
pub fn allowance(timeout: Duration) -> Duration {
    (timeout / 4).max(Duration::from_millis(250))
}

/// A vantage's own spread of keys over time (design 5.11).
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    seed: u64,
    origin: Instant,
}

impl Spread {
    /// The spread of the vantage of that name, whose grids start at `origin`.
    #[must_use]
    pub fn new(vantage: &str, origin: Instant) -> Self {
        Self {
            seed: xxh3_64(vantage.as_bytes()),
            origin,
        }
    }

    fn hash(&self, key: StateKey) -> u64 {
        xxh3_64_with_seed(&key.to_bytes(), self.seed)
    }
}

/// Whether a due probe is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Start it; it is that much later than due.
    Run(Duration),
    /// It would start too late to say anything about the endpoint: INCONCLUSIVE, and the next slot follows.
    Missed(Duration),
}

/// The schedule of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// One slot of the grid; the others are multiples of the interval away.
    anchor: Instant,
    interval: Duration,
    /// The slot that is waited for, or that is running.
    slot: Instant,
    /// From when on the slot could have started: lateness counts from here.
    ready: Instant,
    /// The slot is the first probe of a never-judged target: off the grid, and never too late.
    first: bool,
}

impl Schedule {
    /// The schedule of a target that the engine meets at `now`. `judged`: it has a state already, so there is no haste.
    #[must_use]
    pub fn new(
        spread: &Spread,
        key: StateKey,
        interval: Duration,
        judged: bool,
        now: Instant,
    ) -> Self {
        let hash = spread.hash(key);
        let mut schedule = Self {
            anchor: spread.origin + phase(hash, interval),
            interval,
            slot: now,
            ready: now,
            first: !judged,
        };
        let start = if judged {
            schedule.slot_after(now)
        } else {
            now + phase(hash, interval.min(FIRST_WITHIN))
        };
        schedule.wait_for(start);
        schedule
    }

    /// When the next probe is due. While one is under way: when it was due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.ready
    }

    /// Whether the first probe of a never-judged target is still to come.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// From when on a start is too late; `None` for a first probe, which is better late than never.
    #[must_use]
    pub fn late_from(&self, allowance: Duration) -> Option<Instant> {
        (!self.first).then(|| self.ready + allowance)
    }

    /// The due probe could start at `now`: whether it shall.
    pub fn begin(&mut self, now: Instant, allowance: Duration) -> Turn {
        let lateness = now.saturating_duration_since(self.ready);
        if self.first {
            self.first = false;
            // The grid goes on after the real start: the wait of a first probe is not a missed slot.
            self.slot = self.slot.max(now);
        } else if lateness > allowance {
            self.resume(now);
            return Turn::Missed(lateness);
        }
        Turn::Run(lateness)
    }

    /// The probe that was begun has ended at `now`.
    pub fn end(&mut self, now: Instant) {
        let next = self.slot_after(self.slot);
        if next > now {
            self.wait_for(next);
        } else {
            self.slot = now - self.since_slot(now);
            self.ready = now;
        }
    }

    /// Forgets what was due and waits for the next slot after `now`.
    pub fn resume(&mut self, now: Instant) {
        self.first = false;
        self.wait_for(self.slot_after(now));
    }

    fn wait_for(&mut self, slot: Instant) {
        self.slot = slot;
        self.ready = slot;
    }

    /// The first slot of the grid after `t`.
    fn slot_after(&self, t: Instant) -> Instant {
        if t < self.anchor {
            self.anchor
        } else {
            t + (self.interval - self.since_slot(t))
        }
    }

    /// How long before `t` the last slot of the grid was.
    fn since_slot(&self, t: Instant) -> Duration {
        let since = t.saturating_duration_since(self.anchor);
        let rest = since
            .as_nanos()
            .checked_rem(self.interval.as_nanos())
            .unwrap_or(0);
        Duration::from_nanos(u64::try_from(rest).unwrap_or(0))
    }
}

/// A tick within the span, by hash.
fn phase(hash: u64, span: Duration) -> Duration {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let ticks = (nanos(span) / nanos(TICK)).max(1);
    Duration::from_nanos(hash.checked_rem(ticks).unwrap_or(0) * nanos(TICK))
}

#[cfg(test)]
mod tests;
