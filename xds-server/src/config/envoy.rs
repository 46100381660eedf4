//! Envoy's own fields: located YAML → a protobuf message of Envoy's, such as `outlierDetection`.
//!
//! In: an [`Item`] and the type of the message. Out: the message, or findings for everything in it that is wrong, each in
//! its place. The form is protobuf's JSON mapping, as in Envoy's own YAML: field names in snake_case or lowerCamelCase,
//! enums by name or number, `@type` in an `Any`; durations may also be written as elsewhere in a configuration (`250ms`,
//! `5m`). prost-reflect can read JSON too, but stops at the first error and does not know where it stands; so the tree is
//! walked here, with the descriptors that the build takes from envoy-types:
//!
//! ```text
//! pool (descriptors) → message (fields) → scalar, known (values) → rules (what Envoy would refuse) → canonical (bytes)
//! ```
//!
//! What protoc-gen-validate's rules forbid is an error here, because Envoy would refuse the whole resource, at run time and
//! without a line number. Not here: rules that are only in Envoy's code, and `pattern` rules (a handful, all of extensions);
//! Envoy remains the judge of those.

mod canonical;
mod known;
mod message;
mod pool;
mod rules;
mod scalar;

#[cfg(test)]
mod tests;

use prost::{Message, Name};

use super::read::Item;
use message::Reader;

/// The descriptors of all of Envoy's messages and services, decoded at first use.
pub(crate) fn descriptors() -> Option<&'static prost_reflect::DescriptorPool> {
    pool::descriptors().map(pool::Descriptors::pool)
}

/// Reads a message of Envoy's. `None`: it is wrong, and the sink knows why.
pub(super) fn read<M: Message + Name + Default>(item: &Item<'_>) -> Option<M> {
    let known = item.sink.errors();
    let bytes = bytes(item, &M::full_name())?;
    if item.sink.errors() > known {
        return None;
    }
    match M::decode(&*bytes) {
        Ok(message) => Some(message),
        Err(e) => {
            item.error(format!("this is not a {}: {e}", M::full_name()));
            None
        }
    }
}

/// The bytes of the message of that name: the same bytes for the same content.
fn bytes(item: &Item<'_>, name: &str) -> Option<Vec<u8>> {
    let descriptors = pool::descriptors();
    let Some((descriptors, message)) =
        descriptors.and_then(|d| Some((d, d.pool().get_message_by_name(name)?)))
    else {
        item.error(format!("this build of Vitals has no description of {name}"));
        return None;
    };
    let message = Reader::new(descriptors).message(item, &message)?;
    Some(canonical::encode(&message))
}
