//! The rise/fall state machine of one target (semantics S1, S2, V8): results of probes in, transitions out.
//!
//! ```text
//!              first pass                        first non-pass
//!   ┌───────────────────────── PROBING ─────────────────────────┐        (never judged: one probe decides, S2;
//!   ▼                                                           ▼      under TENCENT_ALB a threshold)
//!  HEALTHY ── unhealthyThreshold consecutive non-passes ──► UNHEALTHY │ TIMEOUT
//!     ▲                                                         │
//!     └────────── healthyThreshold consecutive passes ──────────┘
//! ```
//!
//! A target whose check was edited starts in PROBING with a `previous` state (V8): a probe that agrees with it confirms
//! it at once, probes that disagree must reach the threshold, as if that state had been this check's own.
//! INCONCLUSIVE changes nothing (S1). Whether a failing target is UNHEALTHY or TIMEOUT is what the probe that made the
//! verdict met; later it changes when `unhealthyThreshold` consecutive probes were of the other kind (our ruling, so
//! that a backend that alternates between 500 and silence is not a transition per probe).
//!
//! Pure: no clock, no I/O. It is not a vote: freshness and quorum are the server's.

use crate::outcome::ProbeResult;

/// What a vantage holds of a target (semantics S5; PROBING is the absence of a verdict).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It answers as the check asks.
    Healthy,
    /// It is reached and answers wrongly.
    Unhealthy,
    /// It is not reached, or is silent.
    Timeout,
}

impl Verdict {
    /// Whether new traffic may go there.
    #[must_use]
    pub fn is_healthy(self) -> bool {
        self == Self::Healthy
    }

    /// The name in logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Unhealthy => "UNHEALTHY",
            Self::Timeout => "TIMEOUT",
        }
    }
}

/// How many consecutive probes turn a target (semantics S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// Passes that turn an unhealthy target healthy; 1–10.
    pub healthy: u8,
    /// Non-passes that turn a healthy target unhealthy; 1–10.
    pub unhealthy: u8,
    /// Whether a target that was never judged must reach a threshold too (profile TENCENT_ALB), instead of being judged
    /// by its first probe (semantics S2).
    pub at_first: bool,
}

/// Where the counters of one target stand. The fields are what is stored and sent; `Tally::restore` takes them back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyState {
    /// This check's verdict; `None` until it has judged.
    pub verdict: Option<Verdict>,
    /// The state before this check (semantics V8); only of interest while `verdict` is `None`.
    pub previous: Option<Verdict>,
    /// Consecutive probes that speak against the present (or previous) state.
    pub opposing: u8,
    /// Consecutive failed probes of the other kind than the present verdict's.
    pub other_kind: u8,
}

/// The state machine of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    state: TallyState,
}

/// What one result did to a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing moved.
    Unchanged,
    /// A counter moved; the verdict did not.
    Counted,
    /// The check has a verdict that it did not have before: a first word, a confirmation of the previous state, a flip,
    /// or another kind of failure.
    Judged {
        /// The verdict (or the previous state) before.
        from: Option<Verdict>,
        /// The verdict now.
        to: Verdict,
    },
}

