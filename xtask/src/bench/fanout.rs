//! `cargo xtask bench fanout`: how long it takes from one probe's changed answer to the last client's ACK, and what each
//! client costs.
//!
//! In: how many clients, services, endpoints. Out: figures. One process is the server, another (`swarm/`) is all clients and
//! all endpoints, on the same machine: its work is in the latencies, and its CPU time is printed beside the server's. Every
//! flip is a real one: the next probe of any endpoint gets another answer than the one before, and the checks' thresholds
//! are 1. Not here: what a client holds is for the tests; here it only counts.

mod swarm;

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;
use tokio::time::Instant;

use self::swarm::Swarm;
use super::measure::{cpu, cpus, free_port, memory, mib, raise_descriptors, wait};
use super::metrics::{Page, quantile};
use super::server::{Server, addresses};
use crate::ToolArgs;
use crate::tools;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is measured; the other flags change its size
    #[arg(long, value_enum, ignore_case = true, default_value = "mesh")]
    scenario: Scenario,
    /// Clients, a stream each
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: Option<u32>,
    /// Connections that the streams are spread over [default: one per stream]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,
    /// Services, each a cluster
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    services: Option<u32>,
    /// Endpoints of each service
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    endpoints: Option<u32>,
    /// How the clients speak; leds is delta with endpoints apart from their load assignments
    #[arg(long, default_value = "delta", value_parser = ["delta", "sotw", "leds"])]
    form: String,
    /// How many flips are measured
    #[arg(long, default_value_t = 50)]
    flips: u32,
    /// Milliseconds from the last ACK of a flip to the next flip
    #[arg(long, default_value_t = 100)]
    gap: u32,
    /// Clients, of all, that read nothing after their first state
    #[arg(long, default_value_t = 0)]
    deaf: u32,
    /// How long endpoints flap, in the scenario of that name
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// 1,000 clients, one cluster of 10,000 endpoints
    OneCluster,
    /// 5,000 clients, 100 clusters of 100 endpoints
    Mesh,
    /// The same, and the server is started anew
    Restart,
    /// 1,000 clients, 100 clusters of 100 endpoints, of which 1,000 flap every second
    Flap,
}

/// What is measured with.
pub(super) struct Size {
    form: String,
    streams: u32,
    connections: u32,
    services: u32,
    endpoints: u32,
    flapping_services: u32,
    deaf: u32,
}

impl Args {
    fn size(&self) -> Size {
        let (streams, services, endpoints) = match self.scenario {
            Scenario::OneCluster => (1000, 1, 10_000),
            Scenario::Mesh | Scenario::Restart => (5000, 100, 100),
            Scenario::Flap => (1000, 100, 100),
        };
        let (streams, services, endpoints) = (
            self.streams.unwrap_or(streams),
            self.services.unwrap_or(services),
            self.endpoints.unwrap_or(endpoints),
        );
        Size {
            form: self.form.clone(),
            streams,
            connections: self.connections.unwrap_or(streams).min(streams),
            services,
            endpoints,
            flapping_services: match self.scenario {
                Scenario::Flap => 1000_u32.div_ceil(endpoints).min(services),
                Scenario::OneCluster | Scenario::Mesh | Scenario::Restart => 0,
            },
            deaf: self.deaf.min(streams - 1),
        }
    }
}

