//! Fleets: which Envoys belong to one, whom it admits, what it is told, and the listeners that it opens.
//!
//! In: `config`. Out: immutable values, and whether a node matches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use globset::GlobMatcher;

use super::Name;
use crate::trust::Allow;

/// A fleet of Envoys that are served alike.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Its name.
    pub name: Name,
    /// Which nodes belong to it.
    pub matcher: NodeMatcher,
    /// Whom it admits by certificate; `None`: every node that matches.
    pub allow: Option<Arc<Allow>>,
    /// The services that it is told of: those named, or all.
    pub services: BTreeSet<Name>,
    /// The listeners that its Envoys open.
    pub listeners: Vec<Listener>,
    /// The order in which regions take traffic, nearest first; empty: all alike (semantics H10).
    pub region_order: Vec<Arc<str>>,
    /// In which form its Envoys learn of endpoints.
    pub endpoint_discovery: EndpointDiscovery,
}

/// `fleets[].endpointDiscovery`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointDiscovery {
    /// All endpoints of a service in one resource.
    #[default]
    Eds,
    /// Each endpoint a resource of its own, for Envoys that speak delta; all others get the first form.
    Leds,
}

/// `fleets[].match`: every condition that is given must hold; none given matches every node.
#[derive(Clone, Debug, Default)]
pub struct NodeMatcher {
    /// A glob on `node.id`.
    pub id: Option<GlobMatcher>,
    /// A glob on `node.cluster`.
    pub cluster: Option<GlobMatcher>,
    /// Globs on top-level string fields of `node.metadata`.
    pub metadata: BTreeMap<String, GlobMatcher>,
}

/// A listener: becomes a Listener, and for HTTP a RouteConfiguration, of its name.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name.
    pub name: Name,
    /// Where Envoy listens.
    pub address: SocketAddr,
    /// What it does with a connection.
    pub kind: ListenerKind,
}

/// What a listener does with a connection.
#[derive(Clone, Debug)]
pub enum ListenerKind {
    /// HTTP, by routes: the first that matches, in the order of writing.
    Http(Vec<Route>),
    /// A TCP proxy to a TCP service.
    Tcp(Name),
}

/// One HTTP route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Hosts: `*`, `*.example.com`, `example.com`, `example.*` as in Envoy's VirtualHost.domains.
    pub domains: Vec<String>,
    /// Path prefix; starts with `/`.
    pub prefix: String,
    /// Where the request goes.
    pub service: Name,
}

impl NodeMatcher {
    /// Whether a node with these properties belongs to the fleet. `metadata` looks a top-level string field up.
    pub fn matches<'n>(
        &self,
        id: &str,
        cluster: &str,
        metadata: impl Fn(&str) -> Option<&'n str>,
    ) -> bool {
        self.id.as_ref().is_none_or(|glob| glob.is_match(id))
            && self
                .cluster
                .as_ref()
                .is_none_or(|glob| glob.is_match(cluster))
            && self
                .metadata
                .iter()
                .all(|(key, glob)| metadata(key).is_some_and(|value| glob.is_match(value)))
    }
}
