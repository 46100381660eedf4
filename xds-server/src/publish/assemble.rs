//! One fleet's snapshot out of rendered services, listeners and routes.
//!
//! In: what was rendered, and what the fleet was served before. Out: a [`FleetSnapshot`]. A service whose load
//! assignment is held (design 5.3) warms in the Envoy. A listener or a route that leads to it would fail requests
//! meanwhile, so it stays as it was, together with what it refers to; one that is new is held too, and while it is, no
//! listener leaves, because the new one may be an old one under another name. The same goes for a service that Envoys check
//! first: its endpoints are published, but the cluster warms until they have been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{EndpointDiscovery, Fleet};
use crate::snapshot::collections::Assignment;
use crate::snapshot::{DanglingReference, FleetSnapshot, Resource, ResourceType};

/// The resources of one service as they were rendered last.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) cluster: Arc<Resource>,
    /// One for each order of regions that a fleet with this service has (semantics H10), in the forms that they need.
    pub(super) assignments: BTreeMap<RegionOrder, Arc<Assignment>>,
    pub(super) held: bool,
}

/// `fleets[].regionOrder`.
pub(super) type RegionOrder = Vec<Arc<str>>;

type Id = (ResourceType, Arc<str>);

/// What a fleet will be served, as it is gathered.
#[derive(Debug)]
struct Gathered {
    apart: bool,
    there: BTreeMap<Id, Arc<Resource>>,
    /// The load assignments among them, where endpoints stand apart.
    assignments: Vec<Arc<Assignment>>,
    held: BTreeSet<Id>,
}

impl Gathered {
    fn add(&mut self, resource: &Arc<Resource>) {
        self.there.insert(id(resource), Arc::clone(resource));
    }

    fn add_assignment(&mut self, assignment: &Arc<Assignment>) {
        match assignment.without_endpoints().filter(|_| self.apart) {
            Some(without_endpoints) => self.add(without_endpoints),
            None => self.add(assignment.plain()),
        }
        if self.apart {
            self.assignments.push(Arc::clone(assignment));
        }
    }

    /// Keeps a resource as it was, and of what it refers to what is no longer there.
    fn carry(&mut self, resource: &Arc<Resource>, before: &FleetSnapshot) {
        let apart = before.collections();
        if resource.kind() != ResourceType::ClusterLoadAssignment {
            self.add(resource);
        } else if let Some(assignment) = apart.and_then(|all| all.assignment(resource.name())) {
            self.add_assignment(assignment);
        } else {
            self.add_assignment(&Arc::new(Assignment::plain_only(Arc::clone(resource))));
        }
        for reference in resource.references() {
            if self.there.contains_key(reference) || self.held.contains(reference) {
                continue;
            }
            let (kind, name) = reference;
            match before.of_type(*kind).resources().get(name) {
                Some(old) => self.carry(old, before),
                // It was held then, or there would have been no snapshot.
                None => drop(self.held.insert(reference.clone())),
            }
        }
    }
}

/// The snapshot of a fleet. `warming` are the services that its Envoys still check for the first time; `before` is what
/// it was served last.
pub(super) fn assemble<'a>(
    fleet: &Fleet,
    services: impl Iterator<Item = &'a Rendered>,
    warming: impl Fn(&str) -> bool,
    listeners: &[Arc<Resource>],
    before: Option<&FleetSnapshot>,
) -> Result<FleetSnapshot, DanglingReference> {
    let mut new = Gathered {
        apart: fleet.endpoint_discovery == EndpointDiscovery::Leds,
        there: BTreeMap::new(),
        assignments: Vec::new(),
        held: BTreeSet::new(),
    };
    // The clusters that cannot serve yet, then whatever leads to one.
    let mut closed: BTreeSet<Id> = BTreeSet::new();
    for service in services {
        new.add(&service.cluster);
        match service.assignments.get(&fleet.region_order) {
            Some(assignment) if !service.held => {
                new.add_assignment(assignment);
                if warming(service.cluster.name()) {
                    closed.insert(id(&service.cluster));
                }
            }
            Some(_) | None => {
                let name = Arc::clone(service.cluster.name());
                new.held.insert((ResourceType::ClusterLoadAssignment, name));
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
                Some((before, old)) => new.carry(old, before),
                None => drop(new.held.insert(id(resource))),
            }
        } else {
            new.add(resource);
        }
    }
    let holds = |kind| new.held.iter().any(|(held, _)| *held == kind);
    if let Some(before) = before
        && holds(ResourceType::Listener)
    {
        for old in before.of_type(ResourceType::Listener).resources().values() {
            if !new.there.contains_key(&id(old)) {
                new.carry(old, before);
            }
        }
    }
    let mut snapshot = FleetSnapshot::new(
        fleet.name.clone(),
        fleet.matcher.clone(),
        new.there.into_values(),
        new.held,
    )?;
    snapshot = snapshot.admitting(fleet.allow.clone());
    if new.apart {
        snapshot = snapshot.with_collections(new.assignments);
    }
    Ok(match before {
        Some(before) => snapshot.following(before),
        None => snapshot,
    })
}

