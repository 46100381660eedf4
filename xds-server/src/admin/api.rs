//! The JSON of the admin API (design 4.3), as the server writes it and `vitals status` reads it.
//!
//! In: health views, rows of clients. Out: serialisable values. Field names are the contract.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use vitals_prober::outcome;

use crate::ads::clients;
use crate::health::{EndpointView, HealthView, VoteView};

/// `/readyz`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// `ok`, or `error` when the last reload was refused and an older configuration runs.
    pub reload: String,
    /// The errors of that reload, a line each.
    pub errors: Vec<String>,
}

/// One element of `/v1/endpoints`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The service.
    pub service: String,
    /// The endpoint group.
    pub group: String,
    /// The serving address.
    pub address: String,
    /// The serving port.
    pub port: u16,
    /// The name that it was resolved from; none yet.
    pub hostname: Option<String>,
    /// Where it is.
    pub locality: Locality,
    /// What EDS says: HEALTHY, UNHEALTHY, TIMEOUT, DRAINING; `null` where it is omitted.
    pub status: Option<String>,
    /// What people are told (semantics S5).
    pub detailed_status: String,
    /// What the deciding probe met.
    pub reason: Option<Reason>,
    /// Since when it has its detailed status; RFC 3339 UTC.
    pub since: String,
    /// By which rule it has its status.
    pub rule: String,
    /// Whether it stands without enough fresh votes (semantics V3).
    pub pinned: bool,
    /// What each vantage says.
    pub votes: Vec<Vote>,
}

/// A region and a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
}

/// Why a probe ended as it did (semantics P16).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Out of a closed list.
    pub code: String,
    /// LOCAL, L4, TLS or L7.
    pub layer: String,
    /// A sentence for people.
    pub text: String,
}

/// One vantage's vote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// Who votes.
    pub vantage: String,
    /// What kind of prober it is: PROBERS.
    pub kind: String,
    /// HEALTHY, UNHEALTHY, TIMEOUT; `null` while not judged.
    pub verdict: Option<String>,
    /// What the probe that made the verdict met.
    pub reason: Option<Reason>,
    /// Since when it stands.
    pub since: Option<String>,
    /// Consecutive probes that speak against the verdict.
    pub opposing: u8,
    /// When the last judged probe ended.
    pub last_probe_at: Option<String>,
    /// How long it took.
    pub latency_ms: Option<f64>,
    /// Whether the vote counts (semantics V1).
    pub fresh: bool,
    /// The last probe that did not pass, also where it changed nothing.
    pub last_failure: Option<Failure>,
}

/// A probe that did not pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When it ended.
    pub at: String,
    /// FAIL, TIMEOUT, or INCONCLUSIVE: our own fault, which says nothing of the endpoint.
    pub outcome: String,
    /// Why.
    pub reason: Reason,
}

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
    /// When the stream opened.
    pub connected_at: String,
    /// Name and version of the client.
    pub user_agent: String,
    /// By the type's name.
    pub types: BTreeMap<String, ClientType>,
}

/// Where one type of one client stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientType {
    /// The names subscribed to; `*` is all.
    pub subscribed: Vec<String>,
    /// The version of the last response.
    pub sent_version: Option<String>,
    /// The version of the last response that it took.
    pub acked_version: Option<String>,
    /// The last refusal that no ACK has followed.
    pub nack: Option<Nack>,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nack {
    /// The version that was refused.
    pub version: String,
    /// What the client says.
    pub message: String,
    /// When.
    pub at: String,
}

/// `/v1/endpoints` of a view.
pub fn endpoints(view: &HealthView) -> impl Iterator<Item = Endpoint> + Send + use<> {
    let of_services = view.services.clone().into_iter();
    of_services.flat_map(|(name, service)| {
        let endpoints = service.endpoints.clone().into_iter();
        endpoints.map(move |view| endpoint(name.as_str(), &view))
    })
}

fn endpoint(service: &str, view: &EndpointView) -> Endpoint {
    Endpoint {
        service: service.into(),
        group: view.group.name.as_str().into(),
        address: view.address.ip().to_string(),
        port: view.address.port(),
        hostname: None,
        locality: Locality {
            region: (*view.group.locality.region).into(),
            zone: (*view.group.locality.zone).into(),
        },
        status: view.status.map(|status| status.as_str().into()),
        detailed_status: view.detailed.as_str().into(),
        reason: view.reason.as_deref().map(reason),
        since: rfc3339(view.since),
        rule: view.rule.to_string(),
        pinned: view.pinned,
        votes: view.votes.iter().map(vote).collect(),
    }
}

fn vote(view: &VoteView) -> Vote {
    let last = view.pulse.last();
    Vote {
        vantage: (*view.vantage).into(),
        kind: "PROBERS".into(),
        verdict: view.verdict.map(|verdict| verdict.as_str().into()),
        reason: view.reason.as_deref().map(reason),
        since: view.since.map(rfc3339),
        opposing: view.opposing,
        last_probe_at: last.map(|(at, _)| rfc3339(at)),
        latency_ms: last.map(|(_, latency)| latency.as_secs_f64() * 1e3),
        fresh: view.fresh,
        last_failure: view.pulse.last_failure().map(|failure| Failure {
            at: rfc3339(failure.at),
            outcome: failure.result.as_str().into(),
            reason: reason(&failure.reason),
        }),
    }
}

fn reason(reason: &outcome::Reason) -> Reason {
    Reason {
        code: reason.code.as_str().into(),
        layer: reason.code.layer().as_str().into(),
        text: reason.text.clone().into_owned(),
    }
}

/// One element of `/v1/clients`.
#[must_use]
pub fn client(row: &clients::Client) -> Client {
    let of_type = |(kind, status): (
        &crate::snapshot::ResourceType,
        &crate::stream::SubscriptionStatus,
    )| {
        let of_type = ClientType {
            subscribed: status
                .subscribed
                .iter()
                .map(|name| (**name).into())
                .collect(),
            sent_version: status.sent_version.as_deref().map(Into::into),
            acked_version: status.acked_version.as_deref().map(Into::into),
            nack: status.nack.as_ref().map(|nack| Nack {
                version: (*nack.version).into(),
                message: nack.message.clone(),
                at: rfc3339(nack.at),
            }),
        };
        (kind.as_str().into(), of_type)
    };
    Client {
        node_id: row.node_id.clone(),
        node_cluster: row.node_cluster.clone(),
        fleet: row.fleet.as_ref().map(|fleet| fleet.as_str().into()),
        transport: row.transport.as_str().into(),
        connected_at: rfc3339(row.connected_at),
        user_agent: row.user_agent.clone(),
        types: row.types.iter().map(of_type).collect(),
    }
}

/// RFC 3339, UTC, milliseconds; a time beyond the calendar shows as the epoch.
fn rfc3339(time: SystemTime) -> String {
    let timestamp = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_have_milliseconds_and_are_utc() {
        assert_eq!(
            rfc3339(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456)),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
