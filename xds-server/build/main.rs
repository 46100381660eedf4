//! What is made before the server is compiled: the discovery services around our own codec (`src/ads/codec.rs`; tonic's own
//! would copy every resource into a message per stream, ours writes the bytes that all streams share), and the descriptors
//! of Envoy's messages ([`descriptors`]).

mod descriptors;

use tonic_build::manual::{Builder, Method, Service};

/// The aggregated service and those of one type each: package, name, and what its methods are named after.
const SERVICES: [(&str, &str, &str); 5] = [
    (
        "envoy.service.discovery.v3",
        "AggregatedDiscoveryService",
        "AggregatedResources",
    ),
    (
        "envoy.service.cluster.v3",
        "ClusterDiscoveryService",
        "Clusters",
    ),
    (
        "envoy.service.endpoint.v3",
        "EndpointDiscoveryService",
        "Endpoints",
    ),
    (
        "envoy.service.listener.v3",
        "ListenerDiscoveryService",
        "Listeners",
    ),
    ("envoy.service.route.v3", "RouteDiscoveryService", "Routes"),
];

fn main() -> Result<(), String> {
    generate_services();
    println!("cargo::rerun-if-changed=build");
    descriptors::make()
}

/// The methods are called `sotw` and `delta` in every service, so that one macro serves them all.
fn generate_services() {
    let method = |name: &str, route: String, request: &str, codec: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!(
                "envoy_types::pb::envoy::service::discovery::v3::{request}"
            ))
            .output_type("crate::ads::codec::Outgoing")
            .codec_path(format!("crate::ads::codec::{codec}"))
            .client_streaming()
            .server_streaming()
            .build()
    };
    let services = SERVICES.map(|(package, name, of)| {
        Service::builder()
            .name(name)
            .package(package)
            .method(method(
                "sotw",
                format!("Stream{of}"),
                "DiscoveryRequest",
                "SotwCodec",
            ))
            .method(method(
                "delta",
                format!("Delta{of}"),
                "DeltaDiscoveryRequest",
                "DeltaCodec",
            ))
            .build()
    });
    Builder::new().build_client(false).compile(&services);
}
