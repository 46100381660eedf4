//! One worker: a thread, an event queue, and a share of the targets.
//!
//! In: target sets from the mailbox, readiness from the event queue, time. Out: outcomes to the recorder, beats to the
//! pulses, reports to the outbox.
//!
//! ```text
//! loop ─► wait for events ─► serve readiness ─► take a new set ─► serve timers ─► start who waited for the cap ─┐
//!  ▲           (as of time t, the queue drained)                  (due by t)                                    │
//!  └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The order is the point (semantics P16): a deadline is only expired when all that the sockets had to say by then is
//! heard, so our own lateness never turns an answer into a timeout. A round starts a bounded number of probes, so a
//! herd of starts does not delay the answers either.
//!
//! ```text
//! target:  RESTING ──due──► IN FLIGHT ──outcome──► RESTING
//!             │ due, cap reached  ▲
//!             └──────► WAITING ───┘ room (first probes wait for all others); or too late: LOCAL_LATE ──► RESTING
//! ```
//!
//! Not here: how the set of targets changes (`upkeep`), when a target is due (`schedule`), what a probe does (`probe`), how results are counted (`tally`).

mod upkeep;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use tokio::sync::mpsc;

use super::reports::{Backlog, Outbox};
use super::timers::Timers;
use super::waiting::Waiting;
use super::{Mailbox, Recorder, Report};
use crate::clock;
use crate::outcome::{Outcome, ProbeResult, ReasonCode, Times};
use crate::probe::{Attempt, Context, Progress, Readiness, Sessions, late_reason};
use crate::schedule::{Schedule, Spread, Turn, allowance};
use crate::tally::{Step, Tally};
use crate::target::{StateKey, Target};

const WAKE: Token = Token(usize::MAX);

/// Events taken at once; a full load means that there may be more.
const EVENTS: usize = 1024;
/// Timers served in one round, and probes started from the waiting ones.
const BATCH: usize = 64;
/// First probes that are put among the waiting ones in one round, which costs next to nothing.
const FIRST_BATCH: usize = 1024;
/// How often a reader that is behind is offered the backlog.
const RETRY_REPORTS: Duration = Duration::from_millis(20);
/// How often the log is told of the same fault of our own.
const WARN_AGAIN: Duration = Duration::from_secs(60);
/// How long a worker rests after its loop broke, so that a lasting fault does not spin.
const AFTER_FAULT: Duration = Duration::from_millis(200);

/// What a worker is made of.
pub(super) struct Setup {
    pub(super) spread: Spread,
    pub(super) max_in_flight: usize,
    pub(super) context: Context,
    pub(super) recorder: Arc<dyn Recorder>,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) faults: Arc<AtomicU64>,
}

pub(super) struct Worker {
    spread: Spread,
    max_in_flight: usize,
    recorder: Arc<dyn Recorder>,
    faults: Arc<AtomicU64>,
    outbox: Outbox,
    poll: Poll,
    context: Context,
    entries: Slab<Entry>,
    index: HashMap<StateKey, usize>,
    timers: Timers,
    /// Due targets that the cap keeps from starting, and all that are due for their first probe.
    waiting: Waiting,
    in_flight: usize,
    /// Reports so far. One count for all targets: it also grows for one that leaves and comes again.
    told: u64,
    /// The number of the newest set.
    generation: u64,
    /// When the log was told of a fault of our own last.
    warned: HashMap<ReasonCode, Instant>,
}

/// One target at rest or in flight: all that is kept of it.
struct Entry {
    target: Target,
    tally: Tally,
    schedule: Schedule,
    attempt: Option<Box<Attempt>>,
    /// What TLS keeps from one probe to the next; `None` where there is no TLS.
    sessions: Option<Arc<Sessions>>,
    /// Tells the sockets of this target apart.
    serial: u32,
    /// How late the probe under way started.
    lateness: Duration,
    backlog: Backlog,
    /// The number of the last set that has it.
    generation: u64,
}

