//! New clusters that Envoys check for themselves, and when they can serve.
//!
//! In: what a fleet is served for the first time, the time, what its Envoys have taken. Out: which services may not be led
//! to yet. An Envoy answers 503 on a route to a cluster that is not there, and a new one is not there before each of its
//! endpoints has been checked once: up to `initial_jitter`, and, where one hangs, `timeout`. It withholds its ACK of the
//! clusters meanwhile (measured), so the end is seen; the bound is for those that do not answer.
//!
//! Not for: an edited cluster, whose old one serves until the new one is warm; an Envoy that starts, which waits for its
//! clusters before it listens; the first snapshot of a fleet, of which is not known what its Envoys have.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::distributed::initial_jitter;
use crate::model::{Fleet, Model, Name, Service};

/// What a push, a handshake and the way back may take beyond the check itself.
const SLACK: Duration = Duration::from_millis(500);

/// How often it is looked whether Envoys have taken their clusters.
const LOOK: Duration = Duration::from_millis(50);

/// What warms.
#[derive(Debug, Default)]
pub(super) struct Warming {
    /// By fleet, the services, and when that ends at the latest.
    services: BTreeMap<Name, BTreeMap<Name, Instant>>,
    next_look: Option<Instant>,
}

impl Warming {
    /// A fleet is served the endpoints of this service for the first time.
    pub(super) fn begin(&mut self, fleet: &Fleet, service: &Service, now: Instant) {
        let Some(named) = service
            .check
            .as_ref()
            .filter(|_| service.has_envoy_checks())
        else {
            return;
        };
        let bound = initial_jitter(&named.check) + named.check.timeout() + SLACK;
        let of_fleet = self.services.entry(fleet.name.clone()).or_default();
        of_fleet.entry(service.name.clone()).or_insert(now + bound);
        self.next_look.get_or_insert(now + LOOK);
    }

    /// Forgets what the model no longer has.
    pub(super) fn keep(&mut self, model: &Model) {
        self.services.retain(|name, services| {
            let fleet = model.fleets.iter().find(|fleet| fleet.name == *name);
            services.retain(|service, _| fleet.is_some_and(|f| f.services.contains(service)));
            !services.is_empty()
        });
    }

    /// Whether the Envoys of a fleet still check this service for the first time.
    pub(super) fn contains(&self, fleet: &Name, service: &str) -> bool {
        let of_fleet = self.services.get(fleet);
        of_fleet.is_some_and(|services| services.contains_key(service))
    }

    /// When [`Self::end`] is to be called; `None`: nothing warms.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look.filter(|_| !self.services.is_empty())
    }

    /// Ends what is over. `taken`: whether all Envoys of a fleet have taken its clusters. Says whether anything has ended.
    pub(super) fn end(&mut self, now: Instant, taken: impl Fn(&Name) -> bool) -> bool {
        let mut any = false;
        self.services.retain(|fleet, services| {
            let taken = taken(fleet);
            services.retain(|_, until| {
                let over = taken || *until <= now;
                any |= over;
                !over
            });
            !services.is_empty()
        });
        self.next_look = Some(now + LOOK);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Source, parse_sources};

    fn model(services: &str) -> Model {
        let text = format!(
            "
healthChecks: [{{ name: web, type: HTTP, checkInterval: 10s, timeout: 2s }}]
endpointGroups: [{{ name: g, type: GCE_VM_IP_PORT, endpoints: [{{ address: 192.0.2.1, port: 80 }}] }}]
backendServices:
{services}
fleets: [{{ name: edge }}]
"
        );
        let loaded = parse_sources(&[Source::new("a.yaml", text)]);
        loaded.unwrap().model
    }

    const BOTH: &str = "\
- { name: by-envoys, protocol: HTTP, healthCheck: web, backends: [{ group: g }], probing: { by: [ENVOYS] } }
- { name: by-probers, protocol: HTTP, healthCheck: web, backends: [{ group: g }], probing: { by: [PROBERS] } }";

    fn begun(now: Instant) -> (Warming, Name) {
        let model = model(BOTH);
        let fleet = &model.fleets[0];
        let mut warming = Warming::default();
        for service in model.services.values() {
            warming.begin(fleet, service, now);
        }
        (warming, fleet.name.clone())
    }

    #[test]
    fn h7_what_envoys_check_warms_until_they_have_taken_it() {
        let now = vitals_prober::clock::now();
        let (mut warming, fleet) = begun(now);
        assert!(warming.contains(&fleet, "by-envoys"));
        assert!(!warming.contains(&fleet, "by-probers"));
        let look = warming.next_look().unwrap();
        assert!(!warming.end(look, |_| false), "nobody has taken it");
        assert!(warming.next_look().unwrap() > look);
        assert!(warming.end(look, |name| *name == fleet));
        assert!(!warming.contains(&fleet, "by-envoys"));
        assert_eq!(warming.next_look(), None);
    }

    #[test]
    fn h7_it_ends_when_the_last_endpoint_must_have_been_checked() {
        let now = vitals_prober::clock::now();
        let (mut warming, fleet) = begun(now);
        // initial_jitter 1 s, timeout 2 s, and the slack.
        let bound = Duration::from_millis(3_500);
        let just_before = now + bound - Duration::from_millis(1);
        assert!(!warming.end(just_before, |_| false));
        assert!(warming.contains(&fleet, "by-envoys"));
        assert!(warming.end(now + bound, |_| false));
        assert!(!warming.contains(&fleet, "by-envoys"));
    }

    #[test]
    fn what_the_model_no_longer_has_is_forgotten() {
        let (mut warming, fleet) = begun(vitals_prober::clock::now());
        warming.keep(&model(BOTH));
        assert!(warming.contains(&fleet, "by-envoys"));
        warming.keep(&model(&BOTH.replace("by-envoys", "other")));
        assert!(!warming.contains(&fleet, "by-envoys"));
    }
}
