//! `probing:` of a service, and of a backend.
//!
//! In: the block, and the check that the service names. Out: who probes, the quorum and the guard. That Envoys can run the
//! check (semantics H7) is looked at where `ENVOYS` is written; where nothing is, `services` finds who probes by the kind
//! of each group. Vantages other than all, and HDS, are a later version's: read for unknown keys and wrong forms.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::diagnostic::{Place, quote};
use super::groups::canonical;
use super::read::Item;
use super::services::Asked;
use crate::model::{Guard, ProbedBy, Quorum};

const KEYS: &[&str] = &["by", "quorum", "vantages", "guard", "hds"];

/// The keys of a backend's own block: the votes of all backends are counted alike.
const BACKEND_KEYS: &[&str] = &["by"];

/// Canaries of a guard, at most: each is two connections every second from every vantage.
const MAX_CANARIES: usize = 16;

/// The block of a service.
#[derive(Debug, Default)]
pub(super) struct Probing {
    /// Who probes, where that is written.
    pub(super) by: Option<ProbedBy>,
    /// How votes come to a status.
    pub(super) quorum: Quorum,
    /// When a vantage is doubted.
    pub(super) guard: Guard,
    /// Whether quorum or guard are written, which say something of probers only.
    pub(super) of_probers: bool,
}

/// Reads the block of a service.
pub(super) fn read(item: &Item<'_>, asked: &Asked) -> Probing {
    let mut probing = Probing::default();
    let Some(fields) = item.fields(KEYS) else {
        return probing;
    };
    if let Some(item) = fields.get("by") {
        probing.by = read_by(&item, asked);
    }
    if let Some(item) = fields.get("quorum") {
        probing.of_probers = true;
        probing.quorum = read_quorum(&item).unwrap_or_default();
    }
    if let Some(item) = fields.get("vantages") {
        read_vantages(&item);
    }
    if let Some(item) = fields.get("guard") {
        probing.of_probers = true;
        probing.guard = read_guard(&item);
    }
    if let Some(item) = fields.get("hds") {
        item.key_unsupported("probes by Envoys over HDS", "leave hds out");
        if let Some(fields) = item.fields(&["fleets", "perZone"]) {
            if let Some(fleets) = fields.get("fleets") {
                fleets.texts();
            }
            fields.get("perZone").and_then(|i| i.integer(1..=1000));
        }
    }
    probing
}

/// Reads the block of a backend, which may say who probes its endpoints, and nothing else.
pub(super) fn read_of_backend(item: &Item<'_>, asked: &Asked) -> Option<ProbedBy> {
    read_by(&item.fields(BACKEND_KEYS)?.get("by")?, asked)
}

/// `by`, where it is right.
fn read_by(item: &Item<'_>, asked: &Asked) -> Option<ProbedBy> {
    let words = [
        ("PROBERS", Some(ProbedBy::PROBERS)),
        ("ENVOYS", Some(ProbedBy::ENVOYS)),
        ("HDS", None),
    ];
    let errors = item.sink.errors();
    let mut found = ProbedBy {
        probers: false,
        envoys: false,
    };
    let mut seen: Vec<&str> = Vec::new();
    for by in item.list() {
        let Some(choice) = by.choice(&words) else {
            continue;
        };
        let word = by.scalar().unwrap_or_default();
        if seen.contains(&word) {
            by.error(format!("{word} stands here already; drop one"));
            continue;
        }
        seen.push(word);
        match choice {
            None => by.value_unsupported(word, "PROBERS and ENVOYS are"),
            Some(choice) => {
                found.probers |= choice.probers;
                found.envoys |= choice.envoys;
                if choice.envoys
                    && let Asked::Check(check) = asked
                    && let Some(why) = &check.inexpressible
                {
                    by.error(format!(
                        "Envoys cannot run the check {}: {}: {}; there {}, or drop ENVOYS here",
                        check.name, why.field, why.why, why.nearest
                    ));
                }
            }
        }
    }
    if item.sink.errors() > errors {
        return None;
    }
    if seen.is_empty() {
        item.error("nobody would probe; write [PROBERS], or leave by out");
        return None;
    }
    if matches!(asked, Asked::Nothing) {
        item.misplaced(
            "the service has no check, so there is nothing to probe by; name a healthCheck, or drop by",
        );
        return None;
    }
    Some(found)
}

