//! What a target's probes, one after the other, make of its TLS sessions: short handshakes that can only confirm
//! (semantics P10).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustls::ProtocolVersion;

use super::*;

/// The probes of one target in a row.
struct Row {
    target: Target,
    sessions: Option<Arc<Sessions>>,
    context: Context,
}

/// What one of them saw: its outcome, and each handshake that it completed: version, and whether resumed.
type Seen = (Outcome, Vec<(String, bool)>);

impl Row {
    fn of(address: SocketAddr, spec: HealthCheckSpec) -> Self {
        Self {
            target: target(address, Some("a.example"), spec),
            sessions: None,
            context: Context::new(Arc::default(), None, Trace::listening()),
        }
    }

    fn probe(&mut self) -> Seen {
        let mut handshakes = Vec::new();
        let mut watch = |_: Duration, event: &Event| {
            if let Event::TlsEstablished(tls) = event {
                handshakes.push((tls.version.clone(), tls.resumed));
            }
        };
        let started = clock::now();
        let (sessions, context) = (&mut self.sessions, &mut self.context);
        let outcome = drive(&self.target, started, sessions, context, &mut watch);
        tell(started, context, &mut watch);
        (outcome.unwrap(), handshakes)
    }

    /// A probe that was not spoilt by a busy machine.
    fn judged(&mut self) -> Seen {
        (0..20)
            .map(|_| self.probe())
            .find(|(outcome, _)| outcome.result != Inconclusive)
            .expect("twenty probes in a row were late")
    }

    fn passes(&mut self, times: usize) -> Vec<(String, bool)> {
        (0..times)
            .flat_map(|n| {
                let (outcome, handshakes) = self.judged();
                assert_eq!(outcome.result, Pass, "probe {n}: {}", outcome.reason);
                handshakes
            })
            .collect()
    }
}

/// Such handshakes, so many times.
fn runs(parts: &[(&str, bool, usize)]) -> Vec<(String, bool)> {
    parts
        .iter()
        .flat_map(|&(version, resumed, times)| vec![(version.to_owned(), resumed); times])
        .collect()
}

const V12: &str = "TLSv1_2";
const V13: &str = "TLSv1_3";

/// A server of these versions that resumes sessions of both by tickets.
fn server(versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
    let mut config = Arc::unwrap_or_clone(tls(Cert::default(), versions, &[]).0);
    config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    Arc::new(config)
}

/// A server whose configuration is exchanged while it runs, and how many connections it has met.
fn changing(
    config: Arc<ServerConfig>,
) -> (SocketAddr, Arc<Mutex<Arc<ServerConfig>>>, Arc<AtomicUsize>) {
    let (config, met) = (Arc::new(Mutex::new(config)), Arc::new(AtomicUsize::new(0)));
    let (current, count) = (config.clone(), met.clone());
    let address = peer(move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        let config = current.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = ServerConnection::new(config.clone()).unwrap();
        drop(config);
        let mut stream = StreamOwned::new(connection, stream);
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            take_request(&mut stream);
            stream.write_all(OK).ok();
            until_closed(&mut stream);
        } else {
            stream.flush().ok();
        }
    });
    (address, config, met)
}

#[test]
fn p10_sessions_are_resumed_and_every_tenth_probe_shakes_hands_in_full() {
    for (versions, expected) in [
        (
            vec![&version::TLS12],
            runs(&[
                (V12, false, 1),
                (V12, true, 9),
                (V12, false, 1),
                (V12, true, 9),
                (V12, false, 1),
            ]),
        ),
        // The second one asks for TLS 1.2 first, and is told no.
        (
            vec![&version::TLS13],
            runs(&[
                (V13, false, 2),
                (V13, true, 9),
                (V13, false, 1),
                (V13, true, 9),
            ]),
        ),
        (
            both(),
            runs(&[
                (V13, false, 1),
                (V12, false, 1),
                (V12, true, 8),
                (V13, false, 1),
                (V12, true, 9),
                (V13, false, 1),
            ]),
        ),
    ] {
        let address = tls_answering(server(&versions), OK);
        let mut row = Row::of(address, of(Kind::Https));
        assert_eq!(row.passes(21), expected);
    }
}

#[test]
fn p9_p10_handshakes_alone_are_resumed_too() {
    let mut row = Row::of(tls_answering(server(&both()), b""), of(Kind::Ssl));
    let expected = runs(&[
        (V13, false, 1),
        (V12, false, 1),
        (V12, true, 8),
        (V13, false, 1),
    ]);
    assert_eq!(row.passes(11), expected);
}

