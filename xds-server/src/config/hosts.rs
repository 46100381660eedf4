//! Completes the checks of profile TENCENT_ALB that name no host (semantics P7): what they send is the one literal
//! domain of the routes that lead to the service, the "forwarding domain name".
//!
//! In: the services that lack only that, and the fleets. Out: the same services with their checks, each with its own
//! host, or a finding at the check where the routes do not say one. It runs last, because routes refer to services.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::attached::Attached;
use super::checks::{Check, Content, Hostless};
use super::diagnostic::Sink;
use super::services::Unhosted;
use super::table::Table;
use crate::model::{Fleet, ListenerKind, Name, NamedCheck, Service};

/// The literal domains under which a service is reached, as far as that matters.
enum Domains<'f> {
    One(&'f str),
    /// More than one; these are two of them.
    Several(&'f str, &'f str),
}

/// Completes the services, by name.
pub(super) fn complete(
    services: BTreeMap<Name, Unhosted>,
    checks: &Table<Check>,
    fleets: &[Arc<Fleet>],
    attached: &Attached,
    sink: &Sink<'_>,
) -> Vec<Service> {
    if services.is_empty() {
        return Vec::new();
    }
    let domains = domains(fleets);
    let mut completed = Vec::new();
    for (name, Unhosted { service, check }) in services {
        let Some(Content::Hostless(hostless)) = checks
            .get(check.as_str())
            .and_then(|check| Some(&check.known.as_ref()?.content))
        else {
            continue;
        };
        let whole = match domains.get(&name) {
            Some(Domains::One(host)) => with(hostless, host, attached),
            Some(Domains::Several(one, other)) => Err(format!(
                "have more than one literal domain ({one}, {other}); give the check a host"
            )),
            None => Err(
                "have no literal domain; give the check a host, or a route one domain without *"
                    .into(),
            ),
        };
        match whole {
            Ok(whole) => completed.push(Service {
                check: Some(NamedCheck {
                    name: check,
                    check: whole,
                }),
                ..service
            }),
            Err(problem) => {
                let message = format!(
                    "profile TENCENT_ALB sends the forwarding domain name, and the routes to the service {name} {problem}"
                );
                hostless.error(sink, message);
            }
        }
    }
    completed
}

fn with(
    hostless: &Hostless,
    host: &str,
    attached: &Attached,
) -> Result<Arc<vitals_prober::check::HealthCheck>, String> {
    attached
        .charge(hostless.weight())
        .map_err(|problem| format!("ask for the check once more, which {problem}"))?;
    hostless.with(host).map(Arc::new).map_err(|errors| {
        let problems: Vec<_> = errors.into_iter().map(|error| error.problem).collect();
        format!(
            "give one that cannot be sent: {}; give the check a host",
            problems.join("; ")
        )
    })
}

/// The literal domains of every service that a route leads to, over all fleets.
fn domains(fleets: &[Arc<Fleet>]) -> BTreeMap<&Name, Domains<'_>> {
    let mut domains = BTreeMap::new();
    let listeners = fleets.iter().flat_map(|fleet| &fleet.listeners);
    for listener in listeners {
        let ListenerKind::Http(routes) = &listener.kind else {
            continue;
        };
        for route in routes {
            for domain in route.domains.iter().filter(|domain| !domain.contains('*')) {
                match domains.entry(&route.service) {
                    Entry::Vacant(entry) => {
                        entry.insert(Domains::One(domain));
                    }
                    Entry::Occupied(mut entry) => {
                        if let Domains::One(one) = *entry.get()
                            && one != domain
                        {
                            entry.insert(Domains::Several(one, domain));
                        }
                    }
                }
            }
        }
    }
    domains
}
