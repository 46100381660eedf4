//! Documents that are right.

use super::*;

fn u32_value(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

#[test]
fn outlier_detection_is_read_in_either_way_of_writing() {
    let expected = OutlierDetection {
        consecutive_5xx: u32_value(3),
        interval: Some(Duration {
            seconds: 1,
            nanos: 500_000_000,
        }),
        base_ejection_time: Some(Duration {
            seconds: 0,
            nanos: 250_000_000,
        }),
        max_ejection_percent: u32_value(100),
        split_external_local_origin_errors: true,
        ..OutlierDetection::default()
    };
    let snake = "{ consecutive_5xx: 3, interval: 1.5s, base_ejection_time: 0.25s, max_ejection_percent: 100, \
                 split_external_local_origin_errors: true }";
    let camel = "{ consecutive5xx: \"3\", interval: 1.500000000s, baseEjectionTime: 250ms, maxEjectionPercent: 1e2, \
                 splitExternalLocalOriginErrors: true }";
    assert_eq!(typed::<OutlierDetection>(snake), expected);
    assert_eq!(typed::<OutlierDetection>(camel), expected);
    assert_eq!(typed::<OutlierDetection>("{}"), OutlierDetection::default());
}

#[test]
fn circuit_breakers_are_read_with_enums_by_name_and_number() {
    let threshold = |priority, max| Thresholds {
        priority,
        max_requests: u32_value(max),
        ..Thresholds::default()
    };
    let read: CircuitBreakers = typed(
        "thresholds:\n- { priority: DEFAULT, max_requests: 1 }\n- { priority: HIGH, max_requests: 0 }\n- { priority: 1, maxRequests: 4294967295 }",
    );
    let expected = vec![threshold(0, 1), threshold(1, 0), threshold(1, u32::MAX)];
    assert_eq!(read.thresholds, expected);
}

#[test]
fn a_message_of_a_named_type_goes_into_any() {
    let read: OutlierDetection = typed(
        "monitors:
- name: errors
  typed_config:
    '@type': type.googleapis.com/envoy.extensions.outlier_detection_monitors.consecutive_errors.v3.ConsecutiveErrors
    name: five
    threshold: 5
- name: any
  typedConfig: { '@type': type.googleapis.com/google.protobuf.Duration, value: 2s }
",
    );
    let any = |i: usize| read.monitors[i].typed_config.clone().unwrap();
    assert_eq!(
        any(0),
        Any {
            type_url: "type.googleapis.com/envoy.extensions.outlier_detection_monitors.consecutive_errors.v3.ConsecutiveErrors"
                .into(),
            value: b"\x0a\x04five\x12\x02\x08\x05".to_vec(),
        }
    );
    assert_eq!(
        Duration::decode(&*any(1).value),
        Ok(Duration {
            seconds: 2,
            nanos: 0
        })
    );
}

#[test]
fn a_whole_cluster_is_read() {
    let read: Cluster = typed(include_str!("cluster.yaml"));
    assert_eq!(read.name, "web");
    let options = &read.typed_extension_protocol_options;
    assert_eq!(options.len(), 1);
    let metadata = &read.metadata.unwrap().filter_metadata["envoy.lb"];
    assert_eq!(metadata.fields.len(), 6);
    let endpoints = read.load_assignment.unwrap().endpoints;
    assert_eq!(endpoints[0].load_balancing_weight, u32_value(7));
    assert_eq!(
        read.common_lb_config
            .unwrap()
            .healthy_panic_threshold
            .unwrap()
            .value,
        12.5
    );
}

#[test]
fn every_kind_of_value_has_its_form() {
    let cases = [
        ("google.protobuf.Value", "null", "null_value:NULL_VALUE"),
        ("google.protobuf.Value", "\"null\"", "string_value:\"null\""),
        ("google.protobuf.Value", "-1.5e2", "number_value:-150.0"),
        ("google.protobuf.Value", "true", "bool_value:true"),
        ("google.protobuf.Value", "\"true\"", "string_value:\"true\""),
        ("google.protobuf.Value", "word", "string_value:\"word\""),
        (
            "google.protobuf.ListValue",
            "[1]",
            "values:[{number_value:1.0}]",
        ),
        ("google.protobuf.Duration", "0.000000001s", "nanos:1"),
        ("google.protobuf.Duration", "5m", "seconds:300"),
        (
            "google.protobuf.Timestamp",
            "1969-12-31T23:59:59.5Z",
            "seconds:-1,nanos:500000000",
        ),
        ("google.protobuf.FloatValue", "0.1", "value:0.1"),
        ("google.protobuf.DoubleValue", "Infinity", "value:inf"),
        (
            "google.protobuf.Int64Value",
            "\"-9223372036854775808\"",
            "value:-9223372036854775808",
        ),
        (
            "google.protobuf.UInt64Value",
            "18446744073709551615",
            "value:18446744073709551615",
        ),
        ("google.protobuf.Int32Value", "-2.0", "value:-2"),
        ("google.protobuf.StringValue", "x", "value:\"x\""),
        ("google.protobuf.BytesValue", "_-8", "value:\"\\377\\357\""),
        ("google.protobuf.BytesValue", "/+8=", "value:\"\\377\\357\""),
        ("google.protobuf.BoolValue", "false", ""),
        (
            "google.protobuf.Any",
            "{ '@type': x/google.protobuf.Empty }",
            "[type.googleapis.com/google.protobuf.Empty]{}",
        ),
    ];
    let mut wrong = String::new();
    for (name, yaml, expected) in cases {
        let found = text(name, yaml);
        if found != expected {
            writeln!(
                wrong,
                "{name} {yaml}\n  expected {expected}\n  found    {found}"
            )
            .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn maps_are_written_in_the_order_of_their_keys_also_within_any() {
    // Design 4.4: the same content, the same bytes. A hash map's order differs from one map to the next.
    let name = "envoy.config.core.v3.Metadata";
    let of = |keys: &[&str]| {
        let fields: Vec<String> = keys
            .iter()
            .map(|k| format!("{k}: {{ b: 1, a: {{ z: 1, y: 2, x: 3 }} }}"))
            .collect();
        let fields = fields.join(", ");
        good(
            "google.protobuf.Any",
            &format!("{{ '@type': type.googleapis.com/{name}, filter_metadata: {{ {fields} }} }}"),
        )
    };
    let sorted = of(&["a", "b", "c", "d", "e", "f", "g"]);
    for _ in 0..20 {
        assert_eq!(of(&["g", "b", "f", "a", "e", "c", "d"]), sorted);
    }
    let at = |key: &[u8]| {
        sorted
            .windows(3)
            .position(|w| w == [b"\x0a\x01", key].concat())
            .unwrap()
    };
    assert!(at(b"c") < at(b"d") && at(b"d") < at(b"e") && at(b"e") < at(b"f"));
    assert!(at(b"x") < at(b"y") && at(b"y") < at(b"z"));
}

#[test]
fn what_is_deprecated_is_warned_of() {
    let (read, errors, warnings) = outcome(
        "envoy.config.cluster.v3.Cluster",
        b"{ name: a, http2_protocol_options: {} }",
    );
    assert!(read.is_some() && errors.is_empty(), "{errors:?}");
    assert_eq!(
        warnings,
        [
            "e.yaml:1:36 http2_protocol_options: this field is deprecated: a later Envoy will not take it; Envoy's documentation says what stands in its place"
        ]
    );
    let (_, _, warnings) = outcome(
        "envoy.config.route.v3.RateLimit.Action",
        b"{ dynamic_metadata: { descriptor_key: a, metadata_key: { key: b, path: [{ key: c }] } } }",
    );
    assert_eq!(
        warnings,
        [
            "e.yaml:1:21 dynamic_metadata: this field is deprecated: an Envoy refuses it unless its runtime allows it; Envoy's documentation says what stands in its place"
        ]
    );
}
