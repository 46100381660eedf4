//! The state file itself: opening, what to do with one that is not ours, one commit.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use vitals_prober::clock;
use vitals_prober::target::StateKey;

use super::{Pending, codec};
use crate::health::registry::Records;
use crate::model::Name;

/// The name of the file in the state directory.
pub const STATE_FILE: &str = "state.redb";

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const TARGETS: TableDefinition<'_, [u8; 16], &[u8]> = TableDefinition::new("targets");
const ENDPOINTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("endpoints");
const SERVICES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("services");

/// The form of the tables. A file with another number is foreign.
const FORMAT: u64 = 1;

/// Of the file, kept in memory. All of it is read once, and written in small pieces after, so little of it is of use twice.
const CACHE_BYTES: usize = 4 << 20;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made or written.
    #[error(
        "state directory {dir} cannot be used; make it writable, or name another with --state-dir"
    )]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no room for the file.
    #[error(
        "no room for the state in {dir}; free space there, or name a directory on another disk with --state-dir"
    )]
    Full {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("state directory {dir} is in use by another server; give each its own --state-dir")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The file can be neither opened nor set aside, nor a new one made.
    #[error("state file {path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        problem: String,
    },
}

/// Why a file is not taken as it is.
#[derive(Debug)]
pub(super) enum Rejected {
    /// In use: not ours to touch.
    Locked,
    /// The system refuses (permissions, space): setting the file aside would not help.
    System(std::io::Error),
    /// Damaged or foreign.
    Unusable(String),
}

/// The open file.
#[derive(Debug)]
pub(super) struct StateFile {
    database: Database,
    path: PathBuf,
}

impl StateFile {
    pub(super) fn open(dir: &Path) -> Result<(Self, Records), OpenError> {
        Self::open_with(dir, read)
    }

    /// `read` opens and reads the file, and makes it where it is not there or empty.
    pub(super) fn open_with<T>(
        dir: &Path,
        read: impl Fn(&Path) -> Result<T, Rejected>,
    ) -> Result<T, OpenError> {
        std::fs::create_dir_all(dir).map_err(|source| refused(dir, source))?;
        let path = dir.join(STATE_FILE);
        let is_new = !std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        let problem = match read(&path) {
            Ok(opened) => return Ok(opened),
            Err(Rejected::Locked) => return Err(OpenError::Locked { dir: dir.into() }),
            Err(Rejected::System(source)) => {
                if is_new {
                    remove_half_made(&path);
                }
                return Err(refused(dir, source));
            }
            Err(Rejected::Unusable(problem)) => problem,
        };
        let file_error = |problem: String| OpenError::File {
            path: path.clone(),
            problem,
        };
        let aside = free_name(&path);
        std::fs::rename(&path, &aside).map_err(|error| file_error(error.to_string()))?;
        tracing::error!(
            file = %path.display(), set_aside_as = %aside.display(), %problem,
            "the state file is damaged or not ours; it is set aside, and health starts from the first probes"
        );
        read(&path).map_err(|rejected| match rejected {
            Rejected::Locked => OpenError::Locked { dir: dir.into() },
            Rejected::System(source) => {
                remove_half_made(&path);
                refused(dir, source)
            }
            Rejected::Unusable(problem) => file_error(format!("cannot make a new one: {problem}")),
        })
    }

    /// Whether the file is still where it was opened: somebody may have removed it, and what is written then is lost.
    pub(super) fn is_there(&self) -> bool {
        self.path.exists()
    }

