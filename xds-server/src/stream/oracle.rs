//! A client that does anything a client may do, against a server whose state changes under it: at the end it must have
//! exactly the server's state. The client is written from the protocol's text, not from the stream's code.
//!
//! Every change of the server's state is a publication with a log so short that a stream which does not look for a while
//! falls off it. Sometimes the log begins anew, as for a stream that a reload moves to another fleet.
//! What an Envoy does with endpoints that stand apart is in `tests/envoy.rs`.
//!
//! In: events, random ones (`tests/walks.rs`) or a fuzzer's bytes ([`fuzz`]). Out: nothing, or a panic that says what the
//! client lacks.
//!
//! Not part of the crate's interface: for tests, and behind the feature `fuzzing`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how an oracle says that something is wrong"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::UNIX_EPOCH;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::google::protobuf::UInt32Value;
use envoy_types::pb::google::rpc::Status;

use super::*;
use crate::model::{Name, NodeMatcher};
use ResourceType::{
    Cluster as Cds, ClusterLoadAssignment as Eds, Listener as Lds, RouteConfiguration as Rds,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
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
        let request = delta_request(kind, &subscribe, &unsubscribe, "");
        stream.on_delta(request, UNIX_EPOCH).unwrap();
    }

    /// Answers the next response, if there is one. Says what the stream makes of the answer.
    fn take(&mut self, stream: &mut Stream, refuse: bool) -> Option<Received> {
        let response = self.inbox.pop_front()?;
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
        let received = match self.transport {
            Transport::Sotw => {
                let request = self.sotw_request(kind, refuse);
                stream.on_sotw(request, UNIX_EPOCH)
            }
            Transport::Delta => {
                let request = DeltaDiscoveryRequest {
                    error_detail: refuse.then(Status::default),
                    ..delta_request(kind, &[], &[], &response.nonce)
                };
                stream.on_delta(request, UNIX_EPOCH)
            }
        };
        Some(received.unwrap())
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
                    ..delta_request(*kind, &names, &[], "")
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

pub(super) fn run(transport: Transport, events: impl IntoIterator<Item = Event>) {
    let mut world = World::default();
    let mut stream = Stream::new(transport);
    let mut client = Client {
        transport,
        types: BTreeMap::new(),
        inbox: VecDeque::new(),
    };
    // Whether the last look gave nothing, and nothing has happened since but answers.
    let mut at_rest = false;
    for event in events {
        at_rest &= matches!(event, Event::Send | Event::Ack);
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
            Event::Send => {
                let response = stream.next(world.published());
                assert!(!at_rest || response.is_none(), "{response:?} after rest");
                at_rest = response.is_none();
                client.inbox.extend(response);
            }
            Event::Ack => {
                at_rest &= !stream.waits_for_answers();
                let received = client.take(&mut stream, false);
                at_rest &= matches!(received, None | Some(Received::Ack(_)));
            }
            Event::Nack => drop(client.take(&mut stream, true)),
            Event::Stale(kind) => {
                let request = DiscoveryRequest {
                    type_url: kind.type_url().into(),
                    response_nonce: "999999".into(),
                    ..DiscoveryRequest::default()
                };
                if transport == Transport::Sotw
                    && stream
                        .status(kind)
                        .is_some_and(|s| s.sent_version.is_some())
                {
                    assert_eq!(
                        stream.on_sotw(request, UNIX_EPOCH),
                        Ok(Received::Stale(kind))
                    );
                } else if transport == Transport::Delta
                    && client.types.get(&kind).is_some_and(|t| t.wants.is_some())
                {
                    stream
                        .on_delta(delta_request(kind, &[], &[], "999999"), UNIX_EPOCH)
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

/// Runs what a fuzzer's bytes spell: the first says which transport, the rest are events of up to three bytes.
pub fn fuzz(input: &[u8]) {
    let Some((first, mut rest)) = input.split_first() else {
        return;
    };
    let transport = match first % 2 {
        0 => Transport::Sotw,
        _ => Transport::Delta,
    };
    let mut byte = || {
        let (next, after) = rest.split_first()?;
        rest = after;
        Some(*next)
    };
    let mut events = Vec::new();
    while let Some(what) = byte() {
        let Some(detail) = byte() else { break };
        let kind = [Cds, Eds, Lds, Rds][usize::from(detail % 4)];
        let name = usize::from(detail >> 2) % NAMES.len();
        events.push(match what % 17 {
            0..=1 => {
                let Some(bits) = byte() else { break };
                let names = (0..NAMES.len()).filter(|n| bits & (1 << n) != 0).collect();
                Event::Want(kind, (bits < 0xf0).then_some(names))
            }
            2..=5 => Event::Set(
                kind,
                name,
                (detail >> 4 != 0).then_some(u32::from(detail >> 4)),
            ),
            6 => Event::Hold(name, detail & 1 == 0),
            7..=9 => Event::Send,
            10..=12 => Event::Ack,
            13 => Event::Nack,
            14 => Event::Stale(kind),
            15 => Event::Forget,
            _ => Event::Reconnect,
        });
    }
    run(transport, events);
}

/// A resource of that type and name whose content is `revision`.
pub(super) fn resource(kind: ResourceType, name: &str, revision: u32) -> Arc<Resource> {
    let (text, shared) = (revision.to_string(), Arc::<str>::from(name));
    Arc::new(match kind {
        Cds => {
            let message = Cluster {
                name: name.into(),
                alt_stat_name: text,
                ..Cluster::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        Eds => {
            let message = ClusterLoadAssignment {
                cluster_name: name.into(),
                ..ClusterLoadAssignment::default()
            };
            let named = [(text, Default::default())].into();
            Resource::new(
                kind,
                shared,
                &ClusterLoadAssignment {
                    named_endpoints: named,
                    ..message
                },
                Vec::new(),
            )
        }
        Lds => {
            let message = Listener {
                name: name.into(),
                stat_prefix: text,
                ..Listener::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        Rds => {
            let message = RouteConfiguration {
                name: name.into(),
                ..RouteConfiguration::default()
            };
            let message = RouteConfiguration {
                internal_only_headers: vec![text],
                ..message
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
        ResourceType::LbEndpoint => {
            let message = LbEndpoint {
                load_balancing_weight: Some(UInt32Value { value: revision }),
                ..LbEndpoint::default()
            };
            Resource::new(kind, shared, &message, Vec::new())
        }
    })
}

/// `held` are load assignments; see [`fleet_holding`] for others.
pub(super) fn fleet(resources: &[(ResourceType, &str, u32)], held: &[&str]) -> FleetSnapshot {
    let held: Vec<_> = held.iter().map(|&name| (Eds, name)).collect();
    fleet_holding(resources, &held)
}

pub(super) fn fleet_holding(
    resources: &[(ResourceType, &str, u32)],
    held: &[(ResourceType, &str)],
) -> FleetSnapshot {
    let resources = resources
        .iter()
        .map(|&(kind, name, revision)| resource(kind, name, revision));
    let held = held
        .iter()
        .map(|&(kind, name)| (kind, name.into()))
        .collect();
    FleetSnapshot::new(
        Name::new("edge").unwrap(),
        NodeMatcher::default(),
        resources,
        held,
    )
    .unwrap()
}

pub(super) fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.into()).collect()
}

pub(super) fn delta_request(
    kind: ResourceType,
    subscribe: &[&str],
    unsubscribe: &[&str],
    nonce: &str,
) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: kind.type_url().into(),
        resource_names_subscribe: strings(subscribe),
        resource_names_unsubscribe: strings(unsubscribe),
        response_nonce: nonce.into(),
        ..DeltaDiscoveryRequest::default()
    }
}
