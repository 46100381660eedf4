//! A backend dies and comes back: how soon Envoy knows, and what clients see.
//!
//! Detection is held against the promise of the check (semantics S1, S4: worst case threshold × interval + timeout), plus
//! 500 ms for merge and push. These scenarios run alone on the machine, since what they show is a property of the schedule.

use std::time::Duration;

use tokio::time::Instant;
use vitals_tests::backend::Mode;
use vitals_tests::envoy::{FAILED, HEALTHY};
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::wait::{SOON, eventually, until};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    a_closed_backend_leaves_and_returns_within_the_promise,
    a_silent_backend_leaves_and_returns_within_the_promise,
    a_wrong_answer_is_unhealthy_not_timeout,
    no_request_fails_after_a_killed_backend_left,
    all_unhealthy_is_503_and_one_return_ends_it,
);

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(1);
const THRESHOLD: u32 = 2;
const MERGE_AND_PUSH: Duration = Duration::from_millis(500);

/// threshold × interval + timeout + 500 ms
fn promise() -> Duration {
    INTERVAL * THRESHOLD + TIMEOUT + MERGE_AND_PUSH
}

fn lab(transport: Transport) -> Lab {
    Lab::on(Scene::alone(), transport, 2, |config| {
        config.every(1000, 1000)
    })
}

fn leaves_and_returns(transport: Transport, mode: Mode) {
    let lab = lab(transport);
    let ill = &lab.backends[0];
    let start = Instant::now();
    ill.become_(mode);
    lab.envoy.wait_for_flags(SOON, "shop", ill.name(), FAILED);
    let took = start.elapsed();
    assert!(
        took <= promise(),
        "left after {took:?}, promised {:?}",
        promise()
    );
    let entry = lab.vitals.wait_for_status(ill.name(), "TIMEOUT");
    assert!(entry["reason"]["text"].is_string(), "{entry}");

    let start = Instant::now();
    ill.become_(Mode::Healthy);
    lab.envoy.wait_for_flags(SOON, "shop", ill.name(), HEALTHY);
    let took = start.elapsed();
    assert!(
        took <= promise(),
        "returned after {took:?}, promised {:?}",
        promise()
    );
    lab.vitals.wait_for_status(ill.name(), "HEALTHY");
    let well = lab.envoy.hosts("shop").unwrap();
    assert!(well.values().all(|flags| flags == HEALTHY), "{well:?}");
}

fn a_closed_backend_leaves_and_returns_within_the_promise(transport: Transport) {
    leaves_and_returns(transport, Mode::Closed);
}

fn a_silent_backend_leaves_and_returns_within_the_promise(transport: Transport) {
    leaves_and_returns(transport, Mode::Silent);
}

fn a_wrong_answer_is_unhealthy_not_timeout(transport: Transport) {
    let lab = Lab::start(transport, 2);
    let ill = &lab.backends[0];
    ill.become_(Mode::ProbeStatus(503));
    lab.envoy.wait_for_flags(SOON, "shop", ill.name(), FAILED);
    let entry = lab.vitals.wait_for_status(ill.name(), "UNHEALTHY");
    assert_eq!(entry["detailedStatus"], "UNHEALTHY", "{entry}");
    assert_eq!(entry["reason"]["layer"], "L7", "{entry}");
    // H4: it only gets no new requests; it was never asked to stop those that it has.
    lab.scene.wait_for_traffic_to(&[&lab.backends[1]]);
}

fn no_request_fails_after_a_killed_backend_left(transport: Transport) {
    let lab = Lab::start(transport, 3);
    let load = lab.scene.load();
    let ill = &lab.backends[1];
    ill.become_(Mode::Closed);
    lab.envoy.wait_for_flags(SOON, "shop", ill.name(), FAILED);
    let left = Instant::now();
    eventually(SOON, "100 requests were sent after it left", || {
        let count = load.count_since(left);
        (count >= 100)
            .then_some(())
            .ok_or_else(|| format!("{count}"))
    });
    let before = ill.requests();
    ill.become_(Mode::Healthy);
    lab.envoy.wait_for_flags(SOON, "shop", ill.name(), HEALTHY);
    until(SOON, "it gets requests again", || ill.requests() > before);
    let failures = load.failures_since(left);
    assert!(failures.is_empty(), "{failures:?}");
}

fn all_unhealthy_is_503_and_one_return_ends_it(transport: Transport) {
    let lab = Lab::start(transport, 2);
    for backend in &lab.backends {
        backend.become_(Mode::ProbeStatus(500));
    }
    for backend in &lab.backends {
        lab.envoy
            .wait_for_flags(SOON, "shop", backend.name(), FAILED);
    }
    // Envoy may take a second to merge two changes of health before its workers see them.
    eventually(SOON, "a request is refused", || {
        let reply = lab.scene.get("/")?;
        (reply.status == 503)
            .then_some(())
            .ok_or_else(|| format!("{reply:?}"))
    });
    // H5: FAIL_CLOSED, though the backends would answer.
    let before: u64 = lab.backends.iter().map(|b| b.requests()).sum();
    for _ in 0..20 {
        let reply = lab.scene.get("/").unwrap();
        assert_eq!(reply.status, 503, "{reply:?}");
        assert_eq!(reply.body, "no healthy upstream", "{reply:?}");
    }
    let after: u64 = lab.backends.iter().map(|b| b.requests()).sum();
    assert_eq!(before, after, "a backend was asked");
    lab.backends[0].become_(Mode::Healthy);
    lab.envoy
        .wait_for_flags(SOON, "shop", lab.backends[0].name(), HEALTHY);
    lab.scene.wait_for_traffic_to(&[&lab.backends[0]]);
}