impl Worker {
    pub(super) fn new(setup: Setup) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let worker = Self {
            spread: setup.spread,
            max_in_flight: setup.max_in_flight,
            recorder: setup.recorder,
            faults: setup.faults,
            outbox: Outbox::new(setup.reports),
            poll,
            context: setup.context,
            entries: Slab::new(),
            index: HashMap::new(),
            timers: Timers::default(),
            waiting: Waiting::default(),
            in_flight: 0,
            told: 0,
            generation: 0,
            warned: HashMap::new(),
        };
        Ok((worker, waker))
    }

    /// The thread: returns when the mailbox says stop.
    pub(super) fn run(&mut self, mailbox: &Mailbox) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            // What a panic may leave half done is put right by `recover`.
            match catch_unwind(AssertUnwindSafe(|| self.rounds(&mut events, mailbox))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::error!(%error, "the event queue of a probe worker failed; its probes start anew");
                }
                Err(_) => tracing::error!("a probe worker panicked; its probes start anew"),
            }
            self.faults.fetch_add(1, Ordering::Relaxed);
            thread::park_timeout(AFTER_FAULT);
            self.recover(clock::now());
        }
    }

    fn rounds(&mut self, events: &mut Events, mailbox: &Mailbox) -> io::Result<()> {
        let mut more = false;
        loop {
            let patience = if more {
                Some(Duration::ZERO)
            } else {
                self.patience(clock::now())
            };
            match self.poll.poll(events, patience) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let heard = clock::now();
            let mut served = 0;
            for event in events.iter() {
                served += 1;
                if event.token() != WAKE {
                    let ready = Readiness {
                        readable: event.is_readable() || event.is_read_closed(),
                        writable: event.is_writable(),
                        error: event.is_error(),
                    };
                    let (index, serial) = parts(event.token());
                    self.guarded(index, |worker| worker.serve(index, serial, ready));
                }
            }
            let letter = mailbox.read();
            if letter.stop {
                return Ok(());
            }
            if let Some(targets) = letter.targets {
                self.apply(targets, clock::now());
            }
            self.outbox.flush(&mut self.entries, |entries, index| {
                entries.get_mut(index).map(|entry| &mut entry.backlog)
            });
            // A full load of events: what other sockets had to say by now is not heard yet, so no deadline may pass.
            more = served >= EVENTS || self.serve_timers(heard);
        }
    }

    /// How long to wait for events.
    fn patience(&self, now: Instant) -> Option<Duration> {
        let timer = self
            .timers
            .next()
            .map(|at| at.saturating_duration_since(now));
        if self.outbox.is_behind() {
            Some(timer.map_or(RETRY_REPORTS, |timer| timer.min(RETRY_REPORTS)))
        } else {
            timer
        }
    }

    /// Serves timers that were due at `heard`, then those that wait for the cap; `true` when some are left.
    fn serve_timers(&mut self, heard: Instant) -> bool {
        let (mut left, mut first_left) = (BATCH, FIRST_BATCH);
        while left > 0
            && first_left > 0
            && let Some(index) = self.timers.pop(heard)
        {
            if self.await_first(index) {
                first_left -= 1;
                continue;
            }
            left -= 1;
            self.guarded(index, |worker| worker.serve_timer(index));
        }
        let mut room = BATCH;
        while room > 0
            && self.in_flight < self.max_in_flight
            && let Some(index) = self.waiting.pop()
        {
            room -= 1;
            self.guarded(index, |worker| worker.begin(index));
        }
        left == 0 || first_left == 0 || room == 0
    }

    /// Puts a target that is due for its first probe among the waiting ones, where regular slots overtake it.
    fn await_first(&mut self, index: usize) -> bool {
        let entry = self.entries.get(index);
        let Some(entry) = entry.filter(|e| e.attempt.is_none() && e.schedule.is_first()) else {
            return false;
        };
        self.waiting.add_first(entry.schedule.due(), index);
        true
    }

    /// One step for one target: whatever goes wrong in it stays with that target.
    fn guarded(&mut self, index: usize, step: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| step(self))).is_ok() {
            return;
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.entries.get(index) {
            let target = &entry.target;
            tracing::error!(key = ?target.key, address = %target.address, "a probe panicked; its target goes on with its next slot");
        }
        self.reset(index, clock::now());
    }

    /// The socket of a probe is ready.
    fn serve(&mut self, index: usize, serial: u32, ready: Readiness) {
        let now = clock::now();
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        // Not an event of an earlier probe's socket, which a child process might have held open for a moment.
        if entry.serial != serial {
            return;
        }
        let Some(attempt) = &mut entry.attempt else {
            return;
        };
        let timer = attempt.timer();
        match attempt.ready(ready, &entry.target, &mut self.context, now) {
            Progress::Ended(outcome) => self.finish(index, outcome, now),
            Progress::Waiting if attempt.timer() != timer => {
                self.timers.set(index, attempt.timer());
            }
            Progress::Waiting => {}
            Progress::Reconnected => {
                entry.serial = entry.serial.wrapping_add(1);
                if let Err(error) = register(&self.poll, attempt, index, entry.serial) {
                    let outcome = Attempt::refused(&entry.target, &error);
                    self.finish(index, outcome, now);
                }
            }
        }
    }

    /// The timer of a target has come.
    fn serve_timer(&mut self, index: usize) {
        let now = clock::now();
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        if let Some(attempt) = &mut entry.attempt {
            match attempt.elapsed(&entry.target, &mut self.context, now) {
                Some(outcome) => self.finish(index, outcome, now),
                None => self.timers.set(index, attempt.timer()),
            }
            return;
        }
        let due = entry.schedule.due();
        let waits = self.waiting.remove(due, index);
        // One that has waited until now is too late, which `begin` says; one that finds others waiting goes behind.
        let full = self.in_flight >= self.max_in_flight || self.waiting.any_regular();
        if full && !waits {
            let late_from = entry
                .schedule
                .late_from(allowance(entry.target.check.timeout()));
            self.waiting.add(due, index);
            if let Some(late_from) = late_from {
                // A start at the very end of the allowance would still be in time.
                self.timers.set(index, late_from + Duration::from_millis(1));
            }
        } else {
            self.begin(index);
        }
    }

    /// Starts the probe of a due target, unless it is too late for it.
    fn begin(&mut self, index: usize) {
        let now = clock::now();
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        let target = &entry.target;
        match entry.schedule.begin(now, allowance(target.check.timeout())) {
            Turn::Missed(lateness) => {
                let outcome = Outcome {
                    result: ProbeResult::Inconclusive,
                    reason: late_reason("would have started", lateness),
                    times: Times::default(),
                };
                self.timers.set(index, entry.schedule.due());
                target.pulse.note_failure(clock::wall(), &outcome);
                self.recorder.probe(&target.check, &outcome, lateness);
                self.warn_of(&outcome, now);
            }
            Turn::Run(lateness) => {
                entry.lateness = lateness;
                entry.serial = entry.serial.wrapping_add(1);
                let attempt = Attempt::start(target, &mut entry.sessions, &mut self.context, now)
                    .and_then(|attempt| {
                        match register(&self.poll, &attempt, index, entry.serial) {
                            Ok(()) => Ok(attempt),
                            Err(error) => Err(Attempt::refused(target, &error)),
                        }
                    });
                match attempt {
                    Ok(attempt) => {
                        self.timers.set(index, attempt.timer());
                        entry.attempt = Some(Box::new(attempt));
                        self.in_flight += 1;
                    }
                    Err(outcome) => self.finish(index, outcome, now),
                }
            }
        }
    }

    /// A probe has ended: closes its connection, counts it, tells of it, and waits for the next slot.
    fn finish(&mut self, index: usize, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        if entry.attempt.take().is_some() {
            self.in_flight -= 1;
        }
        entry.schedule.end(now);
        self.timers.set(index, entry.schedule.due());
        let check = &entry.target.check;
        let step = entry.tally.record(outcome.result, check.thresholds());
        if outcome.result != ProbeResult::Pass {
            entry.target.pulse.note_failure(clock::wall(), &outcome);
        }
        if outcome.result != ProbeResult::Inconclusive {
            let at = clock::wall();
            entry
                .target
                .pulse
                .beat(at, clock::now(), outcome.times.total);
            if step != Step::Unchanged {
                self.told += 1;
                let report = Report {
                    key: entry.target.key,
                    step,
                    tally: entry.tally.state(),
                    outcome: outcome.clone(),
                    at,
                    serial: self.told,
                };
                self.outbox.send(index, report, &mut entry.backlog);
            }
        }
        self.recorder.probe(check, &outcome, entry.lateness);
        self.warn_of(&outcome, now);
    }

    /// Tells the log when our own side fails, once a minute for each kind of fault.
    fn warn_of(&mut self, outcome: &Outcome, now: Instant) {
        if outcome.result != ProbeResult::Inconclusive {
            return;
        }
        let code = outcome.reason.code;
        let quiet = self
            .warned
            .get(&code)
            .is_some_and(|at| now.saturating_duration_since(*at) < WARN_AGAIN);
        if !quiet {
            self.warned.insert(code, now);
            tracing::warn!(
                code = code.as_str(),
                text = &*outcome.reason.text,
                "probes say nothing because of a fault of our own"
            );
        }
    }
}

/// Asks the event queue for the edges of an attempt's socket.
fn register(poll: &Poll, attempt: &Attempt, index: usize, serial: u32) -> io::Result<()> {
    poll.registry().register(
        &mut SourceFd(&attempt.socket().as_raw_fd()),
        token(index, serial),
        Interest::READABLE | Interest::WRITABLE,
    )
}

/// The event queue's name for a probe: the target's index below, the probe's serial number above.
fn token(index: usize, serial: u32) -> Token {
    let serial = usize::try_from(serial).unwrap_or(0);
    Token(serial.checked_shl(32).unwrap_or(0) | index)
}

/// What [`token`] put together.
fn parts(Token(token): Token) -> (usize, u32) {
    let serial = token.checked_shr(32).unwrap_or(0);
    (
        token & usize::try_from(u32::MAX).unwrap_or(usize::MAX),
        u32::try_from(serial).unwrap_or(0),
    )
}
