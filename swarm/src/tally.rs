//! What all streams together have seen: who is in step, who has acknowledged the present flip, who lags how far.
//!
//! In: notes of the streams, from several threads. Out: figures. A stream is in step when it has all clusters and load
//! assignments, be it from before a reconnect, and the server has answered its last subscription.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The notes.
#[derive(Debug)]
pub(crate) struct Tally {
    streams: usize,
    /// Bytes of gRPC bodies received.
    pub(crate) bytes: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) resources: AtomicU64,
    pub(crate) removed: AtomicU64,
    /// Clusters and load assignments that were sent in the version that the client had said it has.
    pub(crate) resent: AtomicU64,
    pub(crate) disconnects: AtomicU64,
    in_step: Mutex<InStep>,
    /// The number of the present flip; streams compare it with their own.
    pub(crate) flip: AtomicU64,
    /// The service that the present flip is of.
    pub(crate) flipped: AtomicUsize,
    /// The endpoint itself.
    pub(crate) flipped_endpoint: AtomicUsize,
    acks: Mutex<Acks>,
    changed: Condvar,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct InStep {
    count: usize,
    all_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Acks {
    /// When each stream acknowledged the present flip.
    at: Vec<Instant>,
}

/// The states of the load assignments in the order in which any stream first saw them. A state can come back.
#[derive(Debug, Default)]
struct History {
    seen_at: Vec<Instant>,
    places: HashMap<Vec<u8>, Vec<usize>>,
    recording: bool,
    /// In milliseconds.
    lags: Vec<u32>,
}

impl Tally {
    pub(crate) fn new(streams: usize) -> Self {
        Self {
            streams,
            bytes: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            resources: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            resent: AtomicU64::new(0),
            disconnects: AtomicU64::new(0),
            in_step: Mutex::default(),
            flip: AtomicU64::new(0),
            flipped: AtomicUsize::new(usize::MAX),
            flipped_endpoint: AtomicUsize::new(usize::MAX),
            acks: Mutex::default(),
            changed: Condvar::new(),
            history: Mutex::default(),
        }
    }

    /// How many streams there are that read.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// A stream came in step, or fell out of it.
    pub(crate) fn step(&self, is_in: bool) {
        let mut in_step = lock(&self.in_step);
        if is_in {
            in_step.count += 1;
            if in_step.count == self.streams {
                in_step.all_at = Some(Instant::now());
            }
        } else {
            in_step.count -= 1;
            in_step.all_at = None;
        }
    }

    /// How many streams are in step, and since when all are.
    pub(crate) fn in_step(&self) -> (usize, Option<Instant>) {
        let in_step = lock(&self.in_step);
        (in_step.count, in_step.all_at)
    }

    /// A new flip, of an endpoint of that service.
    pub(crate) fn begin_flip(&self, service: usize, endpoint: usize) {
        lock(&self.acks).at.clear();
        self.flipped_endpoint.store(endpoint, Ordering::SeqCst);
        self.flipped.store(service, Ordering::SeqCst);
        self.flip.fetch_add(1, Ordering::SeqCst);
    }

    /// A stream has acknowledged the present flip.
    pub(crate) fn acked(&self) {
        let mut acks = lock(&self.acks);
        acks.at.push(Instant::now());
        if acks.at.len() == self.streams {
            self.changed.notify_all();
        }
    }

    /// Waits until all streams have acknowledged the present flip; says when each did.
    pub(crate) fn all_acks(&self, patience: Duration) -> Vec<Instant> {
        let acks = lock(&self.acks);
        let waited = self
            .changed
            .wait_timeout_while(acks, patience, |acks| acks.at.len() < self.streams);
        let (acks, _) = waited.unwrap_or_else(PoisonError::into_inner);
        acks.at.clone()
    }

    /// From now on lags are noted, or no longer. Returns those that were.
    pub(crate) fn record(&self, recording: bool) -> Vec<u32> {
        let mut history = lock(&self.history);
        history.recording = recording;
        std::mem::take(&mut history.lags)
    }

    /// A stream that was at `place` has got a state. Returns its new place. Its lag is the time since the first stream got
    /// the state after its last one.
    pub(crate) fn saw(&self, place: usize, version: &[u8]) -> usize {
        let now = Instant::now();
        let mut history = lock(&self.history);
        let known = history.places.get(version);
        let later = known.and_then(|places| places.iter().copied().find(|at| *at > place));
        let new = later.unwrap_or_else(|| {
            let new = history.seen_at.len();
            history.seen_at.push(now);
            history
                .places
                .entry(version.to_vec())
                .or_default()
                .push(new);
            new
        });
        if history.recording
            && let Some(since) = history.seen_at.get(place + 1)
        {
            let lag = now.saturating_duration_since(*since).as_millis();
            history.lags.push(u32::try_from(lag).unwrap_or(u32::MAX));
        }
        new
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_comes_back_is_a_new_place() {
        let tally = Tally::new(2);
        let a = tally.saw(0, b"start");
        let b = tally.saw(a, b"a");
        let c = tally.saw(b, b"start");
        assert_eq!((a, b, c), (0, 1, 2));
        assert_eq!(tally.saw(a, b"start"), 2, "another stream skips one");
    }

    #[test]
    fn all_acks_are_waited_for() {
        let tally = Tally::new(2);
        tally.begin_flip(7, 70);
        tally.acked();
        assert_eq!(tally.all_acks(Duration::ZERO).len(), 1);
        tally.acked();
        assert_eq!(tally.all_acks(Duration::from_secs(60)).len(), 2);
    }
}
