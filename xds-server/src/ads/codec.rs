//! Responses as bytes: the shared bytes of each resource, and what little stands around them.
//!
//! In: a [`Response`]. Out: `envoy.service.discovery.v3.DiscoveryResponse` or `DeltaDiscoveryResponse` on the wire,
//! written field by field, because the generated messages would have every stream own a copy of every resource. The
//! tests hold the bytes against the generated types.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;
use vitals_prober::clock;

use crate::metrics::Metrics;
use crate::snapshot::Resource;
use crate::stream::{Lease, Response};

/// A response on its way, with what is to be noted when it is written.
#[derive(Debug)]
pub struct Outgoing {
    /// The response.
    pub response: Response,
    /// When the verdict came in that it publishes; `None` when it answers a request.
    pub caused_at: Option<Instant>,
    /// Where the time until it was written is counted.
    pub metrics: Arc<Metrics>,
}

/// State of the world.
pub type SotwCodec = AdsCodec<DiscoveryRequest, Sotw>;
/// Incremental.
pub type DeltaCodec = AdsCodec<DeltaDiscoveryRequest, Delta>;

/// How one transport writes a response.
pub trait Form: Send + Sync + 'static {
    /// Appends the message.
    fn write(response: &Response, out: &mut impl BufMut);
}

/// Writes `DiscoveryResponse`.
#[derive(Debug, Default)]
pub struct Sotw;

/// Writes `DeltaDiscoveryResponse`.
#[derive(Debug, Default)]
pub struct Delta;

/// Reads requests as usual, writes responses in their form.
#[derive(Debug)]
pub struct AdsCodec<R, F>(PhantomData<(R, F)>);

impl<R, F> Default for AdsCodec<R, F> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: prost::Message + Default + Send + 'static, F: Form> Codec for AdsCodec<R, F> {
    type Encode = Outgoing;
    type Decode = R;
    type Encoder = AdsEncoder<F>;
    type Decoder = ProstDecoder<R>;

    fn encoder(&mut self) -> Self::Encoder {
        AdsEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

/// Writes responses in one form.
#[derive(Debug)]
pub struct AdsEncoder<F>(PhantomData<F>);

impl<F: Form> Encoder for AdsEncoder<F> {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, item: Outgoing, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        F::write(&item.response, out);
        if let Some(caused_at) = item.caused_at {
            item.metrics
                .push_latency(clock::now().saturating_duration_since(caused_at));
        }
        Ok(())
    }
}

/// `ControlPlane { identifier: "vitals" }`
const CONTROL_PLANE: &[u8] = b"\x0a\x06vitals";

impl Form for Sotw {
    fn write(response: &Response, out: &mut impl BufMut) {
        put(1, response.version.as_bytes(), out);
        for resource in &response.resources {
            put(2, resource.any(), out);
        }
        put(4, response.kind.type_url().as_bytes(), out);
        put(5, response.nonce.as_bytes(), out);
        put(6, CONTROL_PLANE, out);
    }
}

impl Form for Delta {
    fn write(response: &Response, out: &mut impl BufMut) {
        put(1, response.version.as_bytes(), out);
        for resource in &response.resources {
            encode_key(2, WireType::LengthDelimited, out);
            Wrapped::new(resource, response.lease).write(out);
        }
        put(4, response.kind.type_url().as_bytes(), out);
        put(5, response.nonce.as_bytes(), out);
        for name in &response.removed {
            put(6, name.as_bytes(), out);
        }
        put(7, CONTROL_PLANE, out);
    }
}

/// `envoy.service.discovery.v3.Resource`
struct Wrapped<'r> {
    name: &'r str,
    version: &'r str,
    /// `None` in a heartbeat.
    body: Option<&'r Bytes>,
    /// The encoded `google.protobuf.Duration`.
    ttl: Option<Vec<u8>>,
}

impl<'r> Wrapped<'r> {
    fn new(resource: &'r Resource, lease: Lease) -> Self {
        let (body, ttl) = match lease {
            Lease::None => (Some(resource.any()), None),
            Lease::Granted(ttl) => (Some(resource.any()), Some(ttl)),
            Lease::Renewed(ttl) => (None, ttl),
        };
        let ttl = ttl.map(|ttl| protobuf::Duration {
            seconds: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(ttl.subsec_nanos()).unwrap_or_default(),
        });
        Self {
            name: resource.name(),
            version: resource.version(),
            body,
            ttl: ttl.map(|ttl| ttl.encode_to_vec()),
        }
    }

