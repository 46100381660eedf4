//! A fleet's Listener: HTTP with routes over RDS, or a TCP proxy.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::listener::v3::{self as pb, filter::ConfigType};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};

use super::local_reply::local_reply;
use super::{address, ads, affinity, any};
use crate::model::{Listener, ListenerKind, Name, Route, Service};
use crate::snapshot::{Resource, ResourceType};

/// The Listener of that name. `service_of` finds the services that it leads to.
#[must_use]
pub fn listener<'m>(
    listener: &Listener,
    service_of: impl Fn(&Name) -> Option<&'m Service>,
) -> Resource {
    let name = listener.name.shared();
    let (filter, reference) = match &listener.kind {
        ListenerKind::Http(routes) => (
            http_filter(&name, routes, service_of),
            (ResourceType::RouteConfiguration, listener.name.shared()),
        ),
        ListenerKind::Tcp(service) => (
            tcp_filter(&name, service, service_of(service)),
            (ResourceType::Cluster, service.shared()),
        ),
    };
    let message = pb::Listener {
        name: (*name).into(),
        address: Some(address(listener.address)),
        filter_chains: vec![pb::FilterChain {
            filters: vec![filter],
            ..pb::FilterChain::default()
        }],
        ..pb::Listener::default()
    };
    Resource::new(ResourceType::Listener, name, &message, vec![reference])
}

fn http_filter<'m>(
    name: &str,
    routes: &[Route],
    service_of: impl Fn(&Name) -> Option<&'m Service>,
) -> pb::Filter {
    let services: BTreeSet<&Name> = routes.iter().map(|route| &route.service).collect();
    let manager = HttpConnectionManager {
        stat_prefix: name.into(),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ads()),
            route_config_name: name.into(),
        })),
        http_filters: vec![HttpFilter {
            name: "envoy.filters.http.router".into(),
            config_type: Some(http_filter::ConfigType::TypedConfig(
                any(&Router::default()),
            )),
            ..HttpFilter::default()
        }],
        local_reply_config: local_reply(services.into_iter().filter_map(service_of)),
        ..HttpConnectionManager::default()
    };
    pb::Filter {
        name: "envoy.filters.network.http_connection_manager".into(),
        config_type: Some(ConfigType::TypedConfig(any(&manager))),
    }
}

fn tcp_filter(name: &str, cluster: &Name, service: Option<&Service>) -> pb::Filter {
    let proxy = TcpProxy {
        stat_prefix: name.into(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.as_str().into())),
        hash_policy: service
            .map(|service| affinity::of_connections(&service.affinity))
            .unwrap_or_default(),
        ..TcpProxy::default()
    };
    pb::Filter {
        name: "envoy.filters.network.tcp_proxy".into(),
        config_type: Some(ConfigType::TypedConfig(any(&proxy))),
    }
}

#[cfg(test)]
mod tests;
