//! `sessionAffinity` (semantics H8): the same client comes to the same endpoint, and others' changes hardly move it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::config::LISTENER_PORT;
use vitals_tests::envoy::{Envoy, FAILED};
use vitals_tests::lab::Scene;
use vitals_tests::request::{Answer, Request, send};
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    h8_by_header_and_few_move_when_one_endpoint_fails,
    h8_by_the_clients_address,
    h8_by_a_cookie_that_envoy_sets,
);

/// How many clients there are, each with its own header or address.
const CLIENTS: usize = 1000;

struct Affine {
    envoy: Envoy,
    _vitals: Vitals,
    backends: Vec<Backend>,
    scene: Scene,
}

impl Affine {
    fn start(transport: Transport, affinity: &Value) -> Self {
        let scene = Scene::new();
        let backends = scene.backends(8);
        let mut config = scene.shop(&backends);
        config.service()["sessionAffinity"] = affinity.clone();
        let vitals = scene.vitals(&config);
        for backend in &backends {
            vitals.wait_for_status(backend.name(), "HEALTHY");
        }
        let envoy = scene.envoy(&vitals, transport);
        envoy.wait_until_live(SOON);
        eventually(SOON, "requests are answered", || {
            let reply = scene.get("/")?;
            (reply.status == 200)
                .then_some(())
                .ok_or_else(|| format!("{reply:?}"))
        });
        Self {
            envoy,
            _vitals: vitals,
            backends,
            scene,
        }
    }

    fn send(&self, headers: &[(&str, &str)], source: Option<IpAddr>) -> Answer {
        let to = SocketAddr::new(self.scene.net().host(1).into(), LISTENER_PORT);
        let request = Request {
            path: "/",
            headers,
            source,
        };
        let answer = send(to, request).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    /// Which endpoint each client comes to.
    fn flows(&self) -> BTreeMap<usize, String> {
        (0..CLIENTS)
            .map(|n| (n, self.send(&[("x-user", &n.to_string())], None).body))
            .collect()
    }
}

fn h8_by_header_and_few_move_when_one_endpoint_fails(transport: Transport) {
    let affine = Affine::start(transport, &json!({ "type": "HEADER", "name": "x-user" }));
    let before = affine.flows();
    assert_eq!(affine.flows(), before, "each comes to the same");
    let used: BTreeSet<_> = before.values().collect();
    assert_eq!(used.len(), affine.backends.len(), "all are used");
    let ill = &affine.backends[3];
    ill.become_(Mode::ProbeStatus(500));
    affine
        .envoy
        .wait_for_flags(SOON, "shop", ill.name(), FAILED);
    eventually(SOON, "it gets no requests", || {
        let flows = affine.flows();
        let left = flows.values().filter(|name| *name == ill.name()).count();
        (left == 0)
            .then_some(())
            .ok_or_else(|| format!("{left} still"))
    });
    let after = affine.flows();
    let others = before.iter().filter(|(_, name)| *name != ill.name());
    let moved = others
        .clone()
        .filter(|(client, name)| after[client] != **name)
        .count();
    let of = others.count();
    assert!(
        moved * 100 <= of,
        "{moved} of {of} flows to other endpoints moved"
    );
}

fn h8_by_the_clients_address(transport: Transport) {
    let affine = Affine::start(transport, &json!({ "type": "CLIENT_IP" }));
    let from = |n: u8| {
        affine
            .send(&[], Some(affine.scene.net().host(n).into()))
            .body
    };
    let flows: Vec<String> = (100..140).map(from).collect();
    let again: Vec<String> = (100..140).map(from).collect();
    assert_eq!(flows, again);
    let used: BTreeSet<_> = flows.iter().collect();
    assert!(used.len() > 3, "{used:?}");
}

fn h8_by_a_cookie_that_envoy_sets(transport: Transport) {
    let session = json!({ "type": "COOKIE", "name": "sid" });
    let affine = Affine::start(transport, &session);
    let mut used = BTreeSet::new();
    for _ in 0..20 {
        let first = affine.send(&[], None);
        let set = first
            .header("set-cookie")
            .expect("Envoy sets the cookie")
            .to_owned();
        assert!(set.contains("Path=/"), "{set}");
        assert!(!set.to_ascii_lowercase().contains("max-age=0"), "{set}");
        let cookie = set.split(';').next().unwrap();
        for _ in 0..4 {
            let next = affine.send(&[("cookie", cookie)], None);
            assert_eq!(next.body, first.body, "{set}");
            assert_eq!(next.header("set-cookie"), None);
        }
        used.insert(first.body);
    }
    assert!(used.len() > 3, "{used:?}");
}
