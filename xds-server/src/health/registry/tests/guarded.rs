//! A vantage that finds too much unhealthy at once (semantics V5).

use super::*;
use crate::health::guard::{Cause, End};
use crate::model::{Backend, Endpoint, GroupKind, Locality, NamedCheck, Protocol};
use ProbeResult::{Pass, Timeout};

/// Ten endpoints in each of two groups.
fn twenty() -> String {
    let group = |n: u8| {
        let endpoints: Vec<String> = (1..=10)
            .map(|host| format!("{{ address: 127.0.{n}.{host}, port: 80 }}"))
            .collect();
        let endpoints = endpoints.join(", ");
        format!("- {{ name: dc{n}, type: GCE_VM_IP_PORT, endpoints: [{endpoints}] }}\n")
    };
    format!(
        "healthChecks: [{{ name: web, type: HTTP }}]
endpointGroups:
{}{}backendServices: [{{ name: shop, healthCheck: web, backends: [{{ group: dc1 }}, {{ group: dc2 }}] }}]
",
        group(1),
        group(2)
    )
}

fn address(n: u8) -> String {
    format!("127.0.{}.{}:80", 1 + n / 10, 1 + n % 10)
}

fn bench() -> Bench {
    edited(|_| {})
}

fn edited(edit: fn(&mut Service)) -> Bench {
    let mut bench = Bench::edited(&twenty(), edit, Records::default());
    bench.all(EMBEDDED_VANTAGE, 0..20, Pass);
    bench
}

impl Bench {
    /// A vantage turns these endpoints, one after the other, each published before the next.
    fn all(
        &mut self,
        vantage: &str,
        which: std::ops::Range<u8>,
        result: ProbeResult,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for n in which {
            for _ in 0..2 {
                self.say(vantage, &address(n), result);
                self.update();
                events.append(&mut self.update.guards);
            }
        }
        events
    }

    fn healthy(&self) -> usize {
        let view = self.view("shop");
        let healthy = |e: &&Arc<EndpointView>| e.status == Some(EdsStatus::Healthy);
        view.endpoints.iter().filter(healthy).count()
    }

    pub(super) fn ends(&mut self) -> Vec<End> {
        let events = std::mem::take(&mut self.update.guards);
        events
            .into_iter()
            .map(|event| match event {
                Event::Ended(_, end) => end,
                Event::Started(abstention) => panic!("{abstention}"),
            })
            .collect()
    }
}

#[test]
fn v5_a_vantage_that_loses_its_network_takes_nobody_out_of_rotation() {
    let mut bench = bench();
    bench.pass_time(5);
    let since = bench.endpoint(&address(3)).since;
    assert_eq!(bench.all(EMBEDDED_VANTAGE, 0..10, Timeout), []);
    assert_eq!(bench.healthy(), 10, "up to the share it is believed");
    let events = bench.all(EMBEDDED_VANTAGE, 10..20, Timeout);
    let [Event::Started(abstention)] = &events[..] else {
        panic!("one event: {events:?}")
    };
    let cause = Cause::Turned {
        turned: 11,
        of: 20,
        groups: 2,
        window: Duration::from_secs(15),
    };
    assert_eq!(abstention.cause, cause);
    assert_eq!(bench.healthy(), 20, "what it turned is undone");
    let endpoint = bench.endpoint(&address(3));
    assert_eq!(
        (endpoint.detailed, endpoint.since),
        (DetailedStatus::Healthy, since)
    );
    assert_eq!(
        endpoint.rule.to_string(),
        "V5 guard: embedded abstains since 2023-11-14T22:13:25.000Z, it turned 11 of 20 endpoints in 2 groups from \
         healthy within 15 s; the status stays"
    );
    assert!(endpoint.pinned.is_some() && endpoint.votes[0].abstains.is_some());
    assert_eq!(
        endpoint.votes[0].verdict,
        Some(Verdict::Timeout),
        "its vote is still shown"
    );
    assert_eq!(bench.view("shop").abstaining.len(), 1);
    // The network is back.
    let events = bench.all(EMBEDDED_VANTAGE, 0..20, Pass);
    let ended =
        |event: &Event| matches!(event, Event::Ended(_, End::Recovered { turned: 4, of: 20 }));
    assert!(events.len() == 1 && ended(&events[0]), "{events:?}");
    assert_eq!(bench.healthy(), 20);
}

