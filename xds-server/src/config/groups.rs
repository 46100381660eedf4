//! `endpointGroups:` → endpoint groups by name.
//!
//! In: the items of the list, of all files. Out: a table of [`Group`]s. No two endpoints of a group share address and
//! port: Envoy would keep the first and drop the other without a word.
//!
//! Not here: endpoints that several groups of one service share (`services`).

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::diagnostic::{Place, quote};
use super::read::{Fields, Item};
use super::table::Table;
use crate::model::{AdminState, Endpoint, EndpointGroup, GroupKind, Locality, Name};

const KEYS: &[&str] = &["name", "type", "locality", "endpoints"];

const ENDPOINT_KEYS: &[&str] = &[
    "address",
    "fqdn",
    "port",
    "weight",
    "state",
    "healthCheckAddress",
    "healthCheckPort",
];

#[derive(Clone, Copy)]
enum Type {
    Addresses(GroupKind),
    Fqdn,
    NoChecks,
}

const TYPES: [(&str, Type); 6] = [
    ("GCE_VM_IP_PORT", Type::Addresses(GroupKind::GceVmIpPort)),
    (
        "NON_GCP_PRIVATE_IP_PORT",
        Type::Addresses(GroupKind::NonGcpPrivateIpPort),
    ),
    (
        "INTERNET_IP_PORT",
        Type::Addresses(GroupKind::InternetIpPort),
    ),
    ("INTERNET_FQDN_PORT", Type::Fqdn),
    ("SERVERLESS", Type::NoChecks),
    ("PRIVATE_SERVICE_CONNECT", Type::NoChecks),
];

/// A group that is defined; `None` where it is wrong or not supported yet.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) group: Option<Arc<EndpointGroup>>,
}

/// Reads one item of `endpointGroups` into the table.
pub(super) fn read(item: &Item<'_>, table: &mut Table<Group>) {
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    let name_item = fields.required("name", "give the group a name");
    let name = name_item.and_then(|i| i.name());
    let kind = read_type(&fields);
    let locality = fields
        .get("locality")
        .map(|i| read_locality(&i))
        .unwrap_or_default();
    let endpoints = fields
        .get("endpoints")
        .map(|i| read_endpoints(&i, kind))
        .unwrap_or_default();
    let Some(name_item) = name_item else { return };
    let group = match (name, kind) {
        (Some(name), Some(Type::Addresses(kind))) => Some(Arc::new(EndpointGroup {
            name,
            kind,
            locality,
            endpoints,
        })),
        _ => None,
    };
    table.define(&name_item, Group { group });
}

fn read_type(fields: &Fields<'_>) -> Option<Type> {
    let item = fields.required(
        "type",
        "write GCE_VM_IP_PORT, NON_GCP_PRIVATE_IP_PORT or INTERNET_IP_PORT",
    )?;
    let kind = item.choice(&TYPES)?;
    let word = item.scalar().unwrap_or_default();
    match kind {
        Type::Addresses(_) => {}
        Type::Fqdn => item.value_unsupported(
            word,
            "groups of addresses are (GCE_VM_IP_PORT, NON_GCP_PRIVATE_IP_PORT, INTERNET_IP_PORT)",
        ),
        Type::NoChecks => item.error(format!(
            "{word} groups have no health checks, so Vitals has nothing to tell of them; use a group of addresses"
        )),
    }
    Some(kind)
}

fn read_locality(item: &Item<'_>) -> Locality {
    let Some(fields) = item.fields(&["region", "zone"]) else {
        return Locality::default();
    };
    let part = |key| -> Arc<str> {
        let Some(item) = fields.get(key) else {
            return "".into();
        };
        let text = item.text().unwrap_or_default();
        if text.chars().count() > 128 {
            item.error(format!(
                "{} is too long; a {key} has at most 128 characters",
                quote(text)
            ));
        }
        text.into()
    };
    Locality {
        region: part("region"),
        zone: part("zone"),
    }
}

