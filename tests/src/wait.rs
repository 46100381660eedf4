//! Waiting for something to come true, or seeing that it stays true.
//!
//! In: a limit, words for what is awaited, and a look at the world. Out: what the look found, or a panic that says what was
//! seen last. The limits are generous: they end a test that will never pass, they do not measure speed.

use std::time::Duration;

use tokio::time::Instant;

/// Long enough for anything that should happen soon, on a slow and busy machine.
pub const SOON: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(20);

/// Waits until `look` finds what it looks for; `Err` tells what it saw instead.
#[track_caller]
pub fn eventually<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        let seen = match look() {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        assert!(
            start.elapsed() < limit,
            "after {:.1} s still not so: {what}\nlast seen: {seen}",
            start.elapsed().as_secs_f64()
        );
        pause(POLL);
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    eventually(limit, what, || {
        condition().then_some(()).ok_or_else(|| "it is not".into())
    });
}

/// Sees that `look` finds no fault for `period`.
#[track_caller]
pub fn holds(period: Duration, what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while start.elapsed() < period {
        if let Err(seen) = look() {
            panic!(
                "after {:.1} s no longer so: {what}\nseen: {seen}",
                start.elapsed().as_secs_f64()
            );
        }
        pause(POLL);
    }
}

/// Lets time pass where the passing of time is the point: between two polls, two requests, two faults.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where tests sleep; everything else waits for a condition"
)]
pub fn pause(period: Duration) {
    std::thread::sleep(period);
}
