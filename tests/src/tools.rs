//! Where the binaries are that the scenarios run.
//!
//! In: `VITALS_BIN`, `ENVOY_BIN` and `VITALS_PYTHON`, which `cargo xtask test` sets. Out: their paths, or a panic that says
//! how to get them. Not here: building or downloading them; that is xtask's.

use std::path::PathBuf;

/// The server's binary.
#[must_use]
pub fn vitals() -> PathBuf {
    tool("VITALS_BIN")
}

/// Envoy's binary.
#[must_use]
pub fn envoy() -> PathBuf {
    tool("ENVOY_BIN")
}

/// A Python interpreter that has grpcio and xds-protos.
#[must_use]
pub fn python() -> PathBuf {
    tool("VITALS_PYTHON")
}

fn tool(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| {
        panic!("{variable} is not set; run the scenarios with `cargo xtask test`, which builds and brings what they need")
    });
    assert!(
        path.is_file(),
        "{variable} is {}, and there is no such file; run `cargo xtask test`",
        path.display()
    );
    path
}
