//! The gRPC services of the xDS listener: the aggregated discovery service, beside it those of one type each, on the same
//! streams; and health and reflection.
//!
//! In: an [`Ads`]. Out: the [`Routes`] that a server adds. Fetch methods answer UNIMPLEMENTED: a poll would have to be
//! answered by a state that no ACK ever speaks of, and who polls learns of a dead endpoint when it polls.
//!
//! Streams of one type keep their order only within themselves: what must come before what is said on an aggregated one.

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tokio_stream::Empty;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::codec::Outgoing;
use super::{Ads, MAX_REQUEST_BYTES, health, reflection};
use crate::snapshot::ResourceType;

/// What tonic is given; the real responses travel beside it (`body`).
pub(super) type Responses = Empty<Result<Outgoing, Status>>;

/// Every service of the listener, by its full name; all but the last three are of discovery.
pub(super) const SERVICES: [&str; 8] = [
    "envoy.service.discovery.v3.AggregatedDiscoveryService",
    "envoy.service.cluster.v3.ClusterDiscoveryService",
    "envoy.service.endpoint.v3.EndpointDiscoveryService",
    "envoy.service.listener.v3.ListenerDiscoveryService",
    "envoy.service.route.v3.RouteDiscoveryService",
    "grpc.health.v1.Health",
    reflection::NAMES[0],
    reflection::NAMES[1],
];

/// All services.
pub async fn routes(ads: Ads) -> Routes {
    let [discovery @ .., _health, _reflection, _older] = &SERVICES;
    let health = health::service(discovery, ads.stopping.clone()).await;
    let reflection = reflection::service(&SERVICES, ads.stopping.clone());
    let older = reflection::older_service(&SERVICES, ads.stopping.clone());
    Routes::new(health)
        .add_service(reflection)
        .add_service(older)
        .add_service(aggregated::server(ads.clone()))
        .add_service(clusters::server(ads.clone()))
        .add_service(endpoints::server(ads.clone()))
        .add_service(listeners::server(ads.clone()))
        .add_service(routes_of_listeners::server(ads))
}

/// A module with the generated service and its implementation.
macro_rules! service {
    ($module:ident, $file:literal, $generated:ident, $service:ident, $server:ident, $sotw:ident, $delta:ident, $of:expr) => {
        mod $module {
            use super::*;

            #[allow(missing_docs, unreachable_pub, clippy::all)]
            mod generated {
                include!(concat!(env!("OUT_DIR"), "/", $file, ".rs"));
            }

            use generated::$generated::{$server, $service};

            pub(super) fn server(ads: Ads) -> $server<Ads> {
                $server::new(ads).max_decoding_message_size(MAX_REQUEST_BYTES)
            }

            #[tonic::async_trait]
            impl $service for Ads {
                type $sotw = Responses;
                type $delta = Responses;

                async fn sotw(
                    &self,
                    request: Request<Streaming<DiscoveryRequest>>,
                ) -> Result<Response<Responses>, Status> {
                    self.start(request, $of)
                }

                async fn delta(
                    &self,
                    request: Request<Streaming<DeltaDiscoveryRequest>>,
                ) -> Result<Response<Responses>, Status> {
                    self.start(request, $of)
                }
            }
        }
    };
}

service!(
    aggregated,
    "envoy.service.discovery.v3.AggregatedDiscoveryService",
    aggregated_discovery_service_server,
    AggregatedDiscoveryService,
    AggregatedDiscoveryServiceServer,
    StreamAggregatedResourcesStream,
    DeltaAggregatedResourcesStream,
    None
);
service!(
    clusters,
    "envoy.service.cluster.v3.ClusterDiscoveryService",
    cluster_discovery_service_server,
    ClusterDiscoveryService,
    ClusterDiscoveryServiceServer,
    StreamClustersStream,
    DeltaClustersStream,
    Some(ResourceType::Cluster)
);
service!(
    endpoints,
    "envoy.service.endpoint.v3.EndpointDiscoveryService",
    endpoint_discovery_service_server,
    EndpointDiscoveryService,
    EndpointDiscoveryServiceServer,
    StreamEndpointsStream,
    DeltaEndpointsStream,
    Some(ResourceType::ClusterLoadAssignment)
);
service!(
    listeners,
    "envoy.service.listener.v3.ListenerDiscoveryService",
    listener_discovery_service_server,
    ListenerDiscoveryService,
    ListenerDiscoveryServiceServer,
    StreamListenersStream,
    DeltaListenersStream,
    Some(ResourceType::Listener)
);
service!(
    routes_of_listeners,
    "envoy.service.route.v3.RouteDiscoveryService",
    route_discovery_service_server,
    RouteDiscoveryService,
    RouteDiscoveryServiceServer,
    StreamRoutesStream,
    DeltaRoutesStream,
    Some(ResourceType::RouteConfiguration)
);
