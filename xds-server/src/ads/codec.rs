//! Responses as bytes: the shared bytes of each resource, and what little stands around them.
//!
//! In: a [`Response`]. Out: the gRPC frame of an `envoy.service.discovery.v3.DiscoveryResponse` or
//! `DeltaDiscoveryResponse`, in pieces. What is large in it is the resources' own bytes, not a copy, because the same
//! resource goes to thousands of streams at once. The tests hold the bytes against the generated types.
//!
//! tonic writes every message into one buffer per stream, which then keeps the size of its largest message. So its
//! encoder is not used: the pieces go out through a body of our own (`body`).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;
use vitals_prober::clock;

use crate::metrics::Metrics;
use crate::snapshot::{Resource, ResourceType};
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
    /// Appends all fields but the resources.
    fn write_head(response: &Response, out: &mut Vec<u8>);

    /// A resource as it stands in the message: what only this response has of it, then what all have.
    fn entry(resource: &Resource, lease: Lease) -> (Vec<u8>, Option<&Bytes>);
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
        // The buffer lives as long as the stream, and most requests are ACKs.
        ProstDecoder::new(BufferSettings::new(512, 32 * 1024))
    }
}

/// Writes responses in one form.
#[derive(Debug)]
pub struct AdsEncoder<F>(PhantomData<F>);

impl<F: Form> Encoder for AdsEncoder<F> {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, _: Outgoing, _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Err(Status::internal(
            "responses are written by a body of their own",
        ))
    }
}

impl Outgoing {
    /// The gRPC frame in pieces, written now.
    pub(super) fn into_pieces<F: Form>(self) -> VecDeque<Bytes> {
        let pieces = pieces::<F>(&self.response);
        if let Some(caused_at) = self.caused_at {
            self.metrics
                .push_latency(clock::now().saturating_duration_since(caused_at));
        }
        pieces
    }
}

/// Resources shorter than this are copied beside their neighbours: each piece is a frame of HTTP/2 at least, and has its
/// costs on the way.
const SHARED_FROM: usize = 4096;

/// Before a gRPC message: whether it is compressed, and its length in four bytes.
const GRPC_HEAD: usize = 5;

/// The gRPC frame of a response.
fn pieces<F: Form>(response: &Response) -> VecDeque<Bytes> {
    let mut piece = Vec::with_capacity(512);
    piece.extend_from_slice(&[0; GRPC_HEAD]);
    F::write_head(response, &mut piece);
    let entries: Vec<_> = response
        .resources
        .iter()
        .map(|resource| F::entry(resource, response.lease))
        .collect();
    let entries_len: usize = entries
        .iter()
        .map(|(own, shared)| own.len() + shared.map_or(0, Bytes::len))
        .sum();
    let length = piece.len() - GRPC_HEAD + entries_len;
    // Sums of what is in memory; whole sets of 4 GiB do not exist.
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(place) = piece.get_mut(1..GRPC_HEAD) {
        place.copy_from_slice(&length);
    }
    let mut pieces = VecDeque::new();
    for (own, shared) in entries {
        piece.extend_from_slice(&own);
        match shared {
            None => {}
            Some(shared) if shared.len() < SHARED_FROM => piece.extend_from_slice(shared),
            Some(shared) => {
                if !piece.is_empty() {
                    pieces.push_back(Bytes::from(std::mem::take(&mut piece)));
                }
                pieces.push_back(shared.clone());
            }
        }
    }
    if !piece.is_empty() {
        pieces.push_back(piece.into());
    }
    pieces
}

/// `ControlPlane { identifier: "vitals" }`
const CONTROL_PLANE: &[u8] = b"\x0a\x06vitals";

impl Form for Sotw {
    fn write_head(response: &Response, out: &mut Vec<u8>) {
        put(1, response.version.as_bytes(), out);
        put(4, response.kind.type_url().as_bytes(), out);
        put(5, response.nonce.as_bytes(), out);
        put(6, CONTROL_PLANE, out);
    }

    fn entry(resource: &Resource, _: Lease) -> (Vec<u8>, Option<&Bytes>) {
        (Vec::new(), Some(resource.sotw_entry()))
    }
}

impl Form for Delta {
    /// A change of an endpoint that stands apart (LEDS) is one small resource that goes to every stream, so what only helps
    /// to debug is left out around it: the version of the whole, and who sends it, which the responses before it say.
    fn write_head(response: &Response, out: &mut Vec<u8>) {
        let is_small = response.kind == ResourceType::LbEndpoint;
        if !is_small {
            put(1, response.version.as_bytes(), out);
        }
        put(4, response.kind.type_url().as_bytes(), out);
        put(5, response.nonce.as_bytes(), out);
        for name in &response.removed {
            put(6, name.as_bytes(), out);
        }
        if !is_small {
            put(7, CONTROL_PLANE, out);
        }
    }

