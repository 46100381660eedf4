//! The registry driven by hand: models from YAML, reports and time made up.

use std::collections::BTreeMap;

use proptest::prelude::*;
use vitals_prober::clock;
use vitals_prober::outcome::{Outcome, ProbeResult, Reason, ReasonCode, Times};
use vitals_prober::tally::{Step, Tally, TallyState, Verdict};
use vitals_prober::target::Target;

use super::*;
use crate::config::{Source, parse_sources};
use crate::health::{DetailedStatus, EdsStatus, EndpointView, Rule};
use crate::model::Model;

mod canaries;
mod guarded;
mod routed;
mod voted;

/// A server's health path without tasks: what the engine does is done by `probe`.
struct Bench {
    registry: Registry,
    now: Now,
    /// The engine's side: targets with their tallies.
    targets: BTreeMap<StateKey, (Target, Tally)>,
    /// Vantages elsewhere, with theirs.
    others: BTreeMap<(String, StateKey), Tally>,
    serial: u64,
    /// What the configuration says beyond its text.
    edit: fn(&mut Service),
    /// The store's side.
    stored: Records,
    update: Update,
}

impl Bench {
    fn new(yaml: &str) -> Self {
        Self::with_memory(yaml, Records::default())
    }

    fn with_memory(yaml: &str, records: Records) -> Self {
        Self::edited(yaml, |_| {}, records)
    }

    fn edited(yaml: &str, edit: fn(&mut Service), records: Records) -> Self {
        let now = Now {
            mono: clock::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        };
        let mut bench = Self {
            registry: Registry::new(records.clone()),
            now,
            targets: BTreeMap::new(),
            others: BTreeMap::new(),
            serial: 0,
            edit,
            stored: records,
            update: Update::default(),
        };
        bench.load(yaml);
        bench
    }

    /// A restart: the same store, a new process.
    fn restart(&self, yaml: &str) -> Self {
        Self::edited(yaml, self.edit, self.stored.clone())
    }

    fn load(&mut self, yaml: &str) {
        let model = parse_sources(&[Source::new("test.yaml", yaml)])
            .unwrap_or_else(|errors| panic!("{errors:?}"))
            .model;
        let mut model = Model::clone(&model);
        for service in model.services.values_mut() {
            (self.edit)(Arc::make_mut(service));
        }
        self.load_model(&model);
    }

    fn load_model(&mut self, model: &Model) {
        let targets = self.registry.set_model(model, self.now);
        let mut before = std::mem::take(&mut self.targets);
        for target in targets {
            let tally = before
                .remove(&target.key)
                .map_or(target.seed, |(_, tally)| tally);
            self.targets.insert(target.key, (target, tally));
        }
        self.update();
    }

    fn update(&mut self) {
        self.update = self.registry.update(self.now);
        for change in &self.update.changes {
            match change.clone() {
                Change::Target(key, Some(record)) => drop(self.stored.targets.insert(key, record)),
                Change::Target(key, None) => drop(self.stored.targets.remove(&key)),
                Change::Endpoint(key, Some(record)) => {
                    drop(self.stored.endpoints.insert(key, record))
                }
                Change::Endpoint(key, None) => drop(self.stored.endpoints.remove(&key)),
                Change::Service(name, Some(record)) => {
                    self.stored.services.insert(name, record);
                }
                Change::Service(name, None) => {
                    self.stored.services.remove(&name);
                }
            }
        }
    }

    fn pass_time(&mut self, seconds: u64) {
        self.now.mono += Duration::from_secs(seconds);
        self.now.wall += Duration::from_secs(seconds);
        self.registry.tick(self.now);
        self.update();
    }

    /// One probe of every target on this address.
    fn probe(&mut self, address: &str, result: ProbeResult) {
        self.say(EMBEDDED_VANTAGE, address, result);
        self.update();
    }

