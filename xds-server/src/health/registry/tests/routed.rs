//! Which pool takes traffic, over probes, reloads and restarts (semantics H2, H3, H6).

use super::*;
use crate::health::Routing;
use crate::model::{Failover, WhenAllUnhealthy};
use ProbeResult::{Pass, Timeout};

const C: &str = "127.0.0.21:80";

/// Two primaries and a failover endpoint.
fn pools(primaries: &[&str]) -> String {
    format!(
        "healthChecks: [{{ name: web, type: HTTP }}]
endpointGroups:
- {{ name: dc1, type: GCE_VM_IP_PORT, endpoints: [{}] }}
- {{ name: dc2, type: GCE_VM_IP_PORT, endpoints: [{{ address: 127.0.0.21, port: 80 }}] }}
backendServices: [{{ name: shop, healthCheck: web, backends: [{{ group: dc1 }}, {{ group: dc2 }}] }}]
",
        primaries.join(", ")
    )
}

fn failing_over(service: &mut Service) {
    service.backends[1].failover = true;
    service.failover = Some(Failover {
        ratio: 0.6,
        failback_ratio: 1.0,
        drop_traffic_if_unhealthy: false,
    });
}

fn bench() -> Bench {
    let mut bench = Bench::edited(&pools(&[EA, EB]), failing_over, Records::default());
    for address in [C, A, B] {
        bench.probe(address, Pass);
        assert_eq!(bench.update.rerouted, [], "a start moves no traffic");
    }
    bench
}

impl Bench {
    fn down(&mut self, address: &str) {
        self.probe(address, Timeout);
        self.probe(address, Timeout);
    }

    fn up(&mut self, address: &str) {
        self.probe(address, Pass);
        self.probe(address, Pass);
    }

    fn routing(&self) -> (Pool, bool) {
        let Routing { active, open } = self.view("shop").routing;
        (active, open)
    }
}

const PRIMARY: (Pool, bool) = (Pool::Primary, false);
const FAILOVER: (Pool, bool) = (Pool::Failover, false);

#[test]
fn h2_what_is_told_of_traffic_is_what_envoys_do_before_primaries_are_judged() {
    let mut bench = Bench::edited(&pools(&[EA, EB]), failing_over, Records::default());
    let takes = |bench: &Bench| {
        let followed = bench.view("shop").followed();
        [A, B, C].map(|address| bench.endpoint(address).takes_traffic(followed))
    };
    bench.probe(C, Pass);
    // The pool stays, but Envoys are told of nobody healthy in it.
    assert_eq!(
        (bench.routing(), takes(&bench)),
        (PRIMARY, [false, false, true])
    );
    bench.probe(A, Pass);
    assert_eq!(
        (bench.routing(), takes(&bench)),
        (PRIMARY, [true, false, false])
    );
    bench.probe(B, Timeout);
    assert_eq!(
        (bench.routing(), takes(&bench)),
        (FAILOVER, [false, false, true])
    );
    bench.down(A);
    bench.down(C);
    // Nobody is healthy: all share.
    assert_eq!(takes(&bench), [true; 3]);
}

#[test]
fn h2_traffic_goes_over_below_the_ratio_with_one_event_and_comes_back_at_the_other() {
    let mut bench = bench();
    assert_eq!(bench.routing(), PRIMARY);
    bench.pass_time(1);
    bench.down(B);
    assert_eq!(bench.routing(), FAILOVER);
    let [event] = &bench.update.rerouted[..] else {
        panic!("one event")
    };
    assert_eq!(
        event.why.to_string(),
        "H2 1 of 2 primaries healthy, failed over until their share is 1"
    );
    assert_eq!(bench.view("shop").since, Some(bench.now.wall));
    assert!(
        bench.update.services.contains("shop"),
        "it is rendered anew"
    );
    assert!(bench.endpoint(C).takes_traffic(bench.view("shop").routing));
    assert!(!bench.endpoint(A).takes_traffic(bench.view("shop").routing));
    bench.up(B);
    assert_eq!((bench.routing(), bench.update.rerouted.len()), (PRIMARY, 1));
}

#[test]
fn h2_the_active_pool_survives_restarts_and_reloads() {
    let mut bench = bench();
    bench.down(B);
    let since = bench.view("shop").since;
    bench.pass_time(5);
    bench.load(&pools(&[EA, EB]));
    assert_eq!(
        (bench.routing(), bench.view("shop").since),
        (FAILOVER, since)
    );
    let again = bench.restart(&pools(&[EA, EB]));
    assert_eq!(
        (again.routing(), again.view("shop").since),
        (FAILOVER, since)
    );
    assert_eq!(again.update.rerouted, [], "a restart is no event");
    // One of one primaries is healthy now: that is the ratio to come back at.
    bench.load(&pools(&[EA]));
    assert_eq!((bench.routing(), bench.update.rerouted.len()), (PRIMARY, 1));
    assert_eq!(
        bench.stored.services.values().map(|r| r.active).next(),
        Some(Pool::Primary)
    );
    bench.edit = |_| {};
    bench.load(&pools(&[EA]));
    let left = bench.stored.services.values().map(|r| r.active);
    assert_eq!(left.collect::<Vec<_>>(), [Pool::Primary]);
}

