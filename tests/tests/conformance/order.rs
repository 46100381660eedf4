//! The order of what is sent: additions Cluster → ClusterLoadAssignment → Listener → RouteConfiguration, removals last, to
//! clients that answer at once and to one that behaves like an Envoy: it withholds the ACK of clusters that warm, asks for
//! assignments and routes as clusters and listeners come, and must never have a route to a cluster that it has not.

use std::collections::{BTreeMap, BTreeSet};

use vitals::snapshot::ResourceType;

use crate::client::{Client, Said, Way};
use crate::rules::subscribed;
use crate::server::Server;
use crate::{Cds, Eds, Lds, Leds, Rds, by};

#[test]
fn c1_additions_go_down_the_references_and_removals_up() {
    crate::run(async {
        let old = [(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1), (Rds, "r", 1)];
        let new = [(Cds, "b", 1), (Eds, "b", 1), (Lds, "m", 1), (Rds, "r", 2)];
        let server = Server::start(&old);
        let mut delta = subscribed(&server, Way::DeltaAds, &["a", "b"]).await;
        let mut sotw = subscribed(&server, Way::SotwAds, &["a", "b"]).await;
        server.publish(&new);
        for said in [
            "Cluster +b@1",
            "ClusterLoadAssignment +b@1",
            "Listener +m@1 -l",
            "RouteConfiguration +r@2",
            "ClusterLoadAssignment -a",
            "Cluster -a",
        ] {
            delta.takes(said).await;
        }
        delta.silent().await;
        for said in [
            // What will go lingers until what refers to it has changed.
            "Cluster +a@1 +b@1",
            "ClusterLoadAssignment +b@1",
            "Listener +m@1",
            "RouteConfiguration +r@2",
            "Cluster +b@1",
        ] {
            sotw.takes(said).await;
        }
        sotw.silent().await;
    });
}

#[test]
fn a_client_that_withholds_the_ack_of_a_warming_cluster_gets_all_the_rest() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let one = [(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1), (Rds, "r", 1)];
            let server = Server::start(&one);
            let mut client = subscribed(&server, way, &["a"]).await;
            // More changes than may be unanswered of any other type, none of them acknowledged.
            for revision in 2..40 {
                let state = [
                    (Cds, "a", revision),
                    (Eds, "a", revision),
                    (Lds, "l", 1),
                    (Rds, "r", 1),
                ];
                server.publish(&state);
                client.says(&format!("Cluster +a@{revision}")).await;
                client
                    .takes(&format!("ClusterLoadAssignment +a@{revision}"))
                    .await;
            }
            server.publish(&[(Cds, "a", 39), (Eds, "a", 39), (Lds, "l", 2), (Rds, "r", 2)]);
            client.takes("Listener +l@2").await;
            client.takes("RouteConfiguration +r@2").await;
            client.silent().await;
        }
    });
}

#[test]
fn nothing_that_has_not_changed_is_pushed() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            let state = |a, b, l, r| {
                [
                    (Cds, "a", a),
                    (Cds, "b", b),
                    (Eds, "a", a),
                    (Eds, "b", b),
                    (Lds, "l", l),
                    (Rds, "r", r),
                ]
            };
            let server = Server::start(&state(1, 1, 1, 1));
            let mut client = subscribed(&server, way, &["a", "b"]).await;
            server.publish(&state(1, 1, 1, 2));
            client.takes("RouteConfiguration +r@2").await;
            client.silent().await;
            server.publish(&state(1, 1, 2, 2));
            client.takes("Listener +l@2").await;
            client.silent().await;
            server.publish(&state(1, 2, 2, 2));
            client
                .takes(by(way, "Cluster +a@1 +b@2", "Cluster +b@2"))
                .await;
            client.takes("ClusterLoadAssignment +b@2").await;
            client.silent().await;
        }
    });
}

#[test]
fn an_envoy_never_has_a_route_to_a_cluster_that_it_has_not() {
    crate::run(async {
        for way in [Way::SotwAds, Way::DeltaAds] {
            for seed in 0..40 {
                Walk::new(way, seed).await.run().await;
            }
        }
    });
}

const CLUSTERS: [&str; 4] = ["a", "b", "c", "d"];
const LISTENERS: [&str; 2] = ["l", "m"];

/// A random walk of a fleet's state, and a client that follows it.
struct Walk {
    random: u64,
    server: Server,
    envoy: EnvoyLike,
    /// Cluster by name: revision.
    clusters: BTreeMap<&'static str, u32>,
    /// Listener, and the route of the same name, by name: revision.
    listeners: BTreeMap<&'static str, u32>,
    /// The cluster that a revision of a route leads to.
    leads_to: BTreeMap<(&'static str, u32), &'static str>,
    routes: BTreeMap<&'static str, u32>,
    revision: u32,
}

impl Walk {
    async fn new(way: Way, seed: u64) -> Self {
        let server = Server::start(&[]);
        let mut client = Client::open(&server, way, Cds).await;
        client.want(Cds, &[]).await;
        Self {
            random: seed,
            server,
            envoy: EnvoyLike {
                client,
                has: BTreeMap::new(),
                warming: BTreeSet::new(),
                withheld: None,
                wants_listeners: false,
            },
            clusters: BTreeMap::new(),
            listeners: BTreeMap::new(),
            leads_to: BTreeMap::new(),
            routes: BTreeMap::new(),
            revision: 0,
        }
    }

