//! The admin API: a token, TLS beyond loopback, and certificates where clients are asked for them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use vitals_tests::authority::{Authority, replace};
use vitals_tests::lab::Scene;
use vitals_tests::process::{Process, run, text};
use vitals_tests::vitals::{Vitals, serve, vitals};
use vitals_tests::wait::{SOON, eventually, until};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

#[test]
fn beyond_loopback_the_admin_api_wants_a_token_or_an_operators_word() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    scene.shop(&backends).save(&scene.config_path());
    let (xds, state) = (
        SocketAddr::new(scene.net().host(1).into(), 0),
        scene.dir().join("state"),
    );
    let anywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let output = run(&mut serve(&scene.config_path(), &state, xds, anywhere));
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    let said = text(&output);
    for word in ["--admin-listen", "--admin-token-file", "--insecure-admin"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    assert!(!state.exists(), "it had begun to start");
    let mut command = serve(&scene.config_path(), &state, xds, anywhere);
    command.arg("--insecure-admin");
    let server = Process::spawn("vitals", &mut command, &scene.dir().join("insecure.log"));
    until(SOON, "it serves and warns", || {
        let log = server.log();
        log.contains("serving") && log.contains("--insecure-admin")
    });
}

#[test]
fn without_the_token_nothing_is_told_and_the_log_says_who_asked() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    scene.shop(&backends).save(&scene.config_path());
    let file = scene.dir().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let server = Vitals::spawn_as(
        scene.net(),
        &scene.config_path(),
        scene.dir(),
        |mut command| {
            command.arg("--admin-token-file").arg(&file);
            command
        },
    );
    server.wait_until_ready();
    for path in [
        "/metrics",
        "/v1/endpoints",
        "/v1/clients",
        "/v1/services",
        "/nothing",
    ] {
        let reply = server.get(path).unwrap();
        assert_eq!(reply.status, 401, "{path}: {reply:?}");
        assert!(!reply.body.contains("shop"), "{path}: {reply:?}");
    }
    assert_eq!(server.get("/healthz").unwrap().status, 200);
    until(SOON, "the log says who and why", || {
        server.log().lines().any(|line| {
            [
                "refused",
                "listener=\"admin\"",
                "peer=127.",
                "bears no token",
                "/v1/clients",
            ]
            .iter()
            .all(|word| line.contains(word))
        })
    });
    // What is wrong with the configuration is for those who have the token.
    vitals_tests::config::save(&scene.config_path(), "fleets: [");
    eventually(SOON, "the reload is refused", || {
        let ready = server.json("/readyz")?;
        assert_eq!(ready["errors"].as_array().map(Vec::len), Some(0), "{ready}");
        (ready["reload"] == "error")
            .then_some(())
            .ok_or_else(|| ready.to_string())
    });

    let admin = server.admin();
    let status = |token: &str| {
        let given = scene.dir().join("given");
        fs::write(&given, token).unwrap();
        vitals(&[
            "status",
            "--admin",
            &admin,
            "--token-file",
            given.to_str().unwrap(),
        ])
    };
    let good = status(TOKEN);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good));
    assert!(text(&good).contains("shop"));
    let bad = status(OTHER);
    assert_eq!(bad.status.code(), Some(1), "{}", text(&bad));
    assert!(
        text(&bad).contains("this is not the admin token; --token-file"),
        "{}",
        text(&bad)
    );
    let none = text(&vitals(&["status", "--admin", &admin]));
    assert!(
        none.contains("the admin token is wanted; give it"),
        "{none}"
    );
    // A new token counts without a restart, and the old one no longer.
    replace(&file, OTHER);
    until(SOON, "the new token is taken", || {
        status(OTHER).status.code() == Some(0)
    });
    assert_eq!(status(TOKEN).status.code(), Some(1));
}

#[test]
fn beyond_loopback_it_speaks_tls_and_wants_certificates_where_the_server_does() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    scene.shop(&backends).save(&scene.config_path());
    let host = scene.net().host(1);
    let authority = Authority::new(scene.dir(), "ca");
    let own = authority.issue("server", &host.to_string());
    let operator = authority.issue("operator", "operator.example");
    let token = scene.dir().join("token");
    fs::write(&token, TOKEN).unwrap();
    let xds = SocketAddr::new(host.into(), 0);
    let state = scene.dir().join("state");
    let mut command = serve(
        &scene.config_path(),
        &state,
        xds,
        "0.0.0.0:0".parse().unwrap(),
    );
    command.arg("--admin-token-file").arg(&token);
    command.arg("--tls-cert").arg(&own.cert);
    command.arg("--tls-key").arg(&own.key);
    command.arg("--client-ca").arg(&authority.cert);
    let server = Process::spawn("vitals", &mut command, &scene.dir().join("vitals.log"));
    let port = eventually(SOON, "it says where it serves", || {
        let log = server.log();
        let said = log.split_once("admin=0.0.0.0:").map(|(_, rest)| rest);
        let digits = said.map(|rest| rest.chars().take_while(char::is_ascii_digit));
        digits.map(Iterator::collect::<String>).ok_or(log)
    });
    let status = |scheme: &str, more: &[&Path]| {
        let mut command = Command::new(vitals_tests::tools::vitals());
        command.args(["status", "--admin", &format!("{scheme}://{host}:{port}")]);
        command.arg("--ca").arg(&authority.cert);
        command.arg("--token-file").arg(&token).args(more);
        let output = run(&mut command);
        (output.status.code(), text(&output))
    };
    let with_pair = [
        Path::new("--cert"),
        &*operator.cert,
        Path::new("--key"),
        &*operator.key,
    ];
    eventually(SOON, "the operator is served", || {
        let (code, said) = status("https", &with_pair);
        (code == Some(0) && said.contains("shop"))
            .then_some(())
            .ok_or(said)
    });
    let (code, said) = status("https", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--cert"), "{said}");
    let (code, said) = status("http", &with_pair);
    assert_eq!(code, Some(1), "plain: {said}");
    let right = format!("write https://{host}:{port}");
    assert!(said.contains(&right), "plain: {said}");
    // By a name that the certificate has not.
    let mut command = Command::new(vitals_tests::tools::vitals());
    command.args(["status", "--admin", &format!("https://localhost:{port}")]);
    command.arg("--ca").arg(&authority.cert);
    let said = text(&run(&mut command));
    assert!(
        said.contains("has not the name \"localhost\"") && said.contains(&host.to_string()),
        "{said}"
    );
}
