//! Envoy's own fields where they stand in a configuration.

use crate::config::{Loaded, Source, parse_sources};

const BEFORE: &str = "backendServices:\n- name: shop\n";

fn load(fields: &str) -> Result<Loaded, Vec<String>> {
    parse_sources(&[Source::new("a.yaml", format!("{BEFORE}{fields}"))])
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn a_service_has_what_its_fields_say() {
    let loaded = load(
        "  outlierDetection: { consecutive5xx: 3, interval: 250ms }\n  circuitBreakers: { thresholds: [{ maxRequests: 7 }] }\n",
    )
    .unwrap();
    let service = &loaded.model.services["shop"];
    let outlier = service.outlier_detection.as_ref().unwrap();
    assert_eq!(outlier.consecutive_5xx.map(|v| v.value), Some(3));
    assert_eq!(outlier.interval.map(|d| d.nanos), Some(250_000_000));
    let breakers = service.circuit_breakers.as_ref().unwrap();
    assert_eq!(
        breakers.thresholds[0].max_requests.map(|v| v.value),
        Some(7)
    );
    let none = load("").unwrap();
    let service = &none.model.services["shop"];
    assert_eq!(
        (&service.outlier_detection, &service.circuit_breakers),
        (&None, &None)
    );
}

#[test]
fn all_that_is_wrong_in_them_is_said_at_once_with_its_place() {
    let errors = load(
        "  outlierDetection:
    consecutive_5x: 3
    interval: 0s
    maxEjectionPercent: 120
  circuitBreakers:
    thresholds:
    - { priority: LOW }
    - { max_requests: -1 }
",
    )
    .unwrap_err();
    assert_eq!(
        errors,
        [
            "a.yaml:4:5 backendServices[0].outlierDetection.consecutive_5x: envoy.config.cluster.v3.OutlierDetection has no field \"consecutive_5x\"; did you mean consecutive_5xx?",
            "a.yaml:5:15 backendServices[0].outlierDetection.interval: 0s is out of range; more than 0s is allowed",
            "a.yaml:6:25 backendServices[0].outlierDetection.maxEjectionPercent: 120 is out of range; at most 100 is allowed",
            "a.yaml:9:19 backendServices[0].circuitBreakers.thresholds[0].priority: \"LOW\" is not one of DEFAULT, HIGH",
            "a.yaml:10:23 backendServices[0].circuitBreakers.thresholds[1].max_requests: -1 is out of range; 0 to 4294967295 is allowed",
        ]
    );
}
