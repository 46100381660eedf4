//! Peers that hold connections, are silent, vanish, or are too many: each ends, is counted, and costs nobody else anything.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use vitals_tests::authority::{Authority, client_config};
use vitals_tests::backend::Backend;
use vitals_tests::lab::Scene;
use vitals_tests::raw_xds::{PREFACE, connect, subscribe, wait_for_end};
use vitals_tests::servers::Certificate;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually, pause, until};
use vitals_tests::xds::{ASSIGNMENT, CLUSTER, XdsClient, node};
use vitals_tests::{Transport, on_both_transports};

on_both_transports!(
    a_peer_has_so_many_streams_and_no_more,
    a_client_that_asks_too_often_is_read_later,
    a_stream_that_asks_for_nothing_ends,
    a_connection_of_age_is_asked_to_end_and_its_envoy_comes_back,
);

struct Stage {
    vitals: Vitals,
    _backends: Vec<Backend>,
    scene: Scene,
}

fn stage(flags: &[&str]) -> Stage {
    stage_on(Scene::new(), flags)
}

fn stage_on(scene: Scene, flags: &[&str]) -> Stage {
    let backends = scene.backends(1);
    scene.shop(&backends).save(&scene.config_path());
    let vitals = Vitals::spawn_as(
        scene.net(),
        &scene.config_path(),
        scene.dir(),
        |mut command| {
            command.args(flags);
            command
        },
    );
    vitals.wait_until_ready();
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
    Stage {
        vitals,
        _backends: backends,
        scene,
    }
}

impl Stage {
    fn metric(&self, name: &str, labels: &str) -> f64 {
        self.vitals.metric(name, labels).expect("there are metrics")
    }

    fn refusals(&self, reason: &str) -> f64 {
        self.metric("vitals_refusals_total", &format!("reason=\"{reason}\""))
    }

    fn connections(&self) -> f64 {
        self.metric("vitals_connections", "listener=\"xds\"")
    }

    fn wait_for_refusals(&self, reason: &str, least: f64) {
        eventually(SOON, &format!("{least} refusals for {reason}"), || {
            let seen = self.refusals(reason);
            (seen >= least)
                .then_some(())
                .ok_or_else(|| seen.to_string())
        });
    }

    fn wait_until_empty(&self) {
        eventually(SOON, "no connection is left", || {
            let seen = self.connections();
            (seen == 0.0).then_some(()).ok_or_else(|| seen.to_string())
        });
    }
}

fn tls_stage() -> (Stage, Authority, Certificate) {
    let scene = Scene::new();
    let authority = Authority::new(scene.dir(), "ca");
    let own = authority.issue("server", "vitals.example");
    let client = authority.issue("client", "envoy.example");
    let [cert, key, ca] = [&own.cert, &own.key, &authority.cert].map(|path| path.to_str().unwrap());
    let flags = ["--tls-cert", cert, "--tls-key", key, "--client-ca", ca];
    (stage_on(scene, &flags), authority, client)
}

/// A whole handshake, and a stream that is told of the service.
fn served_over_tls(
    server: SocketAddr,
    config: &std::sync::Arc<rustls::ClientConfig>,
) -> std::io::Result<()> {
    let name = "vitals.example".try_into().expect("a name");
    let mut session =
        rustls::ClientConnection::new(config.clone(), name).map_err(std::io::Error::other)?;
    let mut socket = connect(server)?;
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.write_all(PREFACE)?;
    stream.flush()
}

#[test]
fn handshakes_that_never_end_make_room_for_those_that_do() {
    let (s, authority, client) = tls_stage();
    let server = s.vitals.xds();
    let begin = Instant::now();
    let mut slow: Vec<TcpStream> = Vec::new();
    for n in 0..1_500 {
        let mut socket = connect(server).unwrap();
        if n % 2 == 0 {
            // The head of a record that never comes.
            socket.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        }
        slow.push(socket);
    }
    s.wait_for_refusals("handshake_crowd", 400.0);
    let config = client_config(&authority.cert, Some(&client));
    let before = Instant::now();
    served_over_tls(server, &config).unwrap();
    assert!(
        before.elapsed() < Duration::from_secs(5),
        "{:?}",
        before.elapsed()
    );
    s.wait_for_refusals("handshake_timeout", 1_000.0);
    assert!(
        begin.elapsed() > Duration::from_secs(9),
        "they had their time"
    );
    for socket in &mut slow {
        wait_for_end(socket).unwrap();
    }
    s.wait_until_empty();
    let log = s.vitals.log();
    assert!(log.contains("no TLS handshake within 10 s"), "{log}");
    let lines = log.lines().filter(|line| line.contains("refused")).count();
    assert!(lines < 500, "{lines} lines for 1,500 refusals");
}

#[test]
fn plain_bytes_to_a_tls_port_end_at_once() {
    let (s, ..) = tls_stage();
    for bytes in [PREFACE, b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[0xff; 4096]] {
        let before = Instant::now();
        let mut socket = connect(s.vitals.xds()).unwrap();
        socket.write_all(bytes).unwrap();
        wait_for_end(&mut socket).unwrap();
        assert!(before.elapsed() < Duration::from_secs(5), "{bytes:?}");
    }
    s.wait_for_refusals("handshake", 4.0);
    s.wait_until_empty();
}

