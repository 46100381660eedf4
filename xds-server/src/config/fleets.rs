//! `fleets:` → fleets in the order of writing, their services and listeners resolved.
//!
//! In: the items of the list, of all files, the table of services, the regions of all groups. Out: [`Fleet`]s. Every route leads to a service
//! that the fleet is told of and that speaks what the listener speaks: Envoy would refuse, or silently drop, the rest.
//!
//! Not here: which node belongs to which fleet (`NodeMatcher` in `model`).

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};

use super::allow;
use super::diagnostic::{Place, clip, quote};
use super::read::{Fields, Item};
use super::routes;
use super::services::Defined;
use super::table::Table;
use crate::model::{EndpointDiscovery, Fleet, Listener, ListenerKind, Name, NodeMatcher};

const KEYS: &[&str] = &[
    "name",
    "match",
    "endpointDiscovery",
    "services",
    "regionOrder",
    "allow",
    "listeners",
    "resources",
];

const DISCOVERY: &[(&str, EndpointDiscovery)] = &[
    ("EDS", EndpointDiscovery::Eds),
    ("LEDS", EndpointDiscovery::Leds),
];

/// Envoy has 128 priorities; each region takes one for either pool of a service, and so do those that are not named.
const MAX_REGIONS: usize = 63;

/// What has been read so far.
#[derive(Debug)]
pub(super) struct Fleets {
    names: Table<()>,
    fleets: Vec<Arc<Fleet>>,
    /// The fleet that matches every node, if there is one: none after it can ever match.
    all: Option<String>,
}

/// The services that a fleet may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach<'r> {
    pub(super) services: &'r Table<Defined>,
    /// Those that the fleet is told of; `None`: all.
    pub(super) among: Option<&'r BTreeSet<&'r str>>,
}

impl Reach<'_> {
    /// The service that `item` names, if the fleet is told of it.
    pub(super) fn find(&self, item: &Item<'_>) -> Option<&Defined> {
        let found = self.services.find(item)?;
        let name = item.scalar()?;
        if self.among.is_some_and(|among| !among.contains(name)) {
            item.error(format!(
                "the fleet is not told of the service {name}; add it to the fleet's services"
            ));
        }
        Some(found)
    }
}

impl Fleets {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            names: Table::new("fleet"),
            fleets: Vec::new(),
            all: None,
        }
    }

    /// Whether none has been read.
    pub(super) fn is_empty(&self) -> bool {
        self.names.iter().next().is_none() && self.fleets.is_empty()
    }

    /// The fleets that are right.
    pub(super) fn into_fleets(self) -> Vec<Arc<Fleet>> {
        self.fleets
    }

    /// Reads one item of `fleets`.
    pub(super) fn read(
        &mut self,
        item: &Item<'_>,
        services: &Table<Defined>,
        regions: &BTreeSet<Arc<str>>,
    ) {
        let Some(fields) = item.fields(KEYS) else {
            return;
        };
        let name_item = fields.required("name", "give the fleet a name");
        let name = name_item.and_then(|i| i.name());
        if let Some(item) = &name_item {
            self.names.define(item, ());
        }
        let matcher = fields
            .get("match")
            .map(|i| read_match(&i))
            .unwrap_or_default();
        let label = name_item.as_ref().unwrap_or(item);
        if let Some(earlier) = &self.all {
            label.warning(format!(
                "no node is left for this fleet: {earlier} stands before it and matches every one; move {earlier} to the end"
            ));
        } else if matcher.id.is_none() && matcher.cluster.is_none() && matcher.metadata.is_empty() {
            self.all = Some(label.scalar().unwrap_or("a fleet").into());
        }
        refuse_the_rest(&fields);
        let allow = fields.get("allow").and_then(|i| allow::read(&i));
        let region_order = fields
            .get("regionOrder")
            .map(|i| read_region_order(&i, regions))
            .unwrap_or_default();
        let discovery = fields.get("endpointDiscovery");
        let endpoint_discovery = discovery
            .and_then(|item| item.choice(DISCOVERY))
            .unwrap_or_default();
        let named = fields.get("services");
        let told = named.as_ref().map(|item| read_services(item, services));
        let reach = Reach {
            services,
            among: told.as_ref(),
        };
        let listeners = fields
            .get("listeners")
            .map(|i| read_listeners(&i, reach))
            .unwrap_or_default();
        let told: BTreeSet<Name> = match &told {
            Some(told) => told.iter().filter_map(|name| Name::new(name)).collect(),
            None => services
                .iter()
                .filter_map(|(name, _)| Name::new(name))
                .collect(),
        };
        if let Some(name) = name {
            self.fleets.push(Arc::new(Fleet {
                name,
                matcher,
                allow,
                services: told,
                listeners,
                region_order,
                endpoint_discovery,
            }));
        }
    }
}

fn read_match(item: &Item<'_>) -> NodeMatcher {
    let Some(fields) = item.fields(&["id", "cluster", "metadata"]) else {
        return NodeMatcher::default();
    };
    let mut matcher = NodeMatcher {
        id: fields.get("id").and_then(|i| glob(&i)),
        cluster: fields.get("cluster").and_then(|i| glob(&i)),
        ..NodeMatcher::default()
    };
    if let Some(item) = fields.get("metadata")
        && let Some(metadata) = item.entries()
    {
        for (key, value) in metadata.all() {
            if let Some(glob) = glob(&value) {
                matcher.metadata.insert(key.into(), glob);
            }
        }
    }
    matcher
}

