//! `cargo xtask test`: builds the binaries, brings Envoy, grpcio, nginx, HAProxy and openssl, and runs every test of the workspace.

use anyhow::Result;

use crate::ToolArgs;
use crate::tools::{self, debian};
use crate::workspace::{self, cargo};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Scenarios that run side by side; most of them mostly wait
    #[arg(long, env = "RUST_TEST_THREADS", default_value_t = 6)]
    test_threads: u16,
    /// Show what the tests print
    #[arg(long)]
    nocapture: bool,
}

impl Args {
    /// All tests, as a merge needs them.
    pub(crate) fn all() -> Self {
        Self {
            filter: None,
            test_threads: 6,
            nocapture: false,
        }
    }
}

pub(crate) fn run(args: &Args, tool_args: &ToolArgs) -> Result<()> {
    let vitals = tools::vitals(tool_args, false)?;
    let mut command = cargo(&["test", "--workspace"])?;
    command
        .env("VITALS_BIN", vitals)
        .env("ENVOY_BIN", tools::envoy(tool_args)?)
        .env("VITALS_PYTHON", tools::python(tool_args)?)
        .env("RUST_TEST_THREADS", args.test_threads.to_string());
    let programs = debian::programs()?;
    let variables = ["HAPROXY_BIN", "NGINX_BIN", "OPENSSL_BIN"];
    for (variable, program) in variables.into_iter().zip(&programs) {
        // What somebody has set is taken as it is.
        if std::env::var_os(variable).is_none() {
            command.env(variable, program.path());
            if let Some(libraries) = program.libraries() {
                command.env("VITALS_LIBRARY_PATH", libraries);
            }
        }
    }
    command.args(&args.filter);
    if args.nocapture {
        command.args(["--", "--nocapture"]);
    }
    workspace::run(&mut command)
}