#[test]
fn who_says_nothing_or_too_slowly_is_sent_away() {
    let s = stage(&[]);
    let mut silent = connect(s.vitals.xds()).unwrap();
    let mut slow = connect(s.vitals.xds()).unwrap();
    let begin = Instant::now();
    for byte in &PREFACE[..4] {
        slow.write_all(&[*byte]).unwrap();
        pause(Duration::from_secs(1));
    }
    wait_for_end(&mut silent).unwrap();
    wait_for_end(&mut slow).unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(25),
        "{:?}",
        begin.elapsed()
    );
    s.wait_for_refusals("silent", 2.0);
    s.wait_until_empty();
    // The admin API has its own time for a request's head.
    let admin = s.vitals.admin();
    let mut half = connect(admin.trim_start_matches("http://").parse().unwrap()).unwrap();
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    wait_for_end(&mut half).unwrap();
}

#[test]
fn a_peer_that_vanished_is_noticed_by_pings() {
    let s = stage(&["--keepalive", "1s"]);
    let mut dead = connect(s.vitals.xds()).unwrap();
    subscribe(&mut dead, "shop").unwrap();
    assert_eq!(s.metric("vitals_xds_streams", "transport=\"SOTW\""), 1.0);
    // From here on it answers nothing, as one whose cable is cut.
    let begin = Instant::now();
    wait_for_end(&mut dead).unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    s.wait_until_empty();
    assert_eq!(s.metric("vitals_xds_streams", "transport=\"SOTW\""), 0.0);
}

#[test]
fn a_peer_has_so_many_connections_and_no_more() {
    let s = stage(&["--max-connections-per-peer", "3"]);
    let mut held: Vec<TcpStream> = (0..3).map(|_| connect(s.vitals.xds()).unwrap()).collect();
    for socket in &mut held {
        subscribe(socket, "shop").unwrap();
    }
    let mut fourth = connect(s.vitals.xds()).unwrap();
    wait_for_end(&mut fourth).unwrap();
    s.wait_for_refusals("connections", 1.0);
    until(SOON, "the log says who and why", || {
        let log = s.vitals.log();
        log.lines()
            .any(|line| line.contains("peer=127.") && line.contains("it has 3 connections already"))
    });
    drop(held.pop());
    eventually(SOON, "there is room again", || {
        let mut socket = connect(s.vitals.xds()).map_err(|error| error.to_string())?;
        subscribe(&mut socket, "shop").map_err(|error| error.to_string())
    });
}

fn first() -> serde_json::Value {
    json!({ "node": node("client-1", "edge"), "type_url": CLUSTER })
}

fn a_peer_has_so_many_streams_and_no_more(transport: Transport) {
    let s = stage(&["--max-streams-per-peer", "2"]);
    let mut client = XdsClient::start(s.vitals.xds(), s.scene.dir());
    for name in ["one", "two"] {
        client.open(name, transport);
        client.send(name, first());
        let _told = client.response(SOON, name, CLUSTER, 0);
    }
    client.open("three", transport);
    client.send("three", first());
    let (code, details) = client.end(SOON, "three");
    assert_eq!(code, "RESOURCE_EXHAUSTED", "{details}");
    assert_eq!(s.refusals("streams"), 1.0);
    client.close("one");
    eventually(SOON, "there is room again", || {
        client.open("again", transport);
        client.send("again", first());
        let came = eventually(SOON, "an answer or an end", || {
            let events = client.events("again");
            events.last().cloned().ok_or_else(|| "nothing".into())
        });
        (came["event"] == "response")
            .then_some(())
            .ok_or_else(|| came.to_string())
    });
}

