//! Tests of `probe` with time moved by hand, against a listener that is never accepted from.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use super::*;
use crate::check::{HealthCheck, HealthCheckSpec, Kind};
use crate::clock;
use crate::tally::Tally;
use crate::target::{Names, Pulse, StateKey};

const OPEN: Readiness = Readiness {
    readable: false,
    writable: true,
    error: false,
};

fn target(listener: &TcpListener, kind: Kind) -> Target {
    let check = HealthCheck::new(HealthCheckSpec {
        timeout: Some(Duration::from_secs(2)),
        ..HealthCheckSpec::of(kind)
    })
    .unwrap();
    let address = listener.local_addr().unwrap();
    let names = Names::new(&check, None, address);
    Target {
        key: StateKey::new(address, &names, &check),
        address,
        names,
        check: Arc::new(check),
        seed: Tally::new(),
        pulse: Arc::new(Pulse::default()),
    }
}

/// An attempt at a fresh listener, and what is needed to drive it.
fn attempt(kind: Kind) -> (TcpListener, Target, Attempt, Context, Instant) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = target(&listener, kind);
    let now = clock::now();
    let mut context = Context::new(Arc::default(), None, Trace::default());
    let attempt = Attempt::start(&target, &mut None, &mut context, now).unwrap();
    (listener, target, attempt, context, now)
}

fn ended(progress: Progress) -> Outcome {
    match progress {
        Progress::Ended(outcome) => outcome,
        other => panic!("not ended: {other:?}"),
    }
}

#[test]
fn p1_the_deadline_is_absolute_and_ends_each_stage_with_its_own_reason() {
    let (_listener, target, mut attempt, mut context, now) = attempt(Kind::Http);
    let deadline = now + Duration::from_secs(2);
    assert_eq!(attempt.timer(), deadline);
    assert_eq!(
        attempt.elapsed(&target, &mut context, deadline - Duration::from_millis(1)),
        None
    );
    let silent = attempt.elapsed(&target, &mut context, deadline).unwrap();
    assert_eq!(silent.result, ProbeResult::Timeout);
    assert_eq!(silent.reason.code, ReasonCode::ConnectTimeout, "{silent:?}");
    let open = now + Duration::from_millis(3);
    assert_eq!(
        attempt.ready(OPEN, &target, &mut context, open),
        Progress::Waiting
    );
    assert_eq!(attempt.timer(), deadline, "progress moves no deadline");
    let silent = attempt.elapsed(&target, &mut context, deadline).unwrap();
    assert_eq!(
        silent.reason.code,
        ReasonCode::ResponseTimeout,
        "{silent:?}"
    );
    assert_eq!(silent.times.connect, Some(open - now));
    assert_eq!(
        silent.reason.text,
        format!(
            "{} accepted the connection, but sent no answer within 2s",
            target.address
        )
    );
}

#[test]
fn p16_a_deadline_that_is_served_late_says_nothing_about_the_endpoint() {
    let (_listener, target, attempt, mut context, now) = attempt(Kind::Http);
    let mut attempt = attempt;
    let deadline = now + Duration::from_secs(2);
    let allowed = deadline + Duration::from_millis(500);
    assert_eq!(
        attempt
            .elapsed(&target, &mut context, allowed)
            .unwrap()
            .result,
        ProbeResult::Timeout
    );
    let late = attempt
        .elapsed(&target, &mut context, allowed + Duration::from_millis(1))
        .unwrap();
    assert_eq!(late.result, ProbeResult::Inconclusive);
    assert_eq!(late.reason.code, ReasonCode::LocalLate, "{late:?}");
}

#[test]
fn p16_what_is_seen_long_after_the_deadline_is_our_own_lateness_too() {
    let (_listener, target, mut attempt, mut context, now) = attempt(Kind::Tcp);
    let late = now + Duration::from_secs(9);
    let outcome = ended(attempt.ready(OPEN, &target, &mut context, late));
    assert_eq!(outcome.reason.code, ReasonCode::LocalLate, "{outcome:?}");
}

#[test]
fn p9_only_an_error_in_the_same_wake_up_fails_a_check_without_strings() {
    let (listener, target, mut attempt, mut context, now) = attempt(Kind::Tcp);
    let (peer, _) = listener.accept().unwrap();
    let peer = Socket::from(peer);
    peer.set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let error = Readiness {
        error: true,
        readable: true,
        writable: true,
    };
    let outcome = ended(attempt.ready(error, &target, &mut context, now));
    assert_eq!(outcome.result, ProbeResult::Fail, "{outcome:?}");
    assert_eq!(outcome.reason.code, ReasonCode::PeerReset, "{outcome:?}");
    // FIN in the same wake-up is no error.
    let fin = Readiness {
        error: false,
        ..error
    };
    let outcome = ended(attempt.ready(fin, &target, &mut context, now));
    assert_eq!(outcome.result, ProbeResult::Pass, "{outcome:?}");
}

