//! Primary and failover backends (semantics H2, H3; design 5.5): which pool takes traffic, counted request by request.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::{Config, LISTENER_PORT};
use vitals_tests::envoy::{Envoy, FAILED, HEALTHY};
use vitals_tests::lab::Scene;
use vitals_tests::open::Conversation;
use vitals_tests::tcp_backend::TcpBackend;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually, holds};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    h2_below_the_ratio_all_traffic_goes_to_the_other_pool_and_back,
    h2_at_ratio_zero_envoys_that_check_fail_over_without_the_server,
    h2_at_ratio_zero_envoys_that_check_beside_probers_fail_over_without_the_server,
    h2_before_primaries_are_judged_the_others_serve_and_status_says_so,
    h2_failback_ratio_keeps_traffic_away_and_a_restart_keeps_the_pool,
    h3_the_last_resort_is_both_pools_by_weight,
    h3_dropped_is_503_and_one_return_ends_it,
    h4_what_is_open_outlives_an_exchange_of_pools,
);

const SICK: Mode = Mode::ProbeStatus(500);

/// A service with two pools on a live Envoy; the primaries come first.
struct Pools {
    envoy: Envoy,
    vitals: Vitals,
    backends: Vec<Backend>,
    primaries: usize,
    scene: Scene,
}

impl Pools {
    #[track_caller]
    fn start(
        transport: Transport,
        (primaries, failovers): (usize, usize),
        failover: Value,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let scene = Scene::new();
        let backends = scene.backends(u8::try_from(primaries + failovers).unwrap());
        let mut config = scene.shop(&backends[..primaries]);
        let others: Vec<SocketAddr> = backends[primaries..].iter().map(Backend::address).collect();
        config.fail_over_to(&others, failover);
        change(&mut config);
        let vitals = scene.vitals(&config);
        let envoy = scene.envoy(&vitals, transport);
        envoy.wait_until_live(SOON);
        let this = Self {
            envoy,
            vitals,
            backends,
            primaries,
            scene,
        };
        // Also the standby pool has been judged.
        eventually(SOON, "every endpoint is healthy", || {
            let hosts = this.envoy.hosts("shop")?;
            let well = hosts.values().filter(|flags| *flags == HEALTHY).count();
            (well == this.backends.len())
                .then_some(())
                .ok_or_else(|| format!("{hosts:?}"))
        });
        this.serves(this.primary());
        this
    }

    fn primary(&self) -> &[Backend] {
        &self.backends[..self.primaries]
    }

    fn failover(&self) -> &[Backend] {
        &self.backends[self.primaries..]
    }

    /// Waits until these take the traffic, and then counts: they take all of 60 requests, and those of a load that runs
    /// beside; each at least one.
    #[track_caller]
    fn serves<'b>(&self, due: impl IntoIterator<Item = &'b Backend>) {
        let due: Vec<&Backend> = due.into_iter().collect();
        self.scene.wait_for_traffic_to(&due);
        let counts = self.scene.counted(60, &self.backends).unwrap();
        for (backend, count) in self.backends.iter().zip(&counts) {
            let is_due = due.iter().any(|due| due.name() == backend.name());
            assert_eq!(*count > 0, is_due, "{}: {counts:?}", backend.name());
        }
        assert!(counts.iter().sum::<u64>() >= 60, "{counts:?}");
    }

    /// Waits until Envoy has the pools like this.
    #[track_caller]
    fn wait_for_first(&self, first: &[Backend]) {
        eventually(SOON, "Envoy has exchanged the pools", || {
            let priorities = self.envoy.priorities("shop")?;
            let right = self.backends.iter().all(|backend| {
                let is_first = first.iter().any(|b| b.name() == backend.name());
                let due = if is_first { "0" } else { "1" };
                priorities.get(backend.name()).is_some_and(|p| p == due)
            });
            right.then_some(()).ok_or_else(|| format!("{priorities:?}"))
        });
    }
}

fn h2_below_the_ratio_all_traffic_goes_to_the_other_pool_and_back(transport: Transport) {
    let pools = Pools::start(transport, (2, 2), json!({ "ratio": 0.6 }), |_| {});
    let load = pools.scene.load();
    let ill = pools.primary()[1].name();
    let wrong = pools.envoy.watch(
        "shop",
        |hosts| {
            let known = |name: &str, flags: &str| match name == ill {
                true => [FAILED, HEALTHY].contains(&flags),
                false => flags == HEALTHY,
            };
            hosts.len() != 4 || !hosts.iter().all(|(name, flags)| known(name, flags))
        },
        || {
            for _ in 0..2 {
                // 1 of 2 is less than 0.6.
                pools.primary()[1].become_(SICK);
                pools.wait_for_first(pools.failover());
                pools.serves(pools.failover());
                pools.vitals.wait_for_line(
                    "shop",
                    &[
                        "FAILOVER",
                        "H2 1 of 2 primaries healthy, failed over until their share is 0.6",
                    ],
                );
                pools
                    .vitals
                    .wait_for_line("shop", &[pools.primary()[0].name(), "standby"]);
                pools.primary()[1].become_(Mode::Healthy);
                pools.wait_for_first(pools.primary());
                pools.serves(pools.primary());
            }
        },
    );
    assert!(wrong.is_empty(), "a flag flashed: {wrong:?}");
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    for (from, to) in [("PRIMARY", "FAILOVER"), ("FAILOVER", "PRIMARY")] {
        let words = format!("traffic goes from {from} to {to}: H2");
        let log = pools.vitals.log();
        assert_eq!(log.matches(&words).count(), 2, "{words}: {log}");
    }
}

