//! How long the steps of a probe took, small: each ballot keeps them for as long as its verdict stands.
//!
//! In: the [`Times`] of a probe. Out: the same, to the microsecond, which is what the log says of them.

use std::time::Duration;

use vitals_prober::outcome::Times;

/// [`Times`] in microseconds, a quarter of the room. A step that was not reached is `u32::MAX`; one that took longer than
/// the 71 minutes below that, which no timeout allows, is those.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    connect: u32,
    tls: u32,
    first_byte: u32,
    total: u32,
}

const NOT_REACHED: u32 = u32::MAX;

impl From<Times> for Steps {
    fn from(times: Times) -> Self {
        let us = |time: Duration| {
            let nearest = time.saturating_add(Duration::from_nanos(500)).as_micros();
            u32::try_from(nearest)
                .unwrap_or(NOT_REACHED)
                .min(NOT_REACHED - 1)
        };
        let step = |time: Option<Duration>| time.map_or(NOT_REACHED, us);
        Self {
            connect: step(times.connect),
            tls: step(times.tls),
            first_byte: step(times.first_byte),
            total: us(times.total),
        }
    }
}

impl From<Steps> for Times {
    fn from(steps: Steps) -> Self {
        let time = |us: u32| Duration::from_micros(us.into());
        let step = |us: u32| (us != NOT_REACHED).then(|| time(us));
        Self {
            connect: step(steps.connect),
            tls: step(steps.tls),
            first_byte: step(steps.first_byte),
            total: time(steps.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_steps_are_kept_to_the_microsecond_and_those_that_were_not_reached_stay_so() {
        let kept = |times: Times| Times::from(Steps::from(times));
        let exact = Times {
            connect: Some(Duration::ZERO),
            tls: None,
            first_byte: Some(Duration::from_micros(1_234_567)),
            total: Duration::from_secs(300),
        };
        assert_eq!(kept(exact), exact);
        let of_total = |total| {
            kept(Times {
                total,
                ..Times::default()
            })
        };
        let rounded = [(1_499, 1), (1_500, 2)];
        for (ns, us) in rounded {
            let times = of_total(Duration::from_nanos(ns));
            assert_eq!(times.total, Duration::from_micros(us));
            assert_eq!(
                (times.connect, times.tls, times.first_byte),
                (None, None, None)
            );
        }
        let longest = Duration::from_micros(u64::from(u32::MAX) - 1);
        assert_eq!(of_total(Duration::MAX).total, longest);
    }
}
