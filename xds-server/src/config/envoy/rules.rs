//! The rules of protoc-gen-validate, by which an Envoy refuses a message before it looks at it.
//!
//! In: a value and the rules of its field. Out: what is wrong with it, if anything. Only what these rules say for certain is
//! judged. Not here: `pattern` rules and the formats of addresses and URIs, which Envoy judges itself.

use std::collections::HashSet;
use std::fmt::{self, Display};

use envoy_types::pb::google::protobuf::Duration;
use envoy_types::pb::validate::field_rules::Type;
use envoy_types::pb::validate::string_rules::WellKnown;
use envoy_types::pb::validate::{
    BytesRules, EnumRules, FieldRules, KnownRegex, MapRules, RepeatedRules, StringRules,
};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value};

use super::canonical;
use super::message::is;
use crate::config::diagnostic::quote;

/// Whether Envoy refuses a message without this field.
pub(super) fn must_be_there(field: &FieldDescriptor, rules: &FieldRules) -> bool {
    if field.is_list() || field.is_map() {
        return broken(&field.default_value(), rules).is_some();
    }
    if matches!(field.kind(), Kind::Message(_)) {
        let by_type = match &rules.r#type {
            Some(Type::Any(rules)) => rules.required,
            Some(Type::Duration(rules)) => rules.required,
            Some(Type::Timestamp(rules)) => rules.required,
            _ => None,
        };
        let by_message = rules.message.as_ref().and_then(|rules| rules.required);
        return by_type == Some(true) || by_message == Some(true);
    }
    // What is absent has the default value, and is judged by it.
    !field.supports_presence() && broken(&field.default_value(), rules).is_some()
}

/// What the rules say against a value: `what is wrong; what would be right`.
pub(super) fn broken(value: &Value, rules: &FieldRules) -> Option<String> {
    macro_rules! bounds {
        ($value:expr, $rules:expr) => {
            Bounds {
                equal: $rules.r#const,
                least: $rules.gte,
                above: $rules.gt,
                most: $rules.lte,
                below: $rules.lt,
                within: &$rules.r#in,
                without: &$rules.not_in,
                ignore_empty: $rules.ignore_empty(),
            }
            .broken(*$value)
        };
    }
    match (value, rules.r#type.as_ref()?) {
        (Value::F32(v), Type::Float(r)) => bounds!(v, r),
        (Value::F64(v), Type::Double(r)) => bounds!(v, r),
        (Value::I32(v), Type::Int32(r)) => bounds!(v, r),
        (Value::I32(v), Type::Sint32(r)) => bounds!(v, r),
        (Value::I32(v), Type::Sfixed32(r)) => bounds!(v, r),
        (Value::I64(v), Type::Int64(r)) => bounds!(v, r),
        (Value::I64(v), Type::Sint64(r)) => bounds!(v, r),
        (Value::I64(v), Type::Sfixed64(r)) => bounds!(v, r),
        (Value::U32(v), Type::Uint32(r)) => bounds!(v, r),
        (Value::U32(v), Type::Fixed32(r)) => bounds!(v, r),
        (Value::U64(v), Type::Uint64(r)) => bounds!(v, r),
        (Value::U64(v), Type::Fixed64(r)) => bounds!(v, r),
        (Value::Bool(v), Type::Bool(r)) => r
            .r#const
            .filter(|only| only != v)
            .map(|only| format!("{v} is not allowed; write {only}")),
        (Value::String(v), Type::String(r)) => string(v, r),
        (Value::Bytes(v), Type::Bytes(r)) => bytes(v, r),
        (Value::EnumNumber(v), Type::Enum(r)) => choice(*v, r),
        (Value::List(v), Type::Repeated(r)) => list(v, r),
        (Value::Map(v), Type::Map(r)) => map(v.len(), r),
        (Value::Message(v), Type::Duration(r)) if is(v, "google.protobuf.Duration") => {
            let of = |d: &Duration| Nanos::new(d.seconds, d.nanos);
            let all = |list: &[Duration]| list.iter().map(of).collect::<Vec<_>>();
            Bounds {
                equal: r.r#const.as_ref().map(of),
                least: r.gte.as_ref().map(of),
                above: r.gt.as_ref().map(of),
                most: r.lte.as_ref().map(of),
                below: r.lt.as_ref().map(of),
                within: &all(&r.r#in),
                without: &all(&r.not_in),
                ignore_empty: false,
            }
            .broken(Nanos::of(v)?)
        }
        // Timestamps and types of an Any have no rule in Envoy's own messages.
        _ => None,
    }
}

/// Bounds of a number or duration.
struct Bounds<'r, T> {
    equal: Option<T>,
    least: Option<T>,
    above: Option<T>,
    most: Option<T>,
    below: Option<T>,
    within: &'r [T],
    without: &'r [T],
    ignore_empty: bool,
}

