//! Why is my endpoint out of rotation? `vitals status` names the rule in every state that a server with one vantage can be
//! brought into; `docs/health.md` explains each. The guard's text is in `guard`; ties, and a first status by the last of
//! each vantage, take several vantages.

use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::{Config, endpoint};
use vitals_tests::lab::Scene;
use vitals_tests::wait::SOON;

/// Adds a service with one group per pool: primaries, and failover backends if there are any.
fn add(config: &mut Config, name: &str, pools: &[Vec<Value>], fields: &Value) {
    let mut backends = Vec::new();
    for (at, endpoints) in pools.iter().enumerate() {
        let group = format!("{name}-{at}");
        config.push(
            "endpointGroups",
            json!({ "name": group, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": endpoints }),
        );
        backends.push(json!({ "group": group, "failover": at == 1 }));
    }
    let mut service = json!({
        "name": name, "protocol": "HTTP", "healthCheck": "web", "backends": backends,
        "probing": { "by": ["PROBERS"] },
    });
    let service_fields = service.as_object_mut().unwrap();
    for (key, value) in fields.as_object().unwrap() {
        match value {
            Value::Null => drop(service_fields.remove(key)),
            value => drop(service_fields.insert(key.clone(), value.clone())),
        }
    }
    config.push("backendServices", service);
}

fn at(backend: &Backend) -> Value {
    endpoint(backend.address())
}

/// The same endpoint with a word of the operator.
fn with(backend: &Backend, key: &str, value: Value) -> Value {
    let mut endpoint = at(backend);
    endpoint[key] = value;
    endpoint
}

/// What the check `slow` allows a silent backend: long enough to look at what holds until it is judged.
fn add_slow_check(config: &mut Config) {
    config.push(
        "healthChecks",
        json!({
            "name": "slow", "type": "HTTP", "checkInterval": "120s", "timeout": "120s",
            "http": { "requestPath": vitals_tests::backend::PROBE_PATH },
        }),
    );
}

#[test]
fn each_reason_to_be_out_of_rotation_is_named() {
    let scene = Scene::new();
    let backends = scene.backends(6);
    let [well, other, wrong, gone, silent, later] = &backends[..] else {
        unreachable!()
    };
    wrong.become_(Mode::ProbeStatus(503));
    gone.become_(Mode::Closed);
    silent.become_(Mode::Silent);
    let mut config = scene.shop(&backends[..1]);
    add_slow_check(&mut config);
    let plain = json!({});
    let slow = json!({ "healthCheck": "slow" });
    let quorum = |quorum: Value| json!({ "probing": { "by": ["PROBERS"], "quorum": quorum } });
    let ratio = |ratio: f64| json!({ "failover": { "ratio": ratio } });
    for (name, pools, fields) in [
        ("majority", vec![vec![at(wrong), at(gone)]], &plain),
        ("any", vec![vec![at(wrong)]], &quorum(json!("ANY"))),
        ("all", vec![vec![at(wrong)]], &quorum(json!("ALL"))),
        ("share", vec![vec![at(wrong)]], &quorum(json!(0.18))),
        (
            "words",
            vec![vec![
                with(well, "state", json!("DRAINING")),
                with(other, "state", json!("STOPPED")),
                with(later, "weight", json!(0)),
            ]],
            &plain,
        ),
        (
            "nocheck",
            vec![vec![at(well)]],
            &json!({ "healthCheck": null, "probing": null }),
        ),
        (
            "envoys",
            vec![vec![at(well)]],
            &json!({ "probing": { "by": ["ENVOYS"] } }),
        ),
        ("doubt", vec![vec![at(silent)]], &slow),
        ("await", vec![vec![at(silent), at(well)]], &slow),
        ("home", vec![vec![at(well)], vec![at(other)]], &plain),
        (
            "share-up",
            vec![vec![at(well), at(wrong)], vec![at(other)]],
            &ratio(0.5),
        ),
        ("unjudged", vec![vec![at(silent)], vec![at(well)]], &slow),
        ("over", vec![vec![at(wrong)], vec![at(well)]], &plain),
        (
            "share-down",
            vec![vec![at(well), at(wrong)], vec![at(other)]],
            &ratio(0.6),
        ),
        (
            "nowhere",
            vec![vec![at(well), at(wrong)], vec![at(gone)]],
            &ratio(0.6),
        ),
        ("resort", vec![vec![at(wrong)], vec![at(gone)]], &plain),
        (
            "dropped",
            vec![vec![at(wrong)], vec![at(gone)]],
            &json!({ "failover": { "dropTrafficIfUnhealthy": true } }),
        ),
        ("closed", vec![vec![at(wrong)]], &plain),
        (
            "open",
            vec![vec![at(wrong)]],
            &json!({ "whenAllUnhealthy": "FAIL_OPEN" }),
        ),
    ] {
        add(&mut config, name, &pools, fields);
    }
    let vitals = scene.vitals(&config);
    let line = |service: &str, words: &[&str]| {
        vitals.wait_for_line(service, words);
    };
    // Of endpoints: the status, what EDS says, whether traffic comes, and the rule.
    for (service, backend, words) in [
        (
            "majority",
            wrong,
            &[
                "UNHEALTHY  UNHEALTHY  no ",
                "V2 majority 1 of 1",
                "HTTP 503",
            ][..],
        ),
        (
            "majority",
            gone,
            &[
                "TIMEOUT    TIMEOUT    no ",
                "V2 majority 1 of 1",
                "CONNECT_REFUSED",
            ],
        ),
        (
            "any",
            wrong,
            &[
                "UNHEALTHY",
                " no ",
                "V2 any: of 1 the latest turn is that of embedded",
            ],
        ),
        (
            "all",
            wrong,
            &["UNHEALTHY", " no ", "V2 all: 0 of 1 say healthy"],
        ),
        (
            "share",
            wrong,
            &[
                "UNHEALTHY",
                " no ",
                "V2 share: 0 of 1 say healthy, more than 0.18 must",
            ],
        ),
        ("words", well, &["DRAINING", " no ", "H1 state: DRAINING"]),
        (
            "words",
            other,
            &["STOPPED", " - ", " no ", "S6 state: STOPPED"],
        ),
        ("words", later, &["DRAINING", " no ", "S6 weight 0"]),
        (
            "nocheck",
            well,
            &["DISABLED", " yes ", "H1 the service has no check"],
        ),
        (
            "envoys",
            well,
            &[
                "UNKNOWN",
                " by Envoys ",
                "H1 only Envoys check it, each for itself",
            ],
        ),
        (
            "doubt",
            silent,
            &[
                "PROBING",
                " yes ",
                "S2 not judged yet and none known to be healthy: served until judged",
            ],
        ),
        (
            "await",
            silent,
            &["PROBING", " no ", "S2 not judged yet, others are healthy"],
        ),
        (
            "home",
            other,
            &["HEALTHY", " standby ", "V2 majority 1 of 1"],
        ),
        // An Envoy with no healthy primary uses the others by itself.
        (
            "unjudged",
            well,
            &["HEALTHY", " yes ", "V2 majority 1 of 1"],
        ),
        ("over", well, &["HEALTHY", " yes ", "V2 majority 1 of 1"]),
        ("open", wrong, &["UNHEALTHY", " yes ", "V2 majority 1 of 1"]),
    ] {
        let mut all = vec![backend.name()];
        all.extend(words);
        line(service, &all);
    }
    // Of services: where the traffic goes, and why.
    for (service, words) in [
        ("words", &["NONE", "no endpoint takes new requests"][..]),
        (
            "home",
            &["PRIMARY", "H2 1 of 1 primaries healthy, one is enough"],
        ),
        (
            "share-up",
            &["PRIMARY", "H2 1 of 2 primaries healthy, not below 0.5"],
        ),
        (
            "unjudged",
            &["PRIMARY", "H2 0 of 1 primaries healthy, 1 not judged yet"],
        ),
        (
            "over",
            &[
                "FAILOVER",
                "H2 0 of 1 primaries healthy, failed over until one is",
            ],
        ),
        (
            "share-down",
            &[
                "FAILOVER",
                "H2 1 of 2 primaries healthy, failed over until their share is 0.6",
            ],
        ),
        (
            "nowhere",
            &[
                "PRIMARY",
                "H2 1 of 2 primaries healthy, below 0.6, but no failover endpoint is healthy",
            ],
        ),
        (
            "resort",
            &[
                "ALL",
                "H3 no endpoint of either pool is healthy: all share the traffic as a last resort",
            ],
        ),
        (
            "dropped",
            &[
                "NONE",
                "H3 no endpoint of either pool is healthy: refused, dropTrafficIfUnhealthy",
            ],
        ),
        (
            "closed",
            &["NONE", "H5 no endpoint is healthy: refused, FAIL_CLOSED"],
        ),
        (
            "open",
            &[
                "ALL",
                "H6 no endpoint is healthy: all share the traffic, FAIL_OPEN",
            ],
        ),
        ("majority", &["NONE", "0/2 healthy", "H5"]),
        (
            "await",
            &["PRIMARY", "1/2 healthy (1 probing)", "1 of 2 healthy"],
        ),
    ] {
        line(service, words);
    }
}

#[test]
fn what_a_change_or_a_restart_leaves_open_is_named() {
    let scene = Scene::new();
    let backends = scene.backends(4);
    let [stays, leaves, edited, pinned] = &backends[..] else {
        unreachable!()
    };
    let mut config = scene.shop(&backends[..2]);
    config.service()["connectionDraining"] = json!("300s");
    add_slow_check(&mut config);
    add(&mut config, "edited", &[vec![at(edited)]], &json!({}));
    // Its votes are fresh for 15 s, and a silent backend's first probe takes 5 s.
    config.push(
        "healthChecks",
        json!({
            "name": "pulse", "type": "HTTP", "checkInterval": "5s", "timeout": "5s",
            "http": { "requestPath": vitals_tests::backend::PROBE_PATH },
        }),
    );
    let pulse = json!({ "healthCheck": "pulse" });
    add(&mut config, "pinned", &[vec![at(pinned)]], &pulse);
    let mut vitals = scene.vitals(&config);
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    edited.become_(Mode::Silent);
    config.remove_endpoint(1);
    config.0["backendServices"][1]["healthCheck"] = json!("slow");
    config.save(&scene.config_path());
    let removed = "removed from the configuration, draining";
    vitals.wait_for_line("shop", &[leaves.name(), "DRAINING", " no ", removed]);
    vitals.wait_for_line("shop", &[stays.name(), "HEALTHY", " yes "]);
    let before = "V8 not judged yet since the check or the endpoint came: the status before stays";
    vitals.wait_for_line("edited", &[edited.name(), "HEALTHY", " yes ", before]);
    // The votes of a server that was suspended are old when it wakes, and a silent backend gives no new one at once.
    pinned.become_(Mode::Silent);
    vitals.process().suspend(Duration::from_secs(16));
    let too_few = "0 of 1 votes are fresh, too few; the status stays";
    vitals.wait_for_line(
        "pinned",
        &[
            pinned.name(),
            "HEALTHY",
            " yes ",
            "V3 pinned since",
            too_few,
        ],
    );
    let log = "too few fresh votes (V3): statuses are pinned to what they were";
    vitals.wait_for_log(&[log, "service=pinned"]);
    vitals.wait_for_line(
        "pinned",
        &[pinned.name(), "TIMEOUT", " no ", "RESPONSE_TIMEOUT"],
    );
    // And what has not been judged by a new check is still not after a restart.
    vitals.terminate(SOON);
    vitals.start_again();
    vitals.wait_for_line("edited", &[edited.name(), "HEALTHY", before]);
}
