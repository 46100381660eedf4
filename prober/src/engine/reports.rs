//! Reports on their way out of a worker: never lost, never unbounded, never waited for.
//!
//! In: a report whenever a tally moves. Out: the bounded channel, or where it is full one backlog entry per target,
//! which newer reports of that target are folded into until there is room.
//!
//! Folding keeps what a reader must know: where the tally stands now, and if the verdict turned meanwhile, from what
//! the reader knows to what it is, with the probe that did it.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Report;
use crate::tally::Step;

/// Where a target keeps the report that found no room.
pub(super) type Backlog = Option<Box<Report>>;

#[derive(Debug)]
pub(super) struct Outbox {
    sender: mpsc::Sender<Report>,
    /// Targets with a backlog, in the order in which they got one.
    waiting: VecDeque<usize>,
}

impl Outbox {
    pub(super) fn new(sender: mpsc::Sender<Report>) -> Self {
        Self {
            sender,
            waiting: VecDeque::new(),
        }
    }

    /// Whether reports wait for room.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends a report of the target at `index`, or leaves it in its backlog.
    pub(super) fn send(&mut self, index: usize, report: Report, backlog: &mut Backlog) {
        if let Some(older) = backlog.take() {
            // It is in the queue already.
            *backlog = Some(Box::new(fold(*older, report)));
            return;
        }
        match self.sender.try_send(report) {
            // A closed channel: nobody listens any more, which is for the owner of the engine to know.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(report)) => {
                *backlog = Some(Box::new(report));
                self.waiting.push_back(index);
            }
        }
    }

    /// Sends what there is room for. `backlog_of` finds a target's backlog; a dropped target has none.
    pub(super) fn flush<T>(
        &mut self,
        targets: &mut T,
        backlog_of: impl Fn(&mut T, usize) -> Option<&mut Backlog>,
    ) {
        while let Some(&index) = self.waiting.front() {
            if let Some(backlog) = backlog_of(targets, index)
                && backlog.is_some()
            {
                match self.sender.try_reserve() {
                    Ok(permit) => {
                        if let Some(report) = backlog.take() {
                            permit.send(*report);
                        }
                    }
                    Err(TrySendError::Full(())) => return,
                    Err(TrySendError::Closed(())) => *backlog = None,
                }
            }
            self.waiting.pop_front();
        }
    }
}

/// One report that says what two in a row would have said.
fn fold(older: Report, newer: Report) -> Report {
    match (older.step, newer.step) {
        (Step::Judged { from, .. }, Step::Judged { to, .. }) => Report {
            step: Step::Judged { from, to },
            ..newer
        },
        // The turn is the news, and its probe the reason; the counters are the newest.
        (Step::Judged { .. }, Step::Counted | Step::Unchanged) => Report {
            tally: newer.tally,
            serial: newer.serial,
            ..older
        },
        (Step::Counted | Step::Unchanged, _) => newer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::outcome::{Outcome, ProbeResult, Reason, ReasonCode, Times};
    use crate::tally::{TallyState, Verdict};
    use crate::target::StateKey;
    use Verdict::{Healthy, Timeout, Unhealthy};

    fn report(key: u8, step: Step, opposing: u8) -> Report {
        let verdict = match step {
            Step::Judged { to, .. } => Some(to),
            Step::Counted | Step::Unchanged => None,
        };
        Report {
            key: StateKey::from_bytes([key; 16]),
            step,
            tally: TallyState {
                verdict,
                opposing,
                ..TallyState::default()
            },
            outcome: Outcome {
                result: ProbeResult::Fail,
                reason: Reason::new(ReasonCode::PeerClosed, format!("{step:?}")),
                times: Times::default(),
            },
            at: clock::wall(),
            serial: 1,
        }
    }

    fn turn(from: Verdict, to: Verdict) -> Step {
        Step::Judged {
            from: Some(from),
            to,
        }
    }

    #[test]
    fn a_full_channel_folds_the_reports_of_a_target_and_loses_no_turn() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        let mut backlogs: [Backlog; 3] = [None, None, None];
        let down = turn(Healthy, Unhealthy);
        outbox.send(0, report(0, Step::Counted, 1), &mut backlogs[0]);
        outbox.send(1, report(1, Step::Counted, 1), &mut backlogs[1]);
        outbox.send(1, report(1, down, 0), &mut backlogs[1]);
        outbox.send(1, report(1, Step::Counted, 3), &mut backlogs[1]);
        outbox.send(2, report(2, down, 0), &mut backlogs[2]);
        outbox.send(2, report(2, turn(Unhealthy, Timeout), 0), &mut backlogs[2]);
        assert!(outbox.is_behind());
        let mut seen = Vec::new();
        while outbox.is_behind() || !receiver.is_empty() {
            let report = receiver.try_recv().unwrap();
            outbox.flush(&mut backlogs, |backlogs, index| backlogs.get_mut(index));
            seen.push((report.key.to_bytes()[0], report.step, report.tally.opposing));
        }
        assert_eq!(
            seen,
            [
                (0, Step::Counted, 1),
                (1, down, 3),
                (2, turn(Healthy, Timeout), 0)
            ]
        );
    }
}
