//! Bad input, one at a time: the YAML and the lines it must print, no more and no fewer.

use super::*;

pub(super) struct Case(pub(super) &'static str, pub(super) &'static [&'static str]);

pub(super) fn check(before: &str, cases: &[Case]) {
    let mut wrong = String::new();
    for Case(text, expected) in cases {
        let found = errors(&format!("{before}{text}"));
        if found != *expected {
            writeln!(
                wrong,
                "{text}\n  expected {expected:#?}\n  found {found:#?}"
            )
            .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn text_that_is_no_configuration() {
    check(
        "",
        &[
            Case(
                "",
                &[
                    "a.yaml:1:1 the configuration is empty; an empty one would take all services from every Envoy, so define at least one service or fleet",
                ],
            ),
            Case(
                "# nothing\n",
                &[
                    "a.yaml:1:1 the configuration is empty; an empty one would take all services from every Envoy, so define at least one service or fleet",
                ],
            ),
            Case(
                "healthChecks: []\n",
                &[
                    "a.yaml:1:1 the configuration defines no service and no fleet; an empty one would take all services from every Envoy, so define at least one service or fleet",
                ],
            ),
            Case(
                "[]",
                &["a.yaml:1:1 a list stands where a map: key: value belongs"],
            ),
            Case(
                "hello",
                &[r#"a.yaml:1:1 "hello" stands where a map: key: value belongs"#],
            ),
            Case(
                "backendServices:\n",
                &[
                    "a.yaml:1:1 backendServices: the key has no value; give it one, or leave the key out",
                ],
            ),
            Case(
                "backendServices: [{ name: a }\n",
                &[
                    "a.yaml:2:1 backendServices[1]: this is not YAML: while parsing a flow sequence, expected ',' or ']'",
                ],
            ),
            Case(
                "backendServices: [{ name: a }]\n---\nfleets: []",
                &["a.yaml:2:1 a second document begins here; use one file for each"],
            ),
            Case(
                "backendServices: !seq [{ name: !x a }]",
                &[
                    "a.yaml:1:23 backendServices: tags (!…) have no meaning here; remove it",
                    "a.yaml:1:35 backendServices[0].name: tags (!…) have no meaning here; remove it",
                ],
            ),
            Case(
                "backendServices: [{ name: a, name: b }]",
                &[
                    r#"a.yaml:1:30 backendServices[0]: the key "name" stands here again, first at a.yaml:1:21; keep one"#,
                ],
            ),
            Case(
                "backendServices: [{ name: a }]\nbackendServices: [{ name: b }]",
                &[
                    r#"a.yaml:2:1 the key "backendServices" stands here again, first at a.yaml:1:1; keep one"#,
                ],
            ),
            Case(
                "backendServices: [{ name: *a }]",
                &[
                    "a.yaml:1:27 backendServices[0].name: this is not YAML: while parsing node, found unknown anchor",
                ],
            ),
            Case(
                "backendServices: &a [*a]",
                &[
                    "a.yaml:1:22 backendServices[0]: *a refers to a value that contains it; break the ring",
                ],
            ),
            Case(
                "backendServices: [{ name: a, [b]: c }]",
                &[
                    "a.yaml:1:30 backendServices[0]: a list or map cannot be a key; a key is one word",
                ],
            ),
            Case(
                "backendServices: [{ name: a }]\n\0fleets: [{}]",
                &[
                    r#"a.yaml:2:1 a control character; remove it, or escape it in a "double-quoted" value"#,
                ],
            ),
            Case(
                "backendServices: { name: a }",
                &[
                    "a.yaml:1:18 backendServices: a map stands where a list: [ … ], or lines that begin with - belongs",
                ],
            ),
            Case(
                "backendServices: [a]",
                &[r#"a.yaml:1:19 backendServices[0]: "a" stands where a map: key: value belongs"#],
            ),
        ],
    );
}

#[test]
fn what_stands_after_the_end_of_a_document_is_not_lost() {
    let found = errors("backendServices: [{ name: a }]\n...\nfleets: []");
    assert_eq!(
        found,
        ["a.yaml:3:1 a second document begins here; use one file for each"]
    );
}

#[test]
fn text_that_is_not_utf_8_is_refused_at_its_line() {
    let found = lines(parse_sources(&[Source::new(
        "a.yaml",
        &b"a: b\nc: gr\xfcn"[..],
    )]));
    assert_eq!(
        found,
        ["a.yaml:2:6 the text is not UTF-8 from here on; save the file as UTF-8"]
    );
}

#[test]
fn unknown_keys_come_with_the_nearest_and_all_known() {
    check(
        "",
        &[
            Case(
                "backendservices: [{ name: a }]",
                &[
                    "a.yaml:1:1 backendservices: there is no such key; did you mean backendServices? Known here: healthChecks, endpointGroups, backendServices, fleets, probers",
                ],
            ),
            Case(
                "backendServices: [{ name: a, probing: { quorom: ANY } }]",
                &[
                    "a.yaml:1:41 backendServices[0].probing.quorom: there is no such key; did you mean quorum? Known here: by, quorum, vantages, guard, hds",
                ],
            ),
            Case(
                "fleets: [{ name: a, match: { zone: b } }]",
                &[
                    "a.yaml:1:30 fleets[0].match.zone: there is no such key; known here: id, cluster, metadata",
                ],
            ),
            Case(
                "backendServices: [{ name: a, <<: {} }]",
                &[
                    "a.yaml:1:30 backendServices[0].<<: there is no such key; merging is no YAML 1.2, write the fields out. Known here: name, protocol, healthCheck, backends, failover, whenAllUnhealthy, unhealthyResponseCode, connectionDraining, closeConnectionsOnUnhealthy, probing, loadBalancing, sessionAffinity, tls, outlierDetection, circuitBreakers, envoyCluster",
                ],
            ),
        ],
    );
}

#[test]
fn wrong_forms() {
    check(
        "",
        &[
            Case(
                "backendServices: [{ name: 1 }]",
                &[r#"a.yaml:1:27 backendServices[0].name: 1 is a number; put it in quotes: "1""#],
            ),
            Case(
                "backendServices: [{ name: true }]",
                &[
                    r#"a.yaml:1:27 backendServices[0].name: true is a truth value; put it in quotes: "true""#,
                ],
            ),
            Case(
                "backendServices: [{ name: Shop }]",
                &[
                    r#"a.yaml:1:27 backendServices[0].name: "Shop" is not a name; write 1–63 of a-z, 0-9 and -"#,
                ],
            ),
            Case(
                "backendServices: [{}]",
                &["a.yaml:1:19 backendServices[0].name: missing; give the service a name"],
            ),
            Case(
                "backendServices: [{ name: }]",
                &[
                    "a.yaml:1:21 backendServices[0].name: the key has no value; give it one, or leave the key out",
                ],
            ),
            Case(
                "backendServices: [{ name: a, protocol: http }]",
                &[
                    r#"a.yaml:1:40 backendServices[0].protocol: "http" is not one of HTTP, HTTPS, HTTP2, H2C, GRPC, GRPC_WITH_TLS, TCP, SSL; did you mean HTTP?"#,
                ],
            ),
            Case(
                "backendServices: [{ name: a, protocol: [HTTP] }]",
                &[
                    "a.yaml:1:40 backendServices[0].protocol: a list stands where one of HTTP, HTTPS, HTTP2, H2C, GRPC, GRPC_WITH_TLS, TCP, SSL belongs",
                ],
            ),
            Case(
                "backendServices: [{ name: a, connectionDraining: 5 }]",
                &[
                    r#"a.yaml:1:50 backendServices[0].connectionDraining: "5" is not a duration; write a whole number and its unit: 5s, 250ms, 5m or 1h"#,
                ],
            ),
            Case(
                "backendServices: [{ name: a, connectionDraining: 2h }]",
                &[
                    "a.yaml:1:50 backendServices[0].connectionDraining: 2h is out of range; 0s to 1h is allowed",
                ],
            ),
            Case(
                "backendServices: [{ name: a, closeConnectionsOnUnhealthy: no }]",
                &[
                    r#"a.yaml:1:59 backendServices[0].closeConnectionsOnUnhealthy: "no" stands where true or false, without quotes belongs"#,
                ],
            ),
            Case(
                "backendServices: [{ name: a, probing: { by: [] } }]",
                &[
                    "a.yaml:1:45 backendServices[0].probing.by: nobody would probe; write [PROBERS], or leave by out",
                ],
            ),
            Case(
                "backendServices: [{ name: a, probing: { by: PROBERS } }]",
                &[
                    r#"a.yaml:1:45 backendServices[0].probing.by: "PROBERS" stands where a list: [ … ], or lines that begin with - belongs"#,
                ],
            ),
            Case(
                "backendServices: [{ name: a, probing: { by: [PROBERS, PROBERS] } }]",
                &[
                    "a.yaml:1:55 backendServices[0].probing.by[1]: PROBERS stands here already; drop one",
                ],
            ),
            Case(
                "backendServices: [{ name: a, probing: { quorum: 1.5 } }]",
                &[
                    "a.yaml:1:49 backendServices[0].probing.quorum: 1.5 is out of range; 0.0 to 1.0 is allowed",
                ],
            ),
        ],
    );
}

pub(super) const WEB: &str = "backendServices: [{ name: a }]\nhealthChecks:\n- ";

#[test]
fn p2_to_p8_checks() {
    let cases = [
        Case(
            "{ name: web }",
            &[
                "a.yaml:3:3 healthChecks[0].type: missing; write one of TCP, SSL, HTTP, HTTPS, HTTP2, GRPC, GRPC_WITH_TLS",
            ],
        ),
        Case(
            "{ name: none, type: TCP }",
            &[
                r#"a.yaml:3:11 healthChecks[0].name: "none" is how a service says that it has no check; call this one otherwise"#,
            ],
        ),
        Case(
            "{ name: web, type: HTTP, timeout: 6s }",
            &[
                "a.yaml:3:37 healthChecks[0].timeout: 6s is longer than checkInterval (5s); a probe must end before the next starts, so shorten it to at most 5s",
            ],
        ),
        Case(
            "{ name: web, type: TCP, checkInterval: 10ms }",
            &[
                "a.yaml:3:42 healthChecks[0].checkInterval: 10ms is out of range; 100ms to 300s is allowed",
            ],
        ),
        Case(
            "{ name: web, type: TCP, checkInterval: 5 }",
            &[
                r#"a.yaml:3:42 healthChecks[0].checkInterval: "5" is not a duration; write a whole number and its unit: 5s, 250ms, 5m or 1h"#,
            ],
        ),
        Case(
            "{ name: web, type: TCP, checkInterval: 5sec, timeout: 1.5s }",
            &[
                r#"a.yaml:3:42 healthChecks[0].checkInterval: "5sec" is not a duration; write a whole number and its unit: 5s, 250ms, 5m or 1h"#,
                r#"a.yaml:3:57 healthChecks[0].timeout: "1.5s" is not a duration; write a whole number and its unit: 5s, 250ms, 5m or 1h"#,
            ],
        ),
        Case(
            "{ name: web, type: TCP, healthyThreshold: 0, unhealthyThreshold: 99999999999999999999 }",
            &[
                "a.yaml:3:45 healthChecks[0].healthyThreshold: 0 is out of range; 1 to 10 is allowed",
                "a.yaml:3:68 healthChecks[0].unhealthyThreshold: 99999999999999999999 is out of range; 1 to 10 is allowed",
            ],
        ),
        Case(
            "{ name: web, type: TCP, healthyThreshold: '2', unhealthyThreshold: -1 }",
            &[
                r#"a.yaml:3:45 healthChecks[0].healthyThreshold: "2" stands where a whole number, 1 to 10, without quotes belongs"#,
                "a.yaml:3:70 healthChecks[0].unhealthyThreshold: -1 is out of range; 1 to 10 is allowed",
            ],
        ),
        Case(
            "{ name: web, type: TCP, portSpecification: USE_FIXED_PORT }",
            &[
                "a.yaml:3:46 healthChecks[0].portSpecification: USE_FIXED_PORT needs a port; add port: 1–65535",
            ],
        ),
        Case(
            "{ name: web, type: TCP, port: 80 }",
            &[
                "a.yaml:3:27 healthChecks[0].port: a port is used with USE_FIXED_PORT only; add portSpecification: USE_FIXED_PORT, or drop it",
            ],
        ),
        Case(
            "{ name: web, type: TCP, portSpecification: USE_SERVING_PORT, port: 80 }",
            &[
                "a.yaml:3:64 healthChecks[0].port: a port is used with USE_FIXED_PORT only; add portSpecification: USE_FIXED_PORT, or drop it",
            ],
        ),
        Case(
            "{ name: web, type: TCP, portSpecification: USE_FIXED_PORT, port: 0 }",
            &["a.yaml:3:68 healthChecks[0].port: 0 is out of range; 1 to 65535 is allowed"],
        ),
        Case(
            "{ name: web, type: TCP, portSpecification: USE_FIXED_PORT, port: 65536 }",
            &["a.yaml:3:68 healthChecks[0].port: 65536 is out of range; 1 to 65535 is allowed"],
        ),
        Case(
            "{ name: web, type: TCP, http: { requestPath: / } }",
            &[
                "a.yaml:3:27 healthChecks[0].http: http belongs to the types HTTP, HTTPS and HTTP2, and this check is TCP; change the type or drop http",
            ],
        ),
        Case(
            "{ name: web, type: HTTP, tcp: { response: x } }",
            &[
                "a.yaml:3:28 healthChecks[0].tcp: tcp belongs to the types TCP and SSL, and this check is HTTP; change the type or drop tcp",
            ],
        ),
        Case(
            "{ name: web, type: TCP, tcp: { match: PREFIX } }",
            &[
                "a.yaml:3:41 healthChecks[0].tcp.match: there is no response to match; give tcp.response, or leave match out",
            ],
        ),
        Case(
            "{ name: web, type: TCP, tcp: { response: 220 } }",
            &[
                r#"a.yaml:3:44 healthChecks[0].tcp.response: 220 is a number; put it in quotes: "220""#,
            ],
        ),
        Case(
            "{ name: web, type: HTTP, http: { expectedStatuses: [200, 2xx, \"600\"] } }",
            &[
                r#"a.yaml:3:60 healthChecks[0].http.expectedStatuses[1]: "2xx" is not a set of statuses; write a code ("200"), a range ("200-299") or a class ("http_2xx"), within 100–599"#,
                r#"a.yaml:3:65 healthChecks[0].http.expectedStatuses[2]: "600" is not a set of statuses; write a code ("200"), a range ("200-299") or a class ("http_2xx"), within 100–599"#,
            ],
        ),
        Case(
            "{ name: web, type: HTTP, http: { expectedStatuses: [] } }",
            &[
                "a.yaml:3:54 healthChecks[0].http.expectedStatuses: an empty list passes nothing; leave it out for 200",
            ],
        ),
        Case(
            "{ name: web, type: HTTP, http: { expectedStatuses: [[200]] } }",
            &[
                "a.yaml:3:55 healthChecks[0].http.expectedStatuses[0]: a list stands where a string belongs",
            ],
        ),
        Case(
            "{ name: web, type: HTTP, http: { requestPath: alive, method: HEAD, response: grün } }",
            &[
                r#"a.yaml:3:49 healthChecks[0].http.requestPath: "alive" does not start with /; write an absolute path"#,
                "a.yaml:3:80 healthChecks[0].http.response: an answer to HEAD has no body to match; use method: GET, or drop response",
                "a.yaml:3:80 healthChecks[0].http.response: 'ü' is not printable ASCII, and nothing else is allowed here",
            ],
        ),
        Case(
            "{ name: web, type: HTTP, http: { headers: { Host: a, x.y: \"a\\nb\", \"b c\": d } } }",
            &[
                "a.yaml:3:53 healthChecks[0].http.headers.Host: the probe sets Host itself; use http.host",
                "a.yaml:3:61 healthChecks[0].http.headers.x.y: a header value is at most 4,096 printable ASCII characters on one line",
                r#"a.yaml:3:76 healthChecks[0].http.headers.b c: "b c" is not a header name; letters, digits and - are"#,
            ],
        ),
        Case(
            "{ name: web, type: GRPC, grpc: { servicename: a } }",
            &[
                "a.yaml:3:36 healthChecks[0].grpc.servicename: there is no such key; did you mean serviceName? Known here: serviceName, host, method, expectedCodes",
            ],
        ),
        Case(
            "{ name: web, type: SSL, timeout: 6s, tls: { verify: no } }",
            &[
                "a.yaml:3:36 healthChecks[0].timeout: 6s is longer than checkInterval (5s); a probe must end before the next starts, so shorten it to at most 5s",
                r#"a.yaml:3:55 healthChecks[0].tls.verify: "no" stands where true or false, without quotes belongs"#,
            ],
        ),
    ];
    check(WEB, &cases);
}

#[test]
fn groups_and_endpoints() {
    check(
        "",
        &[
            Case(
                "endpointGroups: [{ name: g }]",
                &[
                    "a.yaml:1:18 endpointGroups[0].type: missing; write GCE_VM_IP_PORT, NON_GCP_PRIVATE_IP_PORT or INTERNET_IP_PORT",
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: SERVERLESS }, { name: h, type: PRIVATE_SERVICE_CONNECT }]",
                &[
                    "a.yaml:1:35 endpointGroups[0].type: SERVERLESS groups have no health checks, so Vitals has nothing to tell of them; use a group of addresses",
                    "a.yaml:1:66 endpointGroups[1].type: PRIVATE_SERVICE_CONNECT groups have no health checks, so Vitals has nothing to tell of them; use a group of addresses",
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{}] }]",
                &[
                    "a.yaml:1:63 endpointGroups[0].endpoints[0].address: missing; give the endpoint's IP address",
                    "a.yaml:1:63 endpointGroups[0].endpoints[0].port: missing; give the endpoint's port",
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: app.example.com, port: 80 }] }]",
                &[
                    r#"a.yaml:1:74 endpointGroups[0].endpoints[0].address: "app.example.com" is not an IP address; an address is an IP literal (names come with groups of type INTERNET_FQDN_PORT)"#,
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ fqdn: app.example.com, port: 80 }] }]",
                &[
                    "a.yaml:1:65 endpointGroups[0].endpoints[0].fqdn: a name belongs to groups of type INTERNET_FQDN_PORT; write address: and an IP address here",
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: \"10.0.0.1:80\", port: 0 }] }]",
                &[
                    r#"a.yaml:1:74 endpointGroups[0].endpoints[0].address: "10.0.0.1:80" is not an IP address; write the address alone, without port, mask or zone"#,
                    "a.yaml:1:95 endpointGroups[0].endpoints[0].port: 0 is out of range; 1 to 65535 is allowed",
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: 0.0.0.0, port: \"80\" }] }]",
                &[
                    "a.yaml:1:74 endpointGroups[0].endpoints[0].address: 0.0.0.0 is not the address of one machine; write a unicast address",
                    r#"a.yaml:1:89 endpointGroups[0].endpoints[0].port: "80" stands where a whole number, 1 to 65535, without quotes belongs"#,
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: 10.0.0.1, port: 65536, weight: 1001, state: DOWN }] }]",
                &[
                    "a.yaml:1:90 endpointGroups[0].endpoints[0].port: 65536 is out of range; 1 to 65535 is allowed",
                    "a.yaml:1:105 endpointGroups[0].endpoints[0].weight: 1001 is out of range; 0 to 1000 is allowed",
                    r#"a.yaml:1:118 endpointGroups[0].endpoints[0].state: "DOWN" is not one of ACTIVE, DRAINING, STOPPED"#,
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: 10.0.0.1, port: 80, healthCheckAddress: a, healthCheckPort: 0 }] }]",
                &[
                    r#"a.yaml:1:114 endpointGroups[0].endpoints[0].healthCheckAddress: "a" is not an IP address; an address is an IP literal (names come with groups of type INTERNET_FQDN_PORT)"#,
                    "a.yaml:1:134 endpointGroups[0].endpoints[0].healthCheckPort: 0 is out of range; 1 to 65535 is allowed",
                ],
            ),
            Case(
                "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: 10.0.0.1, port: 80 }, { address: \"::ffff:10.0.0.1\", port: 80 }] }]",
                &[
                    "a.yaml:1:96 endpointGroups[0].endpoints[1]: the group has [::ffff:10.0.0.1]:80 already, at a.yaml:1:63; drop one",
                ],
            ),
        ],
    );
}

