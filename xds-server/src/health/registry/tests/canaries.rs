//! Canaries of a guard: what they say at a turn and after a restart, and one that never answers (semantics V5).

use super::*;
use crate::health::guard::End;
use ProbeResult::{Pass, Timeout};

const CANARY: &str = "127.0.9.1:1";
const OTHER: &str = "127.0.9.2:1";

fn one(service: &mut Service) {
    service.guard.canaries = vec![CANARY.parse().unwrap()];
}

fn both(service: &mut Service) {
    service.guard.canaries = vec![CANARY.parse().unwrap(), OTHER.parse().unwrap()];
}

/// Two endpoints, too few for a share of turned ones to be told; canaries and endpoints answer.
fn bench(edit: fn(&mut Service)) -> Bench {
    let mut bench = Bench::edited(&two(), edit, Records::default());
    let of_canaries = bench.targets.values().map(|(target, _)| target.address);
    let all: Vec<String> = of_canaries.map(|address| address.to_string()).collect();
    for address in all {
        bench.probe(&address, Pass);
    }
    bench
}

impl Bench {
    fn cut(&mut self, address: &str, probes: usize) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..probes {
            self.probe(address, Timeout);
            events.append(&mut self.update.guards);
        }
        events
    }

    fn abstains(&self) -> bool {
        !self.view("shop").abstaining.is_empty()
    }
}

#[test]
fn v5_at_a_turn_the_latest_probe_of_each_canary_counts() {
    let mut bench = bench(both);
    assert_eq!(bench.cut(CANARY, 1), []);
    assert_eq!(bench.cut(OTHER, 1), []);
    assert!(!bench.abstains(), "nothing has turned");
    assert_eq!(bench.cut(A, 1), []);
    let events = bench.cut(A, 1);
    let [Event::Started(abstention)] = &events[..] else {
        panic!("one event: {events:?}")
    };
    assert!(abstention.to_string().ends_with(&format!(
        "none of its 2 canaries answers ({CANARY}, {OTHER})"
    )));
    assert_eq!(
        (bench.status(A), bench.transitions()),
        (HEALTHY, vec![]),
        "it was never published"
    );
    // Their thresholds are reached: nothing new.
    assert_eq!(bench.cut(CANARY, 1), []);
    assert_eq!(bench.cut(OTHER, 1), []);
    bench.pass_time(1);
    assert_eq!(bench.ends(), []);
}

#[test]
fn v5_a_doubt_by_the_latest_probes_ends_when_a_canary_answers() {
    let mut bench = bench(both);
    for address in [CANARY, OTHER] {
        bench.cut(address, 1);
    }
    bench.cut(A, 2);
    assert!(bench.abstains());
    bench.probe(A, Pass);
    bench.probe(A, Pass);
    assert!(bench.abstains(), "no canary has answered");
    bench.probe(OTHER, Pass);
    assert_eq!(bench.ends(), [End::Recovered { turned: 0, of: 2 }]);
    assert!(!bench.abstains());
}

#[test]
fn v5_one_canary_that_answers_is_enough_to_be_believed() {
    let mut bench = bench(both);
    bench.cut(CANARY, 2);
    assert_eq!(bench.cut(A, 2), []);
    assert_eq!(bench.status(A), TIMEOUT);
}

#[test]
fn v5_a_turn_before_the_canaries_fail_is_undone_when_they_do_without_waiting_for_a_tick() {
    let mut bench = bench(one);
    assert_eq!(bench.cut(A, 2), []);
    assert_eq!(bench.status(A), TIMEOUT);
    assert_eq!(bench.cut(CANARY, 1), [], "one lost packet says nothing");
    assert_eq!(bench.cut(CANARY, 1).len(), 1);
    assert_eq!(bench.status(A), HEALTHY);
}

