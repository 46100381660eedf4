//! The log of transitions (semantics S7), written beside the health path: a line costs more than the decision that it tells
//! of, there is one for each endpoint of a service that starts or falls, and where the log goes may be slow or stuck.
//!
//! In: transitions. Out: a line each, in their order. When the log is so far behind that [`ROOM`] of them wait, further ones
//! are left out, and a line says how many. Not here: what else the publisher says, which is a line per service.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::health::Transition;

/// How many lines may wait: the first verdicts of the largest configuration that Vitals is made for.
const ROOM: usize = 131_072;

#[derive(Debug)]
enum Line {
    Transition(Transition),
    /// So many are left out here.
    Lost(u64),
}

/// The log of transitions.
#[derive(Debug)]
pub(super) struct Journal {
    lines: mpsc::Sender<Line>,
    lost: u64,
    writer: JoinHandle<()>,
}

impl Journal {
    /// Begins to write, on a thread of its own.
    pub(super) fn start() -> Self {
        let (lines, mut waiting) = mpsc::channel(ROOM);
        // Ends when `lines` is dropped and all of them are written.
        let writer = tokio::task::spawn_blocking(move || {
            while let Some(line) = waiting.blocking_recv() {
                match line {
                    Line::Transition(transition) => log(&transition),
                    Line::Lost(transitions) => tracing::warn!(
                        transitions,
                        "the log was too slow: so many transitions are left out here"
                    ),
                }
            }
        });
        Self {
            lines,
            lost: 0,
            writer,
        }
    }

    /// Takes transitions; returns at once.
    pub(super) fn write(&mut self, transitions: Vec<Transition>) {
        for transition in transitions {
            if self.lost > 0 && self.lines.try_send(Line::Lost(self.lost)).is_ok() {
                self.lost = 0;
            }
            if self.lost > 0 || self.lines.try_send(Line::Transition(transition)).is_err() {
                self.lost += 1;
            }
        }
    }

    /// Writes what is left.
    pub(super) async fn close(self) {
        drop(self.lines);
        if let Err(error) = self.writer.await {
            tracing::error!(%error, "the log of transitions failed; the last may be missing");
        }
    }
}

fn log(transition: &Transition) {
    // To the microsecond: more is noise, and binary fractions read badly.
    let ms = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
    let (reason, times) = (transition.reason.as_deref(), transition.times);
    tracing::info!(
        service = %transition.service,
        group = %transition.group,
        address = %transition.address.ip(),
        port = transition.address.port(),
        previous = transition.from.as_str(),
        status = transition.to.as_str(),
        code = reason.map(|reason| reason.code.as_str()),
        layer = reason.map(|reason| reason.code.layer().as_str()),
        text = reason.map(|reason| &*reason.text),
        connect_ms = ms(times.and_then(|times| times.connect)),
        first_byte_ms = ms(times.and_then(|times| times.first_byte)),
        total_ms = ms(times.map(|times| times.total)),
        vantage = transition.vantage.as_deref(),
        rule = transition.rule.to_string(),
        "endpoint {} → {}", transition.from.as_str(), transition.to.as_str(),
    );
}