#[test]
fn v5_what_went_down_before_the_window_stays_down() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..1, Timeout);
    bench.pass_time(16);
    bench.all(EMBEDDED_VANTAGE, 1..13, Timeout);
    assert_eq!(bench.healthy(), 19);
    assert_eq!(
        bench.endpoint(&address(0)).detailed,
        DetailedStatus::Timeout
    );
    assert!(bench.endpoint(&address(0)).pinned.is_some());
}

#[test]
fn v5_after_max_hold_the_vantage_is_believed() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    assert_eq!(bench.healthy(), 20);
    for _ in 0..60 {
        bench.pass_time(5);
        for n in 0..20 {
            bench.say(EMBEDDED_VANTAGE, &address(n), Timeout);
        }
    }
    assert_eq!(bench.ends(), [End::HoldOver]);
    assert_eq!(bench.healthy(), 0);
    let transitions = &bench.update.transitions;
    assert_eq!(transitions.len(), 20);
    assert_eq!(transitions[0].rule, Rule::Majority { votes: 1, of: 1 });
    bench.pass_time(5);
    assert_eq!((bench.ends(), bench.healthy()), (vec![], 0));
}

#[test]
fn v5_another_vantage_that_agrees_makes_it_true() {
    let mut bench = Bench::new(&twenty());
    let vantages: Arc<[Arc<str>]> = [Arc::from("a"), Arc::from("b")].into();
    bench.registry.assign(vantages, None, bench.now);
    bench.all("a", 0..20, Pass);
    bench.all("b", 0..20, Pass);
    assert_eq!(bench.all("a", 0..20, Timeout).len(), 1, "nobody agrees yet");
    assert_eq!(bench.healthy(), 20);
    // The other finds the same, and is no doubtful witness for being late.
    assert_eq!(bench.all("b", 0..20, Timeout), []);
    assert_eq!(bench.healthy(), 20, "one of two, while the first abstains");
    bench.pass_time(1);
    assert_eq!(bench.ends(), [End::Agreed]);
    assert_eq!(bench.healthy(), 0);
}

#[test]
fn v5_of_three_vantages_a_doubted_one_changes_nothing() {
    let mut bench = Bench::new(&twenty());
    let vantages: Arc<[Arc<str>]> = ["a", "b", "c"].map(Arc::from).into();
    bench.registry.assign(vantages, None, bench.now);
    for vantage in ["a", "b", "c"] {
        bench.all(vantage, 0..20, Pass);
    }
    bench.all("a", 0..20, Timeout);
    assert_eq!(
        bench.endpoint(A_ENDPOINT).rule,
        Rule::Majority { votes: 2, of: 2 }
    );
    assert_eq!((bench.healthy(), bench.view("shop").pinned), (20, 0));
    bench.all("b", 0..1, Timeout);
    assert_eq!(bench.endpoint(A_ENDPOINT).rule, Rule::Tie { each: 1 });
    bench.registry.withdraw("a", bench.now);
    bench.update();
    assert_eq!(bench.ends(), [End::Gone]);
}

const A_ENDPOINT: &str = "127.0.1.1:80";

#[test]
fn v5_switched_off_all_is_believed_at_once() {
    let mut bench = edited(|service| service.guard.enabled = false);
    assert_eq!(bench.all(EMBEDDED_VANTAGE, 0..20, Timeout), []);
    assert_eq!(bench.healthy(), 0);
}

#[test]
fn v5_switching_it_off_ends_the_doubt() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    bench.edit = |service| service.guard.enabled = false;
    bench.load(&twenty());
    assert_eq!(bench.ends(), [End::Gone]);
    assert_eq!(bench.healthy(), 0);
}

#[test]
fn v5_s7_a_restart_while_it_abstains_changes_no_status() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    let again = bench.restart(&twenty());
    assert_eq!((again.healthy(), again.transitions()), (20, vec![]));
    assert!(again.view("shop").endpoints[0].pinned.is_some());
    assert_eq!(again.view("shop").abstaining.len(), 1);
}

