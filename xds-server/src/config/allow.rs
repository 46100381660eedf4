//! `fleets[].allow` → whom the fleet admits by certificate.
//!
//! In: the item. Out: an [`Allow`]. Not here: whether the server asks clients for certificates at all; that is a flag of
//! `serve`, which refuses a configuration that it could not honour (`app`).

use std::sync::Arc;

use globset::GlobMatcher;

use super::diagnostic::{clip, quote};
use super::read::Item;
use crate::trust::{Allow, SPIFFE, dns_glob, spiffe_glob};

/// The most patterns of one kind; each certificate is held against all of them.
const MAX_PATTERNS: usize = 1_024;

/// Reads `allow`. One that would admit nobody is an error: whoever wants that leaves the fleet out.
pub(super) fn read(item: &Item<'_>) -> Option<Arc<Allow>> {
    let fields = item.fields(&["spiffeIds", "dnsNames"])?;
    let (spiffe_ids, dns_names) = (fields.get("spiffeIds"), fields.get("dnsNames"));
    let mut written = 0;
    let spiffe = spiffe_ids.map(|list| patterns(&list, &mut written, spiffe_id));
    let dns = dns_names.map(|list| patterns(&list, &mut written, dns_name));
    if written == 0 {
        item.error(
            "nobody is admitted; name spiffeIds or dnsNames, such as spiffeIds: [\"spiffe://mesh/edge/*\"], or leave allow out",
        );
    }
    Some(Arc::new(Allow::new(
        spiffe.unwrap_or_default(),
        dns.unwrap_or_default(),
    )))
}

fn patterns(
    list: &Item<'_>,
    written: &mut usize,
    read: impl Fn(&Item<'_>, &str) -> Option<GlobMatcher>,
) -> Vec<GlobMatcher> {
    let mut seen: Vec<&str> = Vec::new();
    let mut globs = Vec::new();
    let items: Vec<Item<'_>> = list.list().collect();
    if items.len() > MAX_PATTERNS {
        list.error(format!(
            "{} patterns are too many; name at most {MAX_PATTERNS}, with * where they are alike",
            items.len()
        ));
    }
    for item in items.iter().take(MAX_PATTERNS) {
        *written += 1;
        let Some(text) = item.text() else { continue };
        if text.is_empty() || text.len() > 256 {
            item.error("a pattern has 1–256 characters");
        } else if seen.contains(&text) {
            item.error(format!("{} stands here already; drop one", clip(text)));
        } else {
            seen.push(text);
            globs.extend(read(item, text));
        }
    }
    globs
}

fn spiffe_id(item: &Item<'_>, text: &str) -> Option<GlobMatcher> {
    let path = text.strip_prefix(SPIFFE);
    if path.is_none_or(|path| path.is_empty() || path.starts_with('/')) {
        item.error(format!(
            "{} is no SPIFFE ID; write spiffe://, a trust domain and a path, such as \"spiffe://mesh/edge/*\"",
            quote(text)
        ));
        return None;
    }
    compiled(item, text, spiffe_glob(text))
}

fn dns_name(item: &Item<'_>, text: &str) -> Option<GlobMatcher> {
    if text.contains(['/', ':', '@']) || text.contains(char::is_whitespace) {
        item.error(format!(
            "{} is no DNS name; write one such as \"envoy-1.example.com\" or \"*.edge.example.com\"",
            quote(text)
        ));
        return None;
    }
    compiled(item, text, dns_glob(text))
}

fn compiled(
    item: &Item<'_>,
    text: &str,
    glob: Result<GlobMatcher, globset::Error>,
) -> Option<GlobMatcher> {
    match glob {
        Ok(glob) => Some(glob),
        Err(error) => {
            item.error(format!(
                "{} is not a pattern: {}; use * within one part of a name and ** over several",
                quote(text),
                error.kind()
            ));
            None
        }
    }
}
