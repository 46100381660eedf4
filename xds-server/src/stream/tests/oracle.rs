//! A client that does anything a client may do, against a server whose state changes under it: at the end it must have
//! exactly the server's state. The client is written from the protocol's text, not from the stream's code.
//!
//! Every change of the server's state is a publication with a log so short that a stream which does not look for a while
//! falls off it. (What an Envoy does with endpoints that stand apart is in `envoy`.) Sometimes the log begins anew, as for a stream that a reload moves to another fleet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// The client wants exactly these names of a type (`None`: everything).
    Want(ResourceType, Option<BTreeSet<usize>>),
    /// The server's state of one resource: a revision, or gone.
    Set(ResourceType, usize, Option<u32>),
    /// A load assignment is held, or no longer.
    Hold(usize, bool),
    /// The next snapshot knows of none before it.
    Forget,
    /// The transport takes one response.
    Send,
    /// The client takes one response and acknowledges it.
    Ack,
    /// The client refuses one response whole.
    Nack,
    /// The client says something with an old nonce.
    Stale(ResourceType),
    /// The connection breaks; what is under way is lost.
    Reconnect,
}

/// The server's state, as a test may change it.
#[derive(Debug, Default)]
struct World {
    resources: BTreeMap<(ResourceType, usize), u32>,
    held: BTreeSet<usize>,
    published: Option<FleetSnapshot>,
}

impl World {
    fn fleet(&self) -> FleetSnapshot {
        let there = self
            .resources
            .iter()
            .filter(|((kind, name), _)| *kind != Eds || !self.held.contains(name));
        let there: Vec<_> = there
            .map(|(&(kind, name), &revision)| (kind, NAMES[name], revision))
            .collect();
        let held: Vec<&str> = self.held.iter().map(|&name| NAMES[name]).collect();
        fleet(&there, &held)
    }

    /// The next publication; the log reaches back over three changed names.
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
}

#[derive(Debug, Default)]
struct ClientType {
    wants: Option<Option<BTreeSet<usize>>>,
    has: BTreeMap<String, String>,
    refused: BTreeSet<(String, String)>,
    /// What it keeps because it refused to lose it.
    kept: BTreeSet<String>,
    last_nonce: String,
    /// SotW: names were given once, so an empty list no longer means everything.
    named: bool,
}

#[derive(Debug)]
struct Client {
    transport: Transport,
    types: BTreeMap<ResourceType, ClientType>,
    inbox: VecDeque<Response>,
}

impl Client {
    fn names(wants: Option<&BTreeSet<usize>>) -> Vec<String> {
        match wants {
            None => vec!["*".into()],
            Some(names) => names.iter().map(|&name| NAMES[name].to_owned()).collect(),
        }
    }

    fn sotw_request(&self, kind: ResourceType, error: bool) -> DiscoveryRequest {
        let of_type = &self.types[&kind];
        let wants = of_type.wants.as_ref().unwrap();
        let resource_names = match wants {
            // Everything, in the legacy form as long as that works.
            None if !of_type.named => Vec::new(),
            wants => Self::names(wants.as_ref()),
        };
        DiscoveryRequest {
            type_url: kind.type_url().into(),
            resource_names,
            response_nonce: of_type.last_nonce.clone(),
            error_detail: error.then(Status::default),
            ..DiscoveryRequest::default()
        }
    }

    fn want(&mut self, stream: &mut Stream, kind: ResourceType, wants: Option<BTreeSet<usize>>) {
        if wants.is_none() && !kind.is_whole_set() {
            return;
        }
        let transport = self.transport;
        let of_type = self.types.entry(kind).or_default();
        let before = of_type.wants.replace(wants.clone());
        if before.as_ref() == Some(&wants) {
            return;
        }
        let (before, first) = (
            before.clone().unwrap_or(Some(BTreeSet::new())),
            before.is_none(),
        );
        if transport == Transport::Sotw {
            // An empty list would mean everything until a name was given.
            if !of_type.named
                && wants.as_ref().is_some_and(BTreeSet::is_empty)
                && kind.is_whole_set()
            {
                of_type.wants = (!first).then_some(before);
                return;
            }
            // What it no longer wants it keeps until the next whole set: its request may be stale, and the server
            // then never learns of a change that was taken back.
            of_type.named |= wants.as_ref().is_some_and(|names| !names.is_empty());
            let request = self.sotw_request(kind, false);
            stream.on_sotw(request, UNIX_EPOCH).unwrap();
            return;
        }
        let (old, new) = (Self::names(before.as_ref()), Self::names(wants.as_ref()));
        let subscribe: Vec<&str> = new
            .iter()
            .filter(|name| !old.contains(name))
            .map(String::as_str)
            .collect();
        let unsubscribe: Vec<&str> = old
            .iter()
            .filter(|name| !new.contains(name))
            .map(String::as_str)
            .collect();
        if first && subscribe.is_empty() {
            of_type.wants = None;
            return;
        }
        of_type.drop_unwanted();
        let request = Talk::delta_request(kind, &subscribe, &unsubscribe, "");
        stream.on_delta(request, UNIX_EPOCH).unwrap();
    }

