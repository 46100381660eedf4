//! nginx and HAProxy: HTTP, HTTPS, HTTP/2 and PROXY headers, also over IPv6 (semantics P4, P7, P10, P11, P12).

use std::net::{SocketAddr, TcpListener};

use vitals_tests::lab::Scene;
use vitals_tests::probe::{expect, probe};
use vitals_tests::servers::{Certificate, haproxy, nginx};

const NAME: &str = "probed.example";

#[test]
fn p4_p10_p11_p12_nginx() {
    let scene = Scene::new();
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_910);
    let good = Certificate::self_signed(scene.dir(), NAME);
    let expired = Certificate::expired(scene.dir(), NAME);
    let server = |listen: String, more: String| {
        format!(
            "server {{ listen {listen}; {more} location / {{ return 200 \"hello\"; }} location /gone {{ return 410; }} }}\n"
        )
    };
    let tls = |of: &Certificate| {
        let (cert, key) = (of.cert.display(), of.key.display());
        format!("ssl_certificate {cert}; ssl_certificate_key {key};")
    };
    let addresses: Vec<_> = (11..=16).map(at).collect();
    let [plain, https, old, http2, proxy, proxy_tls] = addresses[..] else {
        unreachable!()
    };
    let servers = [
        server(plain.to_string(), String::new()),
        server(format!("{https} ssl"), tls(&good)),
        server(format!("{old} ssl"), tls(&expired)),
        // Known to old versions too, unlike `http2 on`.
        server(format!("{http2} ssl http2"), tls(&good)),
        server(format!("{proxy} proxy_protocol"), String::new()),
        server(format!("{proxy_tls} ssl proxy_protocol"), tls(&good)),
    ];
    let _nginx = nginx(scene.dir(), &servers.concat(), &addresses);

    expect(plain, "--type HTTP --response hello", "PASS", "RESPONSE_OK");
    expect(plain, "--type HTTP --method HEAD", "PASS", "RESPONSE_OK");
    expect(
        plain,
        "--type HTTP --request-path /gone",
        "FAIL",
        "STATUS_MISMATCH",
    );
    expect(plain, "--type HTTP --response bye", "FAIL", "BODY_MISMATCH");
    expect(plain, "--type HTTPS", "FAIL", "TLS_HANDSHAKE");
    // nginx answers what is no HTTP/1 request for it with 400, in HTTP/1.
    expect(plain, "--type GRPC", "FAIL", "MALFORMED_RESPONSE");

    let roots = |of: &Certificate| format!("--tls-verify --tls-roots {}", of.cert.display());
    for address in [https, old] {
        expect(
            address,
            "--type HTTPS --response hello",
            "PASS",
            "RESPONSE_OK",
        );
        expect(address, "--type SSL", "PASS", "TLS_ESTABLISHED");
        expect(
            address,
            "--type HTTPS --tls-verify",
            "FAIL",
            "TLS_CERTIFICATE",
        );
        // With its address for a name: neither certificate is for that.
        let flags = format!("--type HTTPS {}", roots(&good));
        expect(address, &flags, "FAIL", "TLS_CERTIFICATE");
    }
    let trusted = |of: &Certificate| format!("--type HTTPS --host {NAME} {}", roots(of));
    expect(https, &trusted(&good), "PASS", "RESPONSE_OK");
    let refused = expect(old, &trusted(&expired), "FAIL", "TLS_CERTIFICATE");
    assert!(refused.text.contains("xpired"), "{}", refused.text);

    expect(
        http2,
        "--type HTTP2 --response hello",
        "PASS",
        "RESPONSE_OK",
    );
    expect(
        http2,
        "--type HTTP2 --request-path /gone",
        "FAIL",
        "STATUS_MISMATCH",
    );
    expect(https, "--type HTTP2", "FAIL", "NO_ALPN");
    expect(https, "--type GRPC_WITH_TLS", "FAIL", "NO_ALPN");

    let v1 = "--proxy-header PROXY_V1";
    let v2 = "--proxy-header PROXY_V2";
    for header in [v1, v2] {
        let flags = format!("--type HTTP --response hello {header}");
        expect(proxy, &flags, "PASS", "RESPONSE_OK");
        let flags = format!("--type HTTPS --response hello {header}");
        expect(proxy_tls, &flags, "PASS", "RESPONSE_OK");
    }
    // It hangs up on those who do not begin with the header, by RST where it leaves bytes unread; and it answers 400 to a
    // header that it does not expect.
    fails(proxy, "--type HTTP", &["PEER_CLOSED", "PEER_RESET"]);
    fails(proxy_tls, "--type HTTPS", &["TLS_CLOSED", "PEER_RESET"]);
    expect(
        plain,
        &format!("--type HTTP {v1}"),
        "FAIL",
        "STATUS_MISMATCH",
    );

    // No request begins like this, which nginx says at once.
    for (address, kind) in [(plain, "TCP"), (https, "SSL")] {
        let ask = |response: &str| format!("--type {kind} --request {{}} --response {response}");
        let prefix = format!("{} --match PREFIX", ask("HTTP/1.1"));
        expect(address, &prefix, "PASS", "RESPONSE_OK");
        let contains = format!("{} --match CONTAINS", ask("nginx"));
        expect(address, &contains, "PASS", "RESPONSE_OK");
        expect(address, &ask("HTTP/1.1"), "FAIL", "BODY_MISMATCH");
    }
}

