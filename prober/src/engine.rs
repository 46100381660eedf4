//! The engine: targets in, reports out (semantics S3, P15, P16).
//!
//! In: the set of targets, as a whole, whenever it changes. Out: a [`Report`] whenever a target's tally moves, a
//! heartbeat in each target's pulse, and every outcome to the [`Recorder`].
//!
//! ```text
//! set_targets ──► mailbox of each worker ──► worker: timers, sockets, tallies ──► bounded channel ──► Receiver<Report>
//!                 (newest set wins)          (one thread, one event queue)        (full: folded per target)
//! ```
//!
//! A few plain threads with one epoll each, not tasks: a probe is some ten system calls, so the event loop is most of
//! its cost, and 100,000 endpoints may not need a task, a timer or a lock each. A target stays with its worker, chosen
//! by its key, so nothing is shared between workers but the channel.
//!
//! Nothing a target does or says stops the others: a panic in one probe is caught, logged as an error, counted in
//! [`Engine::faults`], and the target goes on with its next slot. A worker whose loop itself breaks does the same with
//! all its targets; their tallies stay.
//!
//! What it is not: it knows no services and no votes, and keeps nothing on disk.

mod limits;
mod reports;
mod timers;
mod waiting;
mod worker;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use mio::Waker;
use tokio::sync::mpsc;

pub use self::limits::{in_flight_cap, raise_descriptor_limit};
use self::worker::Worker;
use crate::check::HealthCheck;
use crate::clock;
use crate::outcome::Outcome;
use crate::probe::{Configs, Context, Trace};
use crate::schedule::Spread;
use crate::tally::{Step, TallyState};
use crate::target::{StateKey, Target};

/// Reports that wait for their reader, at most; beyond that they are folded per target.
const REPORTS: usize = 16_384;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Worker threads; at least 1. Each owns a share of the targets.
    pub workers: usize,
    /// Probes in flight at most, over all workers; at least one per worker.
    pub max_in_flight: usize,
    /// The vantage's name: part of the phase, so that vantages do not probe in step (design 5.11).
    pub vantage: String,
    /// The address that probes come from (semantics P17); `None`: the one that the system's routes choose. Targets of
    /// the other family are INCONCLUSIVE.
    pub source_address: Option<IpAddr>,
}

/// Hears of every probe, for metrics. Called on the worker threads: must not block.
pub trait Recorder: Send + Sync + 'static {
    /// One probe has ended. `lateness`: how much later than due it started. That of a first probe counts from its place in
    /// the first second (semantics S3): it is the wait for a turn or for room, and never makes it INCONCLUSIVE (P16).
    fn probe(&self, check: &HealthCheck, outcome: &Outcome, lateness: Duration);
}

/// A target's tally has moved.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whose.
    pub key: StateKey,
    /// How it moved: `Counted` or `Judged`.
    pub step: Step,
    /// Where it stands now.
    pub tally: TallyState,
    /// The probe that moved it.
    pub outcome: Outcome,
    /// When that probe ended.
    pub at: SystemTime,
    /// Grows with every report on the target; of two, the larger is the newer.
    pub serial: u64,
}

/// A running engine. Dropping it stops the workers and waits for them.
#[derive(Debug)]
pub struct Engine {
    workers: Vec<Handle>,
    /// Held while a set is handed out, so that all workers see sets in the same order.
    handing_out: Mutex<()>,
    faults: Arc<AtomicU64>,
}

/// A worker as the engine sees it.
#[derive(Debug)]
struct Handle {
    mailbox: Arc<Mailbox>,
    /// Ends when the mailbox says stop, and for no other reason.
    thread: Option<JoinHandle<()>>,
}

/// What the engine tells a worker: only the newest counts.
#[derive(Debug)]
struct Mailbox {
    letter: Mutex<Letter>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Letter {
    targets: Option<Vec<Target>>,
    stop: bool,
}

impl Mailbox {
    fn write(&self, change: impl FnOnce(&mut Letter)) {
        // The lock guards plain values that are whole at any time, so a panic elsewhere spoils nothing.
        change(&mut self.letter.lock().unwrap_or_else(PoisonError::into_inner));
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake a probe worker; it will look into its mailbox at its next timer");
        }
    }

    fn read(&self) -> Letter {
        let mut letter = self.letter.lock().unwrap_or_else(PoisonError::into_inner);
        Letter {
            targets: letter.targets.take(),
            stop: letter.stop,
        }
    }
}

impl Engine {
    /// Starts the workers.
    ///
    /// # Errors
    /// When the system gives no event queue or thread.
    pub fn start(
        config: EngineConfig,
        recorder: Arc<dyn Recorder>,
    ) -> io::Result<(Self, mpsc::Receiver<Report>)> {
        Self::start_with_room(config, recorder, REPORTS)
    }

    fn start_with_room(
        config: EngineConfig,
        recorder: Arc<dyn Recorder>,
        room: usize,
    ) -> io::Result<(Self, mpsc::Receiver<Report>)> {
        let (sender, receiver) = mpsc::channel(room);
        let spread = Spread::new(&config.vantage, clock::now());
        let count = config.workers.max(1);
        let configs = Arc::<Configs>::default();
        let mut engine = Self {
            workers: Vec::with_capacity(count),
            handing_out: Mutex::new(()),
            faults: Arc::default(),
        };
        for index in 0..count {
            let share =
                config.max_in_flight / count + usize::from(index < config.max_in_flight % count);
            let (mut worker, waker) = Worker::new(worker::Setup {
                spread,
                max_in_flight: share.max(1),
                context: Context::new(
                    Arc::clone(&configs),
                    config.source_address,
                    Trace::default(),
                ),
                recorder: Arc::clone(&recorder),
                reports: sender.clone(),
                faults: Arc::clone(&engine.faults),
            })?;
            let mailbox = Arc::new(Mailbox {
                letter: Mutex::default(),
                waker,
            });
            let thread = std::thread::Builder::new()
                .name(format!("probe-{index}"))
                .spawn({
                    let mailbox = Arc::clone(&mailbox);
                    move || worker.run(&mailbox)
                })?;
            engine.workers.push(Handle {
                mailbox,
                thread: Some(thread),
            });
        }
        Ok((engine, receiver))
    }

    /// Makes the set of targets exactly this: unknown keys are added with their seed, known ones go on undisturbed
    /// (counters, phase, a probe under way), missing ones are dropped with the probe under way.
    pub fn set_targets(&self, targets: Vec<Target>) {
        let count = self.workers.len().max(1);
        let mut shares: Vec<Vec<Target>> = Vec::new();
        shares.resize_with(count, || Vec::with_capacity(targets.len() / count + 1));
        for target in targets {
            let share = usize::try_from(target.key.spread() % count as u64).unwrap_or(0);
            if let Some(share) = shares.get_mut(share) {
                share.push(target);
            }
        }
        let _order = self
            .handing_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (worker, share) in self.workers.iter().zip(shares) {
            worker.mailbox.write(|letter| letter.targets = Some(share));
        }
    }

    /// How many faults of our own (caught panics, a failing event queue) there have been; each is logged as an error.
    /// Anything but 0 is a bug to report.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Stops the workers and waits for them.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.mailbox.write(|letter| letter.stop = true);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a probe worker had panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests;
