//! The engine against real sockets on the loopback. Peers are plain blocking threads; nothing sleeps, every wait is
//! for a condition, with a generous limit.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use super::*;
use crate::check::{HealthCheckSpec, HttpSpec, Kind, TcpSpec};
use crate::outcome::{ProbeResult, ReasonCode};
use crate::tally::{Tally, Verdict};
use crate::target::{Names, Pulse};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `met` gives a value; `seen` says what there was instead.
fn wait<T>(what: &str, mut met: impl FnMut() -> Option<T>, seen: impl Fn() -> String) -> T {
    let start = clock::now();
    loop {
        if let Some(value) = met() {
            return value;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}; seen: {}",
            seen()
        );
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Remembers every outcome by check.
#[derive(Default)]
struct Ledger {
    outcomes: Mutex<Vec<(HealthCheck, Outcome, Duration, Instant)>>,
    panic_once: AtomicUsize,
}

impl Ledger {
    fn outcomes(&self) -> Vec<(HealthCheck, Outcome, Duration, Instant)> {
        self.outcomes.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.outcomes.lock().unwrap().len()
    }
}

impl Recorder for Ledger {
    fn probe(&self, check: &HealthCheck, outcome: &Outcome, lateness: Duration) {
        let panics = self
            .panic_once
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        assert!(panics.is_err(), "a recorder that panics, for the test");
        let line = (check.clone(), outcome.clone(), lateness, clock::now());
        self.outcomes.lock().unwrap().push(line);
    }
}

fn start(workers: usize, max_in_flight: usize) -> (Engine, mpsc::Receiver<Report>, Arc<Ledger>) {
    let ledger = Arc::new(Ledger::default());
    let config = EngineConfig {
        workers,
        max_in_flight,
        vantage: "test".into(),
        source_address: None,
    };
    let (engine, reports) = Engine::start(config, ledger.clone()).unwrap();
    (engine, reports, ledger)
}

fn check(timeout_ms: u64, spec: HealthCheckSpec) -> Arc<HealthCheck> {
    let spec = HealthCheckSpec {
        check_interval: Some(Duration::from_millis(timeout_ms.max(200))),
        timeout: Some(Duration::from_millis(timeout_ms)),
        ..spec
    };
    Arc::new(HealthCheck::new(spec).unwrap())
}

fn http() -> HealthCheckSpec {
    HealthCheckSpec::http(HttpSpec::default())
}

fn http_wanting(response: &str) -> HealthCheckSpec {
    HealthCheckSpec::http(HttpSpec {
        response: Some(response.into()),
        ..HttpSpec::default()
    })
}

fn tcp(request: Option<&str>, response: Option<&str>) -> HealthCheckSpec {
    HealthCheckSpec::tcp(TcpSpec {
        request: request.map(Into::into),
        response: response.map(Into::into),
        matching: None,
    })
}

fn target(address: SocketAddr, check: &Arc<HealthCheck>) -> Target {
    let names = Names::new(check, None, address);
    Target {
        key: StateKey::new(address, &names, check),
        address,
        names,
        check: check.clone(),
        seed: Tally::new(),
        pulse: Arc::new(Pulse::default()),
    }
}

/// A peer that treats each connection in this way, each in its own thread, until the process ends.
fn peer(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        // A connection that was reset before it was accepted is no reason to stop.
        while let Ok(stream) = listener.accept().map(|(stream, _)| stream) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A peer that takes the request, answers so, and keeps the connection open until the prober leaves.
fn answering(answer: &'static [u8]) -> SocketAddr {
    peer(move |mut stream| {
        take_request(&mut stream);
        say(&mut stream, answer);
        until_closed(&mut stream);
    })
}

/// What a peer says may find nobody listening any more.
fn say(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).ok();
}

/// How many bytes of a request have come; the prober sends it in one piece.
fn take_request(stream: &mut TcpStream) -> usize {
    stream.read(&mut [0; 2048]).unwrap_or(0)
}

fn until_closed(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(n) if n > 0) {}
}