#[test]
fn services_and_their_references() {
    check("", &[
        Case("healthChecks: [{ name: web, type: HTTP }]\nbackendServices: [{ name: a, healthCheck: wep }]", &[r#"a.yaml:2:43 backendServices[0].healthCheck: no health check is called "wep"; did you mean web?"#]),
        Case("backendServices: [{ name: a, backends: [{ group: x }, {}] }]", &[r#"a.yaml:1:50 backendServices[0].backends[0].group: no endpoint group is called "x"; define it, or name one that is defined"#, "a.yaml:1:55 backendServices[0].backends[1].group: missing; name the group of endpoints"]),
        Case("backendServices: [{ name: a }, { name: a }]", &["a.yaml:1:40 backendServices[1].name: another backend service has the name a already, at a.yaml:1:27; rename one"]),
        Case(
            "endpointGroups: [{ name: g, type: GCE_VM_IP_PORT }]
backendServices: [{ name: a, backends: [{ group: g }, { group: g, capacity: 1.5 }] }]",
            &["a.yaml:2:64 backendServices[0].backends[1].group: the service uses the group g already; name each group once, as primary or as failover", "a.yaml:2:77 backendServices[0].backends[1].capacity: 1.5 is out of range; 0.0 to 1.0 is allowed"],
        ),
        Case(
            "endpointGroups:
- { name: g, type: GCE_VM_IP_PORT, endpoints: [{ address: 10.0.0.1, port: 1 }, { address: 10.0.0.2, port: 1 }] }
- { name: h, type: GCE_VM_IP_PORT, endpoints: [{ address: 10.0.0.2, port: 1 }, { address: 10.0.0.1, port: 1 }, { address: 10.0.0.1, port: 2 }] }
backendServices: [{ name: a, backends: [{ group: g }, { group: h }] }]",
            &["a.yaml:4:64 backendServices[0].backends[1].group: the service has 10.0.0.2:1 and 1 more through the group g already, and Envoy keeps one of each; take them out of g or h"],
        ),
        // An unsupported group or wrong check is defined nevertheless.
        Case(
            "healthChecks: [{ name: c, type: SSL, timeout: 6s }]
endpointGroups: [{ name: g, type: INTERNET_FQDN_PORT, endpoints: [{ fqdn: a.example, port: 1 }] }]
backendServices: [{ name: a, protocol: TCP, healthCheck: c, backends: [{ group: g }] }]",
            &["a.yaml:1:47 healthChecks[0].timeout: 6s is longer than checkInterval (5s); a probe must end before the next starts, so shorten it to at most 5s", "a.yaml:2:35 not supported yet: endpointGroups[0].type: INTERNET_FQDN_PORT; groups of addresses are (GCE_VM_IP_PORT, NON_GCP_PRIVATE_IP_PORT, INTERNET_IP_PORT)"],
        ),
        Case(
            "healthChecks: [{ name: c, type: TCP }]
backendServices:
- name: a
  healthCheck: c
  probing: { by: [ENVOYS, HDS], vantages: { count: 3, spread: zone }, hds: {}, guard: { canaries: ['a.example:443'] } }
  outlierDetection: {}
  circuitBreakers: {}
  envoyCluster: {}
fleets:
- name: f
  allow: {}
  resources: []
probers: [{ name: p }]",
            &["a.yaml:5:27 not supported yet: backendServices[0].probing.by[1]: HDS; PROBERS and ENVOYS are", "a.yaml:5:52 not supported yet: backendServices[0].probing.vantages.count: 3; all is: every vantage probes every endpoint", "a.yaml:5:55 not supported yet: backendServices[0].probing.vantages.spread: a choice among vantage points; leave spread out: every vantage probes every endpoint", "a.yaml:5:71 not supported yet: backendServices[0].probing.hds: probes by Envoys over HDS; leave hds out", "a.yaml:5:100 not supported yet: backendServices[0].probing.guard.canaries[0]: \"a.example:443\"; addresses are, such as 192.0.2.1:443", "a.yaml:8:3 not supported yet: backendServices[0].envoyCluster: fields of Envoy's own cluster; leave envoyCluster out", "a.yaml:11:10 fleets[0].allow: nobody is admitted; name spiffeIds or dnsNames, such as spiffeIds: [\"spiffe://mesh/edge/*\"], or leave allow out", "a.yaml:12:3 not supported yet: fleets[0].resources: Envoy resources of your own; leave resources out", "a.yaml:13:1 not supported yet: probers: remote vantage points; leave probers out: this server probes alone"],
        ),
    ]);
}

#[test]
fn a_locality_whose_weights_envoy_cannot_add_up_is_refused() {
    let mut text = large(50_000).replace("weight: 100,", "weight: 1000,");
    assert_eq!(errors(&text), [""; 0], "each group has its own zone");
    for g in 0..50 {
        text = text.replace(&format!("zone: z{g} "), "zone: z ");
    }
    let found = errors(&text);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].ends_with(
            "backendServices[0]: the weights of the endpoints in region \"r\", zone \"z\" come to 5000000000 hundredths, \
             and Envoy adds up to 4294967295 at most; give smaller weights"
        ),
        "{found:?}"
    );
}

const SERVICES: &str = "backendServices: [{ name: web }, { name: db, protocol: TCP }]\nfleets:\n";

#[test]
fn fleets_listeners_and_routes() {
    let cases = [
        Case(
            "- { name: f }\n- { name: f, match: { id: a } }",
            &[
                "a.yaml:4:11 fleets[1].name: another fleet has the name f already, at a.yaml:3:11; rename one",
            ],
        ),
        Case(
            "- { name: f, match: { id: '[a', cluster: '' } }",
            &[
                r#"a.yaml:3:27 fleets[0].match.id: "[a" is not a pattern: unclosed character class; missing ']'; use * for any characters and ? for one"#,
                "a.yaml:3:42 fleets[0].match.cluster: a pattern has 1–256 characters; leave the key out to match everything",
            ],
        ),
        Case(
            "- { name: f, services: [web, wep, web] }",
            &[
                r#"a.yaml:3:30 fleets[0].services[1]: no backend service is called "wep"; did you mean web?"#,
                "a.yaml:3:35 fleets[0].services[2]: web stands here already; drop one",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a }] }",
            &[
                "a.yaml:3:26 fleets[0].listeners[0].port: missing; give the port to listen on",
                "a.yaml:3:26 fleets[0].listeners[0]: the listener leads nowhere; give it routes (HTTP) or service (TCP proxy)",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, port: 1, service: db, routes: [{ service: web }] }] }",
            &[
                "a.yaml:3:46 fleets[0].listeners[0].service: a listener has either routes (HTTP) or service (TCP proxy), not both; drop one",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, port: 1, routes: [] }] }",
            &[
                "a.yaml:3:54 fleets[0].listeners[0].routes: a listener without a route answers nothing; give at least one",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, port: 1, service: db }, { name: a, port: 1, service: db }] }",
            &[
                "a.yaml:3:69 fleets[0].listeners[1].name: another listener of this fleet has the name a already, at a.yaml:3:34; rename one",
                "a.yaml:3:78 fleets[0].listeners[1].port: another listener of this fleet has 0.0.0.0:1 already, at a.yaml:3:43; give each its own",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, address: localhost, port: 0, service: web }] }",
            &[
                r#"a.yaml:3:46 fleets[0].listeners[0].address: "localhost" is not an IP address to listen on; write one, such as 0.0.0.0, "::" or 127.0.0.1"#,
                "a.yaml:3:63 fleets[0].listeners[0].port: 0 is out of range; 1 to 65535 is allowed",
                "a.yaml:3:75 fleets[0].listeners[0].service: a listener with service is a TCP proxy, and web is an HTTP service; use routes",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, port: 1, routes: [{ service: db }, { service: wep, prefix: /x }, { prefix: /y }] }] }",
            &[
                "a.yaml:3:66 fleets[0].listeners[0].routes[0].service: a route leads to an HTTP service, and db is a TCP service; use a listener with service",
                r#"a.yaml:3:83 fleets[0].listeners[0].routes[1].service: no backend service is called "wep"; did you mean web?"#,
                "a.yaml:3:102 fleets[0].listeners[0].routes[2].service: missing; name the service that the route leads to",
            ],
        ),
        Case(
            "- { name: f, services: [db], listeners: [{ name: a, port: 1, routes: [{ service: web }] }] }",
            &[
                "a.yaml:3:82 fleets[0].listeners[0].routes[0].service: the fleet is not told of the service web; add it to the fleet's services",
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, port: 1, routes: [{ service: web, domains: [a.example] }, { service: web, domains: [A.example, '*'] }] }] }",
            &[
                r#"a.yaml:3:95 fleets[0].listeners[0].routes[1]: an earlier route takes every request for domain "a.example" and prefix "/", at a.yaml:3:55; drop this one or change it"#,
            ],
        ),
        Case(
            "- { name: f, listeners: [{ name: a, port: 1, routes: [{ service: web, domains: [a.*.b, ''], prefix: x }, { service: web, domains: [] }] }] }",
            &[
                r#"a.yaml:3:81 fleets[0].listeners[0].routes[0].domains[0]: "a.*.b" is not a domain; write a host such as example.com, with * for the rest at its beginning or its end only"#,
                r#"a.yaml:3:88 fleets[0].listeners[0].routes[0].domains[1]: "" is not a domain; write a host such as example.com, with * for the rest at its beginning or its end only"#,
                r#"a.yaml:3:101 fleets[0].listeners[0].routes[0].prefix: "x" is not a path prefix; write / and at most 2,047 more printable ASCII characters, without spaces, ? and #"#,
                "a.yaml:3:131 fleets[0].listeners[0].routes[1].domains: no domain matches nothing; leave domains out for all",
            ],
        ),
    ];
    check(SERVICES, &cases);
}
