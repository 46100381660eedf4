//! A service's ClusterLoadAssignment: where its endpoints are, and how they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
    cluster_load_assignment::Policy, endpoint::HealthCheckConfig, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::google::protobuf::{Struct, UInt32Value, Value, value::Kind};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use vitals_prober::check::{HealthCheck, Protocol};
use vitals_prober::target::Names;

use super::address;
use crate::health::{EdsStatus, EndpointView, Pool, ServiceView};
use crate::model::{Locality, Name, Service};
use crate::snapshot::{Resource, ResourceType};

/// Design 5.5: so high that one healthy endpoint holds all of its priority's traffic, and panic is judged only when none
/// is healthy. (Envoy's default of 140 spills to the next priority, and panics, much sooner.)
const OVERPROVISIONING_FACTOR: u32 = 10_000_000;

/// Envoy's greatest priority.
const MAX_PRIORITY: u32 = 127;

/// The key under which Vitals leaves its endpoint metadata.
const METADATA_KEY: &str = "vitals";

/// The load assignment of a service for fleets of one `region_order` (empty: all regions alike). An unhealthy endpoint
/// stays in it, marked (design 5.1). `endpoint_stale_after` is never set: losing the control plane must change nothing
/// (design 5.4).
///
/// It is encoded endpoint by endpoint instead of as one message: with 100,000 of them, the message would take some
/// hundred MB for a moment and most of the time of a publication. Protobuf allows it: the encodings of parts of a message,
/// one after the other, are an encoding of the message.
#[must_use]
pub fn assignment(service: &Service, view: &ServiceView, region_order: &[Arc<str>]) -> Resource {
    let envoys = envoys_check(service);
    // Endpoints of the same rank and locality stand together, localities in the order of their names, so that the same
    // content has the same bytes.
    let mut localities: BTreeMap<(Rank, &Locality), Vec<u8>> = BTreeMap::new();
    let mut metadata = LastMetadata::default();
    let mut one = Vec::new();
    for endpoint in &view.endpoints {
        let Some(status) = view.told_of(endpoint) else {
            continue;
        };
        one.clear();
        append_lb_endpoint(&mut one, endpoint, status, envoys, &mut metadata);
        let locality = &endpoint.group.locality;
        let place = (rank(endpoint.pool, locality, view, region_order), locality);
        append_field(localities.entry(place).or_default(), LB_ENDPOINTS, &one);
    }
    let localities = localities
        .into_iter()
        .map(|((rank, locality), lb_endpoints)| (rank, locality, lb_endpoints));
    of_localities(service, localities.collect())
}

/// The load assignment of these localities, each with its place in line and the encoded fields that say where its endpoints
/// are; the first in line come first.
pub(super) fn of_localities(
    service: &Service,
    localities: Vec<(Rank, &Locality, Vec<u8>)>,
) -> Resource {
    // Envoy refuses gaps between priorities.
    let ranks: BTreeSet<Rank> = localities.iter().map(|(rank, ..)| *rank).collect();
    let priorities: BTreeMap<Rank, u32> = ranks.into_iter().zip(0..=MAX_PRIORITY).collect();
    let mut message = ClusterLoadAssignment {
        cluster_name: service.name.as_str().into(),
        ..ClusterLoadAssignment::default()
    }
    .encode_to_vec();
    for (rank, locality, where_they_are) in localities {
        let mut endpoints = LocalityLbEndpoints {
            locality: Some(core::Locality {
                region: (*locality.region).into(),
                zone: (*locality.zone).into(),
                ..core::Locality::default()
            }),
            ..LocalityLbEndpoints::default()
        }
        .encode_to_vec();
        endpoints.extend_from_slice(&where_they_are);
        let priority = LocalityLbEndpoints {
            priority: priorities.get(&rank).copied().unwrap_or(MAX_PRIORITY),
            ..LocalityLbEndpoints::default()
        };
        endpoints.extend_from_slice(&priority.encode_to_vec());
        append_field(&mut message, ENDPOINTS, &endpoints);
    }
    let policy = ClusterLoadAssignment {
        policy: Some(Policy {
            overprovisioning_factor: Some(UInt32Value {
                value: OVERPROVISIONING_FACTOR,
            }),
            ..Policy::default()
        }),
        ..ClusterLoadAssignment::default()
    };
    message.extend_from_slice(&policy.encode_to_vec());
    Resource::encoded(
        ResourceType::ClusterLoadAssignment,
        service.name.shared(),
        message,
        Vec::new(),
    )
}

/// `ClusterLoadAssignment.endpoints`
const ENDPOINTS: u32 = 2;

/// `LocalityLbEndpoints.lb_endpoints`
const LB_ENDPOINTS: u32 = 2;

/// Appends an encoded message as a field of another.
fn append_field(message: &mut Vec<u8>, number: u32, field: &[u8]) {
    encode_key(number, WireType::LengthDelimited, message);
    encode_varint(field.len() as u64, message);
    message.extend_from_slice(field);
}

