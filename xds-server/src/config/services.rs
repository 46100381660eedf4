//! `backendServices:` → services by name, their checks and groups resolved.
//!
//! In: the items of the list, of all files, the tables of checks and groups, the files that they name. Out: a table of
//! [`Defined`] services. Keys are read in the order in which they need each other: what is asked (`check`), who asks it
//! (`probing`, `backends`), then what follows from that (`unhealthy`), and what stands alone (`balance`, `tls`,
//! `passive`).
//! A block that only a later version reads is reported as not supported yet, and never ignored.

mod backends;
mod balance;
mod check;
mod passive;
mod tls;
mod unhealthy;

use std::sync::Arc;
use std::time::Duration;

use super::attached::Attached;
use super::checks::Check;
use super::groups::Group;
use super::probing::{self, Probing};
use super::read::{Fields, Item};
use super::table::Table;
use crate::model::{Name, Protocol, Service};
use backends::Backends;
pub(super) use check::Asked;

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

/// A service that is defined.
#[derive(Debug)]
pub(super) struct Defined {
    /// What it speaks, where that is known: routes are checked against it.
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

/// What services refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'t> {
    pub(super) checks: &'t Table<Check>,
    pub(super) groups: &'t Table<Group>,
    pub(super) attached: &'t Attached,
}

/// Reads one item of `backendServices` into the table.
pub(super) fn read(item: &Item<'_>, known: Known<'_>, table: &mut Table<Defined>) {
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    let name_item = fields.required("name", "give the service a name");
    let name = name_item.and_then(|i| i.name());
    let protocol = match fields.get("protocol") {
        None => Some(Protocol::Http),
        Some(item) => item.choice(&Protocol::ALL.map(|protocol| (protocol.name(), protocol))),
    };
    let asked = check::read(&fields, protocol, known.checks);
    let probing_item = fields.get("probing");
    let probing = probing_item
        .as_ref()
        .map(|i| probing::read(i, &asked))
        .unwrap_or_default();
    let backends = backends::read(item, &fields, known.groups, &asked, probing.by);
    asked.warn(&fields, backends.fell_back, backends.by_envoys());
    if let Some(item) = &probing_item {
        warn_idle(item, &probing, &asked, &backends);
    }
    warn_grpc_clients(&fields, protocol, &asked, &backends);
    let unhealthy = unhealthy::read(&fields, protocol, &asked, &backends);
    let (policy, affinity) = balance::read(&fields, protocol);
    let tls = tls::read(&fields, protocol, known.attached);
    tls::warn_of_check(&fields, tls.as_ref(), &asked);
    let draining = fields.get("connectionDraining").and_then(|item| {
        let duration = item.duration()?;
        if duration > Duration::from_secs(3600) {
            let written = item.written();
            item.error(format!("{written} is out of range; 0s to 1h is allowed"));
        }
        Some(duration)
    });
    let outlier_detection = passive::read_outlier_detection(&fields, &backends);
    let circuit_breakers = passive::read_circuit_breakers(&fields);
    refuse_the_rest(&fields);
    let Some(name_item) = name_item else { return };
    let service = name.zip(protocol).map(|(name, protocol)| {
        let (check, unhosted) = asked.into_parts();
        let service = Service {
            tls,
            check,
            backends: backends.backends,
            failover: unhealthy.failover,
            when_all_unhealthy: unhealthy.when_all,
            unhealthy_response_code: unhealthy.response_code,
            close_connections_on_unhealthy: unhealthy.close_connections,
            quorum: probing.quorum,
            guard: probing.guard,
            policy,
            affinity,
            connection_draining: draining.unwrap_or_default(),
            outlier_detection,
            circuit_breakers,
            ..Service::new(name, protocol)
        };
        match unhosted {
            None => Complete::Yes(Arc::new(service)),
            Some(check) => Complete::Unhosted(Box::new(Unhosted { service, check })),
        }
    });
    table.define(&name_item, Defined { protocol, service });
}

/// Quorum and guard decide nothing where no prober votes.
fn warn_idle(item: &Item<'_>, probing: &Probing, asked: &Asked, backends: &Backends) {
    let no_votes = match asked {
        Asked::Nothing => true,
        Asked::Unknown => false,
        Asked::Check(_) => {
            !backends.backends.is_empty() && backends.backends.iter().all(|b| !b.by.probers)
        }
    };
    if probing.of_probers && no_votes {
        item.warning(
            "no prober checks an endpoint of the service, so quorum and guard decide nothing; add PROBERS, or drop them",
        );
    }
}

/// Semantics H9.
fn warn_grpc_clients(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    asked: &Asked,
    backends: &Backends,
) {
    let grpc = matches!(protocol, Some(Protocol::Grpc | Protocol::GrpcWithTls));
    if grpc
        && matches!(asked, Asked::Check(_))
        && let Some(backend) = backends.without_probers()
        && let Some(item) = fields.get("healthCheck")
    {
        item.warning(format!(
            "gRPC clients that ask for this service without an Envoy get no health of the group {}, which ENVOYS alone \
             check; add PROBERS to its probing.by",
            backend.group.name
        ));
    }
}

/// What a later version reads.
fn refuse_the_rest(fields: &Fields<'_>) {
    if let Some(item) = fields.get("envoyCluster") {
        item.key_unsupported("fields of Envoy's own cluster", "leave envoyCluster out");
        item.entries();
    }
}