fn reset(stream: TcpStream) {
    let stream = socket2::Socket::from(stream);
    stream.set_linger(Some(Duration::ZERO)).ok();
}

/// An address where nothing listens: its listener is gone.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Different addresses where nothing listens.
fn nobodies(count: u8) -> impl Iterator<Item = SocketAddr> {
    let port = nobody().port();
    (0..count).map(move |n| SocketAddr::from(([127, 9, 0, n], port)))
}

/// The first outcome for a target that is one of these. A machine that is busy elsewhere may well be INCONCLUSIVE first.
fn outcome_among(results: &[ProbeResult], target: Target) -> Outcome {
    let (engine, _reports, ledger) = start(1, 100);
    engine.set_targets(vec![target]);
    wait(
        "an outcome",
        || {
            let outcomes = ledger.outcomes().into_iter().map(|line| line.1);
            outcomes
                .into_iter()
                .find(|outcome| results.contains(&outcome.result))
        },
        || format!("{:?}", ledger.outcomes()),
    )
}

#[test]
fn p16_each_way_of_answering_gets_its_outcome() {
    use ProbeResult::{Fail, Pass, Timeout};
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let forever = || {
        peer(|mut stream| {
            take_request(&mut stream);
            say(&mut stream, b"HTTP/1.1 200 OK\r\nA: ");
            while stream.write_all(&[b'a'; 4096]).is_ok() {}
        })
    };
    #[rustfmt::skip]
    let table = [
        ("HTTP 200", answering(ok), http(), Pass, ReasonCode::ResponseOk),
        ("a body as wanted", answering(ok), http_wanting("ell"), Pass, ReasonCode::ResponseOk),
        ("HTTP 503", answering(b"HTTP/1.1 503 No\r\n\r\n"), http(), Fail, ReasonCode::StatusMismatch),
        ("refused", nobody(), http(), Timeout, ReasonCode::ConnectRefused),
        ("refused, TCP", nobody(), tcp(None, None), Timeout, ReasonCode::ConnectRefused),
        ("accepted, never answered", answering(b""), http(), Timeout, ReasonCode::ResponseTimeout),
        ("half a response, then silence", answering(b"HTTP/1.1 200 OK\r\nServ"), http(), Timeout, ReasonCode::ResponseTimeout),
        ("half a body, then silence", answering(b"HTTP/1.1 200 OK\r\n\r\nhel"), http_wanting("hello"),
            Timeout, ReasonCode::ResponseTimeout),
        ("half a response, then FIN", peer(|mut stream| {
            take_request(&mut stream);
            say(&mut stream, b"HTTP/1.1 200 OK\r\nServ");
        }), http(), Fail, ReasonCode::PeerClosed),
        ("garbage", answering(b"220 mail ESMTP\r\n"), http(), Fail, ReasonCode::MalformedResponse),
        ("answers for ever", forever(), http(), Fail, ReasonCode::HeadersTooLarge),
        ("reset instead of an answer", peer(|mut stream| {
            take_request(&mut stream);
            reset(stream);
        }), http(), Fail, ReasonCode::PeerReset),
        ("an answer, then reset", peer(|mut stream| {
            take_request(&mut stream);
            say(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
            until_closed(&mut stream);
            reset(stream);
        }), http(), Pass, ReasonCode::ResponseOk),
        ("plain TCP", answering(b""), tcp(None, None), Pass, ReasonCode::Connected),
        ("plain TCP, FIN from the peer", peer(drop), tcp(None, None), Pass, ReasonCode::Connected),
        ("request only, junk back", answering(b"junk"), tcp(Some("PING"), None), Pass, ReasonCode::Connected),
        ("PONG", answering(b"PONG"), tcp(Some("PING"), Some("PONG")), Pass, ReasonCode::ResponseOk),
        ("PONG, peer speaks first", peer(|mut stream| {
            say(&mut stream, b"PONG");
            until_closed(&mut stream);
        }), tcp(None, Some("PONG")), Pass, ReasonCode::ResponseOk),
        ("PONG and more", answering(b"PONG\r\n"), tcp(Some("PING"), Some("PONG")), Fail, ReasonCode::BodyMismatch),
        ("silence instead of PONG", answering(b""), tcp(Some("PING"), Some("PONG")), Timeout, ReasonCode::ResponseTimeout),
        ("reset instead of PONG", peer(|mut stream| {
            take_request(&mut stream);
            reset(stream);
        }), tcp(Some("PING"), Some("PONG")), Fail, ReasonCode::PeerReset),
    ];
    let (engine, mut reports, ledger) = start(2, 100);
    let targets: Vec<Target> = table
        .iter()
        .map(|(_, address, protocol, ..)| target(*address, &check(2_000, protocol.clone())))
        .collect();
    engine.set_targets(targets.clone());
    let mut outcomes = HashMap::new();
    wait(
        "an outcome for each",
        || {
            while let Ok(report) = reports.try_recv() {
                outcomes.entry(report.key).or_insert(report.outcome);
            }
            (outcomes.len() == targets.len()).then_some(())
        },
        || format!("{:?}", ledger.outcomes()),
    );
    for ((what, _, _, result, code), target) in table.into_iter().zip(targets) {
        let outcome = &outcomes[&target.key];
        assert_eq!(
            (outcome.result, outcome.reason.code),
            (result, code),
            "{what}: {}",
            outcome.reason
        );
    }
}

#[test]
fn p1_a_trickled_answer_ends_with_the_absolute_deadline() {
    let address = peer(|mut stream| {
        take_request(&mut stream);
        let bytes = b"HTTP/1.1 200 OK\r\nA: "
            .iter()
            .chain(std::iter::repeat(&b'a'));
        for byte in bytes {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(30));
        }
    });
    let outcome = outcome_among(
        &[ProbeResult::Pass, ProbeResult::Fail, ProbeResult::Timeout],
        target(address, &check(300, http())),
    );
    assert_eq!(
        outcome.reason.code,
        ReasonCode::ResponseTimeout,
        "{outcome:?}"
    );
    // Later than by 250 ms it would have been INCONCLUSIVE.
    let total = outcome.times.total.as_millis();
    assert!((300..=550).contains(&total), "{outcome:?}");
    assert!(outcome.times.first_byte.is_some(), "{outcome:?}");
}

