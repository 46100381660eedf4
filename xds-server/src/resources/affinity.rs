//! `sessionAffinity` (semantics H8): what of a request or connection is hashed.
//!
//! In: a service's affinity. Out: hash policies, of a route and of a TCP proxy. They only say what is hashed; that the hash
//! chooses the endpoint is the cluster's `lb_policy`, MAGLEV or RING_HASH.

use envoy_types::pb::envoy::config::route::v3::route_action::HashPolicy;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Cookie, Header, PolicySpecifier,
};
use envoy_types::pb::envoy::r#type::v3 as tcp;

use super::duration;
use crate::model::Affinity;

/// Of a route's requests.
#[must_use]
pub(super) fn of_requests(affinity: &Affinity) -> Vec<HashPolicy> {
    let specifier = match affinity {
        Affinity::None => return Vec::new(),
        Affinity::ClientIp => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
        }
        Affinity::Header(name) => PolicySpecifier::Header(Header {
            header_name: name.clone(),
            ..Header::default()
        }),
        Affinity::Cookie { name, ttl } => PolicySpecifier::Cookie(Cookie {
            name: name.clone(),
            // Given, so that Envoy sets the cookie where it is missing; zero lives as long as the browser is open.
            ttl: Some(duration(*ttl)),
            // Without it a browser would keep one cookie per folder.
            path: "/".into(),
            ..Cookie::default()
        }),
    };
    vec![HashPolicy {
        policy_specifier: Some(specifier),
        ..HashPolicy::default()
    }]
}

/// Of a TCP proxy's connections, which have neither headers nor cookies.
#[must_use]
pub(super) fn of_connections(affinity: &Affinity) -> Vec<tcp::HashPolicy> {
    match affinity {
        Affinity::ClientIp => vec![tcp::HashPolicy {
            policy_specifier: Some(tcp::hash_policy::PolicySpecifier::SourceIp(
                tcp::hash_policy::SourceIp {},
            )),
        }],
        Affinity::None | Affinity::Header(_) | Affinity::Cookie { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hashed(affinity: &Affinity) -> Option<PolicySpecifier> {
        let mut policies = of_requests(affinity);
        assert!(policies.len() <= 1);
        policies.pop().and_then(|policy| policy.policy_specifier)
    }

    #[test]
    fn h8_each_type_hashes_what_it_is_named_after() {
        assert_eq!(hashed(&Affinity::None), None);
        let ip = ConnectionProperties { source_ip: true };
        assert_eq!(
            hashed(&Affinity::ClientIp),
            Some(PolicySpecifier::ConnectionProperties(ip))
        );
        let header = hashed(&Affinity::Header("x-user".into()));
        assert!(
            matches!(header, Some(PolicySpecifier::Header(header)) if header.header_name == "x-user")
        );
    }

    #[test]
    fn h8_envoy_sets_the_cookie_also_when_it_lives_with_the_browser() {
        for ttl in [Duration::ZERO, Duration::from_secs(60)] {
            let cookie = Affinity::Cookie {
                name: "sid".into(),
                ttl,
            };
            let Some(PolicySpecifier::Cookie(cookie)) = hashed(&cookie) else {
                panic!("{cookie:?}");
            };
            assert_eq!((&*cookie.name, &*cookie.path), ("sid", "/"));
            assert_eq!(
                cookie.ttl,
                Some(duration(ttl)),
                "without it Envoy sets none"
            );
        }
    }
}
