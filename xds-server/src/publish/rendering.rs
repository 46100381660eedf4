//! What is rendered, and when: clusters, listeners and routes with a model, load assignments with every change of health.
//!
//! In: models, health views, what Envoys have taken. Out: per fleet what it is served now. What did not change is not
//! encoded again, and fleets share what is the same for them.
//!
//! Not here: what a resource says (`resources`), and what of it a fleet may see yet (`assemble`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::assemble::{RegionOrder, Rendered, assemble};
use super::warming::Warming;
use crate::health::{HealthView, ServiceView};
use crate::model::{EndpointDiscovery, Fleet, ListenerKind, Model, Name, Service};
use crate::resources;
use crate::resources::leds::{Endpoints, Paths};
use crate::snapshot::collections::Assignment;
use crate::snapshot::{DanglingReference, FleetSnapshot, Resource, ResourceType};

/// What was rendered last.
#[derive(Debug)]
pub(super) struct Rendering {
    model: Arc<Model>,
    rendered: BTreeMap<Name, Rendered>,
    /// The orders of regions of the fleets that have a service (semantics H10), and which forms they need.
    orders: BTreeMap<Name, BTreeMap<RegionOrder, Forms>>,
    /// The endpoints of services that a fleet gets apart (LEDS).
    endpoints: BTreeMap<Name, Endpoints>,
    paths: Paths,
    /// Listeners and routes by fleet.
    listeners: BTreeMap<Name, Vec<Arc<Resource>>>,
    /// What the fleets were served last.
    fleets: Vec<Arc<FleetSnapshot>>,
    warming: Warming,
    /// Whether something has become warm that is not served yet.
    something_is_warm: bool,
    model_is_new: bool,
}

/// The forms of one load assignment that are to be rendered.
#[derive(Clone, Copy, Debug, Default)]
struct Forms {
    plain: bool,
    apart: bool,
}

impl Rendering {
    /// Nothing yet. `generation` is that of the server's start; see [`Paths`].
    pub(super) fn new(generation: Arc<str>) -> Self {
        Self {
            model: Arc::default(),
            rendered: BTreeMap::new(),
            orders: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            paths: Paths::new(generation),
            listeners: BTreeMap::new(),
            fleets: Vec::new(),
            warming: Warming::default(),
            something_is_warm: false,
            model_is_new: false,
        }
    }

    /// The model that was taken last.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the model has not been served yet.
    pub(super) fn model_is_new(&self) -> bool {
        self.model_is_new
    }

    /// Whether there is something to serve that does not come from health.
    pub(super) fn is_touched(&self) -> bool {
        self.model_is_new || self.something_is_warm
    }

