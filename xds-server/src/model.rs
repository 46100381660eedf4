//! The validated configuration: services, groups, endpoints, checks, fleets.
//!
//! In: what `config` read and found free of errors. Out: one immutable value behind an `Arc`, that `plan`, `health` and
//! `resources` read. Every reference is resolved and every default filled in, so nobody downstream checks again.
//!
//! Not here: anything that changes by itself. Health is `health`'s; addresses of names will be `dns`'s.

mod endpoint;
mod fleet;
mod service;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use vitals_prober::check::HealthCheck;

pub use self::endpoint::{AdminState, Endpoint, EndpointGroup, GroupKind, Locality};
pub use self::fleet::{EndpointDiscovery, Fleet, Listener, ListenerKind, NodeMatcher, Route};
pub use self::service::{
    Affinity, Backend, Failover, Guard, LbPolicy, ProbedBy, Protocol, Quorum, Service,
    UpstreamRoots, UpstreamTls, WhenAllUnhealthy,
};

/// A name of the configuration: 1–63 of `a-z0-9-`. It is also the name of the Envoy resource.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The name, if it is one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let valid = (1..=63).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        valid.then(|| Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Health checks by name, also those that no service uses. One that gets its host from a service's routes (semantics
    /// P7) is whole only there.
    pub checks: BTreeMap<Name, Arc<HealthCheck>>,
    /// Backend services by name.
    pub services: BTreeMap<Name, Arc<Service>>,
    /// Fleets in the order of writing: the first that matches a node takes it.
    pub fleets: Vec<Arc<Fleet>>,
}

/// A health check under the name that the configuration gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCheck {
    /// Its name; not part of its content (semantics V6).
    pub name: Name,
    /// Its content.
    pub check: Arc<HealthCheck>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_63_of_lower_case_digits_and_hyphens() {
        for good in ["a", "shop-2", &"x".repeat(63)] {
            assert!(Name::new(good).is_some(), "{good}");
        }
        for bad in ["", "Shop", "a_b", "a.b", "ü", &"x".repeat(64)] {
            assert!(Name::new(bad).is_none(), "{bad}");
        }
    }
}
