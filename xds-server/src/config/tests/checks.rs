//! Health checks of every type and profile: what is taken, with its defaults, and what is refused, with its place.

use std::fs;

use vitals_prober::check::{
    Close, GrpcAsk, HealthCheck, Kind, Method, Profile, Protocol as Asked, ProxyHeader,
};

use super::bad::{Case, WEB, check};
use super::*;

/// The check of a service that names the only one; `rest`: what stands behind it.
fn read(check: &str, protocol: &str, rest: &str) -> Arc<HealthCheck> {
    let loaded = good(&format!(
        "healthChecks: [{check}]\nbackendServices: [{{ name: a, protocol: {protocol}, healthCheck: c }}]\n{rest}"
    ));
    Arc::clone(&loaded.model.services["a"].check.as_ref().unwrap().check)
}

fn tcp_service(check: &str) -> Arc<HealthCheck> {
    read(check, "TCP", "")
}

#[test]
fn p2_each_profile_has_its_defaults() {
    let cases = [
        ("type: HTTP", Profile::Gcp, (5, 5, 2, 2)),
        (
            "profile: GCP_LEGACY, type: HTTP, portSpecification: USE_FIXED_PORT, port: 80",
            Profile::GcpLegacy,
            (5, 5, 2, 2),
        ),
        (
            "profile: TENCENT_ALB, type: HTTP, http: { host: a.example, expectedStatuses: [http_2xx, http_3xx] }",
            Profile::TencentAlb,
            (5, 2, 3, 3),
        ),
        (
            "profile: AZURE_LB, type: HTTP",
            Profile::AzureLb,
            (5, 5, 1, 1),
        ),
    ];
    for (text, profile, (interval, timeout, healthy, unhealthy)) in cases {
        let check = read(&format!("{{ name: c, {text} }}"), "HTTP", "");
        assert_eq!((check.profile(), check.kind()), (profile, Kind::Http));
        assert_eq!(check.interval(), Duration::from_secs(interval), "{text}");
        assert_eq!(check.timeout(), Duration::from_secs(timeout), "{text}");
        let thresholds = check.thresholds();
        assert_eq!(
            (thresholds.healthy, thresholds.unhealthy),
            (healthy, unhealthy),
            "{text}"
        );
        let tencent = profile == Profile::TencentAlb;
        assert_eq!(thresholds.at_first, tencent);
        let Asked::Http(http) = check.protocol() else {
            panic!("an HTTP check")
        };
        assert_eq!(http.method() == Method::Head, tencent, "{text}");
        assert_eq!(http.expected_statuses().contains(302), tencent, "{text}");
    }
    // The only profile with a default type.
    let check = tcp_service("{ name: c, profile: TENCENT_ALB }");
    assert_eq!(check.kind(), Kind::Tcp);
    let check = read(
        "{ name: c, profile: TENCENT_ALB, type: GRPC, grpc: { host: a } }",
        "GRPC",
        "",
    );
    let Asked::Grpc(grpc) = check.protocol() else {
        panic!("a gRPC check")
    };
    let GrpcAsk::Code { method, expected } = grpc.ask() else {
        panic!("by code")
    };
    assert_eq!(
        (method.as_str(), expected.to_string().as_str()),
        ("/TCLOUD.CLB/healthcheck", "12")
    );
}

#[test]
fn every_type_is_read_with_all_that_belongs_to_it() {
    for kind in Kind::ALL {
        let check = tcp_or_grpc(&format!("{{ name: c, type: {} }}", kind.name()), kind);
        assert_eq!(check.kind(), kind);
        assert_eq!(check.is_tls(), kind.is_tls());
    }
    let check = tcp_service(
        "{ name: c, type: SSL, proxyHeader: PROXY_V2, close: FIN, tls: { sni: a.example }, tcp: { request: PING, response: PONG } }",
    );
    assert_eq!(
        (check.proxy_header(), check.close()),
        (ProxyHeader::V2, Close::Fin)
    );
    assert_eq!(check.tls().unwrap().sni(), Some("a.example"));
    let check =
        tcp_service("{ name: c, type: HTTP2, proxyHeader: PROXY_V1, http: { host: a.example } }");
    assert_eq!(
        (check.proxy_header(), check.host()),
        (ProxyHeader::V1, Some("a.example"))
    );
    for (codes, shown) in [
        ("12", "12"),
        ("\"0-99\"", "0-99"),
        ("\"12,25,30-40\"", "12,25,30-40"),
    ] {
        let check = read(
            &format!(
                "{{ name: c, type: GRPC, grpc: {{ method: /a.B/c, expectedCodes: {codes} }} }}"
            ),
            "GRPC",
            "",
        );
        let Asked::Grpc(grpc) = check.protocol() else {
            panic!("a gRPC check")
        };
        let GrpcAsk::Code { expected, .. } = grpc.ask() else {
            panic!("by code")
        };
        assert_eq!(expected.to_string(), shown);
    }
    // An empty service name is the server as a whole, as when it is left out.
    let empty = read(
        "{ name: c, type: GRPC, grpc: { serviceName: '' } }",
        "GRPC",
        "",
    );
    assert_eq!(empty, read("{ name: c, type: GRPC }", "GRPC", ""));
}

