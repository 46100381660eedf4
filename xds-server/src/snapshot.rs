//! What every fleet is served: immutable, consistent by construction, encoded once.
//!
//! In: rendered Envoy resources. Out: a [`Snapshot`] that all streams read. A resource's version is a hash of its bytes
//! (design 4.4), so the same content has the same version on every replica and after every restart. The bytes are as they
//! stand in responses, shared by all streams of both transports down to the socket. A snapshot that follows another says
//! what has changed ([`log`]).
//!
//! Not here: who gets what and when (`stream`), and what a resource says (`resources`).

pub mod collections;
mod fleet;
pub mod log;
mod resource;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_128;

pub use self::fleet::{DanglingReference, FleetSnapshot};
use self::log::ChangeLog;
pub use self::resource::Resource;
use crate::model::Name;

/// The types that Vitals serves. Their order is the order of pushing: a resource that is referred to comes before what
/// refers to it, save that an Envoy asks for routes only once it has the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceType {
    /// `envoy.config.cluster.v3.Cluster`
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment`
    ClusterLoadAssignment,
    /// `envoy.config.endpoint.v3.LbEndpoint`, which stands in [`collections`]
    LbEndpoint,
    /// `envoy.config.listener.v3.Listener`
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration`
    RouteConfiguration,
}

impl ResourceType {
    /// Every type, in the order of pushing.
    pub const ALL: [Self; 5] = [
        Self::Cluster,
        Self::ClusterLoadAssignment,
        Self::LbEndpoint,
        Self::Listener,
        Self::RouteConfiguration,
    ];

    /// The type URL.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::ClusterLoadAssignment => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
            Self::LbEndpoint => "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::RouteConfiguration => {
                "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
            }
        }
    }

    /// The type with that URL, if we serve it.
    #[must_use]
    pub fn from_type_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// The message's name, as in logs, metrics and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::ClusterLoadAssignment => "ClusterLoadAssignment",
            Self::LbEndpoint => "LbEndpoint",
            Self::Listener => "Listener",
            Self::RouteConfiguration => "RouteConfiguration",
        }
    }

    /// What the service of this type alone is called, as in logs and the API.
    #[must_use]
    pub fn service(self) -> &'static str {
        match self {
            Self::Cluster => "CDS",
            Self::ClusterLoadAssignment => "EDS",
            Self::Listener => "LDS",
            Self::LbEndpoint => "LEDS",
            Self::RouteConfiguration => "RDS",
        }
    }

    /// Whether the type knows wildcard subscriptions, and a state-of-the-world response is the whole set, in which
    /// omission means deletion (xDS protocol: Listener and Cluster only).
    #[must_use]
    pub fn is_whole_set(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// All resources of one type for one fleet.
#[derive(Debug)]
pub struct TypeSnapshot {
    resources: BTreeMap<Arc<str>, Arc<Resource>>,
    held: BTreeSet<Arc<str>>,
    version: Arc<str>,
    state: u128,
    log: ChangeLog,
}

impl TypeSnapshot {
    fn new(resources: impl IntoIterator<Item = Arc<Resource>>, held: BTreeSet<Arc<str>>) -> Self {
        let resources: BTreeMap<_, _> = resources
            .into_iter()
            .map(|r| (Arc::clone(r.name()), r))
            .collect();
        // The versions hold the contents, so a hash over names and versions is a hash of the whole.
        let mut text = Vec::with_capacity(resources.len() * 40);
        for (name, resource) in &resources {
            text.extend_from_slice(name.as_bytes());
            text.push(0);
            text.extend_from_slice(resource.version().as_bytes());
            text.push(0);
        }
        let version = format!("{:032x}", xxh3_128(&text)).into();
        for name in &held {
            text.extend_from_slice(name.as_bytes());
            text.push(1);
        }
        let state = xxh3_128(&text);
        Self {
            resources,
            held,
            version,
            state,
            log: ChangeLog::begin(),
        }
    }

    /// This snapshot as the one after `before`: with its log, or `before` itself if nothing differs. `next` adds what
    /// has changed to a log.
    fn following(
        mut self,
        before: &Arc<Self>,
        next: impl Fn(&ChangeLog, Vec<Arc<str>>) -> ChangeLog,
    ) -> Arc<Self> {
        if self.state == before.state {
            return Arc::clone(before);
        }
        let digest = |of: &Self, name: &str| of.resources.get(name).map(|found| found.digest());
        let names: BTreeSet<&Arc<str>> = (self.resources.keys().chain(&self.held))
            .chain(before.resources.keys().chain(&before.held))
            .collect();
        let differs = |name: &&&Arc<str>| {
            digest(&self, name) != digest(before, name)
                || self.is_held(name) != before.is_held(name)
        };
        let changed = names
            .iter()
            .filter(differs)
            .map(|name| Arc::clone(name))
            .collect();
        self.log = next(&before.log, changed);
        Arc::new(self)
    }

    /// What has changed on the way to this state.
    #[must_use]
    pub fn log(&self) -> &ChangeLog {
        &self.log
    }

    /// The resources by name.
    #[must_use]
    pub fn resources(&self) -> &BTreeMap<Arc<str>, Arc<Resource>> {
        &self.resources
    }

    /// Whether the resource exists but must not be answered yet (design 5.3).
    #[must_use]
    pub fn is_held(&self, name: &str) -> bool {
        self.held.contains(name)
    }

    /// The resources that exist but must not be answered yet.
    #[must_use]
    pub fn held(&self) -> &BTreeSet<Arc<str>> {
        &self.held
    }

    /// A hash of the whole set.
    #[must_use]
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }
}

