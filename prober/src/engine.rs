//! The engine: targets in, reports out.
//!
//! API sketch; the implementation follows.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use crate::check::HealthCheck;
use crate::outcome::Outcome;
use crate::tally::{Step, TallyState};
use crate::target::{StateKey, Target};

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Worker threads; at least 1. Each owns a share of the targets.
    pub workers: usize,
    /// Probes in flight at most, over all workers.
    pub max_in_flight: usize,
    /// The vantage's name: part of the phase, so that vantages do not probe in step (design 5.11).
    pub vantage: String,
}

/// Hears of every probe, for metrics. Called on the worker threads: must not block.
pub trait Recorder: Send + Sync + 'static {
    /// One probe has ended. `lateness`: how much later than due it started.
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
}

/// A running engine. Dropping it stops the workers.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Starts the workers.
    ///
    /// # Errors
    /// When the system gives no event queue or thread.
    pub fn start(
        _config: EngineConfig,
        _recorder: Arc<dyn Recorder>,
    ) -> std::io::Result<(Self, mpsc::Receiver<Report>)> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Makes the set of targets exactly this: unknown keys are added with their seed, known ones go on undisturbed
    /// (counters, phase, a probe under way), missing ones are dropped with the probe under way.
    pub fn set_targets(&self, _targets: Vec<Target>) {}

    /// Stops the workers and waits for them.
    pub fn shutdown(self) {}
}
