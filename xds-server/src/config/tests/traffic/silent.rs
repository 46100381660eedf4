//! What Envoy takes without a word and does otherwise than it reads: each a warning, or an error where a line is lost.

use super::super::bad::{Case, check};
use super::super::*;
use super::{SERVICES, service};

/// The warnings of the service, without their place.
fn warnings(words: &str) -> Vec<String> {
    let (_, warnings) = service(words);
    warnings
        .iter()
        .map(|line| line.split_once(' ').unwrap().1.to_owned())
        .collect()
}

/// Whether one of them begins so.
fn warns(words: &str, start: &str) -> bool {
    warnings(words).iter().any(|line| line.starts_with(start))
}

#[test]
fn p10_a_service_that_verifies_what_its_check_does_not_is_a_warning() {
    let said = warnings(
        "protocol: SSL, healthCheck: tcp, backends: [{ group: dc2 }], tls: { sni: a.example }",
    );
    assert_eq!(
        said,
        [
            "backendServices[0].tls: the service verifies certificates and its check tcp does not even speak TLS: where a \
             certificate is bad every request fails while all endpoints are HEALTHY; name a check over TLS with tls: { verify: \
             true }, and with the service's sni and roots, or write verify: false here"
        ]
    );
    // Without a block it verifies, too, and the check of its protocol does not.
    let text = "healthChecks: [{ name: web, type: HTTPS }]
backendServices: [{ name: s, protocol: HTTPS, healthCheck: web }]
fleets: [{ name: f }]";
    let said: Vec<String> = good(text)
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        said.iter().any(|line| line.starts_with(
            "a.yaml:2:40 backendServices[0].protocol: the service verifies certificates and its check web does not: "
        ) && line.contains("; set tls: { verify: true } on the check web, ")),
        "{said:?}"
    );
    for words in [
        "protocol: SSL, healthCheck: named, backends: [{ group: dc2 }], tls: { sni: a.example }",
        "protocol: SSL, healthCheck: tcp, backends: [{ group: dc2 }], tls: { verify: false }",
        "protocol: SSL, backends: [{ group: dc2 }], tls: { sni: a.example }",
    ] {
        assert_eq!(warnings(words), [""; 0], "{words}");
    }
}

#[test]
fn h5_a_response_code_that_hides_an_outage_or_is_never_answered_is_a_warning() {
    let code = "backendServices[0].unhealthyResponseCode: ";
    let web = "healthCheck: web, backends: [{ group: dc2 }]";
    let hides = format!("{code}200 tells clients and monitors that a request went well");
    assert!(warns(&format!("{web}, unhealthyResponseCode: 200"), &hides));
    assert_eq!(
        warnings(&format!("{web}, unhealthyResponseCode: 302")),
        [""; 0]
    );

    let open = format!("{code}with FAIL_OPEN endpoints get the requests while none is healthy");
    assert!(warns(
        &format!("{web}, whenAllUnhealthy: FAIL_OPEN, unhealthyResponseCode: 502"),
        &open
    ));
    let pools = "healthCheck: web, backends: [{ group: dc2 }, { group: dc1, failover: true, probing: { by: [PROBERS] } }]";
    let failover = format!("{code}with failover without dropTrafficIfUnhealthy endpoints get");
    assert!(warns(
        &format!("{pools}, unhealthyResponseCode: 502"),
        &failover
    ));
    let dropping = "failover: { dropTrafficIfUnhealthy: true }, unhealthyResponseCode: 502";
    assert_eq!(warnings(&format!("{pools}, {dropping}")), [""; 0]);
}

#[test]
fn an_outlier_detection_that_never_ejects_is_a_warning() {
    let one = |words: &str| {
        warnings(&format!(
            "backends: [{{ group: dc1 }}], outlierDetection: {words}"
        ))
    };
    assert_eq!(
        one("{ consecutive5xx: 3 }"),
        [
            "backendServices[0].outlierDetection: maxEjectionPercent is Envoy's default, 10, which of 1 endpoint is less than one, \
             so no Envoy ever ejects any; write maxEjectionPercent: 100 or more, or alwaysEjectOneHost: true"
        ]
    );
    assert!(one("{ maxEjectionPercent: 99 }")[0].contains("maxEjectionPercent is 99, which"));
    for words in [
        "{ maxEjectionPercent: 100 }",
        "{ maxEjectionPercent: 0 }",
        "{ alwaysEjectOneHost: true }",
    ] {
        assert_eq!(one(words), [""; 0], "{words}");
    }
    // Ten are enough for ten percent, and nine are not.
    let of = |endpoints: u32| {
        let list: Vec<String> = (0..endpoints)
            .map(|n| format!("{{ address: 10.1.0.{n}, port: 1 }}"))
            .collect();
        good(&format!(
            "endpointGroups: [{{ name: g, type: GCE_VM_IP_PORT, endpoints: [{}] }}]
backendServices: [{{ name: s, backends: [{{ group: g }}], outlierDetection: {{ consecutive5xx: 3 }} }}]
fleets: [{{ name: f }}]",
            list.join(", ")
        ))
        .warnings
        .len()
    };
    assert_eq!([of(9), of(10)], [1, 0]);
}

#[test]
fn thresholds_that_envoy_passes_over_are_refused() {
    let before = format!("{SERVICES}{{ name: s, ");
    check(
        &before,
        &[
            Case(
                "circuitBreakers: { thresholds: [{ maxRequests: 1 }, { priority: HIGH }, { priority: DEFAULT }] } }",
                &[
                    "a.yaml:4:86 backendServices[0].circuitBreakers.thresholds[2]: DEFAULT has thresholds here already, and Envoy takes the first; drop one",
                ],
            ),
            Case(
                "circuitBreakers: { per_host_thresholds: [{ maxConnections: 1 }, { maxConnections: 2 }] } }",
                &[
                    "a.yaml:4:78 backendServices[0].circuitBreakers.per_host_thresholds[1]: DEFAULT has thresholds here already, and Envoy takes the first; drop one",
                ],
            ),
        ],
    );
    let both = "circuitBreakers: { thresholds: [{ maxRequests: 1 }], perHostThresholds: [{ maxConnections: 1 }] }";
    assert_eq!(warnings(both), [""; 0]);
}

#[test]
fn services_without_a_fleet_are_a_warning() {
    let said = |text: &str| -> Vec<String> {
        good(text)
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        said("backendServices: [{ name: s }]"),
        [
            "a.yaml:1:18 backendServices: no fleet is defined, so nobody is told of these services; add fleets, such as fleets: [{ \
             name: edge }]"
        ]
    );
    assert_eq!(said("fleets: [{ name: f }]"), [""; 0]);
}

#[test]
fn p2_a_duration_is_reported_as_it_is_written() {
    let errors = errors(
        "healthChecks: [{ name: a, type: TCP, checkInterval: 0s, timeout: 9999999h }]
backendServices: [{ name: s, connectionDraining: 120m, probing: { guard: { maxHold: 0ms } } }]",
    );
    let starts = [
        "0s is out of range; ",
        "9999999h is out of range; ",
        "120m is out of range; ",
        "0ms is out of range; ",
    ];
    for start in starts {
        let said = format!(": {start}");
        assert!(
            errors.iter().any(|line| line.contains(&said)),
            "{start}: {errors:?}"
        );
    }
}
