//! The `vitals` binary: `cli` does the work.

use std::process::ExitCode;

/// The system's allocator keeps what a thread has once had, and the start of a large configuration has a lot: this one
/// gives it back, and wastes less between small things.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    vitals::cli::run()
}