#[test]
fn p10_a_server_that_takes_its_versions_away_passes_every_probe() {
    let (address, config, met) = changing(server(&both()));
    let mut row = Row::of(address, of(Kind::Https));
    row.passes(5);
    *config.lock().unwrap() = server(&[&version::TLS13]);
    let before = met.load(Ordering::Relaxed);
    // Two connections for the first probe that is told no, and one for each after it.
    assert_eq!(
        row.passes(11),
        runs(&[(V13, false, 1), (V13, true, 9), (V13, false, 1)])
    );
    assert_eq!(met.load(Ordering::Relaxed) - before, 12);
    *config.lock().unwrap() = server(&[&version::TLS12]);
    row.passes(11);
}

#[test]
fn p10_a_server_with_new_keys_for_its_tickets_passes_every_probe() {
    let (address, config, _) = changing(server(&both()));
    let mut row = Row::of(address, of(Kind::Https));
    row.passes(4);
    *config.lock().unwrap() = server(&both());
    assert_eq!(row.passes(2), runs(&[(V12, false, 1), (V12, true, 1)]));
}

#[test]
fn p10_only_a_full_handshake_can_say_that_a_server_fails() {
    type Treat = fn(&mut TlsStream, bool) -> bool;
    let ways: [(&str, Treat); 3] = [
        ("sends users of TLS 1.2 away", |stream, old| {
            let upgrade = b"HTTP/1.1 426 Upgrade Required\r\n\r\n";
            stream.write_all(if old { upgrade } else { OK }).is_ok()
        }),
        ("hangs up on them", |stream, old| {
            !old && stream.write_all(OK).is_ok()
        }),
        ("closes TLS on them", |stream, old| {
            if old {
                stream.conn.send_close_notify();
                stream.flush().is_ok()
            } else {
                stream.write_all(OK).is_ok()
            }
        }),
    ];
    for (what, treat) in ways {
        let address = tls_peer(server(&both()), move |mut stream| {
            take_request(&mut stream);
            let old = stream.conn.protocol_version() == Some(ProtocolVersion::TLSv1_2);
            if treat(&mut stream, old) {
                until_closed(&mut stream);
            }
        });
        let mut row = Row::of(address, of(Kind::Https));
        let last = row.passes(12).pop();
        assert_eq!(last, Some((V13.to_owned(), false)), "{what}");
    }
}

/// Whom a server leaves without an answer.
#[derive(Clone, Copy, PartialEq)]
enum Silent {
    ToNobody,
    ToTls12,
    ToAll,
}

/// A server of both versions, and a check with little patience.
fn silent(to: Silent) -> (Row, Arc<Mutex<Silent>>) {
    let config = server(&both());
    let to = Arc::new(Mutex::new(to));
    let current = to.clone();
    let address = peer(move |mut stream| {
        // A key share on X25519, 32 bytes: only a hello for TLS 1.3 has one.
        let mut hello = [0; 4096];
        let length = stream.peek(&mut hello).unwrap_or(0);
        let modern = hello[..length]
            .windows(4)
            .any(|bytes| bytes == [0, 0x1d, 0, 32]);
        let to = *current.lock().unwrap_or_else(PoisonError::into_inner);
        if to == Silent::ToAll || (to == Silent::ToTls12 && !modern) {
            return until_closed(&mut stream);
        }
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        take_request(&mut stream);
        stream.write_all(OK).ok();
        until_closed(&mut stream);
    });
    let quick = HealthCheckSpec {
        timeout: Some(Duration::from_millis(400)),
        ..of(Kind::Https)
    };
    (Row::of(address, quick), to)
}

impl Row {
    fn times_out(&mut self) {
        let (outcome, _) = self.judged();
        assert_eq!(outcome.reason.code, ReasonCode::TlsTimeout, "{outcome:?}");
    }
}

#[test]
fn p10_a_server_that_is_silent_to_tls_1_2_costs_one_timeout() {
    let (mut row, _) = silent(Silent::ToTls12);
    row.passes(1);
    row.times_out();
    row.passes(12);
}

#[test]
fn p10_a_server_that_becomes_silent_to_tls_1_2_costs_two_timeouts_with_a_pass_between() {
    let (mut row, to) = silent(Silent::ToNobody);
    row.passes(4);
    *to.lock().unwrap() = Silent::ToTls12;
    row.times_out();
    row.passes(1);
    row.times_out();
    row.passes(12);
}

