//! A service's endpoints apart from its ClusterLoadAssignment (LEDS): one `LbEndpoint` each, in a collection per group.
//!
//! In: a service, its health, what was rendered of it before. Out: [`Endpoints`], whose collections are those of before as
//! far as they did not change, and the load assignment that names them. An endpoint says here what it says in the plain form
//! (`endpoint`); priorities and localities stay in the load assignment, so that an exchange of pools changes it alone.
//!
//! ```text
//!  xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/GENERATION.NUMBER/SERVICE/GROUP[/REGION.ZONE]/ADDRESS-PORT
//! ```
//!
//! A path is never used for two collections: the generation is that of the server's start, and each collection has the next
//! number in it. An Envoy that comes back with what it has under an old path is given a new one and forgets the old, so
//! nothing that was removed meanwhile lives on in it. No two services share a collection: an Envoy would starve the second
//! (measured, design 5.13).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::endpoint::v3::{
    LedsClusterLocalityConfig, LocalityLbEndpoints, locality_lb_endpoints::LbConfig,
};
use prost::Message;

use super::ads;
use super::endpoint::{LastMetadata, append_lb_endpoint, envoys_check, of_localities, rank};
use crate::health::{EdsStatus, EndpointView, Pool, ServiceView};
use crate::model::{EndpointGroup, Locality, Name, Service};
use crate::snapshot::collections::Collection;
use crate::snapshot::{Resource, ResourceType};

/// Who says what the names below it mean. It has no server behind it: all comes on the one stream.
const AUTHORITY: &str = "vitals";

/// The paths that this server has given out.
#[derive(Debug)]
pub struct Paths {
    generation: Arc<str>,
    last: u64,
}

impl Paths {
    /// Paths of a generation, a word of letters and digits that no start of any server has used before.
    #[must_use]
    pub fn new(generation: Arc<str>) -> Self {
        Self {
            generation,
            last: 0,
        }
    }

    /// What clients subscribe to for the endpoints of this group.
    fn next(&mut self, service: &Name, group: &EndpointGroup) -> Arc<str> {
        self.last += 1;
        let kind = "envoy.config.endpoint.v3.LbEndpoint";
        let (generation, number) = (&self.generation, self.last);
        let mut path = format!(
            "xdstp://{AUTHORITY}/{kind}/{generation}.{number}/{service}/{}",
            group.name
        );
        if group.locality != Locality::default() {
            let (region, zone) = (plain(&group.locality.region), plain(&group.locality.zone));
            // Writing to a String does not fail.
            write!(path, "/{region}.{zone}").ok();
        }
        path.push_str("/*");
        path.into()
    }
}

/// A word without what has a meaning in a URL. It is for people; the path is unique without it.
fn plain(word: &str) -> String {
    let letter = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => c,
        _ => '_',
    };
    word.chars().map(letter).collect()
}

/// The name of an endpoint in its collection.
fn entry_name(glob: &str, address: SocketAddr) -> Arc<str> {
    let path = glob.strip_suffix('*').unwrap_or(glob);
    let ip = address.ip().to_string().replace(':', "_");
    format!("{path}{ip}-{}", address.port()).into()
}

/// The endpoints of one service as they were rendered.
#[derive(Debug)]
pub struct Endpoints {
    service: Arc<Service>,
    view: Arc<ServiceView>,
    groups: BTreeMap<GroupKey, Arc<Collection>>,
}

/// A group stands in a service once, so its pool follows from it.
type GroupKey = (Name, Locality, Pool);

fn key_of(endpoint: &EndpointView) -> GroupKey {
    let group = &endpoint.group;
    (group.name.clone(), group.locality.clone(), endpoint.pool)
}

impl Endpoints {
    /// Renders the endpoints of a service. `before` is what was rendered of it last.
    #[must_use]
    pub fn render(
        before: Option<&Self>,
        service: &Arc<Service>,
        view: &Arc<ServiceView>,
        paths: &mut Paths,
    ) -> Self {
        let groups = before
            .and_then(|before| before.with_flips(service, view))
            .unwrap_or_else(|| all_groups(before, service, view, paths));
        Self {
            service: Arc::clone(service),
            view: Arc::clone(view),
            groups,
        }
    }

    /// Whether the collections are the same as before.
    #[must_use]
    pub fn is_same_as(&self, before: &Self) -> bool {
        self.groups.len() == before.groups.len()
            && (self.groups.iter().zip(&before.groups))
                .all(|((key, new), (old_key, old))| key == old_key && Arc::ptr_eq(new, old))
    }