    /// When [`Self::look_at_warming`] is to be called; `None`: nothing warms.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.warming.next_look()
    }

    /// Looks which clusters have become warm. `taken`: whether all connected Envoys of a fleet have taken this version of its
    /// clusters.
    pub(super) fn look_at_warming(&mut self, now: Instant, taken: impl Fn(&Name, &str) -> bool) {
        let fleets = &self.fleets;
        let taken = |name: &Name| {
            let served = fleets.iter().find(|fleet| fleet.name() == name);
            served.is_none_or(|fleet| taken(name, fleet.of_type(ResourceType::Cluster).version()))
        };
        self.something_is_warm |= self.warming.end(now, taken);
    }

    /// Takes a model. Clusters, listeners and routes depend on it alone; load assignments follow with the next `render`,
    /// which a new model makes of all services.
    pub(super) fn set_model(&mut self, model: Arc<Model>) {
        self.rendered
            .retain(|name, _| model.services.contains_key(name));
        for (name, service) in &model.services {
            let cluster = Arc::new(resources::cluster(service));
            let rendered = self
                .rendered
                .entry(name.clone())
                .or_insert_with(|| Rendered {
                    cluster: Arc::clone(&cluster),
                    assignments: BTreeMap::new(),
                    held: true,
                });
            rendered.cluster = cluster;
        }
        let service_of = |name: &Name| model.services.get(name).map(Arc::as_ref);
        self.listeners.clear();
        self.orders.clear();
        for fleet in &model.fleets {
            for name in &fleet.services {
                let orders = self.orders.entry(name.clone()).or_default();
                let forms = orders.entry(fleet.region_order.clone()).or_default();
                match fleet.endpoint_discovery {
                    EndpointDiscovery::Eds => forms.plain = true,
                    EndpointDiscovery::Leds => forms.apart = true,
                }
            }
            let of_fleet = self.listeners.entry(fleet.name.clone()).or_default();
            for listener in &fleet.listeners {
                of_fleet.push(Arc::new(resources::listener(listener, service_of)));
                if let ListenerKind::Http(routes) = &listener.kind {
                    of_fleet.push(Arc::new(resources::route_configuration(
                        &listener.name,
                        routes,
                        service_of,
                    )));
                }
            }
        }
        let orders = &self.orders;
        let stand_apart = |name: &Name| {
            let forms = orders.get(name).into_iter().flatten();
            forms.into_iter().any(|(_, forms)| forms.apart)
        };
        self.endpoints.retain(|name, _| stand_apart(name));
        self.model = model;
        self.model_is_new = true;
    }

    /// Renders the load assignments of these services. Says whether a stream can see any difference.
    pub(super) fn render(&mut self, services: &BTreeSet<Name>, view: &HealthView) -> bool {
        let mut changed = std::mem::take(&mut self.model_is_new);
        changed |= std::mem::take(&mut self.something_is_warm);
        for name in services {
            let (Some(rendered), Some(service), Some(view)) = (
                self.rendered.get_mut(name),
                self.model.services.get(name),
                view.services.get(name),
            ) else {
                continue;
            };
            changed |= rendered.held != view.held;
            rendered.held = view.held;
            let Some(orders) = self.orders.get(name) else {
                rendered.assignments.clear();
                continue;
            };
            let mut endpoints_changed = false;
            if orders.values().any(|forms| forms.apart) {
                let before = self.endpoints.get(name);
                let new = Endpoints::render(before, service, view, &mut self.paths);
                endpoints_changed = before.is_none_or(|before| !new.is_same_as(before));
                self.endpoints.insert(name.clone(), new);
            }
            let endpoints = self.endpoints.get(name);
            let mut before = std::mem::take(&mut rendered.assignments);
            for (order, forms) in orders {
                let old = before.remove(order);
                let apart = endpoints.filter(|_| forms.apart);
                let new = match apart {
                    Some(endpoints) => assignment_apart(endpoints, service, view, order),
                    None => {
                        let plain = resources::assignment(service, view, order);
                        Assignment::plain_only(Arc::new(plain))
                    }
                };
                // The same content keeps the same bytes, and the memory of the new ones is given back.
                let same = old.filter(|old| {
                    let of_before = old.without_endpoints().map(|old| old.digest());
                    of_before == new.without_endpoints().map(|new| new.digest())
                        && !(apart.is_some() && endpoints_changed)
                        && (!forms.plain || old.plain().digest() == new.plain().digest())
                });
                changed |= same.is_none();
                rendered
                    .assignments
                    .insert(order.clone(), same.unwrap_or_else(|| Arc::new(new)));
            }
        }
        changed
    }

    /// What every fleet is served now.
    ///
    /// # Errors
    /// When what was rendered contradicts itself; a defect of ours.
    pub(super) fn assemble(
        &mut self,
        now: Instant,
    ) -> Result<Vec<Arc<FleetSnapshot>>, DanglingReference> {
        self.warming.keep(&self.model);
        for fleet in &self.model.fleets {
            let Some(before) = self.fleets.iter().find(|old| *old.name() == fleet.name) else {
                continue;
            };
            let before = before.of_type(ResourceType::ClusterLoadAssignment);
            for name in &fleet.services {
                let is_new = !before.resources().contains_key(name.as_str());
                if is_new
                    && self.rendered.get(name).is_some_and(|new| !new.held)
                    && let Some(service) = self.model.services.get(name)
                {
                    self.warming.begin(fleet, service, now);
                }
            }
        }
        let assemble = |fleet: &Arc<Fleet>| {
            let before = self
                .fleets
                .iter()
                .find(|before| *before.name() == fleet.name);
            let listeners = self
                .listeners
                .get(&fleet.name)
                .map_or(&[][..], Vec::as_slice);
            let services = fleet
                .services
                .iter()
                .filter_map(|name| self.rendered.get(name));
            let warming = |service: &str| self.warming.contains(&fleet.name, service);
            let new = assemble(fleet, services, warming, listeners, before.map(Arc::as_ref))?;
            if let Some(before) = before {
                new.anticipate(before);
            }
            Ok(Arc::new(new))
        };
        let fleets: Vec<_> = self
            .model
            .fleets
            .iter()
            .map(assemble)
            .collect::<Result<_, _>>()?;
        self.fleets.clone_from(&fleets);
        Ok(fleets)
    }
}

