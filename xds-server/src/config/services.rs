//! `backendServices:` → services by name, their checks and groups resolved.
//!
//! In: the items of the list, of all files, and the tables of checks and groups. Out: a table of [`Defined`] services.
//! A value that says what Vitals does anyway (`quorum: MAJORITY`) is taken; one that asks for more, or a block that only
//! a later version reads, is reported as not supported yet, and never ignored.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use vitals_prober::check::{Kind, Profile};

use super::checks::{self, Check, Content, Known};
use super::envoy;
use super::groups::{self, Group};
use super::probing;
use super::read::{Fields, Item, join};
use super::table::Table;
use crate::model::{Backend, LbPolicy, Locality, Name, NamedCheck, ProbedBy, Protocol, Service};

const KEYS: &[&str] = &[
    "name",
    "protocol",
    "healthCheck",
    "backends",
    "failover",
    "whenAllUnhealthy",
    "unhealthyResponseCode",
    "connectionDraining",
    "closeConnectionsOnUnhealthy",
    "probing",
    "loadBalancing",
    "sessionAffinity",
    "tls",
    "outlierDetection",
    "circuitBreakers",
    "envoyCluster",
];

const PROTOCOLS: [(&str, Option<Protocol>); 8] = [
    ("HTTP", Some(Protocol::Http)),
    ("HTTPS", None),
    ("HTTP2", None),
    ("H2C", Some(Protocol::H2c)),
    ("GRPC", Some(Protocol::Grpc)),
    ("GRPC_WITH_TLS", None),
    ("TCP", Some(Protocol::Tcp)),
    ("SSL", None),
];

/// A service that is defined.
#[derive(Debug)]
pub(super) struct Defined {
    /// What it speaks, where that is known and supported: routes are checked against it.
    pub(super) protocol: Option<Protocol>,
    /// The service, where it is right.
    pub(super) service: Option<Complete>,
}

/// A service that is right.
#[derive(Debug)]
pub(super) enum Complete {
    /// With all that it has.
    Yes(Arc<Service>),
    /// But for its check.
    Unhosted(Box<Unhosted>),
}

/// A service whose check sends a host that the routes give; until then it has none.
#[derive(Debug)]
pub(super) struct Unhosted {
    pub(super) service: Service,
    /// The check's name.
    pub(super) check: Name,
}

/// Reads one item of `backendServices` into the table.
pub(super) fn read(
    item: &Item<'_>,
    checks: &Table<Check>,
    groups: &Table<Group>,
    table: &mut Table<Defined>,
) {
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    let name_item = fields.required("name", "give the service a name");
    let name = name_item.and_then(|i| i.name());
    let protocol = match fields.get("protocol") {
        None => Some(Protocol::Http),
        Some(item) => item.choice(&PROTOCOLS).and_then(|protocol| {
            if protocol.is_none() {
                let word = item.scalar().unwrap_or_default();
                item.value_unsupported(word, "HTTP, H2C, GRPC and TCP are");
            }
            protocol
        }),
    };
    let check = read_check(&fields, protocol, checks);
    let backends = read_backends(item, &fields, groups);
    let draining = fields.get("connectionDraining").and_then(|item| {
        let duration = item.duration()?;
        if duration > Duration::from_secs(3600) {
            item.error(format!("{duration:?} is out of range; 0s to 1h is allowed"));
        }
        Some(duration)
    });
    let policy = read_policy(&fields);
    if let Some(item) = fields.get("probing") {
        probing::read(&item);
    }
    let outlier_detection = fields.get("outlierDetection").and_then(|i| envoy::read(&i));
    let circuit_breakers = fields.get("circuitBreakers").and_then(|i| envoy::read(&i));
    refuse_the_rest(&fields);
    let Some(name_item) = name_item else { return };
    let service = match (name, protocol) {
        (Some(name), Some(protocol)) => {
            let (check, unhosted) = match check {
                Some(Named::Whole(check)) => (Some(check), None),
                Some(Named::Hostless(name)) => (None, Some(name)),
                None => (None, None),
            };
            let service = Service {
                check,
                backends,
                policy,
                connection_draining: draining.unwrap_or_default(),
                outlier_detection,
                circuit_breakers,
                ..Service::new(name, protocol)
            };
            Some(match unhosted {
                None => Complete::Yes(Arc::new(service)),
                Some(check) => Complete::Unhosted(Box::new(Unhosted { service, check })),
            })
        }
        _ => None,
    };
    table.define(&name_item, Defined { protocol, service });
}

/// The check that a service names.
enum Named {
    Whole(NamedCheck),
    /// One that is completed when the routes are known.
    Hostless(Name),
}

