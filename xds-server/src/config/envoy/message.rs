//! A map of fields → a message, by its descriptor.
//!
//! In: an [`Item`] and the descriptor of a message. Out: a [`DynamicMessage`] with every field that is right; findings for
//! unknown fields, fields that are there twice or exclude each other, fields that Envoy requires, values of a wrong form.
//! The depth is bounded by what protobuf's decoders read.
//!
//! Not here: the forms of single values (`scalar`), and of messages that JSON writes in a form of their own (`known`).

use std::collections::HashMap;

use envoy_types::pb::validate::FieldRules;
use envoy_types::pb::validate::field_rules::Type;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};

use super::pool::{self, Deprecated, Descriptors, Schema};
use super::{known, rules, scalar};
use crate::config::diagnostic::quote;
use crate::config::read::{Fields, Item, NO_VALUE, join};
use crate::config::tree;

/// Decoders of protobuf stop at 100 messages within each other, and what is read here will stand within some.
const MAX_DEPTH: u32 = 90;

/// So many field names are listed where none is near.
const MAX_LISTED: usize = 12;

/// Reads messages at some depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) descriptors: &'static Descriptors,
    depth: u32,
}

impl Reader {
    /// A reader of a message that stands in no other.
    pub(super) fn new(descriptors: &'static Descriptors) -> Self {
        Self {
            descriptors,
            depth: 0,
        }
    }

    /// The reader for what stands so many messages deeper.
    pub(super) fn deeper(self, item: &Item<'_>, by: u32) -> Option<Self> {
        let depth = self.depth.saturating_add(by);
        if depth > MAX_DEPTH {
            item.error(format!(
                "this is nested more than {MAX_DEPTH} messages deep, which protobuf does not read; flatten it"
            ));
            return None;
        }
        Some(Self { depth, ..self })
    }

    /// A message.
    pub(super) fn message(
        self,
        item: &Item<'_>,
        message: &MessageDescriptor,
    ) -> Option<DynamicMessage> {
        if let Some(known) = known::Form::of(message) {
            return known.read(self, item, message);
        }
        if !matches!(item.node.value, tree::Value::Map(_)) {
            let names: Vec<String> = message.fields().map(|f| f.name().to_owned()).collect();
            let listed = match names.len() {
                1..=MAX_LISTED => format!(" ({})", join(names.iter().map(String::as_str))),
                _ => String::new(),
            };
            let name = message.full_name();
            return item.wrong_form(&format!("a map with fields of {name}{listed}"));
        }
        Some(self.fields(&item.entries()?, message, None))
    }

    /// The fields of a message that has no form of its own, without the key `except`.
    pub(super) fn fields(
        self,
        fields: &Fields<'_>,
        message: &MessageDescriptor,
        except: Option<&str>,
    ) -> DynamicMessage {
        let schema = self.descriptors.schema(message);
        let mut read = DynamicMessage::new(message.clone());
        // What the file says, right or wrong, by field number; and by oneof.
        let mut said: HashMap<u32, &str> = HashMap::new();
        let mut chosen: HashMap<String, &str> = HashMap::new();
        for (key, item) in fields.all().filter(|(key, _)| Some(*key) != except) {
            let Some(field) = pool::field(message, key) else {
                refuse_unknown(&item, key, message);
                continue;
            };
            match said.insert(field.number(), key) {
                None => {}
                // The tree has refused this.
                Some(first) if first == key => continue,
                Some(first) => {
                    item.misplaced(format!("{first} is the same field; keep one"));
                    continue;
                }
            }
            if let Some(oneof) = field.containing_oneof().filter(|o| !o.is_synthetic())
                && let Some(other) = chosen.insert(oneof.name().to_owned(), key)
            {
                item.misplaced(format!("{other} and {key} exclude each other; keep one"));
                continue;
            }
            if let Some(how) = schema.deprecated.get(&field.number()) {
                warn_of(&item, "field", *how);
            }
            if let Some(value) = self.field(&item, &field, schema.rules.get(&field.number())) {
                read.set_field(&field, value);
            }
        }
        for field in message.fields().filter(|f| !said.contains_key(&f.number())) {
            let required = schema.rules.get(&field.number()).is_some_and(|rules| {
                let in_oneof = field.containing_oneof().is_some();
                !in_oneof && rules::must_be_there(&field, rules)
            });
            if required {
                fields.missing(field.name(), "Envoy requires it");
            }
        }
        refuse_absent_choices(fields, message, &schema, &chosen);
        read
    }

    fn field(
        self,
        item: &Item<'_>,
        field: &FieldDescriptor,
        rules: Option<&FieldRules>,
    ) -> Option<Value> {
        if field.is_map() {
            return self.map(item, field, rules);
        }
        if field.is_list() {
            return self.list(item, &field.kind(), rules);
        }
        self.single(item, &field.kind(), rules)
    }

