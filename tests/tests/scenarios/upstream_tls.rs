//! `tls:` of a service: what traffic asks of an endpoint's certificate, and that checks over TLS ask nothing (semantics P10).

use std::net::SocketAddr;

use serde_json::{Value, json};
use vitals_tests::config::endpoint;
use vitals_tests::envoy::HEALTHY;
use vitals_tests::lab::Scene;
use vitals_tests::servers::{Certificate, nginx};
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(p10_traffic_verifies_as_it_is_told_and_checks_verify_nothing);

const NAME: &str = "shop.example";

fn p10_traffic_verifies_as_it_is_told_and_checks_verify_nothing(transport: Transport) {
    let scene = Scene::new();
    let at = |host: u8| SocketAddr::new(scene.net().host(host).into(), 21_940);
    let (https, http2) = (at(31), at(32));
    let good = Certificate::self_signed(scene.dir(), NAME);
    let (cert, key) = (good.cert.display(), good.key.display());
    let answer = "return 200 \"$server_protocol $ssl_server_name\";";
    let server = |listen: String, tls: &str| {
        format!(
            "server {{ listen {listen}; ssl_protocols {tls}; ssl_certificate {cert}; ssl_certificate_key {key}; \
             location / {{ {answer} }} }}\n"
        )
    };
    // Envoy's own default ends at TLS 1.2.
    let servers = [
        server(format!("{https} ssl"), "TLSv1.3"),
        server(format!("{http2} ssl http2"), "TLSv1.2 TLSv1.3"),
    ];
    let _nginx = nginx(scene.dir(), &servers.concat(), &[https, http2]);

    let web = scene.backends(1);
    let mut config = scene.shop(&web);
    let roots = good.cert.to_str().unwrap();
    let mut expected = Vec::new();
    let mut routes = Vec::new();
    let mut add = |name: &'static str, protocol: &str, at: SocketAddr, tls: Value, answer| {
        config.push(
            "endpointGroups",
            json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": [endpoint(at)] }),
        );
        config.push(
            "backendServices",
            json!({
                "name": name, "protocol": protocol, "healthCheck": "secure", "backends": [{ "group": name }],
                "probing": { "by": ["PROBERS", "ENVOYS"] }, "tls": tls,
            }),
        );
        routes.push(json!({ "prefix": format!("/{name}/"), "service": name }));
        expected.push((name, at, answer));
    };
    let verified = |sni: &str| json!({ "sni": sni, "roots": roots });
    let good_answer = Ok(format!("HTTP/1.1 {NAME}"));
    add(
        "verified",
        "HTTPS",
        https,
        verified(NAME),
        good_answer.clone(),
    );
    add(
        "verified2",
        "HTTP2",
        http2,
        verified(NAME),
        Ok(format!("HTTP/2.0 {NAME}")),
    );
    add(
        "nameless",
        "HTTPS",
        https,
        json!({ "roots": roots }),
        Ok("HTTP/1.1 ".into()),
    );
    add(
        "unverified",
        "HTTPS",
        https,
        json!({ "sni": NAME, "verify": false }),
        good_answer,
    );
    // The certificate is of these roots, but not for this name; or of no root that the machine knows.
    add(
        "misnamed",
        "HTTPS",
        https,
        verified("other.example"),
        Err(503),
    );
    add("unknown", "HTTPS", https, json!({ "sni": NAME }), Err(503));
    config.push(
        "healthChecks",
        json!({ "name": "secure", "type": "HTTPS", "checkInterval": "500ms", "http": { "host": "probe.example" } }),
    );
    let all = config.0["fleets"][0]["listeners"][0]["routes"]
        .as_array_mut()
        .unwrap();
    all.splice(0..0, routes);

    let vitals = scene.vitals(&config);
    let envoy = scene.envoy(&vitals, transport);
    envoy.wait_until_live(SOON);
    for (cluster, at, answer) in expected {
        envoy.wait_for_flags(SOON, cluster, &at.to_string(), HEALTHY);
        eventually(SOON, &format!("{cluster} answers {answer:?}"), || {
            let reply = scene.get(&format!("/{cluster}/"))?;
            let seen = match reply.status {
                200 => Ok(reply.body.trim().to_owned()),
                status => Err(status),
            };
            let wanted = answer.clone().map(|text| text.trim().to_owned());
            (seen == wanted)
                .then_some(())
                .ok_or_else(|| format!("{reply:?}"))
        });
    }
}
