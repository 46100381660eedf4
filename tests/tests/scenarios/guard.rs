//! The guard (semantics V5, V3): a vantage that has lost its canary, or that turns most of what it sees at once, abstains,
//! and the fleet goes on with what it was told before.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::envoy::{Envoy, FAILED, HEALTHY};
use vitals_tests::lab::{Lab, NODE, Scene};
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually, holds, pause};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    v5_without_its_canary_a_vantage_abstains_until_it_answers,
    v5_a_majority_that_turns_at_once_in_two_groups_is_undone,
    v5_without_a_guard_it_is_published,
);

const SICK: Mode = Mode::ProbeStatus(500);

/// Several times what it takes to publish a verdict.
const LONG: Duration = Duration::from_secs(4);

/// How many lines of the log hold these words.
fn count(vitals: &Vitals, words: &str) -> usize {
    let log = vitals.log();
    log.lines().filter(|line| line.contains(words)).count()
}

fn v5_without_its_canary_a_vantage_abstains_until_it_answers(transport: Transport) {
    let scene = Scene::new();
    let canary: SocketAddr = SocketAddr::new(scene.net().host(99).into(), 21_990);
    // The system answers for it; nobody accepts.
    let alive = TcpListener::bind(canary).unwrap();
    let lab = Lab::on(scene, transport, 6, |mut config| {
        config.service()["probing"]["guard"] = json!({ "canaries": [canary.to_string()] });
        config
    });
    // One of six is less than half of maxShare: what the vantage finds of it does not hold up the end of the doubt.
    let (ill, well) = lab.backends.split_first().unwrap();
    let since = lab.vitals.endpoint(ill.name()).unwrap()["since"].clone();
    drop(alive);
    let guard = "V5 guard: embedded abstains since ";
    let cause = format!("its canary {canary} does not answer");
    lab.vitals
        .wait_for_line("shop", &["6/6 healthy", guard, &cause]);
    let started = "its votes do not count, and what it turned is undone where no others decide";
    lab.vitals.wait_for_log(&["guard (V5)", &cause, started]);
    lab.vitals.wait_for_line(
        "shop",
        &[
            ill.name(),
            "embedded=HEALTHY abstains",
            guard,
            "the status stays",
        ],
    );
    ill.become_(SICK);
    // It is found, and not believed.
    lab.vitals.wait_for_line(
        "shop",
        &[
            ill.name(),
            "embedded=UNHEALTHY abstains",
            guard,
            "the status stays",
        ],
    );
    let before = ill.requests();
    holds(LONG, "its status stays", || {
        let entry = lab.vitals.endpoint(ill.name())?;
        let hosts = lab.envoy.hosts("shop")?;
        let stays = entry["status"] == "HEALTHY"
            && entry["since"] == since
            && hosts.values().all(|flags| flags == HEALTHY);
        lab.scene.reached(6)?;
        stays
            .then_some(())
            .ok_or_else(|| format!("{entry} {hosts:?}"))
    });
    assert!(ill.requests() > before, "it goes on to be served");
    let _alive = TcpListener::bind(canary).unwrap();
    lab.vitals
        .wait_for_log(&["guard (V5): the votes of embedded count again"]);
    lab.envoy.wait_for_flags(SOON, "shop", ill.name(), FAILED);
    lab.scene
        .wait_for_traffic_to(&well.iter().collect::<Vec<_>>());
    lab.vitals
        .wait_for_line("shop", &[ill.name(), "UNHEALTHY", "V2 majority 1 of 1"]);
    // One event per start and end.
    assert_eq!(count(&lab.vitals, started), 1);
    assert_eq!(count(&lab.vitals, "count again"), 1);
}

/// Twelve endpoints in two groups, of which eight turn at once.
struct Fleet {
    envoy: Envoy,
    vitals: Vitals,
    backends: Vec<Backend>,
    scene: Scene,
}

