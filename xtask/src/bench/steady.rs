//! `cargo xtask bench steady`: a release server that probes many healthy endpoints, and one process that answers all.
//!
//! In: number of endpoints, interval, duration. Out: probes, lateness, INCONCLUSIVE, CPU per probe, memory per endpoint (over
//! the memory of the same server with one endpoint). The endpoints are 127.1.x.y on one port, answered by one backend that
//! listens on all addresses and takes part of the same machine; its CPU time is printed too.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::time::Instant;
use ureq::Agent;

use super::metrics::{Page, quantile};
use crate::ToolArgs;
use crate::process::{Guard, check_interrupt, pause};
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
    let backend = Guard::start("backend", &mut command, &dir.path().join("backend.log"))?;

    let small = Server::start(&vitals, &dir, args, 1, port)?;
    wait(WARM_UP)?;
    let base_kib = small.memory("VmHWM:")?;
    drop(small);

    let mut server = Server::start(&vitals, &dir, args, args.endpoints, port)?;
    wait(WARM_UP)?;
    let (before, cpu, backend_cpu) = (server.metrics()?, server.cpu()?, cpu(backend.id())?);
    let start = Instant::now();
    wait(Duration::from_secs(args.seconds))?;
    let after = server.metrics()?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu()? - cpu);
    let backend_cpu = self::cpu(backend.id())? - backend_cpu;
    server.guard.must_run()?;

    let probes = |label: &str| {
        let name = "vitals_probes_total";
        after.sum(name, label) - before.sum(name, label)
    };
    let all = probes("");
    let lateness = |share| match quantile(&before, &after, "vitals_probe_lateness_seconds", share) {
        Some(seconds) => format!("at most {:.1} ms", seconds * 1e3),
        None => "not told".into(),
    };
    let peak_kib = server.memory("VmHWM:")?;
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
        cpu / seconds * 100.0,
        cpu / all * 1e6
    );
    println!(
        "CPU of the backend    {:.1} % of one core",
        backend_cpu / seconds * 100.0
    );
    println!(
        "memory                {:.1} MiB at its peak, {:.1} MiB at the end",
        mib(peak_kib),
        mib(server.memory("VmRSS:")?)
    );
    let per_endpoint = (peak_kib - base_kib) * 1024.0 / f64::from(args.endpoints);
    println!(
        "memory per endpoint   {per_endpoint:.0} bytes over a server with one endpoint ({:.1} MiB)",
        mib(base_kib)
    );
    Ok(())
}

struct Server {
    guard: Guard,
    admin: SocketAddr,
}

impl Server {
    fn start(vitals: &Path, dir: &TempDir, args: &Args, endpoints: u16, port: u16) -> Result<Self> {
        let config = config(dir, args, endpoints, port)?;
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)?));
        let mut command = Command::new(vitals);
        command.arg("serve").arg("--config").arg(config);
        command.args([
            "--xds-listen",
            "127.0.0.1:0",
            "--admin-listen",
            &admin.to_string(),
        ]);
        command
            .arg("--state-dir")
            .arg(dir.path().join(format!("state-{endpoints}")));
        let log = dir.path().join(format!("vitals-{endpoints}.log"));
        let mut server = Self {
            guard: Guard::start("vitals", &mut command, &log)?,
            admin,
        };
        let start = Instant::now();
        while server.get("/readyz").is_err() {
            server.guard.must_run()?;
            check_interrupt()?;
            if start.elapsed() > Duration::from_secs(60) {
                bail!("vitals is not ready after a minute");
            }
            pause(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn get(&self, path: &str) -> Result<String> {
        let agent: Agent = Agent::config_builder()
            .proxy(None)
            .timeout_global(Some(Duration::from_secs(10)))
            .build()
            .into();
        let url = format!("http://{}{path}", self.admin);
        Ok(agent.get(&url).call()?.body_mut().read_to_string()?)
    }

    fn metrics(&self) -> Result<Page> {
        Ok(Page::parse(&self.get("/metrics")?))
    }

    fn cpu(&self) -> Result<f64> {
        cpu(self.guard.id())
    }

    /// A line of `/proc/PID/status`, in KiB.
    fn memory(&self, key: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.guard.id()))?;
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix(key)?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .with_context(|| format!("no {key} in /proc"))
    }
}

fn config(dir: &TempDir, args: &Args, endpoints: u16, port: u16) -> Result<PathBuf> {
    let mut text = format!(
        "healthChecks: [{{ name: web, type: {}, checkInterval: {i}, timeout: {i} }}]\n\
         backendServices: [{{ name: shop, protocol: HTTP, healthCheck: web, backends: [{{ group: dc1 }}] }}]\n\
         fleets: [{{ name: edge, match: {{ cluster: edge }}, listeners: [{{ name: http, port: 10000, routes: [{{ service: shop }}] }}] }}]\n\
         endpointGroups:\n- name: dc1\n  type: NON_GCP_PRIVATE_IP_PORT\n  endpoints:\n",
        args.r#type,
        i = args.interval,
    );
    for n in 1..=endpoints {
        let [high, low] = n.to_be_bytes();
        writeln!(text, "  - {{ address: 127.1.{high}.{low}, port: {port} }}")?;
    }
    let path = dir.path().join(format!("vitals-{endpoints}.yaml"));
    fs::write(&path, text)?;
    Ok(path)
}

/// User and system time of a process, in seconds.
fn cpu(id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // After the name, which may hold anything, in parentheses: state is field 3, utime 14, stime 15.
    let (_, rest) = stat.rsplit_once(')').context("/proc/PID/stat")?;
    let mut ticks = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    match (ticks.next(), ticks.next()) {
        // The kernel's USER_HZ is 100 on every Linux.
        (Some(Ok(user)), Some(Ok(system))) => Ok((user + system) / 100.0),
        _ => bail!("/proc/{id}/stat has no times"),
    }
}

fn wait(period: Duration) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < period {
        check_interrupt()?;
        pause(Duration::from_millis(50));
    }
    Ok(())
}

fn free_port(address: Ipv4Addr) -> Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}

fn mib(kib: f64) -> f64 {
    kib / 1024.0
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
