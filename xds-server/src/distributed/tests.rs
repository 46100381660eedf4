//! Semantics H7, check by check.

use vitals_prober::check::{
    GrpcSpec, HealthCheckSpec, HttpSpec, Kind, Profile, ProxyHeader, TcpSpec,
};

use super::*;
use crate::model::{Failover, Name, WhenAllUnhealthy};

fn check(spec: HealthCheckSpec) -> HealthCheck {
    HealthCheck::new(spec).unwrap()
}

fn tcp(request: Option<&str>, response: Option<&str>, matching: Option<TcpMatch>) -> HealthCheck {
    check(HealthCheckSpec::tcp(TcpSpec {
        request: request.map(Into::into),
        response: response.map(Into::into),
        matching,
    }))
}

fn with_threshold(spec: HealthCheckSpec, unhealthy: u64) -> HealthCheck {
    check(HealthCheckSpec {
        unhealthy_threshold: Some(unhealthy),
        ..spec
    })
}

fn field(check: &HealthCheck, protocol: Protocol) -> Option<&'static str> {
    expressible(check, protocol).err().map(|found| found.field)
}

#[test]
fn h7_http_tcp_and_ssl_are_expressible_over_every_protocol() {
    for protocol in Protocol::ALL {
        for kind in [Kind::Tcp, Kind::Ssl, Kind::Http, Kind::Https, Kind::Http2] {
            assert_eq!(field(&check(HealthCheckSpec::of(kind)), protocol), None);
        }
        let contains = tcp(Some("PING"), Some("PONG"), Some(TcpMatch::Contains));
        assert_eq!(field(&contains, protocol), None);
    }
}

#[test]
fn h7_a_tcp_answer_is_found_anywhere_or_not_at_all() {
    for (matching, word) in [
        (None, "EXACT"),
        (Some(TcpMatch::Exact), "EXACT"),
        (Some(TcpMatch::Prefix), "PREFIX"),
    ] {
        let found = expressible(&tcp(None, Some("220"), matching), Protocol::Tcp).unwrap_err();
        assert_eq!(
            (found.field, found.nearest),
            ("tcp.match", "write match: CONTAINS")
        );
        assert!(found.why.ends_with(word), "{found}");
    }
    assert_eq!(
        field(&tcp(Some("QUIT"), None, None), Protocol::Tcp),
        Some("tcp.request")
    );
}

#[test]
fn h7_what_envoy_ejects_for_at_once_needs_a_threshold_of_one() {
    let body = || HealthCheckSpec {
        http: HttpSpec {
            response: Some("ok".into()),
            ..HttpSpec::default()
        },
        ..HealthCheckSpec::of(Kind::Http)
    };
    assert_eq!(
        field(&with_threshold(body(), 2), Protocol::Http),
        Some("http.response")
    );
    assert_eq!(field(&with_threshold(body(), 1), Protocol::Http), None);
    for kind in [Kind::Grpc, Kind::GrpcWithTls] {
        let spec = || HealthCheckSpec::of(kind);
        assert_eq!(
            field(&with_threshold(spec(), 2), Protocol::Grpc),
            Some("unhealthyThreshold")
        );
        assert_eq!(field(&with_threshold(spec(), 1), Protocol::Grpc), None);
    }
}

#[test]
fn h7_grpc_is_asked_over_http2_services_only() {
    let health = with_threshold(HealthCheckSpec::of(Kind::Grpc), 1);
    for protocol in Protocol::ALL {
        let expected = (!protocol.is_http2()).then_some("type");
        assert_eq!(field(&health, protocol), expected, "{protocol:?}");
    }
}

#[test]
fn h7_grpc_by_code_is_not_expressible() {
    let by_code = with_threshold(
        HealthCheckSpec {
            grpc: GrpcSpec {
                method: Some("/a.B/c".into()),
                expected_codes: Some("12".into()),
                ..GrpcSpec::default()
            },
            ..HealthCheckSpec::of(Kind::Grpc)
        },
        1,
    );
    assert_eq!(field(&by_code, Protocol::Grpc), Some("grpc.method"));
    assert_eq!(found(&by_code, Protocol::Grpc), []);
}

fn found(check: &HealthCheck, protocol: Protocol) -> Vec<Deviation> {
    deviations(check, &service(protocol))
}

