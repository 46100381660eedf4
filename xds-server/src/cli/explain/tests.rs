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
  type: NON_GCP_PRIVATE_IP_PORT
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
  who probes         this server, as the vantage \"embedded\"
  Envoys             do not probe yet: they take this server's word, so 0 of them put nothing on a backend
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
        "service plain: it has no check. Nobody probes its endpoints: they are DISABLED and served (S5, H1).\n"
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
