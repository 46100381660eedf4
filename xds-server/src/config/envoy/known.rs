//! Messages that JSON writes in a form of their own: durations, times, wrappers, free-form values, `Any`.
//!
//! In: an [`Item`] and the descriptor of such a message. Out: the message, or findings.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

use super::canonical;
use super::message::Reader;
use super::scalar::decimal;
use crate::config::diagnostic::{clip, quote};
use crate::config::read::{Item, join, parse_duration};
use crate::config::tree;

const VALUE: &str = "google.protobuf.Value";
const NULL_VALUE: &str = "google.protobuf.NullValue";

/// What names the type in an `Any`.
const TYPE: &str = "@type";

/// Envoy counts durations in nanoseconds of 64 bits and refuses a resource with a longer one, or one below zero, anywhere
/// (measured with 1.40). Protobuf itself would allow 10,000 years either way.
const MAX_SECONDS: i64 = 9_223_372_035;

/// 0001-01-01 and 9999-12-31: protobuf's bounds for a time.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A form.
#[derive(Debug)]
pub(super) enum Form {
    Any,
    Duration,
    ListValue,
    Struct,
    Timestamp,
    Value,
    /// A number, string or the like that may be absent; with the field that holds it.
    Wrapper(FieldDescriptor),
}

/// Whether `null` is a value of this kind.
pub(super) fn takes_null(kind: &Kind) -> bool {
    match kind {
        Kind::Message(message) => message.full_name() == VALUE,
        Kind::Enum(choices) => choices.full_name() == NULL_VALUE,
        _ => false,
    }
}

impl Form {
    /// The form of a message, if it has one of its own.
    pub(super) fn of(message: &MessageDescriptor) -> Option<Self> {
        let name = message.full_name().strip_prefix("google.protobuf.")?;
        Some(match name {
            "Any" => Self::Any,
            "Duration" => Self::Duration,
            "ListValue" => Self::ListValue,
            "Struct" => Self::Struct,
            "Timestamp" => Self::Timestamp,
            "Value" => Self::Value,
            "BoolValue" | "BytesValue" | "DoubleValue" | "FloatValue" | "Int32Value"
            | "Int64Value" | "StringValue" | "UInt32Value" | "UInt64Value" => {
                Self::Wrapper(message.get_field(1)?)
            }
            _ => return None,
        })
    }

    /// Reads a message of this form.
    pub(super) fn read(
        self,
        reader: Reader,
        item: &Item<'_>,
        message: &MessageDescriptor,
    ) -> Option<DynamicMessage> {
        let mut read = DynamicMessage::new(message.clone());
        match self {
            Self::Any => any(reader, item, &mut read)?,
            Self::Duration => {
                let (seconds, nanos) = duration(item)?;
                read.set_field_by_number(1, Value::I64(seconds));
                read.set_field_by_number(2, Value::I32(nanos));
            }
            Self::Timestamp => {
                let (seconds, nanos) = timestamp(item)?;
                read.set_field_by_number(1, Value::I64(seconds));
                read.set_field_by_number(2, Value::I32(nanos));
            }
            Self::ListValue => {
                let kind = message.get_field(1)?.kind();
                let values = item.list().filter_map(|i| reader.single(&i, &kind, None));
                let values = values.collect();
                read.set_field_by_number(1, Value::List(values));
            }
            Self::Struct => {
                let kind = message.get_field(1)?.kind();
                let value = kind.as_message()?.map_entry_value_field().kind();
                let reader = reader.deeper(item, 1)?;
                let mut fields = HashMap::new();
                for (key, item) in item.entries()?.all() {
                    if let Some(value) = reader.single(&item, &value, None) {
                        fields.insert(MapKey::String(key.to_owned()), value);
                    }
                }
                read.set_field_by_number(1, Value::Map(fields));
            }
            Self::Value => value(reader, item, message, &mut read)?,
            Self::Wrapper(field) => {
                let value = reader.single(item, &field.kind(), None)?;
                read.set_field(&field, value);
            }
        }
        Some(read)
    }
}

/// Anything: what a plain word is, it is in JSON.
fn value(
    reader: Reader,
    item: &Item<'_>,
    message: &MessageDescriptor,
    read: &mut DynamicMessage,
) -> Option<()> {
    let (number, value) = match &item.node.value {
        tree::Value::Scalar { .. } if item.is_null() => (1, Value::EnumNumber(0)),
        tree::Value::Scalar { text, plain: true } => match &**text {
            "true" => (4, Value::Bool(true)),
            "false" => (4, Value::Bool(false)),
            text => match decimal(text) {
                Some(number) => (2, Value::F64(number)),
                None => (3, Value::String(item.text()?.to_owned())),
            },
        },
        tree::Value::Scalar { text, plain: false } => (3, Value::String(text.to_string())),
        tree::Value::Map(_) => (5, reader.single(item, &message.get_field(5)?.kind(), None)?),
        tree::Value::List(_) => (6, reader.single(item, &message.get_field(6)?.kind(), None)?),
    };
    read.set_field_by_number(number, value);
    Some(())
}

