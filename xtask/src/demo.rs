//! `cargo xtask demo`: traffic leaves a killed backend and comes back, on a real Envoy, with times.
//!
//! In: `deploy/quickstart/vitals.yaml`. Out: a time line, a table of who answered in each phase, and with `--once` an exit
//! code: 0 when no request failed that was sent after Envoy showed the killed backend as failed. Without `--once` the scene
//! stays, with a live table, until Ctrl-C.

mod live;
mod observe;
mod ports;
mod stage;
mod story;
mod traffic;

use anyhow::Result;

use crate::ToolArgs;
use crate::process::catch_interrupts;
use crate::tools;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the story once and end with 0 or 1
    #[arg(long)]
    once: bool,
    /// Let Envoy speak state-of-the-world xDS instead of delta
    #[arg(long)]
    sotw: bool,
}

pub(crate) fn run(args: &Args, tool_args: &ToolArgs) -> Result<()> {
    let vitals = tools::vitals(tool_args, false)?;
    let envoy = tools::envoy(tool_args)?;
    catch_interrupts()?;
    let mut stage = stage::Stage::start(&vitals, &envoy, args.sotw)?;
    let mut watch = observe::Watch::new(stage.begun(), stage.ports());
    let traffic = traffic::Traffic::start(stage.ports().listener());
    story::tell(&mut stage, &mut watch, &traffic)?;
    if !args.once {
        live::show(&mut stage, &mut watch, &traffic)?;
    }
    Ok(())
}
