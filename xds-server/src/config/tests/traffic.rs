//! What the fleet routes by: forms, defaults and warnings; `contradictions` has what is an error.

use super::*;
use crate::model::{
    Affinity, Failover, Guard, ProbedBy, Quorum, Service, UpstreamRoots, WhenAllUnhealthy,
};

mod contradictions;
mod silent;

/// One line for the checks and one for the groups, so that a case stands on line 3.
const SERVICES: &str = "healthChecks: [{ name: web, type: HTTP }, { name: tcp, type: TCP }, { name: exact, type: TCP, tcp: { response: a } }, \
{ name: prefix, type: TCP, tcp: { response: a, match: PREFIX } }, { name: request, type: TCP, tcp: { request: a } }, \
{ name: body, type: HTTP, http: { response: ok } }, { name: rpc, type: GRPC }, { name: rpc1, type: GRPC, unhealthyThreshold: 1 }, \
{ name: code, type: GRPC, unhealthyThreshold: 1, grpc: { method: /a.B/c, expectedCodes: '0' } }, { name: slow, type: TCP, checkInterval: 30s, timeout: 6s }, \
{ name: alb, profile: TENCENT_ALB, type: GRPC, grpc: { host: a.example } }, { name: alb-tcp, profile: TENCENT_ALB }, \
{ name: verified, type: SSL, tls: { verify: true } }, { name: named, type: SSL, tls: { verify: true, sni: a.example } }, \
{ name: hosted, type: HTTPS, http: { host: a.example }, tls: { verify: true } }]
endpointGroups: [{ name: dc1, type: NON_GCP_PRIVATE_IP_PORT, locality: { region: r1 }, endpoints: [{ address: 10.0.0.1, port: 1 }] }, \
{ name: dc2, type: GCE_VM_IP_PORT, locality: { region: r2 }, endpoints: [{ address: 10.0.0.2, port: 1 }] }, \
{ name: net, type: INTERNET_IP_PORT, endpoints: [{ address: 10.0.0.3, port: 1 }] }]
backendServices:
- ";

/// The service `s` of these words, and the warnings.
fn service(words: &str) -> (Arc<Service>, Vec<String>) {
    let loaded = good(&format!(
        "{SERVICES}{{ name: s, {words} }}\nfleets: [{{ name: f }}]"
    ));
    let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
    (Arc::clone(&loaded.model.services["s"]), warnings)
}

/// Who probes the groups of the service, in their order.
fn by(words: &str) -> Vec<ProbedBy> {
    let (service, _) = service(words);
    service.backends.iter().map(|backend| backend.by).collect()
}

#[test]
fn h7_who_probes_is_the_backends_word_then_the_services_then_the_kind_of_group() {
    const GROUPS: &str = "backends: [{ group: dc1 }, { group: dc2 }, { group: net }]";
    let (both, probers, envoys) = (ProbedBy::BOTH, ProbedBy::PROBERS, ProbedBy::ENVOYS);
    assert_eq!(
        by(&format!("healthCheck: web, {GROUPS}")),
        [both, probers, both]
    );
    assert_eq!(
        by(&format!(
            "healthCheck: web, probing: {{ by: [ENVOYS] }}, {GROUPS}"
        )),
        [envoys; 3]
    );
    assert_eq!(
        by(&format!(
            "healthCheck: web, probing: {{ by: [ENVOYS, PROBERS] }}, {GROUPS}"
        )),
        [both; 3]
    );
    assert_eq!(
        by(
            "healthCheck: web, probing: { by: [PROBERS] }, backends: [{ group: dc1, probing: { by: [ENVOYS] } }, { group: dc2 }, { group: net, probing: {} }]"
        ),
        [envoys, probers, probers]
    );
}