#[test]
fn p8_exact_waits_for_quiet_and_the_deadline_cuts_it_short() {
    let address = answering(b"PONG");
    let passed = |timeout| {
        let check = check(timeout, tcp(Some("PING"), Some("PONG")));
        outcome_among(&[ProbeResult::Pass], target(address, &check))
    };
    let whole = passed(2_000);
    assert!(whole.times.total >= Duration::from_millis(100), "{whole:?}");
    // With 100 ms in all, 100 ms of quiet after the answer never fit.
    let cut = passed(100);
    assert_eq!(cut.reason.code, ReasonCode::ResponseOk, "{cut:?}");
}

#[test]
fn s1_s2_reports_follow_the_tally_and_the_pulse_beats() {
    let (engine, mut reports, ledger) = start(2, 100);
    let good = target(answering(b"HTTP/1.1 200 OK\r\n\r\n"), &check(500, http()));
    let bad = target(nobody(), &check(500, http()));
    let pulse = good.pulse.clone();
    engine.set_targets(vec![good.clone(), bad.clone(), good.clone()]);
    let mut seen = HashMap::new();
    wait(
        "both are judged",
        || {
            while let Ok(report) = reports.try_recv() {
                seen.entry(report.key).or_insert(report);
            }
            (seen.len() == 2).then_some(())
        },
        || format!("{:?}", ledger.outcomes()),
    );
    assert_eq!(
        seen[&good.key].step,
        Step::Judged {
            from: None,
            to: Verdict::Healthy
        }
    );
    assert_eq!(seen[&bad.key].tally.verdict, Some(Verdict::Timeout));
    assert!(pulse.last().is_some());
    // A steady state is no news.
    let before = ledger.count();
    wait(
        "ten more probes",
        || (ledger.count() >= before + 10).then_some(()),
        || format!("{} probes", ledger.count()),
    );
    assert!(reports.try_recv().is_err());
    assert_eq!(engine.faults(), 0);
    engine.shutdown();
    assert!(matches!(
        reports.try_recv(),
        Err(mpsc::error::TryRecvError::Disconnected)
    ));
}