fn without_the_server(transport: Transport, by: &Value) {
    let mut pools = Pools::start(transport, (2, 2), json!({ "ratio": 0.0 }), |config| {
        config.service()["probing"]["by"] = by.clone();
    });
    pools.vitals.kill();
    pools.primary()[0].become_(Mode::Closed);
    // One is enough.
    pools.serves(&pools.primary()[1..]);
    pools.primary()[1].become_(Mode::Closed);
    pools.serves(pools.failover());
    pools.primary()[0].become_(Mode::Healthy);
    pools.serves(&pools.primary()[..1]);
    // What the Envoy did meanwhile and what the server decides are one.
    pools.primary()[1].become_(Mode::Healthy);
    pools.vitals.start_again();
    pools.serves(pools.primary());
}

fn h2_at_ratio_zero_envoys_that_check_fail_over_without_the_server(transport: Transport) {
    without_the_server(transport, &json!(["ENVOYS"]));
}

fn h2_at_ratio_zero_envoys_that_check_beside_probers_fail_over_without_the_server(
    transport: Transport,
) {
    without_the_server(transport, &json!(["PROBERS", "ENVOYS"]));
}

fn h2_before_primaries_are_judged_the_others_serve_and_status_says_so(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(2);
    let [silent, other] = &backends[..] else {
        unreachable!()
    };
    silent.become_(Mode::Silent);
    // A minute without a verdict.
    let mut config = scene.shop(&backends[..1]).every(60_000, 60_000);
    config.fail_over_to(&[other.address()], json!({ "ratio": 0.0 }));
    let vitals = scene.vitals(&config);
    vitals.wait_for_status(other.name(), "HEALTHY");
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[other]);
    let why = "H2 0 of 1 primaries healthy, 1 not judged yet";
    vitals.wait_for_line("shop", &["PRIMARY", why]);
    vitals.wait_for_line("shop", &[other.name(), "HEALTHY", " yes "]);
    vitals.wait_for_line("shop", &[silent.name(), "PROBING", " no "]);
}

fn h2_failback_ratio_keeps_traffic_away_and_a_restart_keeps_the_pool(transport: Transport) {
    let failover = json!({ "ratio": 0.6, "failbackRatio": 1.0 });
    let mut pools = Pools::start(transport, (3, 2), failover, |_| {});
    // 2 of 3 are not below 0.6, 1 of 3 is.
    pools.primary()[0].become_(SICK);
    pools.serves(&pools.primary()[1..]);
    pools.primary()[1].become_(SICK);
    pools.serves(pools.failover());
    pools.primary()[1].become_(Mode::Healthy);
    pools.vitals.wait_for_line(
        "shop",
        &["2/3 healthy", "failed over until their share is 1"],
    );
    let counts = pools.scene.counted(60, pools.primary()).unwrap();
    assert_eq!(counts, [0, 0, 0], "between the two ratios it stays away");
    let away = || {
        let counts = pools.scene.counted(10, &pools.backends[..3])?;
        match counts.iter().all(|count| *count == 0) {
            true => Ok(()),
            false => Err(format!("{counts:?}")),
        }
    };
    // A killed server may lose what it learned in its last moments, so the last change is given time to reach the disk.
    holds(Duration::from_secs(2), "traffic stays away", away);
    pools.vitals.kill();
    holds(Duration::from_secs(1), "traffic stays away", away);
    pools.vitals.start_again();
    // An Envoy is back, and has been told something: nothing else than before.
    eventually(SOON * 2, "Envoy is back", || {
        pools.vitals.client(vitals_tests::lab::NODE)
    });
    holds(Duration::from_secs(3), "traffic stays away", away);
    pools
        .vitals
        .wait_for_line("shop", &["2/3 healthy", "failed over"]);
    pools.primary()[0].become_(Mode::Healthy);
    pools.serves(pools.primary());
}

fn h3_the_last_resort_is_both_pools_by_weight(transport: Transport) {
    let pools = Pools::start(transport, (2, 2), json!({ "ratio": 0.6 }), |config| {
        config.0["endpointGroups"][1]["endpoints"][1]["weight"] = json!(4);
    });
    for backend in &pools.backends {
        backend.become_(SICK);
    }
    let rule = "H3 no endpoint of either pool is healthy: all share the traffic as a last resort";
    pools.vitals.wait_for_line("shop", &["ALL", rule]);
    pools
        .scene
        .wait_for_traffic_to(&pools.backends.iter().collect::<Vec<_>>());
    // 1 + 1 of the primaries, 1 + 4 of the others.
    let counts = pools.scene.counted(140, &pools.backends).unwrap();
    for (count, due) in counts.iter().zip([20_u64, 20, 20, 80]) {
        assert!(count.abs_diff(due) <= due / 5, "{counts:?}");
    }
    // The first that comes back takes all of it, of whichever pool.
    pools.failover()[0].become_(Mode::Healthy);
    pools.serves(&pools.failover()[..1]);
}

