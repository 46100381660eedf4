//! What thousands of probes of hostile backends leave behind in `vitals serve`: nothing.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use vitals_tests::config::{Config, endpoint};
use vitals_tests::hostile::{Act, Hostile};
use vitals_tests::lab::Scene;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::eventually;

use crate::table::{answer, send};

/// Probes before the first look: everything that is made once is there.
const WARM: f64 = 1_000.0;
/// Probes between the looks.
const PROBES: f64 = 10_000.0;
/// Backends of each kind, so that many probes run at once.
const COPIES: usize = 5;
/// MiB that may come between the looks: a leak of 2 KiB per probe is more, what probes in flight hold is far less.
const GROWTH: u64 = 20;
/// A bound of the harness on the whole; it measures no speed.
const LIMIT: Duration = Duration::from_secs(180);
/// Descriptors that may come and go with looks at the admin API.
const LOOKS: usize = 4;

fn backends() -> Vec<(&'static str, Vec<Act>)> {
    let record = [&[22, 3, 3, 0x40, 1][..], &[0; 16_385]].concat();
    let settings = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    vec![
        ("HTTP", vec![Act::Reset]),
        ("HTTP", vec![Act::Close]),
        ("HTTP", vec![Act::Read]),
        ("HTTP", vec![Act::Read, Act::Fin]),
        (
            "HTTP",
            vec![Act::Read, Act::Trickle(b"HTTP/1.1 200 OK\r\n".to_vec())],
        ),
        (
            "HTTP",
            vec![
                Act::Read,
                send("HTTP/1.1 200 OK\r\n"),
                Act::Endless(b"X-A: b\r\n".repeat(500)),
            ],
        ),
        (
            "HTTP",
            vec![
                Act::Read,
                Act::Endless(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(500)),
            ],
        ),
        (
            "HTTP",
            answer("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        ),
        (
            "HTTP",
            vec![
                Act::Read,
                send("HTTP/1.1 200 OK\r\n\r\n"),
                Act::Endless(vec![b'x'; 16_384]),
            ],
        ),
        ("TCP", vec![Act::Reset]),
        ("TCP", vec![Act::Endless(vec![0; 16_384])]),
        ("HTTPS", vec![Act::Read]),
        ("HTTPS", vec![Act::Reset]),
        ("HTTPS", vec![Act::Read, Act::Close]),
        ("HTTPS", answer(record)),
        ("HTTPS", answer("HTTP/1.1 400 Bad Request\r\n\r\n")),
        ("GRPC", vec![Act::Read]),
        ("GRPC", vec![Act::Read, Act::Endless(settings.repeat(500))]),
        (
            "GRPC",
            [answer(&settings), vec![Act::Gap, Act::Reset]].concat(),
        ),
        ("GRPC", answer("HTTP/1.1 400 Bad Request\r\n\r\n")),
    ]
}

fn service(name: &str) -> Value {
    json!({
        "name": name, "protocol": "TCP", "healthCheck": name,
        "backends": [{ "group": name }], "probing": { "by": ["PROBERS"] },
    })
}

/// Waits for so many probes in all, and looks: descriptors, and resident MiB.
fn after(vitals: &mut Vitals, probes: f64) -> (usize, u64) {
    eventually(LIMIT, &format!("{probes} probes are made"), || {
        let made = vitals.metric("vitals_probes_total", "")?;
        (made >= probes)
            .then_some(())
            .ok_or_else(|| format!("{made} probes"))
    });
    let process = vitals.process();
    (process.descriptors(), process.resident_mib())
}

#[test]
fn hostile_backends_leave_nothing_behind() {
    let scene = Scene::new();
    let mut config = Config(json!({
        "healthChecks": [], "endpointGroups": [], "backendServices": [],
        "fleets": [{ "name": "edge", "match": { "cluster": "edge" } }],
    }));
    for kind in ["HTTP", "TCP", "HTTPS", "GRPC"] {
        let name = kind.to_lowercase();
        config.push(
            "healthChecks",
            json!({ "name": name, "type": kind, "checkInterval": "100ms", "timeout": "100ms" }),
        );
        config.push("backendServices", service(&name));
    }
    let mut running = Vec::new();
    let mut groups = std::collections::BTreeMap::<String, Vec<Value>>::new();
    let kinds = std::iter::repeat_with(backends).take(COPIES).flatten();
    for (n, (kind, acts)) in kinds.enumerate() {
        let host = scene.net().host(u8::try_from(11 + n).unwrap());
        let backend = Hostile::start(SocketAddr::new(host.into(), 21_960), acts);
        let endpoints = groups.entry(kind.to_lowercase()).or_default();
        endpoints.push(endpoint(backend.address()));
        running.push(backend);
    }
    for (name, endpoints) in groups {
        config.push(
            "endpointGroups",
            json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": endpoints }),
        );
    }
    let mut vitals = scene.vitals(&config);
    let before = after(&mut vitals, WARM);
    let later = after(&mut vitals, WARM + PROBES);
    eprintln!("descriptors and MiB: {before:?}, then {later:?}");
    // A probe holds one descriptor, and each endpoint has one probe in flight at most.
    let margin = running.len() + LOOKS;
    assert!(
        later.0.abs_diff(before.0) <= margin,
        "{} descriptors, then {}",
        before.0,
        later.0
    );
    assert!(
        later.1 < before.1 + GROWTH,
        "{} MiB, then {} MiB",
        before.1,
        later.1
    );
}
