//! What each vantage says of one target, and when this server heard it (semantics V1).
//!
//! In: reports of probers, beats in pulses, the time. Out: votes, and whether one has turned. Only this server's own
//! monotonic clock decides what is fresh and which turn is the latest: a prober's clock, and ours when it is set, say
//! nothing but what people read.
//!
//! Reports may come twice or late: each has a serial, and one that is not newer than the last is without effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vitals_prober::check::HealthCheck;
use vitals_prober::engine::Report;
use vitals_prober::outcome::Times;
use vitals_prober::tally::{Step, TallyState, Verdict};
use vitals_prober::target::Pulse;

use super::reasons::Reasons;
use super::steps::Steps;
use super::{EMBEDDED_VANTAGE, TargetRecord};
use crate::health::guard::Abstention;
use crate::health::{Now, VoteView, freshness};
use crate::plan::Place;

/// The state of one planned target.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) check: Arc<HealthCheck>,
    /// The endpoints that it speaks for; none for a canary.
    pub(super) places: Box<[Place]>,
    /// One of each assigned vantage.
    pub(super) ballots: Box<[Ballot]>,
}

/// What one vantage says of a target.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) vantage: Arc<str>,
    pub(super) pulse: Arc<Pulse>,
    /// From when on silence counts, where the pulse has not beaten since: the target or the server came then, or a
    /// report.
    heard: Instant,
    pub(super) turned: Option<Instant>,
    serial: u64,
    pub(super) fresh: bool,
    pub(super) record: TargetRecord,
    steps: Option<Steps>,
}

/// A vote's health before and after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) before: Option<Verdict>,
    pub(super) after: Verdict,
}

/// What a ballot says by its verdict and its latest probe; of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was never judged, or has never answered since it was configured.
    Nothing,
    /// It is healthy.
    Answer,
    /// It is healthy, but its latest probe failed.
    FirstFailure,
    /// It is not healthy.
    Silence,
    /// It is not healthy, but its latest probe passed.
    FirstAnswer,
}

/// By when a report of a probe has come, of which the pulse tells.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// How much later than it should a first probe may come.
const SLACK: Duration = Duration::from_millis(500);

impl Watch {
    /// A target that was not watched before. `ours`: what the embedded prober is to start from.
    pub(super) fn new(
        check: &Arc<HealthCheck>,
        assigned: &[Arc<str>],
        mut ours: impl FnMut() -> TargetRecord,
        now: Now,
    ) -> Self {
        let ballots = assigned.iter().map(|vantage| match &**vantage {
            EMBEDDED_VANTAGE => Ballot::new(vantage, ours(), now),
            _ => Ballot::empty(vantage, now),
        });
        Self {
            check: Arc::clone(check),
            places: Box::default(),
            ballots: ballots.collect(),
        }
    }

    /// Keeps the ballots of those that are assigned still, and has an empty one for each that is new.
    pub(super) fn reassign(&mut self, assigned: &[Arc<str>], now: Now) {
        let mut before: Vec<Ballot> = std::mem::take(&mut self.ballots).into();
        let ballots = assigned.iter().map(|vantage| {
            let known = before.iter().position(|b| b.vantage == *vantage);
            match known {
                Some(at) => before.swap_remove(at),
                None => Ballot::empty(vantage, now),
            }
        });
        self.ballots = ballots.collect();
    }

    pub(super) fn ballot(&self, vantage: &str) -> Option<&Ballot> {
        self.ballots.iter().find(|b| &*b.vantage == vantage)
    }

    pub(super) fn ballot_mut(&mut self, vantage: &str) -> Option<&mut Ballot> {
        self.ballots.iter_mut().find(|b| &*b.vantage == vantage)
    }

    /// Looks which votes are still fresh. Whether that has changed for any.
    pub(super) fn look(&mut self, now: Now) -> bool {
        let lasts = freshness(self.check.interval());
        let mut changed = false;
        for ballot in &mut self.ballots {
            let silence = now.mono.saturating_duration_since(ballot.heard());
            let fresh = silence <= lasts;
            changed |= fresh != ballot.fresh;
            ballot.fresh = fresh;
        }
        changed
    }

    /// The votes as they are shown and counted.
    pub(super) fn votes(&self, abstaining: &[Arc<Abstention>]) -> Box<[VoteView]> {
        let abstention = |vantage: &Arc<str>| {
            let found = abstaining.iter().find(|a| a.vantage == *vantage);
            found.map(Arc::clone)
        };
        let votes = self.ballots.iter();
        votes
            .map(|ballot| ballot.view(abstention(&ballot.vantage)))
            .collect()
    }