    /// One probe of every target on this address by this vantage, of which the registry is told; its reports.
    fn say(&mut self, vantage: &str, address: &str, result: ProbeResult) -> Vec<Report> {
        let address: SocketAddr = address.parse().unwrap();
        let code = match result {
            ProbeResult::Pass => ReasonCode::ResponseOk,
            ProbeResult::Fail => ReasonCode::StatusMismatch,
            ProbeResult::Timeout => ReasonCode::ConnectRefused,
            ProbeResult::Inconclusive => ReasonCode::LocalFds,
        };
        let now = self.now;
        let mut reports = Vec::new();
        let mut probed = false;
        for (target, embedded) in self
            .targets
            .values_mut()
            .filter(|(target, _)| target.address == address)
        {
            probed = true;
            let key = target.key;
            let tally = match vantage {
                EMBEDDED_VANTAGE => embedded,
                other => self.others.entry((other.into(), key)).or_default(),
            };
            let step = tally.record(result, target.check.thresholds());
            if result != ProbeResult::Inconclusive {
                let took = Duration::from_millis(1);
                match vantage {
                    EMBEDDED_VANTAGE => target.pulse.beat(now.wall, now.mono, took),
                    other => self.registry.on_beat(other, &key, now.wall, took, now),
                }
            }
            if step != Step::Unchanged {
                let outcome = Outcome {
                    result,
                    reason: Reason::new(code, "as the test says"),
                    times: Times::default(),
                };
                self.serial += 1;
                reports.push(Report {
                    key,
                    step,
                    tally: tally.state(),
                    outcome,
                    at: now.wall,
                    serial: self.serial,
                });
            }
        }
        assert!(
            probed,
            "nothing probes {address}; targets: {:?}",
            self.targets
        );
        for report in &reports {
            self.registry.on_report(vantage, report.clone(), now);
        }
        reports
    }

    fn view(&self, service: &str) -> Arc<ServiceView> {
        Arc::clone(&self.registry.view().services[service])
    }

    fn endpoint(&self, address: &str) -> Arc<EndpointView> {
        let address: SocketAddr = address.parse().unwrap();
        let view = self.view("shop");
        view.endpoints
            .iter()
            .find(|endpoint| endpoint.address == address)
            .cloned()
            .unwrap_or_else(|| panic!("{address} is not in {:?}", view.endpoints))
    }

    fn status(&self, address: &str) -> (Option<EdsStatus>, DetailedStatus) {
        let endpoint = self.endpoint(address);
        (endpoint.status, endpoint.detailed)
    }

    fn transitions(&self) -> Vec<(DetailedStatus, DetailedStatus)> {
        self.update
            .transitions
            .iter()
            .map(|transition| (transition.from, transition.to))
            .collect()
    }
}

const A: &str = "127.0.0.11:80";
const B: &str = "127.0.0.12:80";

const HEALTHY: (Option<EdsStatus>, DetailedStatus) =
    (Some(EdsStatus::Healthy), DetailedStatus::Healthy);
const TIMEOUT: (Option<EdsStatus>, DetailedStatus) =
    (Some(EdsStatus::Timeout), DetailedStatus::Timeout);
const UNHEALTHY: (Option<EdsStatus>, DetailedStatus) =
    (Some(EdsStatus::Unhealthy), DetailedStatus::Unhealthy);
const DRAINING: (Option<EdsStatus>, DetailedStatus) =
    (Some(EdsStatus::Draining), DetailedStatus::Draining);

/// A service `shop` with a check of 5 s and thresholds of 2, whose endpoints are written as given.
fn yaml(endpoints: &[&str]) -> String {
    with(endpoints, "", "healthCheck: web")
}

fn with(endpoints: &[&str], check: &str, service: &str) -> String {
    format!(
        "healthChecks: [{{ name: web, type: HTTP{check} }}]
endpointGroups:
- {{ name: dc1, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{}] }}
backendServices: [{{ name: shop, {service}, backends: [{{ group: dc1 }}] }}]
",
        endpoints.join(", ")
    )
}

const EA: &str = "{ address: 127.0.0.11, port: 80 }";
const EB: &str = "{ address: 127.0.0.12, port: 80 }";

fn two() -> String {
    yaml(&[EA, EB])
}

#[test]
fn s2_a_first_success_flips_at_once_and_frees_the_load_assignment() {
    let mut bench = Bench::new(&two());
    assert!(bench.view("shop").held, "nothing is known yet");
    bench.probe(A, ProbeResult::Pass);
    assert!(!bench.view("shop").held);
    assert_eq!(bench.status(A), HEALTHY);
    assert_eq!(
        bench.status(B),
        (Some(EdsStatus::Unhealthy), DetailedStatus::Probing)
    );
    assert_eq!(bench.endpoint(B).rule, Rule::AwaitingFirstSuccess);
    assert_eq!(
        bench.transitions(),
        [(DetailedStatus::Probing, DetailedStatus::Healthy)]
    );
}