fn tcp_or_grpc(check: &str, kind: Kind) -> Arc<HealthCheck> {
    let protocol = match kind {
        Kind::Grpc | Kind::GrpcWithTls => "GRPC",
        _ => "TCP",
    };
    read(check, protocol, "")
}

#[test]
fn p2_what_a_profile_does_not_allow() {
    check(
        WEB,
        &[
            Case(
                "{ name: web, profile: TENCENT }",
                &[
                    r#"a.yaml:3:25 healthChecks[0].profile: "TENCENT" is not one of GCP, GCP_LEGACY, TENCENT_ALB, AZURE_LB"#,
                ],
            ),
            Case(
                "{ name: web, profile: GCP_LEGACY, type: TCP }",
                &[
                    "a.yaml:3:3 healthChecks[0].portSpecification: profile GCP_LEGACY does not probe the serving port; give a port and portSpecification: USE_FIXED_PORT",
                    "a.yaml:3:43 healthChecks[0].type: profile GCP_LEGACY has no type TCP; it has HTTP, HTTPS",
                ],
            ),
            Case(
                "{ name: web, profile: GCP_LEGACY, type: HTTP, portSpecification: USE_FIXED_PORT }",
                &[
                    "a.yaml:3:68 healthChecks[0].portSpecification: USE_FIXED_PORT needs a port; add port: 1–65535",
                ],
            ),
            Case(
                "{ name: web, profile: GCP_LEGACY, type: HTTPS, proxyHeader: PROXY_V1, portSpecification: USE_SERVING_PORT, http: { response: ok, expectedStatuses: [http_2xx] } }",
                &[
                    "a.yaml:3:63 healthChecks[0].proxyHeader: profile GCP_LEGACY has no such thing; leave it out, or use profile GCP",
                    "a.yaml:3:92 healthChecks[0].portSpecification: profile GCP_LEGACY does not probe the serving port; give a port and portSpecification: USE_FIXED_PORT",
                    "a.yaml:3:128 healthChecks[0].http.response: profile GCP_LEGACY has no such thing; leave it out, or use profile GCP",
                    "a.yaml:3:150 healthChecks[0].http.expectedStatuses: profile GCP_LEGACY passes 200 and nothing else, not 200-299; leave it out, or use profile GCP",
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, checkInterval: 2s, unhealthyThreshold: 1, tcp: { request: a, response: b } }",
                &[
                    "a.yaml:3:3 healthChecks[0].timeout: 2s is not shorter than checkInterval (2s), as profile TENCENT_ALB wants it; shorten it, but not below 2s, or lengthen checkInterval",
                    "a.yaml:3:77 healthChecks[0].unhealthyThreshold: 1 is out of range; 2 to 10 is allowed",
                    "a.yaml:3:96 healthChecks[0].tcp.request: profile TENCENT_ALB has no such thing; leave it out, or use profile GCP",
                    "a.yaml:3:109 healthChecks[0].tcp.response: profile TENCENT_ALB has no such thing; leave it out, or use profile GCP",
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, checkInterval: 1s, timeout: 61s }",
                &[
                    "a.yaml:3:53 healthChecks[0].checkInterval: 1s is out of range; 2s to 300s is allowed",
                    "a.yaml:3:66 healthChecks[0].timeout: 61s is out of range; 2s to 60s is allowed",
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, type: HTTP2 }",
                &[
                    "a.yaml:3:3 healthChecks[0].http.expectedStatuses: profile TENCENT_ALB has no default; name the classes that pass, such as [http_2xx, http_3xx]",
                    "a.yaml:3:44 healthChecks[0].type: profile TENCENT_ALB has no type HTTP2; it has TCP, HTTP, HTTPS, GRPC, GRPC_WITH_TLS",
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, http: { requestPath: / } }",
                &[
                    "a.yaml:3:38 healthChecks[0].http: http belongs to the types HTTP, HTTPS and HTTP2, and this check is TCP; change the type or drop http",
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, type: HTTP, http: { host: '*.example', requestPath: '/~a', expectedStatuses: ['200'] } }",
                &[
                    r#"a.yaml:3:64 healthChecks[0].http.host: "*.example" is not a host of profile TENCENT_ALB; 1–80 characters of a-z 0-9 . - are, without a wildcard"#,
                    "a.yaml:3:90 healthChecks[0].http.requestPath: a path of profile TENCENT_ALB is 1–200 characters of A-Z a-z 0-9 . - _ / = ?",
                    r#"a.yaml:3:116 healthChecks[0].http.expectedStatuses[0]: "200" is not a class, and profile TENCENT_ALB takes nothing else; write http_2xx"#,
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, type: HTTPS }",
                &[
                    "a.yaml:3:3 healthChecks[0].http.expectedStatuses: profile TENCENT_ALB has no default; name the classes that pass, such as [http_2xx, http_3xx]",
                ],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, type: HTTPS, http: { host: 1, expectedStatuses: [http_2xx] } }",
                &[r#"a.yaml:3:65 healthChecks[0].http.host: 1 is a number; put it in quotes: "1""#],
            ),
            Case(
                "{ name: web, profile: TENCENT_ALB, type: GRPC, grpc: { host: a, serviceName: b, expectedCodes: 100 } }",
                &[
                    "a.yaml:3:80 healthChecks[0].grpc.serviceName: serviceName belongs to grpc.health.v1, and a check by method and code does not ask that; leave one of them out",
                    r#"a.yaml:3:98 healthChecks[0].grpc.expectedCodes: "100" is not a set of gRPC codes; write a code ("12") or a range ("0-99"), several with commas, within 0–99"#,
                ],
            ),
            Case(
                "{ name: web, profile: AZURE_LB }",
                &["a.yaml:3:3 healthChecks[0].type: missing; write one of TCP, HTTP, HTTPS"],
            ),
            Case(
                "{ name: web, profile: AZURE_LB, type: SSL }",
                &[
                    "a.yaml:3:41 healthChecks[0].type: profile AZURE_LB has no type SSL; it has TCP, HTTP, HTTPS",
                ],
            ),
            Case(
                "{ name: web, profile: AZURE_LB, type: HTTP, proxyHeader: PROXY_V2, http: { response: ok } }",
                &[
                    "a.yaml:3:60 healthChecks[0].proxyHeader: profile AZURE_LB has no such thing; leave it out, or use profile GCP",
                    "a.yaml:3:88 healthChecks[0].http.response: profile AZURE_LB has no such thing; leave it out, or use profile GCP",
                ],
            ),
        ],
    );
}