    fn take(&mut self, stream: &mut Stream, refuse: bool) {
        let Some(response) = self.inbox.pop_front() else {
            return;
        };
        let kind = response.kind;
        let of_type = self.types.get_mut(&kind).unwrap();
        of_type.last_nonce.clone_from(&response.nonce);
        if refuse {
            let refused = response
                .resources
                .iter()
                .map(|r| (r.name().to_string(), r.version().to_string()));
            of_type.refused.extend(refused);
            if self.transport == Transport::Sotw && kind.is_whole_set() {
                let sent = |name: &String| {
                    response
                        .resources
                        .iter()
                        .any(|resource| **resource.name() == **name)
                };
                of_type
                    .kept
                    .extend(of_type.has.keys().filter(|name| !sent(name)).cloned());
            }
            of_type
                .kept
                .extend(response.removed.iter().map(ToString::to_string));
        } else {
            if self.transport == Transport::Sotw && kind.is_whole_set() {
                of_type.has.clear();
                of_type.kept.clear();
            }
            for resource in &response.resources {
                let (name, version) = (resource.name().to_string(), resource.version().to_string());
                of_type.refused.retain(|(refused, _)| *refused != name);
                of_type.has.insert(name, version);
            }
            for name in &response.removed {
                of_type.kept.remove(&**name);
                of_type.has.remove(&**name);
            }
            if self.transport == Transport::Delta {
                of_type.drop_unwanted();
            }
        }
        match self.transport {
            Transport::Sotw => {
                let request = self.sotw_request(kind, refuse);
                stream.on_sotw(request, UNIX_EPOCH).unwrap();
            }
            Transport::Delta => {
                let request = DeltaDiscoveryRequest {
                    error_detail: refuse.then(Status::default),
                    ..Talk::delta_request(kind, &[], &[], &response.nonce)
                };
                stream.on_delta(request, UNIX_EPOCH).unwrap();
            }
        }
    }

    fn reconnect(&mut self) -> Stream {
        let mut stream = Stream::new(self.transport);
        self.inbox.clear();
        for (kind, of_type) in &mut self.types {
            of_type.last_nonce.clear();
            of_type.refused.clear();
            of_type.kept.clear();
            of_type.named = matches!(&of_type.wants, Some(Some(names)) if !names.is_empty());
            if of_type
                .wants
                .as_ref()
                .is_some_and(|wants| wants.as_ref().is_some_and(BTreeSet::is_empty))
            {
                of_type.wants = None;
                of_type.has.clear();
            }
            let Some(wants) = &of_type.wants else {
                continue;
            };
            if self.transport == Transport::Delta {
                let names = Self::names(wants.as_ref());
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let request = DeltaDiscoveryRequest {
                    initial_resource_versions: of_type.has.clone().into_iter().collect(),
                    ..Talk::delta_request(*kind, &names, &[], "")
                };
                stream.on_delta(request, UNIX_EPOCH).unwrap();
            }
        }
        if self.transport == Transport::Sotw {
            let wanted = self
                .types
                .iter()
                .filter(|(_, of_type)| of_type.wants.is_some());
            for kind in wanted.map(|(kind, _)| *kind).collect::<Vec<_>>() {
                stream
                    .on_sotw(self.sotw_request(kind, false), UNIX_EPOCH)
                    .unwrap();
            }
        }
        stream
    }
}

impl ClientType {
    fn drop_unwanted(&mut self) {
        if let Some(Some(names)) = &self.wants {
            self.has
                .retain(|name, _| names.iter().any(|&wanted| NAMES[wanted] == *name));
        }
    }
}

