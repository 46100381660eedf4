//! What contradicts itself or is out of range, one case at a time, with the lines that it must print.

use super::super::bad::{Case, check};
use super::SERVICES;

/// The rest of one service with a check.
fn of_shop(cases: &[Case]) {
    check(&format!("{SERVICES}{{ name: s, healthCheck: web, "), cases);
}

/// The rest of one fleet.
fn of_fleet(cases: &[Case]) {
    check(
        &format!("{SERVICES}{{ name: s }}\nfleets:\n- {{ name: f, "),
        cases,
    );
}

#[test]
fn who_probes_and_what_is_counted() {
    let cases = [
        Case(
            "probing: { by: [] } }",
            &[
                "a.yaml:4:47 backendServices[0].probing.by: nobody would probe; write [PROBERS], or leave by out",
            ],
        ),
        Case(
            "probing: { by: PROBERS } }",
            &[
                r#"a.yaml:4:47 backendServices[0].probing.by: "PROBERS" stands where a list: [ … ], or lines that begin with - belongs"#,
            ],
        ),
        Case(
            "probing: { by: [PROBERS, PROBERS] } }",
            &[
                "a.yaml:4:57 backendServices[0].probing.by[1]: PROBERS stands here already; drop one",
            ],
        ),
        Case(
            "probing: { by: [ENVOYS, PROBER] } }",
            &[
                r#"a.yaml:4:56 backendServices[0].probing.by[1]: "PROBER" is not one of PROBERS, ENVOYS, HDS; did you mean PROBERS?"#,
            ],
        ),
        Case(
            "probing: { quorum: 1.5 } }",
            &[
                "a.yaml:4:51 backendServices[0].probing.quorum: 1.5 is out of range; 0.0 to 1.0 is allowed",
            ],
        ),
        Case(
            "probing: { quorum: 1.0 } }",
            &[
                "a.yaml:4:51 backendServices[0].probing.quorum: more than all votes can never be healthy; write ALL, or a share below 1.0 such as 0.5",
            ],
        ),
        Case(
            "probing: { quorum: -0.1 } }",
            &[
                "a.yaml:4:51 backendServices[0].probing.quorum: -0.1 is out of range; 0.0 to 1.0 is allowed",
            ],
        ),
        Case(
            "probing: { quorum: most } }",
            &[
                r#"a.yaml:4:51 backendServices[0].probing.quorum: "most" is not one of MAJORITY, ANY, ALL"#,
            ],
        ),
        Case(
            "probing: { quorum: '0.18' } }",
            &[
                r#"a.yaml:4:51 backendServices[0].probing.quorum: "0.18" stands where a number, 0.0 to 1.0, without quotes belongs"#,
            ],
        ),
        Case(
            "probing: { vantages: { count: some } } }",
            &[
                r#"a.yaml:4:62 backendServices[0].probing.vantages.count: "some" stands where a whole number, 1 to 1000, without quotes belongs"#,
            ],
        ),
        Case(
            "probing: { guard: { enabled: maybe, maxShare: 0.0, minEndpoints: 0, maxHold: 500ms } } }",
            &[
                r#"a.yaml:4:61 backendServices[0].probing.guard.enabled: "maybe" stands where true or false, without quotes belongs"#,
                "a.yaml:4:78 backendServices[0].probing.guard.maxShare: at 0.0 the first endpoint that fails silences a vantage; give a larger share, or write enabled: false",
                "a.yaml:4:97 backendServices[0].probing.guard.minEndpoints: 0 is out of range; 1 to 1000000 is allowed",
                "a.yaml:4:109 backendServices[0].probing.guard.maxHold: 500ms is out of range; 1s to 24h is allowed",
            ],
        ),
        Case(
            "probing: { guard: { maxShare: 1.1, minEndpoints: 1000001, maxHold: 25h, maxholds: 1s } } }",
            &[
                "a.yaml:4:62 backendServices[0].probing.guard.maxShare: 1.1 is out of range; 0.0 to 1.0 is allowed",
                "a.yaml:4:81 backendServices[0].probing.guard.minEndpoints: 1000001 is out of range; 1 to 1000000 is allowed",
                "a.yaml:4:99 backendServices[0].probing.guard.maxHold: 25h is out of range; 1s to 24h is allowed",
                "a.yaml:4:104 backendServices[0].probing.guard.maxholds: there is no such key; did you mean maxHold? Known here: enabled, maxShare, minEndpoints, maxHold, canaries",
            ],
        ),
        Case(
            "probing: { guard: { canaries: ['10.9.0.1:53', '10.9.0.1:53', '[::ffff:10.9.0.1]:53'] } } }",
            &[
                "a.yaml:4:78 backendServices[0].probing.guard.canaries[1]: the guard has 10.9.0.1:53 already, at a.yaml:4:63; drop one",
                "a.yaml:4:93 backendServices[0].probing.guard.canaries[2]: the guard has [::ffff:10.9.0.1]:53 already, at a.yaml:4:78; drop one",
            ],
        ),
        Case(
            "probing: { guard: { canaries: ['0.0.0.0:53', '10.9.0.1:0', '[ff02::1]:53', '255.255.255.255:1', '[fe80::1%3]:53'] } } }",
            &[
                "a.yaml:4:63 backendServices[0].probing.guard.canaries[0]: 0.0.0.0:53 is not a port of one machine; write a unicast address and a port, 1–65535",
                "a.yaml:4:77 backendServices[0].probing.guard.canaries[1]: 10.9.0.1:0 is not a port of one machine; write a unicast address and a port, 1–65535",
                "a.yaml:4:91 backendServices[0].probing.guard.canaries[2]: [ff02::1]:53 is not a port of one machine; write a unicast address and a port, 1–65535",
                "a.yaml:4:107 backendServices[0].probing.guard.canaries[3]: 255.255.255.255:1 is not a port of one machine; write a unicast address and a port, 1–65535",
                "a.yaml:4:128 backendServices[0].probing.guard.canaries[4]: [fe80::1%3]:53 is not a port of one machine; write a unicast address and a port, 1–65535",
            ],
        ),
        Case(
            "probing: { guard: { canaries: [10.9.0.1, 'a.example', 'a b:53', 'a.example:0', 53] } } }",
            &[
                r#"a.yaml:4:63 backendServices[0].probing.guard.canaries[0]: "10.9.0.1" is not an address and a port; write one such as 192.0.2.1:443 or "[2001:db8::1]:443""#,
                r#"a.yaml:4:73 backendServices[0].probing.guard.canaries[1]: "a.example" is not an address and a port; write one such as 192.0.2.1:443 or "[2001:db8::1]:443""#,
                r#"a.yaml:4:86 backendServices[0].probing.guard.canaries[2]: "a b:53" is not an address and a port; write one such as 192.0.2.1:443 or "[2001:db8::1]:443""#,
                r#"a.yaml:4:96 backendServices[0].probing.guard.canaries[3]: "a.example:0" is not an address and a port; write one such as 192.0.2.1:443 or "[2001:db8::1]:443""#,
                r#"a.yaml:4:111 backendServices[0].probing.guard.canaries[4]: 53 is a number; put it in quotes: "53""#,
            ],
        ),
        Case(
            "probing: { guard: { canaries: ['10.9.0.1:1', '10.9.0.1:2', '10.9.0.1:3', '10.9.0.1:4', '10.9.0.1:5', '10.9.0.1:6', '10.9.0.1:7', '10.9.0.1:8', '10.9.0.1:9', '10.9.0.1:10', '10.9.0.1:11', '10.9.0.1:12', '10.9.0.1:13', '10.9.0.1:14', '10.9.0.1:15', '10.9.0.1:16', '10.9.0.1:17'] } } }",
            &[
                "a.yaml:4:62 backendServices[0].probing.guard.canaries: 17 canaries are too many; every vantage connects to each twice a second, so name at most 16",
            ],
        ),
        Case(
            "backends: [{ group: dc1, probing: { by: [PROBERS], quorum: ANY } }] }",
            &[
                "a.yaml:4:83 backendServices[0].backends[0].probing.quorum: there is no such key; known here: by",
            ],
        ),
        Case(
            "backends: [{ group: dc1, probing: { by: [] } }] }",
            &[
                "a.yaml:4:72 backendServices[0].backends[0].probing.by: nobody would probe; write [PROBERS], or leave by out",
            ],
        ),
    ];
    of_shop(&cases);
}