#[test]
fn s2_under_tencent_alb_an_endpoint_is_probing_until_a_threshold_is_reached() {
    let check = ", profile: TENCENT_ALB, http: { host: a.example, expectedStatuses: [http_2xx] }";
    let mut bench = Bench::new(&with(&[EA, EB], check, "healthCheck: web"));
    for _ in 0..2 {
        bench.probe(A, ProbeResult::Pass);
        bench.probe(B, ProbeResult::Fail);
        assert!(bench.view("shop").held, "nothing is judged yet");
        assert_eq!(bench.endpoint(A).detailed, DetailedStatus::Probing);
        assert_eq!(bench.endpoint(B).detailed, DetailedStatus::Probing);
    }
    bench = bench.restart(&with(&[EA, EB], check, "healthCheck: web"));
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Fail);
    assert_eq!((bench.status(A), bench.status(B)), (HEALTHY, UNHEALTHY));
    assert_eq!(
        bench.transitions(),
        [(DetailedStatus::Probing, DetailedStatus::Unhealthy)]
    );
}

#[test]
fn design_5_3_a_failure_alone_does_not_end_the_hold_while_others_have_not_spoken() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Timeout);
    assert!(bench.view("shop").held);
    bench.probe(B, ProbeResult::Fail);
    assert!(!bench.view("shop").held, "all have spoken");
    assert_eq!((bench.status(A), bench.status(B)), (TIMEOUT, UNHEALTHY));
}

#[test]
fn design_5_3_after_the_hold_unjudged_endpoints_are_served_until_judged_with_one_event() {
    let mut bench = Bench::new(&two());
    let deadline = bench.registry.next_deadline().unwrap();
    assert_eq!(
        deadline - bench.now.mono,
        Duration::from_secs(5),
        "min(timeout + 1 s, 5 s)"
    );
    bench.pass_time(5);
    assert!(!bench.view("shop").held);
    assert_eq!(
        bench.status(A),
        (Some(EdsStatus::Healthy), DetailedStatus::Probing)
    );
    assert_eq!(bench.endpoint(A).rule, Rule::BenefitOfDoubt);
    assert_eq!(bench.update.benefit_of_doubt.len(), 1);
    bench.probe(A, ProbeResult::Timeout);
    assert_eq!(bench.update.benefit_of_doubt.len(), 0, "one event");
    assert_eq!(
        bench.status(B),
        (Some(EdsStatus::Healthy), DetailedStatus::Probing)
    );
    bench.probe(B, ProbeResult::Pass);
    assert_eq!((bench.status(A), bench.status(B)), (TIMEOUT, HEALTHY));
}

#[test]
fn s1_s7_a_flip_takes_the_threshold_and_is_told_once_with_its_reason() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(A, ProbeResult::Fail);
    assert_eq!((bench.status(A), bench.transitions()), (HEALTHY, vec![]));
    assert_eq!(bench.endpoint(A).votes[0].opposing, 1);
    bench.pass_time(5);
    bench.probe(A, ProbeResult::Fail);
    assert_eq!(bench.status(A), UNHEALTHY);
    assert_eq!(bench.endpoint(A).since, bench.now.wall);
    let [transition] = &bench.update.transitions[..] else {
        panic!("one transition")
    };
    assert_eq!(
        transition.reason.as_ref().unwrap().code,
        ReasonCode::StatusMismatch
    );
    assert_eq!(
        (&transition.vantage, transition.rule.clone()),
        (&Some("embedded".into()), Rule::Majority { votes: 1, of: 1 })
    );
    bench.probe(A, ProbeResult::Fail);
    assert_eq!(bench.transitions(), []);
}

#[test]
fn s7_a_restart_causes_no_transition_and_serves_the_last_state_at_once() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Timeout);
    bench.probe(A, ProbeResult::Fail);
    let since = bench.endpoint(B).since;
    let mut again = bench.restart(&two());
    assert!(!again.view("shop").held);
    assert_eq!((again.status(A), again.status(B)), (HEALTHY, TIMEOUT));
    assert_eq!(
        (again.transitions(), again.endpoint(B).since),
        (vec![], since)
    );
    assert_eq!(
        again.endpoint(B).reason.as_ref().unwrap().code,
        ReasonCode::ConnectRefused
    );
    again.probe(A, ProbeResult::Fail);
    assert_eq!(
        again.status(A),
        UNHEALTHY,
        "the count of failures goes on where it stood"
    );
}

