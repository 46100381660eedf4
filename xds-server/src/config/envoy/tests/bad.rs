//! Documents that are wrong.

use super::*;

const OUTLIER: &str = "envoy.config.cluster.v3.OutlierDetection";
const BREAKERS: &str = "envoy.config.cluster.v3.CircuitBreakers";
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

#[test]
fn keys_that_do_not_belong() {
    check(&[
        Case(
            OUTLIER,
            "{ consecutive_5x: 1, consecutive5x: 1, elephant: 1 }",
            &[
                "e.yaml:1:3 consecutive_5x: envoy.config.cluster.v3.OutlierDetection has no field \"consecutive_5x\"; did you mean consecutive_5xx?",
                "e.yaml:1:22 consecutive5x: envoy.config.cluster.v3.OutlierDetection has no field \"consecutive5x\"; did you mean consecutive_5xx?",
                "e.yaml:1:40 elephant: envoy.config.cluster.v3.OutlierDetection has no field \"elephant\"; see Envoy's documentation",
            ],
        ),
        Case(
            BREAKERS,
            "{ elephant: 1 }",
            &[
                "e.yaml:1:3 elephant: envoy.config.cluster.v3.CircuitBreakers has no field \"elephant\"; known are thresholds, per_host_thresholds",
            ],
        ),
        Case(
            "google.protobuf.Empty",
            "{ elephant: 1 }",
            &["e.yaml:1:3 elephant: google.protobuf.Empty has no field \"elephant\"; it has none"],
        ),
        Case(
            OUTLIER,
            "interval: 1s\nbase_ejection_time: 1s\nbaseEjectionTime: 2s",
            &["e.yaml:3:1 baseEjectionTime: base_ejection_time is the same field; keep one"],
        ),
        Case(
            CLUSTER,
            "{ name: a, type: EDS, cluster_type: { name: b } }",
            &["e.yaml:1:23 cluster_type: type and cluster_type exclude each other; keep one"],
        ),
        Case(
            OUTLIER,
            "interval:\nmonitors: ~",
            &[
                "e.yaml:1:1 interval: the key has no value; give it one, or leave the key out",
                "e.yaml:2:1 monitors: the key has no value; give it one, or leave the key out",
            ],
        ),
        Case(
            BREAKERS,
            "thresholds: [~]",
            &["e.yaml:1:14 thresholds[0]: the key has no value; give it one, or leave the key out"],
        ),
    ]);
}

