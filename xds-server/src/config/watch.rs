//! Tells when the configuration has changed, and reads it again.
//!
//! In: the paths, as given to `serve`. Out: from [`ConfigWatcher::changed`], each new content once, read and validated,
//! or its errors; the caller keeps the running model on errors.
//!
//! ```text
//! inotify ──► hint ─┐
//! poll (2 s) ───────┴─► quiet for 100 ms (at most 1 s) ─► read ─► same digest? wait on : parse, return
//! ```
//!
//! Folders are watched, not files: an editor renames a new file over the old one, Kubernetes swaps the link `..data`,
//! and a watch on the file itself would stay with the old one. Where links lead elsewhere, the folders they lead to are
//! watched too. A hint only says "look"; what counts is the digest of what is read, so a touch is no reload. The poll
//! compares size, times and inode, and catches what inotify loses (queue overflow, network file systems).
//!
//! Not here: what a reload does to the running state (`app`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use xxhash_rust::xxh3::Xxh3;

use super::diagnostic::Diagnostic;
use super::{Digest, Loaded, Source, attached, parse_and_digest, source};

/// So long nothing may happen before the files are read: an editor writes in several steps.
const QUIET: Duration = Duration::from_millis(100);

/// So long reading is put off at most, however often the files change.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often files are looked at without a hint.
const POLL: Duration = Duration::from_secs(2);

/// Watches the configuration's files.
#[derive(Debug)]
pub struct ConfigWatcher {
    paths: Vec<PathBuf>,
    /// `None` where the system gives no watches; the poll remains.
    notify: Option<RecommendedWatcher>,
    watched: BTreeSet<Folder>,
    /// Wakes at every event in a watched folder; the number counts those whose names are ours.
    hints: watch::Receiver<u64>,
    /// The number of such events that has been followed up.
    followed: u64,
    /// The hash of the content that was returned last, or runs.
    last: Option<u64>,
    /// The files that it names, which are watched as its own are.
    named: Vec<PathBuf>,
    /// What the poll saw when the files were last read.
    signature: Option<u64>,
    /// A change is known and not looked at yet; outlives a `changed` that was dropped half-way.
    pending: bool,
}

