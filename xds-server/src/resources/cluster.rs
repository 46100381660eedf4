//! A service's Cluster.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::{self as pb, cluster as nested};
use envoy_types::pb::envoy::config::core::v3::{Http1ProtocolOptions, Http2ProtocolOptions};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::health_check::health_check;
use super::{ads, any, duration, transport};
use crate::model::{LbPolicy, Protocol, Service};
use crate::snapshot::{Resource, ResourceType};

const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Envoy's own default, written so that a reader of the cluster sees it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The Cluster of a service. Where only probers check it carries no `health_checks`: their verdict in EDS is the whole
/// truth, and Envoy would AND its own with it (design 5.2).
#[must_use]
pub fn cluster(service: &Service) -> Resource {
    let policy = match service.policy {
        LbPolicy::RoundRobin => nested::LbPolicy::RoundRobin,
        LbPolicy::LeastRequest => nested::LbPolicy::LeastRequest,
        LbPolicy::Random => nested::LbPolicy::Random,
        LbPolicy::RingHash => nested::LbPolicy::RingHash,
        LbPolicy::Maglev => nested::LbPolicy::Maglev,
    };
    let traffic = transport::of_service(service);
    let named = service
        .check
        .as_ref()
        .filter(|_| service.has_envoy_checks());
    let check = named.and_then(|named| health_check(&named.check, traffic.as_ref()));
    let (health_check, own_socket) = check
        .map(|check| (check.health_check, check.socket))
        .unzip();
    let has_checks = health_check.is_some();
    let message = pb::Cluster {
        name: service.name.as_str().into(),
        cluster_discovery_type: Some(nested::ClusterDiscoveryType::Type(
            nested::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(nested::EdsClusterConfig {
            eds_config: Some(ads()),
            service_name: String::new(),
        }),
        connect_timeout: Some(duration(CONNECT_TIMEOUT)),
        lb_policy: policy.into(),
        common_lb_config: Some(nested::CommonLbConfig {
            healthy_panic_threshold: Some(Percent {
                value: panic_threshold(service),
            }),
            // Envoy gathers health updates for a second by default, while which requests go on to a dead endpoint.
            // Vitals gathers them itself.
            update_merge_window: Some(duration(Duration::ZERO)),
            ..nested::CommonLbConfig::default()
        }),
        health_checks: health_check.into_iter().collect(),
        transport_socket_matches: own_socket.flatten().into_iter().collect(),
        transport_socket: traffic,
        // Design 5.6: an endpoint that passes its check would otherwise outlive its removal.
        ignore_health_on_host_removal: has_checks,
        close_connections_on_host_health_failure: service.close_connections_on_unhealthy,
        outlier_detection: service.outlier_detection.clone(),
        circuit_breakers: service.circuit_breakers.clone(),
        typed_extension_protocol_options: protocol_options(service.protocol)
            .map(|options| (HTTP_PROTOCOL_OPTIONS.into(), any(&options)))
            .into_iter()
            .collect(),
        ..pb::Cluster::default()
    };
    let name = service.name.shared();
    let references = vec![(ResourceType::ClusterLoadAssignment, service.name.shared())];
    Resource::new(ResourceType::Cluster, name, &message, references)
}

/// Design 5.5: 0 serves nothing while nothing is healthy (FAIL_CLOSED); 1 serves all then (FAIL_OPEN), and no sooner,
/// because of the assignments' overprovisioning.
fn panic_threshold(service: &Service) -> f64 {
    if service.refuses_when_all_unhealthy() {
        0.0
    } else {
        1.0
    }
}

fn protocol_options(protocol: Protocol) -> Option<HttpProtocolOptions> {
    let protocol = match protocol {
        Protocol::Http | Protocol::Https => {
            ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default())
        }
        Protocol::Http2 | Protocol::H2c | Protocol::Grpc | Protocol::GrpcWithTls => {
            ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default())
        }
        Protocol::Tcp | Protocol::Ssl => return None,
    };
    Some(HttpProtocolOptions {
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(protocol),
            },
        )),
        ..HttpProtocolOptions::default()
    })
}

#[cfg(test)]
mod tests;
