//! The table, as Markdown, and what must be known to read it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Kind;
use super::prober::Prober;
use super::sample::{Sample, Spread};
use crate::bench::measure::{cpus, mib};

/// One prober's rounds with one kind of check.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) prober: Prober,
    pub(super) endpoints: u32,
    /// Why there are no rounds.
    pub(super) refusal: Option<String>,
    /// VmRSS of the same prober with one endpoint.
    pub(super) idle_kib: f64,
    pub(super) rounds: Vec<Sample>,
}

const HEADINGS: [&str; 12] = [
    "type",
    "prober",
    "endpoints",
    "probes/s",
    "CPU µs per probe",
    "Vitals ÷ this",
    "lateness p50, p99",
    "RSS (peak) MiB",
    "idle MiB",
    "bytes per endpoint",
    "backend CPU",
    "others' CPU",
];

/// The share of the processors, taken by others, from which on figures are doubted.
const BUSY: f64 = 0.1;

/// Prints all rows. Ratios are of rounds: a round's runs follow each other, so that what else the machine did weighs on both.
pub(super) fn print_table(rows: &[Row]) {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    let costs: BTreeMap<Kind, Vec<f64>> = rows
        .iter()
        .filter(|row| row.prober == Prober::Vitals)
        .map(|row| (row.kind, row.rounds.iter().map(Sample::cost).collect()))
        .collect();
    for row in rows {
        lines.push(cells(row, costs.get(&row.kind)));
    }
    let mut widths = [0; HEADINGS.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    for (n, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(widths);
        let cells: Vec<_> = cells.map(|(cell, w)| format!("{cell:<w$}")).collect();
        println!("| {} |", cells.join(" | "));
        if n == 0 {
            println!("|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
        }
    }
}

fn cells(row: &Row, vitals: Option<&Vec<f64>>) -> [String; HEADINGS.len()] {
    let none = || "–".to_owned();
    let of = |figure: fn(&Sample) -> f64| Spread::of(row.rounds.iter().map(figure));
    let ratio = || {
        let pairs = vitals?.iter().zip(&row.rounds);
        Spread::of(pairs.map(|(vitals, other)| vitals / other.cost()))
    };
    let late = |figure: fn(&Sample) -> Option<f64>| {
        let late = Spread::of(row.rounds.iter().filter_map(figure))?;
        Some(format!("≤ {}", milliseconds(late.median)))
    };
    let rss = of(|sample| sample.rss_kib);
    let peak = of(|sample| sample.peak_kib);
    let refused = row.refusal.clone().unwrap_or_else(none);
    [
        row.kind.name().into(),
        row.prober.name().into(),
        row.endpoints.to_string(),
        of(Sample::per_second).map_or(refused, |rate| format!("{:.0}", rate.median)),
        of(Sample::cost).map_or_else(none, |cost| range(cost, 1)),
        match row.prober {
            Prober::Vitals => none(),
            Prober::HaProxy | Prober::Envoy => ratio().map_or_else(none, |ratio| range(ratio, 2)),
        },
        late(|sample| sample.late_p50)
            .zip(late(|sample| sample.late_p99))
            .map_or_else(none, |(p50, p99)| format!("{p50}, {p99}")),
        rss.zip(peak).map_or_else(none, |(rss, peak)| {
            format!("{:.1} ({:.1})", mib(rss.median), mib(peak.median))
        }),
        rss.map_or_else(none, |_| format!("{:.1}", mib(row.idle_kib))),
        rss.map_or_else(none, |rss| {
            let more = (rss.median - row.idle_kib) * 1024.0;
            format!(
                "{:.0}",
                more / f64::from(row.endpoints.saturating_sub(1).max(1))
            )
        }),
        of(|sample| sample.backend_cpu / sample.seconds * 100.0)
            .map_or_else(none, |share| format!("{:.0} %", share.median)),
        of(|sample| sample.others_share() * 100.0)
            .map_or_else(none, |share| format!("{} %", range(share, 0))),
    ]
}

fn range(spread: Spread, digits: usize) -> String {
    let Spread {
        median,
        least,
        most,
    } = spread;
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}

pub(super) fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 1.0 {
        format!("{ms:.2} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// What is odd in the rounds, so that nobody trusts a figure that should not be trusted.
pub(super) fn print_doubts(rows: &[Row], interval: f64) {
    for row in rows {
        let who = format!("{} {}", row.kind.name(), row.prober.name());
        let due = f64::from(row.endpoints) / interval;
        for (n, sample) in (1..).zip(&row.rounds) {
            if sample.healthy < f64::from(row.endpoints) {
                println!(
                    "Doubt: {who}, round {n}: {:.0} of {} endpoints are healthy to it.",
                    sample.healthy, row.endpoints
                );
            }
            if let Some(told) = sample.told
                && (told / sample.probes - 1.0).abs() > 0.03
            {
                println!(
                    "Doubt: {who}, round {n}: it counts {told:.0} probes, the kernel {:.0} connections.",
                    sample.probes
                );
            }
            if (sample.per_second() / due - 1.0).abs() > 0.1 {
                println!(
                    "Doubt: {who}, round {n}: {:.0} probes/s, where {due:.0} are due.",
                    sample.per_second()
                );
            }
        }
    }
    let others = rows
        .iter()
        .flat_map(|row| row.rounds.iter().map(Sample::others_share));
    if let Some(others) = Spread::of(others)
        && others.most > BUSY
    {
        println!(
            "Doubt: other processes took up to {:.0} % of all processors. Neither costs nor ratios are those of a quiet machine: \
             a prober that is kept waiting finds more that is ready each time it wakes.",
            others.most * 100.0
        );
    }
}

/// Date, machine, versions, command.
pub(super) fn print_circumstances(command: &str, versions: &[String], alone: bool) -> Result<()> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let kib: f64 = total.and_then(|kib| kib.parse().ok()).unwrap_or_default();
    println!(
        "\n{}; {} processors, {:.0} GiB of memory, Linux {}.",
        jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC"),
        cpus(),
        mib(kib) / 1024.0,
        kernel.trim()
    );
    println!("{}.", versions.join("; "));
    println!("`{command}`");
    if !alone {
        println!(
            "Doubt: no network namespace can be made here (it takes `unshare` and `ip`, and root or user namespaces): probes \
             are what Vitals and Envoy count, and for HAProxy all connections of this machine."
        );
    }
    if !hardware_counters() {
        println!(
            "Linux has no hardware performance counters here: costs are CPU time, not cycles or instructions, and move with \
             the clock and the neighbours of this machine. Compare within one run."
        );
    }
    Ok(())
}

/// Whether the kernel offers the processor's own counters (to `perf stat -e instructions`).
fn hardware_counters() -> bool {
    let Ok(sources) = fs::read_dir("/sys/bus/event_source/devices") else {
        return false;
    };
    sources.flatten().any(|source| {
        let name = source.file_name();
        let name = name.to_string_lossy();
        name.starts_with("cpu") || name.starts_with("armv8")
    })
}

/// The first line that a binary prints for `--version`, without its path.
pub(super) fn version(binary: &Path) -> Result<String> {
    let output = Command::new(binary).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("unknown version");
    // Envoy says `PATH  version: HASH/1.40.0/Clean/RELEASE/BoringSSL`.
    Ok(match line.split_once("version: ") {
        Some((_, build)) => format!("Envoy {build}"),
        None => line.to_owned(),
    })
}
