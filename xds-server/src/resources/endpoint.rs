//! A service's ClusterLoadAssignment: where its endpoints are, and how they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
    cluster_load_assignment::Policy, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::google::protobuf::{Struct, UInt32Value, Value, value::Kind};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

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
///
/// It is encoded endpoint by endpoint instead of as one message: with 100,000 of them, the message would take some
/// hundred MB for a moment and most of the time of a publication. Protobuf allows it: the encodings of parts of a message,
/// one after the other, are an encoding of the message.
#[must_use]
pub fn assignment(service: &Name, view: &ServiceView) -> Resource {
    // Endpoints of the same locality stand together, localities in the order of their names, so that the same content
    // has the same bytes.
    let mut localities: BTreeMap<&Locality, Vec<u8>> = BTreeMap::new();
    let mut metadata = LastMetadata::default();
    let mut one = Vec::new();
    for endpoint in &view.endpoints {
        if let Some(status) = endpoint.status {
            one.clear();
            append_lb_endpoint(&mut one, endpoint, status, &mut metadata);
            let of_locality = localities.entry(&endpoint.group.locality).or_default();
            append_field(of_locality, LB_ENDPOINTS, &one);
        }
    }
    let mut message = ClusterLoadAssignment {
        cluster_name: service.as_str().into(),
        ..ClusterLoadAssignment::default()
    }
    .encode_to_vec();
    for (locality, lb_endpoints) in localities {
        let mut endpoints = LocalityLbEndpoints {
            locality: Some(core::Locality {
                region: (*locality.region).into(),
                zone: (*locality.zone).into(),
                ..core::Locality::default()
            }),
            ..LocalityLbEndpoints::default()
        }
        .encode_to_vec();
        endpoints.extend_from_slice(&lb_endpoints);
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
        service.shared(),
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
struct LastMetadata {
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

/// Appends an `LbEndpoint`, its fields in the order of their numbers.
fn append_lb_endpoint(
    out: &mut Vec<u8>,
    endpoint: &EndpointView,
    status: EdsStatus,
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
mod tests {
    use std::time::UNIX_EPOCH;

    use prost::bytes::Bytes;

    use super::*;
    use crate::health::{DetailedStatus, Pool, Rule};
    use crate::model::{EndpointGroup, GroupKind};

    fn group(name: &str, zone: &str) -> Arc<EndpointGroup> {
        Arc::new(EndpointGroup {
            name: Name::new(name).unwrap(),
            kind: GroupKind::GceVmIpPort,
            locality: Locality {
                region: "r".into(),
                zone: zone.into(),
            },
            endpoints: Vec::new(),
        })
    }

    fn endpoint(
        group: &Arc<EndpointGroup>,
        address: &str,
        weight: Option<u32>,
        status: Option<EdsStatus>,
    ) -> Arc<EndpointView> {
        Arc::new(EndpointView {
            group: Arc::clone(group),
            address: address.parse().unwrap(),
            weight,
            status,
            detailed: DetailedStatus::Healthy,
            reason: None,
            since: UNIX_EPOCH,
            rule: Rule::NoCheck,
            pinned: None,
            pool: Pool::Primary,
            by: None,
            votes: Box::default(),
        })
    }

    #[test]
    fn what_is_encoded_in_parts_is_the_message_byte_for_byte() {
        let (a, b) = (group("a", "z2"), group("b", "z1"));
        let endpoints = vec![
            endpoint(&a, "10.0.0.1:80", Some(1), Some(EdsStatus::Healthy)),
            endpoint(&b, "[2001:db8::1]:80", None, Some(EdsStatus::Draining)),
            endpoint(&a, "10.0.0.2:80", Some(300), Some(EdsStatus::Timeout)),
            endpoint(&a, "10.0.0.3:80", Some(1), None),
        ];
        let view = ServiceView {
            endpoints,
            ..ServiceView::default()
        };
        let resource = assignment(&Name::new("shop").unwrap(), &view);
        let any = envoy_types::pb::google::protobuf::Any::decode(Bytes::clone(resource.any()));
        let bytes = any.unwrap().value;
        let message = ClusterLoadAssignment::decode(&*bytes).unwrap();
        assert_eq!(message.encode_to_vec(), bytes);

        assert_eq!(message.cluster_name, "shop");
        let factor = message.policy.unwrap().overprovisioning_factor;
        assert_eq!(factor.unwrap().value, OVERPROVISIONING_FACTOR);
        let seen: Vec<_> = message
            .endpoints
            .iter()
            .map(|of| {
                let zone = of.locality.as_ref().unwrap().zone.clone();
                let status = |e: &LbEndpoint| (e.health_status, e.load_balancing_weight.is_some());
                (zone, of.lb_endpoints.iter().map(status).collect::<Vec<_>>())
            })
            .collect();
        let status = |status: core::HealthStatus, weighs| (i32::from(status), weighs);
        use super::core::HealthStatus::{Draining, Healthy, Timeout};
        assert_eq!(
            seen,
            [
                ("z1".into(), vec![status(Draining, false)]),
                (
                    "z2".into(),
                    vec![status(Healthy, true), status(Timeout, true)]
                ),
            ]
        );
        let of = &message.endpoints.first().unwrap().lb_endpoints;
        let told = of.first().unwrap().metadata.as_ref().unwrap();
        assert_eq!(told, &metadata(&b.name));
    }
}
