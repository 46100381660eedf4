//! HAProxy, nginx and OpenSSL's command: found, or brought from Debian's archive into a folder under the target directory.
//!
//! In: PATH, apt-get, a network. Out: commands that start. The packages, and those libraries of theirs that the machine
//! lacks, are unpacked and not installed: no root is needed, no daemon starts, and removing the folder undoes it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{on_path, run};
use crate::workspace::target_dir;

const PACKAGES: [&str; 3] = ["haproxy", "nginx", "openssl"];

/// A program that starts, with the libraries that it needs.
#[derive(Clone)]
pub(crate) struct Program {
    path: PathBuf,
    libraries: Option<OsString>,
}

impl Program {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where its libraries are, unless the system has them.
    pub(crate) fn libraries(&self) -> Option<&OsString> {
        self.libraries.as_ref()
    }

    /// The first line that it prints for `flag`.
    pub(crate) fn version(&self, flag: &str) -> Result<String> {
        let output = self.command().arg(flag).output();
        let output = output.with_context(|| format!("cannot start {}", self.path.display()))?;
        if !output.status.success() {
            bail!(
                "{} {flag} failed: {}",
                self.path.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        // nginx says it on stderr.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// Finds or brings `haproxy`, `nginx` and `openssl`, in this order.
pub(crate) fn programs() -> Result<[Program; 3]> {
    if let [Some(haproxy), Some(nginx), Some(openssl)] = PACKAGES.map(installed) {
        return Ok([haproxy, nginx, openssl]);
    }
    let folder = bring()?;
    let libraries = libraries(&folder)?;
    Ok(PACKAGES.map(|name| {
        installed(name).unwrap_or_else(|| Program {
            path: unpacked(&folder, name),
            libraries: Some(libraries.clone()),
        })
    }))
}

/// On PATH, or where Debian puts daemons, which is on root's PATH alone.
fn installed(name: &str) -> Option<Program> {
    let sbin = Path::new("/usr/sbin").join(name);
    let path = on_path(name).or_else(|| sbin.is_file().then_some(sbin))?;
    Some(Program {
        path,
        libraries: None,
    })
}

/// Where the package has it: daemons are in sbin.
fn unpacked(folder: &Path, name: &str) -> PathBuf {
    let sbin = folder.join("usr/sbin").join(name);
    if sbin.is_file() {
        sbin
    } else {
        folder.join("usr/bin").join(name)
    }
}

/// Unpacks the packages unless that was done; returns the folder.
fn bring() -> Result<PathBuf> {
    let tools = target_dir()?.join("xtask-tools");
    fs::create_dir_all(&tools).with_context(|| format!("cannot make {}", tools.display()))?;
    let lock = File::create(tools.join("lock")).context("cannot make the tools' lock")?;
    lock.lock().context("cannot lock the tools")?;
    let folder = tools.join("debian");
    let stamp = folder.join("complete");
    let made_of = PACKAGES.join(" ");
    if fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == made_of) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let archives = folder.join("archives");
    fs::create_dir_all(archives.join("partial"))?;
    eprintln!(
        "xtask: bringing HAProxy, nginx and openssl from Debian into {}",
        folder.display()
    );
    if download(&archives).is_err() {
        // The lists of packages may be old, or not there at all; only root may renew them.
        run(
            Command::new("apt-get").args(["update", "-qq"]),
            &advice("apt-get update failed"),
        )?;
        download(&archives)?;
    }
    for entry in fs::read_dir(&archives)? {
        let package = entry?.path();
        if package.extension().is_some_and(|kind| kind == "deb") {
            let mut command = Command::new("dpkg-deb");
            command.arg("--extract").arg(&package).arg(&folder);
            run(
                &mut command,
                &advice(&format!("{} cannot be unpacked", package.display())),
            )?;
        }
    }
    fs::write(&stamp, made_of).context("cannot write the tools' stamp")?;
    Ok(folder)
}

fn download(archives: &Path) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["install", "--download-only", "--yes", "-qq"]);
    command.args(["--no-install-recommends", "-o", "Debug::NoLocking=1", "-o"]);
    command.arg(format!("Dir::Cache::archives={}", archives.display()));
    command.args(PACKAGES);
    run(
        &mut command,
        &advice("apt-get cannot bring haproxy, nginx and openssl"),
    )
}

fn advice(what: &str) -> String {
    format!(
        "{what}. Tests and bench need haproxy, nginx and openssl, on PATH or from Debian's or Ubuntu's archive \
         (as root: apt-get update && apt-get install --no-install-recommends haproxy nginx openssl)"
    )
}

fn libraries(folder: &Path) -> Result<OsString> {
    let mut folders = Vec::new();
    for parent in ["usr/lib", "lib"] {
        let Ok(entries) = fs::read_dir(folder.join(parent)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    std::env::join_paths(folders).context("the target directory's path has a colon")
}
