//! An Envoy whose fleet has its endpoints apart (LEDS), as it behaved when it was measured, against a server whose state
//! changes under it and that may be started anew: at the end it must have exactly the server's endpoints.
//!
//! What was measured: a changed cluster is a second one, which waits for its load assignment and all collections of it
//! while the first one serves, and asks for nothing that is subscribed to already; a subscription to a collection says no
//! versions, also after a reconnect; a name outside all collections is passed over; a load assignment that is given up and
//! comes back finds nothing of its collections. Where endpoints do not stand apart, a cluster that waits in vain takes the load
//! assignment that the Envoy has; so the server need not send it to one that reconnects while it waits.
//!
//! Beside it are two clients that take no collections, whom the same fleet serves load assignments with their endpoints; and
//! a reload may turn the fleet from the one form to the other.
//!
//! As in `oracle`, logs are so short that streams fall off them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LedsClusterLocalityConfig, LocalityLbEndpoints,
    locality_lb_endpoints::LbConfig,
};
use envoy_types::pb::google::protobuf::Any;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::model::{Name, NodeMatcher};
use crate::snapshot::collections::{Assignment, Collection};
use ResourceType::LbEndpoint as Leds;

const SERVICES: [&str; 2] = ["a", "b"];
const GROUPS: usize = 2;

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// A service is there in this revision, or gone.
    Cluster(usize, Option<u32>),
    /// An endpoint of a group of a service is there in this revision, or gone.
    Endpoint(usize, usize, usize, Option<u32>),
    /// Which of its groups comes first.
    Exchange(usize),
    /// A reload: endpoints no longer stand apart, or do again.
    Turn,
    /// A collection gets a new path.
    Renew(usize, usize),
    Hold(usize, bool),
    /// The next snapshot knows of none before it.
    Forget,
    Send,
    Take,
    /// The same of a client that takes no collections.
    PlainSend(usize),
    PlainTake(usize),
    /// The connection breaks; what is under way is lost.
    Reconnect,
    /// The server dies, and another takes its place.
    Restart,
}

#[derive(Debug, Default)]
struct Service {
    cluster: Option<u32>,
    held: bool,
    exchanged: bool,
    endpoints: BTreeMap<(usize, usize), u32>,
    groups: [Option<Arc<Collection>>; GROUPS],
}

#[derive(Debug, Default)]
struct World {
    services: [Service; 2],
    together: bool,
    generation: u32,
    last: u32,
    published: Option<FleetSnapshot>,
}

impl World {
    /// Brings the collection of a group in step.
    fn render(&mut self, service: usize, group: usize, renew: bool) {
        let of = &mut self.services[service];
        let due: Vec<(usize, u32)> = (of.endpoints.iter())
            .filter(|((of_group, _), _)| *of_group == group)
            .map(|(&(_, endpoint), &revision)| (endpoint, revision))
            .collect();
        let slot = &mut of.groups[group];
        if due.is_empty() || self.together {
            *slot = None;
            return;
        }
        let entries = |glob: &str| -> Vec<Arc<Resource>> {
            let path = glob.strip_suffix('*').unwrap();
            due.iter()
                .map(|(endpoint, revision)| resource(Leds, &format!("{path}{endpoint}"), *revision))
                .collect()
        };
        *slot = Some(Arc::new(match slot.as_ref().filter(|_| !renew) {
            Some(old) => {
                let there = entries(old.glob());
                let is_there = |name: &Arc<str>| there.iter().any(|entry| entry.name() == name);
                let gone = old.entries().keys().filter(|name| !is_there(name));
                let gone: Vec<_> = gone.cloned().collect();
                let same = |entry: &Arc<Resource>| old.entries().get(entry.name()) == Some(entry);
                let changed: Vec<_> = there.iter().filter(|entry| !same(entry)).cloned().collect();
                if changed.is_empty() && gone.is_empty() {
                    return;
                }
                old.next_within(changed, gone, 3)
            }
            None => {
                self.last += 1;
                let (generation, number) = (self.generation, self.last);
                let glob = format!(
                    "xdstp://vitals/{generation}.{number}/{}/*",
                    SERVICES[service]
                );
                let entries = entries(&glob);
                Collection::new(glob.into(), entries)
            }
        }));
    }

