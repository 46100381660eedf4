//! The scene after the story: a table every second, until Ctrl-C. A backend that somebody kills is started again.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::observe::{Watch, say};
use super::stage::Stage;
use super::traffic::{Traffic, count};
use crate::process::{interrupted, pause};

const TABLE_LINES: u8 = 5;
const REVIVE_AFTER: Duration = Duration::from_secs(10);

/// Shows it until Ctrl-C.
pub(super) fn show(stage: &mut Stage, watch: &mut Watch, traffic: &Traffic) -> Result<()> {
    println!(
        "\nNow it is your turn: kill a backend (its process id is in the table); it is started again after 10 s."
    );
    println!(
        "Requests: curl http://{}/    Health: curl http://{}/v1/endpoints    End: Ctrl-C\n",
        stage.ports().listener(),
        stage.ports().admin()
    );
    let mut dead_since: Option<(SocketAddr, Instant)> = None;
    // Whether the last thing on the screen is the table, so that the next one may take its place.
    let mut table_is_last = false;
    while !interrupted() {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) && !interrupted() {
            table_is_last &= !watch.look()?;
            pause(Duration::from_millis(50));
        }
        if interrupted() {
            break;
        }
        stage.check()?;
        if table_is_last && std::io::stdout().is_terminal() {
            print!("\x1b[{TABLE_LINES}A\x1b[J");
        }
        table(stage, watch, traffic, begin)?;
        table_is_last = true;
        let dead = stage.backends()?.into_iter().find(|(_, id)| id.is_none());
        match (dead, dead_since) {
            (None, _) => dead_since = None,
            (Some((address, _)), Some((known, since))) if address == known => {
                if since.elapsed() > REVIVE_AFTER {
                    stage.revive(address)?;
                    say(stage.begun(), &format!("backend {address} started again"));
                    table_is_last = false;
                }
            }
            (Some((address, _)), _) => {
                say(stage.begun(), &format!("backend {address} is dead"));
                table_is_last = false;
                dead_since = Some((address, Instant::now()));
            }
        }
    }
    println!("\nending");
    Ok(())
}

fn table(stage: &mut Stage, watch: &Watch, traffic: &Traffic, from: Instant) -> Result<()> {
    let samples = traffic.since(from);
    let counts = count(&samples);
    println!(
        "{:<17} {:>8}  {:<28} {:<20} requests/s",
        "backend", "pid", "vitals", "Envoy"
    );
    for (address, id) in stage.backends()? {
        let ip = address.ip().to_string();
        println!(
            "{:<17} {:>8}  {:<28} {:<20} {:>10}",
            address.to_string(),
            id.map_or("dead".into(), |id| id.to_string()),
            watch.status(address),
            watch.flags(address),
            counts.get(&ip).copied().unwrap_or(0)
        );
    }
    let failed = samples.iter().filter(|s| s.answer.is_err()).count();
    println!("{:<17} {failed:>68}", "failed requests");
    Ok(())
}