impl Fleet {
    #[track_caller]
    fn start(transport: Transport, guard: Option<Value>) -> Self {
        let scene = Scene::new();
        let backends = scene.backends(12);
        let mut config = scene.shop(&backends[..6]);
        let others: Vec<SocketAddr> = backends[6..].iter().map(Backend::address).collect();
        config.add_group("dc2", &others);
        config.service()["backends"] = json!([{ "group": "dc1" }, { "group": "dc2" }]);
        if let Some(guard) = guard {
            config.service()["probing"]["guard"] = guard;
        }
        let vitals = scene.vitals(&config);
        let envoy = scene.envoy(&vitals, transport);
        envoy.wait_until_live(SOON);
        scene.wait_for_traffic_to(&backends.iter().collect::<Vec<_>>());
        Self {
            envoy,
            vitals,
            backends,
            scene,
        }
    }

    /// Four of each group.
    fn eight(&self) -> Vec<&Backend> {
        self.backends[2..10].iter().collect()
    }

    fn failed(&self) -> Result<usize, String> {
        let hosts = self.envoy.hosts("shop")?;
        Ok(hosts.values().filter(|flags| *flags == FAILED).count())
    }
}

fn v5_a_majority_that_turns_at_once_in_two_groups_is_undone(transport: Transport) {
    let mut fleet = Fleet::start(transport, None);
    for backend in fleet.eight() {
        backend.become_(SICK);
    }
    // More than half of 12 are 7; the window is 2 · 500 ms + 500 ms.
    let cause = "of 12 endpoints in 2 groups from healthy within 1.5 s";
    fleet.vitals.wait_for_line(
        "shop",
        &["V5 guard: embedded abstains since", "it turned 7", cause],
    );
    fleet
        .vitals
        .wait_for_log(&["guard (V5)", "it turned 7", cause]);
    eventually(
        SOON,
        "what was published before is undone",
        || match fleet.failed()? {
            0 => Ok(()),
            n => Err(format!("{n}")),
        },
    );
    holds(LONG, "nothing is published", || match fleet.failed()? {
        0 => Ok(()),
        n => Err(format!("{n}")),
    });
    fleet
        .vitals
        .wait_for_line("shop", &["12/12 healthy", "V5 guard"]);
    fleet
        .scene
        .wait_for_traffic_to(&fleet.backends.iter().collect::<Vec<_>>());
    // Nor by a server that comes back in the middle of it: it doubts at once.
    let vitals = &mut fleet.vitals;
    let wrong = fleet.envoy.watch(
        "shop",
        |hosts| hosts.len() != 12 || hosts.values().any(|flags| flags != HEALTHY),
        || {
            vitals.kill();
            vitals.start_again();
            eventually(SOON * 2, "Envoy is back", || vitals.client(NODE));
            vitals.wait_for_line("shop", &["12/12 healthy", "V5 guard"]);
            pause(LONG);
        },
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    // 2 of 12 are less than half of maxShare: those two are believed.
    let eight = fleet.eight();
    for backend in &eight[2..] {
        backend.become_(Mode::Healthy);
    }
    fleet.vitals.wait_for_log(&[
        "guard (V5): the votes of embedded count again",
        "still turned",
    ]);
    for backend in &eight[..2] {
        fleet
            .envoy
            .wait_for_flags(SOON, "shop", backend.name(), FAILED);
    }
    assert_eq!(fleet.failed(), Ok(2));
    // One event of each server.
    assert_eq!(count(&fleet.vitals, "its votes do not count"), 2);
    assert_eq!(count(&fleet.vitals, "count again"), 1);
}

fn v5_without_a_guard_it_is_published(transport: Transport) {
    let fleet = Fleet::start(transport, Some(json!({ "enabled": false })));
    let eight = fleet.eight();
    for backend in &eight {
        backend.become_(SICK);
    }
    for backend in &eight {
        fleet
            .envoy
            .wait_for_flags(SOON, "shop", backend.name(), FAILED);
    }
    let well: Vec<&Backend> = fleet
        .backends
        .iter()
        .filter(|backend| !eight.iter().any(|ill| ill.name() == backend.name()))
        .collect();
    fleet.scene.wait_for_traffic_to(&well);
    fleet.vitals.wait_for_line("shop", &["4/12 healthy"]);
    assert_eq!(count(&fleet.vitals, "guard (V5)"), 0);
}
