//! Where the binaries are that the scenarios run.
//!
//! In: `VITALS_BIN`, `ENVOY_BIN`, `VITALS_PYTHON`, `NGINX_BIN`, `HAPROXY_BIN` and `OPENSSL_BIN`, which `cargo xtask test` sets.
//! Out: their paths, or a panic that says how to get them. Not here: building or downloading them; that is xtask's.

use std::path::PathBuf;
use std::process::Command;

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

/// nginx; its libraries may be elsewhere than the system's.
#[must_use]
pub fn nginx() -> Command {
    packaged("NGINX_BIN")
}

/// HAProxy.
#[must_use]
pub fn haproxy() -> Command {
    packaged("HAPROXY_BIN")
}

/// OpenSSL's command.
#[must_use]
pub fn openssl() -> Command {
    packaged("OPENSSL_BIN")
}

/// A program out of a package that may be unpacked and not installed; then `VITALS_LIBRARY_PATH` tells its libraries.
fn packaged(variable: &str) -> Command {
    let mut command = Command::new(tool(variable));
    if let Some(libraries) = std::env::var_os("VITALS_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
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
