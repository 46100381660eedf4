//! One prober, watched for a while.
//!
//! In: a prober that runs, the backends. Out: a [`Sample`]. The CPU time is what the kernel charged to the prober's process, user and
//! system, over all threads, between two moments after a warm-up. A probe is a connection that was begun: the kernel's count,
//! the same for everybody, and the only one that sees a check which is over before the backend could accept it.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

use super::Kind;
use super::backend::Backends;
use super::prober::Running;
use crate::bench::measure::{connections, cpu, cpus, machine_cpu, memory, wait};
use crate::bench::metrics::{Page, quantile};

/// What one prober did in one round.
#[derive(Clone, Copy, Default)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    /// By the kernel's count.
    pub(super) probes: f64,
    /// By its own count.
    pub(super) told: Option<f64>,
    /// Seconds of the prober's process, of the backends, and of all other processes.
    pub(super) cpu: f64,
    pub(super) backend_cpu: f64,
    pub(super) other_cpu: f64,
    /// Vitals' own, in seconds, at most.
    pub(super) late_p50: Option<f64>,
    pub(super) late_p99: Option<f64>,
    pub(super) rss_kib: f64,
    pub(super) peak_kib: f64,
    pub(super) healthy: f64,
}

impl Sample {
    pub(super) fn per_second(&self) -> f64 {
        self.probes / self.seconds
    }

    /// µs per probe.
    pub(super) fn cost(&self) -> f64 {
        self.cpu / self.probes * 1e6
    }

    /// Of all processors.
    pub(super) fn others_share(&self) -> f64 {
        let processors = u32::try_from(cpus()).unwrap_or(1);
        self.other_cpu / self.seconds / f64::from(processors)
    }
}

/// Watches a prober for `period`. `alone` is whether nobody else opens connections in this network namespace.
pub(super) fn take(
    running: &mut Running,
    backends: &mut Backends,
    kind: Kind,
    period: Duration,
    alone: bool,
) -> Result<Sample> {
    let id = running.guard().id();
    let before = (running.probes()?, running.page()?);
    let look = |backends: &Backends| {
        let times = (cpu(id)?, backends.cpu()?, machine_cpu()?);
        anyhow::Ok((times, connections()?, Instant::now()))
    };
    let (first, opened, start) = look(backends)?;
    wait(period, &mut [running.guard(), backends.guard(kind)])?;
    let (last, reached, end) = look(backends)?;
    let after = (running.probes()?, running.page()?);

    let told = after.0.zip(before.0).map(|(after, before)| after - before);
    let counted = reached - opened;
    let probes = if alone {
        counted
    } else {
        told.unwrap_or(counted)
    };
    if probes < 1.0 {
        bail!("a prober made no probe in {} s", period.as_secs());
    }
    let late = |share| {
        let (Some(before), Some(after)) = (&before.1, &after.1) else {
            return None;
        };
        lateness(before, after, share)
    };
    let (cpu, backend_cpu) = (last.0 - first.0, last.1 - first.1);
    Ok(Sample {
        seconds: (end - start).as_secs_f64(),
        probes,
        told,
        cpu,
        backend_cpu,
        other_cpu: last.2 - first.2 - cpu - backend_cpu,
        late_p50: late(0.5),
        late_p99: late(0.99),
        rss_kib: memory(id, "VmRSS:")?,
        peak_kib: memory(id, "VmHWM:")?,
        healthy: running.healthy()?,
    })
}

/// The bound of lateness that a share of the probes kept, in seconds.
pub(super) fn lateness(before: &Page, after: &Page, share: f64) -> Option<f64> {
    quantile(before, after, "vitals_probe_lateness_seconds", share)
}

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = match values.len() % 2 {
            0 => values.get(middle - 1)?.midpoint(upper),
            _ => upper,
        };
        Some(Self {
            median,
            least: *values.first()?,
            most: *values.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_median_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 8.0]).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 3.0, 8.0));
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([]), None);
    }
}
