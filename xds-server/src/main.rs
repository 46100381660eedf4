//! The `vitals` binary: `cli` does the work.

use std::process::ExitCode;

fn main() -> ExitCode {
    vitals::cli::run()
}
