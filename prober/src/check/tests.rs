//! Tests of `check`: each rule of semantics P2–P8, P10, by its number.

use super::*;

fn http(http: HttpSpec) -> Result<HealthCheck, Vec<CheckError>> {
    HealthCheck::new(HealthCheckSpec::http(http))
}

fn fields(result: Result<HealthCheck, Vec<CheckError>>) -> Vec<String> {
    result
        .expect_err("the spec must be refused")
        .into_iter()
        .map(|e| e.field)
        .collect()
}

#[test]
fn p2_defaults_of_profile_gcp() {
    let check = http(HttpSpec::default()).unwrap();
    assert_eq!(check.interval(), Duration::from_secs(5));
    assert_eq!(check.timeout(), Duration::from_secs(5));
    assert_eq!(
        check.thresholds(),
        Thresholds {
            healthy: 2,
            unhealthy: 2,
            at_first: false
        }
    );
    let Protocol::Http(http) = check.protocol() else {
        panic!("an HTTP check")
    };
    assert_eq!((http.method(), http.request_path()), (Method::Get, "/"));
    assert_eq!(http.expected_statuses().ranges(), [(200, 200)]);
}

#[test]
fn p2_all_errors_come_at_once() {
    let spec = HealthCheckSpec {
        check_interval: Some(Duration::from_secs(1)),
        timeout: Some(Duration::from_secs(2)),
        healthy_threshold: Some(0),
        unhealthy_threshold: Some(11),
        fixed_port: Some(0),
        ..HealthCheckSpec::tcp(TcpSpec {
            matching: Some(TcpMatch::Prefix),
            ..TcpSpec::default()
        })
    };
    assert_eq!(
        fields(HealthCheck::new(spec)),
        [
            "timeout",
            "healthyThreshold",
            "unhealthyThreshold",
            "port",
            "tcp.match"
        ]
    );
}

#[test]
fn p2_a_short_interval_shortens_the_default_timeout() {
    let spec = HealthCheckSpec {
        check_interval: Some(Duration::from_secs(1)),
        ..HealthCheckSpec::of(Kind::Tcp)
    };
    assert_eq!(
        HealthCheck::new(spec).unwrap().timeout(),
        Duration::from_secs(1)
    );
}

#[test]
fn p5_strings_are_printable_ascii_and_bounded() {
    let with = |response: &str| {
        http(HttpSpec {
            response: Some(response.into()),
            ..HttpSpec::default()
        })
    };
    assert!(with(&"x".repeat(1024)).is_ok());
    assert_eq!(fields(with(&"x".repeat(1025))), ["http.response"]);
    assert_eq!(fields(with("grün")), ["http.response"]);
    assert_eq!(fields(with("two\nlines")), ["http.response"]);
    assert_eq!(fields(with("")), ["http.response"]);
}

#[test]
fn p6_status_sets_take_codes_ranges_and_classes() {
    let with = |items: &[&str]| {
        http(HttpSpec {
            expected_statuses: Some(items.iter().map(|&s| s.into()).collect()),
            ..HttpSpec::default()
        })
    };
    let check = with(&["http_3xx", "204", "200-203", "418"]).unwrap();
    let Protocol::Http(http) = check.protocol() else {
        panic!("an HTTP check")
    };
    assert_eq!(
        http.expected_statuses().ranges(),
        [(200, 204), (300, 399), (418, 418)]
    );
    assert_eq!(
        http.expected_statuses().to_string(),
        "200-204, 300-399, 418"
    );
    for bad in [
        "2xx",
        "99",
        "600",
        "299-200",
        "http_6xx",
        "0200",
        "+20",
        "",
        "200-",
        "http_+2xx",
    ] {
        assert_eq!(
            fields(with(&[bad])),
            ["http.expectedStatuses[0]"],
            "{bad:?}"
        );
    }
    assert_eq!(fields(with(&[])), ["http.expectedStatuses"]);
}

#[test]
fn p6_head_has_no_body_to_match() {
    let spec = HttpSpec {
        method: Some(Method::Head),
        response: Some("ok".into()),
        ..HttpSpec::default()
    };
    assert_eq!(fields(http(spec)), ["http.response"]);
}

