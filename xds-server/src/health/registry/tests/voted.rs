//! Many vantages: whose votes count, and what they come to (semantics V1–V4).

use super::*;
use crate::health::failover::Why;
use crate::model::{ProbedBy, Quorum};
use ProbeResult::{Fail, Pass, Timeout};

/// Has these vantages judge everything.
fn assign(bench: &mut Bench, vantages: &[&str]) {
    let vantages: Arc<[Arc<str>]> = vantages.iter().map(|&vantage| vantage.into()).collect();
    bench.registry.assign(vantages, None, bench.now);
    bench.update();
}

fn three(edit: fn(&mut Service)) -> Bench {
    let mut bench = Bench::edited(&yaml(&[EA]), edit, Records::default());
    assign(&mut bench, &["a", "b", "c"]);
    bench
}

impl Bench {
    /// The vantage probes until its verdict is that of `result`.
    fn turn(&mut self, vantage: &str, address: &str, result: ProbeResult) {
        self.say(vantage, address, result);
        self.say(vantage, address, result);
        self.update();
    }

    fn rule(&self, address: &str) -> String {
        self.endpoint(address).rule.to_string()
    }
}

#[test]
fn v2_majority_decides_and_the_vote_that_completes_it_is_named() {
    let mut bench = three(|_| {});
    bench.turn("a", A, Pass);
    assert_eq!(
        bench.endpoint(A).detailed,
        DetailedStatus::Probing,
        "1 of 3"
    );
    bench.turn("b", A, Pass);
    assert_eq!(bench.status(A), HEALTHY);
    bench.turn("c", A, Fail);
    bench.turn("a", A, Timeout);
    assert_eq!(
        bench.status(A),
        UNHEALTHY,
        "V4: not all failing votes are TIMEOUT"
    );
    let transition = &bench.update.transitions[0];
    assert_eq!(transition.rule.to_string(), "V2 majority 2 of 3");
    bench.turn("c", A, Pass);
    assert_eq!(
        (bench.status(A), bench.rule(A)),
        (HEALTHY, "V2 majority 2 of 3".into())
    );
    assert_eq!(bench.update.transitions[0].vantage, Some("c".into()));
}

#[test]
fn v2_any_all_and_share_decide_as_they_say() {
    let mut any = three(|service| service.quorum = Quorum::Any);
    for vantage in ["a", "b", "c"] {
        any.pass_time(1);
        any.turn(vantage, A, Pass);
    }
    any.pass_time(1);
    any.turn("b", A, Timeout);
    assert_eq!(any.status(A), TIMEOUT);
    assert_eq!(any.rule(A), "V2 any: of 3 the latest turn is that of b");
    any.pass_time(1);
    any.say("b", A, Timeout);
    any.turn("a", A, Timeout);
    any.pass_time(1);
    any.turn("b", A, Pass);
    assert_eq!(any.status(A), HEALTHY);
    assert_eq!(any.update.transitions[0].vantage, Some("b".into()));

    let mut all = three(|service| service.quorum = Quorum::All);
    for vantage in ["a", "b", "c"] {
        all.turn(vantage, A, Pass);
    }
    assert_eq!(all.status(A), HEALTHY);
    all.turn("c", A, Fail);
    assert_eq!(
        (all.status(A), all.rule(A)),
        (UNHEALTHY, "V2 all: 2 of 3 say healthy".into())
    );

    let mut share = three(|service| service.quorum = Quorum::Share(0.3));
    for vantage in ["a", "b", "c"] {
        share.turn(vantage, A, if vantage == "a" { Pass } else { Fail });
    }
    assert_eq!(share.status(A), HEALTHY);
    assert_eq!(
        share.rule(A),
        "V2 share: 1 of 3 say healthy, more than 0.3 must"
    );
}

