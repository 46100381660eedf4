//! `envoy.service.status.v3.ClientStatusDiscoveryService`: `/v1/clients` for tools that speak Envoy's own protocol (CSDS).
//!
//! In: the table of clients, what is served. Out: for every stream a node, and for every type that it subscribes to a status:
//! ERROR with the client's message, STALE (sent, not answered), SYNCED, or NOT_SENT: nothing was sent of what is due. Who
//! reconnects with all that is served is sent nothing, and is SYNCED with the version that is served.
//!
//! It is served beside the rest of the admin API, not on the xDS listener: whoever may connect there is a client of one
//! fleet and must not see the others'; whoever may read the admin API sees all of them anyway. Contents of resources are
//! never told. Clients are selected by node id; by metadata they cannot be, because the table does not keep it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use envoy_types::pb::envoy::admin::v3::UpdateFailureState;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::status::v3 as pb;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use envoy_types::pb::google::protobuf::{Struct, Timestamp, Value, value::Kind};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use crate::ads::clients::{Client, Clients};
use crate::ads::converse::{Responses, converse};
use crate::snapshot::{FleetSnapshot, ResourceType, Snapshot};
use crate::stream::SubscriptionStatus;

#[derive(Debug)]
pub(super) struct Csds {
    clients: Arc<Clients>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stopping: watch::Receiver<bool>,
}

/// The service.
pub(super) fn service(
    clients: Arc<Clients>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stopping: watch::Receiver<bool>,
) -> ClientStatusDiscoveryServiceServer<Csds> {
    ClientStatusDiscoveryServiceServer::new(Csds {
        clients,
        snapshots,
        stopping,
    })
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Csds {
    type StreamClientStatusStream = Responses<pb::ClientStatusResponse>;

    async fn stream_client_status(
        &self,
        request: Request<Streaming<pb::ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let (clients, snapshots) = (Arc::clone(&self.clients), self.snapshots.clone());
        let answers = converse(
            request.into_inner(),
            self.stopping.clone(),
            move |request| now(&clients, &snapshots, &request),
        );
        Ok(Response::new(answers))
    }

    async fn fetch_client_status(
        &self,
        request: Request<pb::ClientStatusRequest>,
    ) -> Result<Response<pb::ClientStatusResponse>, Status> {
        now(&self.clients, &self.snapshots, request.get_ref()).map(Response::new)
    }
}

fn now(
    clients: &Clients,
    snapshots: &watch::Receiver<Arc<Snapshot>>,
    request: &pb::ClientStatusRequest,
) -> Result<pb::ClientStatusResponse, Status> {
    // The table first: what a row says of an older state than the snapshot's does not count as the newest.
    let rows = clients.list();
    let snapshot = Arc::clone(&snapshots.borrow());
    answer(&rows, &snapshot, request)
}

fn answer(
    clients: &[Client],
    snapshot: &Snapshot,
    request: &pb::ClientStatusRequest,
) -> Result<pb::ClientStatusResponse, Status> {
    let mut config = Vec::new();
    // Said before there are clients, too.
    request.node_matchers.iter().try_for_each(check)?;
    for client in clients {
        let mut wanted = request.node_matchers.is_empty();
        for matcher in &request.node_matchers {
            // A matcher without an id is for every node.
            wanted |= match &matcher.node_id {
                Some(id) => matches(id, &client.node_id)?,
                None => true,
            };
        }
        if wanted {
            config.push(describe(client, snapshot));
        }
    }
    Ok(pb::ClientStatusResponse { config })
}

fn check(matcher: &NodeMatcher) -> Result<(), Status> {
    if !matcher.node_metadatas.is_empty() {
        return Err(Status::invalid_argument(
            "node_matchers[].node_metadatas cannot be matched here; match by node_id",
        ));
    }
    match &matcher.node_id {
        Some(id) => matches(id, "").map(drop),
        None => Ok(()),
    }
}

fn matches(matcher: &StringMatcher, text: &str) -> Result<bool, Status> {
    let fold = |text: &str| match matcher.ignore_case {
        true => text.to_lowercase(),
        false => text.to_owned(),
    };
    let text = fold(text);
    match &matcher.match_pattern {
        Some(MatchPattern::Exact(wanted)) => Ok(text == fold(wanted)),
        Some(MatchPattern::Prefix(wanted)) => Ok(text.starts_with(&fold(wanted))),
        Some(MatchPattern::Suffix(wanted)) => Ok(text.ends_with(&fold(wanted))),
        Some(MatchPattern::Contains(wanted)) => Ok(text.contains(&fold(wanted))),
        Some(MatchPattern::SafeRegex(_) | MatchPattern::Custom(_)) | None => {
            Err(Status::invalid_argument(
                "node_matchers[].node_id must be exact, prefix, suffix or contains",
            ))
        }
    }
}

fn describe(client: &Client, snapshot: &Snapshot) -> pb::ClientConfig {
    // Only where it was sent all that it wants of this state.
    let served = client
        .fleet
        .as_ref()
        .and_then(|name| snapshot.fleet(name))
        .filter(|served| client.caught_up == Some(served.state()));
    let fleet = client.fleet.as_ref().map_or("", |fleet| fleet.as_str());
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.into())),
    };
    let service = client.only.map_or("ADS", ResourceType::service);
    let metadata = [
        ("vitals.fleet", fleet),
        ("vitals.service", service),
        ("vitals.transport", client.transport.as_str()),
    ];
    let fields = metadata.map(|(key, value)| (key.to_owned(), text(value)));
    pb::ClientConfig {
        node: Some(Node {
            id: client.node_id.clone(),
            cluster: client.node_cluster.clone(),
            user_agent_name: client.user_agent.clone(),
            metadata: Some(Struct {
                fields: fields.into(),
            }),
            ..Node::default()
        }),
        generic_xds_configs: (client.types.iter())
            .map(|(kind, status)| of_type(*kind, status, served.map(|fleet| &**fleet)))
            .collect(),
        ..pb::ClientConfig::default()
    }
}