    fn list(self, item: &Item<'_>, kind: &Kind, rules: Option<&FieldRules>) -> Option<Value> {
        if item.is_null() {
            item.misplaced(NO_VALUE);
            return None;
        }
        let each = match rules.and_then(|r| r.r#type.as_ref()) {
            Some(Type::Repeated(rules)) => rules.items.as_deref(),
            _ => None,
        };
        let values = item.list().filter_map(|i| self.single(&i, kind, each));
        let value = Value::List(values.collect());
        judge(item, &value, rules);
        Some(value)
    }

    fn map(
        self,
        item: &Item<'_>,
        field: &FieldDescriptor,
        rules: Option<&FieldRules>,
    ) -> Option<Value> {
        if item.is_null() {
            item.misplaced(NO_VALUE);
            return None;
        }
        let kind = field.kind();
        let entry = kind.as_message()?;
        let key_kind = entry.map_entry_key_field().kind();
        let value_kind = entry.map_entry_value_field().kind();
        let (key_rules, value_rules) = match rules.and_then(|r| r.r#type.as_ref()) {
            Some(Type::Map(rules)) => (rules.keys.as_deref(), rules.values.as_deref()),
            _ => (None, None),
        };
        let reader = self.deeper(item, 1)?;
        let mut read: HashMap<MapKey, Value> = HashMap::new();
        for (key, item) in item.entries()?.all() {
            let parsed = scalar::map_key(&item, key, &key_kind, key_rules);
            let value = reader.single(&item, &value_kind, value_rules);
            if let (Some(key), Some(value)) = (parsed, value) {
                read.insert(key, value);
            }
        }
        let value = Value::Map(read);
        judge(item, &value, rules);
        Some(value)
    }

    /// One value: a field's that is no list or map, or one of those.
    pub(super) fn single(
        self,
        item: &Item<'_>,
        kind: &Kind,
        rules: Option<&FieldRules>,
    ) -> Option<Value> {
        if item.is_null() && !known::takes_null(kind) {
            item.misplaced(NO_VALUE);
            return None;
        }
        let Kind::Message(message) = kind else {
            let value = scalar::read(item, kind, self.descriptors)?;
            judge(item, &value, rules);
            return Some(value);
        };
        let reader = self.deeper(item, 1)?;
        // The rules of a wrapper are those of what it wraps.
        if let Some(known::Form::Wrapper(wrapped)) = known::Form::of(message) {
            let value = reader.single(item, &wrapped.kind(), rules)?;
            let mut wrapper = DynamicMessage::new(message.clone());
            wrapper.set_field(&wrapped, value);
            return Some(Value::Message(wrapper));
        }
        let value = Value::Message(reader.message(item, message)?);
        judge(item, &value, rules);
        Some(value)
    }
}

fn judge(item: &Item<'_>, value: &Value, rules: Option<&FieldRules>) {
    if let Some(wrong) = rules.and_then(|rules| rules::broken(value, rules)) {
        item.error(wrong);
    }
}

fn refuse_unknown(item: &Item<'_>, key: &str, message: &MessageDescriptor) {
    // A name is mended in the way in which it is written.
    let in_json = key.contains(|c: char| c.is_ascii_uppercase());
    let name = |field: FieldDescriptor| match in_json {
        true => field.json_name().to_owned(),
        false => field.name().to_owned(),
    };
    let names: Vec<String> = message.fields().map(name).collect();
    let mut hint = item.sink.suggest(key, names.iter().map(String::as_str));
    if hint.is_empty() {
        hint = match names.len() {
            0 => "; it has none".into(),
            1..=MAX_LISTED => format!("; known are {}", join(names.iter().map(String::as_str))),
            _ => "; see Envoy's documentation".into(),
        };
    }
    let name = message.full_name();
    item.misplaced(format!("{name} has no field {}{hint}", quote(key)));
}

fn refuse_absent_choices(
    fields: &Fields<'_>,
    message: &MessageDescriptor,
    schema: &Schema,
    chosen: &HashMap<String, &str>,
) {
    for oneof in message.oneofs() {
        if schema.required.iter().any(|r| r == oneof.name()) && !chosen.contains_key(oneof.name()) {
            let names: Vec<String> = oneof.fields().map(|f| f.name().to_owned()).collect();
            let right = format!(
                "Envoy requires one of {}",
                join(names.iter().map(String::as_str))
            );
            fields.missing(oneof.name(), &right);
        }
    }
}

/// Warns of something deprecated.
pub(super) fn warn_of(item: &Item<'_>, what: &str, how: Deprecated) {
    let more = match how {
        Deprecated::Discouraged => "a later Envoy will not take it",
        Deprecated::Refused => "an Envoy refuses it unless its runtime allows it",
    };
    item.warning(format!(
        "this {what} is deprecated: {more}; Envoy's documentation says what stands in its place"
    ));
}

/// Whether a message is of a type.
pub(super) fn is(message: &DynamicMessage, name: &str) -> bool {
    message.descriptor().full_name() == name
}
