//! `probing:` of a service or a backend.
//!
//! In: the block. Out: nothing yet but findings, because there is one way to probe: this server's own prober, by
//! majority, which is one vote. Whatever asks for that is taken; the rest of the block's contract is read for unknown
//! keys and wrong forms and reported as not supported yet.

use super::read::Item;

const KEYS: &[&str] = &["by", "quorum", "vantages", "guard", "hds"];

/// Reads the block.
pub(super) fn read(item: &Item<'_>) {
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    if let Some(item) = fields.get("by") {
        read_by(&item);
    }
    if let Some(item) = fields.get("quorum") {
        read_quorum(&item);
    }
    if let Some(item) = fields.get("vantages") {
        item.key_unsupported(
            "several vantage points",
            "leave vantages out: this server probes alone",
        );
        if let Some(fields) = item.fields(&["count", "spread"]) {
            if let Some(count) = fields.get("count")
                && count.scalar() != Some("all")
            {
                count.integer(1..=1000);
            }
            fields
                .get("spread")
                .and_then(|i| i.choice(&[("zone", ()), ("region", ())]));
        }
    }
    if let Some(item) = fields.get("guard") {
        item.key_unsupported(
            "the guard against a failing vantage point",
            "leave guard out",
        );
        read_guard(&item);
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
}

fn read_by(item: &Item<'_>) {
    let words = [("PROBERS", true), ("ENVOYS", false), ("HDS", false)];
    let mut seen = Vec::new();
    for by in item.list() {
        let choice = by.choice(&words);
        let word = by.scalar().unwrap_or_default();
        if choice == Some(false) {
            by.value_unsupported(word, "PROBERS is");
        }
        if choice.is_some() && seen.contains(&word) {
            by.error(format!("{word} stands here already; drop one"));
        }
        seen.push(word);
    }
    if seen.is_empty() && item.scalar().is_none() {
        item.error("nobody would probe; write [PROBERS], or leave by out");
    }
}

fn read_quorum(item: &Item<'_>) {
    let is_share = item
        .scalar()
        .is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    let unsupported = if is_share {
        item.number(0.0..=1.0).is_some()
    } else {
        item.choice(&[("MAJORITY", true), ("ANY", false), ("ALL", false)]) == Some(false)
    };
    if unsupported {
        item.value_unsupported(item.scalar().unwrap_or_default(), "MAJORITY is");
    }
}

fn read_guard(item: &Item<'_>) {
    const KEYS: &[&str] = &["enabled", "maxShare", "minEndpoints", "maxHold", "canaries"];
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    fields.get("enabled").and_then(|i| i.boolean());
    fields.get("maxShare").and_then(|i| i.number(0.0..=1.0));
    fields
        .get("minEndpoints")
        .and_then(|i| i.integer(0..=u64::from(u32::MAX)));
    fields.get("maxHold").and_then(|i| i.duration());
    if let Some(canaries) = fields.get("canaries") {
        canaries.texts();
    }
}