#[test]
fn s3_a_reload_keeps_phase_and_counters() {
    let (engine, mut reports, ledger) = start(2, 100);
    let check = Arc::new(
        HealthCheck::new(HealthCheckSpec {
            check_interval: Some(Duration::from_millis(300)),
            timeout: Some(Duration::from_millis(300)),
            unhealthy_threshold: Some(10),
            ..http()
        })
        .unwrap(),
    );
    let mut seeded = target(nobody(), &check);
    let mut healthy = Tally::new();
    healthy.record(ProbeResult::Pass, check.thresholds());
    seeded.seed = healthy;
    let mut counted = Vec::new();
    wait(
        "ten failures turn it, over as many reloads",
        || {
            // Every reload brings the seed and a neighbour anew; neither may disturb.
            let other = target(nobody(), &check);
            // The system may choose the same port again.
            if other.key != seeded.key {
                engine.set_targets(vec![seeded.clone(), other]);
            }
            while let Ok(report) = reports.try_recv() {
                if report.key == seeded.key {
                    counted.push(report);
                }
            }
            counted
                .iter()
                .any(|report| matches!(report.step, Step::Judged { .. }))
                .then_some(())
        },
        || format!("{} outcomes", ledger.count()),
    );
    let counters: Vec<u8> = counted.iter().map(|r| r.tally.opposing).collect();
    assert_eq!(counters, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
    // Reloads, every other millisecond, start nothing: the probes keep their distance.
    let spans: Vec<u128> = counted
        .windows(2)
        .map(|pair| pair[1].at.duration_since(pair[0].at).unwrap().as_millis())
        .collect();
    let total: u128 = spans.iter().sum();
    assert!(
        total >= 2_400,
        "nine intervals of 300 ms, whatever was reloaded: {spans:?}"
    );
}

#[test]
fn a_target_that_was_gone_in_a_set_the_worker_never_saw_is_judged_anew() {
    let (engine, mut reports, ledger) = start(1, 100);
    let peer = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let mut known = target(peer, &check(200, http()));
    for life in 1..=3 {
        engine.set_targets(vec![known.clone()]);
        wait(
            "a first word in each life",
            || {
                reports
                    .try_recv()
                    .ok()
                    .filter(|report| matches!(report.step, Step::Judged { from: None, .. }))
            },
            || format!("life {life}, {} outcomes", ledger.count()),
        );
        // The same target with another pulse: its owner has forgotten it meanwhile.
        known.pulse = Arc::new(Pulse::default());
    }
}

#[test]
fn a_probe_that_did_not_pass_leaves_its_reason_with_the_pulse() {
    let (engine, _reports, ledger) = start(1, 100);
    let refused = target(nobody(), &check(200, tcp(None, None)));
    assert_eq!(refused.pulse.last_failure(), None);
    engine.set_targets(vec![refused.clone()]);
    let failure = wait(
        "a failure",
        || refused.pulse.last_failure(),
        || format!("{} outcomes", ledger.count()),
    );
    assert_eq!(
        (failure.result, failure.reason.code),
        (ProbeResult::Timeout, ReasonCode::ConnectRefused)
    );
}

#[test]
fn s3_a_dropped_target_takes_its_probe_along() {
    let open = Arc::new(AtomicUsize::new(0));
    let address = {
        let open = open.clone();
        peer(move |mut stream| {
            open.fetch_add(1, Ordering::SeqCst);
            until_closed(&mut stream);
            open.fetch_sub(1, Ordering::SeqCst);
        })
    };
    let (engine, _reports, ledger) = start(1, 10);
    let seen = || {
        format!(
            "{} open, {:?}",
            open.load(Ordering::SeqCst),
            ledger.outcomes()
        )
    };
    engine.set_targets(vec![target(address, &check(60_000, http()))]);
    wait(
        "the probe is under way",
        || (open.load(Ordering::SeqCst) == 1).then_some(()),
        seen,
    );
    engine.set_targets(Vec::new());
    wait(
        "its connection is closed",
        || (open.load(Ordering::SeqCst) == 0).then_some(()),
        seen,
    );
    assert_eq!(ledger.count(), 0, "no outcome for what was dropped");
}

#[test]
fn p16_the_cap_is_honoured_and_what_it_delays_too_long_is_inconclusive() {
    let silent = answering(b"");
    let (engine, mut reports, ledger) = start(1, 3);
    // Differing paths make differing keys. Twelve that hang for 400 ms each, three at a time.
    let targets: Vec<Target> = (0..12)
        .map(|n| {
            let http = HealthCheckSpec::http(HttpSpec {
                request_path: Some(format!("/{n}")),
                ..HttpSpec::default()
            });
            target(silent, &check(400, http))
        })
        .collect();
    engine.set_targets(targets.clone());
    let mut judged = HashMap::new();
    wait(
        "all are judged in spite of the cap, and late ones are INCONCLUSIVE",
        || {
            while let Ok(report) = reports.try_recv() {
                judged.insert(report.key, report.tally);
            }
            let late = ledger
                .outcomes()
                .iter()
                .any(|line| line.1.reason.code == ReasonCode::LocalLate);
            (judged.len() == targets.len() && late).then_some(())
        },
        || format!("{:?}", ledger.outcomes()),
    );
    let run: Vec<(Instant, Instant)> = ledger
        .outcomes()
        .into_iter()
        .filter(|(_, outcome, ..)| outcome.reason.code != ReasonCode::LocalLate)
        .map(|(_, outcome, _, end)| (end - outcome.times.total, end))
        .collect();
    for &(start, _) in &run {
        let at_once = run
            .iter()
            .filter(|&&(other, end)| other <= start && start < end);
        assert!(at_once.count() <= 3, "more than three at once: {run:?}");
    }
    for (_, outcome, lateness, _) in ledger.outcomes() {
        let late = outcome.reason.code == ReasonCode::LocalLate;
        assert_eq!(
            late,
            outcome.result == ProbeResult::Inconclusive,
            "{outcome:?}"
        );
        assert!(
            !late || lateness > Duration::from_millis(250),
            "{lateness:?}"
        );
    }
    assert!(
        judged
            .values()
            .all(|tally| tally.verdict == Some(Verdict::Timeout)),
        "{judged:?}"
    );
}

/// An address whose queue of connections is full: the kernel drops each further SYN. It holds what it returns.
fn blackhole() -> (SocketAddr, Vec<socket2::Socket>) {
    let socket =
        || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = socket();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = vec![listener];
    loop {
        let stream = socket();
        let let_in = stream.connect_timeout(&address, Duration::from_millis(300));
        held.push(stream);
        if let_in.is_err() {
            return (address.as_socket().unwrap(), held);
        }
    }
}

#[test]
fn p1_p16_s3_hundreds_of_blackholed_endpoints_cost_the_others_no_lateness() {
    const BLACKHOLED: usize = 400;
    let (nowhere, _held) = blackhole();
    let good = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (engine, _reports, ledger) = start(1, 2 * BLACKHOLED);
    let (slow, quick) = (check(500, http()), check(200, http()));
    // Differing hosts make differing keys.
    let named = |address, check: &Arc<HealthCheck>, n: usize| {
        let names = Names {
            host: format!("host-{n}").into(),
            sni: None,
        };
        Target {
            key: StateKey::new(address, &names, check),
            names,
            ..target(address, check)
        }
    };
    let lost = (0..BLACKHOLED).map(|n| named(nowhere, &slow, n));
    let kept = (0..20).map(|n| named(good, &quick, n));
    engine.set_targets(lost.chain(kept).collect());
    let of = |check: &Arc<HealthCheck>| -> Vec<_> {
        let lines = ledger.outcomes().into_iter();
        lines.filter(|line| line.0 == **check).collect()
    };
    wait(
        "some rounds of both",
        || (of(&slow).len() >= 3 * BLACKHOLED && of(&quick).len() >= 150).then_some(()),
        || format!("{} and {}", of(&slow).len(), of(&quick).len()),
    );
    let middle = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    for (_, outcome, ..) in of(&quick) {
        let late = outcome.reason.code == ReasonCode::LocalLate;
        assert!(late || outcome.result == ProbeResult::Pass, "{outcome:?}");
    }
    for (_, outcome, ..) in of(&slow) {
        let late = outcome.reason.code == ReasonCode::LocalLate;
        assert!(
            late || outcome.reason.code == ReasonCode::ConnectTimeout,
            "{outcome:?}"
        );
    }
    let lateness = middle(of(&quick).iter().map(|line| line.2).collect());
    assert!(lateness < Duration::from_millis(100), "{lateness:?}");
    let took = middle(of(&slow).iter().map(|line| line.1.times.total).collect());
    let deadline = Duration::from_millis(500);
    assert!(took >= deadline && took < deadline * 3 / 2, "{took:?}");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn p15_some_thousand_hostile_probes_leave_no_descriptor_behind() {
    // In a process of its own: other tests open and close descriptors meanwhile.
    const MARK: &str = "VITALS_PROBER_TEST_ALONE";
    let name = "engine::tests::p15_some_thousand_hostile_probes_leave_no_descriptor_behind";
    if std::env::vars_os().all(|(key, _)| key != MARK) {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(MARK, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        return;
    }
    let peers = [
        nobody(),
        peer(drop),
        peer(reset),
        answering(b"garbage"),
        answering(b"HTTP/1.1 200 OK\r\nA: "),
        peer(|mut stream| {
            say(&mut stream, &[0; 100_000]);
        }),
        // To a ClientHello: an alert; the beginning of a handshake message that never ends.
        answering(b"\x15\x03\x03\0\x02\x02\x28"),
        answering(b"\x16\x03\x03\x3e\x80\x02"),
    ];
    let checks = [
        check(100, http()),
        check(100, HealthCheckSpec::of(Kind::Https)),
    ];
    let (engine, _reports, ledger) = start(2, 64);
    let before = descriptors();
    let targets = peers
        .iter()
        .flat_map(|&address| (0..60).map(move |n| (address, format!("host-{n}"), n % 2)));
    engine.set_targets(
        targets
            .map(|(address, host, check)| {
                let check = &checks[check];
                let names = Names {
                    host: host.into(),
                    sni: None,
                };
                Target {
                    key: StateKey::new(address, &names, check),
                    names,
                    ..target(address, check)
                }
            })
            .collect(),
    );
    wait(
        "4,000 probes",
        || (ledger.count() >= 4_000).then_some(()),
        || format!("{} probes", ledger.count()),
    );
    engine.set_targets(Vec::new());
    wait(
        "as many descriptors as before",
        || (descriptors() <= before).then_some(()),
        || format!("{} instead of {before}", descriptors()),
    );
    assert_eq!(engine.faults(), 0);
}

#[test]
fn a_panic_in_one_probe_is_counted_and_harms_nobody() {
    let (engine, mut reports, ledger) = start(1, 100);
    ledger.panic_once.store(3, Ordering::Relaxed);
    let check = check(200, http());
    let targets: Vec<Target> = nobodies(5).map(|nobody| target(nobody, &check)).collect();
    engine.set_targets(targets.clone());
    let mut probes = 0;
    let mut keys = std::collections::HashSet::new();
    wait(
        "all five are judged and go on",
        || {
            while let Ok(report) = reports.try_recv() {
                keys.insert(report.key);
            }
            probes = ledger.count();
            (keys.len() == 5 && probes >= 20).then_some(())
        },
        || format!("{} outcomes", ledger.count()),
    );
    assert_eq!(engine.faults(), 3);
}

#[test]
fn a_reader_that_is_behind_gets_the_newest_state_of_every_target() {
    let ledger = Arc::new(Ledger::default());
    let config = EngineConfig {
        workers: 1,
        max_in_flight: 100,
        vantage: "test".into(),
        source_address: None,
    };
    let (engine, mut reports) = Engine::start_with_room(config, ledger.clone(), 1).unwrap();
    let check = check(200, http());
    let targets: Vec<Target> = nobodies(20).map(|nobody| target(nobody, &check)).collect();
    engine.set_targets(targets.clone());
    wait(
        "every target was probed twice while nobody read",
        || (ledger.count() >= 60).then_some(()),
        || format!("{} probes", ledger.count()),
    );
    let mut verdicts = HashMap::new();
    wait(
        "the reader catches up",
        || {
            while let Ok(report) = reports.try_recv() {
                verdicts.insert(report.key, report.tally.verdict);
            }
            (verdicts.len() == targets.len()).then_some(())
        },
        || "fewer verdicts than targets".into(),
    );
    assert!(verdicts.values().all(|&v| v == Some(Verdict::Timeout)));
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
fn p12_p14_a_grpc_probe_that_is_sent_away_is_answered_on_a_fresh_connection() {
    let mut serving = frame(4, 0, 0, b"");
    let head = b"\x88\0\x0ccontent-type\x10application/grpc";
    serving.extend(frame(1, 4, 1, head));
    serving.extend(frame(0, 0, 1, b"\0\0\0\0\x02\x08\x01"));
    serving.extend(frame(1, 5, 1, b"\0\x0bgrpc-status\x010"));
    let mut away = frame(4, 0, 0, b"");
    away.extend(frame(7, 0, 0, &[0; 8]));
    let connections = AtomicUsize::new(0);
    let address = peer(move |mut stream| {
        let odd = connections.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        take_request(&mut stream);
        say(&mut stream, if odd { &serving } else { &away });
        until_closed(&mut stream);
    });
    let (engine, _reports, ledger) = start(1, 100);
    let check = check(2_000, HealthCheckSpec::of(Kind::Grpc));
    engine.set_targets(vec![target(address, &check)]);
    let seen = || ledger.outcomes();
    wait(
        "an outcome of the endpoint's own",
        || {
            seen()
                .into_iter()
                .find(|line| line.1.result != ProbeResult::Inconclusive)
        },
        || format!("{:?}", seen()),
    );
    let (_, outcome, ..) = &seen()[0];
    assert_eq!(outcome.reason.code, ReasonCode::ResponseOk, "{outcome:?}");
    assert_eq!(engine.faults(), 0);
}

#[test]
fn p10_p17_the_engine_probes_from_its_source_address_and_over_tls() {
    let (sender, seen) = std::sync::mpsc::sync_channel(64);
    let address = peer(move |mut stream| {
        let mut hello = [0; 4096];
        let n = stream.read(&mut hello).unwrap_or(0);
        // The ClientHello, answered by the alert handshake_failure.
        let from = stream.peer_addr().ok().map(|peer| peer.ip().to_string());
        sender.send((from, hello[..n].first().copied())).ok();
        say(&mut stream, b"\x15\x03\x03\0\x02\x02\x28");
        until_closed(&mut stream);
    });
    let ledger = Arc::new(Ledger::default());
    let config = EngineConfig {
        workers: 1,
        max_in_flight: 100,
        vantage: "test".into(),
        source_address: Some("127.7.6.5".parse().unwrap()),
    };
    let (engine, _reports) = Engine::start(config, ledger.clone()).unwrap();
    let https = check(2_000, HealthCheckSpec::of(Kind::Https));
    let other_family = "[::1]:9".parse().unwrap();
    engine.set_targets(vec![target(address, &https), target(other_family, &https)]);
    let first = seen.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first, (Some("127.7.6.5".into()), Some(22)));
    let codes = || -> Vec<ReasonCode> {
        let outcomes = ledger.outcomes();
        outcomes.iter().map(|line| line.1.reason.code).collect()
    };
    wait(
        "an alert, and a source of the other family",
        || {
            let codes = codes();
            (codes.contains(&ReasonCode::TlsAlert) && codes.contains(&ReasonCode::LocalNoRoute))
                .then_some(())
        },
        || format!("{:?}", ledger.outcomes()),
    );
}