/// The load assignment of a service whose endpoints stand apart. The plain form is encoded when somebody needs it.
fn assignment_apart(
    endpoints: &Endpoints,
    service: &Arc<Service>,
    view: &Arc<ServiceView>,
    order: &RegionOrder,
) -> Assignment {
    let apart = Arc::new(endpoints.assignment(order));
    let collections = endpoints.collections().cloned().collect();
    let (service, view, order) = (Arc::clone(service), Arc::clone(view), order.clone());
    let plain = move || Arc::new(resources::assignment(&service, &view, &order));
    Assignment::apart(apart, collections, plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeMatcher, Protocol};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn fleet(of: &str, order: &[&str]) -> Arc<Fleet> {
        Arc::new(Fleet {
            name: name(of),
            matcher: NodeMatcher::default(),
            allow: None,
            services: [name("shop")].into(),
            listeners: Vec::new(),
            region_order: order.iter().map(|&region| region.into()).collect(),
            endpoint_discovery: EndpointDiscovery::Eds,
        })
    }

    /// The same fleet, with its endpoints apart.
    fn apart(of: Arc<Fleet>) -> Arc<Fleet> {
        Arc::new(Fleet {
            endpoint_discovery: EndpointDiscovery::Leds,
            ..Fleet::clone(&of)
        })
    }

    fn served(rendering: &mut Rendering, fleets: Vec<Arc<Fleet>>) -> Vec<Arc<Resource>> {
        let shop = Service::new(name("shop"), Protocol::Http);
        rendering.set_model(Arc::new(Model {
            services: [(name("shop"), Arc::new(shop))].into(),
            fleets,
            ..Model::default()
        }));
        let view = HealthView {
            services: [(name("shop"), Arc::new(ServiceView::default()))].into(),
        };
        assert!(
            rendering.render(&[name("shop")].into(), &view),
            "a new model"
        );
        assert!(
            !rendering.render(&[name("shop")].into(), &view),
            "nothing new"
        );
        let fleets = rendering.assemble(vitals_prober::clock::now()).unwrap();
        let assignment = |fleet: &Arc<FleetSnapshot>| {
            let of_type = fleet.of_type(ResourceType::ClusterLoadAssignment);
            Arc::clone(of_type.resources().get("shop").unwrap())
        };
        fleets.iter().map(assignment).collect()
    }

    #[test]
    fn h10_fleets_of_the_same_order_share_one_assignment() {
        let mut rendering = Rendering::new("g".into());
        let fleets = vec![fleet("a", &["x"]), fleet("b", &["x"]), fleet("c", &[])];
        let before = served(&mut rendering, fleets);
        assert!(Arc::ptr_eq(&before[0], &before[1]));
        assert!(!Arc::ptr_eq(&before[0], &before[2]));
        // An order that comes with a reload is rendered at once; one that stays is not encoded anew.
        let after = served(&mut rendering, vec![fleet("a", &["y"]), fleet("c", &[])]);
        assert!(Arc::ptr_eq(&after[1], &before[2]));
    }

    #[test]
    fn fleets_of_both_forms_share_what_is_the_same_for_them() {
        let mut rendering = Rendering::new("g".into());
        let plain = fleet("a", &["x"]);
        let fleets = vec![plain, apart(fleet("b", &["x"])), apart(fleet("c", &["y"]))];
        drop(served(&mut rendering, fleets));
        let [a, b, c] = &rendering.fleets[..] else {
            panic!("three fleets");
        };
        let kind = ResourceType::ClusterLoadAssignment;
        let shop = |of: &FleetSnapshot, apart| {
            Arc::clone(of.of_type_for(kind, apart).resources().get("shop").unwrap())
        };
        assert!(Arc::ptr_eq(&shop(a, false), &shop(b, false)));
        assert!(
            Arc::ptr_eq(&shop(a, true), &shop(a, false)),
            "it has one form"
        );
        assert!(a.collections().is_none());
        let collections = |of: &FleetSnapshot| of.collections().unwrap().version().clone();
        assert_eq!(
            collections(b),
            collections(c),
            "collections know no regions"
        );
    }

    #[test]
    fn what_a_fleet_no_longer_needs_is_not_kept() {
        let mut rendering = Rendering::new("g".into());
        drop(served(&mut rendering, vec![apart(fleet("a", &[]))]));
        assert_eq!(rendering.endpoints.len(), 1);
        let after = served(&mut rendering, vec![fleet("a", &[])]);
        assert!(rendering.endpoints.is_empty());
        let shop = Service::new(name("shop"), Protocol::Http);
        let due = resources::assignment(&shop, &ServiceView::default(), &[]);
        assert_eq!(after[0].version(), due.version());
    }
}
