//! The descriptors of all of Envoy's messages → `OUT_DIR/envoy.bin`, a `FileDescriptorSet` for `src/config/envoy/pool.rs`.
//!
//! In: `src/generated/types.bin` in the source of envoy-types, which that crate does not export. Cargo is asked where the
//! source is, so that it is found in a registry, a vendored folder or a checkout alike. Out: the same set without the
//! comments and line numbers of the `.proto` files, a fifth of its size. They are cut out of the encoding instead of being
//! decoded and encoded again, because that would lose the options that only protobuf extensions define, such as the
//! rules of protoc-gen-validate.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// `FileDescriptorSet.file`
const FILE: u64 = 1;

/// `FileDescriptorProto.source_code_info`
const SOURCE_CODE_INFO: u64 = 9;

/// Writes the file.
pub(super) fn make() -> Result<(), String> {
    let package = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    // Offline first: what the build needs is here already, and a look-up must not wait for a network that is not there.
    // Cargo looks at dependencies of tests too, which may be missing; then it has to fetch them.
    let metadata = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let types = envoy_types(&metadata, &package)
        .ok_or("cargo metadata does not say where envoy-types is")?
        .join("src/generated/types.bin");
    let set = fs::read(&types).map_err(|e| format!("{}: {e}", types.display()))?;
    let stripped =
        strip(&set).ok_or_else(|| format!("{} is not a FileDescriptorSet", types.display()))?;
    let out = Path::new(&variable("OUT_DIR")?).join("envoy.bin");
    fs::write(&out, stripped).map_err(|e| format!("{}: {e}", out.display()))?;
    println!("cargo::rerun-if-changed={}", types.display());
    // Another version of envoy-types lies elsewhere.
    if let Some(root) = metadata.get("workspace_root").and_then(Value::as_str) {
        println!("cargo::rerun-if-changed={root}/Cargo.lock");
    }
    Ok(())
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("{name} is not set; this is run by cargo"))
}

fn metadata(flags: &[&str]) -> Result<Value, String> {
    let output = Command::new(variable("CARGO")?)
        .args(["metadata", "--format-version", "1", "--filter-platform"])
        .arg(variable("TARGET")?)
        .args(flags)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata: {why}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

/// The folder of the envoy-types that the package of this manifest depends on.
fn envoy_types(metadata: &Value, manifest: &Path) -> Option<PathBuf> {
    let packages = metadata.get("packages")?.as_array()?;
    let path = |package: &Value| package["manifest_path"].as_str().map(PathBuf::from);
    let ours = packages
        .iter()
        .find(|p| path(p).as_deref() == Some(manifest))?;
    let nodes = metadata.pointer("/resolve/nodes")?.as_array()?;
    let node = nodes.iter().find(|node| node["id"] == ours["id"])?;
    let deps = node["deps"].as_array()?;
    let dep = deps.iter().find(|dep| dep["name"] == "envoy_types")?;
    let theirs = packages.iter().find(|p| p["id"] == dep["pkg"])?;
    Some(path(theirs)?.parent()?.to_owned())
}

/// The set without what tells where things stood in the `.proto` files.
fn strip(mut set: &[u8]) -> Option<Vec<u8>> {
    let mut stripped = Vec::with_capacity(set.len());
    while !set.is_empty() {
        let field = Field::take(&mut set)?;
        if field.number != FILE {
            return None;
        }
        let mut rest = field.payload;
        let mut file = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let field = Field::take(&mut rest)?;
            if field.number != SOURCE_CODE_INFO {
                file.extend_from_slice(field.whole);
            }
        }
        put_varint(FILE << 3 | 2, &mut stripped);
        put_varint(u64::try_from(file.len()).ok()?, &mut stripped);
        stripped.extend_from_slice(&file);
    }
    Some(stripped)
}

/// One field of an encoded message.
struct Field<'b> {
    number: u64,
    /// Key and value.
    whole: &'b [u8],
    /// What is inside, where the field has a length.
    payload: &'b [u8],
}

impl<'b> Field<'b> {
    fn take(bytes: &mut &'b [u8]) -> Option<Self> {
        let start = *bytes;
        let key = take_varint(bytes)?;
        let length = match key & 7 {
            0 => {
                take_varint(bytes)?;
                0
            }
            1 => 8,
            2 => usize::try_from(take_varint(bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (payload, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        let whole = start.get(..start.len() - rest.len())?;
        Some(Self {
            number: key >> 3,
            whole,
            payload,
        })
    }
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    loop {
        let [byte, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(byte & 0x7f);
        }
        out.push(byte | 0x80);
    }
}