impl Tally {
    /// A target that was never judged (semantics S2).
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: TallyState::default(),
        }
    }

    /// A target that another check has judged before (semantics V8).
    #[must_use]
    pub fn with_previous(previous: Verdict) -> Self {
        Self {
            state: TallyState {
                previous: Some(previous),
                ..TallyState::default()
            },
        }
    }

    /// A target as it was when its state was stored or sent.
    #[must_use]
    pub fn restore(state: TallyState) -> Self {
        Self { state }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> TallyState {
        self.state
    }

    /// Takes the result of one probe.
    pub fn record(&mut self, result: ProbeResult, thresholds: Thresholds) -> Step {
        let seen = match result {
            ProbeResult::Pass => Verdict::Healthy,
            ProbeResult::Fail => Verdict::Unhealthy,
            ProbeResult::Timeout => Verdict::Timeout,
            ProbeResult::Inconclusive => return Step::Unchanged,
        };
        let before = self.state;
        // S2: with no state at all, the first word decides.
        let Some(standing) = before.verdict.or(before.previous) else {
            return self.first(seen, thresholds);
        };
        if seen.is_healthy() != standing.is_healthy() {
            self.state.opposing = before.opposing.saturating_add(1);
            self.state.other_kind = 0;
            let threshold = if seen.is_healthy() {
                thresholds.healthy
            } else {
                thresholds.unhealthy
            };
            if self.state.opposing >= threshold {
                return self.judge(seen);
            }
        } else {
            // V8: a probe that agrees with the previous state makes it this check's own.
            if before.verdict.is_none() {
                return self.judge(seen);
            }
            self.state.opposing = 0;
            self.state.other_kind = if seen == standing {
                0
            } else {
                before.other_kind.saturating_add(1)
            };
            if self.state.other_kind >= thresholds.unhealthy {
                return self.judge(seen);
            }
        }
        if self.state == before {
            Step::Unchanged
        } else {
            Step::Counted
        }
    }

    /// A result while there is no state at all (semantics S2). Where the first word does not decide, `opposing` counts
    /// passes and `other_kind` non-passes.
    fn first(&mut self, seen: Verdict, thresholds: Thresholds) -> Step {
        let before = self.state;
        let (count, threshold) = if seen.is_healthy() {
            self.state.other_kind = 0;
            (&mut self.state.opposing, thresholds.healthy)
        } else {
            self.state.opposing = 0;
            (&mut self.state.other_kind, thresholds.unhealthy)
        };
        *count = count.saturating_add(1);
        if !thresholds.at_first || *count >= threshold {
            return self.judge(seen);
        }
        if self.state == before {
            Step::Unchanged
        } else {
            Step::Counted
        }
    }

    fn judge(&mut self, to: Verdict) -> Step {
        let from = self.state.verdict.or(self.state.previous);
        self.state = TallyState {
            verdict: Some(to),
            ..TallyState::default()
        };
        Step::Judged { from, to }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ProbeResult::{Fail, Inconclusive, Pass, Timeout};

    const TWO: Thresholds = Thresholds {
        healthy: 2,
        unhealthy: 2,
        at_first: false,
    };

    fn run(tally: &mut Tally, results: &[ProbeResult]) -> Vec<Step> {
        results
            .iter()
            .map(|&result| tally.record(result, TWO))
            .collect()
    }

    #[test]
    fn s2_under_tencent_alb_a_target_is_probing_until_a_threshold_is_reached() {
        let three = Thresholds {
            healthy: 3,
            unhealthy: 2,
            at_first: true,
        };
        let mut tally = Tally::new();
        for result in [Pass, Pass, Fail, Pass, Inconclusive, Pass] {
            tally.record(result, three);
            assert_eq!(tally.state().verdict, None, "PROBING after {result:?}");
        }
        let healthy = Step::Judged {
            from: None,
            to: Verdict::Healthy,
        };
        assert_eq!(tally.record(Pass, three), healthy);
        let mut tally = Tally::new();
        assert_eq!(tally.record(Fail, three), Step::Counted);
        tally.record(Timeout, three);
        assert_eq!(tally.state().verdict, Some(Verdict::Timeout));
    }

    #[test]
    fn s2_the_first_word_decides_each_way() {
        let judged = |to| Step::Judged { from: None, to };
        assert_eq!(Tally::new().record(Pass, TWO), judged(Verdict::Healthy));
        assert_eq!(Tally::new().record(Fail, TWO), judged(Verdict::Unhealthy));
        assert_eq!(Tally::new().record(Timeout, TWO), judged(Verdict::Timeout));
        assert_eq!(Tally::new().record(Inconclusive, TWO), Step::Unchanged);
    }

    #[test]
    fn s1_one_opposite_result_resets_the_count() {
        let mut tally = Tally::new();
        run(&mut tally, &[Pass, Fail, Pass, Fail]);
        assert_eq!(tally.state().verdict, Some(Verdict::Healthy));
        assert_eq!(
            tally.record(Timeout, TWO),
            Step::Judged {
                from: Some(Verdict::Healthy),
                to: Verdict::Timeout
            }
        );
    }

    #[test]
    fn s1_inconclusive_changes_no_counter() {
        let mut tally = Tally::new();
        run(&mut tally, &[Pass, Fail]);
        let before = tally.state();
        assert_eq!(tally.record(Inconclusive, TWO), Step::Unchanged);
        assert_eq!(tally.state(), before);
        assert_eq!(
            tally.record(Fail, TWO),
            Step::Judged {
                from: Some(Verdict::Healthy),
                to: Verdict::Unhealthy
            }
        );
    }

    #[test]
    fn v8_the_previous_state_stands_until_the_new_check_has_judged() {
        let mut confirmed = Tally::with_previous(Verdict::Healthy);
        assert_eq!(
            confirmed.record(Pass, TWO),
            Step::Judged {
                from: Some(Verdict::Healthy),
                to: Verdict::Healthy
            }
        );
        let mut contradicted = Tally::with_previous(Verdict::Healthy);
        assert_eq!(contradicted.record(Fail, TWO), Step::Counted);
        assert_eq!(contradicted.state().verdict, None);
        assert_eq!(
            contradicted.record(Fail, TWO),
            Step::Judged {
                from: Some(Verdict::Healthy),
                to: Verdict::Unhealthy
            }
        );
    }

    #[test]
    fn the_kind_of_failure_changes_only_after_the_threshold() {
        let mut tally = Tally::new();
        assert_eq!(
            run(&mut tally, &[Timeout, Fail, Timeout, Fail, Fail]),
            [
                Step::Judged {
                    from: None,
                    to: Verdict::Timeout
                },
                Step::Counted,
                Step::Counted,
                Step::Counted,
                Step::Judged {
                    from: Some(Verdict::Timeout),
                    to: Verdict::Unhealthy
                },
            ]
        );
    }

    fn results() -> impl Strategy<Value = Vec<ProbeResult>> {
        prop::collection::vec(prop::sample::select(ProbeResult::ALL.to_vec()), 0..60)
    }

    /// S1 and S2 said over the whole history instead of step by step: the reference that the machine is held against.
    fn healthy_by_history(history: &[ProbeResult], thresholds: Thresholds) -> Option<bool> {
        let judged: Vec<bool> = history
            .iter()
            .filter(|&&r| r != Inconclusive)
            .map(|&r| r == Pass)
            .collect();
        let mut healthy = *judged.first()?;
        let mut last_turn = 0;
        for end in 1..=judged.len() {
            let needed = usize::from(if healthy {
                thresholds.unhealthy
            } else {
                thresholds.healthy
            });
            let since_turn = &judged[last_turn..end];
            if since_turn.len() >= needed
                && since_turn
                    .iter()
                    .rev()
                    .take(needed)
                    .all(|&pass| pass != healthy)
            {
                healthy = !healthy;
                last_turn = end;
            }
        }
        Some(healthy)
    }

    proptest! {
        #[test]
        fn s1_s2_hold_for_any_order_of_outcomes(
            history in results(), healthy in 1u8..=10, unhealthy in 1u8..=10,
        ) {
            let thresholds = Thresholds { healthy, unhealthy, at_first: false };
            let mut tally = Tally::new();
            for (i, &result) in history.iter().enumerate() {
                let before = tally.state();
                let step = tally.record(result, thresholds);
                prop_assert_eq!(
                    tally.state().verdict.map(Verdict::is_healthy),
                    healthy_by_history(&history[..=i], thresholds),
                    "after {:?}", &history[..=i]
                );
                match step {
                    Step::Unchanged => prop_assert_eq!(tally.state(), before),
                    Step::Counted => prop_assert_eq!(tally.state().verdict, before.verdict),
                    Step::Judged { from, to } => {
                        prop_assert_eq!(from, before.verdict);
                        prop_assert_ne!(Some(to), before.verdict);
                    }
                }
            }
        }

        #[test]
        fn a_stored_tally_goes_on_where_it_stood(history in results(), cut in 0usize..60) {
            let cut = cut.min(history.len());
            let mut whole = Tally::new();
            run(&mut whole, &history);
            let mut first = Tally::new();
            run(&mut first, &history[..cut]);
            let mut second = Tally::restore(first.state());
            run(&mut second, &history[cut..]);
            prop_assert_eq!(whole, second);
        }
    }
}