    fn fleet(&self) -> FleetSnapshot {
        let (mut resources, mut held, mut assignments) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (service, name) in self.services.iter().zip(SERVICES) {
            let Some(revision) = service.cluster else {
                continue;
            };
            resources.push(resource(Cds, name, revision));
            if service.held {
                held.insert((Eds, name.into()));
                continue;
            }
            if self.together {
                resources.push(service.plain(name));
                continue;
            }
            let mut collections: Vec<_> = service.groups.iter().flatten().cloned().collect();
            if service.exchanged {
                collections.reverse();
            }
            let endpoints = collections.iter().map(|collection| LocalityLbEndpoints {
                lb_config: Some(LbConfig::LedsClusterLocalityConfig(
                    LedsClusterLocalityConfig {
                        leds_collection_name: (**collection.glob()).into(),
                        ..LedsClusterLocalityConfig::default()
                    },
                )),
                ..LocalityLbEndpoints::default()
            });
            let message = ClusterLoadAssignment {
                cluster_name: name.into(),
                endpoints: endpoints.collect(),
                ..ClusterLoadAssignment::default()
            };
            let apart = Arc::new(Resource::new(Eds, name.into(), &message, Vec::new()));
            resources.push(Arc::clone(&apart));
            let plain = service.plain(name);
            assignments.push(Arc::new(Assignment::apart(apart, collections, || plain)));
        }
        let edge = Name::new("edge").unwrap();
        let fleet = FleetSnapshot::new(edge, NodeMatcher::default(), resources, held).unwrap();
        if self.together {
            fleet
        } else {
            fleet.with_collections(assignments)
        }
    }

    fn publish(&mut self) {
        let next = self.fleet();
        self.published = Some(match &self.published {
            Some(before) => next.following_within(before, 3),
            None => next,
        });
    }

    fn published(&mut self) -> &FleetSnapshot {
        if self.published.is_none() {
            self.publish();
        }
        self.published.as_ref().unwrap()
    }

    fn restart(&mut self) {
        self.published = None;
        (self.generation, self.last) = (self.generation + 1, 0);
        self.render_anew();
    }

    fn turn(&mut self) {
        self.together ^= true;
        self.render_anew();
    }

    fn render_anew(&mut self) {
        for service in 0..SERVICES.len() {
            for group in 0..GROUPS {
                self.services[service].groups[group] = None;
                self.render(service, group, true);
            }
        }
    }
}

impl Service {
    /// Its load assignment with its endpoints in it.
    fn plain(&self, name: &str) -> Arc<Resource> {
        let content = format!("{:?} {}", self.endpoints, self.exchanged);
        let message = ClusterLoadAssignment {
            cluster_name: name.into(),
            named_endpoints: [(content, Endpoint::default())].into(),
            ..ClusterLoadAssignment::default()
        };
        Arc::new(Resource::new(Eds, name.into(), &message, Vec::new()))
    }
}

/// A client that takes no collections and wants both load assignments.
#[derive(Debug)]
struct Plain {
    stream: Stream,
    inbox: VecDeque<Response>,
    has: BTreeMap<String, u64>,
}

impl Plain {
    fn of(transport: Transport) -> Self {
        let mut stream = Stream::new(transport);
        match transport {
            Transport::Sotw => stream.on_sotw(Self::sotw(""), UNIX_EPOCH),
            Transport::Delta => stream.on_delta(delta_request(Eds, &SERVICES, &[], ""), UNIX_EPOCH),
        }
        .unwrap();
        Self {
            stream,
            inbox: VecDeque::new(),
            has: BTreeMap::new(),
        }
    }

