//! A service's ClusterLoadAssignment: where its endpoints are, and how they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
    cluster_load_assignment::Policy, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::google::protobuf::{Struct, UInt32Value, Value, value::Kind};

use super::address;
use crate::health::{EdsStatus, EndpointView, ServiceView};
use crate::model::{Locality, Name};
use crate::snapshot::{Resource, ResourceType};

/// Design 5.5: so high that one healthy endpoint holds all of its priority's traffic, and panic is judged only when none
/// is healthy. (Envoy's default of 140 spills to the next priority, and panics, much sooner.)
const OVERPROVISIONING_FACTOR: u32 = 10_000_000;

/// The key under which Vitals leaves its endpoint metadata.
const METADATA_KEY: &str = "vitals";

/// The load assignment of a service. An unhealthy endpoint stays in it, marked (design 5.1). `endpoint_stale_after` is
/// never set: losing the control plane must change nothing (design 5.4).
#[must_use]
pub fn assignment(service: &Name, view: &ServiceView) -> Resource {
    // Endpoints of the same locality stand together, localities in the order of their names, so that the same content
    // has the same bytes.
    let mut localities: BTreeMap<&Locality, Vec<LbEndpoint>> = BTreeMap::new();
    for endpoint in &view.endpoints {
        if let Some(status) = endpoint.status {
            localities
                .entry(&endpoint.locality)
                .or_default()
                .push(lb_endpoint(endpoint, status));
        }
    }
    let endpoints = localities
        .into_iter()
        .map(|(locality, lb_endpoints)| LocalityLbEndpoints {
            locality: Some(core::Locality {
                region: (*locality.region).into(),
                zone: (*locality.zone).into(),
                ..core::Locality::default()
            }),
            lb_endpoints,
            ..LocalityLbEndpoints::default()
        });
    let message = ClusterLoadAssignment {
        cluster_name: service.as_str().into(),
        endpoints: endpoints.collect(),
        policy: Some(Policy {
            overprovisioning_factor: Some(UInt32Value {
                value: OVERPROVISIONING_FACTOR,
            }),
            ..Policy::default()
        }),
        ..ClusterLoadAssignment::default()
    };
    Resource::new(
        ResourceType::ClusterLoadAssignment,
        service.shared(),
        &message,
        Vec::new(),
    )
}

/// A load assignment without endpoints, for a name that we do not know: a cluster that waits for it would otherwise warm
/// until its time-out, and with it everything that the Envoy has not loaded yet.
#[must_use]
pub fn empty_assignment(name: Arc<str>) -> Resource {
    let message = ClusterLoadAssignment {
        cluster_name: (*name).into(),
        ..ClusterLoadAssignment::default()
    };
    Resource::new(
        ResourceType::ClusterLoadAssignment,
        name,
        &message,
        Vec::new(),
    )
}

fn lb_endpoint(endpoint: &EndpointView, status: EdsStatus) -> LbEndpoint {
    let health_status = match status {
        EdsStatus::Healthy => core::HealthStatus::Healthy,
        EdsStatus::Unhealthy => core::HealthStatus::Unhealthy,
        EdsStatus::Timeout => core::HealthStatus::Timeout,
        EdsStatus::Draining => core::HealthStatus::Draining,
    };
    LbEndpoint {
        health_status: health_status.into(),
        metadata: Some(metadata(endpoint)),
        load_balancing_weight: endpoint.weight.map(|value| UInt32Value { value }),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(address(endpoint.address)),
            ..Endpoint::default()
        })),
    }
}

/// What access logs and config dumps can say of an endpoint beyond its address. One entry per map: the order of a larger
/// map's entries is not fixed, and with it the version.
fn metadata(endpoint: &EndpointView) -> core::Metadata {
    let group = Value {
        kind: Some(Kind::StringValue(endpoint.group.as_str().into())),
    };
    let fields = Struct {
        fields: [("group".into(), group)].into(),
    };
    core::Metadata {
        filter_metadata: [(METADATA_KEY.into(), fields)].into(),
        ..core::Metadata::default()
    }
}