#[test]
fn v3_too_few_fresh_votes_pin_and_say_since_when() {
    let mut bench = three(|_| {});
    for vantage in ["a", "b", "c"] {
        bench.turn(vantage, A, Pass);
    }
    bench.pass_time(14);
    bench.turn("a", A, Fail);
    bench.pass_time(2);
    assert_eq!(
        bench.status(A),
        HEALTHY,
        "the silent ones do not count, nor does one of three"
    );
    let since = bench.endpoint(A).pinned.unwrap();
    assert_eq!(since, bench.now.wall);
    bench.pass_time(3);
    assert_eq!(bench.endpoint(A).pinned, Some(since));
    assert_eq!(
        bench.rule(A),
        "V3 pinned since 2023-11-14T22:13:36.000Z: 1 of 3 votes are fresh, too few; the status stays"
    );
    bench.turn("b", A, Fail);
    assert_eq!(
        (bench.status(A), bench.endpoint(A).pinned),
        (UNHEALTHY, None)
    );
}

#[test]
fn v3_a_tie_keeps_the_status() {
    let mut bench = Bench::new(&yaml(&[EA]));
    assign(&mut bench, &["a", "b"]);
    bench.turn("a", A, Pass);
    bench.turn("b", A, Pass);
    bench.turn("a", A, Fail);
    assert_eq!(bench.status(A), HEALTHY);
    assert_eq!(bench.rule(A), "V3 tie 1 to 1: the status stays");
    bench.turn("b", A, Fail);
    bench.turn("a", A, Pass);
    assert_eq!(bench.status(A), UNHEALTHY);
}

#[test]
fn v1_a_vantage_that_withdraws_takes_its_votes_along() {
    let mut bench = three(|service| service.quorum = Quorum::All);
    for vantage in ["a", "b", "c"] {
        bench.turn(vantage, A, if vantage == "c" { Timeout } else { Pass });
    }
    assert_eq!(bench.status(A), TIMEOUT);
    bench.registry.withdraw("c", bench.now);
    bench.update();
    assert_eq!(
        (bench.status(A), bench.rule(A)),
        (HEALTHY, "V2 all: 2 of 2 say healthy".into())
    );
    bench.registry.withdraw("b", bench.now);
    bench.update();
    assert!(
        bench.endpoint(A).pinned.is_some(),
        "one of three that are assigned"
    );
    // It comes again, and what it said before is nothing.
    bench.others.clear();
    bench.turn("c", A, Pass);
    assert!(bench.endpoint(A).pinned.is_none());
}

#[test]
fn v1_only_this_servers_clock_decides_what_is_fresh() {
    let mut bench = Bench::new(&two());
    bench.probe(A, Pass);
    for jump in [3600, -7200] {
        let hours = Duration::from_secs(i64::unsigned_abs(jump));
        bench.now.wall = if jump > 0 {
            bench.now.wall + hours
        } else {
            bench.now.wall - hours
        };
        bench.registry.tick(bench.now);
        bench.update();
        assert!(
            bench.endpoint(A).pinned.is_none(),
            "a jump of {jump} s is no silence"
        );
        bench.probe(A, Pass);
    }
    let wall = bench.now.wall;
    bench.pass_time(16);
    bench.now.wall = wall;
    bench.registry.tick(bench.now);
    bench.update();
    assert!(
        bench.endpoint(A).pinned.is_some(),
        "silence is silence, whatever the clock on the wall says"
    );
}

#[test]
fn v1_reports_that_come_twice_late_or_for_what_is_gone_change_nothing() {
    let mut bench = Bench::new(&two());
    let passed = bench.say(EMBEDDED_VANTAGE, A, Pass);
    bench.say(EMBEDDED_VANTAGE, A, Fail);
    let failed = bench.say(EMBEDDED_VANTAGE, A, Fail);
    bench.update();
    assert_eq!(bench.status(A), UNHEALTHY);
    let [of_b] = &bench.say(EMBEDDED_VANTAGE, B, Pass)[..] else {
        panic!("one report")
    };
    bench.update();
    let gone = Report {
        key: StateKey::from_bytes([9; 16]),
        ..of_b.clone()
    };
    let foreign = Report {
        serial: 1000,
        ..passed[0].clone()
    };
    for (vantage, report) in [
        (EMBEDDED_VANTAGE, &passed[0]),
        (EMBEDDED_VANTAGE, &failed[0]),
        (EMBEDDED_VANTAGE, &gone),
        ("nobody", &foreign),
    ] {
        bench.registry.on_report(vantage, report.clone(), bench.now);
        assert!(!bench.registry.is_touched(), "{vantage} {report:?}");
    }
    assert_eq!(bench.status(A), UNHEALTHY);
}