/// A service of that many endpoints, 127.0.1.0:80 and on.
fn many(count: u8) -> (String, Vec<String>) {
    let endpoints: Vec<_> = (0..count)
        .map(|n| format!("{{ address: 127.0.1.{n}, port: 80 }}"))
        .collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    let addresses = (0..count).map(|n| format!("127.0.1.{n}:80")).collect();
    (yaml(&endpoints), addresses)
}

#[test]
fn a_report_has_only_the_endpoints_evaluated_that_it_speaks_of() {
    let (yaml, addresses) = many(50);
    let mut bench = Bench::new(&yaml);
    assert_eq!(bench.update.evaluated, 50, "a new configuration: all");
    bench.probe(&addresses[0], ProbeResult::Pass);
    assert_eq!(bench.update.evaluated, 1, "held or not, the others wait");
    for address in &addresses[1..] {
        bench.probe(address, ProbeResult::Pass);
        assert_eq!(bench.update.evaluated, 1);
        assert_eq!(bench.update.services.len(), 1, "Envoys are told");
    }
    let before = bench.view("shop");
    bench.probe(&addresses[7], ProbeResult::Fail);
    assert_eq!(bench.update.evaluated, 1);
    assert!(
        bench.update.services.is_empty(),
        "one failure of two is for people, and no news for Envoys"
    );
    let same = |bench: &Bench| {
        let now = bench.view("shop");
        let both = before.endpoints.iter().zip(&now.endpoints);
        both.filter(|(a, b)| Arc::ptr_eq(a, b)).count()
    };
    assert_eq!(same(&bench), 49, "the others' views are the same values");
    bench.probe(&addresses[7], ProbeResult::Fail);
    assert_eq!((bench.update.evaluated, same(&bench)), (1, 49));
    assert_eq!(bench.update.services.len(), 1);
    assert_eq!(bench.status(&addresses[7]), UNHEALTHY);
    bench.pass_time(1);
    assert_eq!(bench.update.evaluated, 0, "time alone is no news");
}

#[test]
fn design_5_3_what_the_never_judged_are_served_as_changes_for_all_of_them_at_once() {
    let (yaml, addresses) = many(50);
    let mut bench = Bench::new(&yaml);
    bench.pass_time(5);
    assert_eq!(bench.update.evaluated, 50, "the hold is over");
    let served = |bench: &Bench, status| {
        let view = bench.view("shop");
        let of = view.endpoints.iter().filter(|e| e.status == Some(status));
        of.count()
    };
    assert_eq!(served(&bench, EdsStatus::Healthy), 50);
    bench.probe(&addresses[9], ProbeResult::Fail);
    assert_eq!(bench.update.evaluated, 1);
    bench.probe(&addresses[3], ProbeResult::Pass);
    assert_eq!(bench.update.evaluated, 49, "all but the one that failed");
    assert_eq!(served(&bench, EdsStatus::Healthy), 1);
    bench.probe(&addresses[3], ProbeResult::Fail);
    bench.probe(&addresses[3], ProbeResult::Fail);
    assert_eq!(
        bench.update.evaluated, 49,
        "in doubt, they are served again"
    );
    assert_eq!(served(&bench, EdsStatus::Healthy), 48);
}

#[test]
fn v3_without_fresh_votes_the_status_is_pinned_with_one_event() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Timeout);
    bench.pass_time(15);
    assert!(
        bench.endpoint(A).pinned.is_none(),
        "V1: fresh for max(3 × interval, 15 s)"
    );
    bench.pass_time(1);
    assert_eq!((bench.status(A), bench.status(B)), (HEALTHY, TIMEOUT));
    assert!(bench.endpoint(A).pinned.is_some() && !bench.endpoint(A).votes[0].fresh);
    assert_eq!(bench.update.pinned, [(Name::new("shop").unwrap(), 2)]);
    bench.probe(A, ProbeResult::Inconclusive);
    bench.pass_time(1);
    assert!(
        bench.endpoint(A).pinned.is_some(),
        "INCONCLUSIVE is no sign of life"
    );
    bench.probe(A, ProbeResult::Pass);
    bench.pass_time(1);
    assert!(bench.endpoint(A).pinned.is_none());
}