#[test]
fn headers_cannot_split_the_request() {
    let with = |name: &str, value: &str| {
        http(HttpSpec {
            headers: vec![(name.into(), value.into())],
            ..HttpSpec::default()
        })
    };
    assert!(with("x-probe", "vitals").is_ok());
    assert_eq!(fields(with("x", "a\r\nb: c")), ["http.headers.x"]);
    assert_eq!(fields(with("x y", "a")), ["http.headers.x y"]);
    assert_eq!(fields(with("Host", "a")), ["http.headers.Host"]);
    assert_eq!(
        fields(with("Content-Length", "5")),
        ["http.headers.Content-Length"]
    );
}

fn refused(spec: HealthCheckSpec) -> Vec<String> {
    HealthCheck::new(spec)
        .err()
        .unwrap_or_default()
        .into_iter()
        .map(|error| error.field)
        .collect()
}

/// A spec that a profile takes, for a type.
fn fitting(profile: Profile, kind: Kind) -> HealthCheckSpec {
    let host = (profile == Profile::TencentAlb).then(|| "a.example".to_owned());
    HealthCheckSpec {
        profile: Some(profile),
        fixed_port: (profile == Profile::GcpLegacy).then_some(8080),
        http: HttpSpec {
            host: host.clone(),
            expected_statuses: (profile == Profile::TencentAlb).then(|| vec!["http_2xx".into()]),
            ..HttpSpec::default()
        },
        grpc: GrpcSpec {
            host,
            ..GrpcSpec::default()
        },
        ..HealthCheckSpec::of(kind)
    }
}

#[test]
fn p2_each_profile_has_its_types() {
    use Kind::{Grpc, GrpcWithTls, Http, Http2, Https, Ssl, Tcp};
    for (profile, kinds) in [
        (
            Profile::Gcp,
            &[Tcp, Ssl, Http, Https, Http2, Grpc, GrpcWithTls][..],
        ),
        (Profile::GcpLegacy, &[Http, Https]),
        (Profile::TencentAlb, &[Tcp, Http, Https, Grpc, GrpcWithTls]),
        (Profile::AzureLb, &[Tcp, Http, Https]),
    ] {
        for kind in Kind::ALL {
            let result = HealthCheck::new(fitting(profile, kind));
            assert_eq!(
                result.is_ok(),
                kinds.contains(&kind),
                "{profile:?} {kind:?}: {result:?}"
            );
            match result {
                Ok(check) => {
                    assert_eq!(check.type_name(), kind.name());
                    assert_eq!(
                        check.is_tls(),
                        [Ssl, Https, Http2, GrpcWithTls].contains(&kind)
                    );
                }
                Err(errors) => assert_eq!(errors[0].field, "type", "{errors:?}"),
            }
        }
        let untyped = HealthCheckSpec {
            kind: None,
            ..fitting(profile, Tcp)
        };
        match HealthCheck::new(untyped) {
            Ok(check) => assert_eq!((profile, check.kind()), (Profile::TencentAlb, Tcp)),
            Err(errors) => assert_eq!(errors[0].field, "type", "{errors:?}"),
        }
    }
}

#[test]
fn p2_each_profile_has_its_defaults() {
    let secs = Duration::from_secs;
    for (profile, timeout, threshold, method, statuses) in [
        (Profile::Gcp, 5, 2, Method::Get, (200, 200)),
        (Profile::GcpLegacy, 5, 2, Method::Get, (200, 200)),
        (Profile::TencentAlb, 2, 3, Method::Head, (200, 299)),
        (Profile::AzureLb, 5, 1, Method::Get, (200, 200)),
    ] {
        let check = HealthCheck::new(fitting(profile, Kind::Http)).unwrap();
        assert_eq!(
            (check.interval(), check.timeout()),
            (secs(5), secs(timeout)),
            "{profile:?}"
        );
        let thresholds = Thresholds {
            healthy: threshold,
            unhealthy: threshold,
            at_first: profile == Profile::TencentAlb,
        };
        assert_eq!(check.thresholds(), thresholds, "{profile:?}");
        let Protocol::Http(http) = check.protocol() else {
            panic!("an HTTP check")
        };
        assert_eq!(http.method(), method, "{profile:?}");
        assert_eq!(http.expected_statuses().ranges(), [statuses], "{profile:?}");
    }
}

