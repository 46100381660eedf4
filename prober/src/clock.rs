//! The one place of this crate where time is read. Everything that decides takes `now` as an argument; the engine's
//! loop and the binaries take it from here.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

/// The monotonic clock, for schedules and deadlines.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the edge where time enters"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for what people read and what outlives the process.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the edge where time enters"
)]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// An instant of this process that stays the same: what an [`Instant`] is counted from where it must be a number.
#[must_use]
pub fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(now)
}