fn id(resource: &Arc<Resource>) -> Id {
    (resource.kind(), Arc::clone(resource.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{DetailedStatus, EdsStatus, EndpointView, Pool, Rule, ServiceView};
    use crate::model::{
        EndpointGroup, GroupKind, Listener, ListenerKind, Locality, Name, NodeMatcher, Protocol,
        Route, Service,
    };
    use crate::resources::{
        self,
        leds::{Endpoints, Paths},
    };
    use ResourceType::{Cluster, ClusterLoadAssignment, Listener as Lds, RouteConfiguration};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn rendered(service: &str, held: bool) -> Rendered {
        let service = Service::new(name(service), Protocol::Http);
        let assignment = resources::assignment(&service, &ServiceView::default(), &[]);
        Rendered {
            cluster: Arc::new(resources::cluster(&service)),
            assignments: [(
                RegionOrder::new(),
                Arc::new(Assignment::plain_only(Arc::new(assignment))),
            )]
            .into(),
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
        served_as(EndpointDiscovery::Eds, services, listeners, before)
    }

    fn served_as(
        endpoint_discovery: EndpointDiscovery,
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
            endpoint_discovery,
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

    /// A service with one endpoint that stands apart.
    fn apart(service: &str, held: bool, paths: &mut Paths) -> Rendered {
        let service = Arc::new(Service::new(name(service), Protocol::Http));
        let view = Arc::new(ServiceView {
            endpoints: vec![Arc::new(endpoint())],
            ..ServiceView::default()
        });
        let endpoints = Endpoints::render(None, &service, &view, paths);
        let collections = endpoints.collections().cloned().collect();
        let plain = Arc::new(resources::assignment(&service, &view, &[]));
        let without = Arc::new(endpoints.assignment(&[]));
        let assignment = Assignment::apart(without, collections, move || plain);
        Rendered {
            cluster: Arc::new(resources::cluster(&service)),
            assignments: [(RegionOrder::new(), Arc::new(assignment))].into(),
            held,
        }
    }

    fn endpoint() -> EndpointView {
        EndpointView {
            group: Arc::new(EndpointGroup {
                name: name("dc1"),
                kind: GroupKind::NonGcpPrivateIpPort,
                locality: Locality::default(),
                endpoints: Vec::new(),
            }),
            address: "192.0.2.1:80".parse().unwrap(),
            pool: Pool::Primary,
            by: None,
            probe_address: None,
            weight: Some(1),
            status: Some(EdsStatus::Healthy),
            detailed: DetailedStatus::Healthy,
            reason: None,
            since: std::time::SystemTime::UNIX_EPOCH,
            rule: Rule::NoCheck,
            pinned: None,
            votes: Box::default(),
        }
    }

    /// What the load assignment of `shop` is as large as: for a client that takes endpoints apart, and for another.
    fn sizes(fleet: &FleetSnapshot) -> (usize, usize) {
        let size = |apart| {
            let of_type = fleet.of_type_for(ClusterLoadAssignment, apart);
            of_type.resources().get("shop").unwrap().any().len()
        };
        (size(true), size(false))
    }

    #[test]
    fn a_held_service_has_no_collections() {
        let mut paths = Paths::new("g".into());
        let (cart, shop) = (
            apart("cart", true, &mut paths),
            apart("shop", false, &mut paths),
        );
        let services = [cart, shop];
        let fleet = served_as(EndpointDiscovery::Leds, &services, &[], None);
        let collections = fleet.collections().unwrap();
        assert!(collections.assignment("shop").is_some());
        assert!(collections.assignment("cart").is_none());
        for kind_of in [true, false] {
            let of_type = fleet.of_type_for(ClusterLoadAssignment, kind_of);
            assert!(of_type.is_held("cart") && !of_type.is_held("shop"));
        }
    }

    #[test]
    fn what_a_route_still_leads_to_keeps_its_collections() {
        let mut paths = Paths::new("g".into());
        let leds = EndpointDiscovery::Leds;
        let shop = [apart("shop", false, &mut paths)];
        let cart = [apart("cart", true, &mut paths)];
        let before = served_as(leds, &shop, &to("shop"), None);
        let during = served_as(leds, &cart, &to("cart"), Some(&before));
        let collections = during.collections().unwrap();
        assert_eq!(
            collections.assignment("shop").unwrap().collections().len(),
            1
        );
        assert_eq!(sizes(&during), sizes(&before));
        // A fleet that turns from one form to the other meanwhile has each in its own.
        let turned = served_as(EndpointDiscovery::Eds, &cart, &to("cart"), Some(&before));
        assert!(turned.collections().is_none());
        let (_, plain) = sizes(&before);
        assert_eq!(sizes(&turned), (plain, plain));
        let back = served_as(leds, &cart, &to("cart"), Some(&turned));
        assert_eq!(
            sizes(&back),
            (plain, plain),
            "Envoys take the plain form too"
        );
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
