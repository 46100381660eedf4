//! `routes:` of a listener → routes in the order of writing.
//!
//! In: the list and the services that the fleet is told of. Out: [`Route`]s whose domains and prefixes Envoy accepts.
//! The first route that matches takes a request, so a second with the same domain and prefix is an error: it was meant
//! to do something and cannot.
//!
//! Not here: grouping routes by domain into virtual hosts (`resources`).

use std::collections::HashMap;
use std::collections::HashSet;

use super::diagnostic::{Place, quote};
use super::fleets::Reach;
use super::read::Item;
use crate::model::{Name, Route};

/// Reads the list.
pub(super) fn read(list: &Item<'_>, reach: Reach<'_>) -> Vec<Route> {
    let mut seen: HashMap<(String, String), Place> = HashMap::new();
    let mut routes = Vec::new();
    let mut any = false;
    for item in list.list() {
        any = true;
        let Some(fields) = item.fields(&["domains", "prefix", "service"]) else {
            continue;
        };
        let prefix = match fields.get("prefix") {
            None => Some("/".to_owned()),
            Some(item) => prefix(&item),
        };
        let domains = match fields.get("domains") {
            None => vec!["*".to_owned()],
            Some(item) => domains(&item),
        };
        if let Some(prefix) = &prefix {
            for domain in &domains {
                let place = item.node.place;
                let first = *seen
                    .entry((domain.clone(), prefix.clone()))
                    .or_insert(place);
                if first != place {
                    item.error(format!(
                        "an earlier route takes every request for domain {} and prefix {}, at {}; drop this one or change it",
                        quote(domain),
                        quote(prefix),
                        item.sink.show(first)
                    ));
                }
            }
        }
        let service = fields.required("service", "name the service that the route leads to");
        if let Some(item) = &service
            && let Some(found) = reach.find(item)
            && found.protocol.is_some_and(|p| !p.is_http())
        {
            item.error(format!(
                "a route leads to an HTTP service, and {} is a TCP service; use a listener with service",
                item.scalar().unwrap_or_default()
            ));
        }
        let service = service.and_then(|item| Name::new(item.scalar()?));
        if let (Some(prefix), Some(service)) = (prefix, service) {
            routes.push(Route {
                domains,
                prefix,
                service,
            });
        }
    }
    if !any && list.scalar().is_none() {
        list.error("a listener without a route answers nothing; give at least one");
    }
    routes
}

fn prefix(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    let fits = |b: u8| b.is_ascii_graphic() && b != b'?' && b != b'#';
    if !text.starts_with('/') || text.len() > 2048 || !text.bytes().all(fits) {
        item.error(format!(
            "{} is not a path prefix; write / and at most 2,047 more printable ASCII characters, without spaces, ? and #",
            quote(text)
        ));
        return None;
    }
    Some(text.into())
}

fn domains(item: &Item<'_>) -> Vec<String> {
    let mut domains = Vec::new();
    let mut seen = HashSet::new();
    let mut any = false;
    for item in item.list() {
        any = true;
        let Some(text) = item.text() else { continue };
        if !is_domain(text) {
            item.error(format!(
                "{} is not a domain; write a host such as example.com, with * for the rest at its beginning or its end only",
                quote(text)
            ));
            continue;
        }
        // Envoy compares hosts whatever their case.
        let domain = text.to_ascii_lowercase();
        if seen.insert(domain.clone()) {
            domains.push(domain);
        } else {
            item.error(format!("{} stands here already; drop one", quote(text)));
        }
    }
    if !any && matches!(item.node.value, super::tree::Value::List(_)) {
        item.error("no domain matches nothing; leave domains out for all");
    }
    domains
}

/// What Envoy takes as a domain: a host, or one with a `*` at either end.
fn is_domain(text: &str) -> bool {
    let host = match (text.strip_prefix('*'), text.strip_suffix('*')) {
        (Some(""), _) => return true,
        (Some(rest), _) | (None, Some(rest)) => rest,
        (None, None) => text,
    };
    !host.is_empty()
        && text.len() <= 255
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_at_one_end_of_a_domain() {
        for good in [
            "*",
            "example.com",
            "*.example.com",
            "*-x.example.com",
            "example.*",
            "a.b:80",
            "[::1]:80",
        ] {
            assert!(is_domain(good), "{good}");
        }
        for bad in [
            "",
            "**",
            "*a*",
            "a.*.b",
            "a b",
            "ü.de",
            "a/b",
            &"x".repeat(256),
        ] {
            assert!(!is_domain(bad), "{bad}");
        }
    }
}
