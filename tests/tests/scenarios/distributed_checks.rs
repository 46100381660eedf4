//! Every type of check, run by the real Envoy against real servers: it asks what the configuration says (semantics P7, P8,
//! P10, P11, P12, H7), over whatever transport the service itself uses.

use std::net::SocketAddr;

use serde_json::{Value, json};
use vitals_tests::config::{Config, endpoint};
use vitals_tests::envoy::{FAILED_CHECK, HEALTHY};
use vitals_tests::lab::Scene;
use vitals_tests::servers::{Certificate, grpcio, haproxy_before, nginx};
use vitals_tests::tcp_backend::TcpBackend;
use vitals_tests::wait::{SOON, eventually, until};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    every_type_with_host_and_proxy,
    p7_without_a_host_the_probed_address
);

const NAME: &str = "probed.example";

/// A service of its own, with a check of its own that Envoys run, on one endpoint.
fn add(config: &mut Config, name: &str, protocol: &str, at: SocketAddr, mut check: Value) {
    check["name"] = json!(name);
    check["checkInterval"] = json!("500ms");
    check["unhealthyThreshold"] = json!(1);
    config.push("healthChecks", check);
    config.push(
        "endpointGroups",
        json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": [endpoint(at)] }),
    );
    config.push(
        "backendServices",
        json!({
            "name": name, "protocol": protocol, "healthCheck": name, "backends": [{ "group": name }],
            "probing": { "by": ["ENVOYS"] },
        }),
    );
}

fn every_type_with_host_and_proxy(transport: Transport) {
    let scene = Scene::new();
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_930);
    let certificate = Certificate::self_signed(scene.dir(), NAME);
    let (cert, key) = (certificate.cert.display(), certificate.key.display());
    let tls = format!("ssl_certificate {cert}; ssl_certificate_key {key};");
    // Only those who name the host are answered well.
    let server = |listen: String, tls: &str| {
        format!(
            "server {{ listen {listen} proxy_protocol; {tls} server_name other; return 421; }}
             server {{ listen {listen} proxy_protocol; {tls} server_name {NAME}; location / {{ return 200 \"pulse\"; }} }}\n"
        )
    };
    let [plain, https, http2] = [at(11), at(12), at(13)];
    let servers = [
        server(plain.to_string(), ""),
        server(format!("{https} ssl"), &tls),
        server(format!("{http2} ssl http2"), &tls),
    ];
    let _nginx = nginx(scene.dir(), &servers.concat(), &[plain, https, http2]);
    let db = TcpBackend::start(at(14));
    let (rpc, rpc_tls) = (at(15), at(16));
    let _grpcio = grpcio(scene.dir(), rpc, None);
    let _grpcio_tls = grpcio(scene.dir(), rpc_tls, Some(&certificate));
    let [tcp, grpc, grpc_tls] = [at(24), at(25), at(26)];
    let ways = [(tcp, db.address()), (grpc, rpc), (grpc_tls, rpc_tls)];
    let _haproxy = haproxy_before(scene.dir(), &ways);

    let web = scene.backends(1);
    let mut config = scene.shop(&web);
    let mut expected = Vec::new();
    let http = json!({ "host": NAME, "response": "pulse" });
    for (name, service, at, check) in [
        (
            "http",
            "HTTP",
            plain,
            json!({ "type": "HTTP", "http": http }),
        ),
        // P10: the check is over TLS though the service is not, and asks nothing of the certificate.
        (
            "https",
            "HTTP",
            https,
            json!({ "type": "HTTPS", "http": http }),
        ),
        (
            "http2",
            "H2C",
            http2,
            json!({ "type": "HTTP2", "http": http }),
        ),
        // And the other way round: traffic verifies, the check is plain.
        (
            "http-in-tls",
            "HTTPS",
            plain,
            json!({ "type": "HTTP", "http": http }),
        ),
        (
            "tcp",
            "TCP",
            tcp,
            json!({ "type": "TCP", "tcp": { "response": "21930", "match": "CONTAINS" } }),
        ),
        ("ssl", "SSL", https, json!({ "type": "SSL" })),
        ("grpc", "GRPC", grpc, json!({ "type": "GRPC" })),
        (
            "grpc-tls",
            "GRPC_WITH_TLS",
            grpc_tls,
            json!({ "type": "GRPC_WITH_TLS" }),
        ),
    ] {
        for version in ["PROXY_V1", "PROXY_V2", "NONE"] {
            let short = version.trim_start_matches("PROXY_").to_ascii_lowercase();
            let mut check = check.clone();
            check["proxyHeader"] = json!(version);
            let name = format!("{name}-{short}");
            add(&mut config, &name, service, at, check);
            // Who gives no PROXY header is turned away: the header is there, where it is asked for.
            let flags = if version == "NONE" {
                FAILED_CHECK
            } else {
                HEALTHY
            };
            expected.push((name, at, flags));
        }
    }
    let mut other =
        json!({ "type": "HTTP", "proxyHeader": "PROXY_V1", "http": { "host": "wrong.example" } });
    add(&mut config, "http-other-host", "HTTP", plain, other.clone());
    expected.push(("http-other-host".into(), plain, FAILED_CHECK));
    other["http"]["host"] = json!(NAME);
    other["http"]["response"] = json!("no such words");
    add(&mut config, "http-other-body", "HTTP", plain, other);
    expected.push(("http-other-body".into(), plain, FAILED_CHECK));
    let sick =
        json!({ "type": "GRPC", "proxyHeader": "PROXY_V1", "grpc": { "serviceName": "sick" } });
    add(&mut config, "grpc-sick", "GRPC", grpc, sick);
    expected.push(("grpc-sick".into(), grpc, FAILED_CHECK));

    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    for (cluster, at, flags) in expected {
        eventually(SOON, &format!("{cluster} at {at} is {flags}"), || {
            let hosts = envoy.hosts(&cluster)?;
            let seen = hosts.get(&at.to_string()).ok_or("it is not there")?;
            // HAProxy waits for the header that does not come: then it is a timeout besides.
            let seen = seen.trim_end_matches("/active_hc_timeout");
            (seen == flags).then_some(()).ok_or_else(|| seen.into())
        });
    }
    assert_eq!(
        envoy.stat("cluster_manager.cds.update_rejected").unwrap(),
        0
    );
}

fn p7_without_a_host_the_probed_address(transport: Transport) {
    let scene = Scene::new();
    let web = scene.backends(1);
    let [http, grpc] = [scene.backend(12), scene.backend(13)];
    let mut config = scene.shop(&web);
    add(
        &mut config,
        "http",
        "HTTP",
        http.address(),
        json!({ "type": "HTTP" }),
    );
    add(
        &mut config,
        "grpc",
        "GRPC",
        grpc.address(),
        json!({ "type": "GRPC" }),
    );
    let named = scene.backend(14);
    let check = json!({ "type": "GRPC", "grpc": { "host": NAME } });
    add(&mut config, "named", "GRPC", named.address(), check);
    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    for (backend, host) in [(&http, http.name()), (&grpc, grpc.name()), (&named, NAME)] {
        until(SOON, &format!("{host} is asked for"), || {
            !backend.hosts().is_empty()
        });
        assert_eq!(backend.hosts(), [host.to_owned()].into());
    }
}