#[test]
fn h2_a_service_that_is_removed_and_comes_again_starts_with_its_primaries_also_after_a_restart() {
    let mut bench = bench();
    bench.down(B);
    assert_eq!(bench.routing(), FAILOVER);
    bench.load("fleets: [{ name: edge }]");
    assert!(bench.stored.services.is_empty() && bench.stored.endpoints.is_empty());
    bench.load(&pools(&[EA, EB]));
    for address in [A, B, C] {
        bench.probe(address, Pass);
    }
    assert_eq!(bench.routing(), PRIMARY);
    let again = bench.restart(&pools(&[EA, EB]));
    assert_eq!((again.routing(), again.update.rerouted), (PRIMARY, vec![]));
}

#[test]
fn h2_draining_and_weightless_primaries_are_not_counted() {
    let mut bench = bench();
    let draining = "{ address: 127.0.0.12, port: 80, state: DRAINING }";
    let stopped = "{ address: 127.0.0.13, port: 80, state: STOPPED }";
    let weightless = "{ address: 127.0.0.14, port: 80, weight: 0 }";
    bench.load(&pools(&[EA, draining, stopped, weightless]));
    let counted = bench.view("shop").pools.primary;
    assert_eq!((counted.healthy, counted.counted), (1, 1));
    assert_eq!(bench.routing(), PRIMARY);
}

#[test]
fn h3_both_pools_down_is_open_until_one_comes_back() {
    let mut bench = bench();
    for address in [A, B] {
        bench.down(address);
    }
    assert_eq!(bench.routing(), FAILOVER);
    bench.down(C);
    assert_eq!(
        (bench.routing(), bench.update.rerouted.len()),
        ((Pool::Failover, true), 1)
    );
    assert!(bench.endpoint(A).takes_traffic(bench.view("shop").routing));
    bench.up(A);
    assert_eq!(
        bench.routing(),
        PRIMARY,
        "the failover pool cannot serve, a primary can"
    );
}

#[test]
fn h6_fail_open_only_while_all_are_unhealthy_with_an_event_each_way() {
    let edit = |service: &mut Service| service.when_all_unhealthy = WhenAllUnhealthy::FailOpen;
    let mut bench = Bench::edited(&two(), edit, Records::default());
    bench.probe(A, Timeout);
    bench.probe(B, Pass);
    assert_eq!(bench.routing(), PRIMARY);
    bench.down(B);
    assert_eq!(
        (bench.routing(), bench.update.rerouted.len()),
        ((Pool::Primary, true), 1)
    );
    assert_eq!(
        bench.status(B),
        TIMEOUT,
        "the truth is published; the routing says what follows"
    );
    bench.up(A);
    assert_eq!((bench.routing(), bench.update.rerouted.len()), (PRIMARY, 1));
}

#[test]
fn h5_fail_closed_is_the_default() {
    let mut bench = Bench::new(&two());
    bench.probe(A, Timeout);
    bench.probe(B, Timeout);
    assert_eq!(bench.routing(), PRIMARY);
    assert_eq!(
        bench.view("shop").why.to_string(),
        "H5 no endpoint is healthy: refused, FAIL_CLOSED"
    );
}

#[test]
fn h5_h3_a_total_outage_is_one_event_and_its_end_says_what_is_over() {
    let dropping = |service: &mut Service| {
        failing_over(service);
        service.failover.as_mut().unwrap().drop_traffic_if_unhealthy = true;
    };
    let open = |service: &mut Service| service.when_all_unhealthy = WhenAllUnhealthy::FailOpen;
    let last_resort = "no longer shared by all endpoints of both pools as a last resort (H3)";
    for (yaml, edit, over) in [
        (
            two(),
            (|_| {}) as fn(&mut Service),
            "no longer refused (H5, FAIL_CLOSED)",
        ),
        (
            two(),
            open,
            "no longer shared by all endpoints (H6, FAIL_OPEN)",
        ),
        (
            pools(&[EA, EB]),
            dropping,
            "no longer refused (H3, dropTrafficIfUnhealthy)",
        ),
        (pools(&[EA, EB]), failing_over, last_resort),
    ] {
        let mut bench = Bench::edited(&yaml, edit, Records::default());
        let addresses: Vec<&str> = [C, A, B]
            .into_iter()
            .filter(|address| *address != C || yaml.contains("127.0.0.21"))
            .collect();
        for address in &addresses {
            bench.probe(address, Pass);
        }
        let mut events = Vec::new();
        for address in &addresses {
            bench.down(address);
            events.append(&mut bench.update.rerouted);
        }
        let started = events.pop().unwrap();
        assert_eq!(
            (started.ending(), started.why),
            (None, bench.view("shop").why)
        );
        assert!(started.why.ending().is_some(), "{}", started.why);
        bench.pass_time(1);
        bench.probe(A, Timeout);
        assert_eq!(bench.update.rerouted, [], "one event");
        let again = bench.restart(&yaml);
        assert_eq!(again.update.rerouted, [], "a restart is no event");
        bench.up(A);
        let [ended] = &bench.update.rerouted[..] else {
            panic!("one event: {:?}", bench.update.rerouted)
        };
        assert_eq!(ended.ending(), Some(over));
    }
}

