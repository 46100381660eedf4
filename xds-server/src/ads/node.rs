//! Who a stream's client is, by its own word.
//!
//! In: Envoy's node message. Out: what of it is kept as long as the stream, and the fleet that it belongs to. Whether the
//! fleet admits it is not asked here (`guest`).

use std::collections::HashMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::google::protobuf::value::Kind;

use crate::snapshot::{FleetSnapshot, Snapshot};

/// What a stream needs to know of its node. Envoy's node message can be large; this is kept as long as the stream.
#[derive(Debug)]
pub(super) struct NodeIdentity {
    pub(super) id: String,
    pub(super) cluster: String,
    metadata: HashMap<String, String>,
}

impl NodeIdentity {
    pub(super) fn new(node: Node) -> Self {
        let fields = node
            .metadata
            .map(|metadata| metadata.fields)
            .unwrap_or_default();
        let strings = fields
            .into_iter()
            .filter_map(|(key, value)| match value.kind {
                Some(Kind::StringValue(text)) => Some((key, text)),
                _ => None,
            });
        Self {
            id: node.id,
            cluster: node.cluster,
            metadata: strings.collect(),
        }
    }

    pub(super) fn fleet<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Arc<FleetSnapshot>> {
        snapshot.fleet_of(&self.id, &self.cluster, |key| {
            self.metadata.get(key).map(String::as_str)
        })
    }

    /// What the client and the log are told when no fleet matches.
    pub(super) fn no_fleet(&self) -> String {
        let clip = |text: &str| -> String { text.chars().take(128).collect() };
        format!(
            "no fleet matches node id {:?}, cluster {:?}; see fleets[].match in the server's configuration",
            clip(&self.id),
            clip(&self.cluster)
        )
    }
}

/// Name and version of the client's program, at most 128 characters of them.
pub(super) fn user_agent(node: &Node) -> String {
    use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
    let version = match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
            build.version.as_ref().map_or_else(String::new, |version| {
                format!(
                    "{}.{}.{}",
                    version.major_number, version.minor_number, version.patch
                )
            })
        }
        None => String::new(),
    };
    let text = format!("{} {version}", node.user_agent_name);
    text.trim().chars().take(128).collect()
}