    /// The collections, in the order of their groups' names.
    pub fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.groups.values()
    }

    /// The load assignment that names the collections, for fleets of one `region_order`; see
    /// [`assignment`](super::assignment). A group of which nothing is told is not in it, as a locality without endpoints is
    /// not in the plain form.
    #[must_use]
    pub fn assignment(&self, region_order: &[Arc<str>]) -> Resource {
        let mut localities: Vec<_> = self
            .groups
            .iter()
            .map(|((_, locality, pool), collection)| {
                let config = LedsClusterLocalityConfig {
                    leds_config: Some(ads()),
                    leds_collection_name: (**collection.glob()).into(),
                };
                let endpoints = LocalityLbEndpoints {
                    lb_config: Some(LbConfig::LedsClusterLocalityConfig(config)),
                    ..LocalityLbEndpoints::default()
                };
                let rank = rank(*pool, locality, &self.view, region_order);
                (rank, locality, endpoints.encode_to_vec())
            })
            .collect();
        localities.sort_by_key(|(rank, locality, _)| (*rank, *locality));
        of_localities(&self.service, localities)
    }

    /// The collections after a change that moved nobody: what is the same value as before is not encoded. `None` when more
    /// may have changed.
    fn with_flips(
        &self,
        service: &Arc<Service>,
        view: &ServiceView,
    ) -> Option<BTreeMap<GroupKey, Arc<Collection>>> {
        let (old, new) = (&self.view.endpoints, &view.endpoints);
        if !Arc::ptr_eq(&self.service, service) || old.len() != new.len() {
            return None;
        }
        let mut changes: BTreeMap<GroupKey, Vec<(&EndpointView, EdsStatus)>> = BTreeMap::new();
        for (old, new) in old.iter().zip(new) {
            let (before, after) = (self.view.told_of(old), view.told_of(new));
            if Arc::ptr_eq(old, new) && before == after {
                continue;
            }
            if old.address != new.address || key_of(old) != key_of(new) {
                return None;
            }
            match (before, after) {
                (None, None) => {}
                (Some(_), Some(status)) => {
                    changes.entry(key_of(new)).or_default().push((new, status));
                }
                (None, Some(_)) | (Some(_), None) => return None,
            }
        }
        let mut groups = self.groups.clone();
        for (key, endpoints) in changes {
            let collection = groups.get_mut(&key)?;
            let entries = encode(service, collection.glob(), &endpoints);
            if let Some(new) = with(collection, entries, Vec::new()) {
                *collection = Arc::new(new);
            }
        }
        Some(groups)
    }
}

/// The collections of all groups, each as the one before as far as it can be.
fn all_groups(
    before: Option<&Endpoints>,
    service: &Arc<Service>,
    view: &ServiceView,
    paths: &mut Paths,
) -> BTreeMap<GroupKey, Arc<Collection>> {
    let mut told: BTreeMap<GroupKey, Vec<(&EndpointView, EdsStatus)>> = BTreeMap::new();
    for endpoint in &view.endpoints {
        if let Some(status) = view.told_of(endpoint) {
            let of_group = told.entry(key_of(endpoint)).or_default();
            of_group.push((endpoint, status));
        }
    }
    let collection = |(key, endpoints): (GroupKey, Vec<(&EndpointView, EdsStatus)>)| {
        let group = endpoints.first().map(|(first, _)| Arc::clone(&first.group));
        let old = before.and_then(|before| before.groups.get(&key));
        let new = match (old, group) {
            (Some(old), Some(group)) => {
                let entries = encode(service, old.glob(), &endpoints);
                let there: BTreeSet<&Arc<str>> = entries.iter().map(|entry| entry.name()).collect();
                let gone = old.entries().keys().filter(|name| !there.contains(name));
                let gone = gone.cloned().collect();
                match with(old, entries, gone) {
                    None => Arc::clone(old),
                    Some(worn) if worn.is_worn() => fresh(service, &group, &endpoints, paths),
                    Some(new) => Arc::new(new),
                }
            }
            (None, Some(group)) => fresh(service, &group, &endpoints, paths),
            (_, None) => return None,
        };
        Some((key, new))
    };
    told.into_iter().filter_map(collection).collect()
}

fn fresh(
    service: &Service,
    group: &EndpointGroup,
    endpoints: &[(&EndpointView, EdsStatus)],
    paths: &mut Paths,
) -> Arc<Collection> {
    let glob = paths.next(&service.name, group);
    let entries = encode(service, &glob, endpoints);
    Arc::new(Collection::new(glob, entries.into_iter().map(Arc::new)))
}

/// A collection with these entries, and without those that are gone; `None` when it has them like that.
fn with(
    collection: &Collection,
    entries: Vec<Resource>,
    gone: Vec<Arc<str>>,
) -> Option<Collection> {
    let differs = |entry: &Resource| {
        let old = collection.entries().get(entry.name());
        old.is_none_or(|old| old.digest() != entry.digest())
    };
    let changed: Vec<_> = (entries.into_iter().filter(differs).map(Arc::new)).collect();
    (!changed.is_empty() || !gone.is_empty()).then(|| collection.next(changed, gone))
}

fn encode(
    service: &Service,
    glob: &str,
    endpoints: &[(&EndpointView, EdsStatus)],
) -> Vec<Resource> {
    let envoys = envoys_check(service);
    let mut metadata = LastMetadata::default();
    let one = |(endpoint, status): &(&EndpointView, EdsStatus)| {
        let mut bytes = Vec::with_capacity(96);
        append_lb_endpoint(&mut bytes, endpoint, *status, envoys, &mut metadata);
        let name = entry_name(glob, endpoint.address);
        Resource::encoded(ResourceType::LbEndpoint, name, bytes, Vec::new())
    };
    endpoints.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