fn run(transport: Transport, events: Vec<Event>) {
    let mut world = World::default();
    let mut stream = Stream::new(transport);
    let mut client = Client {
        transport,
        types: BTreeMap::new(),
        inbox: VecDeque::new(),
    };
    for event in events {
        match event {
            Event::Want(kind, wants) => client.want(&mut stream, kind, wants),
            Event::Set(kind, name, Some(revision)) => {
                world.resources.insert((kind, name), revision);
                world.publish();
            }
            Event::Set(kind, name, None) => {
                world.resources.remove(&(kind, name));
                world.publish();
            }
            Event::Hold(name, true) => {
                world.held.insert(name);
                world.publish();
            }
            Event::Hold(name, false) => {
                world.held.remove(&name);
                world.publish();
            }
            Event::Forget => world.published = None,
            Event::Send => client.inbox.extend(stream.next(world.published())),
            Event::Ack => client.take(&mut stream, false),
            Event::Nack => client.take(&mut stream, true),
            Event::Stale(kind) => {
                let request = DiscoveryRequest {
                    type_url: kind.type_url().into(),
                    response_nonce: "999999".into(),
                    ..DiscoveryRequest::default()
                };
                if transport == Transport::Sotw
                    && stream
                        .status()
                        .any(|(known, s)| known == kind && s.sent_version.is_some())
                {
                    assert_eq!(
                        stream.on_sotw(request, UNIX_EPOCH),
                        Ok(Received::Stale(kind))
                    );
                } else if transport == Transport::Delta
                    && client.types.get(&kind).is_some_and(|t| t.wants.is_some())
                {
                    stream
                        .on_delta(Talk::delta_request(kind, &[], &[], "999999"), UNIX_EPOCH)
                        .unwrap();
                }
            }
            Event::Reconnect => stream = client.reconnect(),
        }
    }
    // Everything comes to rest.
    world.held.clear();
    world.publish();
    let state = world.published();
    for _ in 0..100 {
        client.inbox.extend(stream.next(state));
        client.take(&mut stream, false);
    }
    assert_eq!(stream.next(state), None, "the stream comes to rest");
    // Whatever the log has said, nothing differs when all is compared.
    assert_eq!(
        stream.next(&world.fleet()),
        None,
        "the log has left nothing out"
    );
    let state = world.published();
    assert!(client.inbox.is_empty());
    for (&kind, of_type) in &client.types {
        let Some(wants) = &of_type.wants else {
            continue;
        };
        for (index, name) in NAMES.iter().enumerate() {
            let wanted = wants.as_ref().is_none_or(|names| names.contains(&index));
            let served = state
                .of_type(kind)
                .resources()
                .get(*name)
                .map(|resource| resource.version().to_string());
            let has = of_type.has.get(*name);
            let refused = |version: &String| {
                of_type
                    .refused
                    .contains(&((*name).to_owned(), version.clone()))
            };
            match (&served, wanted) {
                (_, false) => {}
                (Some(version), true) => {
                    assert!(
                        has == Some(version) || refused(version),
                        "{kind:?} {name}: has {has:?}, served {version}"
                    );
                }
                (None, true) => {
                    let empty = crate::resources::empty_assignment((*name).into())
                        .version()
                        .to_string();
                    let allowed = match (kind, transport) {
                        // The last state stays in SotW; an empty one stands in for what was never there.
                        // (Nothing, if all that it was sent was refused.)
                        (Eds, Transport::Sotw) => {
                            has.is_some() || of_type.refused.iter().any(|(of, _)| of == name)
                        }
                        (Rds, Transport::Sotw) => true,
                        (Eds, Transport::Delta) => has.is_none_or(|version| *version == empty),
                        _ => has.is_none(),
                    };
                    assert!(
                        allowed || of_type.kept.contains(*name),
                        "{kind:?} {name}: has {has:?}, nothing is served"
                    );
                }
            }
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let kind = || prop::sample::select(vec![Cds, Eds, Lds, Rds]);
    let names = prop::collection::btree_set(0usize..4, 0..=4);
    prop_oneof![
        3 => (kind(), prop::option::weighted(0.7, names)).prop_map(|(kind, wants)| Event::Want(kind, wants)),
        6 => (kind(), 0usize..4, prop::option::weighted(0.7, 0u32..3)).prop_map(|(k, n, r)| Event::Set(k, n, r)),
        1 => (0usize..4, any::<bool>()).prop_map(|(name, held)| Event::Hold(name, held)),
        1 => Just(Event::Forget),
        6 => Just(Event::Send),
        5 => Just(Event::Ack),
        1 => Just(Event::Nack),
        1 => kind().prop_map(Event::Stale),
        1 => Just(Event::Reconnect),
    ]
}

#[test]
fn a_name_that_is_given_up_while_its_resource_is_on_the_way_is_removed_when_the_wildcard_covers_it()
{
    let kind = ResourceType::Cluster;
    let events = vec![
        Event::Set(kind, 0, Some(0)),
        Event::Want(kind, Some([0].into())),
        Event::Send,
        Event::Want(kind, Some(BTreeSet::new())),
        Event::Want(kind, None),
        Event::Set(kind, 0, None),
    ];
    run(Transport::Delta, events);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_sotw_client_ends_with_exactly_the_servers_state(events in prop::collection::vec(event(), 0..60)) {
        run(Transport::Sotw, events);
    }

    #[test]
    fn a_delta_client_ends_with_exactly_the_servers_state(events in prop::collection::vec(event(), 0..60)) {
        run(Transport::Delta, events);
    }
}