/// Where a type stands; `has`: the fleet of whose present state the client was sent all that it wants.
fn of_type(
    kind: ResourceType,
    status: &SubscriptionStatus,
    has: Option<&FleetSnapshot>,
) -> GenericXdsConfig {
    let config_status = match status {
        SubscriptionStatus { nack: Some(_), .. } => pb::ConfigStatus::Error,
        SubscriptionStatus {
            sent_version: None, ..
        } if has.is_none() => pb::ConfigStatus::NotSent,
        SubscriptionStatus { unanswered: 0, .. } => pb::ConfigStatus::Synced,
        SubscriptionStatus { .. } => pb::ConfigStatus::Stale,
    };
    let error_state = status.nack.as_ref().map(|nack| UpdateFailureState {
        last_update_attempt: Some(timestamp(nack.at)),
        details: nack.message.clone(),
        version_info: (*nack.version).into(),
        failed_configuration: None,
    });
    // What it has without having been sent it on this stream.
    let had = has.filter(|_| status.sent_version.is_none());
    let had = had.map(|fleet| &**fleet.of_type(kind).version());
    let version = status.acked_version.as_deref().or(had);
    GenericXdsConfig {
        type_url: kind.type_url().into(),
        version_info: version.unwrap_or_default().into(),
        config_status: config_status.into(),
        error_state,
        ..GenericXdsConfig::default()
    }
}

fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{self, Name};
    use crate::snapshot::Resource;
    use crate::stream::{Interest, Nack, Transport};

    fn client(id: &str, unanswered: usize, sent: bool, refused: bool) -> Client {
        let version: Arc<str> = "v".into();
        let status = SubscriptionStatus {
            interest: Interest::default(),
            sent_version: sent.then(|| Arc::clone(&version)),
            acked_version: None,
            unanswered,
            nack: refused.then(|| Nack {
                version,
                message: "no".into(),
                resources: Vec::new(),
                at: UNIX_EPOCH,
            }),
        };
        Client {
            node_id: id.into(),
            node_cluster: "edge".into(),
            fleet: Some(Name::new("edge").unwrap()),
            transport: Transport::Delta,
            only: None,
            connected_at: UNIX_EPOCH,
            user_agent: "envoy 1.40.0".into(),
            peer: None,
            types: [(ResourceType::Cluster, status)].into(),
            caught_up: None,
        }
    }

    fn by_id(pattern: MatchPattern) -> pb::ClientStatusRequest {
        let node_id = StringMatcher {
            ignore_case: true,
            match_pattern: Some(pattern),
        };
        pb::ClientStatusRequest {
            node_matchers: vec![NodeMatcher {
                node_id: Some(node_id),
                ..NodeMatcher::default()
            }],
            ..pb::ClientStatusRequest::default()
        }
    }

    #[test]
    fn each_type_has_the_status_that_its_answers_give_it() {
        let clients = [
            client("not-sent", 0, false, false),
            client("stale", 1, true, false),
            client("synced", 0, true, false),
            client("error", 0, true, true),
        ];
        let request = pb::ClientStatusRequest::default();
        let response = answer(&clients, &Snapshot::default(), &request).unwrap();
        let statuses: Vec<pb::ConfigStatus> = response
            .config
            .iter()
            .map(|config| config.generic_xds_configs[0].config_status())
            .collect();
        use pb::ConfigStatus::{Error, NotSent, Stale, Synced};
        assert_eq!(statuses, [NotSent, Stale, Synced, Error]);
        let error = response.config[3].generic_xds_configs[0]
            .error_state
            .clone();
        assert_eq!(error.unwrap().details, "no");
    }

    #[test]
    fn who_came_back_with_everything_is_synced_until_there_is_more() {
        let fleet = |ids: &[&str]| {
            let resources = ids.iter().map(|&id| {
                let message = envoy_types::pb::envoy::config::cluster::v3::Cluster {
                    name: id.into(),
                    ..Default::default()
                };
                let kind = ResourceType::Cluster;
                Arc::new(Resource::new(kind, id.into(), &message, Vec::new()))
            });
            let name = Name::new("edge").unwrap();
            let fleet =
                FleetSnapshot::new(name, model::NodeMatcher::default(), resources, [].into());
            Arc::new(fleet.unwrap())
        };
        let (has, newer) = (fleet(&["a"]), fleet(&["a", "b"]));
        let mut row = client("back", 0, false, false);
        row.caught_up = Some(has.state());
        let seen = |fleet: &Arc<FleetSnapshot>| {
            let snapshot = Snapshot::new(vec![Arc::clone(fleet)], None);
            let request = pb::ClientStatusRequest::default();
            let response = answer(std::slice::from_ref(&row), &snapshot, &request).unwrap();
            let of_type = response.config[0].generic_xds_configs[0].clone();
            (of_type.config_status(), of_type.version_info)
        };
        let version = has.of_type(ResourceType::Cluster).version().to_string();
        assert_eq!(seen(&has), (pb::ConfigStatus::Synced, version));
        assert_eq!(seen(&newer), (pb::ConfigStatus::NotSent, String::new()));
    }

    #[test]
    fn clients_are_selected_by_node_id() {
        let clients = [
            client("envoy-1", 0, true, false),
            client("grpc-2", 0, true, false),
        ];
        let found = |pattern| {
            let response = answer(&clients, &Snapshot::default(), &by_id(pattern)).unwrap();
            let nodes = response.config.into_iter().filter_map(|config| config.node);
            nodes.map(|node| node.id).collect::<Vec<_>>()
        };
        assert_eq!(found(MatchPattern::Exact("ENVOY-1".into())), ["envoy-1"]);
        assert_eq!(found(MatchPattern::Prefix("grpc".into())), ["grpc-2"]);
        assert_eq!(found(MatchPattern::Suffix("-1".into())), ["envoy-1"]);
        assert_eq!(found(MatchPattern::Contains("-".into())).len(), 2);
        assert_eq!(found(MatchPattern::Exact("other".into())), [""; 0]);
    }

    #[test]
    fn what_cannot_be_matched_is_refused_and_not_ignored() {
        let by_metadata = pb::ClientStatusRequest {
            node_matchers: vec![NodeMatcher {
                node_metadatas: vec![Default::default()],
                ..NodeMatcher::default()
            }],
            ..pb::ClientStatusRequest::default()
        };
        for request in [
            by_metadata,
            by_id(MatchPattern::SafeRegex(Default::default())),
        ] {
            let status = answer(&[], &Snapshot::default(), &request).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
    }
}
