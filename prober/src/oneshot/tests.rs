//! Every way of a probe over real sockets, one probe at a time. Peers are blocking threads, TLS ones of rustls; nothing
//! sleeps. A machine that is busy elsewhere may make a probe INCONCLUSIVE for being late: those are run again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, version};
use socket2::Socket;

use super::*;
use crate::check::{Close, HealthCheckSpec, HttpSpec, Kind, ProxyHeader, TcpSpec, TlsSpec};
use crate::outcome::{Layer, ProbeResult};
use crate::tally::Tally;
use crate::target::{Names, Pulse, StateKey};
use ProbeResult::{Fail, Inconclusive, Pass, Timeout};

mod sessions;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A peer that treats each connection in this way, each in its own thread, until the process ends.
fn peer_at(bind: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(bind).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn peer(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    peer_at("127.0.0.1:0", serve)
}

/// How many bytes of a request or ClientHello have come; the prober sends it in one piece.
fn take_request(stream: &mut impl Read) -> usize {
    stream.read(&mut [0; 4096]).unwrap_or(0)
}

fn until_closed(stream: &mut impl Read) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(n) if n > 0) {}
}

/// What a certificate is like.
#[derive(Clone, Copy, Default)]
struct Cert {
    expired: bool,
    authority: bool,
    name: Option<&'static str>,
}

fn certificate(cert: Cert) -> (CertificateDer<'static>, PrivateKeyDer<'static>, String) {
    let mut params =
        rcgen::CertificateParams::new([cert.name.unwrap_or("a.example").to_owned()]).unwrap();
    if cert.expired {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    }
    if cert.authority {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let pem = cert.pem();
    (cert.der().clone(), key.into(), pem)
}

/// A TLS server's configuration, and its certificate in PEM.
fn tls(
    cert: Cert,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&str],
) -> (Arc<ServerConfig>, String) {
    let (certificate, key, pem) = certificate(cert);
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    (Arc::new(config), pem)
}

type TlsStream = StreamOwned<ServerConnection, TcpStream>;

/// A peer that speaks TLS, and then this.
fn tls_peer(
    config: Arc<ServerConfig>,
    serve: impl Fn(TlsStream) + Send + Sync + 'static,
) -> SocketAddr {
    peer(move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            serve(stream);
        }
    })
}

/// A peer that speaks TLS, takes a request, answers so and waits for the end.
fn tls_answering(config: Arc<ServerConfig>, answer: &'static [u8]) -> SocketAddr {
    tls_peer(config, move |mut stream| {
        take_request(&mut stream);
        stream.write_all(answer).ok();
        until_closed(&mut stream);
    })
}

fn both() -> Vec<&'static SupportedProtocolVersion> {
    vec![&version::TLS13, &version::TLS12]
}

fn plain_tls(alpn: &[&str]) -> Arc<ServerConfig> {
    tls(Cert::default(), &both(), alpn).0
}

fn target(address: SocketAddr, fqdn: Option<&str>, spec: HealthCheckSpec) -> Target {
    let check = Arc::new(HealthCheck::new(spec).unwrap());
    let names = Names::new(&check, fqdn, address);
    Target {
        key: StateKey::new(address, &names, &check),
        address,
        names,
        check,
        seed: Tally::new(),
        pulse: Arc::new(Pulse::default()),
    }
}

/// One probe, and the steps it took.
fn probe(target: &Target) -> (Outcome, Vec<Event>) {
    for _ in 0..20 {
        let mut events = Vec::new();
        let outcome = run(target, None, &mut |_, event| events.push(event.clone()));
        if outcome.reason.code != ReasonCode::LocalLate {
            return (outcome, events);
        }
    }
    panic!("always late")
}

fn outcome(address: SocketAddr, spec: HealthCheckSpec) -> Outcome {
    probe(&target(address, Some("a.example"), spec)).0
}

fn of(kind: Kind) -> HealthCheckSpec {
    HealthCheckSpec::of(kind)
}

fn quick(kind: Kind) -> HealthCheckSpec {
    HealthCheckSpec {
        timeout: Some(Duration::from_millis(300)),
        ..of(kind)
    }
}