    fn entry(resource: &Resource, lease: Lease) -> (Vec<u8>, Option<&Bytes>) {
        // The Any is field 2 of a `Resource` as it is of a `DiscoveryResponse`.
        let (body, ttl) = match lease {
            Lease::None => return (Vec::new(), Some(resource.delta_entry())),
            Lease::Granted(ttl) => (Some(resource.sotw_entry()), Some(ttl)),
            Lease::Renewed(ttl) => (None, ttl),
        };
        let mut fields = Vec::new();
        put(1, resource.version().as_bytes(), &mut fields);
        put(3, resource.name().as_bytes(), &mut fields);
        if let Some(ttl) = ttl {
            let ttl = protobuf::Duration {
                seconds: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
                nanos: i32::try_from(ttl.subsec_nanos()).unwrap_or_default(),
            };
            put(6, &ttl.encode_to_vec(), &mut fields);
        }
        let length = fields.len() + body.map_or(0, Bytes::len);
        let mut own = Vec::with_capacity(fields.len() + 8);
        encode_key(2, WireType::LengthDelimited, &mut own);
        encode_varint(length as u64, &mut own);
        own.append(&mut fields);
        (own, body)
    }
}

/// Appends a field of bytes.
fn put(field: u32, value: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::core::v3::ControlPlane;
    use envoy_types::pb::envoy::service::discovery::v3 as pb;
    use envoy_types::pb::google::protobuf::Any;

    use super::*;

    /// The message in the frame.
    fn message<F: Form>(response: &Response) -> Vec<u8> {
        let frame: Vec<u8> = pieces::<F>(response).into_iter().flatten().collect();
        let (head, message) = frame.split_at(GRPC_HEAD);
        assert_eq!(head[0], 0, "not compressed");
        let length = u32::try_from(message.len()).unwrap();
        assert_eq!(head[1..], length.to_be_bytes());
        message.to_vec()
    }

    /// With one resource, whose size is about 240 bytes times this.
    fn response(size: usize) -> Response {
        let message = Cluster {
            name: "shop".repeat(60 * size),
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
                ..response(1)
            };
            let sent = &response.resources[0];
            let expected = pb::Resource {
                name: (**sent.name()).into(),
                resource: has_body.then(|| Any::decode(sent.any().clone()).unwrap()),
                ttl: expected_ttl,
                ..pb::Resource::default()
            };
            let delta = pb::DeltaDiscoveryResponse::decode(&*message::<Delta>(&response)).unwrap();
            let of_its_own = pb::Resource {
                version: (**sent.version()).into(),
                ..expected
            };
            assert_eq!(delta.resources, [of_its_own]);
        }
    }

    #[test]
    fn sotw_bytes_are_a_discovery_response() {
        let response = response(1);
        let bytes = message::<Sotw>(&response);
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
        let response = response(1);
        let bytes = message::<Delta>(&response);
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

    #[test]
    fn a_change_of_an_endpoint_that_stands_apart_is_small() {
        let name = "xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/abcdef.1/s-00000/g-00000/192.0.2.1-80";
        let kind = ResourceType::LbEndpoint;
        let resource = Resource::encoded(kind, name.into(), vec![0x78; 64], Vec::new());
        let response = Response {
            kind,
            resources: vec![Arc::new(resource)],
            removed: Vec::new(),
            ..response(1)
        };
        let bytes = message::<Delta>(&response);
        let expected = pb::DeltaDiscoveryResponse {
            resources: vec![pb::Resource {
                name: name.into(),
                version: (**response.resources[0].version()).into(),
                resource: Some(Any::decode(response.resources[0].any().clone()).unwrap()),
                ..pb::Resource::default()
            }],
            type_url: kind.type_url().into(),
            nonce: "7".into(),
            ..pb::DeltaDiscoveryResponse::default()
        };
        assert_eq!(
            pb::DeltaDiscoveryResponse::decode(&*bytes).unwrap(),
            expected
        );
        assert!(bytes.len() < 295, "{}", bytes.len());
    }

    #[test]
    fn large_resources_are_shared_and_small_ones_stand_together() {
        let (small, large) = (response(1), response(100));
        let resources = [&small, &large, &small, &small, &large]
            .map(|of| Arc::clone(&of.resources[0]))
            .to_vec();
        let response = Response { resources, ..small };
        let shared = large.resources[0].delta_entry();
        let pieces = pieces::<Delta>(&response);
        let is_shared: Vec<bool> = pieces
            .iter()
            .map(|piece| piece.as_ptr() == shared.as_ptr())
            .collect();
        assert_eq!(is_shared, [false, true, false, true]);
        let read = pb::DeltaDiscoveryResponse::decode(&*message::<Delta>(&response)).unwrap();
        assert_eq!(read.resources.len(), 5);
    }
}
