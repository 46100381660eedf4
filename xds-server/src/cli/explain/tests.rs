//! The command on small configurations: what it says, whole.

use super::*;
use crate::config::{Source, parse_sources};

const CONFIG: &str = "
healthChecks:
- { name: web, type: HTTP, unhealthyThreshold: 3, http: { requestPath: /healthz } }
- { name: azure, profile: AZURE_LB, type: TCP }
- { name: unused, type: GRPC_WITH_TLS, checkInterval: 10s }
- { name: both, type: TCP }
endpointGroups:
- name: dc1
  type: GCE_VM_IP_PORT
  endpoints:
  - { address: 10.0.0.1, port: 80 }
  - { address: 10.0.0.2, port: 80, healthCheckPort: 81 }
  - { address: 10.0.0.3, port: 80, state: STOPPED }
backendServices:
- { name: shop, protocol: HTTP, healthCheck: web, backends: [{ group: dc1 }] }
- { name: cart, protocol: HTTP, healthCheck: web, backends: [{ group: dc1 }] }
- { name: lb, protocol: TCP, healthCheck: azure, backends: [{ group: dc1 }] }
- { name: both, protocol: TCP, healthCheck: both, backends: [{ group: dc1 }] }
- { name: plain, protocol: TCP, healthCheck: none, backends: [{ group: dc1 }] }
";

fn explained(name: &str, vantages: u32, envoys: u32) -> Result<String, String> {
    let loaded = parse_sources(&[Source::new("vitals.yaml", CONFIG)]).unwrap();
    explain(&loaded.model, name, Fleet { vantages, envoys })
}

#[test]
fn a_check_is_explained_over_all_services_that_use_it() {
    assert_eq!(
        explained("web", 1, 0).unwrap(),
        "\
check web: HTTP, profile GCP
  asks       GET /healthz by HTTP/1.1
  passes     when the final status is in {200}
  host       the address and port that are probed
  port       each endpoint's serving port; 2 endpoints with a health-check address or port of its own
  set        unhealthyThreshold 3 (not 2), http.requestPath /healthz (not /)
  default    checkInterval 5 s, timeout 5 s, healthyThreshold 2, proxyHeader NONE, close RST, http.method GET, \
http.expectedStatuses 200 (of GCP)

who probes
  PROBERS            cart/dc1, shop/dc1: their verdict in EDS is the whole truth

found out within     best       worst
  silence            15 s       20 s       3 in a row that take the whole timeout, 5 s
  wrong, refused     10 s       15 s       3 in a row, plus the time that such a probe takes
  recovery           5 s        15 s       2 in a row; best: plus the time that such a probe takes
  first word         0 s        6 s        one probe decides; the first starts within min(interval, 1 s)
  then merge and push: what changes within 20 ms goes out together, to every Envoy at once

load of 1 vantage
  per endpoint       0.2/s      probes, each a connection of its own (P15)
  in all             0.4/s      4 endpoints of cart, shop, which are 2 targets: the same is asked once (V6); 2 STOPPED, not probed
  on each backend    0.2/s      connections
  from               this server, the vantage \"embedded\"
  Envoys             take this server's word, so 0 of them put nothing on a backend
"
    );
}

