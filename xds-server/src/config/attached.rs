//! Files that the configuration names: the certificates of `tls.roots`.
//!
//! In: paths, while the configuration is read. Out: their bytes, each file read once, and at the end all of them for the
//! digest: the content of such a file is part of the configuration, and so is that it could not be read.
//!
//! Everything is bounded, as the configuration may be anything: only regular files are read, of [`MAX_ONE`] at most, [`MAX_FILES`]
//! of them, and [`MAX_USED`] over all uses, because every check and service that names a file keeps its certificates.
//!
//! Not here: what stands in the files (the prober, `services`), what `--config` names (`source`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source;

/// How much one file may have: several times all public roots.
const MAX_ONE: usize = 1 << 20;

/// How much all uses of all files together may have.
const MAX_USED: usize = 64 << 20;

/// How many different files may be named.
const MAX_FILES: usize = 1_000;

/// The content of a file, or why there is none.
pub(super) type Content = Result<Vec<u8>, String>;

/// The files that have been read so far.
#[derive(Debug, Default)]
pub(super) struct Attached {
    files: RefCell<BTreeMap<PathBuf, Content>>,
    used: Cell<usize>,
}

impl Attached {
    /// The content of a file.
    pub(super) fn read(&self, path: &Path) -> Content {
        self.charge(0)?;
        let mut files = self.files.borrow_mut();
        if files.len() >= MAX_FILES && !files.contains_key(path) {
            return Err(format!(
                "is one too many: more than {MAX_FILES} files are named; put certificates together"
            ));
        }
        let content = files.entry(path.to_owned()).or_insert_with(|| read(path));
        let bytes = content.as_ref().map_err(Clone::clone)?;
        self.charge(bytes.len())?;
        Ok(bytes.clone())
    }

    /// Counts a use of that many bytes.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), String> {
        let used = self.used.get().saturating_add(bytes);
        self.used.set(used);
        if used > MAX_USED {
            return Err(format!(
                "is one too many: the root certificates of all checks and services together have more than {} MiB; \
                 name fewer or smaller files",
                MAX_USED >> 20
            ));
        }
        Ok(())
    }

    /// All files that were asked for.
    pub(super) fn into_files(self) -> BTreeMap<PathBuf, Content> {
        self.files.into_inner()
    }
}

/// Reads one file.
pub(super) fn read(path: &Path) -> Content {
    let bytes = source::regular(path, MAX_ONE)?;
    if bytes.len() > MAX_ONE {
        let mib = MAX_ONE >> 20;
        return Err(format!(
            "has more than {mib} MiB; name a file with fewer certificates"
        ));
    }
    Ok(bytes)
}