/// Semantics V2.
fn read_quorum(item: &Item<'_>) -> Option<Quorum> {
    let is_share = item
        .scalar()
        .is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    if !is_share {
        return item.choice(&[
            ("MAJORITY", Quorum::Majority),
            ("ANY", Quorum::Any),
            ("ALL", Quorum::All),
        ]);
    }
    let share = item.number(0.0..=1.0)?;
    if share >= 1.0 {
        item.error(
            "more than all votes can never be healthy; write ALL, or a share below 1.0 such as 0.5",
        );
        return None;
    }
    Some(Quorum::Share(share))
}

fn read_vantages(item: &Item<'_>) {
    let Some(fields) = item.fields(&["count", "spread"]) else {
        return;
    };
    if let Some(count) = fields.get("count")
        && count.scalar() != Some("all")
        && count.integer(1..=1000).is_some()
    {
        let word = count.scalar().unwrap_or_default();
        count.value_unsupported(word, "all is: every vantage probes every endpoint");
    }
    if let Some(spread) = fields.get("spread") {
        spread.key_unsupported(
            "a choice among vantage points",
            "leave spread out: every vantage probes every endpoint",
        );
        spread.choice(&[("zone", ()), ("region", ())]);
    }
}

/// Semantics V5.
fn read_guard(item: &Item<'_>) -> Guard {
    const KEYS: &[&str] = &["enabled", "maxShare", "minEndpoints", "maxHold", "canaries"];
    let mut guard = Guard::default();
    let Some(fields) = item.fields(KEYS) else {
        return guard;
    };
    if let Some(enabled) = fields.get("enabled").and_then(|i| i.boolean()) {
        guard.enabled = enabled;
    }
    if let Some(item) = fields.get("maxShare")
        && let Some(share) = item.number(0.0..=1.0)
    {
        if share <= 0.0 {
            item.error(
                "at 0.0 the first endpoint that fails silences a vantage; give a larger share, or write enabled: false",
            );
        }
        guard.max_share = share;
    }
    if let Some(least) = fields
        .get("minEndpoints")
        .and_then(|i| i.integer(1..=1_000_000))
    {
        guard.min_endpoints = u32::try_from(least).unwrap_or(u32::MAX);
    }
    if let Some(item) = fields.get("maxHold")
        && let Some(hold) = item.duration()
    {
        if !(Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&hold) {
            let written = item.written();
            item.error(format!("{written} is out of range; 1s to 24h is allowed"));
        }
        guard.max_hold = hold;
    }
    if let Some(item) = fields.get("canaries") {
        guard.canaries = read_canaries(&item);
    }
    guard
}

fn read_canaries(item: &Item<'_>) -> Vec<SocketAddr> {
    let mut seen: HashMap<SocketAddr, Place> = HashMap::new();
    let mut canaries = Vec::new();
    let mut written = 0;
    for item in item.list() {
        written += 1;
        let Some(address) = read_canary(&item) else {
            continue;
        };
        match seen.insert(canonical(address), item.node.place) {
            None => canaries.push(address),
            Some(first) => item.error(format!(
                "the guard has {address} already, at {}; drop one",
                item.sink.show(first)
            )),
        }
    }
    if written > MAX_CANARIES {
        item.error(format!(
            "{written} canaries are too many; every vantage connects to each twice a second, so name at most {MAX_CANARIES}"
        ));
        canaries.clear();
    }
    canaries
}

fn read_canary(item: &Item<'_>) -> Option<SocketAddr> {
    let text = item.text()?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        let name = text.rsplit_once(':').filter(|(host, port)| {
            vitals_prober::check::is_dns_name(host)
                && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
        match name {
            Some(_) => item.value_unsupported(
                quote(text),
                "addresses are, such as 192.0.2.1:443",
            ),
            None => item.error(format!(
                "{} is not an address and a port; write one such as 192.0.2.1:443 or \"[2001:db8::1]:443\"",
                quote(text)
            )),
        }
        return None;
    };
    let ip = address.ip();
    let zone = matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0);
    if ip.is_unspecified()
        || ip.is_multicast()
        || ip == std::net::IpAddr::from([255, 255, 255, 255])
        || address.port() == 0
        || zone
    {
        item.error(format!(
            "{address} is not a port of one machine; write a unicast address and a port, 1–65535"
        ));
        return None;
    }
    Some(address)
}
