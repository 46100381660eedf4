//! A fleet's Listener: HTTP with routes over RDS, or a TCP proxy.

use envoy_types::pb::envoy::config::listener::v3::{self as pb, filter::ConfigType};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};

use super::{address, ads, any};
use crate::model::{Listener, ListenerKind};
use crate::snapshot::{Resource, ResourceType};

/// The Listener of that name.
#[must_use]
pub fn listener(listener: &Listener) -> Resource {
    let name = listener.name.shared();
    let (filter, reference) = match &listener.kind {
        ListenerKind::Http(_) => (
            http_filter(&name),
            (ResourceType::RouteConfiguration, listener.name.shared()),
        ),
        ListenerKind::Tcp(service) => (
            tcp_filter(&name, service.as_str()),
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

fn http_filter(name: &str) -> pb::Filter {
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
        ..HttpConnectionManager::default()
    };
    pb::Filter {
        name: "envoy.filters.network.http_connection_manager".into(),
        config_type: Some(ConfigType::TypedConfig(any(&manager))),
    }
}

fn tcp_filter(name: &str, cluster: &str) -> pb::Filter {
    let proxy = TcpProxy {
        stat_prefix: name.into(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.into())),
        ..TcpProxy::default()
    };
    pb::Filter {
        name: "envoy.filters.network.tcp_proxy".into(),
        config_type: Some(ConfigType::TypedConfig(any(&proxy))),
    }
}
