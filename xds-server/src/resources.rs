//! Model and health → Envoy resources. Pure functions, one file per resource.
//!
//! In: a service, its health, a listener. Out: encoded [`Resource`](crate::snapshot::Resource)s. What is rendered here
//! is the whole of what an Envoy learns; the reasons for each field stand beside it, with their source.
//!
//! Not here: which fleet gets what (`publish`), and versions (`snapshot`).

mod affinity;
mod cluster;
mod endpoint;
mod health_check;
pub mod leds;
mod listener;
mod local_reply;
mod route;
mod transport;

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::google::protobuf;
use prost::{Message, Name};

pub use self::cluster::cluster;
pub use self::endpoint::{assignment, empty_assignment};
pub use self::health_check::{EnvoyCheck, health_check};
pub use self::listener::listener;
pub use self::route::route_configuration;

/// "Ask for it on the same ADS stream."
fn ads() -> core::ConfigSource {
    core::ConfigSource {
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        ..core::ConfigSource::default()
    }
}

fn address(address: std::net::SocketAddr) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: address.ip().to_string(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                address.port().into(),
            )),
            ..core::SocketAddress::default()
        })),
    }
}

fn any<M: Message + Name>(message: &M) -> protobuf::Any {
    protobuf::Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

fn duration(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
    }
}
