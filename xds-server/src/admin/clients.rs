//! The JSON of `/v1/clients`: who is connected, and how far each has come with each type.
//!
//! In: rows of the table of clients. Out: serialisable values, which `vitals status --clients` reads back. Field names are
//! the contract.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ads::clients;
use crate::health::rule::rfc3339;
use crate::snapshot::{ResourceType, Snapshot};
use crate::stream::SubscriptionStatus;

/// One element of `/v1/clients`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// `node.id`
    pub node_id: String,
    /// `node.cluster`
    pub node_cluster: String,
    /// The fleet that it is served as.
    pub fleet: Option<String>,
    /// SOTW or DELTA.
    pub transport: String,
    /// ADS, or the service of one type: CDS, EDS, LDS, RDS.
    pub service: String,
    /// When the stream opened.
    pub connected_at: String,
    /// Name and version of the client.
    pub user_agent: String,
    /// Whether it has taken all that its fleet is served now, and refused nothing of it.
    pub acked: bool,
    /// By the type's name.
    pub types: BTreeMap<String, ClientType>,
}

/// Where one type of one client stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientType {
    /// The names subscribed to, the first hundred; `*` is all.
    pub subscribed: Vec<String>,
    /// How many names it subscribes to.
    pub subscribed_count: usize,
    /// The version of the last response.
    pub sent_version: Option<String>,
    /// The version of the last response that it took.
    pub acked_version: Option<String>,
    /// Responses that it has not answered.
    pub unanswered: usize,
    /// The last refusal, while it still lacks what it refused.
    pub nack: Option<Nack>,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nack {
    /// The version that was refused.
    pub version: String,
    /// What the client says.
    pub message: String,
    /// The resources that it is about, as far as the message says.
    pub resources: Vec<String>,
    /// When.
    pub at: String,
}

fn strings(names: &[std::sync::Arc<str>]) -> Vec<String> {
    names.iter().map(|name| (**name).into()).collect()
}

/// One element of `/v1/clients`, held against what is served now.
#[must_use]
pub fn client(row: &clients::Client, snapshot: &Snapshot) -> Client {
    let of_type = |(kind, status): &(ResourceType, SubscriptionStatus)| {
        let of_type = ClientType {
            subscribed: strings(&status.interest.names),
            subscribed_count: status.interest.count,
            sent_version: status.sent_version.as_deref().map(Into::into),
            acked_version: status.acked_version.as_deref().map(Into::into),
            unanswered: status.unanswered,
            nack: status.nack.as_ref().map(|nack| Nack {
                version: (*nack.version).into(),
                message: nack.message.clone(),
                resources: strings(&nack.resources),
                at: rfc3339(nack.at),
            }),
        };
        (kind.as_str().into(), of_type)
    };
    let fleet = row.fleet.as_ref().and_then(|name| snapshot.fleet(name));
    Client {
        acked: fleet.is_some_and(|fleet| row.has_acked(fleet)),
        node_id: row.node_id.clone(),
        node_cluster: row.node_cluster.clone(),
        fleet: row.fleet.as_ref().map(|fleet| fleet.as_str().into()),
        transport: row.transport.as_str().into(),
        service: row.only.map_or("ADS", ResourceType::service).into(),
        connected_at: rfc3339(row.connected_at),
        user_agent: row.user_agent.clone(),
        types: row.types.iter().map(of_type).collect(),
    }
}
