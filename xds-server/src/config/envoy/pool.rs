//! The descriptors of Envoy's messages, and what they say of each message beyond its form.
//!
//! In: the descriptor set that the build took from envoy-types. Out: message descriptors by full name, and a [`Schema`] of
//! each: the rules of protoc-gen-validate, by which Envoy refuses a message, and what is deprecated. The set is decoded
//! once, when the first field of Envoy's own is read; a configuration without one never pays for it.
//!
//! Not here: reading values (`message`) and judging them (`rules`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use envoy_types::pb::validate::FieldRules;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, Value};

/// `None` cannot happen: the set is compiled in, and a test reads it.
static DESCRIPTORS: LazyLock<Option<Descriptors>> = LazyLock::new(|| {
    let set: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin"));
    let pool = DescriptorPool::decode(set).ok()?;
    Some(Descriptors {
        pool,
        schemas: Mutex::default(),
    })
});

/// All messages, and the schemas of those that were asked for.
#[derive(Debug)]
pub(super) struct Descriptors {
    pool: DescriptorPool,
    /// By full name: at most as many as there are messages in the set.
    schemas: Mutex<HashMap<String, Arc<Schema>>>,
}

/// What the options of a message say.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// Rules by field number.
    pub(super) rules: HashMap<u32, FieldRules>,
    /// What is deprecated, by field number.
    pub(super) deprecated: HashMap<u32, Deprecated>,
    /// The names of the oneofs of which one must be set.
    pub(super) required: Vec<String>,
}

/// How deprecated something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deprecated {
    /// Envoy takes it and warns.
    Discouraged,
    /// Envoy refuses it unless its runtime allows it.
    Refused,
}

/// The descriptors.
pub(super) fn descriptors() -> Option<&'static Descriptors> {
    DESCRIPTORS.as_ref()
}

impl Descriptors {
    /// All messages that are known.
    pub(super) fn pool(&self) -> &DescriptorPool {
        &self.pool
    }

    /// What the options of a message say.
    pub(super) fn schema(&self, message: &MessageDescriptor) -> Arc<Schema> {
        let mut schemas = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = schemas.get(message.full_name()) {
            return Arc::clone(schema);
        }
        let schema = Arc::new(self.read(message));
        schemas.insert(message.full_name().to_owned(), Arc::clone(&schema));
        schema
    }

    fn read(&self, message: &MessageDescriptor) -> Schema {
        let mut schema = Schema::default();
        let options = message.options();
        if ["validate.disabled", "validate.ignored"]
            .iter()
            .any(|name| self.is_true(&options, name))
        {
            return schema;
        }
        for field in message.fields() {
            let options = field.options();
            if let Some(rules) = self.rules(&options) {
                schema.rules.insert(field.number(), rules);
            }
            if let Some(how) = self.deprecated(&options, "envoy.annotations.disallowed_by_default")
            {
                schema.deprecated.insert(field.number(), how);
            }
        }
        for oneof in message.oneofs() {
            if self.is_true(&oneof.options(), "validate.required") {
                schema.required.push(oneof.name().to_owned());
            }
        }
        schema
    }

    fn rules(&self, options: &DynamicMessage) -> Option<FieldRules> {
        let extension = self.pool.get_extension_by_name("validate.rules")?;
        if !options.has_extension(&extension) {
            return None;
        }
        options
            .get_extension(&extension)
            .as_message()?
            .transcode_to()
            .ok()
    }

    /// How deprecated the field or enum value with these options is.
    pub(super) fn deprecated(
        &self,
        options: &DynamicMessage,
        disallowed: &str,
    ) -> Option<Deprecated> {
        let deprecated = options.get_field_by_name("deprecated")?;
        if self.is_true(options, disallowed) {
            Some(Deprecated::Refused)
        } else {
            (*deprecated == Value::Bool(true)).then_some(Deprecated::Discouraged)
        }
    }

    fn is_true(&self, options: &DynamicMessage, extension: &str) -> bool {
        self.pool
            .get_extension_by_name(extension)
            .is_some_and(|e| *options.get_extension(&e) == Value::Bool(true))
    }
}

/// The field of that name, as Envoy's documents write it or in JSON's way.
pub(super) fn field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message
        .get_field_by_name(name)
        .or_else(|| message.get_field_by_json_name(name))
}