#[test]
fn p10_p13_tls_and_grpc() {
    check(
        WEB,
        &[
            Case(
                "{ name: web, type: HTTP, tls: { sni: a.example } }",
                &[
                    "a.yaml:3:28 healthChecks[0].tls: tls belongs to the types SSL, HTTPS, HTTP2 and GRPC_WITH_TLS, and this check is HTTP; change the type or drop tls",
                ],
            ),
            Case(
                "{ name: web, type: GRPC, tls: {}, http: {} }",
                &[
                    "a.yaml:3:28 healthChecks[0].tls: tls belongs to the types SSL, HTTPS, HTTP2 and GRPC_WITH_TLS, and this check is GRPC; change the type or drop tls",
                    "a.yaml:3:37 healthChecks[0].http: http belongs to the types HTTP, HTTPS and HTTP2, and this check is GRPC; change the type or drop http",
                ],
            ),
            Case(
                "{ name: web, type: HTTPS, proxyHeader: V1, close: RESET, tls: { verify: true, roots: /nonexistent/ca.pem, sni: 10.0.0.1 } }",
                &[
                    r#"a.yaml:3:42 healthChecks[0].proxyHeader: "V1" is not one of NONE, PROXY_V1, PROXY_V2"#,
                    r#"a.yaml:3:53 healthChecks[0].close: "RESET" is not one of RST, FIN"#,
                    r#"a.yaml:3:88 healthChecks[0].tls.roots: "/nonexistent/ca.pem" cannot be read: No such file or directory (os error 2); name a readable file"#,
                    r#"a.yaml:3:114 healthChecks[0].tls.sni: "10.0.0.1" is not a DNS name; a server name is one, without a port, and never an address (RFC 6066)"#,
                ],
            ),
            Case(
                "{ name: web, type: SSL, tls: { verify: true, roots: /dev/null } }",
                &[
                    r#"a.yaml:3:55 healthChecks[0].tls.roots: "/dev/null" is not a regular file; name one"#,
                ],
            ),
            Case(
                "{ name: web, type: SSL, tls: { rootz: a } }",
                &[
                    "a.yaml:3:34 healthChecks[0].tls.rootz: there is no such key; did you mean roots? Known here: verify, roots, sni",
                ],
            ),
            Case(
                "{ name: web, type: GRPC, grpc: { method: check, expectedCodes: '12,100' } }",
                &[
                    r#"a.yaml:3:44 healthChecks[0].grpc.method: "check" is not a gRPC method; write /Package.Class/method, at most 200 characters"#,
                    r#"a.yaml:3:66 healthChecks[0].grpc.expectedCodes: "100" is not a set of gRPC codes; write a code ("12") or a range ("0-99"), several with commas, within 0–99"#,
                ],
            ),
            Case(
                "{ name: web, type: GRPC, grpc: { expectedCodes: 12 } }",
                &[
                    "a.yaml:3:51 healthChecks[0].grpc.expectedCodes: codes need a method to be called; give grpc.method, or leave expectedCodes out for grpc.health.v1",
                ],
            ),
            Case(
                "{ name: web, type: GRPC_WITH_TLS, grpc: { method: /a.B/c } }",
                &[
                    r#"a.yaml:3:3 healthChecks[0].grpc.expectedCodes: a check by method needs the codes that pass, such as "0" or "0,12""#,
                ],
            ),
            Case(
                "{ name: web, type: GRPC_WITH_TLS, grpc: { serviceName: a, method: /a.B/c, expectedCodes: [12] } }",
                &[
                    "a.yaml:3:58 healthChecks[0].grpc.serviceName: serviceName belongs to grpc.health.v1, and a check by method and code does not ask that; leave one of them out",
                    "a.yaml:3:92 healthChecks[0].grpc.expectedCodes: a list stands where a string belongs",
                ],
            ),
        ],
    );
}

