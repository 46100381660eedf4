//! A network namespace for one run of the bench.
//!
//! In it the kernel counts the connections of this run and of nobody else, nothing outside can be reached, and no port is
//! taken. Where there can be none (no root and no user namespaces, no `unshare`, no `ip`) the bench runs without.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tools::on_path;

const LOOPBACK_UP: [&str; 4] = ["link", "set", "lo", "up"];

/// Becomes the same command with other arguments, in a new namespace. Returns only when there can be none.
pub(super) fn enter(arguments: &[String]) -> Result<()> {
    let (Some(unshare), Some(ip)) = (find("unshare"), find("ip")) else {
        return Ok(());
    };
    for flags in [&["--net"][..], &["--net", "--map-root-user"]] {
        let worked = Command::new(&unshare)
            .args(flags)
            .arg("--")
            .arg(&ip)
            .args(LOOPBACK_UP)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if worked.is_ok_and(|status| status.success()) {
            let xtask = std::env::current_exe().context("cannot find xtask's own binary")?;
            let mut command = Command::new(&unshare);
            command.args(flags).arg("--").arg(xtask).args(arguments);
            return Err(command.exec()).context("cannot start unshare");
        }
    }
    Ok(())
}

/// Loopback is down in a new namespace.
pub(super) fn raise_loopback() -> Result<()> {
    let ip = find("ip").context("there is no `ip`")?;
    let status = Command::new(ip)
        .args(LOOPBACK_UP)
        .status()
        .context("cannot start ip")?;
    if !status.success() {
        bail!("`ip link set lo up`: {status}");
    }
    Ok(())
}

/// On PATH, or where Debian puts it, which is on root's PATH alone.
fn find(name: &str) -> Option<PathBuf> {
    let sbin = Path::new("/usr/sbin").join(name);
    on_path(name).or_else(|| sbin.is_file().then_some(sbin))
}