    /// SplitMix64.
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    async fn run(mut self) {
        for _ in 0..25 {
            self.step();
            self.publish();
            for _ in 0..self.below(6) {
                let Some(said) = self.envoy.client.soon(5).await else {
                    break;
                };
                self.meet(said).await;
            }
        }
        while let Some(said) = self.envoy.client.soon(100).await {
            self.meet(said).await;
        }
        let has = |kind| -> BTreeMap<&str, u32> {
            let of_kind = self.envoy.has.iter().filter(|((of, _), _)| *of == kind);
            of_kind
                .map(|((_, name), revision)| (&**name, *revision))
                .collect()
        };
        assert_eq!(has(Cds), self.clusters);
        assert_eq!(has(Lds), self.listeners);
        assert_eq!(has(Rds), self.routes);
        assert!(self.envoy.warming.is_empty(), "{:?}", self.envoy.warming);
        assert!(self.envoy.withheld.is_none());
    }

    /// Changes something; routes always lead to clusters that are there.
    fn step(&mut self) {
        self.revision += 1;
        let cluster = CLUSTERS[usize::try_from(self.below(4)).unwrap()];
        let listener = LISTENERS[usize::try_from(self.below(2)).unwrap()];
        match self.below(4) {
            0 | 1 => drop(self.clusters.insert(cluster, self.revision)),
            2 if self.clusters.contains_key(cluster) => {
                self.listeners.entry(listener).or_insert(self.revision);
                self.leads_to.insert((listener, self.revision), cluster);
                self.routes.insert(listener, self.revision);
            }
            _ => {
                // What leads to a cluster that goes is turned to another one, or goes with it.
                self.clusters.remove(cluster);
                let other = self.clusters.keys().next().copied();
                for (route, revision) in self.routes.clone() {
                    if self.leads_to[&(route, revision)] != cluster {
                        continue;
                    }
                    match other {
                        Some(other) => {
                            self.leads_to.insert((route, self.revision), other);
                            self.routes.insert(route, self.revision);
                        }
                        None => {
                            self.routes.remove(route);
                            self.listeners.remove(route);
                        }
                    }
                }
            }
        }
    }

    fn publish(&self) {
        let clusters = self.clusters.iter();
        let state: Vec<_> = clusters
            .flat_map(|(name, revision)| [(Cds, *name, *revision), (Eds, *name, 1)])
            .chain(self.listeners.iter().map(|(name, r)| (Lds, *name, *r)))
            .chain(self.routes.iter().map(|(name, r)| (Rds, *name, *r)))
            .collect();
        self.server.publish(&state);
    }

    async fn meet(&mut self, said: Said) {
        let text = said.to_string();
        self.envoy.take(said).await;
        for ((_, route), revision) in self.envoy.has.iter().filter(|((of, _), _)| *of == Rds) {
            // The walk knows the name by its own lifetime.
            let leads = self
                .leads_to
                .iter()
                .find(|((name, r), _)| name == route && r == revision);
            let cluster = leads.map(|(_, cluster)| (*cluster).to_owned()).unwrap();
            assert!(
                self.envoy.has.contains_key(&(Cds, cluster.clone())),
                "after {text:?} route {route}@{revision} leads to {cluster}, which is not there"
            );
        }
    }
}

/// What an Envoy does with what it is sent.
struct EnvoyLike {
    client: Client,
    has: BTreeMap<(ResourceType, String), u32>,
    /// Clusters that wait for their assignment since they came or changed.
    warming: BTreeSet<String>,
    /// The response of clusters whose ACK waits for them.
    withheld: Option<Said>,
    wants_listeners: bool,
}

impl EnvoyLike {
    fn names(&self, kind: ResourceType) -> Vec<String> {
        let of_kind = self.has.keys().filter(|(of, _)| *of == kind);
        of_kind.map(|(_, name)| name.clone()).collect()
    }

    async fn take(&mut self, said: Said) {
        let kind = said.kind;
        let before = self.names(kind);
        let whole = said.versions.is_empty() && said.removed.is_empty() && kind.is_whole_set();
        let is_sotw_set = whole && self.client.is_sotw();
        for name in before {
            let gone = said.removed.contains(&name)
                || (is_sotw_set && !said.resources.contains_key(&name));
            if gone {
                self.has.remove(&(kind, name.clone()));
                if kind == Cds {
                    self.warming.remove(&name);
                }
                if kind == Lds {
                    // Its route goes with it.
                    self.has.remove(&(Rds, name));
                }
            }
        }
        for (name, revision) in &said.resources {
            let key = (kind, name.clone());
            match (kind, revision) {
                (Eds, _) => drop(self.warming.remove(name)),
                (_, None) => panic!("only assignments have stand-ins"),
                (_, Some(revision)) => {
                    let changed = self.has.insert(key, *revision) != Some(*revision);
                    if kind == Cds && changed {
                        self.warming.insert(name.clone());
                    }
                }
            }
        }
        match kind {
            Cds => {
                self.withheld = Some(said);
                let names = self.names(Cds);
                self.want(Eds, &names).await;
            }
            Lds => {
                self.client.ack(&said).await;
                let names = self.names(Lds);
                self.want(Rds, &names).await;
            }
            Eds | Rds => self.client.ack(&said).await,
            Leds => unreachable!("it is not asked for"),
        }
        if self.warming.is_empty()
            && let Some(clusters) = self.withheld.take()
        {
            self.client.ack(&clusters).await;
            if !self.wants_listeners {
                self.wants_listeners = true;
                self.client.want(Lds, &[]).await;
            }
        }
    }

    async fn want(&mut self, kind: ResourceType, names: &[String]) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if self.client.asks_for(kind, &names) {
            self.client.want(kind, &names).await;
        }
    }
}
