//! What is made before the server is compiled: the ADS service around our own codec (`src/ads/codec.rs`; tonic's own would
//! copy every resource into a message per stream, ours writes the bytes that all streams share), and the descriptors of
//! Envoy's messages ([`descriptors`]).

mod descriptors;

use tonic_build::manual::{Builder, Method, Service};

fn main() -> Result<(), String> {
    generate_ads();
    println!("cargo::rerun-if-changed=build");
    descriptors::make()
}

fn generate_ads() {
    let method = |name: &str, route: &str, request: &str, codec: &str| {
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
    let service = Service::builder()
        .name("AggregatedDiscoveryService")
        .package("envoy.service.discovery.v3")
        .method(method(
            "stream_aggregated_resources",
            "StreamAggregatedResources",
            "DiscoveryRequest",
            "SotwCodec",
        ))
        .method(method(
            "delta_aggregated_resources",
            "DeltaAggregatedResources",
            "DeltaDiscoveryRequest",
            "DeltaCodec",
        ))
        .build();
    Builder::new().build_client(false).compile(&[service]);
}