/// All that all fleets are served at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    fleets: Vec<Arc<FleetSnapshot>>,
    caused_at: Option<Instant>,
}

impl Snapshot {
    /// A snapshot. `caused_at`: when the oldest verdict or reload came in that it publishes for the first time.
    #[must_use]
    pub fn new(fleets: Vec<Arc<FleetSnapshot>>, caused_at: Option<Instant>) -> Self {
        Self { fleets, caused_at }
    }

    /// The fleet of that name.
    #[must_use]
    pub fn fleet(&self, name: &Name) -> Option<&Arc<FleetSnapshot>> {
        self.fleets.iter().find(|fleet| fleet.name() == name)
    }

    /// The fleet of a node: the first, in the order of the configuration, that matches.
    pub fn fleet_of<'n>(
        &self,
        id: &str,
        cluster: &str,
        metadata: impl Fn(&str) -> Option<&'n str>,
    ) -> Option<&Arc<FleetSnapshot>> {
        self.fleets
            .iter()
            .find(|fleet| fleet.matches(id, cluster, &metadata))
    }

    /// When the oldest verdict or reload came in that this snapshot publishes for the first time.
    #[must_use]
    pub fn caused_at(&self) -> Option<Instant> {
        self.caused_at
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;

    use prost::Message as _;

    use super::*;
    use crate::model::{Name, NodeMatcher};

    fn cluster(name: &str) -> Arc<Resource> {
        let message = Cluster {
            name: name.into(),
            ..Cluster::default()
        };
        let references = vec![(ResourceType::ClusterLoadAssignment, name.into())];
        Arc::new(Resource::new(
            ResourceType::Cluster,
            name.into(),
            &message,
            references,
        ))
    }

    fn assignment(name: &str) -> Arc<Resource> {
        let message = ClusterLoadAssignment {
            cluster_name: name.into(),
            ..ClusterLoadAssignment::default()
        };
        Arc::new(Resource::new(
            ResourceType::ClusterLoadAssignment,
            name.into(),
            &message,
            Vec::new(),
        ))
    }

    fn fleet(
        resources: Vec<Arc<Resource>>,
        held: &[&str],
    ) -> Result<FleetSnapshot, DanglingReference> {
        let held = held
            .iter()
            .map(|&name| (ResourceType::ClusterLoadAssignment, name.into()))
            .collect();
        FleetSnapshot::new(
            Name::new("edge").unwrap(),
            NodeMatcher::default(),
            resources,
            held,
        )
    }

    #[test]
    fn a_reference_that_leads_nowhere_makes_no_snapshot() {
        let error = fleet(vec![cluster("a"), assignment("a"), cluster("b")], &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fleet edge: Cluster b refers to ClusterLoadAssignment b, which is not there"
        );
        assert!(
            fleet(vec![cluster("a"), assignment("a"), cluster("b")], &["b"]).is_ok(),
            "held is as good as there"
        );
    }

    #[test]
    fn entries_are_elements_of_the_responses() {
        use envoy_types::pb::envoy::service::discovery::v3 as pb;
        use envoy_types::pb::google::protobuf::Any;
        let message = Cluster {
            name: "shop".repeat(60),
            ..Cluster::default()
        };
        for message in [message, Cluster::default()] {
            let resource =
                Resource::new(ResourceType::Cluster, "shop".into(), &message, Vec::new());
            let any = Any {
                type_url: ResourceType::Cluster.type_url().into(),
                value: message.encode_to_vec(),
            };
            let sotw = pb::DiscoveryResponse {
                resources: vec![any.clone()],
                ..Default::default()
            };
            assert_eq!(**resource.sotw_entry(), *sotw.encode_to_vec());
            let delta = pb::DeltaDiscoveryResponse {
                resources: vec![pb::Resource {
                    name: "shop".into(),
                    version: (**resource.version()).into(),
                    resource: Some(any),
                    ..pb::Resource::default()
                }],
                ..Default::default()
            };
            let read = pb::DeltaDiscoveryResponse::decode(resource.delta_entry().clone());
            assert_eq!(read.unwrap(), delta);
            assert_eq!(
                Resource::digest_of(resource.version()),
                Some(resource.digest())
            );
        }
        for foreign in ["", "1", "+000000000000001", "00000000000000AB", "v1"] {
            assert_eq!(Resource::digest_of(foreign), None);
        }
    }

    #[test]
    fn a_snapshot_that_follows_another_says_what_has_changed() {
        let eds = ResourceType::ClusterLoadAssignment;
        let (a, b) = (cluster("a"), cluster("b"));
        let first = fleet(vec![a.clone(), assignment("a")], &[]).unwrap();
        let second = fleet(vec![a, assignment("a"), b.clone()], &["b"]).unwrap();
        let second = second.following(&first);
        let since = |kind| {
            let log = second.of_type(kind).log();
            let names = log.since(&first.of_type(kind).log().cursor()).unwrap();
            names.map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            (since(ResourceType::Cluster), since(eds)),
            (vec!["b".into()], vec!["b".into()])
        );
        assert!(since(ResourceType::Listener).is_empty());
        let third = fleet(vec![b, assignment("b")], &[])
            .unwrap()
            .following(&second);
        let names: Vec<&str> = third
            .of_type(eds)
            .log()
            .since(&second.of_type(eds).log().cursor())
            .unwrap()
            .map(|name| &**name)
            .collect();
        assert_eq!(names, ["a", "b"], "what went, and what is no longer held");
    }

    #[test]
    fn versions_are_hashes_of_content() {
        assert_eq!(cluster("a").version(), cluster("a").version());
        assert_ne!(cluster("a").version(), cluster("b").version());
        let one = fleet(vec![cluster("a"), assignment("a")], &[]).unwrap();
        let two = fleet(vec![assignment("a"), cluster("a")], &[]).unwrap();
        let version =
            |fleet: &FleetSnapshot| fleet.of_type(ResourceType::Cluster).version().clone();
        assert_eq!(version(&one), version(&two));
    }
}