#[test]
fn v6_a_reload_keeps_state_and_since_of_what_did_not_change() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(A, ProbeResult::Fail);
    let of_a = |bench: &Bench| {
        *bench
            .targets
            .iter()
            .find(|(_, (target, _))| target.address.to_string() == A)
            .unwrap()
            .0
    };
    let (since, key) = (bench.endpoint(A).since, of_a(&bench));
    bench.pass_time(3);
    bench.load(&with(
        &[
            "{ address: 127.0.0.11, port: 80, weight: 7 }",
            "{ address: 127.0.0.13, port: 80 }",
        ],
        "",
        "healthCheck: web, loadBalancing: { policy: RANDOM }",
    ));
    assert_eq!((bench.status(A), bench.endpoint(A).since), (HEALTHY, since));
    assert_eq!(bench.endpoint(A).weight, Some(7));
    assert_eq!(bench.endpoint(A).votes[0].opposing, 1);
    assert_eq!(
        bench.status("127.0.0.13:80"),
        (Some(EdsStatus::Unhealthy), DetailedStatus::Probing)
    );
    assert_eq!(of_a(&bench), key);
    bench.probe(A, ProbeResult::Fail);
    assert_eq!(bench.status(A), UNHEALTHY);
}

#[test]
fn v6_services_that_ask_the_same_share_one_state() {
    let yaml = two().replace(
        "backendServices: [",
        "backendServices: [{ name: other, healthCheck: web, backends: [{ group: dc1 }] }, ",
    );
    let mut bench = Bench::new(&yaml);
    assert_eq!(bench.targets.len(), 2);
    bench.probe(A, ProbeResult::Pass);
    let other = bench.view("other");
    assert_eq!(other.endpoints[0].detailed, DetailedStatus::Healthy);
    assert_eq!(bench.update.transitions.len(), 2);
}

#[test]
fn v8_an_edited_check_changes_no_status_before_its_verdict() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Timeout);
    let since = bench.endpoint(A).since;
    bench.pass_time(3);
    bench.load(&with(
        &[EA, EB],
        ", http: { requestPath: /new }",
        "healthCheck: web",
    ));
    assert_eq!((bench.status(A), bench.status(B)), (HEALTHY, TIMEOUT));
    assert_eq!(
        (bench.endpoint(A).rule.clone(), bench.endpoint(A).since),
        (Rule::PreviousCheck, since)
    );
    bench.probe(A, ProbeResult::Fail);
    assert_eq!(
        bench.status(A),
        HEALTHY,
        "S1 with the previous state: one failure of two"
    );
    bench.probe(B, ProbeResult::Pass);
    assert_eq!(bench.status(B), TIMEOUT);
    bench.probe(A, ProbeResult::Fail);
    bench.probe(B, ProbeResult::Pass);
    assert_eq!((bench.status(A), bench.status(B)), (UNHEALTHY, HEALTHY));
}

#[test]
fn v8_a_check_that_is_edited_while_the_server_is_down_finds_the_previous_state() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Timeout);
    let mut again = bench.restart(&with(
        &[EA, EB],
        ", http: { requestPath: /new }",
        "healthCheck: web",
    ));
    assert_eq!((again.status(A), again.status(B)), (HEALTHY, TIMEOUT));
    again.probe(A, ProbeResult::Fail);
    assert_eq!(again.status(A), HEALTHY);
}

#[test]
fn v8_h1_a_check_that_is_switched_on_starts_from_what_was_served() {
    let mut bench = Bench::new(&with(&[EA], "", "healthCheck: none"));
    assert_eq!(
        bench.status(A),
        (Some(EdsStatus::Healthy), DetailedStatus::Disabled)
    );
    assert!(!bench.view("shop").held && bench.targets.is_empty());
    bench.load(&yaml(&[EA]));
    assert_eq!(bench.status(A), HEALTHY);
    bench.probe(A, ProbeResult::Timeout);
    assert_eq!(bench.status(A), HEALTHY);
    bench.probe(A, ProbeResult::Timeout);
    assert_eq!(bench.status(A), TIMEOUT);
}