    /// How long the steps of the probe took that made this vantage's verdict.
    pub(super) fn times(&self, vantage: &str) -> Option<Times> {
        self.ballot(vantage)?.steps.map(Times::from)
    }

    /// Semantics V5: within which time a vantage that has lost its network turns the target.
    pub(super) fn guard_window(&self) -> Duration {
        let check = &self.check;
        check.interval() * u32::from(check.thresholds().unhealthy) + check.timeout()
    }
}

impl Ballot {
    /// A ballot whose vantage has this record of the target. A record is taken as if it had been heard now.
    pub(super) fn new(vantage: &Arc<str>, record: TargetRecord, now: Now) -> Self {
        Self {
            vantage: Arc::clone(vantage),
            pulse: Arc::default(),
            heard: now.mono,
            turned: record.tally.verdict.map(|_| now.mono),
            serial: 0,
            fresh: true,
            record,
            steps: None,
        }
    }

    /// A ballot of a vantage that has not said anything yet.
    pub(super) fn empty(vantage: &Arc<str>, now: Now) -> Self {
        let record = TargetRecord {
            tally: TallyState::default(),
            since: now.wall,
            reason: None,
            never_passed: true,
        };
        Self::new(vantage, record, now)
    }

    /// When the last judged probe was heard of, or from when on silence counts.
    fn heard(&self) -> Instant {
        let beat = self.pulse.heard();
        beat.map_or(self.heard, |beat| beat.max(self.heard))
    }

    /// The serial of the newest report.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// What it says by its verdict and its latest probe.
    pub(super) fn heard_last(&self) -> Heard {
        let TallyState {
            verdict, opposing, ..
        } = self.record.tally;
        match (verdict.map(Verdict::is_healthy), opposing) {
            (None, _) => Heard::Nothing,
            (Some(true), 0) => Heard::Answer,
            (Some(true), _) => Heard::FirstFailure,
            (Some(false), _) if self.record.never_passed => Heard::Nothing,
            (Some(false), 0) => Heard::Silence,
            (Some(false), _) => Heard::FirstAnswer,
        }
    }

    /// Whether it was judged, and never passed.
    pub(super) fn has_never_answered(&self) -> bool {
        self.record.tally.verdict.is_some() && self.record.never_passed
    }

    /// Whether what it says was said before the server started, and its first probe since may still come.
    pub(super) fn is_untried(&self, check: &HealthCheck, now: Now) -> bool {
        let known = self.heard_last() != Heard::Nothing && self.serial == 0;
        let tried = self
            .pulse
            .heard()
            .is_some_and(|at| now.mono.saturating_duration_since(at) >= ON_ITS_WAY);
        let may_take = check.interval() + check.timeout() + SLACK;
        known && !tried && now.mono.saturating_duration_since(self.heard) < may_take
    }

    /// Takes a report, and says where the vote stands by it; `None` where there is none, or the report is not newer than
    /// the last.
    pub(super) fn take(&mut self, report: Report, reasons: &mut Reasons, now: Now) -> Option<Turn> {
        if report.serial <= self.serial {
            return None;
        }
        self.serial = report.serial;
        self.heard = self.heard.max(now.mono);
        self.fresh = true;
        let before = self.record.tally.verdict;
        self.record.tally = report.tally;
        if let Step::Judged { from, to } = report.step {
            if from != Some(to) {
                // A prober's clock may be ahead of ours.
                self.record.since = report.at.min(now.wall);
            }
            self.record.reason = Some(reasons.shared(report.outcome.reason));
            self.steps = Some(report.outcome.times.into());
        }
        let after = self.record.tally.verdict;
        let passed = match after {
            Some(verdict) => verdict.is_healthy() || report.tally.opposing > 0,
            None => false,
        };
        self.record.never_passed &= !passed;
        if after != before {
            self.turned = after.map(|_| now.mono);
        }
        Some(Turn {
            before,
            after: after?,
        })
    }

    fn view(&self, abstains: Option<Arc<Abstention>>) -> VoteView {
        let verdict = self.record.tally.verdict;
        VoteView {
            vantage: Arc::clone(&self.vantage),
            verdict,
            reason: self.record.reason.clone(),
            since: verdict.map(|_| self.record.since),
            opposing: self.record.tally.opposing,
            turned: self.turned,
            fresh: self.fresh,
            abstains,
            pulse: Arc::clone(&self.pulse),
        }
    }
}
