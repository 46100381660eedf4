//! `cargo xtask bench probes`: what a probe costs Vitals, HAProxy and Envoy, on one machine, against one backend.
//!
//! In: types of checks, endpoints, an interval. Out: a table of CPU time per probe, lateness and memory, with ratios. The probers
//! run one after the other and take turns, round by round, so that what else the machine does weighs on all of them; a figure
//! is the median of its rounds, beside the least and the most. The endpoints are 127.1.0.1 and on, all of them one backend in a
//! process of its own. Not here: verdicts. Whether a probe is judged right is for the tests.

mod backend;
mod huge;
mod namespace;
mod prober;
mod report;
mod sample;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use self::backend::Backends;
use self::prober::{Binaries, Load, Prober, Running, refusal, seconds_or_ms};
use self::report::{Row, print_circumstances, print_doubts, print_table, version};
use super::measure::{memory, raise_descriptors, wait};
use crate::ToolArgs;
use crate::tools;
use crate::tools::debian::{self, Program};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Types of checks
    #[arg(
        long,
        value_delimiter = ',',
        ignore_case = true,
        default_value = "HTTP,TCP,HTTPS,GRPC"
    )]
    types: Vec<Kind>,
    /// Who is measured; a ratio needs Vitals
    #[arg(
        long,
        value_delimiter = ',',
        ignore_case = true,
        default_value = "Vitals,HAProxy,Envoy"
    )]
    probers: Vec<Prober>,
    /// Endpoints [default: 5000, with --huge 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    endpoints: Option<u32>,
    /// Endpoints for types with TLS, whose probes cost several times as much
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tls_endpoints: u32,
    /// How long each prober is measured in each round [default: 20, with --huge 60]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// How often the probers take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The checks' interval and timeout, such as 1s or 1500ms [default: 1s, with --huge 10s]
    #[arg(long, value_parser = duration)]
    interval: Option<Duration>,
    /// Vitals alone: 100,000 HTTP endpoints every 10 s
    #[arg(long, conflicts_with_all = ["types", "probers", "tls_endpoints", "rounds"])]
    huge: bool,
    /// This is the process in a network namespace of its own
    #[arg(long, hide = true)]
    in_namespace: bool,
}

/// A type of check that the bench knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(super) enum Kind {
    Http,
    Tcp,
    Https,
    Grpc,
}

impl Kind {
    /// As Vitals' configuration says it; the names of the check and of the service's protocol are the same.
    fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Tcp => "TCP",
            Self::Https => "HTTPS",
            Self::Grpc => "GRPC",
        }
    }
}

/// Long enough for every endpoint's first probes.
const WARM_UP: Duration = Duration::from_secs(5);

impl Args {
    fn endpoints(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Https => self.tls_endpoints,
            Kind::Http | Kind::Tcp | Kind::Grpc => {
                self.endpoints
                    .unwrap_or(if self.huge { 100_000 } else { 5000 })
            }
        }
    }

    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.huge { 60 } else { 20 })
    }

    fn interval(&self) -> Duration {
        self.interval
            .unwrap_or(Duration::from_secs(if self.huge { 10 } else { 1 }))
    }

    /// The arguments of xtask that do the same.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = vec!["bench".into(), "probes".into()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        if !self.huge {
            let types: Vec<_> = self.types.iter().map(|kind| kind.name()).collect();
            option("types", types.join(","));
            let probers: Vec<_> = self.probers.iter().map(|prober| prober.name()).collect();
            option("probers", probers.join(","));
            option("tls-endpoints", self.tls_endpoints.to_string());
            option("rounds", self.rounds.to_string());
        }
        option("endpoints", self.endpoints(Kind::Http).to_string());
        option("seconds", self.seconds().to_string());
        option("interval", seconds_or_ms(self.interval()));
        if self.huge {
            words.push("--huge".into());
        }
        words
    }
}

pub(crate) fn run(args: &Args, tool_args: &ToolArgs) -> Result<()> {
    // What must be brought is brought out here: in the namespace there is no network.
    let vitals = tools::vitals(tool_args, true)?;
    let envoy = match &tool_args.envoy_bin {
        _ if args.huge => PathBuf::new(),
        Some(found) if args.in_namespace => found.clone(),
        _ => tools::envoy(tool_args)?,
    };
    let [haproxy, nginx, _] = debian::programs()?;
    let binaries = Binaries {
        vitals,
        haproxy,
        envoy,
    };
    if args.in_namespace {
        namespace::raise_loopback()?;
    } else {
        namespace::enter(&inner_words(args, &binaries)?)?;
    }
    let alone = args.in_namespace;
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut backends = Backends::start(dir.path(), &nginx, raise_descriptors()?)?;

    if args.huge {
        let load = load(args, Kind::Http, &backends);
        let period = Duration::from_secs(args.seconds());
        huge::run(&binaries, &mut backends, load, period, alone, dir.path())?;
    } else {
        let rows = compare(args, &binaries, &mut backends, alone, dir.path())?;
        print_table(&rows);
        println!();
        print_doubts(&rows, args.interval().as_secs_f64());
    }
    let command = format!("cargo xtask {}", args.words().join(" "));
    let versions = versions(args, &binaries, &nginx)?;
    print_circumstances(&command, &versions, alone)
}

