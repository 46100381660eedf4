use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use prost::{Message, Name};
use vitals_prober::check::{
    GrpcSpec, HealthCheckSpec, HttpSpec, Kind, ProxyHeader, TcpSpec, TlsSpec,
};

use super::*;
use crate::distributed::expressible;
use crate::model;

fn check(spec: HealthCheckSpec) -> check::HealthCheck {
    check::HealthCheck::new(spec).unwrap()
}

fn rendered(spec: HealthCheckSpec) -> EnvoyCheck {
    health_check(&check(spec), None).unwrap()
}

fn http(spec: HttpSpec) -> HttpHealthCheck {
    match rendered(HealthCheckSpec {
        unhealthy_threshold: Some(1),
        ..HealthCheckSpec::http(spec)
    })
    .health_check
    .health_checker
    {
        Some(HealthChecker::HttpHealthCheck(http)) => http,
        other => panic!("{other:?}"),
    }
}

fn decoded<M: Message + Name + Default>(socket: &TransportSocket) -> M {
    let Some(ConfigType::TypedConfig(any)) = &socket.config_type else {
        panic!("{socket:?}");
    };
    assert_eq!(any.type_url, M::type_url());
    M::decode(&*any.value).unwrap()
}

fn own_socket(spec: HealthCheckSpec) -> TransportSocket {
    rendered(spec).socket.unwrap().transport_socket.unwrap()
}

#[test]
fn h7_times_thresholds_and_jitter() {
    let slow = rendered(HealthCheckSpec {
        check_interval: Some(Duration::from_secs(5)),
        timeout: Some(Duration::from_secs(3)),
        healthy_threshold: Some(4),
        unhealthy_threshold: Some(6),
        ..HealthCheckSpec::of(Kind::Http)
    })
    .health_check;
    let seconds = |seconds| Some(duration(Duration::from_secs(seconds)));
    assert_eq!(slow.interval, seconds(5));
    assert_eq!(slow.timeout, seconds(3));
    assert_eq!(slow.no_traffic_interval, seconds(5), "else 60 s");
    assert_eq!(slow.initial_jitter, seconds(1));
    assert_eq!(slow.interval_jitter_percent, 10);
    assert_eq!(slow.healthy_threshold, Some(UInt32Value { value: 4 }));
    assert_eq!(slow.unhealthy_threshold, Some(UInt32Value { value: 6 }));
    assert_eq!(
        slow.reuse_connection,
        Some(BoolValue { value: false }),
        "P15"
    );
    let fast = rendered(HealthCheckSpec {
        check_interval: Some(Duration::from_millis(250)),
        ..HealthCheckSpec::of(Kind::Tcp)
    })
    .health_check;
    assert_eq!(
        fast.initial_jitter,
        Some(duration(Duration::from_millis(250)))
    );
}

#[test]
fn h7_every_status_that_does_not_pass_counts_to_the_threshold() {
    let statuses = |items: &[&str]| {
        http(HttpSpec {
            expected_statuses: Some(items.iter().map(|&item| item.into()).collect()),
            ..HttpSpec::default()
        })
    };
    for items in [
        &["200"][..],
        &["100", "599"],
        &["http_2xx", "http_3xx", "418"],
        &["http_1xx", "http_2xx", "http_3xx", "http_4xx", "http_5xx"],
    ] {
        let http = statuses(items);
        let has = |ranges: &[Int64Range], status: i64| {
            ranges
                .iter()
                .filter(|range| (range.start..range.end).contains(&status))
                .count()
        };
        let check = check(HealthCheckSpec::http(HttpSpec {
            expected_statuses: Some(items.iter().map(|&item| item.into()).collect()),
            ..HttpSpec::default()
        }));
        let check::Protocol::Http(asked) = check.protocol() else {
            panic!("{check:?}")
        };
        for status in 100..=599_u16 {
            let passes = asked.expected_statuses().contains(status);
            let of = |ranges| has(ranges, status.into());
            assert_eq!(
                of(&http.expected_statuses),
                usize::from(passes),
                "{items:?} {status}"
            );
            assert_eq!(
                of(&http.retriable_statuses),
                usize::from(!passes),
                "{items:?} {status}"
            );
        }
        for range in http
            .expected_statuses
            .iter()
            .chain(&http.retriable_statuses)
        {
            // Envoy refuses others, and empty ones say nothing.
            assert!(
                100 <= range.start && range.start < range.end && range.end <= 600,
                "{range:?}"
            );
        }
    }
}