fn service(protocol: Protocol) -> Service {
    Service::new(Name::new("shop").unwrap(), protocol)
}

#[test]
fn h7_p10_p12_tls_is_not_looked_at_as_a_prober_does() {
    use Deviation::{AnyAlpn, KeyUsage};
    for (kind, expected) in [
        (Kind::Tcp, vec![]),
        (Kind::Http, vec![]),
        (Kind::Ssl, vec![KeyUsage]),
        (Kind::Https, vec![KeyUsage]),
        (Kind::Http2, vec![KeyUsage, AnyAlpn]),
        (Kind::Grpc, vec![]),
        (Kind::GrpcWithTls, vec![KeyUsage, AnyAlpn]),
    ] {
        let mut all = found(
            &with_threshold(HealthCheckSpec::of(kind), 1),
            Protocol::Grpc,
        );
        all.retain(|one| [KeyUsage, AnyAlpn].contains(one));
        assert_eq!(all, expected, "{kind:?}");
    }
}

#[test]
fn h6_h7_only_where_all_may_share_the_traffic_draining_ones_may_too() {
    let tcp = check(HealthCheckSpec::of(Kind::Tcp));
    let mut shop = service(Protocol::Tcp);
    let panics = |shop: &Service| deviations(&tcp, shop).contains(&Deviation::DrainingInPanic);
    assert!(!panics(&shop));
    shop.when_all_unhealthy = WhenAllUnhealthy::FailOpen;
    assert!(panics(&shop));
    shop.failover = Some(Failover {
        ratio: 0.0,
        failback_ratio: 0.0,
        drop_traffic_if_unhealthy: true,
    });
    assert!(!panics(&shop));
}

#[test]
fn h7_deviations_are_those_that_the_check_can_show() {
    use Deviation::{
        Close as Closing, EndToStart, FirstWord, Jitter, NoInconclusive, StrangeStatus, WholeBody,
    };
    let always = [EndToStart, Jitter, NoInconclusive];
    let of = |check: &HealthCheck| found(check, Protocol::Http);
    assert_eq!(of(&check(HealthCheckSpec::of(Kind::Tcp))), always);
    assert_eq!(
        of(&check(HealthCheckSpec::of(Kind::Http))),
        [EndToStart, Jitter, NoInconclusive, WholeBody, StrangeStatus]
    );
    let body = with_threshold(
        HealthCheckSpec {
            http: HttpSpec {
                response: Some("ok".into()),
                ..HttpSpec::default()
            },
            close: Some(Close::Fin),
            ..HealthCheckSpec::of(Kind::Http)
        },
        1,
    );
    assert_eq!(
        of(&body),
        [EndToStart, Jitter, NoInconclusive, WholeBody, Closing]
    );
    let tencent = check(HealthCheckSpec {
        profile: Some(Profile::TencentAlb),
        ..HealthCheckSpec::of(Kind::Tcp)
    });
    assert_eq!(
        of(&tencent),
        [EndToStart, Jitter, NoInconclusive, FirstWord]
    );
}

#[test]
fn h7_a_tcp_check_without_a_response_sends_no_proxy_header() {
    let with = |kind, matching: Option<TcpMatch>| {
        let tcp = TcpSpec {
            response: matching.map(|_| "220".into()),
            matching,
            ..TcpSpec::default()
        };
        let check = check(HealthCheckSpec {
            proxy_header: Some(ProxyHeader::V1),
            tcp,
            ..HealthCheckSpec::of(kind)
        });
        found(&check, Protocol::Tcp).contains(&Deviation::NoProxyHeader)
    };
    assert!(with(Kind::Tcp, None));
    assert!(!with(Kind::Tcp, Some(TcpMatch::Contains)));
    assert!(!with(Kind::Ssl, None), "the handshake waits for an answer");
}

#[test]
fn h7_first_checks_are_spread_over_at_most_a_second() {
    let slow = check(HealthCheckSpec::of(Kind::Tcp));
    assert_eq!(initial_jitter(&slow), Duration::from_secs(1));
    let quick = check(HealthCheckSpec {
        check_interval: Some(Duration::from_millis(200)),
        ..HealthCheckSpec::of(Kind::Tcp)
    });
    assert_eq!(initial_jitter(&quick), Duration::from_millis(200));
}
