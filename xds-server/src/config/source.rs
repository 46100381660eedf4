//! Paths → the bytes of the files behind them.
//!
//! In: files and folders as the command line names them. Out: [`Source`]s, or a finding for each path that cannot be
//! read. A folder stands for its `*.yaml` and `*.yml`, by name; hidden names are skipped, and with them the `..data` of
//! a mounted Kubernetes ConfigMap, whose files are seen through their links.
//!
//! Sizes are bounded before anything is read, and only regular files are opened: a pipe would hang the reload.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::attached;
use super::diagnostic::Diagnostic;
use super::text::MAX_FILE;

/// How much all files together may have.
const MAX_TOTAL: usize = 4 * MAX_FILE;

/// How many files a folder may have.
const MAX_FILES: usize = 10_000;

/// A file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path that findings show.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Source {
    /// A source from text.
    pub fn new(name: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: text.into(),
        }
    }
}

/// What a configuration was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// A hash of names and contents of all files: the same hash is the same configuration.
    pub(super) hash: u64,
    /// The files that the configuration itself names.
    pub(super) named: Vec<PathBuf>,
}

impl Digest {
    /// The digest of sources and the files that they name.
    pub(super) fn new(sources: &[Source], named: &BTreeMap<PathBuf, attached::Content>) -> Self {
        let mut hash = Xxh3::new();
        let mut add = |part: &[u8]| {
            hash.update(&part.len().to_le_bytes());
            hash.update(part);
        };
        for source in sources {
            add(source.name.as_bytes());
            add(&source.bytes);
        }
        for (path, content) in named {
            add(path.as_os_str().as_encoded_bytes());
            match content {
                Ok(bytes) => add(bytes),
                Err(problem) => add(problem.as_bytes()),
            }
        }
        Self {
            hash: hash.digest(),
            named: named.keys().cloned().collect(),
        }
    }
}

/// Reads all files behind the paths.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Source>, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let mut sources = Vec::new();
    let mut left = MAX_TOTAL;
    if paths.is_empty() {
        let message = "no file is named; name a file or a folder of *.yaml";
        errors.push(Diagnostic::whole_file("configuration", message));
    }
    for path in paths {
        let files = match files(path) {
            Ok(files) => files,
            Err(message) => {
                errors.push(Diagnostic::whole_file(&show(path), message));
                continue;
            }
        };
        for file in files {
            match read_file(&file, left) {
                Ok(bytes) => {
                    left = left.saturating_sub(bytes.len());
                    let name = show(&file);
                    sources.push(Source { name, bytes });
                }
                Err(message) => errors.push(Diagnostic::whole_file(&show(&file), message)),
            }
        }
    }
    if errors.is_empty() {
        Ok(sources)
    } else {
        Err(errors)
    }
}

/// The files that a path stands for.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |e| format!("cannot be read: {e}; name a readable file or folder");
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        let file = path.join(name);
        let yaml = file
            .extension()
            .is_some_and(|ext| ext == "yaml" || ext == "yml");
        if yaml && !hidden {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return Err(format!(
                "the folder has more than {MAX_FILES} files; merge some"
            ));
        }
    }
    if files.is_empty() {
        return Err("the folder has no *.yaml or *.yml; put one there, or name a file".into());
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, left: usize) -> Result<Vec<u8>, String> {
    let unreadable = |e| format!("cannot be read: {e}; name a readable file");
    if fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Err("is a folder in a folder, and those are not read; move its files up".into());
    }
    let bytes = regular(path, left.min(MAX_FILE))?;
    if bytes.len() > MAX_FILE {
        let mib = MAX_FILE >> 20;
        return Err(format!(
            "has more than {mib} MiB; split the configuration or make it smaller"
        ));
    }
    if bytes.len() > left {
        let mib = MAX_TOTAL >> 20;
        return Err(format!(
            "together with the files before it has more than {mib} MiB; make the configuration smaller"
        ));
    }
    Ok(bytes)
}

/// The content of a regular file. One byte more than `most` at most: enough to know that it is too large.
pub(super) fn regular(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let unreadable = |e| format!("cannot be read: {e}; name a readable file");
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is not a regular file; name one".into());
    }
    let limit = u64::try_from(most.saturating_add(1)).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    fs::File::open(path)
        .map_err(unreadable)?
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

pub(super) fn show(path: &Path) -> String {
    path.display().to_string()
}