#[test]
fn p6_p7_method_path_host_and_headers() {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let http = http(HttpSpec {
        request_path: Some("/healthz?deep=1".into()),
        method: Some(Method::Head),
        host: Some("app.example".into()),
        headers: vec![
            header("user-agent", "pulse"),
            header("x-share", "100%"),
            header("X-Share", ""),
        ],
        ..HttpSpec::default()
    });
    assert_eq!(
        (&*http.path, &*http.host),
        ("/healthz?deep=1", "app.example")
    );
    assert_eq!(http.method(), RequestMethod::Head);
    assert_eq!(http.codec_client_type(), CodecClientType::Http1);
    let options: Vec<_> = http
        .request_headers_to_add
        .iter()
        .map(|option| {
            let header = option.header.as_ref().unwrap();
            assert!(option.keep_empty_value);
            (&*header.key, &*header.value, option.append_action())
        })
        .collect();
    use HeaderAppendAction::{AppendIfExistsOrAdd, OverwriteIfExistsOrAdd};
    assert_eq!(
        options,
        [
            ("user-agent", "pulse", OverwriteIfExistsOrAdd),
            ("x-share", "100%%", OverwriteIfExistsOrAdd),
            ("X-Share", "", AppendIfExistsOrAdd),
        ]
    );
}

#[test]
fn h7_strings_are_hexadecimal_text_in_one_block() {
    let http = http(HttpSpec {
        response: Some("ok\u{7e}".into()),
        ..HttpSpec::default()
    });
    assert_eq!(http.receive, [hex("ok~")]);
    assert_eq!(
        hex("ok~").payload,
        Some(payload::Payload::Text("6f6b7e".into()))
    );
    let tcp = rendered(HealthCheckSpec::tcp(TcpSpec {
        request: Some("PING".into()),
        response: Some("+PONG".into()),
        matching: Some(TcpMatch::Contains),
    }));
    let expected = TcpHealthCheck {
        send: Some(hex("PING")),
        receive: vec![hex("+PONG")],
        ..TcpHealthCheck::default()
    };
    assert_eq!(
        tcp.health_check.health_checker,
        Some(HealthChecker::TcpHealthCheck(expected))
    );
}

#[test]
fn h7_what_envoy_has_no_words_for_is_not_rendered() {
    let threshold = |unhealthy, spec: HealthCheckSpec| {
        let spec = HealthCheckSpec {
            unhealthy_threshold: Some(unhealthy),
            ..spec
        };
        let check = check(spec);
        let is_rendered = health_check(&check, None).is_some();
        let may_be_asked = expressible(&check, model::Protocol::Grpc).is_ok();
        assert_eq!(is_rendered, may_be_asked, "{check:?}");
        is_rendered
    };
    let grpc = |grpc: GrpcSpec| HealthCheckSpec {
        grpc,
        ..HealthCheckSpec::of(Kind::Grpc)
    };
    let body = || {
        HealthCheckSpec::http(HttpSpec {
            response: Some("ok".into()),
            ..HttpSpec::default()
        })
    };
    let tcp = |request: Option<&str>, response: Option<&str>, matching| {
        HealthCheckSpec::tcp(TcpSpec {
            request: request.map(Into::into),
            response: response.map(Into::into),
            matching,
        })
    };
    let by_code = GrpcSpec {
        method: Some("/a.B/c".into()),
        expected_codes: Some("0".into()),
        ..GrpcSpec::default()
    };
    for (expressible, at, spec) in [
        (true, 1, body()),
        (false, 2, body()),
        (true, 1, grpc(GrpcSpec::default())),
        (false, 2, grpc(GrpcSpec::default())),
        (false, 1, grpc(by_code)),
        (true, 3, tcp(None, None, None)),
        (true, 3, tcp(Some("a"), Some("b"), Some(TcpMatch::Contains))),
        (false, 3, tcp(Some("a"), None, None)),
        (false, 3, tcp(None, Some("b"), None)),
        (false, 3, tcp(None, Some("b"), Some(TcpMatch::Exact))),
        (false, 3, tcp(None, Some("b"), Some(TcpMatch::Prefix))),
        (true, 3, HealthCheckSpec::of(Kind::Ssl)),
        (true, 3, HealthCheckSpec::of(Kind::Https)),
        (true, 3, HealthCheckSpec::of(Kind::Http2)),
    ] {
        assert_eq!(threshold(at, spec.clone()), expressible, "{spec:?} at {at}");
    }
}