#[test]
fn a_service_stands_since_its_status_or_the_kind_of_its_rule_changed_also_over_a_restart() {
    let mut bench = Bench::new(&two());
    bench.probe(A, Pass);
    let healthy = bench.view("shop").since;
    bench.pass_time(7);
    bench.probe(B, Pass);
    assert_eq!(bench.view("shop").why.to_string(), "2 of 2 healthy");
    assert_eq!(bench.view("shop").since, healthy, "only a number changed");
    bench.down(A);
    bench.down(B);
    let down = Some(bench.now.wall);
    assert_eq!(bench.view("shop").since, down);
    assert_eq!(bench.view("shop").status(), DetailedStatus::Unhealthy);
    bench.pass_time(7);
    bench.load(&two());
    assert_eq!(bench.view("shop").since, down);
    let mut again = bench.restart(&two());
    assert_eq!(again.view("shop").since, down);
    again.pass_time(7);
    again.up(A);
    assert_eq!(again.view("shop").since, Some(again.now.wall));
}

#[test]
fn h6_while_it_is_open_eds_does_not_have_draining_endpoints_and_the_api_says_so() {
    let edit = |service: &mut Service| service.when_all_unhealthy = WhenAllUnhealthy::FailOpen;
    let draining = "{ address: 127.0.0.12, port: 80, state: DRAINING }";
    let weightless = "{ address: 127.0.0.13, port: 80, weight: 0 }";
    let yaml = yaml(&[EA, draining, weightless]);
    let mut bench = Bench::edited(&yaml, edit, Records::default());
    for address in [A, B, "127.0.0.13:80"] {
        bench.probe(address, Pass);
    }
    let told = |bench: &Bench| {
        let view = bench.registry.view();
        let endpoints = crate::admin::api::endpoints(&view, bench.now.mono);
        let statuses = endpoints.map(|e| e.status.unwrap_or_else(|| "-".into()));
        statuses.collect::<Vec<_>>()
    };
    assert_eq!(told(&bench), ["HEALTHY", "DRAINING", "DRAINING"]);
    bench.down(A);
    assert_eq!(told(&bench), ["TIMEOUT", "-", "-"]);
    assert_eq!(bench.status(B), DRAINING, "what people are told stays");
    bench.up(A);
    assert_eq!(told(&bench), ["HEALTHY", "DRAINING", "DRAINING"]);
}

proptest! {
    /// The counts that are kept are those of the views, whatever happens.
    #[test]
    fn h2_the_counts_are_what_the_views_show(
        steps in prop::collection::vec((0u8..6, 0usize..3, prop::sample::select(ProbeResult::ALL.to_vec())), 0..50),
    ) {
        let mut bench = Bench::edited(&pools(&[EA, EB]), failing_over, Records::default());
        let draining = "{ address: 127.0.0.12, port: 80, state: DRAINING }";
        let mut text = pools(&[EA, EB]);
        for (step, at, result) in steps {
            match step {
                0 => bench.pass_time(3),
                1 => {
                    text = if at == 0 { pools(&[EA, draining]) } else { pools(&[EA, EB]) };
                    bench.load(&text);
                }
                2 => { bench = bench.restart(&text); }
                _ => bench.probe([A, B, C][at], result),
            }
            let view = bench.view("shop");
            for pool in [Pool::Primary, Pool::Failover] {
                let of = view.endpoints.iter().filter(|e| e.pool == pool && e.status != Some(EdsStatus::Draining));
                let healthy = of.clone().filter(|e| e.detailed == DetailedStatus::Healthy).count();
                let unjudged = of.clone().filter(|e| e.detailed == DetailedStatus::Probing).count();
                let standing = *view.pools.of(pool);
                prop_assert_eq!((standing.healthy, standing.unjudged, standing.counted), (healthy, unjudged, of.count()));
            }
            let healthy_failover = view.pools.failover.healthy > 0;
            for rerouting in &bench.update.rerouted {
                prop_assert_eq!(rerouting.to, view.routing);
                prop_assert!(rerouting.to.active == Pool::Primary || healthy_failover || rerouting.from.active == Pool::Failover);
            }
        }
    }
}
