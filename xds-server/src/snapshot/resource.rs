//! One resource's bytes, as they stand in both kinds of response, and the version that is their hash.
//!
//! In: a message of Envoy's, what it refers to. Out: slices of one piece of memory, for all streams of both transports.

use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use prost::{Message, Name as ProtoName};
use xxhash_rust::xxh3::xxh3_64;

use super::ResourceType;

/// One resource, encoded.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    kind: ResourceType,
    name: Arc<str>,
    digest: u64,
    version: Arc<str>,
    /// Field 2 of a `DeltaDiscoveryResponse`.
    delta_entry: Bytes,
    /// Field 2 of a `DiscoveryResponse`; a part of the same memory.
    sotw_entry: Bytes,
    /// Its value; a part of the same memory.
    any: Bytes,
    references: Vec<(ResourceType, Arc<str>)>,
}

impl Resource {
    /// Encodes a message. `references` are the resources without which this one is of no use to a client.
    ///
    /// The encoding must be deterministic: a message may hold a protobuf map of at most one entry, because the order of
    /// a larger one is not fixed.
    #[must_use]
    pub fn new<M: Message + ProtoName>(
        kind: ResourceType,
        name: Arc<str>,
        message: &M,
        references: Vec<(ResourceType, Arc<str>)>,
    ) -> Self {
        debug_assert_eq!(
            M::type_url().rsplit('/').next(),
            kind.type_url().rsplit('/').next()
        );
        Self::encoded(kind, name, message.encode_to_vec(), references)
    }

    /// Takes a message of the type of `kind` that is encoded already, under the same conditions as [`Resource::new`].
    #[must_use]
    pub fn encoded(
        kind: ResourceType,
        name: Arc<str>,
        message: Vec<u8>,
        references: Vec<(ResourceType, Arc<str>)>,
    ) -> Self {
        // google.protobuf.Any, whose bytes the version is a hash of.
        let url = kind.type_url();
        let any_len = field_len(url.len()) + optional_len(message.len());
        let mut any = Vec::with_capacity(any_len);
        put(1, url.as_bytes(), &mut any);
        if !message.is_empty() {
            put(2, &message, &mut any);
        }
        drop(message);
        Self::of_any(kind, name, &any, references)
    }

    /// The same resource under another name.
    #[must_use]
    pub fn renamed(&self, name: Arc<str>) -> Self {
        Self::of_any(self.kind, name, &self.any, self.references.clone())
    }

    fn of_any(
        kind: ResourceType,
        name: Arc<str>,
        any: &[u8],
        references: Vec<(ResourceType, Arc<str>)>,
    ) -> Self {
        let any_len = any.len();
        let digest = xxh3_64(any);
        let mut version = format!("{digest:016x}");
        if kind == ResourceType::LbEndpoint {
            // With every flip it goes to every stream, and nobody says it back (`stream::collections`).
            version.truncate(6);
        }
        // envoy.service.discovery.v3.Resource { version, resource, name }, as an element of `resources`. In both kinds of
        // response that is field 2, and the Any is field 2 of Resource: so what SotW needs stands in it already.
        let inner = field_len(version.len()) + field_len(any_len) + field_len(name.len());
        let mut entry = Vec::with_capacity(field_len(inner));
        encode_key(2, WireType::LengthDelimited, &mut entry);
        encode_varint(inner as u64, &mut entry);
        put(1, version.as_bytes(), &mut entry);
        let begin = entry.len();
        put(2, any, &mut entry);
        let end = entry.len();
        put(3, name.as_bytes(), &mut entry);
        let delta_entry = Bytes::from(entry);
        Self {
            kind,
            name,
            digest,
            version: version.into(),
            sotw_entry: delta_entry.slice(begin..end),
            any: delta_entry.slice(end - any_len..end),
            delta_entry,
            references,
        }
    }

    /// The resource's type.
    #[must_use]
    pub fn kind(&self) -> ResourceType {
        self.kind
    }

    /// The resource's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The hash of its content, as it is written.
    #[must_use]
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// The hash of its content, as a number: what a stream remembers of what it has sent.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The digest that a version stands for, if it is one of ours.
    #[must_use]
    pub fn digest_of(version: &str) -> Option<u64> {
        let digest = u64::from_str_radix(version, 16).ok()?;
        (format!("{digest:016x}") == version).then_some(digest)
    }

    /// The resources without which this one is of no use to a client.
    #[must_use]
    pub fn references(&self) -> &[(ResourceType, Arc<str>)] {
        &self.references
    }

    /// The encoded `google.protobuf.Any`.
    #[must_use]
    pub fn any(&self) -> &Bytes {
        &self.any
    }

    /// As it stands in a `DeltaDiscoveryResponse`: an element of `resources`, key and length included.
    #[must_use]
    pub fn delta_entry(&self) -> &Bytes {
        &self.delta_entry
    }

    /// As it stands in a `DiscoveryResponse`: an element of `resources`, key and length included.
    #[must_use]
    pub fn sotw_entry(&self) -> &Bytes {
        &self.sotw_entry
    }
}

/// How long a field of so many bytes is, with a number below 16.
fn field_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

/// The same, of a field that is left out when it is empty.
fn optional_len(len: usize) -> usize {
    if len == 0 { 0 } else { field_len(len) }
}

fn put(field: u32, value: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}
