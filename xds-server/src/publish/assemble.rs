//! One fleet's snapshot out of rendered services, listeners and routes.
//!
//! In: what was rendered, and what the fleet was served before. Out: a [`FleetSnapshot`]. A service whose load
//! assignment is held (design 5.3) warms in the Envoy. A listener or a route that leads to it would fail requests
//! meanwhile, so it stays as it was, together with what it refers to; one that is new is held too, and while it is, no
//! listener leaves, because the new one may be an old one under another name. The same goes for a service that Envoys check
//! first: its endpoints are published, but the cluster warms until they have been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::Fleet;
use crate::snapshot::{DanglingReference, FleetSnapshot, Resource, ResourceType};

/// The resources of one service as they were rendered last.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) cluster: Arc<Resource>,
    /// One for each order of regions that a fleet with this service has (semantics H10).
    pub(super) assignments: BTreeMap<RegionOrder, Arc<Resource>>,
    pub(super) held: bool,
}

/// `fleets[].regionOrder`.
pub(super) type RegionOrder = Vec<Arc<str>>;

type Id = (ResourceType, Arc<str>);

/// The snapshot of a fleet. `warming` are the services that its Envoys still check for the first time; `before` is what
/// it was served last.
pub(super) fn assemble<'a>(
    fleet: &Fleet,
    services: impl Iterator<Item = &'a Rendered>,
    warming: impl Fn(&str) -> bool,
    listeners: &[Arc<Resource>],
    before: Option<&FleetSnapshot>,
) -> Result<FleetSnapshot, DanglingReference> {
    let mut there: BTreeMap<Id, Arc<Resource>> = BTreeMap::new();
    let mut held: BTreeSet<Id> = BTreeSet::new();
    let mut add = |resource: &Arc<Resource>| drop(there.insert(id(resource), Arc::clone(resource)));
    // The clusters that cannot serve yet, then whatever leads to one.
    let mut closed: BTreeSet<Id> = BTreeSet::new();
    for service in services {
        add(&service.cluster);
        match service.assignments.get(&fleet.region_order) {
            Some(assignment) if !service.held => {
                add(assignment);
                if warming(service.cluster.name()) {
                    closed.insert(id(&service.cluster));
                }
            }
            Some(_) | None => {
                let name = Arc::clone(service.cluster.name());
                held.insert((ResourceType::ClusterLoadAssignment, name));
                closed.insert(id(&service.cluster));
            }
        }
    }
    // Routes before the listeners that lead to them.
    let mut listeners: Vec<&Arc<Resource>> = listeners.iter().collect();
    listeners.sort_by_key(|resource| std::cmp::Reverse(resource.kind()));
    for resource in listeners {
        if resource
            .references()
            .iter()
            .any(|reference| closed.contains(reference))
        {
            closed.insert(id(resource));
            let old = before.and_then(|before| {
                Some((
                    before,
                    before
                        .of_type(resource.kind())
                        .resources()
                        .get(resource.name())?,
                ))
            });
            match old {
                Some((before, old)) => carry(old, before, &mut there, &mut held),
                None => drop(held.insert(id(resource))),
            }
        } else {
            there.insert(id(resource), Arc::clone(resource));
        }
    }
    if let Some(before) = before
        && held.iter().any(|(kind, _)| *kind == ResourceType::Listener)
    {
        for old in before.of_type(ResourceType::Listener).resources().values() {
            if !there.contains_key(&id(old)) {
                carry(old, before, &mut there, &mut held);
            }
        }
    }
    let new = FleetSnapshot::new(
        fleet.name.clone(),
        fleet.matcher.clone(),
        there.into_values(),
        held,
    )?;
    let new = new.admitting(fleet.allow.clone());
    Ok(match before {
        Some(before) => new.following(before),
        None => new,
    })
}

/// Keeps a resource as it was, and of what it refers to what is no longer there.
fn carry(
    resource: &Arc<Resource>,
    before: &FleetSnapshot,
    there: &mut BTreeMap<Id, Arc<Resource>>,
    held: &mut BTreeSet<Id>,
) {
    there.insert(id(resource), Arc::clone(resource));
    for reference in resource.references() {
        if there.contains_key(reference) || held.contains(reference) {
            continue;
        }
        let (kind, name) = reference;
        match before.of_type(*kind).resources().get(name) {
            Some(old) => carry(old, before, there, held),
            // It was held then, or there would have been no snapshot.
            None => drop(held.insert(reference.clone())),
        }
    }
}

