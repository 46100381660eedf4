//! `vitals-swarm`: thousands of xDS clients in one process, and the endpoints that are probed, so that one clock tells how
//! long it takes from a probe's answer to the last client's ACK. `cargo xtask bench fanout` starts it and talks to it.
//!
//! In, on stdin: a command per line. Out, on stdout: a JSON object per command, after one with the port of the targets.
//!
//! ```text
//! connect HOST:PORT     until all streams are in step; also after the server was started anew
//! flips COUNT GAP_MS    so many flips, one after the other
//! flap SECONDS          the endpoints that may flap do so for a while
//! count                 what came in since the last count
//! ```
//!
//! It ends when its stdin does. Not here: what the server costs; xtask reads that from the kernel.

mod client;
mod tally;
mod target;
mod wire;

use std::io::BufRead;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Swarm, connection};
use crate::target::{Flip, Targets};
use crate::wire::Form;

/// Thousands of xDS clients, for the bench.
#[derive(Parser)]
struct Args {
    #[arg(long, value_enum)]
    form: Form,
    #[arg(long)]
    streams: usize,
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    services: usize,
    /// Endpoints of each service
    #[arg(long)]
    endpoints: usize,
    /// How many services, the last ones, may flap
    #[arg(long)]
    flapping_services: usize,
    /// Streams that read nothing after their first state
    #[arg(long, default_value_t = 0)]
    deaf: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let args = Args::parse();
    let steady = args.services.saturating_sub(args.flapping_services);
    let targets = Targets::start(steady * args.endpoints)?;
    let swarm = Arc::new(Swarm::new(
        args.form,
        args.streams,
        args.services,
        args.endpoints,
        args.deaf,
    ));
    let (server, connect) = watch::channel(None);
    start(&args, &swarm, &connect)?;
    println!("{}", json!({ "port": targets.port }));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match *words {
            ["connect", address] => {
                let address: SocketAddr = address.parse().context("connect HOST:PORT")?;
                server.send_replace(Some(address));
                wait_in_step(&swarm)
            }
            ["flips", count, gap] => {
                let gap = Duration::from_millis(gap.parse()?);
                flips(&swarm, &targets, args.endpoints, count.parse()?, gap)?
            }
            ["flap", seconds] => flap(&swarm, &targets, Duration::from_secs(seconds.parse()?)),
            ["count"] => counts(&swarm),
            _ => bail!("no such command: {line}"),
        };
        println!("{answer}");
    }
    // Threads and tasks go with the process.
    std::process::exit(0);
}

/// Spreads the streams over the connections, and those over the threads.
fn start(
    args: &Args,
    swarm: &Arc<Swarm>,
    connect: &watch::Receiver<Option<SocketAddr>>,
) -> Result<()> {
    let (connections, threads) = (args.connections.clamp(1, args.streams), args.threads.max(1));
    for thread in 0..threads {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (swarm, connect, streams) = (Arc::clone(swarm), connect.clone(), args.streams);
        std::thread::spawn(move || {
            runtime.block_on(async {
                for number in (thread..connections).step_by(threads) {
                    let first = number * streams / connections;
                    let end = (number + 1) * streams / connections;
                    tokio::spawn(connection(
                        Arc::clone(&swarm),
                        connect.clone(),
                        first,
                        end - first,
                    ));
                }
                std::future::pending::<()>().await;
            });
        });
    }
    Ok(())
}

fn wait_in_step(swarm: &Swarm) -> Value {
    let start = Instant::now();
    let (before, _) = swarm.tally.in_step();
    loop {
        let (count, all_at) = swarm.tally.in_step();
        if let Some(at) = all_at {
            let seconds = at.saturating_duration_since(start).as_secs_f64();
            return json!({ "in_step": count, "before": before, "seconds": seconds });
        }
        if start.elapsed() > PATIENCE {
            return json!({ "in_step": count, "before": before, "error": "not all streams came in step" });
        }
        pause(Duration::from_millis(5));
    }
}

fn flips(
    swarm: &Arc<Swarm>,
    targets: &Targets,
    endpoints: usize,
    count: usize,
    gap: Duration,
) -> Result<Value> {
    let (mut last, mut all) = (Vec::new(), Vec::new());
    let bytes = swarm.tally.bytes.load(Ordering::Relaxed);
    for _ in 0..count {
        let (to, flipped) = mpsc::sync_channel(1);
        let streams = Arc::clone(swarm);
        targets.flip(Box::new(move |flip: Flip| {
            let service = flip.endpoint / endpoints.max(1);
            streams.tally.begin_flip(service, flip.endpoint);
            to.send(flip).ok();
        }));
        let flip = flipped.recv_timeout(PATIENCE).context("no probe came")?;
        let acks = swarm.tally.all_acks(Duration::from_secs(30));
        let mut of_flip: Vec<f64> = acks
            .iter()
            .map(|at| at.saturating_duration_since(flip.at).as_secs_f64() * 1e3)
            .collect();
        of_flip.sort_by(f64::total_cmp);
        if acks.len() < swarm.tally.streams() {
            let missing = swarm.tally.streams() - acks.len();
            return Ok(
                json!({ "error": format!("{missing} streams did not acknowledge flip {}", last.len()) }),
            );
        }
        last.extend(of_flip.last());
        all.extend(of_flip);
        pause(gap);
    }
    last.sort_by(f64::total_cmp);
    all.sort_by(f64::total_cmp);
    let bytes = swarm.tally.bytes.load(Ordering::Relaxed) - bytes;
    Ok(json!({
        "flips": count, "bytes": bytes,
        "last": { "p50": quantile(&last, 0.5), "p99": quantile(&last, 0.99), "max": quantile(&last, 1.0) },
        "each": { "p50": quantile(&all, 0.5), "p99": quantile(&all, 0.99), "max": quantile(&all, 1.0) },
    }))
}

fn flap(swarm: &Swarm, targets: &Targets, period: Duration) -> Value {
    let before = targets.flaps();
    let bytes = swarm.tally.bytes.load(Ordering::Relaxed);
    targets.set_flapping(true);
    // The first second is the start of it.
    pause(Duration::from_secs(1));
    swarm.tally.record(true);
    pause(period);
    let lags = swarm.tally.record(false);
    targets.set_flapping(false);
    let mut lags: Vec<f64> = lags.into_iter().map(f64::from).collect();
    lags.sort_by(f64::total_cmp);
    let bytes = swarm.tally.bytes.load(Ordering::Relaxed) - bytes;
    json!({
        "flaps": targets.flaps() - before, "bytes": bytes, "responses": lags.len(),
        "lag": { "p50": quantile(&lags, 0.5), "p99": quantile(&lags, 0.99), "max": quantile(&lags, 1.0) },
    })
}

fn counts(swarm: &Swarm) -> Value {
    let tally = &swarm.tally;
    let take = |count: &std::sync::atomic::AtomicU64| count.swap(0, Ordering::Relaxed);
    json!({
        "bytes": take(&tally.bytes), "messages": take(&tally.messages), "resources": take(&tally.resources),
        "removed": take(&tally.removed), "resent": take(&tally.resent), "disconnects": take(&tally.disconnects),
    })
}

/// The value below which that share of a sorted list lies.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place in a list"
)]
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = ((sorted.len() as f64 * share).ceil() as usize).max(1) - 1;
    sorted.get(place).copied()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the measurement lets time pass on purpose; the streams live on other threads"
)]
fn pause(period: Duration) {
    std::thread::sleep(period);
}