#[test]
fn v5_s7_a_restart_while_it_abstains_for_less_than_max_share_changes_no_status_either() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    // Seven of twenty are still turned: over half of maxShare, so it still abstains.
    bench.all(EMBEDDED_VANTAGE, 7..20, Pass);
    assert_eq!(
        (bench.healthy(), bench.view("shop").abstaining.len()),
        (20, 1)
    );
    let mut again = bench.restart(&twenty());
    assert_eq!((again.healthy(), again.transitions()), (20, vec![]));
    assert_eq!(again.view("shop").abstaining.len(), 1);
    again.all(EMBEDDED_VANTAGE, 0..3, Pass);
    assert_eq!(
        again.healthy(),
        16,
        "it is believed from below half of maxShare on"
    );
}

#[test]
fn v5_s7_a_restart_while_its_canaries_are_silent_changes_no_status() {
    let canary = |service: &mut Service| {
        service.guard.canaries = vec!["127.0.9.1:1".parse().unwrap()];
    };
    let mut bench = edited(canary);
    bench.probe("127.0.9.1:1", Pass);
    bench.probe("127.0.9.1:1", Timeout);
    bench.probe("127.0.9.1:1", Timeout);
    bench.all(EMBEDDED_VANTAGE, 0..3, Timeout);
    assert_eq!(
        (bench.healthy(), bench.view("shop").abstaining.len()),
        (20, 1)
    );
    let again = bench.restart(&twenty());
    assert_eq!((again.healthy(), again.transitions()), (20, vec![]));
    assert_eq!(again.view("shop").abstaining.len(), 1);
}

#[test]
fn v5_a_policy_that_is_edited_while_it_abstains_changes_no_status() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    bench.all(EMBEDDED_VANTAGE, 7..20, Pass);
    bench.edit = |service| service.guard.max_hold = Duration::from_secs(60);
    bench.load(&twenty());
    assert_eq!((bench.healthy(), bench.transitions()), (20, vec![]));
    assert_eq!(bench.view("shop").abstaining.len(), 1);
}

#[test]
fn v5_v8_a_check_that_is_edited_while_it_abstains_takes_nobody_out_of_rotation() {
    let mut bench = bench();
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    let text = twenty().replace("type: HTTP", "type: TCP");
    bench.load(&text);
    assert_eq!((bench.healthy(), bench.transitions()), (20, vec![]));
    bench.all(EMBEDDED_VANTAGE, 0..20, Timeout);
    assert_eq!(bench.healthy(), 20);
}

#[test]
fn v5_a_reload_with_a_policy_for_each_service_is_linear() {
    // Each of 2,000 services has a guard of its own, and each 20 endpoints.
    const SERVICES: u32 = 2_000;
    let one = fleet(20);
    let shop = &one.services["shop"];
    let mut model = Model::default();
    for n in 0..SERVICES {
        let mut service = Service::clone(shop);
        service.name = Name::new(&format!("s{n}")).unwrap();
        service.guard.max_hold = Duration::from_millis(1_000 + u64::from(n));
        for (at, backend) in (0..).zip(&mut service.backends) {
            let group = Arc::make_mut(&mut backend.group);
            for (host, endpoint) in (0..).zip(&mut group.endpoints) {
                let address = 0x0a00_0000 + n * 64 + at * 32 + host;
                endpoint.address = (std::net::Ipv4Addr::from(address), 80).into();
            }
        }
        model
            .services
            .insert(service.name.clone(), Arc::new(service));
    }
    let mut bench = Bench::new("fleets: [{ name: edge }]");
    let start = clock::now();
    bench.load_model(&model);
    let first = start.elapsed();
    let start = clock::now();
    bench.load_model(&model);
    let (again, limit) = (start.elapsed(), Duration::from_secs(8));
    assert!(first < limit && again < limit, "{first:?} {again:?}");
}

#[test]
fn v5_a_vantage_that_comes_anew_and_finds_all_down_is_doubted_too() {
    let mut bench = bench();
    let vantages: Arc<[Arc<str>]> = [Arc::from(EMBEDDED_VANTAGE), Arc::from("new")].into();
    bench.registry.assign(vantages, None, bench.now);
    bench.update();
    assert_eq!(bench.all("new", 0..20, Timeout).len(), 1);
    assert_eq!(bench.healthy(), 20);
}