/// A FAIL with one of these codes.
#[track_caller]
fn fails(address: SocketAddr, flags: &str, codes: &[&str]) {
    let verdict = probe(address, flags).unwrap_or_else(|problem| panic!("{problem}"));
    if let Err(problem) = verdict.is("FAIL", codes) {
        panic!("`vitals probe {address} {flags}`: {problem}");
    }
}

#[test]
fn p11_haproxy_accepts_both_headers() {
    let scene = Scene::new();
    let address = SocketAddr::new(scene.net().host(11).into(), 21_911);
    let source = scene.net().host(7);
    let _haproxy = haproxy(scene.dir(), address);
    // It tells whose address the header names: V1 the probe's own, V2 none, so that the connection's counts.
    for header in ["PROXY_V1", "PROXY_V2"] {
        let flags = format!(
            "--type HTTP --source-address {source} --proxy-header {header} --response from-{source}"
        );
        expect(address, &flags, "PASS", "RESPONSE_OK");
    }
    // It hangs up on those who do not begin with one.
    fails(address, "--type HTTP", &["PEER_CLOSED", "PEER_RESET"]);
}

#[test]
fn p7_p10_p11_over_ipv6_the_host_is_bracketed_and_no_name_is_sent() {
    let scene = Scene::new();
    // There is one loopback address for all, so the system chooses ports; all at once, so that they differ.
    let listeners: Vec<_> = std::iter::repeat_with(|| TcpListener::bind("[::1]:0").unwrap())
        .take(4)
        .collect();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    drop(listeners);
    let [plain, https, http2, proxy] = addresses[..] else {
        unreachable!()
    };
    let certificate = Certificate::self_signed(scene.dir(), NAME);
    let (cert, key) = (certificate.cert.display(), certificate.key.display());
    let tls = format!("ssl_certificate {cert}; ssl_certificate_key {key};");
    let server = |listen: String, more: &str, says: &str| {
        format!("server {{ listen {listen}; {more} location / {{ return 200 \"{says}\"; }} }}\n")
    };
    let asked = "host=$http_host.sni=$ssl_server_name.";
    let servers = [
        server(plain.to_string(), "", "host=$http_host."),
        server(format!("{https} ssl"), &tls, asked),
        server(format!("{http2} ssl http2"), &tls, asked),
        server(
            format!("{proxy} proxy_protocol"),
            "",
            "from=$proxy_protocol_addr.",
        ),
    ];
    let _nginx = nginx(scene.dir(), &servers.concat(), &addresses);
    let says = |address, kind: &str, text: String| {
        let flags = format!("--type {kind} --response {text}");
        expect(address, &flags, "PASS", "RESPONSE_OK");
    };
    says(plain, "HTTP", format!("host={plain}."));
    says(https, "HTTPS", format!("host={https}.sni=."));
    says(http2, "HTTP2", format!("host={http2}.sni=."));
    says(
        https,
        &format!("HTTPS --host {NAME}"),
        format!("host={NAME}.sni={NAME}."),
    );
    says(proxy, "HTTP --proxy-header PROXY_V1", "from=::1.".into());
    expect(plain, "--type TCP", "PASS", "CONNECTED");
    expect(https, "--type SSL", "PASS", "TLS_ESTABLISHED");
    expect(plain, "--type HTTPS", "FAIL", "TLS_HANDSHAKE");
    // nginx answers in HTTP/1.
    expect(plain, "--type GRPC", "FAIL", "MALFORMED_RESPONSE");
    let from = "--type HTTP --source-address 127.0.0.1";
    let refused = vitals_tests::vitals::vitals(
        &[
            &["probe", &plain.to_string()][..],
            &from.split(' ').collect::<Vec<_>>(),
        ]
        .concat(),
    );
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
}