#[test]
fn values_of_a_wrong_form() {
    check(&[
        Case(
            OUTLIER,
            "[]",
            &[
                "e.yaml:1:1 a list stands where a map with fields of envoy.config.cluster.v3.OutlierDetection belongs",
            ],
        ),
        Case(
            OUTLIER,
            "word",
            &[
                "e.yaml:1:1 \"word\" stands where a map with fields of envoy.config.cluster.v3.OutlierDetection belongs",
            ],
        ),
        Case(
            OUTLIER,
            "{ consecutive_5xx: many, interval: 5, base_ejection_time: 1.5, max_ejection_time: [], split_external_local_origin_errors: \"true\", monitors: {} }",
            &[
                "e.yaml:1:20 consecutive_5xx: \"many\" stands where a whole number, 0 to 4294967295, belongs",
                "e.yaml:1:36 interval: \"5\" is not a duration; write a number and its unit: 5s, 0.25s or 250ms",
                "e.yaml:1:59 base_ejection_time: \"1.5\" is not a duration; write a number and its unit: 5s, 0.25s or 250ms",
                "e.yaml:1:83 max_ejection_time: a list stands where a duration: 5s, 0.25s or 250ms belongs",
                "e.yaml:1:123 split_external_local_origin_errors: \"true\" stands where true or false, without quotes belongs",
                "e.yaml:1:141 monitors: a map stands where a list: [ … ], or lines that begin with - belongs",
            ],
        ),
        Case(
            OUTLIER,
            "{ consecutive_5xx: -1, success_rate_minimum_hosts: 4294967296, success_rate_request_volume: 010, success_rate_stdev_factor: 1.5, failure_percentage_minimum_hosts: { value: 1 } }",
            &[
                "e.yaml:1:20 consecutive_5xx: -1 is out of range; 0 to 4294967295 is allowed",
                "e.yaml:1:52 success_rate_minimum_hosts: 4294967296 is out of range; 0 to 4294967295 is allowed",
                "e.yaml:1:93 success_rate_request_volume: \"010\" stands where a whole number, 0 to 4294967295, belongs",
                "e.yaml:1:125 success_rate_stdev_factor: \"1.5\" stands where a whole number, 0 to 4294967295, belongs",
                "e.yaml:1:164 failure_percentage_minimum_hosts: a map stands where a whole number, 0 to 4294967295, belongs",
            ],
        ),
        Case(
            BREAKERS,
            "thresholds: [{ priority: HIG }, { priority: 7 }, { priority: {} }, { retry_budget: { budget_percent: 20 } }]",
            &[
                "e.yaml:1:26 thresholds[0].priority: \"HIG\" is not one of DEFAULT, HIGH; did you mean HIGH?",
                "e.yaml:1:45 thresholds[1].priority: \"7\" is not one of DEFAULT, HIGH",
                "e.yaml:1:62 thresholds[2].priority: a map stands where one of DEFAULT, HIGH belongs",
                "e.yaml:1:102 thresholds[3].retry_budget.budget_percent: \"20\" stands where a map with fields of envoy.type.v3.Percent (value) belongs",
            ],
        ),
        Case(
            CLUSTER,
            "{ name: 8080, alt_stat_name: true, metadata: { filter_metadata: { a: [] } } }",
            &[
                "e.yaml:1:9 name: 8080 is a number; put it in quotes: \"8080\"",
                "e.yaml:1:30 alt_stat_name: true is a truth value; put it in quotes: \"true\"",
                "e.yaml:1:70 metadata.filter_metadata.a: a list stands where a map: key: value belongs",
            ],
        ),
        Case(
            "google.protobuf.Duration",
            "9223372036s",
            &["e.yaml:1:1 9223372036s is out of range; 0s to 9223372035s is allowed"],
        ),
        Case(
            "google.protobuf.Duration",
            "1.0000000001s",
            &[
                "e.yaml:1:1 \"1.0000000001s\" is not a duration; write a number and its unit: 5s, 0.25s or 250ms",
            ],
        ),
        Case(
            "google.protobuf.Timestamp",
            "yesterday",
            &["e.yaml:1:1 \"yesterday\" stands where a time: 2026-01-31T12:00:00Z belongs"],
        ),
        Case(
            "google.protobuf.BytesValue",
            "'*'",
            &["e.yaml:1:1 \"*\" stands where base64 belongs"],
        ),
        Case(
            "google.protobuf.FloatValue",
            "1e300",
            &["e.yaml:1:1 1e300 is out of range; -3.4028235e38 to 3.4028235e38 is allowed"],
        ),
        Case(
            "google.protobuf.DoubleValue",
            "1e999",
            &["e.yaml:1:1 \"1e999\" stands where a number belongs"],
        ),
        Case(
            "google.protobuf.Value",
            "010",
            &["e.yaml:1:1 010 is a number; put it in quotes: \"010\""],
        ),
    ]);
}

#[test]
fn any_that_names_no_message() {
    check(&[
        Case(
            "google.protobuf.Any",
            "{ value: 1 }",
            &["e.yaml:1:1 @type: missing; name the message: type.googleapis.com/envoy.…"],
        ),
        Case(
            "google.protobuf.Any",
            "{ '@type': envoy.config.cluster.v3.Cluster }",
            &[
                "e.yaml:1:12 @type: \"envoy.config.cluster.v3.Cluster\" is not a type; write type.googleapis.com/ before the message's full name",
            ],
        ),
        Case(
            "google.protobuf.Any",
            "{ '@type': type.googleapis.com/envoy.config.filter.http.router.v2.Router }",
            &[
                "e.yaml:1:12 @type: \"envoy.config.filter.http.router.v2.Router\" is not a message that Vitals knows; did you mean envoy.extensions.filters.http.router.v3.Router?; one of another Envoy goes into an xds.type.v3.TypedStruct",
            ],
        ),
        Case(
            "google.protobuf.Any",
            "{ '@type': type.googleapis.com/envoy.config.cluster.v3.Clutser }",
            &[
                "e.yaml:1:12 @type: \"envoy.config.cluster.v3.Clutser\" is not a message that Vitals knows; did you mean envoy.config.cluster.v3.Cluster?; one of another Envoy goes into an xds.type.v3.TypedStruct",
            ],
        ),
        Case(
            "google.protobuf.Any",
            "{ '@type': type.googleapis.com/acme.Elephant }",
            &[
                "e.yaml:1:12 @type: \"acme.Elephant\" is not a message that Vitals knows; one of another Envoy goes into an xds.type.v3.TypedStruct",
            ],
        ),
        Case(
            "google.protobuf.Any",
            "{ '@type': type.googleapis.com/google.protobuf.Duration, seconds: 1 }",
            &[
                "e.yaml:1:1 value: missing; give the value",
                "e.yaml:1:58 seconds: a google.protobuf.Duration has only a value beside its @type",
            ],
        ),
        Case(
            "google.protobuf.Any",
            "{ '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, nam: a }",
            &[
                "e.yaml:1:1 name: missing; Envoy requires it",
                "e.yaml:1:65 nam: envoy.config.cluster.v3.Cluster has no field \"nam\"; did you mean name?",
            ],
        ),
    ]);
}

