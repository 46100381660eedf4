//! `vitals serve` with a check of each type against nginx, HAProxy and grpcio.

use std::net::SocketAddr;

use serde_json::json;
use vitals_tests::config::{Config, endpoint};
use vitals_tests::lab::Scene;
use vitals_tests::servers::{Certificate, grpcio, haproxy, nginx};

#[test]
fn every_type_is_healthy() {
    let scene = Scene::new();
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_940 + u16::from(host));
    let certificate = Certificate::self_signed(scene.dir(), "all.example");
    let (cert, key) = (certificate.cert.display(), certificate.key.display());
    let files = format!("ssl_certificate {cert}; ssl_certificate_key {key};");
    let [http, https, http2] = [at(11), at(12), at(13)];
    let servers = format!(
        "server {{ listen {http}; listen {https} ssl; listen {http2} ssl http2; {files} location / {{ return 200 \"hello\"; }} }}"
    );
    let _nginx = nginx(scene.dir(), &servers, &[http, https, http2]);
    let (proxied, grpc, grpc_tls) = (at(14), at(15), at(16));
    let _haproxy = haproxy(scene.dir(), proxied);
    let _grpc = grpcio(scene.dir(), grpc, None);
    let _grpc_tls = grpcio(scene.dir(), grpc_tls, Some(&certificate));

    let hello = json!({ "response": "hello" });
    let types = [
        ("tcp", "TCP", http, json!({})),
        ("ssl", "SSL", https, json!({})),
        ("http", "HTTP", http, json!({ "http": hello })),
        ("https", "HTTPS", https, json!({ "http": hello })),
        ("http2", "HTTP2", http2, json!({ "http": hello })),
        ("grpc", "GRPC", grpc, json!({})),
        ("grpc-tls", "GRPC_WITH_TLS", grpc_tls, json!({})),
        (
            "proxy-v1",
            "HTTP",
            proxied,
            json!({ "proxyHeader": "PROXY_V1" }),
        ),
        (
            "proxy-v2",
            "HTTP",
            proxied,
            json!({ "proxyHeader": "PROXY_V2" }),
        ),
    ];
    // P18: behind a TCP service any type of check goes.
    let mut config = Config(json!({
        "healthChecks": [], "endpointGroups": [], "backendServices": [],
        "fleets": [{ "name": "edge", "match": { "cluster": "edge" } }],
    }));
    for (name, kind, address, more) in types {
        let mut check = json!({
            "name": name, "type": kind, "checkInterval": "500ms", "timeout": "500ms",
        });
        for (field, value) in more.as_object().unwrap() {
            check[field] = value.clone();
        }
        config.push("healthChecks", check);
        config.push(
            "endpointGroups",
            json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": [endpoint(address)] }),
        );
        config.push(
            "backendServices",
            json!({
                "name": name, "protocol": "TCP", "healthCheck": name,
                "backends": [{ "group": name }], "probing": { "by": ["PROBERS"] },
            }),
        );
    }
    let vitals = scene.vitals(&config);
    vitals_tests::wait::eventually(
        vitals_tests::wait::SOON,
        "all endpoints are HEALTHY",
        || {
            let list = vitals.json("/v1/endpoints")?;
            let entries = list.as_array().cloned().unwrap_or_default();
            let judged = |entry: &&serde_json::Value| {
                entry["status"] == "HEALTHY" && entry["detailedStatus"] == "HEALTHY"
            };
            let healthy = entries.iter().filter(judged).count();
            (entries.len() == 9 && healthy == 9)
                .then_some(())
                .ok_or_else(|| format!("{list:#}"))
        },
    );
}