fn ssl(request: Option<&str>, response: Option<&str>) -> HealthCheckSpec {
    HealthCheckSpec {
        tcp: TcpSpec {
            request: request.map(Into::into),
            response: response.map(Into::into),
            matching: None,
        },
        ..of(Kind::Ssl)
    }
}

#[test]
fn p4_p8_p10_p12_each_way_of_tls_gets_its_outcome() {
    let raw = |bytes: &'static [u8]| {
        peer(move |mut stream| {
            take_request(&mut stream);
            stream.write_all(bytes).ok();
            until_closed(&mut stream);
        })
    };
    // A record of 16 KiB and 1, of type handshake.
    let mut large = vec![22, 3, 3, 0x40, 0x01];
    large.resize(5 + 16 * 1024 + 1, 0xff);
    let large: &'static [u8] = large.leak();
    let only = |version| tls(Cert::default(), &[version], &[]).0;
    let with = |cert| tls(cert, &both(), &[]).0;
    let expired = Cert {
        expired: true,
        ..Cert::default()
    };
    let other_name = Cert {
        name: Some("other.example"),
        ..Cert::default()
    };
    let wanting = HealthCheckSpec {
        http: HttpSpec {
            response: Some("ell".into()),
            ..HttpSpec::default()
        },
        ..of(Kind::Https)
    };
    use ReasonCode as C;
    #[rustfmt::skip]
    let table: Vec<(&str, SocketAddr, HealthCheckSpec, ProbeResult, ReasonCode)> = vec![
        ("TLS 1.2 only", tls_answering(only(&version::TLS12), OK), of(Kind::Https), Pass, C::ResponseOk),
        ("TLS 1.3 only", tls_answering(only(&version::TLS13), OK), of(Kind::Https), Pass, C::ResponseOk),
        ("expired", tls_answering(with(expired), OK), of(Kind::Https), Pass, C::ResponseOk),
        ("wrong name", tls_answering(with(other_name), OK), of(Kind::Https), Pass, C::ResponseOk),
        ("body over TLS", tls_answering(plain_tls(&["http/1.1"]), OK), wanting, Pass, C::ResponseOk),
        ("503 over TLS", tls_answering(plain_tls(&[]), b"HTTP/1.1 503 No\r\n\r\n"), of(Kind::Https), Fail, C::StatusMismatch),
        ("HTTPS, but h2 only", tls_answering(plain_tls(&["h2"]), OK), of(Kind::Https), Fail, C::NoAlpn),
        ("SSL, TLS 1.2", tls_answering(only(&version::TLS12), b""), of(Kind::Ssl), Pass, C::TlsEstablished),
        ("SSL, TLS 1.3", tls_answering(only(&version::TLS13), b""), of(Kind::Ssl), Pass, C::TlsEstablished),
        ("SSL, handshake then close", tls_peer(plain_tls(&[]), drop), of(Kind::Ssl), Pass, C::TlsEstablished),
        ("HTTPS, handshake then close", tls_peer(plain_tls(&[]), |mut stream| {
            take_request(&mut stream);
            stream.conn.send_close_notify();
            stream.flush().ok();
        }), of(Kind::Https), Fail, C::PeerClosed),
        ("SSL PONG", tls_answering(plain_tls(&[]), b"PONG"), ssl(Some("PING"), Some("PONG")), Pass, C::ResponseOk),
        ("SSL PONG and more", tls_answering(plain_tls(&[]), b"PONG\r\n"), ssl(Some("PING"), Some("PONG")), Fail, C::BodyMismatch),
        ("SSL, the peer speaks first", tls_peer(plain_tls(&[]), |mut stream| {
            stream.write_all(b"PONG").ok();
            until_closed(&mut stream);
        }), ssl(None, Some("PONG")), Pass, C::ResponseOk),
        ("SSL, request only", tls_answering(plain_tls(&[]), b"junk"), ssl(Some("PING"), None), Pass, C::Connected),
        ("alert", raw(b"\x15\x03\x03\0\x02\x02\x28"), of(Kind::Ssl), Fail, C::TlsAlert),
        ("alert no_application_protocol", raw(b"\x15\x03\x03\0\x02\x02\x78"), of(Kind::Http2), Fail, C::NoAlpn),
        ("plaintext server", raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), of(Kind::Https), Fail, C::TlsHandshake),
        ("garbage instead of ServerHello", raw(b"\x16\x03\x03\0\x04\x02\xff\xff\xff"), of(Kind::Ssl), Fail, C::TlsHandshake),
        ("record of 16 KiB and 1", raw(large), of(Kind::Ssl), Fail, C::TlsHandshake),
        ("close instead of ServerHello", peer(|mut stream| { take_request(&mut stream); }), of(Kind::Ssl), Fail, C::TlsClosed),
        ("reset instead of ServerHello", peer(|mut stream| {
            take_request(&mut stream);
            Socket::from(stream).set_linger(Some(Duration::ZERO)).ok();
        }), of(Kind::Ssl), Fail, C::PeerReset),
        ("silence instead of ServerHello", raw(b""), quick(Kind::Https), Timeout, C::TlsTimeout),
        ("silence after the handshake", tls_answering(plain_tls(&[]), b""), quick(Kind::Https), Timeout, C::ResponseTimeout),
        ("HTTP2 without ALPN", tls_answering(plain_tls(&[]), b""), of(Kind::Http2), Fail, C::NoAlpn),
        ("gRPC without ALPN", tls_answering(plain_tls(&[]), b""), of(Kind::GrpcWithTls), Fail, C::NoAlpn),
        ("HTTP2, but http/1.1 only", tls_answering(plain_tls(&["http/1.1"]), OK), of(Kind::Http2), Fail, C::NoAlpn),
    ];
    for (what, address, spec, result, code) in table {
        let outcome = outcome(address, spec);
        assert_eq!(
            (outcome.result, outcome.reason.code),
            (result, code),
            "{what}: {}",
            outcome.reason
        );
        assert_eq!(
            outcome.times.tls.is_some(),
            match code {
                C::TlsEstablished | C::ResponseOk | C::Connected => true,
                code => code.layer() == Layer::L7 || outcome.times.tls.is_some(),
            },
            "{what}: {outcome:?}"
        );
    }
}