#[test]
fn a_server_that_was_too_slow_is_asked_for_tls_1_2_again() {
    let (mut row, to) = silent(Silent::ToNobody);
    row.passes(4);
    *to.lock().unwrap() = Silent::ToAll;
    row.times_out();
    row.times_out();
    *to.lock().unwrap() = Silent::ToNobody;
    let expected = runs(&[(V13, false, 1), (V12, false, 1), (V12, true, 1)]);
    assert_eq!(row.passes(3), expected);
}

#[test]
fn a_failing_server_is_asked_twice_only_by_the_first_probe_that_fails() {
    let down = Arc::new(Mutex::new(false));
    let (now_down, met) = (down.clone(), Arc::new(AtomicUsize::new(0)));
    let count = met.clone();
    let address = tls_peer(server(&both()), move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        take_request(&mut stream);
        let bad = b"HTTP/1.1 503 No\r\n\r\n";
        let down = *now_down.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(if down { bad } else { OK }).ok();
        until_closed(&mut stream);
    });
    let mut row = Row::of(address, of(Kind::Https));
    row.passes(4);
    *down.lock().unwrap() = true;
    met.store(0, Ordering::Relaxed);
    for handshakes in [
        vec![(V12, true, 1), (V13, false, 1)],
        vec![(V13, false, 1)],
        vec![(V13, false, 1)],
    ] {
        let (outcome, seen) = row.judged();
        assert_eq!(
            outcome.reason.code,
            ReasonCode::StatusMismatch,
            "{outcome:?}"
        );
        assert_eq!(seen, runs(&handshakes));
    }
    assert_eq!(met.load(Ordering::Relaxed), 4);
    *down.lock().unwrap() = false;
    // Back to short handshakes: a server that is down says nothing of its TLS.
    let expected = runs(&[(V13, false, 1), (V12, false, 1), (V12, true, 1)]);
    assert_eq!(row.passes(3), expected);
}

#[test]
fn p10_a_server_that_is_slow_to_refuse_tls_1_2_costs_one_timeout() {
    let config = server(&[&version::TLS13]);
    let address = peer(move |stream| {
        // Two answers that come so late do not both fit before the deadline.
        std::thread::park_timeout(Duration::from_millis(600));
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            take_request(&mut stream);
            stream.write_all(OK).ok();
            until_closed(&mut stream);
        } else {
            stream.flush().ok();
        }
    });
    let mut row = Row::of(
        address,
        HealthCheckSpec {
            timeout: Some(Duration::from_secs(1)),
            ..of(Kind::Https)
        },
    );
    row.passes(1);
    assert_eq!(row.judged().0.result, Timeout);
    row.passes(4);
}

#[test]
fn s1_where_one_probe_decides_no_server_is_asked_for_tls_1_2_alone() {
    let (mut row, to) = silent(Silent::ToNobody);
    row.target.check = Arc::new(
        HealthCheck::new(HealthCheckSpec {
            timeout: Some(Duration::from_millis(400)),
            unhealthy_threshold: Some(1),
            ..of(Kind::Https)
        })
        .unwrap(),
    );
    row.passes(2);
    *to.lock().unwrap() = Silent::ToTls12;
    row.passes(4);
}

#[test]
fn p10_a_check_that_verifies_sees_the_certificate_at_every_probe() {
    for version in [&version::TLS12, &version::TLS13] {
        let ticketer = aws_lc_rs::Ticketer::new().unwrap();
        let of = |cert| {
            let (config, pem) = tls(cert, &[version], &[]);
            let mut config = Arc::unwrap_or_clone(config);
            config.ticketer = ticketer.clone();
            (Arc::new(config), pem)
        };
        let (good, pem) = of(Cert::default());
        let (address, config, _) = changing(good);
        let mut row = Row::of(
            address,
            HealthCheckSpec {
                tls: Some(TlsSpec {
                    verify: Some(true),
                    roots: Some(pem.into_bytes()),
                    sni: Some("a.example".into()),
                }),
                ..super::of(Kind::Https)
            },
        );
        row.passes(4);
        // A certificate that the roots do not vouch for; the sessions from before are still good.
        *config.lock().unwrap() = of(Cert::default()).0;
        let (outcome, _) = row.judged();
        assert_eq!(
            outcome.reason.code,
            ReasonCode::TlsCertificate,
            "{outcome:?}"
        );
    }
}
