//! What is open with an endpoint stays open while the endpoint drains, by `state: DRAINING` or because it was removed
//! (semantics H1, H4; design 5.6); only what is new goes elsewhere.

use std::net::SocketAddr;

use serde_json::json;
use vitals_tests::config::{Config, LISTENER_PORT};
use vitals_tests::envoy::DRAINING;
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::open::Conversation;
use vitals_tests::tcp_backend::TcpBackend;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    h4_open_answers_outlive_draining_and_removal,
    h4_open_connections_outlive_draining_and_removal,
);

fn front(scene: &Scene) -> SocketAddr {
    SocketAddr::new(scene.net().host(1).into(), LISTENER_PORT)
}

fn h4_open_answers_outlive_draining_and_removal(transport: Transport) {
    let mut lab = Lab::on(Scene::new(), transport, 3, |mut config| {
        // Envoy gives an answer of HTTP/1 15 s in all.
        config.service()["protocol"] = json!("H2C");
        config.service()["connectionDraining"] = json!("3s");
        config
    });
    let front = front(&lab.scene);
    let (drained, removed) = (lab.backends[0].name(), lab.backends[1].name());
    let mut open =
        [drained, removed].map(|backend| Conversation::with(backend, || Conversation::http(front)));
    lab.config.endpoint(0)["state"] = json!("DRAINING");
    lab.save();
    lab.envoy.wait_for_flags(SOON, "shop", drained, DRAINING);
    lab.config.remove_endpoint(1);
    lab.save();
    lab.envoy.wait_for_flags(SOON, "shop", removed, DRAINING);
    let words = "removed from the configuration, draining";
    lab.vitals.wait_for_line("shop", &[removed, words]);
    lab.scene.wait_for_traffic_to(&[&lab.backends[2]]);
    open.iter_mut().for_each(Conversation::goes_on);
    lab.envoy.wait_until_gone(SOON, "shop", removed);
    open.iter_mut().for_each(Conversation::goes_on);
    let counts = lab.scene.counted(30, &lab.backends).unwrap();
    assert_eq!(counts, [0, 0, 30]);
}

fn h4_open_connections_outlive_draining_and_removal(transport: Transport) {
    let scene = Scene::new();
    let dbs = [11, 12, 13]
        .map(|host| TcpBackend::start(SocketAddr::new(scene.net().host(host).into(), 0)));
    let [drained, removed, stays] = dbs.each_ref().map(TcpBackend::address);
    let mut config = Config::shop(scene.net(), &[drained, removed, stays]);
    config.check()["type"] = json!("TCP");
    config.check().as_object_mut().unwrap().remove("http");
    config.service()["protocol"] = json!("TCP");
    config.service()["connectionDraining"] = json!("3s");
    let front = front(&scene);
    config.0["fleets"][0]["listeners"] = json!([
        { "name": "db", "address": front.ip().to_string(), "port": front.port(), "service": "shop" },
    ]);
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    let mut open = [drained, removed]
        .map(|db| Conversation::with(&db.to_string(), || Conversation::tcp(front)));
    config.endpoint(0)["state"] = json!("DRAINING");
    config.save(&scene.config_path());
    envoy.wait_for_flags(SOON, "shop", &drained.to_string(), DRAINING);
    config.remove_endpoint(1);
    config.save(&scene.config_path());
    envoy.wait_for_flags(SOON, "shop", &removed.to_string(), DRAINING);
    eventually(SOON, "ten new connections all go to the third", || {
        let others = (0..10)
            .map(|_| Conversation::tcp(front).backend().to_owned())
            .filter(|backend| *backend != stays.to_string());
        let others: Vec<String> = others.collect();
        others
            .is_empty()
            .then_some(())
            .ok_or_else(|| others.join(", "))
    });
    open.iter_mut().for_each(Conversation::goes_on);
    envoy.wait_until_gone(SOON, "shop", &removed.to_string());
    open.iter_mut().for_each(Conversation::goes_on);
}