#[test]
fn p1_a_trickled_handshake_ends_with_the_absolute_deadline() {
    let address = peer(|mut stream| {
        take_request(&mut stream);
        // A record of 16,000 bytes that comes a byte at a time, for as long as anybody listens.
        stream.write_all(b"\x16\x03\x03\x3e\x80").ok();
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        while stream.write_all(b"\0").is_ok() {
            if matches!(stream.read(&mut [0; 16]), Ok(0)) {
                return;
            }
        }
    });
    let outcome = outcome(address, quick(Kind::Https));
    assert_eq!(outcome.result, Timeout, "{outcome:?}");
    assert_eq!(outcome.reason.code, ReasonCode::TlsTimeout, "{outcome:?}");
    assert!(outcome.times.total >= Duration::from_millis(300));
    assert_eq!(outcome.times.tls, None);
}

#[test]
fn p10_verify_is_ours_and_tells_what_is_wrong() {
    let spec = |roots: &str, sni: &str| HealthCheckSpec {
        tls: Some(TlsSpec {
            verify: Some(true),
            roots: Some(roots.as_bytes().to_vec()),
            sni: Some(sni.into()),
        }),
        ..of(Kind::Ssl)
    };
    let (config, pem) = tls(Cert::default(), &both(), &[]);
    let address = tls_answering(config, b"");
    assert_eq!(outcome(address, spec(&pem, "a.example")).result, Pass);
    let (_, other) = tls(Cert::default(), &both(), &[]);
    let expired = Cert {
        expired: true,
        ..Cert::default()
    };
    let (config, expired) = tls(expired, &both(), &[]);
    let late = tls_answering(config, b"");
    let authority = Cert {
        authority: true,
        ..Cert::default()
    };
    let (config, authority) = tls(authority, &both(), &[]);
    let signs = tls_answering(config, b"");
    for (address, roots, sni, text) in [
        (
            address,
            &pem,
            "b.example",
            "only valid for DnsName(\"a.example\")",
        ),
        (
            address,
            &other,
            "a.example",
            "its signature is not that of the authority",
        ),
        (late, &expired, "a.example", "certificate expired"),
        (
            signs,
            &authority,
            "a.example",
            "an authority's certificate (CA:TRUE)",
        ),
    ] {
        let outcome = outcome(address, spec(roots, sni));
        assert_eq!(outcome.result, Fail, "{outcome:?}");
        assert_eq!(
            outcome.reason.code,
            ReasonCode::TlsCertificate,
            "{outcome:?}"
        );
        assert!(outcome.reason.text.contains(text), "{}", outcome.reason);
    }
}

