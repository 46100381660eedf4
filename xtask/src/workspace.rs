//! The workspace: where it is, and cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the repository.
pub(crate) fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the repository")
}

/// A cargo command in the root.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new("cargo");
    command.current_dir(root()?).args(arguments);
    Ok(command)
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words = words.join(" ");
    eprintln!("xtask: {words}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{words}`"))?;
    if !status.success() {
        bail!("`{words}` failed: {status}");
    }
    Ok(())
}

/// Where cargo builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let output = cargo(&["metadata", "--format-version=1", "--no-deps"])?
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let target = metadata
        .get("target_directory")
        .and_then(Value::as_str)
        .context("cargo metadata has no target_directory")?;
    Ok(target.into())
}

/// Builds the server, and nothing else: were xtask built anew, its own running binary would be replaced. Returns the
/// server's binary.
pub(crate) fn build_vitals(release: bool) -> Result<PathBuf> {
    build("vitals", release)
}

/// Builds the binary of a package of the same name.
pub(crate) fn build(package: &str, release: bool) -> Result<PathBuf> {
    let mut command = cargo(&["build", "--quiet", "--package", package])?;
    if release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if release { "release" } else { "debug" };
    let binary = target_dir()?.join(profile).join(package);
    if !binary.is_file() {
        bail!("cargo built no {}", binary.display());
    }
    Ok(binary)
}
