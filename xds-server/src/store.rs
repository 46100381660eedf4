//! Last known state on disk: what a restart starts from (design 5.3).
//!
//! In: [`Change`]s, in the order in which they happened. Out: once, at the start, the [`Records`] of the last run. The
//! file is a redb database, whose commits are atomic: after a `kill -9` at any moment it holds some moment's state whole.
//! Values are protobuf (`vitals.prober.v1`), so that older and newer versions read each other's.
//!
//! Writes never hold up the health path: changes are gathered, newest per key, and a task commits them a few times a
//! second. What is lost by a kill is the last commit's worth, milliseconds of verdicts, which probes make anew.
//!
//! Not here: what a record means (`health::registry`).

mod codec;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use vitals_prober::target::StateKey;

use self::file::StateFile;
pub use self::file::{OpenError, STATE_FILE};
use crate::health::registry::{
    Change, EndpointKey, EndpointRecord, Records, ServiceRecord, TargetRecord,
};
use crate::model::Name;

/// How long changes are gathered after a commit: a commit waits for the disk, and a flapping fleet makes many changes.
const GATHER: Duration = Duration::from_millis(50);

/// How long to wait after a commit that failed: a full disk stays full for a while.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Changes not yet on disk: the newest per key, so never more than there are keys.
#[derive(Debug, Default)]
struct Pending {
    targets: BTreeMap<StateKey, Option<TargetRecord>>,
    endpoints: BTreeMap<EndpointKey, Option<EndpointRecord>>,
    services: BTreeMap<Name, Option<ServiceRecord>>,
    closing: bool,
}

impl Pending {
    /// Takes changes back that could not be written, where there are no newer ones.
    fn put_back(&mut self, older: Self) {
        for (key, record) in older.targets {
            self.targets.entry(key).or_insert(record);
        }
        for (key, record) in older.endpoints {
            self.endpoints.entry(key).or_insert(record);
        }
        for (name, record) in older.services {
            self.services.entry(name).or_insert(record);
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    pending: Mutex<Pending>,
    added: Notify,
}

impl Queue {
    fn with<T>(&self, work: impl FnOnce(&mut Pending) -> T) -> T {
        // A panic while the lock is held cannot leave a map half-changed that matters: take it as it is.
        work(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A store that is being written.
#[derive(Debug)]
pub struct Store {
    queue: Arc<Queue>,
    writer: JoinHandle<()>,
}

impl Store {
    /// Opens the store in `dir`, which is made if it is not there, and reads what it remembers. A damaged or foreign file
    /// is set aside under another name, with an error in the log, and the server starts without memory.
    ///
    /// # Errors
    /// When the directory cannot be used, or another server has the file open.
    pub fn open(dir: &Path) -> Result<(Self, Records), OpenError> {
        let (file, records) = StateFile::open(dir)?;
        let queue = Arc::new(Queue::default());
        // Ends when `close` has set `closing` and the last changes are written.
        let writer = tokio::spawn(write(file, dir.to_owned(), Arc::clone(&queue)));
        Ok((Self { queue, writer }, records))
    }

    /// Takes changes; returns at once.
    pub fn write(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.queue.with(|pending| {
            for change in changes {
                match change {
                    Change::Target(key, record) => drop(pending.targets.insert(key, record)),
                    Change::Endpoint(key, record) => drop(pending.endpoints.insert(key, record)),
                    Change::Service(name, record) => drop(pending.services.insert(name, record)),
                }
            }
        });
        self.queue.added.notify_one();
    }

    /// Writes what is left and closes the file.
    pub async fn close(self) {
        self.queue.with(|pending| pending.closing = true);
        self.queue.added.notify_one();
        if let Err(error) = self.writer.await {
            tracing::error!(%error, "the state writer failed; the last changes may not be stored");
        }
    }
}

async fn write(file: StateFile, dir: PathBuf, queue: Arc<Queue>) {
    let mut open = Some(file);
    loop {
        queue.added.notified().await;
        let taken = queue.with(|pending| {
            let closing = pending.closing;
            std::mem::replace(
                pending,
                Pending {
                    closing,
                    ..Pending::default()
                },
            )
        });
        let closing = taken.closing;
        let (file, dir) = (open.take(), dir.clone());
        let mut pause = GATHER;
        match tokio::task::spawn_blocking(move || commit(file, &dir, taken)).await {
            Ok((file, None)) => open = file,
            Ok((file, Some((taken, problem)))) => {
                open = file;
                tracing::error!(%problem, "cannot store state; trying again, and a restart before that starts from an older one");
                queue.with(|pending| pending.put_back(taken));
                queue.added.notify_one();
                pause = AFTER_FAILURE;
            }
            Err(error) => tracing::error!(%error, "storing state failed"),
        }
        if closing {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Writes changes. A file that failed once is closed, because the database takes no more, and opened anew next time; one
/// that was removed is made anew. Gives back the file, and the changes if they could not be written.
fn commit(
    file: Option<StateFile>,
    dir: &Path,
    taken: Pending,
) -> (Option<StateFile>, Option<(Pending, String)>) {
    let file = file.filter(|file| {
        let there = file.is_there();
        if !there {
            tracing::error!(dir = %dir.display(), "the state file was removed; a new one holds only what changes from now on");
        }
        there
    });
    let file = match file.map_or_else(|| StateFile::open(dir).map(|(file, _)| file), Ok) {
        Ok(file) => file,
        Err(error) => return (None, Some((taken, error.to_string()))),
    };
    match file.commit(&taken) {
        Ok(()) => (Some(file), None),
        Err(error) => (None, Some((taken, error.to_string()))),
    }
}
