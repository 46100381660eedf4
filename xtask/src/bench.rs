//! `cargo xtask bench`: measurements on this machine. They print figures and judge nothing.

mod fanout;
mod measure;
mod metrics;
mod probes;
mod server;
mod steady;

use anyhow::Result;
use clap::Subcommand;

use crate::ToolArgs;
use crate::process::catch_interrupts;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Probes of many healthy endpoints: lateness, CPU, memory
    Steady(steady::Args),
    /// What a probe costs, beside HAProxy and Envoy
    Probes(probes::Args),
    /// How fast a change reaches thousands of xDS clients, and what that costs
    Fanout(fanout::Args),
}

pub(crate) fn run(args: &Args, tools: &ToolArgs) -> Result<()> {
    catch_interrupts()?;
    match &args.bench {
        Bench::Steady(args) => steady::run(args, tools),
        Bench::Probes(args) => probes::run(args, tools),
        Bench::Fanout(args) => fanout::run(args, tools),
    }
}