#[test]
fn s4_a_service_is_explained_with_its_check() {
    let text = explained("lb", 3, 100).unwrap();
    for part in [
        "service lb, check azure: TCP, profile AZURE_LB\n",
        "  set        nothing\n",
        "\n  silence            5 s        10 s ",
        "  each of 3 vantages finds out within these; their majority, too\n",
        "\nload of 3 vantages\n  per endpoint       0.6/s ",
        "\n  in all             1.2/s      2 endpoints of lb; 1 STOPPED, not probed\n",
        "the other 2 are assumed: remote vantages are not there yet\n",
        "so 100 of them put nothing on a backend\n",
        "\n\ntraffic of lb\n  goes to            dc1\n  fleets             none is told of it, so no Envoy gets it\n  none healthy       new connections end (FAIL_CLOSED, H5)\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let shop = explained("shop", 1, 0).unwrap();
    assert!(
        shop.contains("  shared with        cart: probed once for all (V6)\n"),
        "{shop}"
    );
}

#[test]
fn what_nobody_uses_or_nobody_checks_says_so() {
    let unused = explained("unused", 1, 0).unwrap();
    for part in [
        "check unused: GRPC_WITH_TLS, profile GCP\n",
        "  TLS        server name: the host if it is a name, else none; the certificate is not looked at\n",
        "  set        checkInterval 10 s (not 5 s)\n",
        "  in all             0/s        no service uses it, so nobody is probed\n",
    ] {
        assert!(unused.contains(part), "{part:?} in {unused}");
    }
    assert_eq!(
        explained("plain", 1, 0).unwrap(),
        "\
service plain: it has no check. Nobody probes its endpoints: they are DISABLED and served (S5, H1).

traffic of plain
  goes to            dc1
  fleets             none is told of it, so no Envoy gets it
  none healthy       new connections end (FAIL_CLOSED, H5)
  chosen by          ROUND_ROBIN
  connections        stay open while their endpoint is unhealthy (H4)
  removed            DRAINING for 0 s, then omitted
"
    );
}

#[test]
fn a_name_means_whatever_has_it() {
    let both = explained("both", 1, 0).unwrap();
    assert!(both.starts_with("check both: TCP"), "{both}");
    assert!(both.contains("\n\nservice both, check both: TCP"), "{both}");
    assert_eq!(
        explained("Web", 1, 0).unwrap_err(),
        "\"Web\" is neither a check nor a service; checks: azure, both, unused, web; services: both, cart, lb, plain, shop"
    );
}

#[test]
fn p7_a_host_that_only_a_services_route_gives_is_told() {
    const CONFIG: &str = "
healthChecks:
- { name: alb, profile: TENCENT_ALB, type: HTTP, http: { expectedStatuses: [http_2xx] } }
endpointGroups:
- { name: dc1, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{ address: 10.0.0.1, port: 80 }] }
backendServices:
- { name: shop, protocol: HTTP, healthCheck: alb, backends: [{ group: dc1 }] }
fleets:
- name: edge
  match: { cluster: edge }
  listeners:
  - { name: http, port: 10000, routes: [{ domains: [shop.example], service: shop }] }
";
    let loaded = parse_sources(&[Source::new("vitals.yaml", CONFIG)]).unwrap();
    let fleet = Fleet {
        vantages: 1,
        envoys: 0,
    };
    let text = explain(&loaded.model, "alb", fleet).unwrap();
    for part in [
        "check alb: HTTP, profile TENCENT_ALB\n  asks       HEAD / by HTTP/1.1\n",
        "  host       \"shop.example\"\n",
        "  set        http.expectedStatuses 200-299\n",
        "  first word         10 s       13 s       PROBING until a threshold is reached\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

const DISTRIBUTED: &str = "
healthChecks:
- { name: web, type: HTTP, unhealthyThreshold: 3 }
- { name: mail, type: TCP, tcp: { response: '220', match: PREFIX } }
endpointGroups:
- name: dc1
  type: NON_GCP_PRIVATE_IP_PORT
  endpoints:
  - { address: 10.0.0.1, port: 80 }
  - { address: 10.0.0.2, port: 80 }
  - { address: 10.0.0.3, port: 80, state: STOPPED }
- { name: cloud, type: GCE_VM_IP_PORT, endpoints: [{ address: 10.0.1.1, port: 80 }] }
backendServices:
- name: shop
  healthCheck: web
  unhealthyResponseCode: 502
  connectionDraining: 30s
  backends: [{ group: dc1 }, { group: cloud, failover: true }]
  failover: { ratio: 0.5, failbackRatio: 0.75, dropTrafficIfUnhealthy: true }
  sessionAffinity: { type: COOKIE, name: sid }
- { name: mx, protocol: TCP, healthCheck: mail, whenAllUnhealthy: FAIL_OPEN, backends: [{ group: dc1 }] }
- { name: far, healthCheck: web, backends: [{ group: dc1, probing: { by: [ENVOYS] } }] }
";

fn distributed(name: &str) -> String {
    let loaded = parse_sources(&[Source::new("vitals.yaml", DISTRIBUTED)]).unwrap();
    let fleet = Fleet {
        vantages: 1,
        envoys: 100,
    };
    explain(&loaded.model, name, fleet).unwrap()
}

#[test]
fn h7_who_probes_and_what_envoys_do_otherwise_is_told() {
    let text = distributed("shop");
    let (_, who) = text.split_once("\nwho probes\n").unwrap();
    assert!(
        who.starts_with(
            "  PROBERS, ENVOYS    dc1: both must find an endpoint healthy: an Envoy ANDs its own check with what EDS says (H7)
  PROBERS            cloud: their verdict in EDS is the whole truth

found out within "
        ),
        "{who}"
    );
    // The prober's load is of both groups.
    assert!(
        who.contains(
            "  in all             0.6/s      3 endpoints of shop; 1 STOPPED, not probed\n"
        ),
        "{who}"
    );
    let (_, envoys) = who.split_once("\nan Envoy finds out").unwrap();
    assert_eq!(
        envoys,
        "   best       worst
  silence            25 s       31.5 s     3 in a row, each after the whole timeout
  wrong, refused     10 s       16.5 s     3 in a row, plus the time that each takes
  recovery           5 s        21 s       2 in a row; best: plus the time that each takes
  first word         0 s        6 s        the first pass decides; until then an endpoint gets no traffic

load of 100 Envoys, at most
  per endpoint       20/s       every Envoy checks for itself, over a connection of its own; the interval runs from end to start,
                                plus up to 10 % by chance, and the first checks are spread over 1 s
  in all             40/s       2 endpoints of shop; what services share is checked for each

not as a prober's (H7)
  the interval runs from the end of a check to the start of the next (S3: start to start)
  every interval is up to 10 % longer by chance, and the first check waits up to min(interval, 1 s)
  a fault of the Envoy's own machine counts against the endpoint (P16: INCONCLUSIVE)
  a check passes at the end of the body (P4: at the end of the headers, or at the string)
  a status of 600 or more ejects at once, whatever the threshold (S1)

verdicts on shop
  quorum             MAJORITY: more than half of the fresh votes (V2)
  guard              a vantage that turns more than 50 % of its endpoints (maxShare) from healthy abstains, for 300 s at most (maxHold),
                     if it has 10 endpoints or more (minEndpoints) (V5)

traffic of shop
  goes to            dc1
  fails over to      cloud, while less than 50 % of the primaries are healthy; back when 75 % are (H2)
  fleets             none is told of it, so no Envoy gets it
  none healthy       in either pool: HTTP 502 (dropTrafficIfUnhealthy, H3)
  chosen by          MAGLEV of the cookie \"sid\"
  connections        stay open while their endpoint is unhealthy (H4)
  removed            DRAINING for 30 s, then omitted
"
    );
}

#[test]
fn h7_what_only_envoys_check_is_no_load_of_a_prober() {
    let text = distributed("far");
    assert!(
        text.contains(
            "who probes\n  ENVOYS             dc1: each Envoy for itself; EDS says HEALTHY of every endpoint (H1)\n\nan Envoy finds out"
        ),
        "{text}"
    );
    assert!(!text.contains("load of 1 vantage"), "{text}");
    // Over all services: the prober's targets are those of shop alone, the Envoys check dc1 for either.
    let check = distributed("web");
    for part in [
        "  PROBERS, ENVOYS    shop/dc1: ",
        "  PROBERS            shop/cloud: ",
        "  ENVOYS             far/dc1: ",
        "  in all             0.6/s      3 endpoints of shop; ",
        "  in all             80/s       4 endpoints of far, shop; ",
    ] {
        assert!(check.contains(part), "{part:?} in {check}");
    }
}

#[test]
fn h7_what_keeps_envoys_from_a_check_is_told() {
    let text = distributed("mx");
    for part in [
        "  PROBERS            dc1: their verdict in EDS is the whole truth
  Envoys             cannot run it: tcp.match: Envoy looks for the string anywhere in the answer, and cannot tell PREFIX; \
write match: CONTAINS\n",
        "  Envoys             take this server's word, so 100 of them put nothing on a backend\n",
        "  none healthy       all endpoints share it (FAIL_OPEN, H6)\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

const ROUTED: &str = "
healthChecks:
- { name: web, type: HTTPS, tls: { verify: true } }
endpointGroups:
- { name: dc1, type: GCE_VM_IP_PORT, locality: { region: eu }, endpoints: [{ address: 10.0.0.1, port: 443 }] }
backendServices:
- name: named
  protocol: HTTPS
  healthCheck: web
  backends: [{ group: dc1 }]
  tls: { sni: shop.example }
  outlierDetection: { maxEjectionPercent: 100 }
  circuitBreakers: { thresholds: [{ maxRequests: 7 }, { priority: HIGH, maxRequests: 9 }] }
  probing: { quorum: 0.25, guard: { maxShare: 0.3, minEndpoints: 1, maxHold: 60s, canaries: ['192.0.2.1:443'] } }
- { name: nameless, protocol: HTTPS, healthCheck: web, backends: [{ group: dc1 }], probing: { guard: { enabled: false } } }
- { name: open, protocol: HTTPS, healthCheck: web, backends: [{ group: dc1 }], tls: { verify: false } }
fleets:
- { name: edge, match: { id: 'e*' }, regionOrder: [eu, us] }
- { name: core, match: { id: 'c*' }, regionOrder: [eu, us] }
- { name: far, match: { id: 'f*' }, endpointDiscovery: LEDS }
- { name: other, match: { id: 'o*' }, services: [open] }
";

#[test]
fn v2_v5_h10_what_else_decides_is_told() {
    let loaded = parse_sources(&[Source::new("vitals.yaml", ROUTED)]).unwrap();
    let explained = |name| {
        let fleet = Fleet {
            vantages: 1,
            envoys: 0,
        };
        explain(&loaded.model, name, fleet).unwrap()
    };
    let named = explained("named");
    let (_, verdicts) = named.split_once("\nverdicts on named\n").unwrap();
    assert_eq!(
        verdicts,
        "  quorum             0.25: healthy when more than 25 % of the fresh votes say so (V2)
  guard              a vantage that turns more than 30 % of its endpoints (maxShare) from healthy abstains, for 60 s at most (maxHold),
                     if it has 1 endpoint or more (minEndpoints) (V5)
  canaries           192.0.2.1:443: a vantage that reaches none is not trusted (V5)

traffic of named
  goes to            dc1
  regions            all alike (H10), in far
  regions            eu, us, then all others (H10), in edge, core
  LEDS               in far: an Envoy that speaks delta gets of a change the one endpoint, not all 1 of them; SotW and gRPC clients get all (EDS)
  none healthy       HTTP 503 (FAIL_CLOSED, H5)
  chosen by          ROUND_ROBIN
  connections        stay open while their endpoint is unhealthy (H4)
  removed            DRAINING for 0 s, then omitted
  TLS                Envoys verify certificates by the roots of their own machines, for the name \"shop.example\"
  outlierDetection   is set: each Envoy ejects endpoints by what requests meet there, up to 100 % of them; no prober's verdict shows it
  circuitBreakers    are set for the priority DEFAULT, HIGH: each Envoy refuses what is over its limits, however healthy the endpoints are
"
    );
    let nameless = explained("nameless");
    for part in [
        "  guard              off: a vantage that loses its network takes its endpoints down (V5)\n",
        "  TLS                Envoys verify certificates by the roots of their own machines, for no name: every one that they \
         vouch for passes\n",
    ] {
        assert!(nameless.contains(part), "{part:?} in {nameless}");
    }
    let open = explained("open");
    for part in [
        "  TLS                Envoys do not look at certificates\n",
        "  regions            all alike (H10), in far, other\n",
    ] {
        assert!(open.contains(part), "{part:?} in {open}");
    }
}

#[test]
fn many_groups_are_counted() {
    let names: Vec<String> = (0..10).map(|i| format!("g{i}")).collect();
    assert_eq!(envoys::some(&names[..2]), "g0, g1");
    assert_eq!(
        envoys::some(&names),
        "g0, g1, g2, g3, g4, g5, g6, g7 and 2 more"
    );
}