    /// In bytes, without its own length.
    fn len(&self) -> usize {
        let always = field_len(self.version.len()) + field_len(self.name.len());
        always
            + self.body.map_or(0, |body| field_len(body.len()))
            + self.ttl.as_ref().map_or(0, |ttl| field_len(ttl.len()))
    }

    /// Writes its length and it.
    fn write(&self, out: &mut impl BufMut) {
        encode_varint(self.len() as u64, out);
        put(1, self.version.as_bytes(), out);
        if let Some(body) = self.body {
            put(2, body, out);
        }
        put(3, self.name.as_bytes(), out);
        if let Some(ttl) = &self.ttl {
            put(6, ttl, out);
        }
    }
}

/// The length of a field of `len` bytes with its key, which is one byte for fields 1 to 15.
fn field_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

fn put(field: u32, value: &[u8], out: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.put_slice(value);
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::core::v3::ControlPlane;
    use envoy_types::pb::envoy::service::discovery::v3 as pb;
    use envoy_types::pb::google::protobuf::Any;

    use super::*;
    use crate::snapshot::ResourceType;

    fn response() -> Response {
        let message = Cluster {
            name: "shop".repeat(60),
            ..Cluster::default()
        };
        let resource = Resource::new(
            ResourceType::Cluster,
            message.name.clone().into(),
            &message,
            Vec::new(),
        );
        Response {
            kind: ResourceType::Cluster,
            version: "v".into(),
            nonce: "7".into(),
            resources: vec![Arc::new(resource)],
            removed: vec!["old".into(), "older".into()],
            is_answer: false,
            lease: Lease::None,
        }
    }

    #[test]
    fn a_lease_and_its_renewal_are_resources_with_a_ttl_and_without_a_body() {
        let ttl = std::time::Duration::from_millis(2500);
        let seconds = protobuf::Duration {
            seconds: 2,
            nanos: 500_000_000,
        };
        for (lease, expected_ttl, has_body) in [
            (Lease::Granted(ttl), Some(seconds), true),
            (Lease::Renewed(Some(ttl)), Some(seconds), false),
            (Lease::Renewed(None), None, false),
        ] {
            let response = Response {
                lease,
                ..response()
            };
            let sent = &response.resources[0];
            let expected = pb::Resource {
                name: (**sent.name()).into(),
                resource: has_body.then(|| Any::decode(sent.any().clone()).unwrap()),
                ttl: expected_ttl,
                ..pb::Resource::default()
            };
            let mut bytes = Vec::new();
            Delta::write(&response, &mut bytes);
            let delta = pb::DeltaDiscoveryResponse::decode(&*bytes).unwrap();
            let of_its_own = pb::Resource {
                version: (**sent.version()).into(),
                ..expected
            };
            assert_eq!(delta.resources, [of_its_own]);
        }
    }

    #[test]
    fn sotw_bytes_are_a_discovery_response() {
        let (response, mut bytes) = (response(), Vec::new());
        Sotw::write(&response, &mut bytes);
        let expected = pb::DiscoveryResponse {
            version_info: "v".into(),
            resources: vec![Any::decode(response.resources[0].any().clone()).unwrap()],
            type_url: ResourceType::Cluster.type_url().into(),
            nonce: "7".into(),
            control_plane: Some(ControlPlane {
                identifier: "vitals".into(),
            }),
            ..pb::DiscoveryResponse::default()
        };
        assert_eq!(pb::DiscoveryResponse::decode(&*bytes).unwrap(), expected);
    }

    #[test]
    fn delta_bytes_are_a_delta_discovery_response() {
        let (response, mut bytes) = (response(), Vec::new());
        Delta::write(&response, &mut bytes);
        let resource = &response.resources[0];
        let expected = pb::DeltaDiscoveryResponse {
            system_version_info: "v".into(),
            resources: vec![pb::Resource {
                name: (**resource.name()).into(),
                version: (**resource.version()).into(),
                resource: Some(Any::decode(resource.any().clone()).unwrap()),
                ..pb::Resource::default()
            }],
            type_url: ResourceType::Cluster.type_url().into(),
            nonce: "7".into(),
            removed_resources: vec!["old".into(), "older".into()],
            control_plane: Some(ControlPlane {
                identifier: "vitals".into(),
            }),
            ..pb::DeltaDiscoveryResponse::default()
        };
        assert_eq!(
            pb::DeltaDiscoveryResponse::decode(&*bytes).unwrap(),
            expected
        );
    }
}