fn glob(item: &Item<'_>) -> Option<GlobMatcher> {
    let text = item.text()?;
    if text.is_empty() || text.len() > 256 {
        item.error("a pattern has 1–256 characters; leave the key out to match everything");
        return None;
    }
    let glob = GlobBuilder::new(text)
        .literal_separator(false)
        .backslash_escape(true)
        .build();
    match glob {
        Ok(glob) => Some(glob.compile_matcher()),
        Err(e) => {
            item.error(format!(
                "{} is not a pattern: {}; use * for any characters and ? for one",
                quote(text),
                e.kind()
            ));
            None
        }
    }
}

fn refuse_the_rest(fields: &Fields<'_>) {
    if let Some(item) = fields.get("resources") {
        item.key_unsupported("Envoy resources of your own", "leave resources out");
        for item in item.list() {
            item.entries();
        }
    }
}

/// Semantics H10. A region that no group has is a warning: its group may be about to come, or just have gone.
fn read_region_order(item: &Item<'_>, regions: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
    let mut order: Vec<Arc<str>> = Vec::new();
    let mut written = 0;
    for item in item.list() {
        written += 1;
        if written > MAX_REGIONS {
            continue;
        }
        let Some(region) = item.text() else { continue };
        if region.is_empty() {
            item.error("an empty name is no region; write one of a group's locality, or drop it");
        } else if order.iter().any(|known| &**known == region) {
            item.error(format!("{} stands here already; drop one", clip(region)));
        } else {
            if !regions.contains(region) && !item.sink.is_incomplete() {
                let hint = item.sink.suggest(region, regions.iter().map(|r| &**r));
                let hint = if hint.is_empty() {
                    "; write it as a group's locality has it".into()
                } else {
                    hint
                };
                item.warning(format!(
                    "no endpoint group is in the region {}{hint}",
                    quote(region)
                ));
            }
            order.push(region.into());
        }
    }
    if written > MAX_REGIONS {
        item.error(format!(
            "{written} regions are more than Envoy has priorities for; name at most {MAX_REGIONS}"
        ));
    }
    order
}

fn read_services<'i>(item: &'i Item<'i>, services: &Table<Defined>) -> BTreeSet<&'i str> {
    let mut told = BTreeSet::new();
    for named in item.list() {
        // One that is not defined is kept: it is reported here, and once more only where a route leads there.
        services.find(&named);
        if let Some(name) = named.scalar()
            && !told.insert(name)
        {
            named.error(format!("{name} stands here already; drop one"));
        }
    }
    told
}

fn read_listeners(item: &Item<'_>, reach: Reach<'_>) -> Vec<Listener> {
    let mut names: Table<()> = Table::new("listener of this fleet");
    let mut addresses: HashMap<SocketAddr, Place> = HashMap::new();
    let mut listeners = Vec::new();
    for item in item.list() {
        let Some(fields) = item.fields(&["name", "address", "port", "routes", "service"]) else {
            continue;
        };
        let name_item = fields.required("name", "give the listener a name");
        let name = name_item.and_then(|i| i.name());
        if let Some(item) = &name_item {
            names.define(item, ());
        }
        let ip = match fields.get("address") {
            None => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Some(item) => listen_ip(&item),
        };
        let port = fields.required("port", "give the port to listen on");
        let number = port.and_then(|i| i.port());
        let address = ip.zip(number).map(|(ip, port)| SocketAddr::new(ip, port));
        if let (Some(address), Some(port)) = (address, port) {
            match addresses.get(&address) {
                None => {
                    addresses.insert(address, port.node.place);
                }
                Some(first) => port.error(format!(
                    "another listener of this fleet has {address} already, at {}; give each its own",
                    item.sink.show(*first)
                )),
            }
        }
        let kind = read_kind(&item, &fields, reach);
        if let (Some(name), Some(address), Some(kind)) = (name, address, kind) {
            listeners.push(Listener {
                name,
                address,
                kind,
            });
        }
    }
    listeners
}

fn listen_ip(item: &Item<'_>) -> Option<IpAddr> {
    let text = item.text()?;
    match text.parse::<IpAddr>() {
        Ok(ip) if !ip.is_multicast() => Some(ip),
        _ => {
            item.error(format!(
                "{} is not an IP address to listen on; write one, such as 0.0.0.0, \"::\" or 127.0.0.1",
                quote(text)
            ));
            None
        }
    }
}

fn read_kind(item: &Item<'_>, fields: &Fields<'_>, reach: Reach<'_>) -> Option<ListenerKind> {
    let routes = fields.get("routes");
    let service = fields.get("service");
    match (routes, service) {
        (Some(routes), None) => Some(ListenerKind::Http(routes::read(&routes, reach))),
        (None, Some(service)) => {
            let found = reach.find(&service)?;
            if found.protocol.is_some_and(|p| p.is_http()) {
                service.error(format!(
                    "a listener with service is a TCP proxy, and {} is an HTTP service; use routes",
                    service.scalar().unwrap_or_default()
                ));
            }
            Name::new(service.scalar()?).map(ListenerKind::Tcp)
        }
        (Some(routes), Some(service)) => {
            service.misplaced(
                "a listener has either routes (HTTP) or service (TCP proxy), not both; drop one",
            );
            routes::read(&routes, reach);
            reach.find(&service);
            None
        }
        (None, None) => {
            item.error("the listener leads nowhere; give it routes (HTTP) or service (TCP proxy)");
            None
        }
    }
}
