//! `cargo xtask bench steady`: a release server that probes many healthy endpoints, and one process that answers all.
//!
//! In: number of endpoints, interval, duration. Out: probes, lateness, INCONCLUSIVE, CPU per probe, memory per endpoint (over
//! the memory of the same server with one endpoint). The endpoints are 127.1.x.y on one port, answered by one backend that
//! listens on all addresses and takes part of the same machine; its CPU time is printed too.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::measure::{cpu, cpus, free_port, memory, mib, wait};
use super::metrics::quantile;
use super::server::{Server, write_config};
use crate::ToolArgs;
use crate::process::Guard;
use crate::tools;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Endpoints, at most 65,000
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    endpoints: u16,
    /// How long to measure, after a warm-up of 5 s
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The check's interval and timeout
    #[arg(long, default_value = "1s")]
    interval: String,
    /// The check's type
    #[arg(long, default_value = "HTTP", value_parser = ["HTTP", "TCP"])]
    r#type: String,
}

const WARM_UP: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Args, tool_args: &ToolArgs) -> Result<()> {
    let vitals = tools::vitals(tool_args, true)?;
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let port = free_port(Ipv4Addr::UNSPECIFIED)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["backend", "--listen", &format!("0.0.0.0:{port}")]);
    let mut backend = Guard::start("backend", &mut command, &dir.path().join("backend.log"))?;

    let mut small = start(&vitals, &dir.path().join("small"), args, 1, port)?;
    wait(WARM_UP, &mut [&mut small.guard])?;
    let base_kib = memory(small.guard.id(), "VmHWM:")?;
    drop(small);

    let all = dir.path().join("all");
    let mut server = start(&vitals, &all, args, args.endpoints, port)?;
    let id = server.guard.id();
    wait(WARM_UP, &mut [&mut server.guard, &mut backend])?;
    let (before, own, others) = (server.metrics()?, cpu(id)?, cpu(backend.id())?);
    let start = Instant::now();
    let period = Duration::from_secs(args.seconds);
    wait(period, &mut [&mut server.guard, &mut backend])?;
    let after = server.metrics()?;
    let (seconds, cpu_used) = (start.elapsed().as_secs_f64(), cpu(id)? - own);
    let backend_cpu = cpu(backend.id())? - others;

    let probes = |label: &str| {
        let name = "vitals_probes_total";
        after.sum(name, label) - before.sum(name, label)
    };
    let all = probes("");
    let lateness = |share| match quantile(&before, &after, "vitals_probe_lateness_seconds", share) {
        Some(seconds) => format!("at most {:.1} ms", seconds * 1e3),
        None => "not told".into(),
    };
    let peak_kib = memory(id, "VmHWM:")?;
    println!(
        "{} endpoints, {} every {}, {seconds:.0} s, {} CPUs",
        args.endpoints,
        args.r#type,
        args.interval,
        cpus()
    );
    println!(
        "probes                {all:.0} ({:.0} per second)",
        all / seconds
    );
    println!("lateness p50          {}", lateness(0.5));
    println!("lateness p99          {}", lateness(0.99));
    for outcome in ["PASS", "FAIL", "TIMEOUT", "INCONCLUSIVE"] {
        println!(
            "{outcome:<21} {:.0}",
            probes(&format!("outcome=\"{outcome}\""))
        );
    }
    println!(
        "CPU                   {:.1} % of one core, {:.1} µs per probe",
        cpu_used / seconds * 100.0,
        cpu_used / all * 1e6
    );
    println!(
        "CPU of the backend    {:.1} % of one core",
        backend_cpu / seconds * 100.0
    );
    println!(
        "memory                {:.1} MiB at its peak, {:.1} MiB at the end",
        mib(peak_kib),
        mib(memory(id, "VmRSS:")?)
    );
    let per_endpoint = (peak_kib - base_kib) * 1024.0 / f64::from(args.endpoints);
    println!(
        "memory per endpoint   {per_endpoint:.0} bytes over a server with one endpoint ({:.1} MiB)",
        mib(base_kib)
    );
    Ok(())
}

fn start(vitals: &Path, dir: &Path, args: &Args, endpoints: u16, port: u16) -> Result<Server> {
    fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let config = config(dir, args, endpoints, port)?;
    Server::start(vitals, dir, &config)
}

fn config(dir: &Path, args: &Args, endpoints: u16, port: u16) -> Result<PathBuf> {
    let check = format!(
        "type: {}, checkInterval: {i}, timeout: {i}",
        args.r#type,
        i = args.interval
    );
    write_config(dir, &check, &args.r#type, endpoints.into(), port)
}