fn read_endpoints(item: &Item<'_>, kind: Option<Type>) -> Vec<Endpoint> {
    let mut seen: HashMap<SocketAddr, Place> = HashMap::new();
    let mut endpoints = Vec::new();
    for item in item.list() {
        let Some(endpoint) = read_endpoint(&item, kind) else {
            continue;
        };
        let place = item.node.place;
        match seen.insert(canonical(endpoint.address), place) {
            None => endpoints.push(endpoint),
            Some(first) => {
                seen.insert(canonical(endpoint.address), first);
                item.error(format!(
                    "the group has {} already, at {}; drop one",
                    endpoint.address,
                    item.sink.show(first)
                ));
            }
        }
    }
    // They stay as long as the model does.
    endpoints.shrink_to_fit();
    endpoints
}

/// The address by which endpoints are the same: `::ffff:10.0.0.1` is `10.0.0.1`.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn read_endpoint(item: &Item<'_>, kind: Option<Type>) -> Option<Endpoint> {
    let fields = item.fields(ENDPOINT_KEYS)?;
    let by_name = matches!(kind, Some(Type::Fqdn | Type::NoChecks));
    let address = match (fields.get("address"), fields.get("fqdn")) {
        (None, Some(fqdn)) if by_name => {
            fqdn.text();
            None
        }
        (address, Some(fqdn)) => {
            if kind.is_some() && !by_name {
                fqdn.misplaced(
                    "a name belongs to groups of type INTERNET_FQDN_PORT; write address: and an IP address here",
                );
            }
            address.and_then(|i| ip(&i))
        }
        (Some(address), None) => ip(&address),
        (None, None) if by_name => None,
        (None, None) => {
            fields.required("address", "give the endpoint's IP address");
            None
        }
    };
    let port = fields
        .required("port", "give the endpoint's port")
        .and_then(|i| i.port());
    let states = [
        ("ACTIVE", AdminState::Active),
        ("DRAINING", AdminState::Draining),
        ("STOPPED", AdminState::Stopped),
    ];
    let weight = fields.get("weight").and_then(|i| i.integer(0..=1000));
    let state = fields.get("state").and_then(|i| i.choice(&states));
    let health_check_address = fields.get("healthCheckAddress").and_then(|i| ip(&i));
    let health_check_port = fields.get("healthCheckPort").and_then(|i| i.port());
    Some(Endpoint {
        address: SocketAddr::new(address?, port?),
        weight: weight.and_then(|w| u32::try_from(w).ok()).unwrap_or(1),
        state: state.unwrap_or_default(),
        health_check_address,
        health_check_port,
    })
}

/// The IP address of an endpoint.
fn ip(item: &Item<'_>) -> Option<IpAddr> {
    let text = item.text()?;
    let Ok(ip) = text.parse::<IpAddr>() else {
        let right = if text.contains(['/', '%']) || text.parse::<SocketAddr>().is_ok() {
            "write the address alone, without port, mask or zone"
        } else {
            "an address is an IP literal (names come with groups of type INTERNET_FQDN_PORT)"
        };
        item.error(format!("{} is not an IP address; {right}", quote(text)));
        return None;
    };
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::from([255, 255, 255, 255]) {
        item.error(format!(
            "{ip} is not the address of one machine; write a unicast address"
        ));
        return None;
    }
    Some(ip)
}

/// The regions of all groups, as far as they are known.
pub(super) fn regions(groups: &Table<Group>) -> BTreeSet<Arc<str>> {
    let groups = groups.iter().filter_map(|(_, group)| group.group.as_ref());
    groups
        .map(|group| Arc::clone(&group.locality.region))
        .collect()
}

/// The endpoints that a group shares with those seen before in a service: the first of them, its group, and how many.
pub(super) fn shared<'g>(
    group: &'g EndpointGroup,
    seen: &mut HashMap<SocketAddr, &'g Name>,
) -> Option<(SocketAddr, &'g Name, usize)> {
    let mut first = None;
    let mut count = 0;
    for endpoint in &group.endpoints {
        let other = *seen
            .entry(canonical(endpoint.address))
            .or_insert(&group.name);
        if other != &group.name {
            count += 1;
            first.get_or_insert((endpoint.address, other));
        }
    }
    first.map(|(address, other)| (address, other, count))
}