#[test]
fn v5_a_vantage_that_reaches_none_of_its_canaries_abstains() {
    let canaries = |service: &mut Service| {
        service.guard.canaries = vec![
            "127.0.9.1:1".parse().unwrap(),
            "127.0.9.2:1".parse().unwrap(),
        ];
    };
    let mut bench = edited(canaries);
    assert_eq!(bench.targets.len(), 22);
    bench.all(EMBEDDED_VANTAGE, 0..2, Timeout);
    for canary in ["127.0.9.1:1", "127.0.9.2:1"] {
        bench.probe(canary, Pass);
    }
    for _ in 0..2 {
        bench.probe("127.0.9.2:1", Timeout);
    }
    bench.pass_time(1);
    assert!(
        bench.view("shop").abstaining.is_empty(),
        "one of them answers"
    );
    bench.probe("127.0.9.1:1", Timeout);
    bench.probe("127.0.9.1:1", Timeout);
    let view = bench.view("shop");
    assert!(
        view.abstaining[0]
            .to_string()
            .ends_with("none of its 2 canaries answers (127.0.9.1:1, 127.0.9.2:1)")
    );
    assert_eq!(
        bench.healthy(),
        20,
        "the two that it turned a moment ago are undone"
    );
    for _ in 0..2 {
        bench.probe("127.0.9.2:1", Pass);
    }
    assert_eq!(bench.ends(), [End::Recovered { turned: 2, of: 20 }]);
    assert_eq!(bench.healthy(), 18);
    assert_eq!(bench.stored.targets.len(), 22);
}

#[test]
fn v5_services_that_share_a_policy_are_one_pool() {
    // Two services of six endpoints, each in a group of its own: neither has enough for a share of its own.
    let of = |n: u8| {
        let endpoints: Vec<String> = (1..=6)
            .map(|host| format!("{{ address: 127.0.{n}.{host}, port: 80 }}"))
            .collect();
        endpoints.join(", ")
    };
    let yaml = format!(
        "healthChecks: [{{ name: web, type: HTTP }}]
endpointGroups:
- {{ name: dc1, type: GCE_VM_IP_PORT, endpoints: [{}] }}
- {{ name: dc2, type: GCE_VM_IP_PORT, endpoints: [{}] }}
backendServices:
- {{ name: cart, healthCheck: web, backends: [{{ group: dc1 }}] }}
- {{ name: shop, healthCheck: web, backends: [{{ group: dc2 }}] }}
",
        of(1),
        of(2)
    );
    let run = |edit: fn(&mut Service)| {
        let mut bench = Bench::edited(&yaml, edit, Records::default());
        let mut events = Vec::new();
        for result in [Pass, Timeout, Timeout] {
            for (n, host) in (1..=2).flat_map(|n| (1..=6).map(move |host| (n, host))) {
                bench.probe(&format!("127.0.{n}.{host}:80"), result);
                events.append(&mut bench.update.guards);
            }
        }
        events.len()
    };
    assert_eq!(run(|_| {}), 1);
    let apart = |service: &mut Service| {
        if service.name.as_str() == "shop" {
            service.guard.max_share = 0.6;
        }
    };
    assert_eq!(run(apart), 0);
}

/// A service of so many endpoints in two groups, built without text.
fn fleet(endpoints: u32) -> Model {
    let check = crate::config::parse_sources(&[Source::new("test.yaml", yaml(&[EA]))])
        .unwrap()
        .model;
    let named: NamedCheck = check.services["shop"].check.clone().unwrap();
    let mut service = Service::new(Name::new("shop").unwrap(), Protocol::Http);
    service.check = Some(named);
    let group = |at: u32| EndpointGroup {
        name: Name::new(&format!("dc{at}")).unwrap(),
        kind: GroupKind::GceVmIpPort,
        locality: Locality::default(),
        endpoints: (0..endpoints / 2)
            .map(|n| Endpoint {
                address: (
                    std::net::Ipv4Addr::from(0x0a00_0000 + at * endpoints + n),
                    80,
                )
                    .into(),
                weight: 1,
                state: crate::model::AdminState::Active,
                health_check_address: None,
                health_check_port: None,
            })
            .collect(),
    };
    for at in 0..2 {
        service.backends.push(Backend {
            group: Arc::new(group(at)),
            capacity: 1.0,
            failover: false,
            by: ProbedBy::PROBERS,
        });
    }
    let mut model = Model::default();
    model
        .services
        .insert(service.name.clone(), Arc::new(service));
    model
}

