//! `--resource-ttl` on the real Envoy: while the server is there nothing changes, and when it is gone for longer, what it
//! sent is forgotten by an Envoy that speaks delta. One that speaks SotW keeps everything.

use std::time::Duration;

use vitals_tests::Transport;
use vitals_tests::envoy::Envoy;
use vitals_tests::lab::{NODE, Scene};
use vitals_tests::on_every_transport;
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually, holds};

const TTL: Duration = Duration::from_secs(2);

on_every_transport!(an_envoy_keeps_what_is_renewed_and_forgets_it_when_the_server_is_gone);

fn an_envoy_keeps_what_is_renewed_and_forgets_it_when_the_server_is_gone(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let config = scene.shop(&backends);
    config.save(&scene.config_path());
    let mut server = Vitals::spawn_as(
        scene.net(),
        &scene.config_path(),
        scene.dir(),
        |mut command| {
            command.args(["--resource-ttl", "2s"]);
            command
        },
    );
    server.wait_until_ready();
    server.wait_for_status(backends[0].name(), "HEALTHY");
    let bootstrap = server.bootstrap("edge", NODE, transport);
    let features = "node:\n  client_features: [xds.config.supports-resource-ttl, xds.config.resource-in-sotw]\n";
    let (before, after) = bootstrap.split_once("node:\n").expect("a node");
    let envoy = Envoy::spawn(NODE, &format!("{before}{features}{after}"), scene.dir());
    envoy.wait_until_live(SOON);
    scene.wait_for_traffic_to(&[&backends[0]]);
    holds(
        TTL * 3,
        "requests are answered and nothing is refused",
        || {
            let reply = scene.get("/")?;
            let client = server.client(NODE)?;
            let types = client["types"].as_object().ok_or("no types")?;
            let taken = types.values().all(|of_type| of_type["nack"].is_null());
            match reply.status == 200 && taken {
                true => Ok(()),
                false => Err(format!("{reply:?} {client}")),
            }
        },
    );
    server.kill();
    match transport {
        Transport::Delta | Transport::Leds => {
            eventually(SOON, "the listener is gone with its TTL", || {
                match scene.get("/") {
                    Err(_refused) => Ok(()),
                    Ok(reply) => Err(format!("{reply:?}")),
                }
            })
        }
        // Nothing is leased to it, and Envoy 1.40 would crash when such a lease runs out.
        Transport::Sotw => holds(TTL * 3, "requests are still answered", || {
            let reply = scene.get("/")?;
            match reply.status {
                200 => Ok(()),
                _ => Err(format!("{reply:?}")),
            }
        }),
    }
    // It comes back with the server.
    server.start_again();
    scene.wait_for_traffic_to(&[&backends[0]]);
}