fn h3_dropped_is_503_and_one_return_ends_it(transport: Transport) {
    let failover = json!({ "ratio": 0.6, "dropTrafficIfUnhealthy": true });
    let pools = Pools::start(transport, (2, 1), failover, |_| {});
    for backend in &pools.backends {
        backend.become_(SICK);
    }
    pools
        .vitals
        .wait_for_line("shop", &["H3", "refused, dropTrafficIfUnhealthy"]);
    for backend in &pools.backends {
        pools
            .envoy
            .wait_for_flags(SOON, "shop", backend.name(), FAILED);
    }
    pools.scene.wait_for_answer(503);
    let before: u64 = pools.backends.iter().map(Backend::requests).sum();
    for _ in 0..20 {
        let reply = pools.scene.get("/").unwrap();
        assert_eq!(reply.status, 503, "{reply:?}");
    }
    let after: u64 = pools.backends.iter().map(Backend::requests).sum();
    assert_eq!(after, before, "a backend was asked");
    pools.failover()[0].become_(Mode::Healthy);
    pools.serves(pools.failover());
    // 1 of 2 primaries is too few.
    pools.primary()[0].become_(Mode::Healthy);
    pools
        .vitals
        .wait_for_line("shop", &["1/2 healthy", "failed over"]);
    pools.serves(pools.failover());
    pools.primary()[1].become_(Mode::Healthy);
    pools.serves(pools.primary());
}

fn h4_what_is_open_outlives_an_exchange_of_pools(transport: Transport) {
    let front =
        |scene: &Scene, n: u16| SocketAddr::new(scene.net().host(1).into(), LISTENER_PORT + n);
    // The databases are checked through the HTTP backends beside them (semantics P3).
    let mut dbs = Vec::new();
    let pools = Pools::start(transport, (2, 2), json!({ "ratio": 0.6 }), |config| {
        let doctors: Vec<Value> = (0..2)
            .flat_map(|group| {
                let endpoints = &config.0["endpointGroups"][group]["endpoints"];
                endpoints.as_array().unwrap().clone()
            })
            .collect();
        for (name, doctors) in [("dbs1", &doctors[..2]), ("dbs2", &doctors[2..])] {
            let mut endpoints = Vec::new();
            for doctor in doctors {
                let ip = doctor["address"].as_str().unwrap().parse().unwrap();
                let db = TcpBackend::start(SocketAddr::new(ip, 0));
                endpoints.push(json!({
                    "address": doctor["address"], "port": db.address().port(),
                    "healthCheckPort": doctor["port"],
                }));
                dbs.push(db);
            }
            config.push(
                "endpointGroups",
                json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": endpoints }),
            );
        }
        // Envoy gives an answer of HTTP/1 15 s in all.
        config.service()["protocol"] = json!("H2C");
        let mut db = config.service().clone();
        db["name"] = json!("db");
        db["protocol"] = json!("TCP");
        db["backends"] = json!([{ "group": "dbs1" }, { "group": "dbs2", "failover": true }]);
        config.push("backendServices", db);
        let listeners = config.0["fleets"][0]["listeners"].as_array_mut().unwrap();
        let address = listeners[0]["address"].clone();
        listeners.push(
            json!({ "name": "db", "address": address, "port": LISTENER_PORT + 1, "service": "db" }),
        );
    });
    let (http, tcp) = (front(&pools.scene, 0), front(&pools.scene, 1));
    let answer =
        |backend: &Backend| Conversation::with(backend.name(), || Conversation::http(http));
    let connection =
        |db: &TcpBackend| Conversation::with(&db.address().to_string(), || Conversation::tcp(tcp));
    // With the one that will fail, and with the one that will be left though it is well.
    let mut open = vec![
        answer(&pools.backends[0]),
        answer(&pools.backends[1]),
        connection(&dbs[0]),
        connection(&dbs[1]),
    ];
    pools.primary()[1].become_(SICK);
    pools.wait_for_first(pools.failover());
    pools.serves(pools.failover());
    for one in &mut open {
        one.goes_on();
    }
    let elsewhere = [&dbs[2], &dbs[3]].map(|db| db.address().to_string());
    eventually(SOON, "new connections go to the other pool", || {
        let new = Conversation::tcp(tcp);
        match elsewhere.iter().any(|name| *name == new.backend()) {
            true => Ok(()),
            false => Err(new.backend().to_owned()),
        }
    });
    open.extend([answer(&pools.backends[2]), connection(&dbs[3])]);
    pools.primary()[1].become_(Mode::Healthy);
    pools.wait_for_first(pools.primary());
    pools.serves(pools.primary());
    holds(Duration::from_secs(1), "everything goes on", || {
        for one in &mut open {
            one.goes_on();
        }
        Ok(())
    });
}