#[test]
fn h7_what_envoys_cannot_run_is_left_to_probers_with_a_warning() {
    let words = "protocol: GRPC, healthCheck: rpc, backends: [{ group: dc1 }, { group: dc2 }, { group: net }]";
    assert_eq!(by(words), [ProbedBy::PROBERS; 3]);
    assert_eq!(
        service(words).1,
        [
            "a.yaml:4:43 backendServices[0].healthCheck: Envoys cannot run the check rpc: unhealthyThreshold: Envoy ejects at \
             the first gRPC check that fails, whatever it says; so probers alone check the endpoints. There write \
             unhealthyThreshold: 1, or write probing: { by: [PROBERS] } here"
        ]
    );
    // One that they can run, one of which nobody asks it, one where that is what is meant.
    for quiet in [
        "protocol: GRPC, healthCheck: rpc1, backends: [{ group: dc1 }]",
        "protocol: GRPC, healthCheck: rpc, backends: [{ group: dc2 }]",
        "protocol: GRPC, healthCheck: rpc, probing: { by: [PROBERS] }, backends: [{ group: dc1 }]",
    ] {
        assert_eq!(service(quiet).1, [""; 0], "{quiet}");
    }
}

#[test]
fn p10_h7_a_check_that_verifies_for_no_name_is_a_warning_where_envoys_run_it() {
    let unnamed = "protocol: TCP, healthCheck: verified, backends: [{ group: dc1 }]";
    assert_eq!(
        service(unnamed).1,
        [
            "a.yaml:4:42 backendServices[0].healthCheck: Envoys run the check verified, which verifies certificates, but for no \
             name: without tls.sni or a host every one that the roots vouch for passes there (a prober wants the endpoint's \
             address in it); give one of them"
        ]
    );
    for quiet in [
        unnamed.replace("dc1", "dc2"),
        unnamed.replace("verified", "named"),
        unnamed.replace("TCP", "HTTP").replace("verified", "hosted"),
    ] {
        let (_, warnings) = service(&quiet);
        let about = |text: &String| text.contains("for no name");
        assert!(!warnings.iter().any(about), "{quiet}: {warnings:?}");
    }
}

#[test]
fn s6_only_weight_0_and_capacity_0_are_no_weight() {
    let weight = |capacity: &str| {
        let words = format!("backends: [{{ group: dc1, capacity: {capacity} }}]");
        let (service, _) = service(&words);
        let (backend, endpoint) = service.endpoints().next().unwrap();
        service.weight_of(backend, endpoint)
    };
    for (capacity, expected) in [
        ("1.0", Some(1)),
        ("0.5", Some(50)),
        ("0.004", Some(1)),
        ("0.0", None),
    ] {
        assert_eq!(weight(capacity), expected, "capacity {capacity}");
    }
}

#[test]
fn h7_a_timeout_that_delays_an_envoys_start_is_a_warning() {
    let slow = "protocol: TCP, healthCheck: slow, backends: [{ group: dc1 }]";
    assert_eq!(
        service(slow).1,
        [
            "a.yaml:4:42 backendServices[0].healthCheck: Envoys run the check slow, and each waits for the first answer of \
             every endpoint before it is live: one that hangs delays it by the timeout, 6s; shorten that to 5s or less, or \
             write probing: { by: [PROBERS] }"
        ]
    );
    assert_eq!(service(&slow.replace("dc1", "dc2")).1, [""; 0]);
}

#[test]
fn h6_what_rests_and_an_envoy_would_serve_in_panic_is_a_warning() {
    const GROUPS: &str =
        "healthCheck: web, backends: [{ group: dc1, capacity: 0 }, { group: dc2 }]";
    let open = format!("{GROUPS}, whenAllUnhealthy: FAIL_OPEN");
    assert_eq!(
        service(&open).1,
        [
            "a.yaml:4:42 backendServices[0].backends: an Envoy that finds no endpoint healthy by its own check gives all of \
             them traffic, those that drain or have weight 0 too, such as 10.0.0.1:1; write state: STOPPED where that must not \
             be, or whenAllUnhealthy: FAIL_CLOSED"
        ]
    );
    for silent in [
        GROUPS.to_owned(),
        open.replace("capacity: 0", "capacity: 1"),
        // A small share is one.
        open.replace("capacity: 0", "capacity: 0.004"),
        format!("{open}, probing: {{ by: [PROBERS] }}"),
    ] {
        assert_eq!(service(&silent).1, [""; 0], "{silent}");
    }
    let pools = GROUPS.replace("dc2", "dc2, failover: true");
    let (_, warnings) = service(&pools);
    let end = "or failover: { dropTrafficIfUnhealthy: true }";
    assert!(
        warnings.len() == 1 && warnings[0].ends_with(end),
        "{warnings:?}"
    );
    let drops = format!("{pools}, failover: {{ dropTrafficIfUnhealthy: true }}");
    assert_eq!(service(&drops).1, [""; 0]);
}