    pub(super) fn commit(&self, changes: &Pending) -> Result<(), redb::Error> {
        let Pending {
            targets,
            endpoints,
            services,
            closing: _,
        } = changes;
        if targets.is_empty() && endpoints.is_empty() && services.is_empty() {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(TARGETS)?;
            for (key, record) in targets {
                match record {
                    Some(record) => drop(
                        table.insert(key.to_bytes(), codec::encode_target(record).as_slice())?,
                    ),
                    None => drop(table.remove(key.to_bytes())?),
                }
            }
            let mut table = transaction.open_table(ENDPOINTS)?;
            for (key, record) in endpoints {
                let key = codec::encode_endpoint_key(key);
                match record {
                    Some(record) => {
                        drop(table.insert(&*key, codec::encode_endpoint(record).as_slice())?)
                    }
                    None => drop(table.remove(&*key)?),
                }
            }
            let mut table = transaction.open_table(SERVICES)?;
            for (name, record) in services {
                match record {
                    Some(record) => drop(
                        table.insert(name.as_str(), codec::encode_service(record).as_slice())?,
                    ),
                    None => drop(table.remove(name.as_str())?),
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Opens and reads in a thread of its own: a file that makes the database panic is a damaged file.
fn read(path: &Path) -> Result<(StateFile, Records), Rejected> {
    let path = path.to_owned();
    let reader = std::thread::Builder::new().name("vitals-state-read".into());
    let reader = reader
        .spawn(move || open_and_read(&path))
        .map_err(Rejected::System)?;
    // Joined here, so the thread ends with this function.
    reader
        .join()
        .unwrap_or_else(|_| Err(Rejected::Unusable("reading it failed badly".into())))
}

fn open_and_read(path: &Path) -> Result<(StateFile, Records), Rejected> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create(path);
    let database = database.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            Rejected::Locked
        }
        DatabaseError::Storage(redb::StorageError::Io(error)) if is_system(&error) => {
            Rejected::System(error)
        }
        other => Rejected::Unusable(other.to_string()),
    })?;
    let file = StateFile {
        database,
        path: path.to_owned(),
    };
    // Reading makes the tables where they are not there, which a full disk refuses as well.
    let records = file.read_all().map_err(|error| match error {
        redb::Error::Io(error) if is_system(&error) => Rejected::System(error),
        other => Rejected::Unusable(other.to_string()),
    })?;
    let records = records.map_err(Rejected::Unusable)?;
    Ok((file, records))
}

fn is_system(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    let refuses = matches!(
        error.kind(),
        NotFound | PermissionDenied | ReadOnlyFilesystem
    );
    refuses || is_full(error)
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

fn refused(dir: &Path, source: std::io::Error) -> OpenError {
    let dir = dir.into();
    match is_full(&source) {
        true => OpenError::Full { dir, source },
        false => OpenError::Directory { dir, source },
    }
}

/// Takes away what could not be made whole: the next start would call it damaged. One that is not there, or that the
/// system keeps, is as good as it gets.
fn remove_half_made(path: &Path) {
    drop(std::fs::remove_file(path));
}

impl StateFile {
    /// The records, or why the file is foreign. A record that does not decode is left out: its endpoint starts anew.
    fn read_all(&self) -> Result<Result<Records, String>, redb::Error> {
        let transaction = self.database.begin_write()?;
        let format = {
            let mut meta = transaction.open_table(META)?;
            let format = meta.get("format")?.map(|value| value.value());
            if format.is_none() {
                meta.insert("format", FORMAT)?;
            }
            drop(transaction.open_table(TARGETS)?);
            drop(transaction.open_table(ENDPOINTS)?);
            drop(transaction.open_table(SERVICES)?);
            format
        };
        if let Some(other) = format.filter(|format| *format != FORMAT) {
            return Ok(Err(format!(
                "its format is {other}; this version writes {FORMAT}"
            )));
        }
        transaction.commit()?;

        let mut records = Records::default();
        let mut unread = 0;
        let transaction = self.database.begin_read()?;
        for entry in transaction.open_table(TARGETS)?.iter()? {
            let (key, value) = entry?;
            match codec::decode_target(value.value()) {
                Some(record) => drop(
                    records
                        .targets
                        .insert(StateKey::from_bytes(key.value()), record),
                ),
                None => unread += 1,
            }
        }
        for entry in transaction.open_table(ENDPOINTS)?.iter()? {
            let (key, value) = entry?;
            match (
                codec::decode_endpoint_key(key.value()),
                codec::decode_endpoint(value.value()),
            ) {
                (Some(key), Some(record)) => drop(records.endpoints.insert(key, record)),
                _ => unread += 1,
            }
        }
        for entry in transaction.open_table(SERVICES)?.iter()? {
            let (key, value) = entry?;
            match (Name::new(key.value()), codec::decode_service(value.value())) {
                (Some(name), Some(record)) => drop(records.services.insert(name, record)),
                _ => unread += 1,
            }
        }
        if unread > 0 {
            tracing::warn!(
                records = unread,
                "some stored states cannot be read; their endpoints start anew"
            );
        }
        Ok(Ok(records))
    }
}

/// A name beside the file that is not taken yet.
fn free_name(path: &Path) -> PathBuf {
    let seconds = clock::wall()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let named = |n: u32| {
        path.with_extension(format!(
            "redb.damaged-{seconds}{}",
            if n == 0 {
                String::new()
            } else {
                format!("-{n}")
            }
        ))
    };
    (0..)
        .map(named)
        .find(|name| !name.exists())
        .unwrap_or_else(|| named(0))
}