#[test]
fn v1_a_vote_from_the_future_is_told_as_of_now() {
    let mut bench = Bench::new(&two());
    let mut report = bench.say(EMBEDDED_VANTAGE, A, Pass).remove(0);
    report.at = bench.now.wall + Duration::from_secs(86_400);
    report.serial += 1;
    report.step = Step::Judged {
        from: Some(Verdict::Healthy),
        to: Verdict::Timeout,
    };
    report.tally.verdict = Some(Verdict::Timeout);
    bench
        .registry
        .on_report(EMBEDDED_VANTAGE, report, bench.now);
    bench.update();
    assert_eq!(
        (bench.status(A), bench.endpoint(A).since),
        (TIMEOUT, bench.now.wall)
    );
    bench.pass_time(16);
    assert!(
        bench.endpoint(A).pinned.is_some(),
        "nor is it fresh for longer"
    );
}

#[test]
fn v1_assigned_vantages_may_differ_by_target() {
    let mut bench = Bench::new(&two());
    let (&key, _) = bench
        .targets
        .iter()
        .find(|(_, (target, _))| target.address.to_string() == B)
        .unwrap();
    let far: Arc<[Arc<str>]> = [Arc::from("far")].into();
    bench.registry.assign(far, Some(key), bench.now);
    bench.update();
    bench.say(EMBEDDED_VANTAGE, A, Pass);
    bench.say(EMBEDDED_VANTAGE, B, Timeout);
    bench.say("far", A, Timeout);
    bench.say("far", B, Pass);
    bench.update();
    assert_eq!((bench.status(A), bench.status(B)), (HEALTHY, HEALTHY));
    bench.load(&two());
    assert_eq!(
        &*bench.endpoint(B).votes[0].vantage,
        "far",
        "also after a reload"
    );
}

#[test]
fn h1_endpoints_that_only_envoys_check_are_healthy_in_eds_and_unknown_to_people() {
    let edit = |service: &mut Service| service.backends[0].by = ProbedBy::ENVOYS;
    let bench = Bench::edited(&two(), edit, Records::default());
    assert!(bench.targets.is_empty() && !bench.view("shop").held);
    assert_eq!(
        bench.status(A),
        (Some(EdsStatus::Healthy), DetailedStatus::Unknown)
    );
    assert_eq!(bench.endpoint(A).rule, Rule::EnvoysOnly);
    assert_eq!(bench.view("shop").why, Why::Healthy { healthy: 2, of: 2 });
}

#[test]
fn v8_h1_endpoints_that_probers_come_to_check_start_from_what_was_served() {
    let mut bench = Bench::edited(
        &two(),
        |service| service.backends[0].by = ProbedBy::ENVOYS,
        Records::default(),
    );
    bench.edit = |_| {};
    bench.load(&two());
    assert_eq!(bench.status(A), HEALTHY);
    bench.probe(A, Timeout);
    assert_eq!(bench.status(A), HEALTHY);
    bench.probe(A, Timeout);
    assert_eq!(bench.status(A), TIMEOUT);
}

const VANTAGES: [&str; 4] = ["a", "b", "c", "d"];

fn results() -> impl Strategy<Value = ProbeResult> {
    prop::sample::select(ProbeResult::ALL.to_vec())
}