#[test]
fn h9_a_grpc_service_that_only_envoys_check_is_a_warning() {
    let words =
        "protocol: GRPC, healthCheck: rpc1, probing: { by: [ENVOYS] }, backends: [{ group: dc1 }]";
    assert_eq!(
        service(words).1,
        [
            "a.yaml:4:43 backendServices[0].healthCheck: gRPC clients that ask for this service without an Envoy get no \
             health of the group dc1, which ENVOYS alone check; add PROBERS to its probing.by"
        ]
    );
    let http = "healthCheck: web, probing: { by: [ENVOYS] }, backends: [{ group: dc1 }]";
    assert_eq!(service(http).1, [""; 0]);
}

#[test]
fn v2_v5_quorum_and_guard_are_read_and_default() {
    let (plain, warnings) = service("healthCheck: web, backends: [{ group: dc1 }]");
    assert_eq!(
        (plain.quorum, &plain.guard),
        (Quorum::Majority, &Guard::default())
    );
    assert_eq!(warnings, [""; 0]);
    for (word, quorum) in [
        ("MAJORITY", Quorum::Majority),
        ("ANY", Quorum::Any),
        ("ALL", Quorum::All),
        ("0.18", Quorum::Share(0.18)),
        ("0", Quorum::Share(0.0)),
    ] {
        let words =
            format!("healthCheck: web, probing: {{ quorum: {word}, vantages: {{ count: all }} }}");
        assert_eq!(service(&words).0.quorum, quorum);
    }
    let (full, _) = service(
        "healthCheck: web, probing: { guard: { enabled: false, maxShare: 0.25, minEndpoints: 4, maxHold: 2s, canaries: ['10.9.0.1:53', '[::1]:53'] } }",
    );
    assert_eq!(
        full.guard,
        Guard {
            enabled: false,
            max_share: 0.25,
            min_endpoints: 4,
            max_hold: Duration::from_secs(2),
            canaries: vec!["10.9.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()],
        }
    );
}

#[test]
fn v2_quorum_and_guard_without_a_prober_are_a_warning() {
    let idle = "no prober checks an endpoint of the service, so quorum and guard decide nothing; add PROBERS, or drop them";
    for words in [
        "healthCheck: web, probing: { by: [ENVOYS], quorum: ALL }, backends: [{ group: dc1 }]",
        "probing: { guard: { maxShare: 0.1 } }, backends: [{ group: dc1 }]",
    ] {
        let (_, warnings) = service(words);
        assert!(
            warnings.len() == 1 && warnings[0].ends_with(idle),
            "{warnings:?}"
        );
    }
}

#[test]
fn h2_failover_defaults_to_the_last_healthy_primary() {
    const POOLS: &str =
        "healthCheck: web, backends: [{ group: dc1 }, { group: dc2, failover: true }]";
    let read = |block: &str| service(&format!("{POOLS}{block}")).0.failover;
    let failover = |ratio, failback_ratio, drop_traffic_if_unhealthy| {
        Some(Failover {
            ratio,
            failback_ratio,
            drop_traffic_if_unhealthy,
        })
    };
    assert_eq!(read(""), failover(0.0, 0.0, false));
    assert_eq!(read(", failover: {}"), failover(0.0, 0.0, false));
    assert_eq!(
        read(", failover: { ratio: 0.5 }"),
        failover(0.5, 0.5, false)
    );
    assert_eq!(
        read(", failover: { ratio: 0.5, failbackRatio: 1, dropTrafficIfUnhealthy: true }"),
        failover(0.5, 1.0, true)
    );
    assert_eq!(
        read(", failover: { failbackRatio: 0.5 }"),
        failover(0.0, 0.5, false)
    );
    // An Envoy alone can do the ratio 0.
    assert_eq!(
        read(", probing: { by: [ENVOYS] }, failover: { ratio: 0.0 }"),
        failover(0.0, 0.0, false)
    );
    let (pools, _) = service(POOLS);
    let flags: Vec<_> = pools
        .backends
        .iter()
        .map(|backend| backend.failover)
        .collect();
    assert_eq!(flags, [false, true]);
    assert_eq!(
        service("healthCheck: web, backends: [{ group: dc1 }]")
            .0
            .failover,
        None
    );
}

#[test]
fn h2_failover_without_a_check_is_a_warning() {
    let (_, warnings) = service("backends: [{ group: dc1 }, { group: dc2, failover: true }]");
    assert_eq!(
        warnings,
        [
            "a.yaml:4:24 backendServices[0].backends: the service has no check, so no endpoint is ever unhealthy and only \
             DRAINING, STOPPED and weight 0 make traffic fail over; name a healthCheck"
        ]
    );
}

#[test]
fn h6_fail_open_is_tencents_default() {
    use WhenAllUnhealthy::{FailClosed, FailOpen};
    let read = |words: &str| {
        let words = format!("protocol: TCP, {words}");
        service(&words).0.when_all_unhealthy
    };
    assert_eq!(read("healthCheck: tcp"), FailClosed);
    assert_eq!(read("healthCheck: none"), FailClosed);
    assert_eq!(
        read("healthCheck: tcp, whenAllUnhealthy: FAIL_OPEN"),
        FailOpen
    );
    assert_eq!(read("healthCheck: alb-tcp"), FailOpen);
    assert_eq!(
        read("healthCheck: alb-tcp, whenAllUnhealthy: FAIL_CLOSED"),
        FailClosed
    );
    // With failover backends dropTrafficIfUnhealthy says it (H3).
    let pools = "backends: [{ group: dc1 }, { group: dc2, failover: true }]";
    assert_eq!(read(&format!("healthCheck: alb-tcp, {pools}")), FailClosed);
}

#[test]
fn h4_h5_codes_and_closed_connections_are_read() {
    let (plain, _) = service("healthCheck: web");
    assert_eq!(
        (
            plain.unhealthy_response_code,
            plain.close_connections_on_unhealthy
        ),
        (None, false)
    );
    let (set, warnings) = service(
        "healthCheck: web, unhealthyResponseCode: 502, closeConnectionsOnUnhealthy: true, backends: [{ group: dc1 }]",
    );
    assert_eq!(
        (
            set.unhealthy_response_code,
            set.close_connections_on_unhealthy
        ),
        (Some(502), true)
    );
    assert_eq!(
        warnings,
        [
            "a.yaml:4:89 backendServices[0].closeConnectionsOnUnhealthy: Envoy closes the connections of its TCP proxy only; \
             of an HTTP service requests under way are finished, and new ones go elsewhere. Write false"
        ]
    );
    let tcp = "protocol: TCP, healthCheck: tcp, closeConnectionsOnUnhealthy: true, backends: [{ group: dc1 }]";
    assert_eq!(service(tcp).1, [""; 0]);
}

#[test]
fn h8_affinity_makes_maglev_the_default() {
    let read = |words: &str| {
        let (service, warnings) = service(words);
        assert_eq!(warnings, [""; 0], "{words}");
        (service.affinity.clone(), service.policy)
    };
    let cookie = |ttl| Affinity::Cookie {
        name: "SID".into(),
        ttl: Duration::from_secs(ttl),
    };
    for (words, affinity, policy) in [
        ("", Affinity::None, LbPolicy::RoundRobin),
        (
            "sessionAffinity: NONE",
            Affinity::None,
            LbPolicy::RoundRobin,
        ),
        (
            "sessionAffinity: { type: NONE }, loadBalancing: { policy: RANDOM }",
            Affinity::None,
            LbPolicy::Random,
        ),
        (
            "sessionAffinity: CLIENT_IP",
            Affinity::ClientIp,
            LbPolicy::Maglev,
        ),
        (
            "sessionAffinity: { type: CLIENT_IP }, loadBalancing: {}",
            Affinity::ClientIp,
            LbPolicy::Maglev,
        ),
        (
            "protocol: TCP, sessionAffinity: { type: CLIENT_IP }, loadBalancing: { policy: RING_HASH }",
            Affinity::ClientIp,
            LbPolicy::RingHash,
        ),
        (
            "sessionAffinity: { type: HEADER, name: X-User }",
            Affinity::Header("x-user".into()),
            LbPolicy::Maglev,
        ),
        (
            "sessionAffinity: { type: HEADER, name: ':authority' }, loadBalancing: { policy: MAGLEV }",
            Affinity::Header(":authority".into()),
            LbPolicy::Maglev,
        ),
        (
            "sessionAffinity: { type: COOKIE, name: SID }",
            cookie(0),
            LbPolicy::Maglev,
        ),
        (
            "sessionAffinity: { type: COOKIE, name: SID, ttl: 1h }",
            cookie(3600),
            LbPolicy::Maglev,
        ),
    ] {
        assert_eq!(read(words), (affinity, policy), "{words}");
    }
    let (hashing, warnings) = service("loadBalancing: { policy: MAGLEV }");
    assert_eq!(hashing.policy, LbPolicy::Maglev);
    assert_eq!(
        warnings,
        [
            "a.yaml:4:39 backendServices[0].loadBalancing.policy: without sessionAffinity there is nothing to hash, and every \
             request goes to an endpoint at random; write sessionAffinity, or another policy"
        ]
    );
}

#[test]
fn tls_verifies_by_the_systems_roots_unless_told_otherwise() {
    for protocol in Protocol::ALL {
        let (plain, warnings) = service(&format!("protocol: {}", protocol.name()));
        assert_eq!(plain.protocol, protocol);
        let verified = plain.tls.as_ref().map(|tls| (&tls.sni, &tls.verify));
        let expected = (&None, &Some(UpstreamRoots::System));
        assert_eq!(verified, protocol.is_tls().then_some(expected));
        assert_eq!(warnings.len(), usize::from(protocol.is_tls()));
    }
    assert_eq!(
        service("protocol: HTTPS").1,
        [
            "a.yaml:4:24 backendServices[0].protocol: certificates are verified, but for no name: without sni every one that \
             the roots vouch for passes; write tls: { sni: … }, or verify: false"
        ]
    );
    let read = |tls: &str| {
        let (service, warnings) = service(&format!("protocol: HTTP2, tls: {tls}"));
        assert_eq!(warnings, [""; 0], "{tls}");
        service.tls.clone().unwrap()
    };
    let named = read("{ sni: a.example }");
    assert_eq!(
        (named.sni.as_deref(), named.verify),
        (Some("a.example"), Some(UpstreamRoots::System))
    );
    let blind = read("{ verify: false }");
    assert_eq!((blind.sni, blind.verify), (None, None));
}

#[test]
fn tls_roots_of_a_service_are_read_beside_it_and_are_part_of_the_configuration() {
    use std::fs;
    const CA: &str = include_str!("../testdata/ca.pem");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(
        at("vitals.yaml"),
        "backendServices: [{ name: s, protocol: SSL, tls: { sni: a.example, roots: ca.pem } }]",
    )
    .unwrap();
    let read = || load(&[at("vitals.yaml")]);
    let problem = |content: &[u8]| {
        fs::write(at("ca.pem"), content).unwrap();
        let found = lines(read());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains(":1:75 backendServices[0].tls.roots: "),
            "{found:?}"
        );
        found[0].clone()
    };
    for (content, what) in [
        (
            &b"nothing"[..],
            "holds no certificate; certificates in PEM are expected",
        ),
        (
            b"\xff",
            "is not a text; name a file with certificates in PEM",
        ),
        (
            format!("{CA}-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
                .as_bytes(),
            "holds a private key, which would go to every Envoy; name a file with certificates alone",
        ),
    ] {
        let line = problem(content);
        assert!(line.ends_with(what), "{line}");
    }
    fs::write(at("ca.pem"), CA).unwrap();
    let loaded = read().unwrap();
    let tls = loaded.model.services["s"].tls.clone().unwrap();
    assert_eq!(tls.verify, Some(UpstreamRoots::Pem(CA.into())));
    fs::write(at("ca.pem"), format!("# again\n{CA}")).unwrap();
    assert_ne!(read().unwrap().digest, loaded.digest);
}

#[test]
fn h10_regions_are_read_and_unknown_ones_are_warnings() {
    let read = |order: &str| {
        good(&format!(
            "{SERVICES}{{ name: s }}\nfleets:\n- {{ name: f, regionOrder: [{order}] }}"
        ))
    };
    let loaded = read("r2, r1");
    let order: Vec<_> = loaded.model.fleets[0]
        .region_order
        .iter()
        .map(|r| &**r)
        .collect();
    assert_eq!(order, ["r2", "r1"]);
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        read("r1, r3").warnings[0].to_string(),
        "a.yaml:6:32 fleets[0].regionOrder[1]: no endpoint group is in the region \"r3\"; did you mean r1?"
    );
    let many: Vec<String> = (0..100_000).map(|i| format!("x{i}")).collect();
    let found = errors(&format!(
        "{SERVICES}{{ name: s }}\nfleets:\n- {{ name: f, regionOrder: [{}] }}",
        many.join(", ")
    ));
    assert_eq!(
        found,
        [
            "a.yaml:6:27 fleets[0].regionOrder: 100000 regions are more than Envoy has priorities for; name at most 63"
        ]
    );
}

