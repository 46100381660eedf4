//! `cargo xtask bench probes --huge`: Vitals alone, with more endpoints than its peers are asked for.
//!
//! In: a [`Load`]. Out: how soon all are healthy, lateness of the first round and after it, outcomes, CPU, memory beyond a server with one endpoint.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::backend::Backends;
use super::prober::{Binaries, Load, Prober, Running, seconds_or_ms};
use super::report::milliseconds;
use super::sample::{self, lateness};
use super::{WARM_UP, folder};
use crate::bench::measure::{cpus, memory, mib, wait};
use crate::bench::metrics::Page;

/// How often the first round is looked at.
const POLL: Duration = Duration::from_millis(200);

pub(super) fn run(
    binaries: &Binaries,
    backends: &mut Backends,
    load: Load,
    period: Duration,
    alone: bool,
    dir: &Path,
) -> Result<()> {
    let small = Load {
        endpoints: 1,
        ..load
    };
    let mut running = Running::start(Prober::Vitals, binaries, small, &folder(dir)?)?;
    wait(WARM_UP, &mut [running.guard()])?;
    let idle_kib = memory(running.guard().id(), "VmRSS:")?;
    drop(running);

    let start = Instant::now();
    let mut running = Running::start(Prober::Vitals, binaries, load, &folder(dir)?)?;
    let ready = start.elapsed().as_secs_f64();
    let first_round = Instant::now() + load.interval + WARM_UP;
    let mut all_healthy = None;
    while Instant::now() < first_round {
        let left = first_round - Instant::now();
        wait(
            left.min(POLL),
            &mut [running.guard(), backends.guard(load.kind)],
        )?;
        if all_healthy.is_none() && running.healthy()? >= f64::from(load.endpoints) {
            all_healthy = Some(start.elapsed().as_secs_f64());
        }
    }
    let nothing = Page::parse("");
    let warm = running.page()?.unwrap_or_else(|| Page::parse(""));
    let sample = sample::take(&mut running, backends, load.kind, period, alone)?;
    let end = running.page()?.unwrap_or_else(|| Page::parse(""));

    let late = |before: &Page, after: &Page| {
        let late = |share| {
            lateness(before, after, share).map_or_else(
                || "not told".to_owned(),
                |late| format!("≤ {}", milliseconds(late)),
            )
        };
        format!("p50 {}, p99 {}", late(0.5), late(0.99))
    };
    println!(
        "{} endpoints, {} every {}, {:.0} s after a first round of {:.0} s",
        load.endpoints,
        load.kind.name(),
        seconds_or_ms(load.interval),
        sample.seconds,
        (load.interval + WARM_UP).as_secs_f64(),
    );
    let line = |name: &str, value: String| println!("{name:<24}{value}");
    line("ready after", format!("{ready:.1} s"));
    let all_healthy = all_healthy.map_or_else(
        || "not in the first round".into(),
        |seconds| format!("{seconds:.1} s"),
    );
    line("all healthy after", all_healthy);
    line("probes per second", format!("{:.0}", sample.per_second()));
    line("lateness, first round", late(&nothing, &warm));
    line("lateness, then", late(&warm, &end));
    for outcome in ["PASS", "FAIL", "TIMEOUT", "INCONCLUSIVE"] {
        let label = format!("outcome=\"{outcome}\"");
        // The sum of nothing is -0.
        let first = warm.sum("vitals_probes_total", &label).abs();
        let then = end.sum("vitals_probes_total", &label).abs() - first;
        line(outcome, format!("{then:.0} (first round {first:.0})"));
    }
    line(
        "healthy at the end",
        format!("{:.0} of {}", sample.healthy, load.endpoints),
    );
    let share = |seconds: f64| seconds / sample.seconds * 100.0;
    line(
        "CPU of Vitals",
        format!(
            "{:.1} µs per probe, {:.0} % of one processor of {}",
            sample.cost(),
            share(sample.cpu),
            cpus()
        ),
    );
    line(
        "CPU of the backend",
        format!("{:.0} % of one processor", share(sample.backend_cpu)),
    );
    line(
        "CPU of others",
        format!("{:.0} % of all processors", sample.others_share() * 100.0),
    );
    line(
        "memory",
        format!(
            "{:.1} MiB, {:.1} at its peak; {:.1} with one endpoint",
            mib(sample.rss_kib),
            mib(sample.peak_kib),
            mib(idle_kib)
        ),
    );
    let more = |kib: f64| (kib - idle_kib) * 1024.0 / f64::from(load.endpoints);
    line(
        "memory per endpoint",
        format!(
            "{:.0} bytes, {:.0} at its peak",
            more(sample.rss_kib),
            more(sample.peak_kib)
        ),
    );
    Ok(())
}
