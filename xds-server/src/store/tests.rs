//! The store on real files: what comes back, and what is done with files that are not ours.

use std::time::{Duration, UNIX_EPOCH};

use tempfile::TempDir;
use vitals_prober::tally::{TallyState, Verdict};

use super::*;
use crate::model::Name;

fn change(n: u8, verdict: Verdict) -> [Change; 2] {
    let since = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let key = StateKey::from_bytes([n; 16]);
    let tally = TallyState {
        verdict: Some(verdict),
        ..TallyState::default()
    };
    let address = ([127, 0, 0, n], 80).into();
    [
        Change::Target(
            key,
            Some(TargetRecord {
                never_passed: false,
                tally,
                since,
                reason: None,
            }),
        ),
        Change::Endpoint(
            (Name::new("shop").unwrap(), address),
            Some(EndpointRecord {
                verdict,
                since,
                reason: None,
                key: Some(key),
            }),
        ),
    ]
}

fn set_aside(dir: &TempDir) -> usize {
    let names = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().contains("damaged"))
        .count()
}

async fn filled() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (store, records) = Store::open(dir.path()).unwrap();
    assert!(records.targets.is_empty() && records.endpoints.is_empty());
    store.write(change(1, Verdict::Healthy).into());
    store.write(change(2, Verdict::Timeout).into());
    store.close().await;
    dir
}

#[tokio::test]
async fn what_was_written_comes_back_and_the_newest_word_counts() {
    let dir = filled().await;
    let (store, records) = Store::open(dir.path()).unwrap();
    assert_eq!((records.targets.len(), records.endpoints.len()), (2, 2));
    store.write(change(1, Verdict::Unhealthy).into());
    let [Change::Target(key, _), Change::Endpoint(endpoint, _)] = change(2, Verdict::Timeout)
    else {
        panic!("both")
    };
    store.write(vec![
        Change::Target(key, None),
        Change::Endpoint(endpoint, None),
    ]);
    store.close().await;
    let (store, records) = Store::open(dir.path()).unwrap();
    let verdicts: Vec<Verdict> = records
        .endpoints
        .values()
        .map(|record| record.verdict)
        .collect();
    assert_eq!(
        (records.targets.len(), verdicts),
        (1, vec![Verdict::Unhealthy])
    );
    store.close().await;
    assert_eq!(set_aside(&dir), 0);
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused_and_harms_nothing() {
    let dir = filled().await;
    let (store, _) = Store::open(dir.path()).unwrap();
    assert!(matches!(
        Store::open(dir.path()),
        Err(OpenError::Locked { .. })
    ));
    store.close().await;
    let (store, records) = Store::open(dir.path()).unwrap();
    assert_eq!(records.targets.len(), 2);
    store.close().await;
}

#[tokio::test]
async fn a_damaged_or_foreign_file_is_set_aside_and_the_store_starts_empty() {
    let whole = filled().await;
    let bytes = std::fs::read(whole.path().join(STATE_FILE)).unwrap();
    let foreign: [(&str, Vec<u8>); 5] = [
        ("text", b"hello, I am a text file\n".repeat(500)),
        ("zeros", vec![0; 100_000]),
        ("half", bytes[..bytes.len() / 2].to_vec()),
        ("one page", bytes[..512].to_vec()),
        ("noise behind the header", {
            let mut noise = bytes.clone();
            for (i, byte) in noise.iter_mut().enumerate().skip(320) {
                *byte = u8::try_from(i % 251).unwrap();
            }
            noise
        }),
    ];
    for (what, content) in foreign {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(STATE_FILE), &content).unwrap();
        let (store, records) =
            Store::open(dir.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(records.endpoints.is_empty(), "{what}");
        assert_eq!(set_aside(&dir), 1, "{what}");
        store.write(change(3, Verdict::Healthy).into());
        store.close().await;
        let (store, records) = Store::open(dir.path()).unwrap();
        assert_eq!(records.endpoints.len(), 1, "{what}: the new file works");
        store.close().await;
    }
}

#[tokio::test]
async fn a_file_that_was_removed_while_it_was_open_is_made_anew() {
    let dir = filled().await;
    let (store, _) = Store::open(dir.path()).unwrap();
    std::fs::remove_file(dir.path().join(STATE_FILE)).unwrap();
    store.write(change(3, Verdict::Healthy).into());
    store.close().await;
    let (store, records) = Store::open(dir.path()).unwrap();
    assert_eq!(records.endpoints.len(), 1, "what changed after the removal");
    store.close().await;
}

#[tokio::test]
async fn an_empty_file_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(STATE_FILE), b"").unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    store.close().await;
    assert_eq!(set_aside(&dir), 0);
}

#[tokio::test]
async fn a_directory_that_cannot_be_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = Store::open(&file.join("state")).unwrap_err();
    assert!(error.to_string().contains("file/state"), "{error}");
}

#[test]
fn a_file_that_a_full_disk_leaves_half_made_is_taken_away() {
    use super::file::{Rejected, StateFile};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(STATE_FILE);
    let full = || Rejected::System(std::io::ErrorKind::StorageFull.into());
    let half_made = |path: &Path| -> Result<(), Rejected> {
        std::fs::write(path, b"half").unwrap();
        Err(full())
    };
    let error = StateFile::open_with(dir.path(), half_made).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("; free space there, or name a directory on another disk with --state-dir"),
        "{error}"
    );
    assert!(!path.exists());

    // What was there before is nobody's to take away.
    std::fs::write(&path, b"older").unwrap();
    StateFile::open_with(dir.path(), |_| Err::<(), _>(full())).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"older");
    assert_eq!(set_aside(&dir), 0);

    // Nor is a damaged one set aside in vain.
    let calls = std::cell::Cell::new(0);
    let damaged_then_full = |path: &Path| {
        calls.set(calls.get() + 1);
        match calls.get() {
            1 => Err(Rejected::Unusable("damaged".into())),
            _ => half_made(path),
        }
    };
    StateFile::open_with(dir.path(), damaged_then_full).unwrap_err();
    assert!(!path.exists());
    assert_eq!(set_aside(&dir), 1);
}