#[test]
fn p12_grpc_asks_for_its_service_under_its_host() {
    let grpc = rendered(HealthCheckSpec {
        unhealthy_threshold: Some(1),
        grpc: GrpcSpec {
            host: Some("app.example".into()),
            service_name: Some("shop.Cart".into()),
            ..GrpcSpec::default()
        },
        ..HealthCheckSpec::of(Kind::GrpcWithTls)
    });
    let expected = GrpcHealthCheck {
        service_name: "shop.Cart".into(),
        authority: "app.example".into(),
        ..GrpcHealthCheck::default()
    };
    assert_eq!(
        grpc.health_check.health_checker,
        Some(HealthChecker::GrpcHealthCheck(expected))
    );
}

#[test]
fn a_check_over_the_traffics_transport_brings_no_socket() {
    let plain = rendered(HealthCheckSpec::of(Kind::Http));
    assert_eq!(plain.socket, None);
    assert_eq!(plain.health_check.transport_socket_match_criteria, None);
    // The cluster speaks TLS just as the check does.
    let tls = check(HealthCheckSpec::of(Kind::Https));
    let same = transport::of_check(&tls, None);
    assert_eq!(health_check(&tls, same.as_ref()).unwrap().socket, None);
}

#[test]
fn another_transport_is_found_by_criteria_that_no_endpoint_has() {
    // A plain check in a cluster that speaks TLS (design 5.2).
    let traffic = transport::of_check(&check(HealthCheckSpec::of(Kind::Https)), None);
    let plain = health_check(&check(HealthCheckSpec::of(Kind::Http)), traffic.as_ref()).unwrap();
    let socket = plain.socket.unwrap();
    assert_eq!(socket.transport_socket, Some(transport::plain()));
    let criteria = plain.health_check.transport_socket_match_criteria;
    assert_eq!(criteria, socket.r#match);
    assert!(
        !criteria.unwrap().fields.is_empty(),
        "empty criteria would match all traffic"
    );
}

#[test]
fn p10_a_tls_check_validates_nothing_and_offers_its_protocol() {
    for (kind, alpn) in [
        (Kind::Ssl, &[][..]),
        (Kind::Https, &["http/1.1"]),
        (Kind::Http2, &["h2"]),
    ] {
        let context: UpstreamTlsContext = decoded(&own_socket(HealthCheckSpec::of(kind)));
        let common = context.common_tls_context.unwrap();
        assert_eq!(common.alpn_protocols, alpn, "{kind:?}");
        assert_eq!(common.validation_context_type, None);
        assert_eq!(context.sni, "");
        assert_eq!(context.max_session_keys, Some(UInt32Value { value: 0 }));
    }
}

#[test]
fn p10_the_server_name_is_sni_else_host_and_verify_holds_the_certificate_to_it() {
    let spec = |sni: Option<&str>, verify| HealthCheckSpec {
        http: HttpSpec {
            host: Some("app.example:8443".into()),
            ..HttpSpec::default()
        },
        tls: Some(TlsSpec {
            sni: sni.map(Into::into),
            verify: Some(verify),
            ..TlsSpec::default()
        }),
        ..HealthCheckSpec::of(Kind::Https)
    };
    let context = |sni, verify| decoded::<UpstreamTlsContext>(&own_socket(spec(sni, verify)));
    assert_eq!(context(None, false).sni, "app.example");
    let verified = context(Some("www.example"), true);
    assert_eq!(verified.sni, "www.example");
    let text = format!("{:?}", verified.common_tls_context);
    assert!(text.contains("ca-certificates.crt"), "{text}");
    assert!(text.contains("Exact(\"www.example\")"), "{text}");
}

#[test]
fn p11_a_proxy_header_opens_the_connection_before_tls() {
    for (header, version) in [(ProxyHeader::V1, 0), (ProxyHeader::V2, 1)] {
        for (kind, inner) in [
            (Kind::Tcp, "envoy.transport_sockets.raw_buffer"),
            (Kind::Https, "envoy.transport_sockets.tls"),
        ] {
            let socket = own_socket(HealthCheckSpec {
                proxy_header: Some(header),
                ..HealthCheckSpec::of(kind)
            });
            let transport: ProxyProtocolUpstreamTransport = decoded(&socket);
            assert_eq!(transport.config.unwrap().version, version);
            assert_eq!(transport.transport_socket.unwrap().name, inner);
        }
    }
}