/// MAJORITY, ALL and a share, which know no order; then ANY.
const EDITS: [fn(&mut Service); 4] = [
    |_| {},
    |service| service.quorum = Quorum::All,
    |service| service.quorum = Quorum::Share(0.3),
    |service| service.quorum = Quorum::Any,
];

fn edits(of: usize) -> impl Strategy<Value = fn(&mut Service)> {
    prop::sample::select(EDITS[..of].to_vec())
}

fn all_of(edit: fn(&mut Service)) -> Bench {
    let mut bench = Bench::edited(&yaml(&[EA]), edit, Records::default());
    assign(&mut bench, &VANTAGES);
    bench
}

proptest! {
    /// Whatever is probed, repeated, withdrawn or silent: the status changes only with a transition that names a rule by
    /// which it can change, and a report that comes again changes nothing.
    #[test]
    fn v1_v3_s7_a_status_changes_only_by_a_rule_and_never_by_a_duplicate(
        edit in edits(4), steps in prop::collection::vec((0u8..8, 0usize..4, results()), 0..60),
    ) {
        let mut bench = all_of(edit);
        let mut told: Vec<(usize, Report)> = Vec::new();
        for (step, at, result) in steps {
            let before = bench.endpoint(A);
            match step {
                0 => bench.pass_time(6),
                1 => {
                    bench.registry.withdraw(VANTAGES[at], bench.now);
                    bench.others.retain(|(vantage, _), _| vantage != VANTAGES[at]);
                    told.retain(|(by, _)| *by != at);
                    bench.update();
                }
                2 => {
                    for (by, report) in &told {
                        bench.registry.on_report(VANTAGES[*by], report.clone(), bench.now);
                    }
                    prop_assert!(!bench.registry.is_touched(), "a duplicate is no news");
                    continue;
                }
                _ => {
                    let reports = bench.say(VANTAGES[at], A, result);
                    told.extend(reports.into_iter().map(|report| (at, report)));
                    bench.update();
                }
            }
            let after = bench.endpoint(A);
            let transitions = &bench.update.transitions;
            if before.detailed == after.detailed {
                prop_assert!(transitions.is_empty());
                continue;
            }
            prop_assert_eq!(transitions.len(), 1);
            let names_the_votes = matches!(
                after.rule,
                Rule::Majority { .. }
                    | Rule::Any { .. }
                    | Rule::All { .. }
                    | Rule::Share { .. }
                    | Rule::LastKnown { .. }
            );
            prop_assert!(names_the_votes, "{} → {} by {}", before.detailed.as_str(), after.detailed.as_str(), after.rule);
            prop_assert_eq!(&transitions[0].rule, &after.rule);
            if let Rule::LastKnown { .. } = after.rule {
                prop_assert_eq!(before.detailed, DetailedStatus::Probing, "only a first status");
            } else {
                prop_assert!(after.pinned.is_none());
            }
        }
    }

    /// Any order of the same last words ends in the same state.
    #[test]
    fn v2_the_order_in_which_votes_come_does_not_matter(
        edit in edits(3),
        words in prop::collection::vec(results(), 4),
        orders in (Just(vec![0usize, 1, 2, 3]).prop_shuffle(), Just(vec![0usize, 1, 2, 3]).prop_shuffle()),
        twice in any::<bool>(),
    ) {
        let end = |order: &[usize]| {
            let mut bench = all_of(edit);
            for &at in order {
                for report in bench.say(VANTAGES[at], A, words[at]) {
                    if twice {
                        bench.registry.on_report(VANTAGES[at], report, bench.now);
                    }
                }
                bench.update();
            }
            let endpoint = bench.endpoint(A);
            (endpoint.status, endpoint.detailed, endpoint.rule.clone())
        };
        let (one, other) = (end(&orders.0), end(&orders.1));
        let tied = matches!(one.2, Rule::Tie { .. });
        prop_assert_eq!(&one.2.to_string(), &other.2.to_string());
        if !tied {
            prop_assert_eq!((one.0, one.1), (other.0, other.1));
        }
    }
}
