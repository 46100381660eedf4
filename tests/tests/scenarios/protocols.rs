//! Services that do not speak HTTP/1.1: a TCP proxy, and HTTP/2 with prior knowledge.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use vitals_tests::config::{LISTENER_PORT, endpoint};
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::tcp_backend::TcpBackend;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    a_tcp_service_behind_a_tcp_listener,
    an_h2c_service_gets_http2,
);

fn a_tcp_service_behind_a_tcp_listener(transport: Transport) {
    let scene = Scene::new();
    let web = scene.backends(1);
    let db = TcpBackend::start(SocketAddr::new(scene.net().host(31).into(), 0));
    let proxy = SocketAddr::new(scene.net().host(1).into(), LISTENER_PORT + 1);
    let mut config = scene.shop(&web);
    config.push(
        "healthChecks",
        json!({ "name": "open", "type": "TCP", "checkInterval": "500ms", "timeout": "500ms" }),
    );
    config.push(
        "endpointGroups",
        json!({
            "name": "db1", "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": [endpoint(db.address())],
        }),
    );
    config.push(
        "backendServices",
        json!({
            "name": "db", "protocol": "TCP", "healthCheck": "open", "backends": [{ "group": "db1" }],
            "probing": { "by": ["PROBERS"] },
        }),
    );
    config.0["fleets"][0]["listeners"]
        .as_array_mut()
        .unwrap()
        .push(json!({
            "name": "db", "address": proxy.ip().to_string(), "port": proxy.port(), "service": "db",
        }));
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    let greeting = eventually(SOON, "the database greets through Envoy", || {
        talk(proxy).map_err(|error| error.to_string())
    });
    assert_eq!(greeting, [format!("{}\n", db.address()), "ping\n".into()]);
    scene.wait_for_traffic_to(&[&web[0]]);
}

/// Connects, reads the greeting, and sends a line that comes back.
fn talk(proxy: SocketAddr) -> std::io::Result<[String; 2]> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut greeting, mut echo) = (String::new(), String::new());
    if reader.read_line(&mut greeting)? == 0 {
        return Err(std::io::Error::other("closed without a greeting"));
    }
    stream.write_all(b"ping\n")?;
    reader.read_line(&mut echo)?;
    Ok([greeting, echo])
}

fn an_h2c_service_gets_http2(transport: Transport) {
    let lab = Lab::on(Scene::new(), transport, 2, |mut config| {
        config.service()["protocol"] = json!("H2C");
        config
    });
    for backend in &lab.backends {
        assert!(backend.requests() > 0, "{backend:?}");
        assert_eq!(
            backend.requests(),
            backend.requests_over_http2(),
            "{backend:?}"
        );
    }
}