fn read_check(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    checks: &Table<Check>,
) -> Option<Named> {
    let item = fields.get("healthCheck")?;
    if item.scalar() == Some(checks::NONE) {
        return None;
    }
    let known = checks.find(&item)?.known.as_ref()?;
    if let Some(protocol) = protocol {
        compare(&item, known, protocol);
    }
    let name = Name::new(item.scalar()?)?;
    Some(match &known.content {
        Content::Whole(check) => Named::Whole(NamedCheck {
            name,
            check: Arc::clone(check),
        }),
        Content::Hostless(_) => Named::Hostless(name),
    })
}

/// The types that a service takes, where it does not take all (semantics P18).
fn taken(protocol: Protocol, profile: Profile) -> Option<&'static [Kind]> {
    use Kind::{Grpc, GrpcWithTls, Http, Https, Tcp};
    match (protocol, profile) {
        (Protocol::Http | Protocol::Https, Profile::TencentAlb) => Some(&[Tcp, Http, Https]),
        (Protocol::Grpc, Profile::TencentAlb) => Some(&[Tcp, Grpc]),
        (Protocol::GrpcWithTls, Profile::TencentAlb) => Some(&[Tcp, GrpcWithTls]),
        (Protocol::Grpc | Protocol::GrpcWithTls, _) => Some(&[Tcp, Grpc, GrpcWithTls]),
        (
            Protocol::Http
            | Protocol::Https
            | Protocol::Http2
            | Protocol::H2c
            | Protocol::Tcp
            | Protocol::Ssl,
            _,
        ) => None,
    }
}

/// Semantics P18.
fn compare(item: &Item<'_>, check: &Known, protocol: Protocol) {
    let kind = check.kind;
    let word = PROTOCOLS
        .iter()
        .find(|(_, p)| *p == Some(protocol))
        .map_or("", |(word, _)| word);
    if let Some(taken) = taken(protocol, check.profile) {
        if !taken.contains(&kind) {
            let of_profile = match check.profile {
                Profile::TencentAlb => " of profile TENCENT_ALB",
                Profile::Gcp | Profile::GcpLegacy | Profile::AzureLb => "",
            };
            item.error(format!(
                "{} {word} service takes checks{of_profile} of the types {}, and {} is {}; name another check",
                if protocol == Protocol::Http { "an" } else { "a" },
                join(taken.iter().map(|kind| kind.name())),
                item.scalar().unwrap_or_default(),
                kind.name()
            ));
        }
        return;
    }
    let same = match protocol {
        Protocol::Http | Protocol::Https => matches!(kind, Kind::Http | Kind::Https),
        Protocol::H2c | Protocol::Http2 => kind == Kind::Http2,
        Protocol::Grpc | Protocol::GrpcWithTls => matches!(kind, Kind::Grpc | Kind::GrpcWithTls),
        Protocol::Tcp | Protocol::Ssl => matches!(kind, Kind::Tcp | Kind::Ssl),
    };
    if !same {
        item.warning(format!(
            "the service speaks {word} and its check {}; make sure that this is meant",
            kind.name()
        ));
    }
}

