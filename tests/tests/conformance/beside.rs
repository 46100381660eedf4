//! The services beside discovery on the same listener: health, reflection; and what is not there.

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use vitals::transport::Limits;

use crate::client::connect;
use crate::server::Server;

const SERVICES: [&str; 5] = [
    "envoy.service.discovery.v3.AggregatedDiscoveryService",
    "envoy.service.cluster.v3.ClusterDiscoveryService",
    "envoy.service.endpoint.v3.EndpointDiscoveryService",
    "envoy.service.listener.v3.ListenerDiscoveryService",
    "envoy.service.route.v3.RouteDiscoveryService",
];

#[test]
fn health_is_serving_until_the_server_stops_and_then_watchers_end() {
    crate::run(async {
        let server = Server::start(&[]);
        let mut client = HealthClient::new(connect(server.address).await);
        for service in SERVICES.into_iter().chain([""]) {
            let service = service.to_owned();
            let request = HealthCheckRequest { service };
            let health = client.check(request).await.unwrap().into_inner();
            assert_eq!(health.status(), ServingStatus::Serving);
        }
        let service = "no.such.Service".to_owned();
        let unknown = client.check(HealthCheckRequest { service }).await;
        assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
        let watch = client.watch(HealthCheckRequest::default()).await;
        let mut watch = watch.unwrap().into_inner();
        let next = watch.message().await.unwrap().unwrap();
        assert_eq!(next.status(), ServingStatus::Serving);
        server.stop();
        // It is told, if it looks in time; in any case its stream ends, so that the server can.
        while let Ok(Some(health)) = watch.message().await {
            assert_eq!(health.status(), ServingStatus::NotServing);
        }
        server.end().await;
    });
}

#[test]
fn watchers_and_reflections_take_places_among_a_peer_s_streams() {
    crate::run(async {
        let limits = Limits {
            streams: 2,
            ..Limits::default()
        };
        let server = Server::limiting(&[], limits);
        // On one connection the third would wait in the client: HTTP/2 tells it the limit.
        let mut other = HealthClient::new(connect(server.address).await);
        let watch = other.watch(HealthCheckRequest::default()).await.unwrap();
        let questions = tokio_stream::pending::<ServerReflectionRequest>();
        let mut reflection = ServerReflectionClient::new(connect(server.address).await);
        let reflecting = reflection.server_reflection_info(questions).await.unwrap();
        let mut health = HealthClient::new(connect(server.address).await);
        let refused = health.check(HealthCheckRequest::default()).await;
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
        drop((watch, reflecting));
        for _ in 0..3 {
            eventually_ok(|| {
                let mut health = health.clone();
                async move { health.check(HealthCheckRequest::default()).await }
            })
            .await;
        }
        server.end().await;
    });
}

/// Asks until it is answered: what was given up is noticed a moment later.
async fn eventually_ok<T, F: Future<Output = Result<T, Status>>>(ask: impl Fn() -> F) {
    let asked = async {
        while let Err(status) = ask().await {
            assert_eq!(status.code(), Code::ResourceExhausted);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let patience = std::time::Duration::from_secs(10);
    tokio::time::timeout(patience, asked)
        .await
        .expect("an answer");
}

#[test]
fn reflection_lists_every_service_and_describes_each() {
    crate::run(async {
        let server = Server::start(&[]);
        let mut client = ServerReflectionClient::new(connect(server.address).await);
        let ask = |message_request| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message_request),
        };
        let mut requests = vec![ask(MessageRequest::ListServices(String::new()))];
        let symbols = SERVICES.map(|name| ask(MessageRequest::FileContainingSymbol(name.into())));
        requests.extend(symbols);
        let responses = client
            .server_reflection_info(tokio_stream::iter(requests))
            .await;
        let mut responses = responses.unwrap().into_inner();
        let first = responses.message().await.unwrap().unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = first.message_response else {
            panic!("a list")
        };
        let names: Vec<&str> = list.service.iter().map(|s| s.name.as_str()).collect();
        assert!(
            SERVICES.iter().all(|name| names.contains(name)),
            "{names:?}"
        );
        for name in SERVICES {
            let response = responses.message().await.unwrap().unwrap();
            let Some(MessageResponse::FileDescriptorResponse(file)) = response.message_response
            else {
                panic!("no file of {name}")
            };
            assert_eq!(file.file_descriptor_proto.len(), 1);
        }
        assert_eq!(
            responses.message().await.unwrap(),
            None,
            "it ends as the client does"
        );
        // A conversation that is left open does not hold the server up.
        let pending = tokio_stream::pending::<ServerReflectionRequest>();
        let _open = client.server_reflection_info(pending).await.unwrap();
        server.end().await;
    });
}

#[test]
fn reflection_answers_older_tools_too() {
    use tonic_reflection::pb::v1alpha as older;
    use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
    crate::run(async {
        let server = Server::start(&[]);
        let mut client = ServerReflectionClient::new(connect(server.address).await);
        let symbol = "grpc.reflection.v1alpha.ServerReflection".to_owned();
        let requests = [
            older::server_reflection_request::MessageRequest::ListServices(String::new()),
            older::server_reflection_request::MessageRequest::FileContainingSymbol(symbol.clone()),
        ];
        let requests = requests.map(|request| older::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(request),
        });
        let responses = client.server_reflection_info(tokio_stream::iter(requests));
        let mut responses = responses.await.unwrap().into_inner();
        use older::server_reflection_response::MessageResponse;
        let list = responses.message().await.unwrap().unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = list.message_response else {
            panic!("a list")
        };
        assert!(list.service.iter().any(|service| service.name == symbol));
        let file = responses.message().await.unwrap().unwrap();
        let Some(MessageResponse::FileDescriptorResponse(file)) = file.message_response else {
            panic!("a file")
        };
        assert_eq!(file.file_descriptor_proto.len(), 1);
    });
}

#[test]
fn fetch_and_the_status_of_clients_are_not_on_this_listener() {
    crate::run(async {
        let server = Server::start(&[]);
        for path in [
            "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters",
            "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints",
            "/envoy.service.listener.v3.ListenerDiscoveryService/FetchListeners",
            "/envoy.service.route.v3.RouteDiscoveryService/FetchRoutes",
        ] {
            let called = call::<_, DiscoveryResponse>(&server, path, DiscoveryRequest::default());
            assert_eq!(called.await.unwrap_err().code(), Code::Unimplemented);
        }
        // Who may be served as one fleet must not see who is served as others.
        let path = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
        let request = ClientStatusRequest::default();
        let called = call::<_, ClientStatusResponse>(&server, path, request).await;
        assert_eq!(called.unwrap_err().code(), Code::Unimplemented);
    });
}

async fn call<Q, A>(server: &Server, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = Grpc::new(connect(server.address).await);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let response = grpc.unary(Request::new(request), path, codec).await?;
    Ok(response.into_inner())
}