#[test]
fn p10_the_server_sees_the_name_and_over_ipv6_no_address() {
    let (config, _) = tls(Cert::default(), &both(), &[]);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let serve = {
        let seen = seen.clone();
        move |stream: TcpStream| {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            if stream.conn.complete_io(&mut stream.sock).is_ok() {
                let name = stream.conn.server_name().map(str::to_owned);
                let mut request = [0; 2048];
                let n = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..n]).into_owned();
                seen.lock().unwrap().push((name, request));
                stream.write_all(OK).ok();
                until_closed(&mut stream);
            }
        }
    };
    let address = peer_at("[::1]:0", serve);
    let port = address.port();
    for (fqdn, sni, host) in [
        (None, None, format!("Host: [::1]:{port}\r\n")),
        (
            Some("f.example"),
            Some("f.example".to_owned()),
            "Host: f.example\r\n".into(),
        ),
    ] {
        let (outcome, _) = probe(&target(address, fqdn, of(Kind::Https)));
        assert_eq!(outcome.result, Pass, "{outcome:?}");
        let (name, request) = seen.lock().unwrap().pop().unwrap();
        assert_eq!(name, sni);
        assert!(request.contains(&host), "{request}");
    }
}

/// A peer that gives the test all that comes until this side is silent for good; `true` where FIN ended it.
fn recorder(
    bind: &str,
    answer: &'static [u8],
) -> (SocketAddr, std::sync::mpsc::Receiver<(Vec<u8>, bool)>) {
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    let address = peer_at(bind, move |mut stream| {
        let mut got = vec![0; 4096];
        let n = stream.read(&mut got).unwrap_or(0);
        got.truncate(n);
        stream.write_all(answer).ok();
        let fin = stream.read_to_end(&mut got).is_ok();
        sender.send((got, fin)).ok();
    });
    (address, receiver)
}

#[test]
fn p11_the_proxy_header_comes_first_with_the_connections_own_addresses() {
    for (bind, family, ip) in [
        ("127.0.0.1:0", "TCP4", "127.0.0.1"),
        ("[::1]:0", "TCP6", "::1"),
    ] {
        for (kind, rest) in [(Kind::Http, &b"GET / "[..]), (Kind::Https, b"\x16\x03\x01")] {
            let (address, got) = recorder(bind, b"");
            let spec = HealthCheckSpec {
                proxy_header: Some(ProxyHeader::V1),
                ..quick(kind)
            };
            let (_, events) = probe(&target(address, None, spec));
            let local = events.iter().find_map(|event| match event {
                Event::Connected { local } => *local,
                _ => None,
            });
            let line = format!(
                "PROXY {family} {ip} {ip} {} {}\r\n",
                local.unwrap().port(),
                address.port()
            );
            let (got, _) = got.recv().unwrap();
            assert!(got.starts_with(line.as_bytes()), "{}", got.escape_ascii());
            assert!(
                got[line.len()..].starts_with(rest),
                "{}",
                got.escape_ascii()
            );
        }
    }
    // Without strings too: sent, and passed.
    let (address, got) = recorder("127.0.0.1:0", b"");
    let spec = HealthCheckSpec {
        proxy_header: Some(ProxyHeader::V2),
        close: Some(Close::Fin),
        ..of(Kind::Tcp)
    };
    assert_eq!(outcome(address, spec).result, Pass);
    assert_eq!(
        got.recv().unwrap(),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(), true)
    );
}