fn read_backends(item: &Item<'_>, fields: &Fields<'_>, groups: &Table<Group>) -> Vec<Backend> {
    let Some(list) = fields.get("backends") else {
        return Vec::new();
    };
    let mut used = HashSet::new();
    let mut seen = HashMap::new();
    let mut sums: BTreeMap<&Locality, f64> = BTreeMap::new();
    let mut backends = Vec::new();
    for backend in list.list() {
        let Some(fields) = backend.fields(&["group", "capacity", "failover", "probing"]) else {
            continue;
        };
        let capacity = fields
            .get("capacity")
            .and_then(|i| i.number(0.0..=1.0))
            .unwrap_or(1.0);
        if let Some(item) = fields.get("failover")
            && item.boolean() == Some(true)
        {
            item.value_unsupported("true", "false is: every backend takes traffic");
        }
        if let Some(item) = fields.get("probing") {
            probing::read(&item);
        }
        let Some(item) = fields.required("group", "name the group of endpoints") else {
            continue;
        };
        let Some(found) = groups.find(&item) else {
            continue;
        };
        let name = item.scalar().unwrap_or_default();
        if !used.insert(name.to_owned()) {
            item.error(format!(
                "the service uses the group {name} already; name each group once"
            ));
            continue;
        }
        let Some(group) = &found.group else { continue };
        if let Some((address, other, count)) = groups::shared(group, &mut seen) {
            let more = match count {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            item.error(format!(
                "the service has {address}{more} through the group {other} already, and Envoy keeps one of each; \
                 take them out of {other} or {}",
                group.name
            ));
        }
        let weights: u64 = group.endpoints.iter().map(|e| u64::from(e.weight)).sum();
        #[allow(clippy::cast_precision_loss)] // at most 1,000 for each of some 600,000 endpoints
        let scaled = weights as f64 * (capacity * 100.0).ceil();
        *sums.entry(&group.locality).or_default() += scaled;
        backends.push(Backend {
            group: Arc::clone(group),
            capacity,
            failover: false,
            by: ProbedBy::PROBERS,
        });
    }
    // Envoy refuses a locality whose weights do not fit; capacity is folded into them in hundredths.
    for (locality, sum) in sums {
        if sum > f64::from(u32::MAX) {
            item.error(format!(
                "the weights of the endpoints in region {:?}, zone {:?} come to {sum:.0} hundredths, and Envoy adds up to {} \
                 at most; give smaller weights",
                locality.region,
                locality.zone,
                u32::MAX
            ));
        }
    }
    backends
}

fn read_policy(fields: &Fields<'_>) -> LbPolicy {
    let policies = [
        ("ROUND_ROBIN", Some(LbPolicy::RoundRobin)),
        ("LEAST_REQUEST", Some(LbPolicy::LeastRequest)),
        ("RANDOM", Some(LbPolicy::Random)),
        ("RING_HASH", None),
        ("MAGLEV", None),
    ];
    let policy = fields.get("loadBalancing").and_then(|item| {
        let fields = item.fields(&["policy"])?;
        let item = fields.get("policy")?;
        let policy = item.choice(&policies)?;
        if policy.is_none() {
            let word = item.scalar().unwrap_or_default();
            item.value_unsupported(word, "ROUND_ROBIN, LEAST_REQUEST and RANDOM are");
        }
        policy
    });
    policy.unwrap_or_default()
}

/// What a later version reads.
fn refuse_the_rest(fields: &Fields<'_>) {
    if let Some(item) = fields.get("closeConnectionsOnUnhealthy")
        && item.boolean() == Some(true)
    {
        item.value_unsupported("true", "false is");
    }
    if let Some(item) = fields.get("whenAllUnhealthy")
        && item.choice(&[("FAIL_CLOSED", true), ("FAIL_OPEN", false)]) == Some(false)
    {
        item.value_unsupported("FAIL_OPEN", "FAIL_CLOSED is");
    }
    if let Some(item) = fields.get("unhealthyResponseCode") {
        let code = item.integer(200..=599);
        if code.is_some() {
            let word = item.scalar().unwrap_or_default();
            item.value_unsupported(word, "leave unhealthyResponseCode out for 503");
        }
    }
    if let Some(item) = fields.get("sessionAffinity") {
        read_affinity(&item);
    }
    if let Some(item) = fields.get("failover") {
        item.key_unsupported(
            "failover between backends",
            "leave failover out: all backends take traffic",
        );
        if let Some(failover) = item.fields(&["ratio", "failbackRatio", "dropTrafficIfUnhealthy"]) {
            failover.get("ratio").and_then(|i| i.number(0.0..=1.0));
            failover
                .get("failbackRatio")
                .and_then(|i| i.number(0.0..=1.0));
            failover
                .get("dropTrafficIfUnhealthy")
                .and_then(|i| i.boolean());
        }
    }
    if let Some(item) = fields.get("tls") {
        item.key_unsupported("TLS to the endpoints", "leave tls out");
        if let Some(tls) = item.fields(&["sni", "verify", "roots"]) {
            tls.get("sni").and_then(|i| i.text());
            tls.get("verify").and_then(|i| i.boolean());
            tls.get("roots").and_then(|i| i.text());
        }
    }
    if let Some(item) = fields.get("envoyCluster") {
        item.key_unsupported("fields of Envoy's own cluster", "leave envoyCluster out");
        item.entries();
    }
}

fn read_affinity(item: &Item<'_>) {
    let Some(fields) = item.fields(&["type", "name", "ttl"]) else {
        return;
    };
    let types = [
        ("NONE", true),
        ("CLIENT_IP", false),
        ("HEADER", false),
        ("COOKIE", false),
    ];
    if let Some(item) = fields.required("type", "write NONE")
        && item.choice(&types) == Some(false)
    {
        item.value_unsupported(item.scalar().unwrap_or_default(), "NONE is");
    }
    fields.get("name").and_then(|i| i.text());
    fields.get("ttl").and_then(|i| i.duration());
}