#[test]
fn v5_s7_a_restart_in_an_outage_asks_the_canaries_before_it_takes_anybody_out() {
    let mut bench = bench(one);
    // The votes turn, and are stored; the server is killed before it has heard of the canary.
    bench.cut(CANARY, 1);
    bench.cut(A, 2);
    bench.cut(B, 1);
    assert!(bench.abstains());
    for record in bench.stored.targets.values_mut() {
        if record.tally.verdict == Some(Verdict::Healthy) {
            record.tally.opposing = 0;
        }
    }
    let mut again = bench.restart(&two());
    assert_eq!(again.transitions(), []);
    assert_eq!((again.status(A), again.status(B)), (HEALTHY, HEALTHY));
    assert_eq!(
        again.endpoint(A).rule.to_string(),
        "V5 guard: embedded has not tried all of its canaries since the server started; the status stays"
    );
    // B turns by first reports: that too waits.
    again.cut(B, 2);
    assert_eq!(again.status(B), HEALTHY);
    let events = again.cut(CANARY, 2);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((again.status(A), again.status(B)), (HEALTHY, HEALTHY));
    assert!(again.abstains());
}

#[test]
fn v5_after_a_restart_an_outage_is_believed_once_the_canaries_have_answered_or_had_their_time() {
    for answers in [true, false] {
        let mut bench = bench(one);
        bench.cut(A, 1);
        let mut again = bench.restart(&two());
        again.cut(A, 2);
        assert_eq!(again.status(A), HEALTHY);
        if answers {
            again.probe(CANARY, Pass);
        }
        // Half a second until it is tried, half a second for the probe, and some slack.
        again.pass_time(if answers { 1 } else { 2 });
        assert_eq!(again.status(A), TIMEOUT, "{answers}");
        assert_eq!(again.transitions().len(), 1);
    }
}

#[test]
fn v5_the_status_that_is_healthy_again_after_a_restart_does_not_wait_for_canaries() {
    let mut bench = bench(one);
    bench.cut(A, 2);
    let mut again = bench.restart(&two());
    assert_eq!(again.status(A), TIMEOUT);
    again.probe(A, Pass);
    again.probe(A, Pass);
    assert_eq!(again.status(A), HEALTHY);
}

#[test]
fn v5_a_canary_that_has_never_answered_is_told_and_freezes_nobody() {
    let mut bench = Bench::edited(&two(), one, Records::default());
    for address in [A, B] {
        bench.probe(address, Pass);
    }
    bench.probe(CANARY, Timeout);
    let told: Vec<String> = bench
        .update
        .unanswered
        .iter()
        .map(|u| u.to_string())
        .collect();
    let sentence = "the canary 127.0.9.1:1 of embedded has never answered since it was configured; check the address. \
                    The guard does without it until it has answered once";
    assert_eq!(told, [sentence]);
    bench.cut(CANARY, 3);
    bench.pass_time(1);
    assert_eq!(bench.update.unanswered, [], "once");
    assert_eq!(bench.view("shop").unanswered[0].to_string(), sentence);
    assert_eq!(bench.cut(A, 2), []);
    assert_eq!((bench.status(A), bench.abstains()), (TIMEOUT, false));
    // Neither after a restart, and it is told again: it is still so.
    let mut again = bench.restart(&two());
    assert_eq!(again.update.unanswered.len(), 1);
    assert_eq!((again.status(A), again.abstains()), (TIMEOUT, false));
    again.cut(B, 2);
    assert_eq!(again.status(B), TIMEOUT);
    // Once it has answered, it is a canary.
    again.probe(CANARY, Pass);
    again.probe(CANARY, Pass);
    assert_eq!(again.view("shop").unanswered, []);
    again.probe(A, Pass);
    again.probe(A, Pass);
    again.cut(CANARY, 1);
    assert_eq!(again.cut(A, 2).len(), 1);
    assert_eq!(again.status(A), HEALTHY);
}

#[test]
fn v5_a_canary_that_has_never_answered_does_not_vouch_for_one_that_has() {
    let mut bench = Bench::edited(&two(), both, Records::default());
    for address in [A, B, CANARY] {
        bench.probe(address, Pass);
    }
    bench.cut(OTHER, 1);
    let events = bench.cut(CANARY, 2);
    let [Event::Started(abstention)] = &events[..] else {
        panic!("one event: {events:?}")
    };
    let text = abstention.to_string();
    assert!(
        text.ends_with("its canary 127.0.9.1:1 does not answer"),
        "{text}"
    );
}