    fn sotw(nonce: &str) -> DiscoveryRequest {
        DiscoveryRequest {
            type_url: Eds.type_url().into(),
            resource_names: strings(&SERVICES),
            response_nonce: nonce.into(),
            ..DiscoveryRequest::default()
        }
    }

    fn take(&mut self) {
        let Some(response) = self.inbox.pop_front() else {
            return;
        };
        for resource in &response.resources {
            self.has
                .insert(resource.name().to_string(), resource.digest());
        }
        for name in &response.removed {
            self.has.remove(&**name);
        }
        match self.stream.transport() {
            Transport::Sotw => self.stream.on_sotw(Self::sotw(&response.nonce), UNIX_EPOCH),
            Transport::Delta => {
                let ack = delta_request(Eds, &[], &[], &response.nonce);
                self.stream.on_delta(ack, UNIX_EPOCH)
            }
        }
        .unwrap();
    }
}

type Entries = BTreeMap<String, u64>;

/// One cluster in the Envoy.
#[derive(Debug, Default)]
struct Instance {
    cluster: u64,
    assignment: Option<u64>,
    /// By glob, what has come; `None`: nothing yet.
    collections: BTreeMap<String, Option<Entries>>,
}

impl Instance {
    fn is_warm(&self) -> bool {
        self.assignment.is_some() && self.collections.values().all(Option::is_some)
    }
}

#[derive(Debug)]
struct Envoy {
    stream: Stream,
    inbox: VecDeque<Response>,
    /// By name, the one that serves or warms first, and the one that takes its place.
    clusters: BTreeMap<String, Vec<Instance>>,
    /// The versions of the last load assignments, as it shows them when it reconnects.
    assignments: BTreeMap<String, String>,
    subscribed: BTreeMap<ResourceType, BTreeSet<String>>,
}

fn stream() -> Stream {
    let mut stream = Stream::new(Transport::Delta);
    stream.take_collections();
    stream
}

impl Envoy {
    fn start() -> Self {
        let mut new = Self {
            stream: stream(),
            inbox: VecDeque::new(),
            clusters: BTreeMap::new(),
            assignments: BTreeMap::new(),
            subscribed: BTreeMap::new(),
        };
        new.connect();
        new
    }

    fn connect(&mut self) {
        (self.stream, self.inbox) = (stream(), VecDeque::new());
        // It has what still warms, though it has not acknowledged it.
        let acked = self.clusters.iter().filter_map(|(name, instances)| {
            let one = instances.last()?;
            Some((name.clone(), format!("{:016x}", one.cluster)))
        });
        let request = DeltaDiscoveryRequest {
            initial_resource_versions: acked.collect(),
            ..delta_request(Cds, &[], &[], "")
        };
        self.stream.on_delta(request, UNIX_EPOCH).unwrap();
        for (kind, names) in &self.subscribed {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if names.is_empty() {
                continue;
            }
            let mut request = delta_request(*kind, &names, &[], "");
            if *kind == Eds {
                request.initial_resource_versions = self.assignments.clone().into_iter().collect();
            }
            self.stream.on_delta(request, UNIX_EPOCH).unwrap();
        }
    }

    /// Tells the server what it wants now, if that has changed.
    fn subscribe(&mut self, kind: ResourceType, wanted: BTreeSet<String>) {
        let old = self.subscribed.entry(kind).or_default();
        let new: Vec<&str> = wanted.difference(old).map(String::as_str).collect();
        let given_up: Vec<&str> = old.difference(&wanted).map(String::as_str).collect();
        if !new.is_empty() || !given_up.is_empty() {
            let request = delta_request(kind, &new, &given_up, "");
            self.stream.on_delta(request, UNIX_EPOCH).unwrap();
        }
        if kind == Eds {
            self.assignments.retain(|name, _| wanted.contains(name));
        }
        self.subscribed.insert(kind, wanted);
    }

