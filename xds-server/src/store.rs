//! Last known state on disk: what a restart starts from (design 5.3).
//!
//! In: [`Change`]s, in the order in which they happened. Out: once, at the start, the [`Records`] of the last run. The
//! file is a redb database, whose commits are atomic: after a `kill -9` at any moment it holds some moment's state whole.
//! Values are protobuf (`vitals.prober.v1`), so that older and newer versions read each other's.
//!
//! Writes never hold up the health path: changes are gathered, newest per key, and a task commits them as fast as the
//! disk takes them. What is lost by a kill is the last commit's worth, milliseconds of verdicts, which probes make anew.
//!
//! Not here: what a record means (`health::registry`).

mod codec;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use vitals_prober::target::StateKey;

use self::file::StateFile;
pub use self::file::{OpenError, STATE_FILE};
use crate::health::registry::{Change, EndpointKey, EndpointRecord, Records, TargetRecord};

/// Changes not yet on disk: the newest per key, so never more than there are keys.
#[derive(Debug, Default)]
struct Pending {
    targets: BTreeMap<StateKey, Option<TargetRecord>>,
    endpoints: BTreeMap<EndpointKey, Option<EndpointRecord>>,
    closing: bool,
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
        let writer = tokio::spawn(write(file, Arc::clone(&queue)));
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

async fn write(file: StateFile, queue: Arc<Queue>) {
    let file = Arc::new(file);
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
        if !(taken.targets.is_empty() && taken.endpoints.is_empty()) {
            let file = Arc::clone(&file);
            match tokio::task::spawn_blocking(move || file.commit(&taken.targets, &taken.endpoints))
                .await
            {
                Ok(Ok(())) => {}
                // The next change of a key writes it anew; until then a restart starts from what was stored before.
                Ok(Err(error)) => {
                    tracing::error!(%error, "cannot store state; a restart would start from an older one")
                }
                Err(error) => tracing::error!(%error, "storing state failed"),
            }
        }
        if closing {
            return;
        }
    }
}