#[test]
fn p2_each_profile_has_its_ranges() {
    let ms = |ms: u64| Some(Duration::from_millis(ms));
    type Change = fn(&mut HealthCheckSpec, u64);
    let interval: Change = |spec, n| spec.check_interval = Some(Duration::from_millis(n));
    let timeout: Change = |spec, n| {
        spec.check_interval = Some(Duration::from_secs(300));
        spec.timeout = Some(Duration::from_millis(n));
    };
    let healthy: Change = |spec, n| spec.healthy_threshold = Some(n);
    let unhealthy: Change = |spec, n| spec.unhealthy_threshold = Some(n);
    for (profiles, field, change, least, greatest) in [
        (false, "checkInterval", interval, 100, 300_000),
        (false, "timeout", timeout, 100, 300_000),
        (false, "healthyThreshold", healthy, 1, 10),
        (false, "unhealthyThreshold", unhealthy, 1, 10),
        // TENCENT_ALB: an interval of 2 s leaves no shorter timeout, so the least that can be is a little more.
        (true, "checkInterval", interval, 2_001, 300_000),
        (true, "timeout", timeout, 2_000, 60_000),
        (true, "healthyThreshold", healthy, 2, 10),
        (true, "unhealthyThreshold", unhealthy, 2, 10),
    ] {
        for profile in Profile::ALL {
            if (profile == Profile::TencentAlb) != profiles {
                continue;
            }
            let with = |n| {
                let mut spec = fitting(profile, Kind::Http);
                change(&mut spec, n);
                refused(spec)
            };
            assert_eq!(with(least), [""; 0], "{profile:?} {field} {least}");
            assert_eq!(with(greatest), [""; 0], "{profile:?} {field} {greatest}");
            assert!(
                !with(least - 1).is_empty(),
                "{profile:?} {field} {}",
                least - 1
            );
            assert_eq!(with(greatest + 1), [field], "{profile:?} {field}");
        }
    }
    // The timeout is at most the interval; under TENCENT_ALB it is shorter.
    for (profile, interval, timeout, fields) in [
        (Profile::Gcp, 3_000, 3_000, &[][..]),
        (Profile::Gcp, 3_000, 3_001, &["timeout"]),
        (Profile::TencentAlb, 3_000, 2_999, &[]),
        (Profile::TencentAlb, 3_000, 3_000, &["timeout"]),
        (Profile::TencentAlb, 2_000, 2_000, &["timeout"]),
    ] {
        let spec = HealthCheckSpec {
            check_interval: ms(interval),
            timeout: ms(timeout),
            ..fitting(profile, Kind::Http)
        };
        assert_eq!(refused(spec), fields, "{profile:?} {interval} {timeout}");
    }
}

#[test]
fn p2_each_profile_refuses_what_it_has_not() {
    type Change = fn(&mut HealthCheckSpec);
    let request: Change = |spec| spec.tcp.request = Some("PING".into());
    let tcp_response: Change = |spec| spec.tcp.response = Some("PONG".into());
    let response: Change = |spec| {
        spec.http.method = Some(Method::Get);
        spec.http.response = Some("ok".into());
    };
    let proxy: Change = |spec| spec.proxy_header = Some(ProxyHeader::V1);
    let serving_port: Change = |spec| spec.fixed_port = None;
    let other_status: Change = |spec| spec.http.expected_statuses = Some(vec!["200-299".into()]);
    let only_200: Change = |spec| spec.http.expected_statuses = Some(vec!["200".into()]);
    let no_statuses: Change = |spec| spec.http.expected_statuses = None;
    let no_host: Change = |spec| (spec.http.host, spec.grpc.host) = (None, None);
    use Profile::{AzureLb, Gcp, GcpLegacy, TencentAlb};
    for (kind, change, field, profiles) in [
        (
            Kind::Tcp,
            request,
            "tcp.request",
            &[TencentAlb, AzureLb][..],
        ),
        (
            Kind::Tcp,
            tcp_response,
            "tcp.response",
            &[TencentAlb, AzureLb],
        ),
        (
            Kind::Http,
            response,
            "http.response",
            &[GcpLegacy, TencentAlb, AzureLb],
        ),
        (
            Kind::Http,
            proxy,
            "proxyHeader",
            &[GcpLegacy, TencentAlb, AzureLb],
        ),
        (Kind::Http, serving_port, "portSpecification", &[GcpLegacy]),
        (
            Kind::Http,
            other_status,
            "http.expectedStatuses",
            &[GcpLegacy],
        ),
        (
            Kind::Http,
            other_status,
            "http.expectedStatuses[0]",
            &[TencentAlb],
        ),
        (
            Kind::Http,
            only_200,
            "http.expectedStatuses[0]",
            &[TencentAlb],
        ),
        (
            Kind::Http,
            no_statuses,
            "http.expectedStatuses",
            &[TencentAlb],
        ),
        (Kind::Http, no_host, "http.host", &[TencentAlb]),
        (Kind::Grpc, no_host, "grpc.host", &[TencentAlb]),
    ] {
        for profile in [Gcp, GcpLegacy, TencentAlb, AzureLb] {
            if !profile.kinds().contains(&kind) {
                continue;
            }
            let mut spec = fitting(profile, kind);
            change(&mut spec);
            let fields = refused(spec);
            assert_eq!(
                fields.contains(&field.to_owned()),
                profiles.contains(&profile),
                "{profile:?} {field}: {fields:?}"
            );
        }
    }
}

