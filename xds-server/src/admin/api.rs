//! The JSON of the admin API (design 4.3), as the server writes it and `vitals status` reads it.
//!
//! In: health views. Out: serialisable values. Field names are the contract. `/v1/clients` is in `clients`.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vitals_prober::outcome;

use crate::health::rule::rfc3339;
use crate::health::{DetailedStatus, EndpointView, HealthView, Pool, Rule, ServiceView, VoteView};
use crate::model::{self, Name};

/// `/readyz`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// `ok`, or `error` when the last reload was refused and an older configuration runs.
    pub reload: String,
    /// The errors of that reload, a line each.
    pub errors: Vec<String>,
}

/// One element of `/v1/fleets`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// The fleet.
    pub name: String,
    /// The services that it is told of.
    pub services: Vec<String>,
}

/// One element of `/v1/services`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// The service.
    pub service: String,
    /// HEALTHY: an endpoint takes traffic; UNHEALTHY: none is healthy; PROBING: none is judged; DRAINING: none takes new
    /// requests; DISABLED: there is no check; UNKNOWN: there is no endpoint, or only Envoys check them.
    pub status: String,
    /// Whether its load assignment is held until an endpoint is judged (design 5.3).
    pub held: bool,
    /// The pool that takes traffic: PRIMARY or FAILOVER.
    pub active_pool: String,
    /// Whether all endpoints share the traffic because none is healthy (semantics H3, H6).
    pub open: bool,
    /// Whether requests are refused because no endpoint is healthy (semantics H3, H5).
    pub refused: bool,
    /// Why traffic goes where it goes.
    pub rule: String,
    /// Since when it has this status and this rule, but for the rule's numbers; RFC 3339 UTC.
    pub since: Option<String>,
    /// The primary backends; without failover backends, all.
    pub primary: PoolStanding,
    /// The failover backends; `null` without any.
    pub failover: Option<PoolStanding>,
    /// How many statuses stand without enough fresh votes (semantics V3).
    pub pinned: usize,
    /// Who abstains from voting on its endpoints, since when and why (semantics V5).
    pub abstaining: Vec<String>,
    /// The order of regions by fleet (semantics H10): of the endpoints that take traffic, the Envoys of these fleets use those
    /// of the first region that has a healthy one, which is not in `takesTraffic`.
    pub region_order: Vec<RegionOrder>,
    /// Canaries of its guard that have never answered, a sentence each (semantics V5).
    pub silent_canaries: Vec<String>,
}

/// The order in which regions take traffic of a fleet's Envoys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionOrder {
    /// The fleet.
    pub fleet: String,
    /// Its `regionOrder`, nearest first; regions that are not in it come last.
    pub order: Vec<String>,
}

/// How a pool stands; only endpoints that may get new requests are counted (semantics H2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStanding {
    /// Healthy ones.
    pub healthy: usize,
    /// Never judged ones.
    pub unjudged: usize,
    /// All.
    pub counted: usize,
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
    /// The pool that it belongs to: PRIMARY or FAILOVER.
    pub pool: String,
    /// What EDS says: HEALTHY, UNHEALTHY, TIMEOUT, DRAINING; `null` where it is omitted, as DRAINING endpoints and those without
    /// weight are while all others share the traffic (semantics H6).
    pub status: Option<String>,
    /// Whether Envoys are told to send it new requests: its status, its pool and the service's routing in one word. Where only
    /// Envoys check it (`detailedStatus` UNKNOWN), each decides by what it finds.
    pub takes_traffic: bool,
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
    /// Since when it does.
    pub pinned_since: Option<String>,
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
    /// How long ago this server heard of it, by its own clock, milliseconds.
    pub age_ms: Option<u64>,
    /// Whether the vote is fresh (semantics V1); one that is not does not count.
    pub fresh: bool,
    /// Why the vantage abstains (semantics V5); then the vote does not count either.
    pub abstains: Option<String>,
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

/// `/v1/fleets`, in the configuration's order, in which a node finds its own.
#[must_use]
pub fn fleets(fleets: &[Arc<model::Fleet>]) -> Vec<Fleet> {
    let told = |fleet: &Arc<model::Fleet>| Fleet {
        name: fleet.name.to_string(),
        services: fleet.services.iter().map(Name::to_string).collect(),
    };
    fleets.iter().map(told).collect()
}

/// `/v1/services` of a view, and of the fleets that are told of it.
#[must_use]
pub fn services(view: &HealthView, fleets: &[Arc<model::Fleet>]) -> Vec<Service> {
    let services = view.services.iter();
    services
        .map(|(name, view)| service(name, view, fleets))
        .collect()
}

