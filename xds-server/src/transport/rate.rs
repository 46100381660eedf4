//! How much may happen in a time: a bucket that refills.
//!
//! In: moments. Out: go on, or how long to wait. Time is an argument. It is the generic cell rate algorithm: one moment
//! of state, which is when everything that was let through would have been paid for.

use std::time::{Duration, Instant};

/// So many a second in the long run, and a burst at once.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// What one costs.
    each: Duration,
    /// How far ahead of the rate it may run.
    burst: Duration,
    paid_at: Instant,
}

impl Bucket {
    /// A full bucket: `burst` at once, then `per_second`. Zeros count as 1.
    #[must_use]
    pub fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Self {
            each,
            burst: each.saturating_mul(burst.max(1)),
            paid_at: now,
        }
    }

    /// Lets one through.
    ///
    /// # Errors
    /// How long to wait until one may go; nothing is taken.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let paid_at = self.paid_at.max(now) + self.each;
        let ahead = paid_at.saturating_duration_since(now);
        match ahead.checked_sub(self.burst) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                self.paid_at = paid_at;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate_holds() {
        let start = vitals_prober::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::new(10, 3, start);
        assert_eq!(
            [(); 4].map(|()| bucket.take(start).is_ok()),
            [true, true, true, false]
        );
        assert_eq!(bucket.take(at(0)), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(at(99)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(at(100)), Ok(()));
        assert!(bucket.take(at(101)).is_err());
        // A rest fills it, but not beyond its burst.
        assert_eq!(
            [(); 4].map(|()| bucket.take(at(60_000)).is_ok()),
            [true, true, true, false]
        );
    }

    #[test]
    fn zeros_and_time_that_goes_back_do_no_harm() {
        let start = vitals_prober::clock::now();
        let mut bucket = Bucket::new(0, 0, start + Duration::from_secs(5));
        assert!(bucket.take(start).is_err());
        assert!(bucket.take(start + Duration::from_secs(6)).is_ok());
    }
}