#[test]
fn what_envoy_would_refuse() {
    check(&[
        Case(
            OUTLIER,
            "{ interval: 0s, base_ejection_time: -0.5s, max_ejection_percent: 101, enforcing_success_rate: 200 }",
            &[
                "e.yaml:1:13 interval: 0s is out of range; more than 0s is allowed",
                "e.yaml:1:37 base_ejection_time: -0.5s is out of range; 0s to 9223372035s is allowed",
                "e.yaml:1:66 max_ejection_percent: 101 is out of range; at most 100 is allowed",
                "e.yaml:1:95 enforcing_success_rate: 200 is out of range; at most 100 is allowed",
            ],
        ),
        Case(
            BREAKERS,
            "thresholds: [{ retry_budget: { budget_percent: { value: 100.5 } } }]",
            &[
                "e.yaml:1:57 thresholds[0].retry_budget.budget_percent.value: 100.5 is out of range; 0 to 100 is allowed",
            ],
        ),
        Case(
            CLUSTER,
            "{}",
            &["e.yaml:1:1 name: missing; Envoy requires it"],
        ),
        Case(
            CLUSTER,
            "{ name: a, connect_timeout: 0s, lb_policy: 99, ring_hash_lb_config: { minimum_ring_size: 8388609 } }",
            &[
                "e.yaml:1:29 connect_timeout: 0s is out of range; more than 0s is allowed",
                "e.yaml:1:44 lb_policy: \"99\" is not one of ROUND_ROBIN, LEAST_REQUEST, RING_HASH, RANDOM, MAGLEV, CLUSTER_PROVIDED, LOAD_BALANCING_POLICY_CONFIG",
                "e.yaml:1:90 ring_hash_lb_config.minimum_ring_size: 8388609 is out of range; at most 8388608 is allowed",
            ],
        ),
        Case(
            "envoy.config.core.v3.TypedExtensionConfig",
            "{ name: '' }",
            &[
                "e.yaml:1:1 typed_config: missing; Envoy requires it",
                "e.yaml:1:9 name: \"\" is empty, which Envoy refuses; write something",
            ],
        ),
        Case(
            "envoy.config.core.v3.SocketAddress",
            "{ address: a }",
            &["e.yaml:1:1 port_specifier: missing; Envoy requires one of port_value, named_port"],
        ),
        Case(
            "envoy.config.core.v3.HeaderValue",
            "{ key: \"a\\nb\" }",
            &[
                "e.yaml:1:8 key: \"a\\nb\" is not a header's name; NUL and line ends are not allowed",
            ],
        ),
        Case(
            "envoy.config.route.v3.RouteMatch",
            "{}",
            &[
                "e.yaml:1:1 path_specifier: missing; Envoy requires one of prefix, path, safe_regex, connect_matcher, path_separated_prefix, path_match_policy",
            ],
        ),
    ]);
}

#[test]
fn what_is_nested_deeper_than_decoders_read() {
    let depth = 40;
    let yaml = format!("{}1{}", "{ a: ".repeat(depth), " }".repeat(depth));
    let (read, errors, _) = outcome("google.protobuf.Struct", yaml.as_bytes());
    assert!(read.is_some());
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].ends_with(
            "this is nested more than 90 messages deep, which protobuf does not read; flatten it"
        ),
        "{errors:?}"
    );
}