impl<T: Copy + Default + PartialOrd + Display> Bounds<'_, T> {
    fn broken(&self, value: T) -> Option<String> {
        if self.ignore_empty && value == T::default() {
            return None;
        }
        if let Some(only) = self.equal.filter(|only| *only != value) {
            return Some(format!("{value} is not allowed; write {only}"));
        }
        if !self.within.is_empty() && !self.within.contains(&value) {
            let all = list_of(self.within);
            return Some(format!("{value} is not one of {all}"));
        }
        if self.without.contains(&value) {
            return Some(format!("{value} is not allowed; write another"));
        }
        let low = self.least.is_none_or(|bound| value >= bound)
            && self.above.is_none_or(|bound| value > bound);
        let high = self.most.is_none_or(|bound| value <= bound)
            && self.below.is_none_or(|bound| value < bound);
        // Bounds that exclude each other mean what lies outside of both.
        let crossed = self
            .least
            .or(self.above)
            .zip(self.most.or(self.below))
            .is_some_and(|(low, high)| low > high);
        let inside = if crossed { low || high } else { low && high };
        (!inside).then(|| format!("{value} is out of range; {} is allowed", self.range()))
    }

    fn range(&self) -> String {
        if let (Some(least), Some(most)) = (self.least, self.most) {
            return format!("{least} to {most}");
        }
        let parts = [
            ("at least", self.least),
            ("more than", self.above),
            ("at most", self.most),
            ("less than", self.below),
        ];
        let said = parts
            .iter()
            .filter_map(|(word, bound)| bound.map(|bound| format!("{word} {bound}")));
        said.collect::<Vec<_>>().join(" and ")
    }
}

fn list_of<T: Display>(values: &[T]) -> String {
    let words: Vec<String> = values.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
struct Nanos(i128);

impl Nanos {
    fn new(seconds: i64, nanos: i32) -> Self {
        Self(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
    }

    fn of(message: &DynamicMessage) -> Option<Self> {
        let seconds = message.get_field_by_number(1)?.as_i64()?;
        let nanos = message.get_field_by_number(2)?.as_i32()?;
        Some(Self::new(seconds, nanos))
    }
}

impl Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (seconds, nanos) = (self.0.abs() / 1_000_000_000, self.0.abs() % 1_000_000_000);
        write!(f, "{sign}{seconds}")?;
        if nanos > 0 {
            let fraction = format!("{nanos:09}");
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("s")
    }
}

fn string(text: &str, rules: &StringRules) -> Option<String> {
    if text.is_empty() && rules.ignore_empty() {
        return None;
    }
    let shown = quote(text);
    if let Some(only) = rules.r#const.as_ref().filter(|only| *only != text) {
        return Some(format!("{shown} is not allowed; write {}", quote(only)));
    }
    if !rules.r#in.is_empty() && !rules.r#in.iter().any(|one| one == text) {
        return Some(format!("{shown} is not one of {}", list_of(&rules.r#in)));
    }
    if rules.not_in.iter().any(|one| one == text) {
        return Some(format!("{shown} is not allowed; write another"));
    }
    let characters = count(text.chars().count());
    let length = size(
        characters,
        "characters",
        rules.min_len.or(rules.len),
        rules.max_len.or(rules.len),
    )
    .or_else(|| {
        let (least, most) = (
            rules.min_bytes.or(rules.len_bytes),
            rules.max_bytes.or(rules.len_bytes),
        );
        size(count(text.len()), "bytes", least, most)
    });
    if let Some(wrong) = length {
        let wrong = wrong.replace("; give at least one", "; write something");
        return Some(format!("{shown} {wrong}"));
    }
    let part = |rule: &Option<String>, word: &str, has: fn(&str, &str) -> bool| {
        let part = rule.as_ref().filter(|part| !has(text, part))?;
        Some(format!("{shown} must {word} {}", quote(part)))
    };
    let never = |text: &str, part: &str| !text.contains(part);
    part(&rules.prefix, "begin with", |text, part| {
        text.starts_with(part)
    })
    .or_else(|| part(&rules.suffix, "end with", |text, part| text.ends_with(part)))
    .or_else(|| part(&rules.contains, "contain", |text, part| text.contains(part)))
    .or_else(|| part(&rules.not_contains, "not contain", never))
    .or_else(|| header(text, rules))
}

/// The two forms that Envoy asks of names and values of headers.
fn header(text: &str, rules: &StringRules) -> Option<String> {
    let Some(WellKnown::WellKnownRegex(regex)) = rules.well_known else {
        return None;
    };
    let strict = rules.strict.unwrap_or(true);
    let loose = |c: char| !matches!(c, '\0' | '\n' | '\r');
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_|~`".contains(c);
    let plain = |c: char| c == '\t' || !c.is_ascii_control();
    let only_loose = "NUL and line ends are not allowed";
    let (what, right, allowed) = match (KnownRegex::try_from(regex).unwrap_or_default(), strict) {
        (KnownRegex::Unknown, _) => return None,
        (KnownRegex::HttpHeaderName, true) => {
            let name = text.strip_prefix(':').unwrap_or(text);
            let right = !name.is_empty() && name.chars().all(token);
            let allowed = "A-Z, a-z, 0-9 and !#$%&'*+-.^_`|~ are allowed";
            ("name", right, allowed)
        }
        (KnownRegex::HttpHeaderName, false) => {
            let right = !text.is_empty() && text.chars().all(loose);
            ("name", right, only_loose)
        }
        (KnownRegex::HttpHeaderValue, true) => {
            let right = text.chars().all(plain);
            ("value", right, "control characters are not allowed")
        }
        (KnownRegex::HttpHeaderValue, false) => ("value", text.chars().all(loose), only_loose),
    };
    (!right).then(|| format!("{} is not a header's {what}; {allowed}", quote(text)))
}