#[test]
fn p15_a_probe_leaves_by_reset_or_as_the_check_wants_by_fin() {
    for (close, graceful) in [
        (None, false),
        (Some(Close::Rst), false),
        (Some(Close::Fin), true),
    ] {
        let (address, got) = recorder("127.0.0.1:0", OK);
        let spec = HealthCheckSpec {
            close,
            ..of(Kind::Http)
        };
        assert_eq!(outcome(address, spec).result, Pass);
        assert_eq!(got.recv().unwrap().1, graceful, "{close:?}");
    }
    // Over TLS the farewell is close_notify, then FIN.
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    let address = tls_peer(plain_tls(&[]), move |mut stream| {
        sender
            .send(stream.read(&mut [0; 16]).map_err(|e| e.kind()))
            .ok();
    });
    let spec = HealthCheckSpec {
        close: Some(Close::Fin),
        ..of(Kind::Ssl)
    };
    assert_eq!(outcome(address, spec).result, Pass);
    assert_eq!(receiver.recv().unwrap(), Ok(0));
}

#[test]
fn p16_p17_the_source_address_is_ours_and_its_faults_too() {
    let (address, _got) = recorder("127.0.0.1:0", OK);
    let target = target(address, None, of(Kind::Http));
    let from = |source: &str| {
        let mut local = None;
        let outcome = run(&target, Some(source.parse().unwrap()), &mut |_, event| {
            if let Event::Connected { local: Some(seen) } = event {
                local = Some(seen.ip().to_string());
            }
        });
        (outcome, local)
    };
    let (outcome, local) = from("127.9.8.7");
    assert_eq!(
        (outcome.result, local),
        (Pass, Some("127.9.8.7".into())),
        "{}",
        outcome.reason
    );
    let (outcome, _) = from("::1");
    assert_eq!(outcome.result, Inconclusive);
    assert!(
        outcome.reason.text.contains("of another family"),
        "{}",
        outcome.reason
    );
    let (outcome, _) = from("192.0.2.99");
    assert_eq!(outcome.result, Inconclusive);
    assert_eq!(
        outcome.reason.code,
        ReasonCode::LocalError,
        "{}",
        outcome.reason
    );
    assert!(
        outcome
            .reason
            .text
            .contains("from its source address 192.0.2.99"),
        "{}",
        outcome.reason
    );
}

#[test]
fn every_step_is_told_in_its_order_and_the_rule_with_it() {
    let address = tls_answering(plain_tls(&["http/1.1"]), OK);
    let target = target(address, Some("a.example"), of(Kind::Https));
    let (outcome, events) = probe(&target);
    let names: Vec<&str> = events
        .iter()
        .map(|event| match event {
            Event::Connecting { .. } => "connecting",
            Event::Connected { .. } => "connected",
            Event::ProxyHeader { .. } => "proxy",
            Event::TlsEstablished(_) => "tls",
            Event::Sent(_) => "sent",
            Event::Received(_) => "received",
            Event::PeerClosed => "closed",
            Event::Retrying => "retrying",
        })
        .collect();
    assert_eq!(
        names,
        ["connecting", "connected", "tls", "sent", "received"]
    );
    let Event::TlsEstablished(tls) = &events[2] else {
        panic!()
    };
    assert_eq!(
        (tls.version.as_str(), tls.alpn.as_deref()),
        ("TLSv1_3", Some("http/1.1"))
    );
    assert_eq!((tls.resumed, tls.certificates), (false, 1));
    let Event::Received(piece) = &events[4] else {
        panic!()
    };
    assert_eq!(piece.escaped(), OK.escape_ascii().to_string());
    assert_eq!(
        rule(&target.check, &outcome),
        "P4: the final status is in {200}"
    );
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, stream]);
    frame.extend(payload);
    frame
}