fn id(resource: &Arc<Resource>) -> Id {
    (resource.kind(), Arc::clone(resource.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::ServiceView;
    use crate::model::{Listener, ListenerKind, Name, NodeMatcher, Protocol, Route, Service};
    use crate::resources;
    use ResourceType::{Cluster, ClusterLoadAssignment, Listener as Lds, RouteConfiguration};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn rendered(service: &str, held: bool) -> Rendered {
        let service = Service::new(name(service), Protocol::Http);
        let assignment = resources::assignment(&service, &ServiceView::default(), &[]);
        Rendered {
            cluster: Arc::new(resources::cluster(&service)),
            assignments: [(RegionOrder::new(), Arc::new(assignment))].into(),
            held,
        }
    }

    /// An HTTP listener `http` and its routes.
    fn to(service: &str) -> Vec<Arc<Resource>> {
        let route = Route {
            domains: vec!["*".into()],
            prefix: "/".into(),
            service: name(service),
        };
        let routes =
            resources::route_configuration(&name("http"), std::slice::from_ref(&route), |_| None);
        let kind = ListenerKind::Http(vec![route]);
        let listener = Listener {
            name: name("http"),
            address: "127.0.0.1:80".parse().unwrap(),
            kind,
        };
        vec![
            Arc::new(resources::listener(&listener, |_| None)),
            Arc::new(routes),
        ]
    }

    /// A TCP listener on the address of the one that [`to`] makes.
    fn renamed(service: &str) -> Vec<Arc<Resource>> {
        let kind = ListenerKind::Tcp(name(service));
        let listener = Listener {
            name: name("web"),
            address: "127.0.0.1:80".parse().unwrap(),
            kind,
        };
        vec![Arc::new(resources::listener(&listener, |_| None))]
    }

    fn served(
        services: &[Rendered],
        listeners: &[Arc<Resource>],
        before: Option<&FleetSnapshot>,
    ) -> FleetSnapshot {
        let fleet = Fleet {
            name: name("edge"),
            matcher: NodeMatcher::default(),
            allow: None,
            services: BTreeSet::new(),
            listeners: Vec::new(),
            region_order: Vec::new(),
        };
        assemble(&fleet, services.iter(), |_| false, listeners, before).unwrap()
    }

    fn names(fleet: &FleetSnapshot, kind: ResourceType) -> Vec<&str> {
        fleet
            .of_type(kind)
            .resources()
            .keys()
            .map(|name| &**name)
            .collect()
    }

    #[test]
    fn what_leads_to_a_held_service_is_held_when_it_is_new() {
        let fleet = served(&[rendered("shop", true)], &to("shop"), None);
        assert_eq!(names(&fleet, Cluster), ["shop"]);
        assert!(fleet.of_type(ClusterLoadAssignment).is_held("shop"));
        assert!(
            fleet.of_type(Lds).is_held("http") && fleet.of_type(RouteConfiguration).is_held("http")
        );
    }

    #[test]
    fn a_route_that_turns_to_a_held_service_stays_as_it_was_with_all_that_it_needs() {
        let before = served(&[rendered("shop", false)], &to("shop"), None);
        let old = before.of_type(RouteConfiguration).version();
        // The old service is gone from the configuration, but its route still leads there.
        let during = served(&[rendered("cart", true)], &to("cart"), Some(&before));
        assert_eq!(during.of_type(RouteConfiguration).version(), old);
        assert_eq!(names(&during, Cluster), ["cart", "shop"]);
        assert_eq!(names(&during, ClusterLoadAssignment), ["shop"]);
        assert_eq!(names(&during, Lds), ["http"]);
        let after = served(&[rendered("cart", false)], &to("cart"), Some(&during));
        assert_ne!(after.of_type(RouteConfiguration).version(), old);
        assert_eq!(names(&after, Cluster), ["cart"]);
    }

    #[test]
    fn no_listener_leaves_while_its_successor_is_held() {
        let before = served(&[rendered("shop", false)], &to("shop"), None);
        let during = served(&[rendered("cart", true)], &renamed("cart"), Some(&before));
        assert_eq!(names(&during, Lds), ["http"]);
        assert_eq!(names(&during, Cluster), ["cart", "shop"]);
        let after = served(&[rendered("cart", false)], &renamed("cart"), Some(&during));
        assert_eq!(
            (names(&after, Lds), names(&after, Cluster)),
            (vec!["web"], vec!["cart"])
        );
    }
}
