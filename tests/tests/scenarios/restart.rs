//! The server dies and comes back: Envoy must not notice, whatever the protocol.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use vitals_tests::backend::Mode;
use vitals_tests::envoy::{FAILED, HEALTHY};
use vitals_tests::lab::{Lab, NODE, Scene};
use vitals_tests::wait::{SOON, eventually, holds, pause};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    killed_and_restarted_it_goes_on_from_the_store,
    a_backend_that_died_meanwhile_is_found,
    killed_ten_times_while_an_endpoint_flaps,
);

fn killed_and_restarted_it_goes_on_from_the_store(transport: Transport) {
    let mut lab = Lab::start(transport, 3);
    let names: Vec<String> = lab.backends.iter().map(|b| b.name().to_owned()).collect();
    lab.backends[2].become_(Mode::Closed);
    lab.envoy.wait_for_flags(SOON, "shop", &names[2], FAILED);
    let told = |vitals: &vitals_tests::vitals::Vitals| -> Vec<(Value, Value)> {
        names
            .iter()
            .map(|name| {
                let entry = vitals.endpoint(name).unwrap();
                (entry["status"].clone(), entry["since"].clone())
            })
            .collect()
    };
    let before = told(&lab.vitals);
    // A killed server may lose what it learned in its last moments, so the last change is given time to reach the disk.
    pause(Duration::from_secs(2));
    let counters = || {
        [
            "cluster_manager.cds.update_success",
            "cluster.shop.update_success",
        ]
        .map(|name| lab.envoy.stat(name).unwrap())
    };
    let updates = counters();
    let load = lab.scene.load();
    let vitals = &mut lab.vitals;
    let wrong = lab.envoy.watch(
        "shop",
        |hosts| {
            let flags: Vec<_> = names
                .iter()
                .map(|name| hosts.get(name).map(String::as_str))
                .collect();
            flags != [Some(HEALTHY), Some(HEALTHY), Some(FAILED)]
        },
        || {
            vitals.kill();
            pause(Duration::from_secs(2));
            vitals.start_again();
            assert_eq!(told(vitals), before, "statuses come from the store");
            eventually(SOON * 2, "Envoy is back", || vitals.client(NODE));
            holds(Duration::from_secs(3), "the statuses stay", || {
                let now = told(vitals);
                if now == before {
                    Ok(())
                } else {
                    Err(format!("{now:?}"))
                }
            });
        },
    );
    assert!(wrong.is_empty(), "Envoy saw a change: {wrong:?}");
    if transport == Transport::Delta {
        assert_eq!(counters(), updates, "unchanged resources were sent again");
    }
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    // And it still works: the closed one returns.
    lab.backends[2].become_(Mode::Healthy);
    lab.envoy.wait_for_flags(SOON, "shop", &names[2], HEALTHY);
}

fn a_backend_that_died_meanwhile_is_found(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let ill = lab.backends[0].name().to_owned();
    lab.vitals.kill();
    lab.backends[0].become_(Mode::Closed);
    lab.vitals.start_again();
    lab.envoy.wait_for_flags(SOON * 2, "shop", &ill, FAILED);
    lab.scene.wait_for_traffic_to(&[&lab.backends[1]]);
}

fn killed_ten_times_while_an_endpoint_flaps(transport: Transport) {
    let mut lab = Lab::on(Scene::new(), transport, 2, |config| config.every(100, 100));
    let stop = AtomicBool::new(false);
    let (flapping, vitals) = (&lab.backends[0], &mut lab.vitals);
    std::thread::scope(|threads| {
        // Ends when the ten kills are over.
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for mode in [Mode::ProbeStatus(500), Mode::Healthy] {
                    flapping.become_(mode);
                    pause(Duration::from_millis(310));
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..10_u64 {
                // At a different moment each time.
                pause(Duration::from_millis(200 + 70 * round));
                vitals.kill();
                vitals.start_again();
                let steady = vitals.endpoint(lab.backends[1].name()).unwrap();
                assert_eq!(steady["status"], "HEALTHY", "round {round}: {steady}");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    let log = lab.vitals.log();
    assert!(!log.contains("set aside"), "a store was damaged by a kill");
    flapping_ends_healthy(&lab);
}

fn flapping_ends_healthy(lab: &Lab) {
    lab.backends[0].become_(Mode::Healthy);
    lab.vitals
        .wait_for_status(lab.backends[0].name(), "HEALTHY");
    lab.envoy
        .wait_for_flags(SOON * 2, "shop", lab.backends[0].name(), HEALTHY);
}
