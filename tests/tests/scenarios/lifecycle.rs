//! The end of the server.

use std::time::Duration;

use tokio::time::Instant;
use vitals_tests::envoy::HEALTHY;
use vitals_tests::lab::{Lab, NODE};
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(sigterm_ends_it_soon_with_0_though_an_envoy_is_connected);

fn sigterm_ends_it_soon_with_0_though_an_envoy_is_connected(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let since = |lab: &Lab| lab.vitals.endpoint(lab.backends[0].name()).unwrap()["since"].clone();
    let before = since(&lab);
    let start = Instant::now();
    let status = lab.vitals.terminate(Duration::from_secs(20));
    let took = start.elapsed();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    // Loss of the control plane changes nothing.
    let hosts = lab.envoy.hosts("shop").unwrap();
    assert!(hosts.values().all(|flags| flags == HEALTHY), "{hosts:?}");
    lab.scene.reached(20).expect("Envoy serves on");
    lab.vitals.start_again();
    assert_eq!(since(&lab), before, "the state was stored");
    eventually(SOON * 2, "Envoy is back", || lab.vitals.client(NODE));
}
