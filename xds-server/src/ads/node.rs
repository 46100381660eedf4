//! Who a stream's client is, by its own word.
//!
//! In: Envoy's node message. Out: what of it is kept as long as the stream, and the fleet that it belongs to. Whether the
//! fleet admits it is not asked here (`guest`).

use std::collections::HashMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::google::protobuf::value::Kind;

use crate::snapshot::{FleetSnapshot, Snapshot};

/// The most bytes of a node's id, and of its cluster: every line of the log about the stream has the one, and the globs
/// of the fleets are held against both whenever something changes.
const MAX_NAME_BYTES: usize = 1_024;

/// The most bytes that the keys and values of a node's metadata may have together, as far as they are strings at the top.
const MAX_METADATA_BYTES: usize = 64 << 10;

/// What a stream needs to know of its node. Envoy's node message can be large; this is kept as long as the stream.
#[derive(Debug)]
pub(super) struct NodeIdentity {
    pub(super) id: String,
    pub(super) cluster: String,
    metadata: HashMap<String, String>,
}

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {bytes} bytes; {most} are allowed")]
pub(super) struct TooLarge {
    what: &'static str,
    bytes: usize,
    most: usize,
}

impl NodeIdentity {
    /// What is kept of a node.
    ///
    /// # Errors
    /// When that is more than a stream may have kept.
    pub(super) fn new(node: Node) -> Result<Self, TooLarge> {
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
        let metadata: HashMap<String, String> = strings.collect();
        let of_metadata = metadata.iter().map(|(key, value)| key.len() + value.len());
        for (what, bytes, most) in [
            ("node.id", node.id.len(), MAX_NAME_BYTES),
            ("node.cluster", node.cluster.len(), MAX_NAME_BYTES),
            ("node.metadata", of_metadata.sum(), MAX_METADATA_BYTES),
        ] {
            if bytes > most {
                return Err(TooLarge { what, bytes, most });
            }
        }
        Ok(Self {
            id: node.id,
            cluster: node.cluster,
            metadata,
        })
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

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::{Struct, Value};

    use super::*;

    fn node(id: usize, cluster: usize, metadata: usize) -> Node {
        let text = Value {
            kind: Some(Kind::StringValue("x".repeat(metadata))),
        };
        Node {
            id: "x".repeat(id),
            cluster: "x".repeat(cluster),
            metadata: Some(Struct {
                fields: [("key".to_owned(), text)].into(),
            }),
            ..Node::default()
        }
    }

    #[test]
    fn a_node_that_would_be_much_to_keep_is_refused() {
        let most = MAX_METADATA_BYTES - "key".len();
        assert!(NodeIdentity::new(node(MAX_NAME_BYTES, MAX_NAME_BYTES, most)).is_ok());
        for (large, what) in [
            (node(MAX_NAME_BYTES + 1, 1, 1), "node.id has 1025 bytes"),
            (node(1, MAX_NAME_BYTES + 1, 1), "node.cluster has 1025 "),
            (node(1, 1, most + 1), "node.metadata has 65537 bytes"),
        ] {
            let error = NodeIdentity::new(large).unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
        }
    }
}