fn bytes(value: &[u8], rules: &BytesRules) -> Option<String> {
    if value.is_empty() && rules.ignore_empty() {
        return None;
    }
    let (least, most) = (rules.min_len.or(rules.len), rules.max_len.or(rules.len));
    let wrong = size(count(value.len()), "bytes", least, most)?;
    Some(format!("the value {wrong}"))
}

fn choice(number: i32, rules: &EnumRules) -> Option<String> {
    let only = rules.r#const.is_some_and(|only| only != number);
    let within = !rules.r#in.is_empty() && !rules.r#in.contains(&number);
    let without = rules.not_in.contains(&number);
    // Numbers that name nothing were refused where the number was read.
    (only || within || without).then(|| "Envoy does not take this value here; write another".into())
}

fn list(values: &[Value], rules: &RepeatedRules) -> Option<String> {
    if values.is_empty() && rules.ignore_empty() {
        return None;
    }
    let wrong = size(
        count(values.len()),
        "members",
        rules.min_items,
        rules.max_items,
    );
    if let Some(wrong) = wrong {
        return Some(format!("the list {wrong}"));
    }
    if !rules.unique() {
        return None;
    }
    let mut seen = HashSet::new();
    let twin = values.iter().find(|value| {
        !seen.insert(match value {
            Value::Message(message) => canonical::encode(message),
            Value::String(text) => text.clone().into_bytes(),
            other => format!("{other:?}").into_bytes(),
        })
    });
    twin.map(|_| "the list has the same member twice; keep one".into())
}

fn map(entries: usize, rules: &MapRules) -> Option<String> {
    if entries == 0 && rules.ignore_empty() {
        return None;
    }
    let wrong = size(count(entries), "entries", rules.min_pairs, rules.max_pairs)?;
    Some(format!("the map {wrong}"))
}

/// `has 3 bytes; at most 2 are allowed`
fn size(is: u64, unit: &str, least: Option<u64>, most: Option<u64>) -> Option<String> {
    if is == 0 && least == Some(1) {
        return Some("is empty, which Envoy refuses; give at least one".into());
    }
    if let Some(least) = least.filter(|least| is < *least) {
        return Some(format!("has {is} {unit}; at least {least} are needed"));
    }
    let most = most.filter(|most| is > *most)?;
    Some(format!("has {is} {unit}; at most {most} are allowed"))
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