/// A folder by name and identity: one that was replaced under the same name has lost its watch silently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Folder {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl ConfigWatcher {
    /// Watches files and folders. The first [`changed`](Self::changed) returns at once with what is there.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let (hint, hints) = watch::channel(0u64);
        let names: Vec<OsString> = paths
            .iter()
            .filter_map(|path| path.file_name().map(Into::into))
            .collect();
        let handler = move |event: notify::Result<notify::Event>| {
            let ours = match event {
                // Our own reading is an event too; it must not lead to reading.
                Ok(event) if is_reading(event.kind) => return,
                Ok(event) => event.paths.is_empty() || event.paths.iter().any(|p| ours(p, &names)),
                Err(_lost_events) => true,
            };
            hint.send_modify(|count| *count = count.wrapping_add(u64::from(ours)));
        };
        // Starts notify's thread, which ends when the watcher is dropped, with `self`.
        let notify = notify::recommended_watcher(handler)
            .inspect_err(|error| {
                tracing::warn!(%error, "no file watches; changes are seen by polling every {POLL:?}");
            })
            .ok();
        Self {
            paths,
            notify,
            watched: BTreeSet::new(),
            hints,
            followed: 0,
            last: None,
            named: Vec::new(),
            signature: None,
            pending: true,
        }
    }

    /// Takes a content as known, by its [`Loaded::digest`]: the first `changed` waits for another.
    #[must_use]
    pub fn running(mut self, digest: Digest) -> Self {
        self.last = Some(digest.hash);
        self.named = digest.named;
        self
    }

    /// Waits for another content than the last one; reads and validates it. Dropping the future loses no change.
    ///
    /// # Errors
    /// All findings of a content that cannot run, once for each such content.
    pub async fn changed(&mut self) -> Result<Loaded, Vec<Diagnostic>> {
        loop {
            if !self.pending {
                self.hint().await;
                self.pending = true;
                self.quiet().await;
            }
            let (paths, named) = (self.paths.clone(), self.named.clone());
            // Ends by itself: files are bounded in size, and only regular files are read.
            let read = tokio::task::spawn_blocking(move || {
                // The signature first: what changes while we read is then seen by the next poll.
                let signature = signature(&paths, &named);
                let folders = folders(&paths, &named);
                let sources = source::read(&paths);
                let content = content(&sources, &named);
                (signature, folders, sources, content)
            });
            let Ok((signature, folders, sources, content)) = read.await else {
                lost().await;
                continue;
            };
            self.signature = Some(signature);
            // A new watch has not seen what happened since the files were read, so they are read once more.
            let mut again = self.watch(folders);
            let mut result = None;
            if self.last != Some(content) {
                // Ends by itself: nodes, depth and text are bounded, and so are the files that they name.
                let parsed = tokio::task::spawn_blocking(move || parse(sources, content));
                let Ok((parsed, digest)) = parsed.await else {
                    lost().await;
                    continue;
                };
                self.last = Some(digest.hash);
                if self.named != digest.named {
                    // Nothing has looked at the new ones before they were read.
                    self.named = digest.named;
                    again = true;
                }
                result = Some(parsed);
            }
            self.pending = again;
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Waits until something may have changed.
    async fn hint(&mut self) {
        loop {
            match timeout(POLL, self.hints.changed()).await {
                Ok(Ok(())) => {
                    let count = *self.hints.borrow_and_update();
                    if count != self.followed {
                        self.followed = count;
                        return;
                    }
                    // Something else in the same folder, as often as it likes.
                    sleep(QUIET).await;
                }
                // No watcher, hence no hints; the poll remains.
                Ok(Err(_closed)) => sleep(POLL).await,
                Err(_elapsed) => {}
            }
            let (paths, named) = (self.paths.clone(), self.named.clone());
            // Ends by itself: it looks at the metadata of a bounded number of files.
            let now = tokio::task::spawn_blocking(move || signature(&paths, &named)).await;
            if now.ok() != self.signature {
                return;
            }
        }
    }

    /// Waits until nothing has happened for a while, or for long enough.
    async fn quiet(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match timeout(QUIET.min(left), self.hints.changed()).await {
                Ok(Ok(())) if !left.is_zero() => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Watches these folders and no other. Whether any is new.
    fn watch(&mut self, folders: BTreeSet<Folder>) -> bool {
        let Some(notify) = &mut self.notify else {
            return false;
        };
        for old in self.watched.difference(&folders) {
            // It may be gone, and its watch with it.
            drop(notify.unwatch(&old.path));
        }
        let mut watched = BTreeSet::new();
        let mut any_new = false;
        for folder in folders {
            if !self.watched.contains(&folder) {
                if let Err(error) = notify.watch(&folder.path, RecursiveMode::NonRecursive) {
                    tracing::debug!(folder = %folder.path.display(), %error, "no watch; the poll remains");
                    continue;
                }
                any_new = true;
            }
            watched.insert(folder);
        }
        self.watched = watched;
        any_new
    }
}

/// A task was cancelled or panicked, which only a runtime on its way down, or a bug, does; it must not become a busy
/// loop.
async fn lost() {
    tracing::error!("reading the configuration was cut short; trying again");
    sleep(POLL).await;
}

fn is_reading(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => false,
    }
}

/// Whether an event at that path is probably about the configuration: the name is one of the paths', or ends as files
/// in a folder do, or is of those with which Kubernetes swaps a ConfigMap. Others wake a look at the metadata only.
fn ours(path: &Path, names: &[OsString]) -> bool {
    let name = path.file_name().unwrap_or_default();
    names.iter().any(|ours| ours == name)
        || name.as_encoded_bytes().starts_with(b"..")
        || path
            .extension()
            .is_some_and(|ext| ext == "yaml" || ext == "yml")
}

/// What identifies the content: the digest, or what stands in the way of reading.
fn content(sources: &Result<Vec<Source>, Vec<Diagnostic>>, named: &[PathBuf]) -> u64 {
    match sources {
        Ok(sources) => {
            let named = named
                .iter()
                .map(|path| (path.clone(), attached::read(path)));
            Digest::new(sources, &named.collect()).hash
        }
        Err(errors) => {
            let mut hash = Xxh3::new();
            for error in errors {
                error.to_string().hash(&mut hash);
            }
            hash.finish()
        }
    }
}

/// The configuration, or its errors, and the digest of what was read in any case.
fn parse(
    sources: Result<Vec<Source>, Vec<Diagnostic>>,
    content: u64,
) -> (Result<Loaded, Vec<Diagnostic>>, Digest) {
    match sources {
        Ok(sources) => parse_and_digest(&sources),
        Err(errors) => {
            let digest = Digest {
                hash: content,
                named: Vec::new(),
            };
            (Err(errors), digest)
        }
    }
}

/// The folders in which a change of the configuration shows: those of the paths and of the files that it names, and those
/// that links lead to.
fn folders(paths: &[PathBuf], named: &[PathBuf]) -> BTreeSet<Folder> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
        Some(parent) => Some(parent.to_owned()),
        None => None,
    };
    let mut folders = BTreeSet::new();
    for path in named {
        folders.extend(parent(path));
        folders.extend(path.canonicalize().ok().as_deref().and_then(parent));
    }
    for path in paths {
        // Also of a folder, which may be replaced as a whole.
        folders.extend(parent(path));
        if path.is_dir() {
            folders.insert(path.clone());
        }
        for file in source::files(path).unwrap_or_default() {
            let real = file.canonicalize().ok();
            folders.extend(real.as_deref().and_then(parent));
        }
    }
    folders
        .into_iter()
        .map(|path| Folder {
            identity: std::fs::metadata(&path).ok().map(|m| (m.dev(), m.ino())),
            path,
        })
        .collect()
}

/// Names, sizes, times and inodes of all files: differs when any may have changed.
fn signature(paths: &[PathBuf], named: &[PathBuf]) -> u64 {
    let mut hash = Xxh3::new();
    let mut add = |file: &Path| {
        file.hash(&mut hash);
        let known = std::fs::metadata(file).map(|m| {
            (
                m.dev(),
                m.ino(),
                m.len(),
                (m.mtime(), m.mtime_nsec()),
                (m.ctime(), m.ctime_nsec()),
            )
        });
        known.ok().hash(&mut hash);
    };
    let mut problems = Vec::new();
    for path in paths {
        match source::files(path) {
            Err(problem) => problems.push(problem),
            Ok(files) => files.iter().for_each(|file| add(file)),
        }
    }
    named.iter().for_each(|file| add(file));
    problems.hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests;
