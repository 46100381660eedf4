//! Tests of `probe` with time moved by hand, against a listener that is never accepted from.

use std::net::TcpListener;
use std::sync::Arc;

use super::*;
use crate::check::{HealthCheck, HealthCheckSpec, HttpSpec, ProtocolSpec, TcpSpec};
use crate::clock;
use crate::tally::Tally;
use crate::target::{Pulse, StateKey, effective_host};

const OPEN: Readiness = Readiness {
    readable: false,
    writable: true,
    error: false,
};

fn target(listener: &TcpListener, protocol: ProtocolSpec) -> Target {
    let check = HealthCheck::new(HealthCheckSpec {
        timeout: Some(Duration::from_secs(2)),
        protocol,
        ..HealthCheckSpec::default()
    })
    .unwrap();
    let address = listener.local_addr().unwrap();
    let host = effective_host(&check, None, address);
    Target {
        key: StateKey::new(address, &host, &check),
        address,
        host,
        check: Arc::new(check),
        seed: Tally::new(),
        pulse: Arc::new(Pulse::default()),
    }
}

/// An attempt at a fresh listener, and what is needed to drive it.
fn attempt(protocol: ProtocolSpec) -> (TcpListener, Target, Attempt, Scratch, Instant) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = target(&listener, protocol);
    let now = clock::now();
    let attempt = Attempt::start(&target, now).unwrap();
    (listener, target, attempt, Scratch::new(), now)
}

fn http() -> ProtocolSpec {
    ProtocolSpec::Http(HttpSpec::default())
}

#[test]
fn p1_the_deadline_is_absolute_and_ends_each_stage_with_its_own_reason() {
    let (_listener, target, mut attempt, mut scratch, now) = attempt(http());
    let deadline = now + Duration::from_secs(2);
    assert_eq!(attempt.timer(), deadline);
    assert_eq!(
        attempt.elapsed(&target, deadline - Duration::from_millis(1)),
        None
    );
    let silent = attempt.elapsed(&target, deadline).unwrap();
    assert_eq!(silent.result, ProbeResult::Timeout);
    assert_eq!(silent.reason.code, ReasonCode::ConnectTimeout, "{silent:?}");
    let open = now + Duration::from_millis(3);
    assert_eq!(attempt.ready(OPEN, &target, &mut scratch, open), None);
    assert_eq!(attempt.timer(), deadline, "progress moves no deadline");
    let silent = attempt.elapsed(&target, deadline).unwrap();
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
    let (_listener, target, attempt, _, now) = attempt(http());
    let mut attempt = attempt;
    let deadline = now + Duration::from_secs(2);
    let allowed = deadline + Duration::from_millis(500);
    assert_eq!(
        attempt.elapsed(&target, allowed).unwrap().result,
        ProbeResult::Timeout
    );
    let late = attempt
        .elapsed(&target, allowed + Duration::from_millis(1))
        .unwrap();
    assert_eq!(late.result, ProbeResult::Inconclusive);
    assert_eq!(late.reason.code, ReasonCode::LocalLate, "{late:?}");
}

#[test]
fn p16_what_is_seen_long_after_the_deadline_is_our_own_lateness_too() {
    let (_listener, target, mut attempt, mut scratch, now) =
        attempt(ProtocolSpec::Tcp(TcpSpec::default()));
    let late = now + Duration::from_secs(9);
    let outcome = attempt.ready(OPEN, &target, &mut scratch, late).unwrap();
    assert_eq!(outcome.reason.code, ReasonCode::LocalLate, "{outcome:?}");
}

#[test]
fn p9_only_an_error_in_the_same_wake_up_fails_a_check_without_strings() {
    let (listener, target, mut attempt, mut scratch, now) =
        attempt(ProtocolSpec::Tcp(TcpSpec::default()));
    let (peer, _) = listener.accept().unwrap();
    let peer = Socket::from(peer);
    peer.set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let error = Readiness {
        error: true,
        readable: true,
        writable: true,
    };
    let outcome = attempt.ready(error, &target, &mut scratch, now).unwrap();
    assert_eq!(outcome.result, ProbeResult::Fail, "{outcome:?}");
    assert_eq!(outcome.reason.code, ReasonCode::PeerReset, "{outcome:?}");
    // FIN in the same wake-up is no error.
    let fin = Readiness {
        error: false,
        ..error
    };
    let outcome = attempt.ready(fin, &target, &mut scratch, now).unwrap();
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
