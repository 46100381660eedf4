//! How far the real Envoy has come, as `vitals status --clients` and `--wait-acked` tell a person and a script.

use std::net::TcpListener;

use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ConfigStatus};
use envoy_types::pb::google::protobuf::value::Kind;
use serde_json::json;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use vitals_tests::Transport;
use vitals_tests::config::LISTENER_PORT;
use vitals_tests::lab::{Lab, NODE, Scene};
use vitals_tests::on_every_transport;
use vitals_tests::process::text;
use vitals_tests::vitals::{Vitals, vitals};
use vitals_tests::wait::{SOON, eventually};

on_every_transport!(
    a_script_waits_until_every_envoy_has_the_new_state,
    a_refused_listener_is_named_and_not_waited_for,
);

fn wait_acked(server: &Vitals, more: &[&str]) -> (Option<i32>, String) {
    let admin = server.admin();
    let mut arguments = vec!["status", "--admin", &admin, "--wait-acked"];
    arguments.extend_from_slice(more);
    let output = vitals(&arguments);
    (output.status.code(), text(&output))
}

fn a_script_waits_until_every_envoy_has_the_new_state(transport: Transport) {
    let mut lab = Lab::start(transport, 2);
    let (code, said) = wait_acked(&lab.vitals, &["--fleet", "edge"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.trim(), "acked by 1 client");
    // What a deployment does: save, wait, go on.
    lab.config.service()["loadBalancing"] = json!({ "policy": "LEAST_REQUEST" });
    lab.save();
    let before = lab.vitals.client(NODE).unwrap()["types"]["Cluster"]["ackedVersion"].clone();
    let (code, said) = wait_acked(&lab.vitals, &["--fleet", "edge"]);
    assert_eq!(code, Some(0), "{said}");
    let after = lab.vitals.client(NODE).unwrap()["types"]["Cluster"]["ackedVersion"].clone();
    assert_ne!(
        before, after,
        "the Envoy has the new cluster when the command ends"
    );
    the_same_over_csds(&lab.vitals, transport);
    // A fleet that is none is a wrong word, not nobody.
    let hasty = ["--timeout", "100ms", "--settle", "0s"];
    let (code, said) = wait_acked(&lab.vitals, &[&["--fleet", "inner"][..], &hasty].concat());
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("inner") && said.contains("edge"), "{said}");
    let admin = lab.vitals.admin();
    let output = vitals(&["status", "--clients", "--fleet", "inner", "--admin", &admin]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    // Not as many as there should be.
    let (code, said) = wait_acked(&lab.vitals, &[&["--min-clients", "2"][..], &hasty].concat());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("1 client is connected; 2 must be"), "{said}");
    let shown = text(&vitals(&[
        "status",
        "--clients",
        "--admin",
        &lab.vitals.admin(),
    ]));
    assert!(shown.contains(NODE) && shown.contains("ADS"), "{shown}");
    lab.vitals.terminate(SOON);
    let (code, said) = wait_acked(&lab.vitals, &[]);
    assert_eq!(code, Some(1), "{said}");
}

fn a_refused_listener_is_named_and_not_waited_for(transport: Transport) {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let config = scene.shop(&backends);
    let server = scene.vitals(&config);
    server.wait_for_status(backends[0].name(), "HEALTHY");
    // Somebody else has the listener's address.
    let taken = TcpListener::bind((scene.net().host(1), LISTENER_PORT)).unwrap();
    let _envoy = scene.envoy(&server, transport);
    let nack = eventually(SOON, "the listener is refused, by name", || {
        let client = server.client(NODE)?;
        let nack = client["types"]["Listener"]["nack"].clone();
        match nack["resources"] == json!(["http"]) {
            true => Ok(nack),
            false => Err(client.to_string()),
        }
    });
    assert!(nack["message"].as_str().unwrap().contains("http"), "{nack}");
    let (code, said) = wait_acked(&server, &["--timeout", "30s"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("Listener: refuses http: "), "{said}");
    drop(taken);
    // The log says the same.
    assert!(
        server.log().contains("the client refuses what it was sent"),
        "{}",
        server.log()
    );
}

/// The admin listener speaks Envoy's own protocol for it too.
fn the_same_over_csds(server: &Vitals, transport: Transport) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut client = ClientStatusDiscoveryServiceClient::connect(server.admin())
            .await
            .unwrap();
        let response = client
            .fetch_client_status(ClientStatusRequest::default())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(response.config.len(), 1);
        let node = response.config[0].node.as_ref().unwrap();
        assert_eq!(node.id, NODE);
        let told = &node.metadata.as_ref().unwrap().fields["vitals.transport"];
        assert_eq!(told.kind, Some(Kind::StringValue(transport.name().into())));
        let types = &response.config[0].generic_xds_configs;
        assert_eq!(
            types.len(),
            if transport == Transport::Leds { 5 } else { 4 }
        );
        for of_type in types {
            assert_eq!(of_type.config_status(), ConfigStatus::Synced, "{of_type:?}");
            assert!(!of_type.version_info.is_empty());
        }
        // And tells those who ask what it speaks.
        let endpoint = tonic::transport::Endpoint::from_shared(server.admin()).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let mut reflection = ServerReflectionClient::new(channel);
        let symbol = "envoy.service.status.v3.ClientStatusDiscoveryService".to_owned();
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(symbol)),
        };
        let answers = reflection.server_reflection_info(tokio_stream::iter([request]));
        let mut answers = answers.await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        assert!(matches!(
            answer.message_response,
            Some(MessageResponse::FileDescriptorResponse(_))
        ));
        // A stream that is left open does not keep the server from stopping; the scenario's end shows it.
        let pending = tokio_stream::pending::<ClientStatusRequest>();
        let _open = client.stream_client_status(pending).await.unwrap();
        let two = [
            ClientStatusRequest::default(),
            ClientStatusRequest::default(),
        ];
        let answers = client.stream_client_status(tokio_stream::iter(two)).await;
        let mut answers = answers.unwrap().into_inner();
        for _ in 0..2 {
            assert_eq!(answers.message().await.unwrap().unwrap().config.len(), 1);
        }
        assert!(answers.message().await.unwrap().is_none());
    });
}