    /// A cluster that has waited for its load assignment for 15 s takes the one that the Envoy has, which is worth something
    /// where its endpoints are in it.
    fn time_out(&mut self) {
        for (name, instances) in &mut self.clusters {
            let cached = self.assignments.get(name);
            let cached = cached.and_then(|version| Resource::digest_of(version));
            if let Some(one) = instances.last_mut() {
                one.assignment = one.assignment.or(cached);
            }
            if instances.last().is_some_and(Instance::is_warm) {
                instances.drain(..instances.len() - 1);
            }
        }
    }

    fn take(&mut self) {
        let Some(response) = self.inbox.pop_front() else {
            return;
        };
        let removed = response.removed.iter().map(|name| &**name);
        match response.kind {
            Cds => {
                for resource in &response.resources {
                    let instances = self
                        .clusters
                        .entry(resource.name().to_string())
                        .or_default();
                    if instances
                        .last()
                        .is_some_and(|one| one.cluster == resource.digest())
                    {
                        continue;
                    }
                    // One that warms gives way to the new one.
                    instances.retain(Instance::is_warm);
                    instances.push(Instance {
                        cluster: resource.digest(),
                        ..Instance::default()
                    });
                }
                for name in removed {
                    self.clusters.remove(name);
                }
            }
            Eds => {
                for resource in &response.resources {
                    let any = Any::decode(&**resource.any()).unwrap();
                    let message = ClusterLoadAssignment::decode(&*any.value).unwrap();
                    let globs =
                        message
                            .endpoints
                            .into_iter()
                            .map(|locality| match locality.lb_config {
                                Some(LbConfig::LedsClusterLocalityConfig(config)) => {
                                    config.leds_collection_name
                                }
                                other => panic!("{other:?}"),
                            });
                    let globs: Vec<String> = globs.collect();
                    let name = resource.name().to_string();
                    self.assignments
                        .insert(name.clone(), resource.version().to_string());
                    for one in self.clusters.get_mut(&name).into_iter().flatten() {
                        one.assignment = Some(resource.digest());
                        one.collections.retain(|glob, _| globs.contains(glob));
                        for glob in &globs {
                            one.collections.entry(glob.clone()).or_default();
                        }
                    }
                }
                for name in removed {
                    self.assignments.remove(name);
                }
            }
            Leds => {
                for one in self.clusters.values_mut().flatten() {
                    for (glob, entries) in &mut one.collections {
                        let path = glob.strip_suffix('*').unwrap();
                        for resource in &response.resources {
                            if resource.name().starts_with(path) {
                                let entries = entries.get_or_insert_default();
                                entries.insert(resource.name().to_string(), resource.digest());
                            }
                        }
                        for name in removed.clone().filter(|name| name.starts_with(path)) {
                            entries.get_or_insert_default().remove(name);
                        }
                    }
                }
            }
            Lds | Rds => unreachable!("it asked for none"),
        }
        let ack = delta_request(response.kind, &[], &[], &response.nonce);
        self.stream.on_delta(ack, UNIX_EPOCH).unwrap();
        for instances in self.clusters.values_mut() {
            if instances.last().is_some_and(Instance::is_warm) {
                instances.drain(..instances.len() - 1);
            }
        }
        self.subscribe(Eds, self.clusters.keys().cloned().collect());
        let globs = self.clusters.values().flatten();
        let globs = globs.flat_map(|one| one.collections.keys().cloned());
        self.subscribe(Leds, globs.collect());
    }
}

