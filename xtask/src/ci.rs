//! `cargo xtask ci`: what a merge must pass.

use std::process::Command;

use anyhow::Result;

use crate::workspace::{cargo, run as step};
use crate::{ToolArgs, test};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the checks; the tests have been run already
    #[arg(long)]
    no_test: bool,
}

pub(crate) fn run(args: &Args, tools: &ToolArgs) -> Result<()> {
    if !args.no_test {
        test::run(&test::Args::all(), tools)?;
    }
    step(&mut cargo(&["fmt", "--all", "--check"])?)?;
    step(&mut cargo(&[
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])?)?;
    step(
        cargo(&[
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])?
        .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    let deny = Command::new("cargo").args(["deny", "--version"]).output();
    if deny.is_ok_and(|output| output.status.success()) {
        step(&mut cargo(&["deny", "--workspace", "check"])?)?;
    } else {
        eprintln!("xtask: cargo-deny is not installed; licences and advisories were not checked");
    }
    Ok(())
}