fn a_client_that_asks_too_often_is_read_later(transport: Transport) {
    let s = stage(&["--max-requests-per-second", "1"]);
    let mut client = XdsClient::start(s.vitals.xds(), s.scene.dir());
    let key = match transport {
        Transport::Sotw => "resource_names",
        Transport::Delta | Transport::Leds => "resource_names_subscribe",
    };
    client.open("greedy", transport);
    let begin = Instant::now();
    for n in 0..14 {
        let mut request = json!({ "node": node("greedy", "edge"), "type_url": ASSIGNMENT });
        request[key] = json!(["shop", format!("other-{n}")]);
        client.send("greedy", request);
    }
    client.open("modest", transport);
    client.send("modest", first());
    let _told = client.response(SOON, "modest", CLUSTER, 0);
    let last = |client: &XdsClient| {
        let events = client.events("greedy");
        events
            .iter()
            .any(|event| event["names"].to_string().contains("other-13"))
    };
    until(SOON, "even the last request is answered", || last(&client));
    assert!(
        begin.elapsed() > Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    assert!(s.metric("vitals_xds_throttled_total", "") >= 3.0);
}

fn a_stream_that_asks_for_nothing_ends(transport: Transport) {
    let s = stage(&[]);
    let mut client = XdsClient::start(s.vitals.xds(), s.scene.dir());
    client.open("mute", transport);
    let (code, details) = client.end(SOON * 2, "mute");
    assert_eq!(code, "DEADLINE_EXCEEDED", "{details}");
    assert_eq!(s.refusals("no_request"), 1.0);
}

fn a_connection_of_age_is_asked_to_end_and_its_envoy_comes_back(transport: Transport) {
    let s = stage(&["--max-connection-age", "10s"]);
    let envoy = s.scene.envoy(&s.vitals, transport);
    envoy.wait_until_live(SOON);
    let connected = || -> Result<String, String> {
        let client = s.vitals.client(vitals_tests::lab::NODE)?;
        Ok(client["connectedAt"].to_string())
    };
    let before = eventually(SOON, "it is connected", connected);
    let mut client = XdsClient::start(s.vitals.xds(), s.scene.dir());
    client.open("s", transport);
    client.send("s", first());
    let (code, details) = client.end(SOON, "s");
    assert_eq!(code, "UNAVAILABLE", "{details}");
    assert!(details.contains("reconnect"), "{details}");
    until(SOON, "the log says why the stream has ended", || {
        let log = s.vitals.log();
        log.lines().any(|line| {
            ["INFO", "client disconnected", "--max-connection-age"]
                .iter()
                .all(|word| line.contains(word))
        })
    });
    eventually(SOON, "the Envoy has come back", || {
        let now = connected()?;
        (now != before).then_some(()).ok_or(now)
    });
    assert_eq!(envoy.admin("/ready").unwrap().status, 200);
    assert_eq!(s.scene.get("/").unwrap().status, 200);
}

#[test]
fn without_descriptors_connections_wait_and_are_served_later() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    scene.shop(&backends).save(&scene.config_path());
    let vitals = Vitals::spawn_as(scene.net(), &scene.config_path(), scene.dir(), |command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""]);
        limited.arg(command.get_program()).args(command.get_args());
        limited
    });
    vitals.wait_until_ready();
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
    let server = vitals.xds();
    // They say nothing, so that none of them ends soon; and each is another peer's, because one may have half of them only.
    let many: Vec<TcpStream> = (1..=250)
        .map(|n| vitals_tests::request::connect(server, Some([127, 0, 8, n].into())).unwrap())
        .collect();
    until(SOON, "the log tells", || {
        vitals.log().contains("cannot accept connections")
    });
    drop(many);
    let mut late = connect(server).unwrap();
    subscribe(&mut late, "shop").unwrap();
    let lines = vitals.log();
    let lines = lines.lines().filter(|line| line.contains("cannot accept"));
    assert!(lines.count() < 200, "the log is full of it");
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
}

/// Does something many times, on several threads.
fn storm(times: usize, act: impl Fn() + Sync) {
    const THREADS: usize = 4;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..times / THREADS).for_each(|_| act()));
        }
    });
}

/// Sees that after the storm the server is as it was before.
fn leaves_nothing(mut s: Stage, warm: usize, times: usize, act: impl Fn() + Sync) {
    storm(warm, &act);
    s.wait_until_empty();
    let quiet = |s: &mut Stage| {
        let descriptors = s.vitals.process().descriptors();
        let tasks = s.metric("vitals_tasks", "");
        (descriptors, tasks, s.vitals.process().resident_mib())
    };
    let before = quiet(&mut s);
    storm(times, &act);
    s.wait_until_empty();
    eventually(SOON, &format!("it is as before: {before:?}"), || {
        let now = quiet(&mut s);
        // A look at the metrics is itself a connection with a task or two.
        let well = now.0 <= before.0 + 2 && now.1 <= before.1 + 4.0 && now.2 <= before.2 + 24;
        well.then_some(()).ok_or_else(|| format!("{now:?}"))
    });
    let streams = s.metric("vitals_xds_streams", "");
    assert_eq!(streams, 0.0);
    assert_eq!(s.vitals.json("/v1/clients"), Ok(json!([])));
}

#[test]
fn ten_thousand_streams_that_come_and_go_leave_nothing_behind() {
    let s = stage(&[]);
    let server = s.vitals.xds();
    leaves_nothing(s, 1_000, 10_000, || {
        let mut socket = connect(server).unwrap();
        subscribe(&mut socket, "shop").unwrap();
    });
}

#[test]
fn ten_thousand_handshakes_that_break_off_leave_nothing_behind() {
    let (s, authority, client) = tls_stage();
    let server = s.vitals.xds();
    let config = client_config(&authority.cert, Some(&client));
    let count = std::sync::atomic::AtomicUsize::new(0);
    leaves_nothing(s, 1_000, 10_000, || {
        match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 10 {
            0 => served_over_tls(server, &config).unwrap(),
            n if n < 5 => drop(connect(server).unwrap()),
            _ => connect(server)
                .unwrap()
                .write_all(&[0x16, 3, 1, 2, 0, 1])
                .unwrap(),
        }
    });
}