fn run(events: Vec<Event>) {
    let mut world = World::default();
    let mut envoy = Envoy::start();
    let mut plain = [Transport::Sotw, Transport::Delta].map(Plain::of);
    for event in events {
        match event {
            Event::Cluster(service, revision) => world.services[service].cluster = revision,
            Event::Endpoint(service, group, endpoint, revision) => {
                let endpoints = &mut world.services[service].endpoints;
                match revision {
                    Some(revision) => endpoints.insert((group, endpoint), revision),
                    None => endpoints.remove(&(group, endpoint)),
                };
                world.render(service, group, false);
            }
            Event::Exchange(service) => world.services[service].exchanged ^= true,
            Event::Turn => world.turn(),
            Event::PlainSend(client) => {
                let response = plain[client].stream.next(world.published());
                plain[client].inbox.extend(response);
                continue;
            }
            Event::PlainTake(client) => {
                plain[client].take();
                continue;
            }
            Event::Renew(service, group) => world.render(service, group, true),
            Event::Hold(service, held) => world.services[service].held = held,
            Event::Forget => world.published = None,
            Event::Send => {
                let response = envoy.stream.next(world.published());
                envoy.inbox.extend(response);
                continue;
            }
            Event::Take => {
                envoy.take();
                continue;
            }
            Event::Reconnect => {
                envoy.connect();
                continue;
            }
            Event::Restart => {
                world.restart();
                envoy.connect();
            }
        }
        world.publish();
    }
    // Everything comes to rest.
    for service in &mut world.services {
        service.held = false;
    }
    world.publish();
    for _ in 0..100 {
        envoy.inbox.extend(envoy.stream.next(world.published()));
        envoy.take();
        for client in &mut plain {
            client.inbox.extend(client.stream.next(world.published()));
            client.take();
        }
    }
    if world.together {
        envoy.time_out();
    }
    assert_eq!(
        envoy.stream.next(world.published()),
        None,
        "it comes to rest"
    );
    for (service, name) in world.services.iter().zip(SERVICES) {
        let Some(revision) = service.cluster else {
            assert!(!envoy.clusters.contains_key(name), "{name} is gone");
            continue;
        };
        let due = service.plain(name).digest();
        for client in &plain {
            assert_eq!(client.has.get(name), Some(&due), "{name}: {client:?}");
        }
        let [one] = &envoy.clusters[name][..] else {
            panic!("{name} is still warming: {:?}", envoy.clusters[name]);
        };
        assert!(one.is_warm(), "{name}: {one:?}");
        assert_eq!(one.cluster, resource(Cds, name, revision).digest());
        let served = world.published.as_ref().unwrap().of_type(Eds);
        assert_eq!(one.assignment, Some(served.resources()[name].digest()));
        let due: BTreeMap<String, Option<Entries>> = (service.groups.iter().flatten())
            .map(|collection| {
                let entries = collection.entries().values();
                let entries = entries.map(|entry| (entry.name().to_string(), entry.digest()));
                (collection.glob().to_string(), Some(entries.collect()))
            })
            .collect();
        assert_eq!(one.collections, due, "{name}");
    }
}

fn event() -> impl Strategy<Value = Event> {
    let (service, group) = (0..SERVICES.len(), 0..GROUPS);
    let endpoint = prop::option::weighted(0.7, 0u32..3);
    prop_oneof![
        3 => (service.clone(), prop::option::weighted(0.9, 0u32..3)).prop_map(|(s, r)| Event::Cluster(s, r)),
        10 => (service.clone(), group.clone(), 0usize..3, endpoint).prop_map(|(s, g, e, r)| Event::Endpoint(s, g, e, r)),
        1 => service.clone().prop_map(Event::Exchange),
        1 => Just(Event::Turn),
        3 => (0usize..2).prop_map(Event::PlainSend),
        2 => (0usize..2).prop_map(Event::PlainTake),
        1 => (service.clone(), group).prop_map(|(s, g)| Event::Renew(s, g)),
        1 => (service, any::<bool>()).prop_map(|(s, held)| Event::Hold(s, held)),
        1 => Just(Event::Forget),
        8 => Just(Event::Send),
        7 => Just(Event::Take),
        1 => Just(Event::Reconnect),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn an_envoy_ends_with_exactly_the_servers_endpoints(events in prop::collection::vec(event(), 0..80)) {
        run(events);
    }
}