/// For the same command in a namespace of its own, where nothing can be brought any more.
fn inner_words(args: &Args, binaries: &Binaries) -> Result<Vec<String>> {
    let mut words = args.words();
    words.push("--in-namespace".into());
    let paths = [
        ("--vitals-bin", &binaries.vitals),
        ("--envoy-bin", &binaries.envoy),
    ];
    for (name, path) in paths {
        if !path.as_os_str().is_empty() {
            let path = path.to_str();
            let path = path.with_context(|| format!("{name}: not a path in UTF-8"))?;
            words.extend([name.to_owned(), path.to_owned()]);
        }
    }
    Ok(words)
}

fn versions(args: &Args, binaries: &Binaries, nginx: &Program) -> Result<Vec<String>> {
    let mut versions = vec![version(&binaries.vitals)?, nginx.version("-v")?];
    if !args.huge {
        versions.push(binaries.haproxy.version("-v")?);
        versions.push(version(&binaries.envoy)?);
    }
    Ok(versions)
}

/// All rounds of all types.
fn compare(
    args: &Args,
    binaries: &Binaries,
    backends: &mut Backends,
    alone: bool,
    dir: &Path,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in &args.types {
        for prober in &args.probers {
            rows.push(row(args, *kind, *prober, binaries, backends, dir)?);
        }
    }
    let period = Duration::from_secs(args.seconds());
    for round in 1..=args.rounds {
        let mut order: Vec<&mut Row> = rows.iter_mut().collect();
        // Another prober begins each time.
        for of_kind in order.chunks_mut(args.probers.len()) {
            of_kind.rotate_left(usize::try_from(round - 1)? % of_kind.len());
        }
        for row in order.into_iter().filter(|row| row.refusal.is_none()) {
            let load = load(args, row.kind, backends);
            let mut running = Running::start(row.prober, binaries, load, &folder(dir)?)?;
            let warm_up = WARM_UP.max(load.interval * 3);
            wait(warm_up, &mut [running.guard(), backends.guard(row.kind)])?;
            let sample = sample::take(&mut running, backends, row.kind, period, alone)?;
            eprintln!(
                "xtask: round {round} of {}: {} {}: {:.0} probes/s, {:.1} µs",
                args.rounds,
                row.kind.name(),
                row.prober.name(),
                sample.per_second(),
                sample.cost()
            );
            row.rounds.push(sample);
        }
    }
    Ok(rows)
}

/// A row without rounds: whether there will be any, and the memory of an idle process.
fn row(
    args: &Args,
    kind: Kind,
    prober: Prober,
    binaries: &Binaries,
    backends: &mut Backends,
    dir: &Path,
) -> Result<Row> {
    let load = load(args, kind, backends);
    let small = Load {
        endpoints: 1,
        ..load
    };
    let refusal = if !prober.can(kind) {
        Some("has no such check".into())
    } else if prober == Prober::Vitals {
        refusal(&binaries.vitals, small, &folder(dir)?)?
    } else {
        None
    };
    let mut idle_kib = 0.0;
    if refusal.is_none() {
        let mut running = Running::start(prober, binaries, small, &folder(dir)?)?;
        wait(Duration::from_secs(3), &mut [running.guard()])?;
        idle_kib = memory(running.guard().id(), "VmRSS:")?;
    }
    Ok(Row {
        kind,
        prober,
        endpoints: load.endpoints,
        refusal,
        idle_kib,
        rounds: Vec::new(),
    })
}

fn load(args: &Args, kind: Kind, backends: &Backends) -> Load {
    Load {
        kind,
        endpoints: args.endpoints(kind),
        port: backends.port(kind),
        interval: args.interval(),
    }
}

/// A new folder for one process; it goes with `dir`.
fn folder(dir: &Path) -> Result<PathBuf> {
    let folder = tempfile::tempdir_in(dir).context("cannot make a temporary folder")?;
    Ok(folder.keep())
}

fn duration(text: &str) -> Result<Duration, String> {
    let milliseconds = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok(),
        None => text
            .strip_suffix('s')
            .and_then(|number| number.parse::<u64>().ok()?.checked_mul(1000)),
    };
    match milliseconds {
        Some(ms @ 1..=86_400_000) => Ok(Duration::from_millis(ms)),
        _ => Err("a whole number and s or ms, up to a day, such as 1s or 1500ms".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_seconds_or_milliseconds() {
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "s", "1", "0s", "-1s", "1m", "99999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