/// How long the server's own work is measured without any flip.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Args, tool_args: &ToolArgs) -> Result<()> {
    if args.scenario == Scenario::Flap && args.form == "leds" {
        bail!(
            "lags are measured by the versions of responses, which LEDS leaves out; take --form delta"
        );
    }
    raise_descriptors()?;
    let (size, vitals) = (args.size(), tools::vitals(tool_args, true)?);
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut swarm = Swarm::start(&size)?;
    let config = config(dir.path(), &size, swarm.port)?;
    let xds = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)?));
    let mut server = Server::start_at(&vitals, dir.path(), &config, xds)?;
    // Every endpoint has spoken within the checks' interval.
    wait(INTERVAL + Duration::from_secs(2), &mut [&mut server.guard])?;
    println!(
        "{} {} clients over {} connections, {} clusters of {} endpoints; {} CPUs, load {}",
        size.streams,
        size.form,
        size.connections,
        size.services,
        size.endpoints,
        cpus(),
        load()
    );
    let before = rss(&server)?;
    swarm.ask("count")?;
    let connected = swarm.ask(&format!("connect {xds}"))?;
    let counted = swarm.ask("count")?;
    println!(
        "connect               all in step after {:.2} s, {:.1} MB",
        number(&connected, &["seconds"]),
        number(&counted, &["bytes"]) / 1e6
    );
    wait(Duration::from_secs(2), &mut [&mut server.guard])?;
    let with = rss(&server)?;
    println!(
        "memory                {:.1} MiB, {:.1} MiB before the clients came: {:.1} KiB per stream",
        mib(with),
        mib(before),
        (with - before) / f64::from(size.streams)
    );
    let id = server.guard.id();
    let (idle, start) = (cpu(id)?, Instant::now());
    wait(IDLE, &mut [&mut server.guard])?;
    let idle = (cpu(id)? - idle) / start.elapsed().as_secs_f64();
    println!(
        "CPU without flips     {:.1} % of one core (probes)",
        idle * 100.0
    );
    match args.scenario {
        Scenario::OneCluster | Scenario::Mesh => flips(args, &size, &mut swarm, &server, idle)?,
        Scenario::Restart => {
            flips(args, &size, &mut swarm, &server, idle)?;
            server = restart(
                &mut swarm,
                server,
                || Server::start_at(&vitals, dir.path(), &config, xds),
                xds,
            )?;
        }
        Scenario::Flap => flap(args, &size, &mut swarm, &mut server)?,
    }
    println!(
        "memory at the end     {:.1} MiB, {:.1} MiB at its peak; load {}",
        mib(rss(&server)?),
        mib(memory(server.guard.id(), "VmHWM:")?),
        load()
    );
    Ok(())
}

fn flips(args: &Args, size: &Size, swarm: &mut Swarm, server: &Server, idle: f64) -> Result<()> {
    let (id, other) = (server.guard.id(), swarm.id());
    let (own, others, start) = (cpu(id)?, cpu(other)?, Instant::now());
    let page = server.metrics()?;
    let told = swarm.ask(&format!("flips {} {}", args.flips, args.gap))?;
    let seconds = start.elapsed().as_secs_f64();
    let (own, others) = (cpu(id)? - own - idle * seconds, cpu(other)? - others);
    let each = f64::from(args.flips) * f64::from(size.streams - size.deaf);
    for (what, key) in [("flip → last ACK", "last"), ("flip → each ACK", "each")] {
        println!(
            "{what}       p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
            number(&told, &[key, "p50"]),
            number(&told, &[key, "p99"]),
            number(&told, &[key, "max"])
        );
    }
    println!(
        "pushes                {}",
        pushes(&page, &server.metrics()?)
    );
    println!(
        "bytes                 {:.0} per flip and stream",
        number(&told, &["bytes"]) / each
    );
    println!(
        "CPU                   {:.1} µs per flip and stream; the swarm {:.1} µs",
        own / each * 1e6,
        others / each * 1e6
    );
    Ok(())
}

fn restart(
    swarm: &mut Swarm,
    server: Server,
    start: impl FnOnce() -> Result<Server>,
    xds: SocketAddr,
) -> Result<Server> {
    swarm.ask("count")?;
    let began = Instant::now();
    drop(server);
    let server = start()?;
    let ready = began.elapsed().as_secs_f64();
    swarm.ask(&format!("connect {xds}"))?;
    let quiet = began.elapsed().as_secs_f64();
    let counted = swarm.ask("count")?;
    println!(
        "restart               ready after {ready:.1} s, all in step after {quiet:.1} s; {:.0} reconnected, {:.1} MB, \
         {:.0} resources, {:.0} of them unchanged",
        number(&counted, &["disconnects"]),
        number(&counted, &["bytes"]) / 1e6,
        number(&counted, &["resources"]),
        number(&counted, &["resent"]),
    );
    Ok(server)
}