#[test]
fn p18_types_and_protocols() {
    let with = |protocol: &str, check: &str| {
        format!(
            "healthChecks: [{{ name: c, {check} }}]\nbackendServices: [{{ name: a, protocol: {protocol}, healthCheck: c }}]
fleets: [{{ name: f }}]"
        )
    };
    let tencent = |kind: Kind| {
        let name = kind.name();
        match kind {
            Kind::Http | Kind::Https => format!(
                "profile: TENCENT_ALB, type: {name}, http: {{ host: a, expectedStatuses: [http_2xx] }}"
            ),
            Kind::Grpc | Kind::GrpcWithTls => {
                format!("profile: TENCENT_ALB, type: {name}, grpc: {{ host: a }}")
            }
            Kind::Tcp | Kind::Ssl | Kind::Http2 => format!("profile: TENCENT_ALB, type: {name}"),
        }
    };
    // For each protocol, the types in the order of Kind::ALL: "-" nothing to say, "w" a warning, "e" an error.
    for (protocol, gcp, alb) in [
        ("HTTP", "ww--www", "- -- ee"),
        ("H2C", "wwww-ww", "w ww ww"),
        ("GRPC", "-eeee--", "- ee -e"),
        ("TCP", "--wwwww", "- ww ww"),
    ] {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            let texts = [format!("type: {}", kind.name()), tencent(kind)];
            for (text, expected) in texts.iter().zip([gcp, alb]) {
                let expected = &expected[i..=i];
                if expected == " " {
                    continue; // Not a type of this profile.
                }
                let text = with(protocol, text);
                let result = parse_sources(&[Source::new("a.yaml", text.as_str())]);
                let found = match &result {
                    Err(errors) => {
                        assert_eq!(errors.len(), 1, "{text}\n{errors:?}");
                        "e"
                    }
                    Ok(loaded) if loaded.warnings.is_empty() => "-",
                    Ok(loaded) => {
                        assert_eq!(loaded.warnings.len(), 1, "{text}");
                        "w"
                    }
                };
                assert_eq!(found, expected, "{text}");
            }
        }
    }
    assert_eq!(
        good(&with("TCP", "type: HTTP")).warnings[0].to_string(),
        "a.yaml:2:58 backendServices[0].healthCheck: the service speaks TCP and its check HTTP; make sure that this is meant"
    );
    assert_eq!(
        errors(&with("GRPC", "type: HTTP")),
        [
            "a.yaml:2:59 backendServices[0].healthCheck: a GRPC service takes checks of the types TCP, GRPC, GRPC_WITH_TLS, and c is HTTP; name another check"
        ]
    );
    assert_eq!(
        errors(&with("HTTP", &tencent(Kind::Grpc))),
        [
            "a.yaml:2:59 backendServices[0].healthCheck: an HTTP service takes checks of profile TENCENT_ALB of the types TCP, HTTP, HTTPS, and c is GRPC; name another check"
        ]
    );
    // Of a check that is wrong only that is said.
    assert_eq!(errors(&with("GRPC", "type: HTTP, timeout: 6s")).len(), 1);
}