#[test]
fn p4_p12_http2_and_grpc_over_tls_are_judged_like_without() {
    let with = |frames: Vec<Vec<u8>>| -> &'static [u8] {
        let mut bytes = settings_frame();
        bytes.extend(frames.concat());
        bytes.leak()
    };
    let grpc_head = b"\x88\0\x0ccontent-type\x10application/grpc";
    let message = |status: u8| frame(0, 0, 1, &[0, 0, 0, 0, 2, 8, status]);
    let ok = frame(1, 5, 1, b"\0\x0bgrpc-status\x010");
    let answers = |status| with(vec![frame(1, 4, 1, grpc_head), message(status), ok.clone()]);
    use ReasonCode as C;
    for (kind, answer, result, code) in [
        // :status 200, then 404.
        (
            Kind::Http2,
            with(vec![frame(1, 5, 1, b"\x88")]),
            Pass,
            C::ResponseOk,
        ),
        (
            Kind::Http2,
            with(vec![frame(1, 5, 1, b"\x8d")]),
            Fail,
            C::StatusMismatch,
        ),
        (Kind::GrpcWithTls, answers(1), Pass, C::ResponseOk),
        (Kind::GrpcWithTls, answers(2), Fail, C::NotServing),
        // Sent away, and again.
        (
            Kind::Http2,
            with(vec![frame(7, 0, 0, &[0; 8])]),
            Fail,
            C::Http2Goaway,
        ),
    ] {
        let address = tls_answering(plain_tls(&["h2"]), answer);
        let (outcome, events) = probe(&target(address, Some("a.example"), of(kind)));
        assert_eq!(
            (outcome.result, outcome.reason.code),
            (result, code),
            "{kind:?}: {}",
            outcome.reason
        );
        let retries = events.iter().filter(|event| **event == Event::Retrying);
        assert_eq!(retries.count(), usize::from(code == C::Http2Goaway));
    }
}

#[test]
fn p12_p16_a_port_with_tls_for_one_without_fails_fast_and_says_what_to_check_it_with() {
    let with_tls = || tls_answering(plain_tls(&["h2", "http/1.1"]), b"");
    let without = |greeting: &'static [u8]| {
        peer(move |mut stream| {
            stream.write_all(greeting).ok();
            until_closed(&mut stream);
        })
    };
    let hangs_up = || {
        peer(|mut stream| {
            take_request(&mut stream);
        })
    };
    let settings = settings_frame().leak();
    for (address, kind, code, hint) in [
        (
            with_tls(),
            Kind::Grpc,
            ReasonCode::MalformedResponse,
            "by type GRPC_WITH_TLS",
        ),
        (
            with_tls(),
            Kind::Http,
            ReasonCode::MalformedResponse,
            "by type HTTPS",
        ),
        (
            without(settings),
            Kind::GrpcWithTls,
            ReasonCode::TlsHandshake,
            "by type GRPC",
        ),
        (
            without(OK),
            Kind::Https,
            ReasonCode::TlsHandshake,
            "by type HTTP",
        ),
        (
            without(OK),
            Kind::Http2,
            ReasonCode::TlsHandshake,
            "by type HTTP",
        ),
        (
            without(b"220 mail"),
            Kind::Ssl,
            ReasonCode::TlsHandshake,
            "by type TCP",
        ),
        // Some servers hang up on what they do not know.
        (
            hangs_up(),
            Kind::Grpc,
            ReasonCode::PeerClosed,
            "by type GRPC_WITH_TLS",
        ),
        (
            hangs_up(),
            Kind::Https,
            ReasonCode::TlsClosed,
            "speaks no TLS on this port",
        ),
    ] {
        let outcome = outcome(address, of(kind));
        let reason = &outcome.reason;
        assert_eq!(
            (outcome.result, reason.code),
            (Fail, code),
            "{kind:?}: {reason}"
        );
        assert!(reason.text.ends_with(hint), "{kind:?}: {reason}");
    }
}

#[test]
fn p10_p16_the_rule_tells_whether_tls_broke_in_the_handshake_or_after_it() {
    let garbage = b"\x17\x03\x03\0\x02ab";
    let within = peer(move |mut stream| {
        take_request(&mut stream);
        stream.write_all(garbage).ok();
        until_closed(&mut stream);
    });
    let after = tls_peer(plain_tls(&[]), move |mut stream| {
        take_request(&mut stream);
        stream.sock.write_all(garbage).ok();
        until_closed(&mut stream.sock);
    });
    for (address, number) in [(within, "P10: "), (after, "P16: ")] {
        let target = target(address, None, of(Kind::Https));
        let (outcome, _) = probe(&target);
        assert_eq!(outcome.reason.code, ReasonCode::TlsHandshake, "{outcome:?}");
        let rule = rule(&target.check, &outcome);
        assert!(rule.starts_with(number), "{rule}");
    }
}

fn settings_frame() -> Vec<u8> {
    frame(4, 0, 0, b"")
}
