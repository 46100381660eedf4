//! An HTTP listener's RouteConfiguration.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;

use super::{affinity, duration};
use crate::model::{Name, Route, Service};
use crate::snapshot::{Resource, ResourceType};

/// The RouteConfiguration of an HTTP listener. `service_of` finds the services that it leads to.
#[must_use]
pub fn route_configuration<'m>(
    listener: &Name,
    routes: &[Route],
    service_of: impl Fn(&Name) -> Option<&'m Service>,
) -> Resource {
    let message = pb::RouteConfiguration {
        name: listener.as_str().into(),
        virtual_hosts: virtual_hosts(routes, service_of),
        ..pb::RouteConfiguration::default()
    };
    let services: BTreeSet<&Name> = routes.iter().map(|route| &route.service).collect();
    let references = services
        .into_iter()
        .map(|service| (ResourceType::Cluster, service.shared()))
        .collect();
    Resource::new(
        ResourceType::RouteConfiguration,
        listener.shared(),
        &message,
        references,
    )
}

/// Envoy chooses the virtual host by the request's domain, before it looks at any path, and refuses a domain that stands
/// in two. So every domain has the routes of all items that name it, in the order of writing, and domains with the same
/// routes share a virtual host.
fn virtual_hosts<'m>(
    routes: &[Route],
    service_of: impl Fn(&Name) -> Option<&'m Service>,
) -> Vec<pb::VirtualHost> {
    let mut domains: Vec<&String> = Vec::new();
    let mut routes_of: HashMap<&String, Vec<usize>> = HashMap::new();
    for (index, route) in routes.iter().enumerate() {
        for domain in &route.domains {
            let of_domain = routes_of.entry(domain).or_insert_with(|| {
                domains.push(domain);
                Vec::new()
            });
            if of_domain.last() != Some(&index) {
                of_domain.push(index);
            }
        }
    }
    let mut hosts: Vec<pb::VirtualHost> = Vec::new();
    let mut host_of: HashMap<&[usize], usize> = HashMap::new();
    for domain in domains {
        let of_domain = routes_of.get(domain).map_or(&[][..], Vec::as_slice);
        match host_of
            .get(of_domain)
            .and_then(|place| hosts.get_mut(*place))
        {
            Some(host) => host.domains.push(domain.clone()),
            None => {
                host_of.insert(of_domain, hosts.len());
                let of_host = of_domain.iter().filter_map(|index| routes.get(*index));
                hosts.push(pb::VirtualHost {
                    name: domain.clone(),
                    domains: vec![domain.clone()],
                    routes: of_host
                        .map(|route| http_route(route, service_of(&route.service)))
                        .collect(),
                    ..pb::VirtualHost::default()
                });
            }
        }
    }
    hosts
}

fn http_route(route: &Route, service: Option<&Service>) -> pb::Route {
    // Envoy ends a request after 15 s by default. That is right for HTTP/1, but HTTP/2 and gRPC services stream.
    let timeout = service
        .filter(|service| service.protocol.is_http2())
        .map(|_| duration(Duration::ZERO));
    let hash_policy = service
        .map(|service| affinity::of_requests(&service.affinity))
        .unwrap_or_default();
    pb::Route {
        r#match: Some(pb::RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(route.prefix.clone())),
            ..pb::RouteMatch::default()
        }),
        action: Some(Action::Route(pb::RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(route.service.as_str().into())),
            timeout,
            hash_policy,
            ..pb::RouteAction::default()
        })),
        ..pb::Route::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(domains: &[&str], prefix: &str) -> Route {
        Route {
            domains: domains.iter().map(|&domain| domain.into()).collect(),
            prefix: prefix.into(),
            service: Name::new("shop").unwrap(),
        }
    }

    #[test]
    fn no_domain_stands_in_two_virtual_hosts() {
        let routes = [
            route(&["a", "b"], "/x"),
            route(&["a"], "/"),
            route(&["c", "b"], "/z"),
            route(&["d"], "/x"),
        ];
        let hosts = virtual_hosts(&routes, |_| None);
        let of = |host: &pb::VirtualHost| {
            let prefix = |route: &pb::Route| match &route.r#match.as_ref().unwrap().path_specifier {
                Some(PathSpecifier::Prefix(prefix)) => prefix.clone(),
                other => panic!("{other:?}"),
            };
            (
                host.domains.clone(),
                host.routes.iter().map(prefix).collect::<Vec<_>>(),
            )
        };
        let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            hosts.iter().map(of).collect::<Vec<_>>(),
            [
                (owned(&["a"]), owned(&["/x", "/"])),
                (owned(&["b"]), owned(&["/x", "/z"])),
                (owned(&["c"]), owned(&["/z"])),
                (owned(&["d"]), owned(&["/x"])),
            ]
        );
    }
}
