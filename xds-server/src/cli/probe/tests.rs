//! The command against real sockets on loopback, and its arguments. A machine that is busy elsewhere may make a probe
//! INCONCLUSIVE for being late: those are run again.

use std::io::Read as _;
use std::net::TcpListener;

use clap::{CommandFactory as _, Parser};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: ProbeArgs,
}

fn request(args: &[&str]) -> Result<Request, Vec<String>> {
    let cli = Cli::try_parse_from(["probe"].iter().chain(args)).unwrap();
    Request::new(&cli.args)
}

fn errors(args: &[&str]) -> Vec<String> {
    request(args).unwrap_err()
}

/// A peer that reads, answers so, and closes.
fn peer(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let read = stream.read(&mut [0; 4096]);
            drop(read.and_then(|_| stream.write_all(answer)));
        }
    });
    address
}

fn run_once(args: &[&str]) -> (String, ProbeResult) {
    let cli = Cli::try_parse_from(["probe"].iter().chain(args)).unwrap();
    let request = Request::new(&cli.args).unwrap();
    for _ in 0..20 {
        let mut out = Vec::new();
        let result = request.serve(&cli.args.target, cli.args.output, &mut out);
        let text = String::from_utf8(out).unwrap();
        if !text.contains("LOCAL_LATE") {
            return (text, result);
        }
    }
    panic!("always late")
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe\"lo";

#[test]
fn p4_every_step_is_told_with_what_was_sent_and_came() {
    let address = peer(OK);
    let (text, result) = run_once(&[&address, "--type", "http", "--header", "X-Probe: a"]);
    assert_eq!(result, ProbeResult::Pass, "{text}");
    for part in [
        "HTTP check: profile GCP, timeout 5 s\n  asks    GET / by HTTP/1.1\n  passes  when the final status is in {200}\n",
        &format!("\nprobe of {address}: host \"{address}\"\n"),
        &format!(" ms  connecting to {address}\n"),
        " ms  connected, from 127.0.0.1:",
        "                   GET / HTTP/1.1\\r\\n\n",
        "                   X-Probe: a\\r\\n\n",
        "                   HTTP/1.1 200 OK\\r\\n\n",
        "                   he\"lo\n",
        "  rule    P4: the final status is in {200}\n",
        "  times   connect ",
        "  PASS, RESPONSE_OK (L7): ",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn json_has_the_same_in_one_document() {
    let address = peer(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let (text, result) = run_once(&[&address, "--type", "HTTP", "--output", "json"]);
    assert_eq!((result, exit_code(result)), (ProbeResult::Fail, 1));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["target"], address.as_str());
    assert_eq!(
        json["check"],
        serde_json::json!({ "type": "HTTP", "profile": "GCP", "timeoutMs": 5000.0 })
    );
    assert_eq!(
        (&json["result"], &json["exitCode"]),
        (&"FAIL".into(), &1.into())
    );
    let probe = &json["probes"][0];
    assert_eq!(probe["reason"]["code"], "STATUS_MISMATCH");
    assert_eq!(probe["reason"]["layer"], "L7");
    assert!(
        probe["times"]["totalMs"].as_f64().unwrap()
            >= probe["times"]["connectMs"].as_f64().unwrap()
    );
    assert!(probe["times"]["tlsMs"].is_null());
    let steps: Vec<_> = probe["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["step"].as_str().unwrap())
        .collect();
    assert_eq!(steps[..4], ["CONNECTING", "CONNECTED", "SENT", "RECEIVED"]);
    assert_eq!(
        probe["steps"][3]["data"],
        "HTTP/1.1 503 Busy\\r\\nContent-Length: 0\\r\\n\\r\\n"
    );
}

#[test]
fn p16_refused_is_timeout_and_exit_code_2() {
    // A port that was given to a listener is not given again soon.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let (text, result) = run_once(&[&closed, "--type", "TCP"]);
    assert_eq!((result, exit_code(result)), (ProbeResult::Timeout, 2));
    assert!(
        text.contains("\n  TIMEOUT, CONNECT_REFUSED (L4): "),
        "{text}"
    );
}

#[test]
fn v7_every_address_of_a_name_is_probed_and_the_worst_counts() {
    use ProbeResult::{Fail, Inconclusive, Pass, Timeout};
    assert_eq!(worst(&[Pass, Fail, Inconclusive]), Fail);
    assert_eq!(worst(&[Timeout, Fail]), Timeout);
    assert_eq!(worst(&[Inconclusive, Pass]), Inconclusive);
    assert_eq!(worst(&[]), Inconclusive);
    let address = peer(OK);
    let port = address.rsplit(':').next().unwrap();
    let by_name = format!("localhost:{port}");
    let args = [&*by_name, "--type", "HTTP", "--source-address", "127.0.0.1"];
    let (text, result) = run_once(&args);
    assert_eq!(result, Pass, "{text}");
    assert!(text.contains("host \"localhost\""), "{text}");
}

#[test]
fn p16_a_name_that_is_not_resolved_is_inconclusive() {
    // A label of 64 characters can be no name (RFC 1035), so nobody is asked.
    let name = format!("{}.invalid:80", "x".repeat(64));
    let (text, result) = run_once(&[&name, "--type", "TCP"]);
    assert_eq!((result, exit_code(result)), (ProbeResult::Inconclusive, 3));
    assert!(text.contains("  INCONCLUSIVE: "), "{text}");
    let (text, _) = run_once(&[&name, "--type", "TCP", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["exitCode"], 3);
    assert!(json["error"].is_string() && json["probes"] == serde_json::json!([]));
}

#[test]
fn a_reader_that_has_gone_is_no_panic_and_the_probe_is_made() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let address = peer(OK);
    let request = request(&[&address, "--type", "HTTP", "--expected-statuses", "503"]).unwrap();
    for output in [Output::Text, Output::Json] {
        let result = request.serve(&address, output, &mut Gone);
        assert!(matches!(
            result,
            ProbeResult::Fail | ProbeResult::Inconclusive
        ));
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once_under_its_flag() {
    let found = errors(&[
        "shop",
        "--type=HTTP",
        "--timeout=5",
        "--profile=AWS",
        "--request-path=x",
        "--expected-statuses=200,600",
        "--header=Host:a",
        "--header=nothing",
        "--method=POST",
        "--request=PING",
        "--grpc-method=x",
        "--source-address=eth0",
    ]);
    let flags: Vec<_> = found
        .iter()
        .map(|e| e.split_once(": ").unwrap().0)
        .collect();
    let expected = [
        "HOST:PORT",
        "--source-address",
        "--profile",
        "--request",
        "--grpc-method",
        "--timeout",
        "--header",
        "--method",
        "--request-path",
        "--header Host",
        "--expected-statuses",
    ];
    assert_eq!(flags, expected, "{found:#?}");
}

#[test]
fn the_probers_sentences_name_flags() {
    for (args, error) in [
        (
            &["--type=GRPC", "--grpc-expected-codes=0"][..],
            "--grpc-expected-codes: codes need a method to be called; give --grpc-method, or leave \
             --grpc-expected-codes out for grpc.health.v1",
        ),
        (
            &["--type=HTTPS", "--header=Host:a"],
            "--header Host: the probe sets Host itself; use --host",
        ),
        (
            &["--type=SSL", "--match=PREFIX"],
            "--match: there is no response to match; give --response, or leave match out",
        ),
        (
            &["--type=TCP", "--tls-sni=a.example"],
            "--tls-sni: it belongs to the types SSL, HTTPS, HTTP2, GRPC_WITH_TLS, and this probe is TCP; leave it out, \
             or change --type",
        ),
        (
            &["--request-path=/", "--tls-sni=a.example"],
            "--type: a check has a type; write one of TCP, SSL, HTTP, HTTPS, HTTP2, GRPC, GRPC_WITH_TLS",
        ),
        (
            &["--type=TCP", "--source-address=::1"],
            "--source-address: ::1 is of another family than 127.0.0.1; give one of the same, or none",
        ),
    ] {
        let args: Vec<_> = std::iter::once("127.0.0.1:1")
            .chain(args.iter().copied())
            .collect();
        assert_eq!(errors(&args), [error]);
    }
    let found = errors(&["127.0.0.1:1", "--type=SSL", "--tls-roots=/nowhere/at/all"]);
    assert!(
        found[0].starts_with("--tls-roots: cannot read /nowhere/at/all: "),
        "{found:?}"
    );
}

#[test]
fn p2_the_profile_and_the_longest_timeout_are_those_of_the_flags() {
    let check = |args: &[&str]| {
        let args: Vec<_> = std::iter::once("127.0.0.1:1")
            .chain(args.iter().copied())
            .collect();
        request(&args).unwrap().check
    };
    assert_eq!(check(&["--type=TCP"]).timeout().as_secs(), 5);
    assert_eq!(
        check(&["--type=TCP", "--timeout=5m"]).timeout().as_secs(),
        300
    );
    // Its default type and timeout.
    let tencent = check(&["--profile=tencent_alb"]);
    assert_eq!(
        (tencent.type_name(), tencent.timeout().as_secs()),
        ("TCP", 2)
    );
    // It wants a fixed port, and HOST:PORT has one.
    assert_eq!(
        check(&["--profile=GCP_LEGACY", "--type=HTTP"]).fixed_port(),
        Some(1)
    );
    let headers = check(&["--type=HTTP", "--header=A: b:c", "--header=D:"]);
    let vitals_prober::check::Protocol::Http(http) = headers.protocol() else {
        panic!("HTTP")
    };
    assert_eq!(
        http.headers(),
        [("A".into(), "b:c".into()), ("D".into(), String::new())]
    );
}

#[test]
fn a_place_is_a_name_or_an_address_and_a_port() {
    for good in [
        "localhost:1",
        "192.0.2.1:65535",
        "[2001:db8::1]:80",
        "a_b.example.:1",
    ] {
        assert!(request(&[good, "--type=TCP"]).is_ok(), "{good}");
    }
    for bad in [
        "a",
        "a:0",
        "::1:80",
        "a\r\nb:80",
        "a/b:80",
        "[a]:80",
        "ü:80",
    ] {
        assert_eq!(errors(&[bad, "--type=TCP"]).len(), 1, "{bad}");
    }
}

/// What shows that a flag is not merely taken.
enum Shows {
    /// Our first bytes hold this, and without the flag they do not.
    Sent(&'static [u8]),
    /// The result, against a peer that answers with 200, with the flag and without.
    Result(ProbeResult, ProbeResult),
    /// The text holds this, and without the flag it does not.
    Text(&'static str),
    /// The check differs; its effect is for tests with a peer of TLS or of its own (`oneshot`, `real_http`).
    Check,
}

/// A peer that answers OK, and tells what came first.
fn recorder() -> (String, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut first = vec![0; 4096];
            let read = stream.read(&mut first).unwrap_or(0);
            first.truncate(read);
            sender.send(first).ok();
            stream.write_all(OK).ok();
        }
    });
    (address, receiver)
}

#[test]
fn design_4_1_every_flag_has_an_effect() {
    use ProbeResult::{Fail, Pass};
    use Shows::{Check, Result, Sent, Text};
    let ca = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/testdata/ca.pem");
    let roots = format!("--tls-roots={ca}");
    let table: [(&[&str], &str, Shows); 23] = [
        (&["--type=TCP"], "--type=SSL", Sent(b"\x16\x03\x01")),
        (&["--type=SSL"], "--timeout=100ms", Text("timeout 100 ms")),
        (
            &[
                "--type=HTTP",
                "--host=a.example",
                "--expected-statuses=http_2xx",
            ],
            "--profile=TENCENT_ALB",
            Sent(b"HEAD / "),
        ),
        (
            &["--type=HTTP"],
            "--proxy-header=PROXY_V1",
            Sent(b"PROXY TCP4 127.0.0.1 "),
        ),
        (&["--type=HTTP"], "--close=FIN", Check),
        (&["--type=HTTP"], "--request-path=/x?y", Sent(b"GET /x?y ")),
        (
            &["--type=HTTP"],
            "--host=h.example",
            Sent(b"\r\nHost: h.example\r\n"),
        ),
        (&["--type=GRPC"], "--host=h.example", Sent(b"h.example")),
        (&["--type=HTTP"], "--method=HEAD", Sent(b"HEAD / ")),
        (
            &["--type=HTTP"],
            "--expected-statuses=204,503",
            Result(Fail, Pass),
        ),
        (
            &["--type=HTTP"],
            "--header=X-Probe:v",
            Sent(b"\r\nX-Probe: v\r\n"),
        ),
        (
            &["--type=HTTP"],
            "--response=nothing like it",
            Result(Fail, Pass),
        ),
        (&["--type=TCP"], "--request=PING", Sent(b"PING")),
        (
            &["--type=TCP", "--request=x"],
            "--response=nothing like it",
            Result(Fail, Pass),
        ),
        (
            &["--type=TCP", "--request=x", "--response=HTTP/1.1"],
            "--match=PREFIX",
            Result(Pass, Fail),
        ),
        (
            &["--type=GRPC"],
            "--grpc-service=shop",
            Sent(b"\x0a\x04shop"),
        ),
        (
            &["--type=GRPC", "--grpc-expected-codes=0"],
            "--grpc-method=/a.B/c",
            Sent(b"/a.B/c"),
        ),
        (
            &["--type=GRPC", "--grpc-method=/a.B/c"],
            "--grpc-expected-codes=7",
            Text("code in {7}"),
        ),
        (
            &["--type=SSL"],
            "--tls-verify",
            Text("the certificate is verified"),
        ),
        (&["--type=SSL", "--tls-verify"], &roots, Check),
        (&["--type=SSL"], "--tls-sni=s.example", Sent(b"s.example")),
        (
            &["--type=TCP"],
            "--source-address=127.3.2.1",
            Text("from 127.3.2.1:"),
        ),
        (&["--type=TCP"], "--output=json", Text("\"exitCode\": ")),
    ];
    let flags: std::collections::BTreeSet<_> = table
        .iter()
        .filter_map(|(_, flag, _)| flag.trim_start_matches("--").split('=').next())
        .collect();
    let command = Cli::command();
    let known = command.get_arguments().filter_map(clap::Arg::get_long);
    let known: std::collections::BTreeSet<_> = known.filter(|flag| *flag != "help").collect();
    assert_eq!(flags, known, "each flag has a row");
    for (base, flag, shows) in &table {
        let (address, got) = recorder();
        // A type takes the place of the base's.
        let rest = if flag.starts_with("--type") {
            &[][..]
        } else {
            base
        };
        let with: Vec<_> = [&*address, flag]
            .into_iter()
            .chain(rest.iter().copied())
            .collect();
        let without: Vec<_> = [&*address]
            .into_iter()
            .chain(base.iter().copied())
            .collect();
        if matches!(shows, Check) {
            let check = |args: &[&str]| request(args).unwrap().check;
            assert_ne!(check(&with), check(&without), "{flag}");
            continue;
        }
        // A method and its codes come together: without one there is no probe to compare with.
        let compared = !flag.starts_with("--grpc-method") && !flag.starts_with("--grpc-expected");
        let mut sides = vec![(&with, true)];
        if compared {
            sides.push((&without, false));
        }
        for (args, given) in sides {
            let (text, result) = run_once(args);
            match shows {
                Sent(bytes) => {
                    // TCP without strings sends nothing, and may be gone before anybody sees it.
                    let patience = if given { 10_000 } else { 200 };
                    let sent = got.recv_timeout(std::time::Duration::from_millis(patience));
                    let sent = sent.unwrap_or_default();
                    let there = sent.windows(bytes.len()).any(|window| window == *bytes);
                    assert_eq!(there, given, "{flag}: {}", sent.escape_ascii());
                }
                Result(due, otherwise) => {
                    assert_eq!(
                        result,
                        if given { *due } else { *otherwise },
                        "{flag}: {text}"
                    );
                }
                Text(part) => assert_eq!(text.contains(part), given, "{flag}: {text}"),
                Check => {}
            }
        }
    }
}