/// The metadata of a group, encoded once for all endpoints of it that stand together.
#[derive(Default)]
pub(super) struct LastMetadata {
    group: Option<Name>,
    encoded: Vec<u8>,
}

impl LastMetadata {
    fn of(&mut self, group: &Name) -> &[u8] {
        if self.group.as_ref() != Some(group) {
            self.group = Some(group.clone());
            self.encoded = LbEndpoint {
                metadata: Some(metadata(group)),
                ..LbEndpoint::default()
            }
            .encode_to_vec();
        }
        &self.encoded
    }
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

/// Where an endpoint stands in line for traffic, first first: the pool, then the region.
pub(super) type Rank = (usize, usize);

/// Traffic goes to one pool at a time (semantics H2), and in it to the nearest region that has a healthy endpoint (H10).
/// While all share it (H3, H6), all are alike.
pub(super) fn rank(
    pool: Pool,
    locality: &Locality,
    view: &ServiceView,
    region_order: &[Arc<str>],
) -> Rank {
    if view.routing.open {
        return (0, 0);
    }
    let pool = usize::from(pool != view.routing.active);
    let region = region_order
        .iter()
        .position(|region| *region == locality.region);
    (pool, region.unwrap_or(region_order.len()))
}

/// The check that Envoys run.
pub(super) fn envoys_check(service: &Service) -> Option<&HealthCheck> {
    let named = service
        .check
        .as_ref()
        .filter(|_| service.has_envoy_checks());
    named.map(|named| &*named.check)
}

/// What an endpoint adds to the check that Envoys run (semantics P3, P7), or that it is none of theirs (design 5.2).
/// `None` where it adds nothing, which keeps the assignment small.
fn health_check_config(endpoint: &EndpointView, check: &HealthCheck) -> Option<HealthCheckConfig> {
    let probed = endpoint.probe_address.unwrap_or(endpoint.address);
    if !endpoint.by.is_some_and(|by| by.envoys) {
        return Some(HealthCheckConfig {
            disable_active_health_check: true,
            ..HealthCheckConfig::default()
        });
    }
    let own_address = probed.ip() != endpoint.address.ip();
    let needs_host = match check.protocol() {
        Protocol::Tcp(_) => false,
        Protocol::Http(_) | Protocol::Http2(_) | Protocol::Grpc(_) => check.host().is_none(),
    };
    let config = HealthCheckConfig {
        port_value: if own_address || probed.port() != endpoint.address.port() {
            probed.port().into()
        } else {
            0
        },
        // Envoy's default is the name of the cluster. An endpoint's would beat the check's own host, so it has none then.
        hostname: if needs_host {
            Names::new(check, None, probed).host.as_ref().into()
        } else {
            String::new()
        },
        address: own_address.then(|| address(probed)),
        disable_active_health_check: false,
    };
    (config != HealthCheckConfig::default()).then_some(config)
}

/// Appends an `LbEndpoint`, its fields in the order of their numbers.
pub(super) fn append_lb_endpoint(
    out: &mut Vec<u8>,
    endpoint: &EndpointView,
    status: EdsStatus,
    envoys: Option<&HealthCheck>,
    metadata: &mut LastMetadata,
) {
    let health_status = match status {
        EdsStatus::Healthy => core::HealthStatus::Healthy,
        EdsStatus::Unhealthy => core::HealthStatus::Unhealthy,
        EdsStatus::Timeout => core::HealthStatus::Timeout,
        EdsStatus::Draining => core::HealthStatus::Draining,
    };
    let host = Endpoint {
        address: Some(address(endpoint.address)),
        health_check_config: envoys.and_then(|check| health_check_config(endpoint, check)),
        ..Endpoint::default()
    };
    let before = LbEndpoint {
        health_status: health_status.into(),
        host_identifier: Some(HostIdentifier::Endpoint(host)),
        ..LbEndpoint::default()
    };
    let after = LbEndpoint {
        load_balancing_weight: endpoint.weight.map(|value| UInt32Value { value }),
        ..LbEndpoint::default()
    };
    before.encode_raw(out);
    out.extend_from_slice(metadata.of(&endpoint.group.name));
    after.encode_raw(out);
}

/// What access logs and config dumps can say of an endpoint beyond its address. One entry per map: the order of a larger
/// map's entries is not fixed, and with it the version.
fn metadata(group: &Name) -> core::Metadata {
    let group = Value {
        kind: Some(Kind::StringValue(group.as_str().into())),
    };
    let fields = Struct {
        fields: [("group".into(), group)].into(),
    };
    core::Metadata {
        filter_metadata: [(METADATA_KEY.into(), fields)].into(),
        ..core::Metadata::default()
    }
}

#[cfg(test)]
mod tests;