#[test]
fn p16_our_own_lateness_is_told_as_such() {
    let reason = late_reason("would have started", Duration::from_millis(1_234));
    assert_eq!(reason.code, ReasonCode::LocalLate);
    assert_eq!(
        reason.text,
        "this prober was too busy: the probe would have started 1.2s late, so it says nothing about the endpoint"
    );
}

/// A conversation that is sent away by whatever comes.
#[derive(Debug)]
struct SentAway;

impl Conversation for SentAway {
    fn send(&mut self, _out: &mut Vec<u8>) {}

    fn feed(&mut self, _bytes: &[u8], _now: Instant) -> Option<Step> {
        Some(Step::Retry)
    }

    fn end(&mut self) -> Step {
        Step::Retry
    }

    fn missing(&self) -> std::borrow::Cow<'static, str> {
        "".into()
    }
}

/// Drives an attempt as its socket becomes ready, at the time `at`.
fn drive(attempt: &mut Attempt, target: &Target, context: &mut Context, at: Instant) -> Progress {
    let any = Readiness {
        readable: true,
        ..OPEN
    };
    for _ in 0..10_000 {
        match attempt.ready(any, target, context, at) {
            Progress::Waiting => std::thread::park_timeout(Duration::from_millis(1)),
            other => return other,
        }
    }
    panic!("nothing came");
}

#[test]
fn p14_a_conversation_that_is_sent_away_gets_one_fresh_connection_and_no_more_time() {
    for away_again in [false, true] {
        let (listener, target, mut attempt, mut context, now) = attempt(Kind::Http);
        attempt.conversation = Some(Box::new(SentAway));
        listener.accept().unwrap().0.write_all(b"away").unwrap();
        let progress = drive(&mut attempt, &target, &mut context, now);
        assert_eq!(progress, Progress::Reconnected);
        assert_eq!(
            attempt.timer(),
            now + Duration::from_secs(2),
            "the deadline stays"
        );
        let (mut peer, _) = listener.accept().unwrap();
        if away_again {
            attempt.conversation = Some(Box::new(SentAway));
            peer.write_all(b"away").unwrap();
        } else {
            // The request is sent once the connection is seen open.
            assert_eq!(
                attempt.ready(OPEN, &target, &mut context, now),
                Progress::Waiting
            );
            assert_ne!(peer.read(&mut [0; 1024]).unwrap(), 0);
            peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        }
        let outcome = ended(drive(&mut attempt, &target, &mut context, now));
        let (result, code) = if away_again {
            (ProbeResult::Fail, ReasonCode::Http2Goaway)
        } else {
            (ProbeResult::Pass, ReasonCode::ResponseOk)
        };
        assert_eq!(
            (outcome.result, outcome.reason.code),
            (result, code),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_peer_that_makes_us_answer_and_does_not_read_is_cut_off() {
    /// Answers everything with much.
    #[derive(Debug)]
    struct Chatty;
    impl Conversation for Chatty {
        fn send(&mut self, out: &mut Vec<u8>) {
            out.extend_from_slice(&[b'x'; 1 << 20]);
        }
        fn feed(&mut self, _bytes: &[u8], _now: Instant) -> Option<Step> {
            None
        }
        fn end(&mut self) -> Step {
            Step::Retry
        }
        fn missing(&self) -> std::borrow::Cow<'static, str> {
            "".into()
        }
    }
    let (listener, target, mut attempt, mut context, now) = attempt(Kind::Http);
    attempt.conversation = Some(Box::new(Chatty));
    let (mut peer, _) = listener.accept().unwrap();
    let cut = (0..10_000).find_map(|_| {
        peer.write_all(b"more").ok();
        let any = Readiness {
            readable: true,
            ..OPEN
        };
        match attempt.ready(any, &target, &mut context, now) {
            Progress::Ended(outcome) => Some(outcome),
            _ => {
                std::thread::park_timeout(Duration::from_millis(1));
                None
            }
        }
    });
    assert_eq!(cut.unwrap().reason.code, ReasonCode::Flood);
}