#[test]
fn many_canaries_are_refused_without_delay() {
    let many: Vec<String> = (0..200_000)
        .map(|i| format!("'10.9.{}.{}:{}'", i / 256 % 256, i % 256, i / 65536 + 1))
        .collect();
    let found = errors(&format!(
        "{SERVICES}{{ name: s, healthCheck: web, probing: {{ guard: {{ canaries: [{}] }} }} }}",
        many.join(", ")
    ));
    assert_eq!(found.len(), 1, "{:?}", found.first());
    assert!(
        found[0].contains("200000 canaries are too many"),
        "{}",
        found[0]
    );
}

#[test]
fn p18_a_check_goes_with_the_protocol_also_over_tls() {
    let found = |protocol: &str, check: &str| {
        lines(parse_sources(&[Source::new(
            "a.yaml",
            format!(
                "{SERVICES}{{ name: s, protocol: {protocol}, healthCheck: {check}, probing: {{ by: [PROBERS] }} }}"
            ),
        )]))
    };
    for (protocol, check) in [
        ("GRPC_WITH_TLS", "rpc"),
        ("GRPC_WITH_TLS", "tcp"),
        ("GRPC_WITH_TLS", "alb-tcp"),
        ("HTTPS", "alb-tcp"),
        ("HTTPS", "rpc"),
        ("HTTP2", "alb"),
        ("SSL", "web"),
    ] {
        assert_eq!(found(protocol, check), [""; 0], "{protocol} {check}");
    }
    for (protocol, check, types) in [
        (
            "GRPC_WITH_TLS",
            "web",
            "a GRPC_WITH_TLS service takes checks of the types TCP, GRPC, GRPC_WITH_TLS, and web is HTTP; name another check",
        ),
        (
            "GRPC_WITH_TLS",
            "alb",
            "a GRPC_WITH_TLS service takes checks of profile TENCENT_ALB of the types TCP, GRPC_WITH_TLS, and alb is GRPC; name another check",
        ),
        (
            "HTTPS",
            "alb",
            "an HTTPS service takes checks of profile TENCENT_ALB of the types TCP, HTTP, HTTPS, and alb is GRPC; name another check",
        ),
    ] {
        let found = found(protocol, check);
        assert!(found.len() == 1 && found[0].ends_with(types), "{found:?}");
    }
    // Elsewhere what differs is a warning.
    let (_, warnings) = service("protocol: SSL, tls: { verify: false }, healthCheck: web");
    assert_eq!(
        warnings,
        [
            "a.yaml:4:66 backendServices[0].healthCheck: the service speaks SSL and its check HTTP; make sure that this is meant"
        ]
    );
}
