//! A message → its bytes, always the same for the same content.
//!
//! In: a [`DynamicMessage`]. Out: protobuf's binary form with fields in the order of their numbers and the entries of maps
//! in the order of their keys. Versions are hashes of bytes (design 4.4), and protobuf's own encoders write maps in any
//! order.

use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, Kind, MapKey, Value};

/// The bytes of a message.
pub(super) fn encode(message: &DynamicMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, value) in message.fields() {
        let (number, kind) = (field.number(), field.kind());
        match value {
            Value::Map(entries) => {
                let Kind::Message(entry) = kind else { continue };
                let key_kind = entry.map_entry_key_field().kind();
                let value_kind = entry.map_entry_value_field().kind();
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    tagged(1, &key_kind, &of_key(key), &mut entry);
                    tagged(2, &value_kind, value, &mut entry);
                    encode_key(number, WireType::LengthDelimited, &mut bytes);
                    with_length(&entry, &mut bytes);
                }
            }
            Value::List(items) if field.is_packed() => {
                let mut packed = Vec::new();
                items.iter().for_each(|item| bare(&kind, item, &mut packed));
                encode_key(number, WireType::LengthDelimited, &mut bytes);
                with_length(&packed, &mut bytes);
            }
            Value::List(items) => {
                for item in items {
                    tagged(number, &kind, item, &mut bytes);
                }
            }
            single => tagged(number, &kind, single, &mut bytes),
        }
    }
    bytes
}

fn tagged(number: u32, kind: &Kind, value: &Value, bytes: &mut Vec<u8>) {
    encode_key(number, kind.wire_type(), bytes);
    bare(kind, value, bytes);
}

fn bare(kind: &Kind, value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Bool(v) => encode_varint(u64::from(*v), bytes),
        Value::I32(v) => match kind {
            Kind::Sfixed32 => bytes.extend(v.to_le_bytes()),
            Kind::Sint32 => encode_varint(zigzag(i64::from(*v)), bytes),
            _ => encode_varint(i64::from(*v).cast_unsigned(), bytes),
        },
        Value::I64(v) => match kind {
            Kind::Sfixed64 => bytes.extend(v.to_le_bytes()),
            Kind::Sint64 => encode_varint(zigzag(*v), bytes),
            _ => encode_varint(v.cast_unsigned(), bytes),
        },
        Value::U32(v) => match kind {
            Kind::Fixed32 => bytes.extend(v.to_le_bytes()),
            _ => encode_varint(u64::from(*v), bytes),
        },
        Value::U64(v) => match kind {
            Kind::Fixed64 => bytes.extend(v.to_le_bytes()),
            _ => encode_varint(*v, bytes),
        },
        Value::F32(v) => bytes.extend(v.to_le_bytes()),
        Value::F64(v) => bytes.extend(v.to_le_bytes()),
        Value::EnumNumber(v) => encode_varint(i64::from(*v).cast_unsigned(), bytes),
        Value::String(v) => with_length(v.as_bytes(), bytes),
        Value::Bytes(v) => with_length(v, bytes),
        Value::Message(v) => with_length(&encode(v), bytes),
        // A list or map is a field of its own, never a value in one.
        Value::List(_) | Value::Map(_) => {}
    }
}

fn with_length(content: &[u8], bytes: &mut Vec<u8>) {
    encode_varint(u64::try_from(content.len()).unwrap_or(u64::MAX), bytes);
    bytes.extend_from_slice(content);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn of_key(key: &MapKey) -> Value {
    match key {
        MapKey::Bool(v) => Value::Bool(*v),
        MapKey::I32(v) => Value::I32(*v),
        MapKey::I64(v) => Value::I64(*v),
        MapKey::U32(v) => Value::U32(*v),
        MapKey::U64(v) => Value::U64(*v),
        MapKey::String(v) => Value::String(v.clone()),
    }
}