#[test]
fn h7_envoys_that_are_written_must_be_able_to_run_the_check() {
    let cases = [
        Case(
            "{ name: s, protocol: TCP, healthCheck: exact, probing: { by: [PROBERS, ENVOYS] } }",
            &[
                "a.yaml:4:74 backendServices[0].probing.by[1]: Envoys cannot run the check exact: tcp.match: Envoy looks for the string anywhere in the answer, and cannot tell EXACT; there write match: CONTAINS, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, protocol: TCP, healthCheck: prefix, backends: [{ group: dc1, probing: { by: [ENVOYS] } }] }",
            &[
                "a.yaml:4:91 backendServices[0].backends[0].probing.by[0]: Envoys cannot run the check prefix: tcp.match: Envoy looks for the string anywhere in the answer, and cannot tell PREFIX; there write match: CONTAINS, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, protocol: TCP, healthCheck: request, probing: { by: [ENVOYS] } }",
            &[
                "a.yaml:4:67 backendServices[0].probing.by[0]: Envoys cannot run the check request: tcp.request: Envoy closes without sending where it awaits no answer; there add a response with match: CONTAINS, or drop the request, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, healthCheck: body, probing: { by: [ENVOYS] } }",
            &[
                "a.yaml:4:49 backendServices[0].probing.by[0]: Envoys cannot run the check body: http.response: Envoy ejects at the first body without the string, whatever unhealthyThreshold says; there write unhealthyThreshold: 1, or drop the response, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, protocol: GRPC, healthCheck: rpc, probing: { by: [ENVOYS] } }",
            &[
                "a.yaml:4:64 backendServices[0].probing.by[0]: Envoys cannot run the check rpc: unhealthyThreshold: Envoy ejects at the first gRPC check that fails, whatever it says; there write unhealthyThreshold: 1, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, protocol: GRPC, healthCheck: code, probing: { by: [ENVOYS] } }",
            &[
                "a.yaml:4:65 backendServices[0].probing.by[0]: Envoys cannot run the check code: grpc.method: Envoy asks grpc.health.v1 and nothing else; there use grpc.serviceName of profile GCP, or a check of type TCP, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, protocol: HTTPS, healthCheck: rpc, tls: { verify: false }, probing: { by: [ENVOYS] } }",
            &[
                "a.yaml:4:89 backendServices[0].probing.by[0]: Envoys cannot run the check rpc: type: Envoy asks gRPC over the service's own protocol, and HTTPS is not HTTP/2; there use a check of another type, such as TCP, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, protocol: GRPC, healthCheck: alb, probing: { by: [ENVOYS] } }",
            &[
                "a.yaml:4:64 backendServices[0].probing.by[0]: Envoys cannot run the check alb: grpc.method: Envoy asks grpc.health.v1 and nothing else; there use grpc.serviceName of profile GCP, or a check of type TCP, or drop ENVOYS here",
            ],
        ),
        Case(
            "{ name: s, healthCheck: none, probing: { by: [PROBERS] } }",
            &[
                "a.yaml:4:44 backendServices[0].probing.by: the service has no check, so there is nothing to probe by; name a healthCheck, or drop by",
            ],
        ),
        Case(
            "{ name: s, backends: [{ group: dc1, probing: { by: [ENVOYS] } }] }",
            &[
                "a.yaml:4:50 backendServices[0].backends[0].probing.by: the service has no check, so there is nothing to probe by; name a healthCheck, or drop by",
            ],
        ),
    ];
    check(SERVICES, &cases);
}

#[test]
fn h2_h3_failover() {
    let cases = [
        Case(
            "backends: [{ group: dc1, failover: true }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:42 backendServices[0].backends: every backend is failover, and there is no primary to fail over from; take failover: true from one",
            ],
        ),
        Case(
            "failover: { ratio: 0.5 }, backends: [{ group: dc1 }] }",
            &[
                "a.yaml:4:32 backendServices[0].failover: no backend is failover, so there is nothing to fail over to; write failover: true at one of backends, or drop this",
            ],
        ),
        Case(
            "failover: {} }",
            &[
                "a.yaml:4:32 backendServices[0].failover: no backend is failover, so there is nothing to fail over to; write failover: true at one of backends, or drop this",
            ],
        ),
        Case(
            "backends: [{ group: dc1 }, { group: dc1, failover: true }] }",
            &[
                "a.yaml:4:68 backendServices[0].backends[1].group: the service uses the group dc1 already; name each group once, as primary or as failover",
            ],
        ),
        Case(
            "failover: { ratio: 1.5, failbackRatio: -1 }, backends: [{ group: dc1 }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:51 backendServices[0].failover.ratio: 1.5 is out of range; 0.0 to 1.0 is allowed",
                "a.yaml:4:71 backendServices[0].failover.failbackRatio: -1.0 is out of range; 0.0 to 1.0 is allowed",
            ],
        ),
        Case(
            "failover: { ratio: 0.5, failbackRatio: 0.4 }, backends: [{ group: dc1 }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:71 backendServices[0].failover.failbackRatio: 0.4 is below ratio (0.5), so traffic would go to and fro between them; write 0.5 or more, or leave failbackRatio out",
            ],
        ),
        Case(
            "failover: { ratio: half, dropTrafficIfUnhealthy: 1, drop: true }, backends: [{ group: dc1 }, { group: dc2, failover: yes }] }",
            &[
                r#"a.yaml:4:51 backendServices[0].failover.ratio: "half" stands where a number, 0.0 to 1.0, without quotes belongs"#,
                r#"a.yaml:4:81 backendServices[0].failover.dropTrafficIfUnhealthy: "1" stands where true or false, without quotes belongs"#,
                "a.yaml:4:84 backendServices[0].failover.drop: there is no such key; known here: ratio, failbackRatio, dropTrafficIfUnhealthy",
                r#"a.yaml:4:149 backendServices[0].backends[1].failover: "yes" stands where true or false, without quotes belongs"#,
            ],
        ),
        Case(
            "failover: { ratio: 0.5 }, backends: [{ group: dc1, probing: { by: [ENVOYS] } }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:51 backendServices[0].failover.ratio: a share over 0.0 is counted from probers' verdicts, and ENVOYS alone check the group dc1; add PROBERS to its probing.by, or write 0.0",
            ],
        ),
        Case(
            "failover: { failbackRatio: 0.5 }, probing: { by: [ENVOYS] }, backends: [{ group: dc1 }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:59 backendServices[0].failover.failbackRatio: a share over 0.0 is counted from probers' verdicts, and ENVOYS alone check the group dc1; add PROBERS to its probing.by, or write 0.0",
            ],
        ),
        Case(
            "whenAllUnhealthy: FAIL_OPEN, backends: [{ group: dc1 }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:32 backendServices[0].whenAllUnhealthy: with failover backends failover.dropTrafficIfUnhealthy decides this alone; write dropTrafficIfUnhealthy: false there, and drop this",
            ],
        ),
        Case(
            "whenAllUnhealthy: FAIL_CLOSED, backends: [{ group: dc1 }, { group: dc2, failover: true }] }",
            &[
                "a.yaml:4:32 backendServices[0].whenAllUnhealthy: with failover backends failover.dropTrafficIfUnhealthy decides this alone; write dropTrafficIfUnhealthy: true there, and drop this",
            ],
        ),
        Case(
            "whenAllUnhealthy: FAIL }",
            &[
                r#"a.yaml:4:50 backendServices[0].whenAllUnhealthy: "FAIL" is not one of FAIL_CLOSED, FAIL_OPEN"#,
            ],
        ),
    ];
    of_shop(&cases);
}

#[test]
fn h4_h5_what_the_client_sees() {
    let cases = [
        Case(
            "{ name: s, healthCheck: web, closeConnectionsOnUnhealthy: true, probing: { by: [PROBERS] }, backends: [{ group: dc1 }] }",
            &[
                "a.yaml:4:61 backendServices[0].closeConnectionsOnUnhealthy: an Envoy closes connections for its own checks only, and ENVOYS check no endpoint of the service; write probing: { by: [PROBERS, ENVOYS] }, or false",
            ],
        ),
        Case(
            "{ name: s, healthCheck: web, closeConnectionsOnUnhealthy: true, backends: [{ group: dc2 }] }",
            &[
                "a.yaml:4:61 backendServices[0].closeConnectionsOnUnhealthy: an Envoy closes connections for its own checks only, and ENVOYS check no endpoint of the service; write probing: { by: [PROBERS, ENVOYS] }, or false",
            ],
        ),
        Case(
            "{ name: s, closeConnectionsOnUnhealthy: true, backends: [{ group: dc1 }] }",
            &[
                "a.yaml:4:43 backendServices[0].closeConnectionsOnUnhealthy: the service has no check, so nothing is ever found unhealthy; name a healthCheck, or write false",
            ],
        ),
        Case(
            "{ name: s, protocol: TCP, unhealthyResponseCode: 502 }",
            &[
                "a.yaml:4:29 backendServices[0].unhealthyResponseCode: the service speaks TCP, where nothing is answered with a status; drop unhealthyResponseCode",
            ],
        ),
        Case(
            "{ name: s, protocol: SSL, tls: { verify: false }, unhealthyResponseCode: 502 }",
            &[
                "a.yaml:4:53 backendServices[0].unhealthyResponseCode: the service speaks SSL, where nothing is answered with a status; drop unhealthyResponseCode",
            ],
        ),
        Case(
            "{ name: s, unhealthyResponseCode: 199 }",
            &[
                "a.yaml:4:37 backendServices[0].unhealthyResponseCode: 199 is out of range; 200 to 599 is allowed",
            ],
        ),
        Case(
            "{ name: s, unhealthyResponseCode: '502' }",
            &[
                r#"a.yaml:4:37 backendServices[0].unhealthyResponseCode: "502" stands where a whole number, 200 to 599, without quotes belongs"#,
            ],
        ),
    ];
    check(SERVICES, &cases);
}

#[test]
fn h8_affinity_and_policy() {
    let cases = [
        Case(
            "{ name: s, sessionAffinity: { type: CLIENT_IP }, loadBalancing: { policy: ROUND_ROBIN } }",
            &[
                "a.yaml:4:77 backendServices[0].loadBalancing.policy: ROUND_ROBIN does not keep clients with an endpoint, as sessionAffinity CLIENT_IP asks; write MAGLEV or RING_HASH, or leave policy out for MAGLEV",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: { type: HEADER, name: x-user }, loadBalancing: { policy: LEAST_REQUEST } }",
            &[
                "a.yaml:4:88 backendServices[0].loadBalancing.policy: LEAST_REQUEST does not keep clients with an endpoint, as sessionAffinity HEADER asks; write MAGLEV or RING_HASH, or leave policy out for MAGLEV",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: CLIENT_IP, loadBalancing: { policy: RANDOM } }",
            &[
                "a.yaml:4:67 backendServices[0].loadBalancing.policy: RANDOM does not keep clients with an endpoint, as sessionAffinity CLIENT_IP asks; write MAGLEV or RING_HASH, or leave policy out for MAGLEV",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: {} }",
            &[
                "a.yaml:4:31 backendServices[0].sessionAffinity.type: missing; write NONE, CLIENT_IP, HEADER or COOKIE",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: STICKY }",
            &[
                r#"a.yaml:4:31 backendServices[0].sessionAffinity: "STICKY" is not one of NONE, CLIENT_IP, HEADER, COOKIE"#,
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: HEADER }",
            &[
                "a.yaml:4:31 backendServices[0].sessionAffinity: HEADER needs a name; write { type: HEADER, name: … }",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: [CLIENT_IP] }",
            &[
                "a.yaml:4:31 backendServices[0].sessionAffinity: a list stands where a map: key: value belongs",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: { type: HEADER } }",
            &[
                "a.yaml:4:31 backendServices[0].sessionAffinity.name: missing; name the header or cookie",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: { type: COOKIE, ttl: 5s } }",
            &[
                "a.yaml:4:31 backendServices[0].sessionAffinity.name: missing; name the header or cookie",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: { type: HEADER, name: 'x user', ttl: 5s } }",
            &[
                r#"a.yaml:4:53 backendServices[0].sessionAffinity.name: "x user" is not a name of a header or cookie; write 1–128 letters, digits and -"#,
                "a.yaml:4:63 backendServices[0].sessionAffinity.ttl: a ttl belongs to COOKIE, and this is HEADER; drop it",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: { type: COOKIE, name: '', ttl: 9000h } }",
            &[
                r#"a.yaml:4:53 backendServices[0].sessionAffinity.name: "" is not a name of a header or cookie; write 1–128 letters, digits and -"#,
                "a.yaml:4:62 backendServices[0].sessionAffinity.ttl: 9000h is out of range; 0s (as long as the browser is open) to 8760h is allowed",
            ],
        ),
        Case(
            "{ name: s, sessionAffinity: { type: CLIENT_IP, name: x, ttl: 0s } }",
            &[
                "a.yaml:4:50 backendServices[0].sessionAffinity.name: a name belongs to HEADER and COOKIE, and this is CLIENT_IP; drop it",
                "a.yaml:4:59 backendServices[0].sessionAffinity.ttl: a ttl belongs to COOKIE, and this is CLIENT_IP; drop it",
            ],
        ),
        Case(
            "{ name: s, protocol: TCP, sessionAffinity: { type: HEADER, name: x-user } }",
            &[
                "a.yaml:4:54 backendServices[0].sessionAffinity.type: the service speaks TCP, where there are no headers and cookies; write CLIENT_IP",
            ],
        ),
        Case(
            "{ name: s, protocol: SSL, tls: { verify: false }, sessionAffinity: { type: COOKIE, name: sid } }",
            &[
                "a.yaml:4:78 backendServices[0].sessionAffinity.type: the service speaks SSL, where there are no headers and cookies; write CLIENT_IP",
            ],
        ),
        Case(
            "{ name: s, loadBalancing: { policy: HASH } }",
            &[
                r#"a.yaml:4:39 backendServices[0].loadBalancing.policy: "HASH" is not one of ROUND_ROBIN, LEAST_REQUEST, RANDOM, RING_HASH, MAGLEV"#,
            ],
        ),
    ];
    check(SERVICES, &cases);
}

#[test]
fn tls_to_the_endpoints() {
    let cases = [
        Case(
            "{ name: s, tls: { sni: a.example } }",
            &[
                "a.yaml:4:14 backendServices[0].tls: tls belongs to the protocols HTTPS, HTTP2, GRPC_WITH_TLS and SSL, and this service speaks HTTP; change the protocol or drop tls",
            ],
        ),
        Case(
            "{ name: s, protocol: H2C, tls: {} }",
            &[
                "a.yaml:4:29 backendServices[0].tls: tls belongs to the protocols HTTPS, HTTP2, GRPC_WITH_TLS and SSL, and this service speaks H2C; change the protocol or drop tls",
            ],
        ),
        Case(
            "{ name: s, protocol: HTTPS, tls: { sni: '10.0.0.1' } }",
            &[
                r#"a.yaml:4:43 backendServices[0].tls.sni: "10.0.0.1" is not a DNS name; a server name is one, without a port, and never an address (RFC 6066)"#,
            ],
        ),
        Case(
            "{ name: s, protocol: SSL, tls: { sni: 'a.example:443', verify: no, root: x } }",
            &[
                r#"a.yaml:4:41 backendServices[0].tls.sni: "a.example:443" is not a DNS name; a server name is one, without a port, and never an address (RFC 6066)"#,
                r#"a.yaml:4:66 backendServices[0].tls.verify: "no" stands where true or false, without quotes belongs"#,
                "a.yaml:4:70 backendServices[0].tls.root: there is no such key; did you mean roots? Known here: sni, verify, roots",
            ],
        ),
        Case(
            "{ name: s, protocol: HTTP2, tls: { sni: a.example, roots: /nonexistent/ca.pem } }",
            &[
                r#"a.yaml:4:61 backendServices[0].tls.roots: "/nonexistent/ca.pem" cannot be read: No such file or directory (os error 2); name a readable file"#,
            ],
        ),
        Case(
            "{ name: s, protocol: GRPC_WITH_TLS, tls: { verify: false, roots: /nonexistent/ca.pem } }",
            &[
                "a.yaml:4:61 backendServices[0].tls.roots: roots are looked at only to verify; drop verify: false, or leave roots out",
                r#"a.yaml:4:68 backendServices[0].tls.roots: "/nonexistent/ca.pem" cannot be read: No such file or directory (os error 2); name a readable file"#,
            ],
        ),
    ];
    check(SERVICES, &cases);
}

#[test]
fn h10_regions() {
    let cases = [
        Case(
            "regionOrder: [r1, r1] }",
            &["a.yaml:6:32 fleets[0].regionOrder[1]: r1 stands here already; drop one"],
        ),
        Case(
            "regionOrder: [''] }",
            &[
                "a.yaml:6:28 fleets[0].regionOrder[0]: an empty name is no region; write one of a group's locality, or drop it",
            ],
        ),
        Case(
            "regionOrder: r1 }",
            &[
                r#"a.yaml:6:27 fleets[0].regionOrder: "r1" stands where a list: [ … ], or lines that begin with - belongs"#,
            ],
        ),
        Case(
            "regionOrder: [1] }",
            &[r#"a.yaml:6:28 fleets[0].regionOrder[0]: 1 is a number; put it in quotes: "1""#],
        ),
    ];
    of_fleet(&cases);
}