#[test]
fn p6_p7_tencent_alb_is_strict_about_path_and_host() {
    let with = |path: &str, host: &str| {
        let mut spec = fitting(Profile::TencentAlb, Kind::Https);
        spec.http.request_path = Some(path.into());
        spec.http.host = Some(host.into());
        refused(spec)
    };
    assert_eq!(with("/a-b_c.d/?e=1", "a-1.example"), [""; 0]);
    assert_eq!(
        with(&format!("/{}", "x".repeat(199)), &"a".repeat(80)),
        [""; 0]
    );
    for path in [
        &format!("/{}", "x".repeat(200))[..],
        "/a b",
        "/%20",
        "/a&b",
        "a",
    ] {
        assert!(
            with(path, "a.example").contains(&"http.requestPath".into()),
            "{path}"
        );
    }
    for host in ["*.example", "A.example", "a_b", "a:80", "", &"a".repeat(81)] {
        assert_eq!(with("/", host), ["http.host"], "{host}");
    }
}

#[test]
fn p10_roots_keep_their_certificates_and_nothing_else_of_the_file() {
    let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let file = format!("# ours\r\n{key}{}{pem}", pem.replace('\n', "\r\n"));
    let check = HealthCheck::new(HealthCheckSpec {
        tls: Some(TlsSpec {
            verify: Some(true),
            roots: Some(file.into()),
            sni: None,
        }),
        ..HealthCheckSpec::of(Kind::Https)
    })
    .unwrap();
    let kept = check.tls().unwrap().roots().unwrap().pem().to_owned();
    assert_eq!(kept, format!("{pem}{pem}").replace('\r', ""));
}

#[test]
fn p10_tls_is_checked_for_the_types_that_speak_it() {
    let with = |kind, tls| {
        refused(HealthCheckSpec {
            tls: Some(tls),
            ..HealthCheckSpec::of(kind)
        })
    };
    let sni = |sni: &str| TlsSpec {
        sni: Some(sni.into()),
        ..TlsSpec::default()
    };
    assert_eq!(with(Kind::Ssl, sni("a.example")), [""; 0]);
    for bad in [
        "192.0.2.1",
        "2001:db8::1",
        "[2001:db8::1]",
        "a.example:443",
        "*.example",
        "",
    ] {
        assert_eq!(with(Kind::Ssl, sni(bad)), ["tls.sni"], "{bad}");
    }
    let roots = |verify, pem: &str| TlsSpec {
        verify,
        roots: Some(pem.into()),
        sni: None,
    };
    let pem = rcgen::generate_simple_self_signed(["a".to_owned()])
        .unwrap()
        .cert
        .pem();
    assert_eq!(with(Kind::Https, roots(Some(true), &pem)), [""; 0]);
    assert_eq!(with(Kind::Https, roots(None, &pem)), ["tls.roots"]);
    for bad in [
        "",
        "no PEM",
        &pem.replace('M', "!"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        assert_eq!(
            with(Kind::Https, roots(Some(true), bad)),
            ["tls.roots"],
            "{bad}"
        );
    }
}
