//! What the prober's own machine makes of a probe: no descriptors, no ports, no route, which say nothing of the endpoint
//! (semantics P16); and names with several addresses (V7).

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use serde_json::Value;
use vitals_tests::lab::Scene;
use vitals_tests::process::{run, text};
use vitals_tests::request::connect;
use vitals_tests::tools;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually, holds};

/// The hard limit of the server's descriptors.
const DESCRIPTORS: u8 = 96;
/// How long the endpoints must keep their status while nothing can be probed: some intervals of 500 ms.
const LONG: std::time::Duration = std::time::Duration::from_secs(3);

#[test]
fn p16_a_prober_without_descriptors_blames_no_endpoint_and_says_so() {
    let scene = Scene::new();
    let backends = scene.backends(3);
    scene.shop(&backends).save(&scene.config_path());
    // The shell lowers the limit for the server that it becomes.
    let lower = |command: Command| {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {DESCRIPTORS} && exec \"$@\"");
        shell.args([OsStr::new("-c"), OsStr::new(&script), OsStr::new("sh")]);
        shell.arg(command.get_program()).args(command.get_args());
        shell
    };
    let mut vitals = Vitals::spawn_as(scene.net(), &scene.config_path(), scene.dir(), lower);
    vitals.wait_until_ready();
    for backend in &backends {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    let since = |vitals: &Vitals| -> Vec<Value> {
        let of = |b: &vitals_tests::backend::Backend| vitals.endpoint(b.name()).unwrap();
        backends.iter().map(|b| of(b)["since"].clone()).collect()
    };
    let before = since(&vitals);
    // Idle connections to the admin API take what descriptors there are.
    let admin: SocketAddr = vitals
        .admin()
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    // More than there are, from many peers, because one may have a few only; what is not accepted waits, and takes the
    // next one that a probe gives back.
    let idle: Vec<_> = (0..DESCRIPTORS + 32)
        .filter_map(|n| connect(admin, Some(Ipv4Addr::new(127, 0, 7, n).into())).ok())
        .collect();
    eventually(SOON, "the log says that there are no descriptors", || {
        let log = vitals.log();
        log.contains("LOCAL_FDS").then_some(()).ok_or(log)
    });
    let mut taken = 0;
    holds(LONG, "no endpoint changes, and the server lives", || {
        taken = taken.max(vitals.process().descriptors());
        let log = vitals.log();
        let changes = log
            .lines()
            .filter(|line| line.contains("HEALTHY → "))
            .count();
        match (changes, vitals.process().ended()) {
            (0, None) => Ok(()),
            seen => Err(format!("{seen:?}: {log}")),
        }
    });
    assert!(taken >= 90, "{taken} descriptors: it never was without");
    drop(idle);
    // With descriptors again, it goes on.
    let passed = eventually(SOON, "the admin API answers again", || {
        vitals.metric("vitals_probes_total", "outcome=\"PASS\"")
    });
    eventually(SOON, "probes pass again", || {
        let now = vitals.metric("vitals_probes_total", "outcome=\"PASS\"")?;
        (now >= passed + 6.0)
            .then_some(())
            .ok_or_else(|| format!("{now}, {passed}"))
    });
    let silent = vitals.metric("vitals_probes_total", "outcome=\"INCONCLUSIVE\"");
    assert!(silent.unwrap() > 0.0);
    for outcome in ["FAIL", "TIMEOUT"] {
        let label = format!("outcome=\"{outcome}\"");
        assert_eq!(vitals.metric("vitals_probes_total", &label), Ok(0.0));
    }
    assert_eq!(since(&vitals), before);
    let log = vitals.log();
    assert!(
        log.contains("has no file descriptor left") && log.contains("raise its limit"),
        "{log}"
    );
}

/// The flags of `unshare` for namespaces: as a root of its own, which needs no rights outside, or as root.
#[track_caller]
fn namespaces() -> &'static [&'static str] {
    let ways: [&[&str]; 2] = [
        &[
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "--pid",
            "--fork",
        ],
        &["--net", "--mount", "--pid", "--fork"],
    ];
    let works = |flags: &&&[&str]| {
        let output = run(Command::new("unshare").args(**flags).args(["--", "true"]));
        output.status.success()
    };
    let way = ways.iter().find(works);
    way.expect("`unshare` can make namespaces, within a user namespace or as root")
}

