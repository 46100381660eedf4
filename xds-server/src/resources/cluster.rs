//! A service's Cluster.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::{self as pb, cluster as nested};
use envoy_types::pb::envoy::config::core::v3::{Http1ProtocolOptions, Http2ProtocolOptions};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::{ads, any, duration};
use crate::model::{LbPolicy, Protocol, Service};
use crate::snapshot::{Resource, ResourceType};

const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Envoy's own default, written so that a reader of the cluster sees it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The Cluster of a service. It carries no `health_checks`: where only probers check, their verdict in EDS is the whole
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
            // FAIL_CLOSED (design 5.5): with nothing healthy, nothing is served.
            healthy_panic_threshold: Some(Percent { value: 0.0 }),
            // Envoy gathers health updates for a second by default, while which requests go on to a dead endpoint.
            // Vitals gathers them itself.
            update_merge_window: Some(duration(Duration::ZERO)),
            ..nested::CommonLbConfig::default()
        }),
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
mod tests {
    use envoy_types::pb::google::protobuf::{Any, UInt32Value};
    use prost::Message;

    use super::*;
    use crate::model::Name;

    #[test]
    fn a_cluster_carries_envoys_own_fields_of_its_service() {
        let outlier_detection = pb::OutlierDetection {
            consecutive_5xx: Some(UInt32Value { value: 3 }),
            ..pb::OutlierDetection::default()
        };
        let circuit_breakers = pb::CircuitBreakers {
            thresholds: vec![pb::circuit_breakers::Thresholds::default()],
            ..pb::CircuitBreakers::default()
        };
        let service = Service {
            outlier_detection: Some(outlier_detection.clone()),
            circuit_breakers: Some(circuit_breakers.clone()),
            ..Service::new(Name::new("shop").unwrap(), Protocol::Http)
        };
        let any = Any::decode(cluster(&service).any().clone()).unwrap();
        let rendered = pb::Cluster::decode(&*any.value).unwrap();
        assert_eq!(rendered.outlier_detection, Some(outlier_detection));
        assert_eq!(rendered.circuit_breakers, Some(circuit_breakers));
    }
}
