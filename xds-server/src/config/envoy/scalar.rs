//! Single words → numbers, strings, bytes and enum values.
//!
//! In: an [`Item`] and the kind of a field. Out: a [`Value`] of that kind, or a finding. Numbers may stand in quotes, as in
//! JSON, where 64-bit ones must; leading zeros are refused, because YAML's readers differ in what they make of them.

use std::fmt::Display;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use envoy_types::pb::validate::FieldRules;
use prost_reflect::{EnumDescriptor, Kind, MapKey, Value};

use super::message::warn_of;
use super::pool::Descriptors;
use super::rules;
use crate::config::diagnostic::{clip, quote};
use crate::config::read::{Item, join};

/// JSON's bytes come with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whole numbers up to this are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value of a kind that is no message.
pub(super) fn read(item: &Item<'_>, kind: &Kind, descriptors: &Descriptors) -> Option<Value> {
    Some(match kind {
        Kind::Bool => Value::Bool(item.boolean()?),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            Value::I32(integer(item, i32::MIN, i32::MAX)?)
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            Value::I64(integer(item, i64::MIN, i64::MAX)?)
        }
        Kind::Uint32 | Kind::Fixed32 => Value::U32(integer(item, u32::MIN, u32::MAX)?),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(integer(item, u64::MIN, u64::MAX)?),
        Kind::Float => {
            let number = number(item)?;
            #[allow(clippy::cast_possible_truncation)] // rounding is what a float means
            let rounded = number as f32;
            if rounded.is_infinite() && number.is_finite() {
                let text = item.scalar().unwrap_or_default();
                item.error(format!(
                    "{} is out of range; {:e} to {:e} is allowed",
                    clip(text),
                    f32::MIN,
                    f32::MAX
                ));
                return None;
            }
            Value::F32(rounded)
        }
        Kind::Double => Value::F64(number(item)?),
        Kind::String => Value::String(item.text()?.to_owned()),
        Kind::Bytes => Value::Bytes(bytes(item)?.into()),
        Kind::Enum(choices) => Value::EnumNumber(choice(item, choices, descriptors)?),
        Kind::Message(_) => return None,
    })
}

/// The key of a map: always a string in YAML's tree.
pub(super) fn map_key(
    item: &Item<'_>,
    text: &str,
    kind: &Kind,
    rules: Option<&FieldRules>,
) -> Option<MapKey> {
    let whole = whole(text);
    let key = match kind {
        Kind::String => Some(MapKey::String(text.to_owned())),
        Kind::Bool => match text {
            "true" => Some(MapKey::Bool(true)),
            "false" => Some(MapKey::Bool(false)),
            _ => None,
        },
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            whole.and_then(|n| n.try_into().ok()).map(MapKey::I32)
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            whole.and_then(|n| n.try_into().ok()).map(MapKey::I64)
        }
        Kind::Uint32 | Kind::Fixed32 => whole.and_then(|n| n.try_into().ok()).map(MapKey::U32),
        Kind::Uint64 | Kind::Fixed64 => whole.and_then(|n| n.try_into().ok()).map(MapKey::U64),
        Kind::Double | Kind::Float | Kind::Bytes | Kind::Message(_) | Kind::Enum(_) => None,
    };
    let Some(key) = key else {
        let right = match kind {
            Kind::Bool => "true or false",
            _ => "a whole number",
        };
        item.misplaced(format!(
            "the key {} stands where {right} of the type {kind:?} belongs",
            quote(text)
        ));
        return None;
    };
    if let (MapKey::String(text), Some(rules)) = (&key, rules)
        && let Some(wrong) = rules::broken(&Value::String(text.clone()), rules)
    {
        item.misplaced(format!("this key: {wrong}"));
    }
    Some(key)
}

fn integer<T>(item: &Item<'_>, least: T, most: T) -> Option<T>
where
    T: TryFrom<i128> + Display,
{
    let text = item.scalar();
    let Some(number) = text.and_then(whole) else {
        return item.wrong_form(&format!("a whole number, {least} to {most},"));
    };
    let number = T::try_from(number).ok();
    if number.is_none() {
        item.error(format!(
            "{} is out of range; {least} to {most} is allowed",
            clip(text.unwrap_or_default())
        ));
    }
    number
}

fn number(item: &Item<'_>) -> Option<f64> {
    let text = item.scalar();
    let number = match text {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => text.and_then(decimal),
    };
    match number {
        Some(number) => Some(number),
        None => item.wrong_form("a number"),
    }
}

/// `-12`, and `1e3` or `2.0` where the value is whole. What is too large for any field comes out as the largest number.
pub(super) fn whole(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let bare = digits == "0" || digits.starts_with(|c: char| ('1'..='9').contains(&c));
        return bare.then(|| text.parse().unwrap_or(i128::MAX));
    }
    let number = decimal(text).filter(|n| n.fract() == 0.0)?;
    #[allow(clippy::cast_possible_truncation)] // whole and small
    (number.abs() <= EXACT).then_some(number as i128)
}

/// A number as JSON writes it.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let mut start = digits.bytes();
    let form = match (start.next(), start.next()) {
        (Some(b'0'), Some(next)) => !next.is_ascii_digit(),
        (Some(first), _) => first.is_ascii_digit(),
        (None, _) => false,
    };
    let number: f64 = form.then(|| text.parse().ok()).flatten()?;
    number.is_finite().then_some(number)
}

fn bytes(item: &Item<'_>) -> Option<Vec<u8>> {
    let Some(text) = item.scalar() else {
        return item.wrong_form("base64");
    };
    // Both alphabets are taken.
    let standard = text.replace('-', "+").replace('_', "/");
    let decoded = BASE64.decode(standard).ok();
    if decoded.is_none() {
        return item.wrong_form("base64");
    }
    decoded
}

fn choice(item: &Item<'_>, choices: &EnumDescriptor, descriptors: &Descriptors) -> Option<i32> {
    if item.is_null() {
        return Some(0); // google.protobuf.NullValue, the only enum that takes it
    }
    let names: Vec<String> = choices.values().map(|v| v.name().to_owned()).collect();
    let names = || names.iter().map(String::as_str);
    let Some(text) = item.scalar() else {
        return item.wrong_form(&format!("one of {}", join(names())));
    };
    let number = || whole(text).and_then(|n| i32::try_from(n).ok());
    let found = choices
        .get_value_by_name(text)
        .or_else(|| choices.get_value(number()?));
    let Some(found) = found else {
        let hint = item.sink.suggest(text, names());
        item.error(format!(
            "{} is not one of {}{hint}",
            quote(text),
            join(names())
        ));
        return None;
    };
    let disallowed = "envoy.annotations.disallowed_by_default_enum";
    if let Some(how) = descriptors.deprecated(&found.options(), disallowed) {
        warn_of(item, "value", how);
    }
    Some(found.number())
}
