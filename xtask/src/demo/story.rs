//! The story: all well, one backend killed, it leaves, all well without it, it comes back.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

use super::observe::{Watch, say};
use super::stage::Stage;
use super::traffic::{Sample, Traffic, count};
use crate::process::pause;

const PATIENCE: Duration = Duration::from_secs(30);
const HEALTHY: &str = "healthy";
const FAILED: &str = "failed_eds_health";

/// Plays it; an error when it does not go as it should.
pub(super) fn tell(stage: &mut Stage, watch: &mut Watch, traffic: &Traffic) -> Result<()> {
    let start = stage.begun();
    let [_, victim, _] = stage.ports().backends();
    for backend in stage.ports().backends() {
        wait_for(stage, watch, backend, HEALTHY)?;
    }
    let steady = Instant::now();
    pass(stage, watch, Duration::from_secs(3))?;

    let killed = Instant::now();
    stage.kill(victim)?;
    say(start, &format!("backend {victim} killed (SIGKILL)"));
    wait_for(stage, watch, victim, FAILED)?;
    let left = Instant::now();
    say(
        start,
        &format!(
            "it has left: {:.3} s after it was killed",
            seconds(killed, left)
        ),
    );
    pass(stage, watch, Duration::from_secs(3))?;

    let revived = Instant::now();
    stage.revive(victim)?;
    say(start, &format!("backend {victim} started again"));
    wait_for(stage, watch, victim, HEALTHY)?;
    let back = Instant::now();
    say(
        start,
        &format!(
            "it is back: {:.3} s after it was started",
            seconds(revived, back)
        ),
    );
    pass(stage, watch, Duration::from_secs(3))?;

    let phases = [
        ("all well", between(traffic, steady, Some(killed))),
        ("killed, still in", between(traffic, killed, Some(left))),
        ("left", between(traffic, left, Some(back))),
        ("back", between(traffic, back, None)),
    ];
    println!("\nrequests by phase and by who answered");
    for (phase, samples) in &phases {
        let counts: Vec<String> = count(samples)
            .iter()
            .map(|(who, count)| format!("{who}: {count}"))
            .collect();
        println!(
            "  {phase:<17} {:>4}   {}",
            samples.len(),
            counts.join("   ")
        );
    }
    judge(start, victim, &phases, traffic, left)
}

fn judge(
    start: Instant,
    victim: SocketAddr,
    phases: &[(&str, Vec<Sample>)],
    traffic: &Traffic,
    left: Instant,
) -> Result<()> {
    let failed: Vec<Sample> = traffic
        .since(start)
        .into_iter()
        .filter(|sample| sample.answer.is_err())
        .collect();
    match failed.last() {
        None => println!("no request failed at all"),
        Some(last) => println!(
            "{} requests failed; the last was sent at +{:.3} s, Envoy showed the backend as failed at +{:.3} s",
            failed.len(),
            seconds(start, last.sent),
            seconds(start, left)
        ),
    }
    let after = failed.iter().filter(|sample| sample.sent >= left).count();
    if after > 0 {
        bail!("{after} requests failed after the killed backend had left");
    }
    let address = victim.ip().to_string();
    for (phase, samples) in phases {
        let served = samples
            .iter()
            .any(|sample| sample.answer.as_ref() == Ok(&address));
        match *phase {
            "all well" | "back" if !served => bail!("{address} got no request in phase `{phase}`"),
            _ => {}
        }
    }
    println!("no request failed after the killed backend had left");
    Ok(())
}

fn between(traffic: &Traffic, from: Instant, to: Option<Instant>) -> Vec<Sample> {
    let mut samples = traffic.since(from);
    samples.retain(|sample| to.is_none_or(|to| sample.sent < to));
    samples
}

/// Looks until Envoy shows these flags.
fn wait_for(stage: &mut Stage, watch: &mut Watch, backend: SocketAddr, flags: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        stage.check()?;
        watch.look()?;
        if watch.flags(backend) == flags {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            bail!(
                "after {} s Envoy shows {backend} as {}, not {flags}; vitals says {}",
                PATIENCE.as_secs(),
                watch.flags(backend),
                watch.status(backend)
            );
        }
        pause(Duration::from_millis(20));
    }
}

/// Looks for a while.
fn pass(stage: &mut Stage, watch: &mut Watch, period: Duration) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < period {
        stage.check()?;
        watch.look()?;
        pause(Duration::from_millis(20));
    }
    Ok(())
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64()
}
