//! Who is probed, for whom: the model's endpoints as targets (semantics V6).
//!
//! In: a [`Model`]. Out: a [`Plan`]: every state key once, with the services that it speaks for, and for every endpoint
//! of every service its key. Services that ask the same of the same address share one state and are probed once. What
//! only Envoys check is not in it. The canaries of the guards are, apart: they speak for vantages, not for endpoints.
//! Pure. Which vantage probes a target is not decided yet: there is one, the embedded prober.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vitals_prober::check::{HealthCheck, HealthCheckSpec, Kind};
use vitals_prober::target::{Names, StateKey};

use crate::model::{AdminState, Model, Name};

/// How often a canary is connected to, and how long that may take.
const CANARY_INTERVAL: Duration = Duration::from_millis(500);

/// All that is probed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Every target once.
    pub targets: BTreeMap<StateKey, PlannedTarget>,
    /// By service, the keys of its endpoints in the order of [`Service::endpoints`](crate::model::Service::endpoints);
    /// `None` is not probed.
    pub keys: BTreeMap<Name, Vec<Option<StateKey>>>,
    /// Every canary once (semantics V5). One that a service asks the same of is in `targets` too, under the same key: it
    /// is one state, probed once.
    pub canaries: BTreeMap<StateKey, PlannedCanary>,
}

/// An address that must be reachable from a vantage that is trusted (semantics V5).
#[derive(Clone, Debug)]
pub struct PlannedCanary {
    /// Where the probe connects to, as `guard.canaries` has it.
    pub address: SocketAddr,
    /// What it asks: that the connection opens.
    pub check: Arc<HealthCheck>,
}

/// One target and whom it speaks for.
#[derive(Clone, Debug)]
pub struct PlannedTarget {
    /// Where the probe connects to.
    pub address: SocketAddr,
    /// What it calls the endpoint (semantics P7, P10).
    pub names: Names,
    /// What it asks.
    pub check: Arc<HealthCheck>,
    /// The endpoints that it speaks for.
    pub places: Vec<Place>,
}

/// An endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The service.
    pub service: Name,
    /// Which of its endpoints, in the order of [`Service::endpoints`](crate::model::Service::endpoints).
    pub endpoint: usize,
}

impl Plan {
    /// The plan of a model. Endpoints of stopped machines are not probed (semantics S6).
    #[must_use]
    pub fn new(model: &Model) -> Self {
        let mut plan = Self::default();
        plan.add_canaries(model);
        for service in model.services.values() {
            let keys = plan.keys.entry(service.name.clone()).or_default();
            for (at, (backend, endpoint)) in service.endpoints().enumerate() {
                let check = service.check.as_ref().map(|named| &named.check);
                let probed = backend.by.probers && endpoint.state != AdminState::Stopped;
                let Some(check) = check.filter(|_| probed) else {
                    keys.push(None);
                    continue;
                };
                let address = endpoint.probe_address(check);
                let names = Names::new(check, None, address);
                let key = StateKey::new(address, &names, check);
                keys.push(Some(key));
                let target = plan.targets.entry(key).or_insert_with(|| PlannedTarget {
                    address,
                    names,
                    check: Arc::clone(check),
                    // Most targets speak for one.
                    places: Vec::with_capacity(1),
                });
                target.places.push(Place {
                    service: service.name.clone(),
                    endpoint: at,
                });
            }
        }
        plan
    }

    /// The canaries of every guard that has votes to doubt.
    fn add_canaries(&mut self, model: &Model) {
        let Some(check) = canary_check() else { return };
        let guards = model.services.values().filter(|service| {
            let probed = service.check.is_some() && service.backends.iter().any(|b| b.by.probers);
            probed && service.guard.enabled
        });
        for &address in guards.flat_map(|service| &service.guard.canaries) {
            let key = StateKey::new(address, &Names::new(&check, None, address), &check);
            self.canaries.entry(key).or_insert_with(|| PlannedCanary {
                address,
                check: Arc::clone(&check),
            });
        }
    }
}