/// A fleet whose routes lead to the service `a` by these domains.
fn routes(domains: &[&str]) -> String {
    let mut text = "fleets: [{ name: f, listeners: [".to_owned();
    for (i, domain) in domains.iter().enumerate() {
        let port = i + 1;
        write!(
            text,
            "{{ name: l{i}, port: {port}, routes: [{{ service: a, domains: ['{domain}'] }}] }}, "
        )
        .unwrap();
    }
    text + "] }]"
}

const HOSTLESS: &str =
    "{ name: c, profile: TENCENT_ALB, type: HTTP, http: { expectedStatuses: [http_2xx] } }";

#[test]
fn p7_the_forwarding_domain_is_the_one_literal_domain_of_the_routes() {
    for domains in [
        &["app.example.com"][..],
        &["*", "App.example.com", "*.example.com"],
        &["app.example.com", "app.example.com"],
    ] {
        let check = read(HOSTLESS, "HTTP", &routes(domains));
        assert_eq!(check.host(), Some("app.example.com"), "{domains:?}");
    }
    let grpc = "{ name: c, profile: TENCENT_ALB, type: GRPC }";
    let check = read(grpc, "GRPC", &routes(&["rpc.example.com"]));
    assert_eq!(check.host(), Some("rpc.example.com"));
    // A host of its own wins.
    let own = HOSTLESS.replace("http: { ", "http: { host: own.example, ");
    let check = read(&own, "HTTP", &routes(&["app.example.com"]));
    assert_eq!(check.host(), Some("own.example"));

    // Two services, two hosts, one check.
    let loaded = good(&format!(
        "healthChecks: [{HOSTLESS}]
backendServices: [{{ name: a, healthCheck: c }}, {{ name: b, healthCheck: c }}]
fleets: [{{ name: f, listeners: [{{ name: l, port: 1, routes: [{{ service: a, domains: [a.example] }}, {{ service: b, domains: [b.example] }}] }}] }}]"
    ));
    let host = |name: &str| {
        let check = &loaded.model.services[name].check.as_ref().unwrap().check;
        check.host().map(str::to_owned)
    };
    assert_eq!(
        (host("a").as_deref(), host("b").as_deref()),
        (Some("a.example"), Some("b.example"))
    );

    // Nobody sends what no service uses.
    good(&format!(
        "healthChecks: [{HOSTLESS}]\nbackendServices: [{{ name: a }}]"
    ));
}