fn flap(args: &Args, size: &Size, swarm: &mut Swarm, server: &mut Server) -> Result<()> {
    let (id, other) = (server.guard.id(), swarm.id());
    let (own, others, start) = (cpu(id)?, cpu(other)?, Instant::now());
    let page = server.metrics()?;
    swarm.say(&format!("flap {}", args.seconds))?;
    let mut samples = Vec::new();
    while start.elapsed() < Duration::from_secs(args.seconds + 1) {
        wait(
            Duration::from_secs(args.seconds.div_ceil(10).max(1)),
            &mut [&mut server.guard],
        )?;
        samples.push(format!("{:.0}", mib(rss(server)?)));
    }
    let told = swarm.answer()?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "flapping              {:.0} flips in {seconds:.0} s; {:.0} responses, {:.1} a second to each stream, {:.1} MB a second",
        number(&told, &["flaps"]),
        number(&told, &["responses"]),
        number(&told, &["responses"])
            / f64::from(size.streams - size.deaf)
            / f64::from(u32::try_from(args.seconds)?),
        number(&told, &["bytes"]) / 1e6 / seconds
    );
    println!(
        "lag of each stream    p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
        number(&told, &["lag", "p50"]),
        number(&told, &["lag", "p99"]),
        number(&told, &["lag", "max"])
    );
    println!(
        "pushes                {}",
        pushes(&page, &server.metrics()?)
    );
    println!(
        "CPU                   {:.0} % of one core; the swarm {:.0} %",
        (cpu(id)? - own) / seconds * 100.0,
        (cpu(other)? - others) / seconds * 100.0
    );
    println!("memory on the way     {} MiB", samples.join(" "));
    Ok(())
}

/// What the server itself says of the time from a verdict to the writing of it.
fn pushes(before: &Page, after: &Page) -> String {
    let told = |share| match quantile(before, after, "vitals_xds_push_seconds", share) {
        Some(seconds) => format!("at most {:.0} ms", seconds * 1e3),
        None => "not told".into(),
    };
    format!("verdict → written: p50 {}, p99 {}", told(0.5), told(0.99))
}

fn rss(server: &Server) -> Result<f64> {
    memory(server.guard.id(), "VmRSS:")
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn number(value: &Value, path: &[&str]) -> f64 {
    let found = path.iter().try_fold(value, |value, key| value.get(key));
    found.and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The interval of the checks that do not flap.
const INTERVAL: Duration = Duration::from_secs(10);

fn config(dir: &Path, size: &Size, port: u16) -> Result<PathBuf> {
    let steady = size.services - size.flapping_services;
    let mut text = String::from(
        "healthChecks:\n\
         - { name: steady, type: HTTP, checkInterval: 10s, timeout: 5s, healthyThreshold: 1, unhealthyThreshold: 1 }\n\
         - { name: flap, type: HTTP, checkInterval: 1s, timeout: 1s, healthyThreshold: 1, unhealthyThreshold: 1 }\n",
    );
    let discovery = if size.form == "leds" { "LEDS" } else { "EDS" };
    writeln!(
        text,
        "fleets: [{{ name: edge, match: {{ cluster: edge }}, endpointDiscovery: {discovery} }}]\nbackendServices:"
    )?;
    for number in 0..size.services {
        let check = if number < steady { "steady" } else { "flap" };
        writeln!(
            text,
            "- {{ name: s-{number:05}, protocol: HTTP, healthCheck: {check}, backends: [{{ group: g-{number:05} }}], \
             probing: {{ by: [PROBERS], guard: {{ enabled: false }} }} }}"
        )?;
    }
    text.push_str("endpointGroups:\n");
    let mut addresses = addresses(size.services * size.endpoints);
    for number in 0..size.services {
        writeln!(
            text,
            "- name: g-{number:05}\n  type: NON_GCP_PRIVATE_IP_PORT\n  endpoints:"
        )?;
        for address in addresses.by_ref().take(size.endpoints as usize) {
            writeln!(text, "  - {{ address: {address}, port: {port} }}")?;
        }
    }
    let path = dir.join("vitals.yaml");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
