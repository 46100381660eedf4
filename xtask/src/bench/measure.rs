//! What the kernel tells of processes and of the machine, and the waits between two looks.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;

use crate::process::{Guard, check_interrupt, pause};

/// User and system time of a process, over all of its threads, in seconds.
pub(super) fn cpu(id: u32) -> Result<f64> {
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

/// What all processors have spent on anything, in seconds.
pub(super) fn machine_cpu() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    // cpu user nice system idle iowait irq softirq steal; guests are in user already.
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _, _, irq, softirq, steal] = ticks[..] else {
        bail!("/proc/stat begins with `{line}`");
    };
    Ok((user + nice + system + irq + softirq + steal) / 100.0)
}

/// A line of `/proc/PID/status`, in KiB.
pub(super) fn memory(id: u32, key: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
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

/// Connections that were begun in this network namespace, by anybody: the kernel counts them as their SYN is sent.
pub(super) fn connections() -> Result<f64> {
    let snmp = fs::read_to_string("/proc/self/net/snmp")?;
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (Some(names), Some(values)) = (tcp.next(), tcp.next()) else {
        bail!("/proc/self/net/snmp has no Tcp lines");
    };
    names
        .split_whitespace()
        .zip(values.split_whitespace())
        .find(|(name, _)| *name == "ActiveOpens")
        .and_then(|(_, value)| value.parse().ok())
        .context("/proc/self/net/snmp has no ActiveOpens")
}

/// Lets the children have as many descriptors as this machine allows. Returns how many that is.
pub(super) fn raise_descriptors() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of descriptors")?;
    Ok(limit.maximum.unwrap_or(1 << 20))
}

/// Lets time pass while all of `processes` run.
pub(super) fn wait(period: Duration, processes: &mut [&mut Guard]) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < period {
        check_interrupt()?;
        for process in processes.iter_mut() {
            process.must_run()?;
        }
        pause(Duration::from_millis(50));
    }
    Ok(())
}

pub(super) fn free_port(address: Ipv4Addr) -> Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}

pub(super) fn mib(kib: f64) -> f64 {
    kib / 1024.0
}

pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