/// A message of a type that the file names.
fn any(reader: Reader, item: &Item<'_>, read: &mut DynamicMessage) -> Option<()> {
    let right = "name the message: type.googleapis.com/envoy.…";
    let fields = item.entries()?;
    let named = fields.required(TYPE, right)?;
    let url = named.text()?;
    let Some((_, name)) = url.rsplit_once('/') else {
        named.error(format!(
            "{} is not a type; write type.googleapis.com/ before the message's full name",
            quote(url)
        ));
        return None;
    };
    let pool = reader.descriptors.pool();
    let Some(message) = pool.get_message_by_name(name) else {
        let hint = near(&named, name, reader);
        named.error(format!(
            "{} is not a message that Vitals knows{hint}; one of another Envoy goes into an xds.type.v3.TypedStruct",
            quote(name)
        ));
        return None;
    };
    // A decoder begins anew with these bytes, so the depth does too; the tree's own bound holds.
    let inner = Reader::new(reader.descriptors);
    let content = if Form::of(&message).is_some() {
        for (key, item) in fields.all() {
            if key != TYPE && key != "value" {
                item.misplaced(format!("a {name} has only a value beside its @type"));
            }
        }
        inner.message(&fields.required("value", "give the value")?, &message)?
    } else {
        inner.fields(&fields, &message, Some(TYPE))
    };
    let url = format!("type.googleapis.com/{name}");
    read.set_field_by_number(1, Value::String(url));
    read.set_field_by_number(2, Value::Bytes(canonical::encode(&content).into()));
    Some(())
}

/// What a type was probably meant to be: one with its name in another package, or with another name in its package.
fn near(item: &Item<'_>, name: &str, reader: Reader) -> String {
    let (package, last) = name.rsplit_once('.').unwrap_or(("", name));
    let mut namesakes = Vec::new();
    let mut neighbours = Vec::new();
    for message in reader.descriptors.pool().all_messages() {
        if message.name() == last {
            namesakes.push(message.full_name().to_owned());
        } else if message.package_name() == package {
            neighbours.push(message.full_name().to_owned());
        }
    }
    if (1..=3).contains(&namesakes.len()) {
        let names = join(namesakes.iter().map(String::as_str));
        return format!("; did you mean {names}?");
    }
    let names = neighbours.iter().chain(&namesakes).map(String::as_str);
    item.sink.suggest(name, names)
}

fn duration(item: &Item<'_>) -> Option<(i64, i32)> {
    let Some(text) = item.scalar() else {
        return item.wrong_form("a duration: 5s, 0.25s or 250ms");
    };
    let Some((seconds, nanos)) = protobuf_duration(text).or_else(|| {
        let duration = parse_duration(text)?;
        let seconds = i64::try_from(duration.as_secs()).ok()?;
        Some((seconds, duration.subsec_nanos().cast_signed()))
    }) else {
        item.error(format!(
            "{} is not a duration; write a number and its unit: 5s, 0.25s or 250ms",
            quote(text)
        ));
        return None;
    };
    if seconds < 0 || nanos < 0 || seconds > MAX_SECONDS {
        item.error(format!(
            "{} is out of range; 0s to {MAX_SECONDS}s is allowed",
            clip(text)
        ));
        return None;
    }
    Some((seconds, nanos))
}

/// `-1.5s`: seconds and, of the same sign, nanoseconds.
fn protobuf_duration(text: &str) -> Option<(i64, i32)> {
    let number = text.strip_suffix('s')?;
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number),
    };
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    let nanos: i32 = format!("{fraction:0<9}").parse().ok()?;
    Some((i64::from(sign) * seconds, sign * nanos))
}

fn timestamp(item: &Item<'_>) -> Option<(i64, i32)> {
    let right = "a time: 2026-01-31T12:00:00Z";
    let time: Option<jiff::Timestamp> = item.scalar().and_then(|text| text.parse().ok());
    // Nanoseconds of protobuf's always count forward.
    let parts = time.and_then(|time| {
        let total = time.as_nanosecond();
        let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
        let nanos = i32::try_from(total.rem_euclid(1_000_000_000)).ok()?;
        TIMES.contains(&seconds).then_some((seconds, nanos))
    });
    parts.or_else(|| item.wrong_form(right))
}