/// Runs `vitals probe` in namespaces of its own after this script. What the script leaves running ends with it.
#[track_caller]
fn probe_within(script: &str, target: &str, flags: &str) -> Value {
    let mut command = Command::new("unshare");
    command.args(namespaces()).args(["--", "sh", "-ec"]);
    command.arg(format!("{script}\nexec \"$@\"")).arg("sh");
    command
        .arg(tools::vitals())
        .args(["probe", target, "--output", "json"]);
    command.args(flags.split(' '));
    // `ip` is on root's path alone.
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = run(&mut command);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    let code = output.status.code().unwrap();
    assert_eq!(document["exitCode"], code, "{document:#}");
    document
}

/// The reason of what is INCONCLUSIVE.
#[track_caller]
fn inconclusive(document: &Value) -> Value {
    assert_eq!(document["exitCode"], 3, "{document:#}");
    assert_eq!(document["result"], "INCONCLUSIVE", "{document:#}");
    document["probes"][0]["reason"].clone()
}

#[test]
fn p16_without_a_route_nothing_is_said_of_the_endpoint() {
    // In a new namespace not even loopback is up.
    for target in ["192.0.2.1:80", "127.0.0.1:80", "[2001:db8::1]:80"] {
        for kind in ["TCP", "HTTP", "HTTPS", "GRPC"] {
            let reason = inconclusive(&probe_within("true", target, &format!("--type {kind}")));
            assert_eq!(reason["code"], "LOCAL_NO_ROUTE", "{reason}");
            assert_eq!(reason["layer"], "LOCAL", "{reason}");
        }
    }
}

#[test]
fn p16_without_a_port_nothing_is_said_of_the_endpoint() {
    // Of one port in all, none is left.
    let script = "ip link set lo up
echo '40000 40000' > /proc/sys/net/ipv4/ip_local_port_range
echo 40000 > /proc/sys/net/ipv4/ip_local_reserved_ports";
    for kind in ["TCP", "HTTPS"] {
        for source in ["", " --source-address 127.0.0.1"] {
            let flags = format!("--type {kind}{source}");
            let reason = inconclusive(&probe_within(script, "127.0.0.1:9", &flags));
            assert_eq!(reason["code"], "LOCAL_PORTS", "{reason}");
            assert_eq!(reason["layer"], "LOCAL", "{reason}");
            let text = reason["text"].as_str().unwrap();
            assert!(
                text.contains("no local port left to probe 127.0.0.1:9"),
                "{text}"
            );
        }
    }
}

#[test]
fn v7_p16_each_address_of_a_name_has_a_verdict_of_its_own() {
    let scene = Scene::new();
    let hosts = scene.dir().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 two.example\n::1 two.example\n").unwrap();
    // In the namespace loopback has both families, and a server has one.
    let script = format!(
        "ip link set lo up
mount --bind {} /etc/hosts
{} -c 'import http.server as h; h.HTTPServer((\"127.0.0.1\", 8080), h.SimpleHTTPRequestHandler).serve_forever()' 2> /dev/null > /dev/null &
for _ in $(seq 300); do if {} probe 127.0.0.1:8080 --type TCP > /dev/null; then break; fi; sleep 0.1; done",
        hosts.display(),
        tools::python().display(),
        tools::vitals().display(),
    );
    let document = probe_within(&script, "two.example:8080", "--type HTTP");
    let verdict = |address: &str| {
        let probes = document["probes"].as_array().unwrap();
        let of = probes.iter().find(|probe| probe["address"] == address);
        let of = of.unwrap_or_else(|| panic!("{address}: {document:#}"));
        (
            of["result"].clone(),
            of["reason"]["code"].clone(),
            of["host"].clone(),
        )
    };
    let due = |result: &str, code: &str| (result.into(), code.into(), Value::from("two.example"));
    assert_eq!(verdict("127.0.0.1:8080"), due("PASS", "RESPONSE_OK"));
    assert_eq!(verdict("[::1]:8080"), due("TIMEOUT", "CONNECT_REFUSED"));
    // The worst counts.
    assert_eq!(document["exitCode"], 2);
}