fn service(name: &Name, view: &ServiceView, fleets: &[Arc<model::Fleet>]) -> Service {
    let told = fleets
        .iter()
        .filter(|fleet| !fleet.region_order.is_empty() && fleet.services.contains(name));
    let order = |fleet: &model::Fleet| fleet.region_order.iter().map(|r| (**r).into()).collect();
    let standing = |pool| {
        let standing = view.pools.of(pool);
        PoolStanding {
            healthy: standing.healthy,
            unjudged: standing.unjudged,
            counted: standing.counted,
        }
    };
    let in_failover = |endpoint: &Arc<EndpointView>| endpoint.pool == Pool::Failover;
    let has_failover = view.endpoints.iter().any(in_failover);
    let status = view.status().as_str();
    // What this server knows nothing of counts as healthy for it (H1), which would read like a finding here.
    let rule = match status == DetailedStatus::Unknown.as_str() && !view.endpoints.is_empty() {
        true => Rule::EnvoysOnly.to_string(),
        false => view.why.to_string(),
    };
    Service {
        service: name.to_string(),
        status: status.into(),
        held: view.held,
        active_pool: view.routing.active.as_str().into(),
        open: view.routing.open,
        refused: !view.held && view.why.is_refusal(),
        rule,
        since: view.since.map(rfc3339),
        primary: standing(Pool::Primary),
        failover: has_failover.then(|| standing(Pool::Failover)),
        pinned: view.pinned,
        abstaining: view.abstaining.iter().map(ToString::to_string).collect(),
        region_order: told
            .map(|fleet| RegionOrder {
                fleet: fleet.name.to_string(),
                order: order(fleet),
            })
            .collect(),
        silent_canaries: view.unanswered.iter().map(ToString::to_string).collect(),
    }
}

/// `/v1/endpoints` of a view, as it is at `now`.
pub fn endpoints(view: &HealthView, now: Instant) -> impl Iterator<Item = Endpoint> + Send + use<> {
    let of_services = view.services.clone().into_iter();
    of_services.flat_map(move |(name, service)| {
        let endpoints = service.endpoints.clone().into_iter();
        endpoints.map(move |view| endpoint(name.as_str(), &service, &view, now))
    })
}

fn endpoint(name: &str, service: &ServiceView, view: &EndpointView, now: Instant) -> Endpoint {
    // While the service is held, no Envoy was told anything yet.
    let routing = (!service.held).then(|| service.followed());
    Endpoint {
        service: name.into(),
        group: view.group.name.as_str().into(),
        address: view.address.ip().to_string(),
        port: view.address.port(),
        hostname: None,
        locality: Locality {
            region: (*view.group.locality.region).into(),
            zone: (*view.group.locality.zone).into(),
        },
        pool: view.pool.as_str().into(),
        status: service.told_of(view).map(|status| status.as_str().into()),
        takes_traffic: routing.is_some_and(|routing| view.takes_traffic(routing)),
        detailed_status: view.detailed.as_str().into(),
        reason: view.reason.as_deref().map(reason),
        since: rfc3339(view.since),
        rule: view.rule.to_string(),
        pinned: view.pinned.is_some(),
        pinned_since: view.pinned.map(rfc3339),
        votes: view.votes.iter().map(|view| vote(view, now)).collect(),
    }
}

fn vote(view: &VoteView, now: Instant) -> Vote {
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
        age_ms: view.pulse.heard().map(|heard| {
            let age = now.saturating_duration_since(heard).as_millis();
            u64::try_from(age).unwrap_or(u64::MAX)
        }),
        fresh: view.fresh,
        abstains: view.abstains.as_ref().map(ToString::to_string),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::failover::{Pools, Standing};

    fn status(healthy: usize, unjudged: usize, counted: usize, held: bool) -> &'static str {
        let pools = Pools {
            primary: Standing {
                healthy,
                unjudged,
                counted,
            },
            ..Pools::default()
        };
        let group = crate::model::EndpointGroup {
            name: crate::model::Name::new("dc1").unwrap(),
            kind: crate::model::GroupKind::GceVmIpPort,
            locality: crate::model::Locality::default(),
            endpoints: Vec::new(),
        };
        let endpoint = EndpointView {
            group: std::sync::Arc::new(group),
            address: "127.0.0.1:80".parse().unwrap(),
            pool: Pool::Primary,
            by: None,
            probe_address: None,
            weight: Some(1),
            status: None,
            detailed: DetailedStatus::Healthy,
            reason: None,
            since: std::time::UNIX_EPOCH,
            rule: Rule::NoCheck,
            pinned: None,
            votes: Box::default(),
        };
        let view = ServiceView {
            held,
            pools,
            endpoints: vec![endpoint.into()],
            ..ServiceView::default()
        };
        view.status().as_str()
    }

    #[test]
    fn s5_a_service_is_what_its_endpoints_allow() {
        assert_eq!(ServiceView::default().status().as_str(), "UNKNOWN");
        assert_eq!(status(1, 0, 3, false), "HEALTHY");
        assert_eq!(status(0, 0, 3, false), "UNHEALTHY");
        assert_eq!(status(0, 1, 3, false), "PROBING");
        assert_eq!(status(0, 3, 3, true), "PROBING");
        assert_eq!(status(0, 0, 0, false), "DRAINING");
    }
}