/// What a canary is asked: a TCP connection every half second, within half a second, which is enough for a round trip
/// around the world; two that fail, or pass, in a row decide, so that one lost packet says nothing by itself. A vantage
/// that is cut off knows it after 1 to 1.5 s, and its latest probes, which count when an endpoint turns, say so after 0.5
/// to 1 s: before any check of an interval and timeout of 1 s can turn an endpoint. `None` never comes: the spec is a
/// valid one.
fn canary_check() -> Option<Arc<HealthCheck>> {
    let spec = HealthCheckSpec {
        check_interval: Some(CANARY_INTERVAL),
        timeout: Some(CANARY_INTERVAL),
        healthy_threshold: Some(2),
        unhealthy_threshold: Some(2),
        ..HealthCheckSpec::of(Kind::Tcp)
    };
    HealthCheck::new(spec).ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Source, parse_sources};

    fn plan(services: &str) -> Plan {
        let text = format!(
            "healthChecks:
- {{ name: tcp, type: TCP }}
- {{ name: canary, type: TCP, checkInterval: 500ms, timeout: 500ms }}
endpointGroups:
- {{ name: dc1, type: NON_GCP_PRIVATE_IP_PORT, endpoints: [{{ address: 10.0.0.1, port: 80 }}] }}
- {{ name: dc2, type: GCE_VM_IP_PORT, endpoints: [{{ address: 10.0.0.2, port: 80 }}, {{ address: 10.0.0.3, port: 80, state: STOPPED }}] }}
backendServices:
{services}"
        );
        let loaded = parse_sources(&[Source::new("a.yaml", text)]);
        Plan::new(&loaded.unwrap().model)
    }

    fn addresses<'a>(found: impl Iterator<Item = &'a SocketAddr>) -> Vec<String> {
        let mut found: Vec<_> = found.map(ToString::to_string).collect();
        found.sort();
        found
    }

    fn targets(plan: &Plan) -> Vec<String> {
        addresses(plan.targets.values().map(|target| &target.address))
    }

    #[test]
    fn h7_what_only_envoys_check_is_not_planned() {
        let both = plan(
            "- { name: a, protocol: TCP, healthCheck: tcp, backends: [{ group: dc1 }, { group: dc2 }] }",
        );
        assert_eq!(targets(&both), ["10.0.0.1:80", "10.0.0.2:80"]);
        let one = plan(
            "- { name: a, protocol: TCP, healthCheck: tcp, backends: [{ group: dc1, probing: { by: [ENVOYS] } }, { group: dc2 }] }",
        );
        assert_eq!(targets(&one), ["10.0.0.2:80"]);
        let name = Name::new("a").unwrap();
        let probed: Vec<bool> = one.keys[&name].iter().map(Option::is_some).collect();
        assert_eq!(probed, [false, true, false]);
    }

    #[test]
    fn v5_canaries_are_planned_once_and_only_where_probers_vote() {
        let with = |rest: &str| {
            plan(&format!(
                "- {{ name: a, protocol: TCP, {rest}, probing: {{ guard: {{ canaries: ['10.9.0.1:53', '[::1]:53'] }} }} }}
- {{ name: b, protocol: TCP, healthCheck: tcp, backends: [{{ group: dc2 }}], probing: {{ guard: {{ canaries: ['10.9.0.1:53'] }} }} }}"
            ))
        };
        let canaries = |plan: &Plan| addresses(plan.canaries.values().map(|c| &c.address));
        let probed = with("healthCheck: tcp, backends: [{ group: dc1 }]");
        assert_eq!(canaries(&probed), ["10.9.0.1:53", "[::1]:53"]);
        for canary in probed.canaries.values() {
            assert_eq!(canary.check.kind(), Kind::Tcp);
            assert_eq!(canary.check.interval(), CANARY_INTERVAL);
        }
        // They speak for no endpoint.
        assert_eq!(targets(&probed), ["10.0.0.1:80", "10.0.0.2:80"]);
        for idle in [
            "healthCheck: none",
            "healthCheck: tcp",
            "healthCheck: tcp, backends: [{ group: dc1, probing: { by: [ENVOYS] } }]",
        ] {
            assert_eq!(canaries(&with(idle)), ["10.9.0.1:53"], "{idle}");
        }
        let off = plan(
            "- { name: a, protocol: TCP, healthCheck: tcp, backends: [{ group: dc2 }], probing: { guard: { enabled: false, canaries: ['10.9.0.1:53'] } } }",
        );
        assert_eq!(off.canaries.len(), 0);
    }

    #[test]
    fn v6_a_canary_and_an_equal_check_are_one_state() {
        let plan = plan(
            "- { name: a, protocol: TCP, healthCheck: canary, backends: [{ group: dc2 }], probing: { guard: { canaries: ['10.0.0.2:80'] } } }",
        );
        let keys = |keys: Vec<&StateKey>| format!("{keys:?}");
        assert_eq!(
            keys(plan.canaries.keys().collect()),
            keys(plan.targets.keys().collect())
        );
    }
}