#[test]
fn h1_s6_the_operators_word_wins_over_votes() {
    let mut bench = Bench::new(&yaml(&[
        "{ address: 127.0.0.11, port: 80, state: DRAINING }",
        "{ address: 127.0.0.12, port: 80, weight: 0 }",
        "{ address: 127.0.0.13, port: 80, state: STOPPED }",
        "{ address: 127.0.0.14, port: 80 }",
    ]));
    assert_eq!(bench.targets.len(), 3, "a stopped machine is not probed");
    bench.probe(A, ProbeResult::Pass);
    assert!(
        bench.view("shop").held,
        "an endpoint that takes no new requests says nothing about the service"
    );
    bench.probe(B, ProbeResult::Timeout);
    bench.probe("127.0.0.14:80", ProbeResult::Pass);
    assert_eq!((bench.status(A), bench.status(B)), (DRAINING, DRAINING));
    assert_eq!(bench.endpoint(B).weight, None);
    assert_eq!(
        bench.status("127.0.0.13:80"),
        (None, DetailedStatus::Stopped)
    );
    assert_eq!(
        bench.endpoint(A).votes[0].verdict,
        Some(Verdict::Healthy),
        "it is still probed"
    );
    bench.load(&yaml(&[EA, EB, "{ address: 127.0.0.14, port: 80 }"]));
    assert_eq!((bench.status(A), bench.status(B)), (HEALTHY, TIMEOUT));
}

#[test]
fn design_5_6_a_removed_endpoint_drains_first_and_comes_back_as_it_was() {
    let draining = "healthCheck: web, connectionDraining: 10s";
    let mut bench = Bench::new(&with(&[EA, EB], "", draining));
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Pass);
    bench.load(&with(&[EA], "", draining));
    assert_eq!(
        (bench.status(B), bench.endpoint(B).rule.clone()),
        (DRAINING, Rule::Removed)
    );
    assert_eq!(bench.targets.len(), 1, "and is not probed");
    bench.load(&with(&[EA, EB], "", draining));
    assert_eq!(bench.status(B), HEALTHY);
    bench.load(&with(&[EA], "", draining));
    bench.pass_time(9);
    assert_eq!(bench.status(B), DRAINING);
    bench.pass_time(1);
    assert_eq!(bench.view("shop").endpoints.len(), 1);
    assert_eq!(bench.stored.endpoints.len(), 1, "the store forgets it");
}

#[test]
fn what_no_model_has_is_forgotten_by_the_store() {
    let mut bench = Bench::new(&two());
    bench.probe(A, ProbeResult::Pass);
    bench.probe(B, ProbeResult::Pass);
    assert_eq!(
        (bench.stored.targets.len(), bench.stored.endpoints.len()),
        (2, 2)
    );
    let again = bench.restart(&yaml(&[EA]));
    assert_eq!(
        (again.stored.targets.len(), again.stored.endpoints.len()),
        (1, 1)
    );
    bench.load("fleets: [{ name: edge }]");
    assert_eq!(
        (bench.stored.targets.len(), bench.stored.endpoints.len()),
        (0, 0)
    );
}

#[test]
fn p3_each_endpoint_is_probed_where_it_says() {
    let bench = Bench::new(&with(
        &[
            "{ address: 127.0.0.11, port: 80, healthCheckAddress: 127.0.0.111, healthCheckPort: 9000 }",
            EB,
        ],
        ", portSpecification: USE_FIXED_PORT, port: 7000",
        "healthCheck: web",
    ));
    let probed: Vec<String> = bench
        .targets
        .values()
        .map(|(target, _)| target.address.to_string())
        .collect();
    assert!(
        probed.contains(&"127.0.0.111:9000".into()) && probed.contains(&"127.0.0.12:7000".into()),
        "{probed:?}"
    );
}

proptest! {
    /// Whatever probes, restarts and passing time do, the published status is the one that S1 and S2 give for the
    /// history of judged probes, and nothing changes without a transition that names it.
    #[test]
    fn s1_s2_s7_published_status_follows_the_history(
        events in prop::collection::vec((0u8..6, prop::sample::select(ProbeResult::ALL.to_vec())), 0..40)
    ) {
        let mut bench = Bench::new(&yaml(&[EA]));
        let mut tally = Tally::new();
        let thresholds = bench.targets.values().next().unwrap().0.check.thresholds();
        let mut shown = DetailedStatus::Probing;
        for (event, result) in events {
            match event {
                0 => { bench = bench.restart(&yaml(&[EA])); }
                1 => bench.pass_time(4),
                _ => { tally.record(result, thresholds); bench.probe(A, result); }
            }
            let expected = tally.state().verdict.map_or(DetailedStatus::Probing, DetailedStatus::from);
            prop_assert_eq!(bench.endpoint(A).detailed, expected);
            let told = bench.transitions();
            if expected == shown { prop_assert_eq!(told, vec![]); } else { prop_assert_eq!(told, vec![(shown, expected)]); }
            shown = expected;
        }
    }
}