#[test]
fn v5_every_endpoint_of_50_000_turning_at_once_is_linear() {
    const ALL: usize = 50_000;
    let mut bench = Bench::new("fleets: [{ name: edge }]");
    bench.load_model(&fleet(50_000));
    let mut evaluated = bench.update.evaluated;
    let keys: Vec<StateKey> = bench.targets.keys().copied().collect();
    assert_eq!(keys.len(), ALL);
    let mut events = 0;
    let mut from = None;
    use Verdict::{Healthy, Timeout};
    for to in [Healthy, Timeout, Healthy, Timeout] {
        for batch in keys.chunks(10_000) {
            for &key in batch {
                bench.serial += 1;
                let report = Report {
                    key,
                    step: Step::Judged { from, to },
                    tally: TallyState {
                        verdict: Some(to),
                        ..TallyState::default()
                    },
                    outcome: Outcome {
                        result: ProbeResult::Fail,
                        reason: Reason::new(ReasonCode::StatusMismatch, "as the test says"),
                        times: Times::default(),
                    },
                    at: bench.now.wall,
                    serial: bench.serial,
                };
                bench
                    .registry
                    .on_report(EMBEDDED_VANTAGE, report, bench.now);
            }
            bench.update();
            evaluated += bench.update.evaluated;
            events += bench.update.guards.len();
        }
        from = Some(to);
    }
    assert_eq!(events, 3, "a start, an end, a start");
    assert_eq!(bench.healthy(), ALL);
    // Four rounds; the configuration; the end of the wait for the first; two starts and an end.
    assert!(evaluated <= 9 * ALL, "{evaluated}");
}

proptest! {
    /// Of a single vantage: whatever happens, statuses follow its votes but for those that the guard keeps, and each
    /// change names its rule.
    #[test]
    fn v5_s7_statuses_follow_the_votes_or_the_guard_says_why_not(
        steps in prop::collection::vec((0u8..10, 0u8..20, any::<bool>()), 0..60),
    ) {
        let mut bench = bench();
        for (step, n, up) in steps {
            let before = bench.view("shop");
            match step {
                0 => bench.pass_time(u64::from(n)),
                // A run of endpoints at once.
                1..=4 => {
                    let result = if up { Pass } else { Timeout };
                    for n in n..20 {
                        bench.say(EMBEDDED_VANTAGE, &address(n), result);
                        bench.say(EMBEDDED_VANTAGE, &address(n), result);
                    }
                    bench.update();
                }
                _ => bench.probe(&address(n), if up { Pass } else { Timeout }),
            }
            let after = bench.view("shop");
            let abstains = !after.abstaining.is_empty();
            let mut changed = 0;
            for (before, after) in before.endpoints.iter().zip(&after.endpoints) {
                changed += usize::from(before.detailed != after.detailed);
                let vote = after.votes[0].verdict.map(DetailedStatus::from);
                match &after.rule {
                    Rule::Majority { .. } => prop_assert_eq!(vote, Some(after.detailed)),
                    Rule::Guarded(_) => {
                        prop_assert!(abstains);
                        // It may keep what it was, or go back to being healthy; never out of rotation.
                        let kept = after.detailed == before.detailed;
                        prop_assert!(kept || after.detailed == DetailedStatus::Healthy);
                    }
                    Rule::Pinned { .. } => prop_assert_eq!(after.detailed, before.detailed, "{}", after.rule),
                    other => prop_assert!(false, "{}", other),
                }
            }
            prop_assert_eq!(bench.update.transitions.len(), changed);
            // What was said before a restart is taken as fresh after it.
            if step == 0 && after.endpoints.iter().all(|endpoint| endpoint.votes[0].fresh) {
                let again = bench.restart(&twenty());
                prop_assert_eq!(again.transitions(), vec![], "by a restart");
                let same = after.endpoints.iter().zip(&again.view("shop").endpoints).all(|(a, b)| a.status == b.status);
                prop_assert!(same, "{:?} {:?}", after.abstaining, again.view("shop").abstaining);
            }
        }
    }
}