#[test]
fn p7_routes_that_do_not_say_the_domain() {
    let with = |rest: &str| {
        errors(&format!(
            "healthChecks: [{HOSTLESS}]\nbackendServices: [{{ name: a, healthCheck: c }}]\n{rest}"
        ))
    };
    let told = |problem: &str| {
        [format!(
            "a.yaml:1:67 healthChecks[0].http.host: profile TENCENT_ALB sends the forwarding domain name, and the routes \
             to the service a {problem}"
        )]
    };
    let none = "have no literal domain; give the check a host, or a route one domain without *";
    assert_eq!(with(""), told(none));
    assert_eq!(with(&routes(&["*", "*.example.com"])), told(none));
    assert_eq!(
        with(&routes(&["a.example", "b.example", "c.example"])),
        told("have more than one literal domain (a.example, b.example); give the check a host")
    );
    assert_eq!(
        with(&routes(&["a.example:8080"])),
        told(
            "give one that cannot be sent: \"a.example:8080\" is not a host of profile TENCENT_ALB; 1–80 characters of \
             a-z 0-9 . - are, without a wildcard; give the check a host"
        )
    );
    // A fleet that is wrong may be the one that says it.
    assert_eq!(
        with(&routes(&["a.example"]).replace("service: a", "service: b")),
        [
            r#"a.yaml:3:74 fleets[0].listeners[0].routes[0].service: no backend service is called "b"; did you mean a?"#
        ]
    );
    // One line for each service, in the order of their names, at the check where there is no block.
    let two = errors(
        "healthChecks: [{ name: c, profile: TENCENT_ALB, type: GRPC }]
backendServices: [{ name: b, protocol: GRPC, healthCheck: c }, { name: a, protocol: GRPC, healthCheck: c }]",
    );
    for (line, service) in two.iter().zip(["a", "b"]) {
        let start = format!(
            "a.yaml:1:16 healthChecks[0].grpc.host: profile TENCENT_ALB sends the forwarding domain name, and the \
             routes to the service {service} have no literal domain"
        );
        assert!(line.starts_with(&start), "{line}");
    }
    assert_eq!(two.len(), 2);
}

#[test]
fn p10_roots_are_read_beside_the_configuration_and_are_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = "healthChecks: [{ name: c, type: HTTPS, tls: { verify: true, roots: certs/ca.pem } }]\nbackendServices: [{ name: a, healthCheck: c }]";
    fs::write(at("vitals.yaml"), text).unwrap();
    let read = || load(&[at("vitals.yaml")]);
    let path = at("certs/ca.pem").display().to_string();
    let found = lines(read());
    let place = format!(
        "{}:1:68 healthChecks[0].tls.roots: ",
        at("vitals.yaml").display()
    );
    let starts = |line: &str, problem: &str| {
        let (start, end) = line.split_once(&place).unwrap();
        assert!(start.is_empty() && end.contains(problem), "{line}");
    };
    assert_eq!(found.len(), 1);
    starts(&found[0], "cannot be read: No such file or directory");
    assert!(
        found[0].contains(path.get(..40).unwrap_or(&path)),
        "{found:?}"
    );

    fs::create_dir(at("certs")).unwrap();
    fs::write(at("certs/ca.pem"), "no certificate").unwrap();
    starts(&lines(read())[0], "no certificate");

    fs::write(at("certs/ca.pem"), vec![b' '; 2 << 20]).unwrap();
    starts(&lines(read())[0], "more than 1 MiB");

    fs::write(at("certs/ca.pem"), CA).unwrap();
    let loaded = read().unwrap();
    let check = &loaded.model.services["a"].check.as_ref().unwrap().check;
    let tls = check.tls().unwrap();
    assert!(tls.verify() && tls.roots().is_some());

    // Another text of the same file is another configuration.
    fs::write(at("certs/ca.pem"), format!("# again\n{CA}")).unwrap();
    assert_ne!(read().unwrap().digest, loaded.digest);
}

const CA: &str = include_str!("../testdata/ca.pem");

#[test]
fn p10_roots_of_many_checks_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    fs::write(&path, CA.to_owned() + &" ".repeat(900 << 10)).unwrap();
    let mut text = "backendServices: [{ name: a }]\nhealthChecks:\n".to_owned();
    for i in 0..100 {
        let path = path.display();
        writeln!(
            text,
            "- {{ name: c{i}, type: SSL, tls: {{ verify: true, roots: '{path}' }} }}"
        )
        .unwrap();
    }
    let found = errors(&text);
    assert_eq!(found.len(), 28, "{found:?}");
    assert!(
        found[0].contains("all checks and services together have more than 64 MiB"),
        "{}",
        found[0]
    );
}
