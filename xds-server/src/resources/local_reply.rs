//! `unhealthyResponseCode` (semantics H5): the answer to a request that no endpoint of a service can take.
//!
//! In: the services that a listener's routes lead to. Out: the listener's `local_reply_config`. Envoy has no such field on
//! a cluster or route; but every answer that it makes itself passes the listener's mappers, and the flag UH with the
//! cluster's name tells which of them is meant. An endpoint's own 503, a refused connection and other services' requests
//! never match (measured).

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, AndFilter, ExtensionFilter, ResponseFlagFilter,
    access_log_filter::FilterSpecifier, extension_filter::ConfigType,
};
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    LocalReplyConfig, ResponseMapper,
};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::any;
use crate::model::Service;

/// Envoy's flag of a request for which there was no healthy upstream.
const NO_HEALTHY_UPSTREAM: &str = "UH";

/// The mappers for these services; `None`: all answer with Envoy's 503.
#[must_use]
pub(super) fn local_reply<'s>(
    services: impl Iterator<Item = &'s Service>,
) -> Option<LocalReplyConfig> {
    let mut by_code: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for service in services {
        if let Some(code) = service.unhealthy_response_code {
            // A name holds nothing that a string of CEL would have to escape.
            by_code
                .entry(code)
                .or_default()
                .push(format!("'{}'", service.name));
        }
    }
    let mappers: Vec<_> = by_code
        .into_iter()
        .map(|(code, names)| mapper(code, &names.join(", ")))
        .collect();
    (!mappers.is_empty()).then(|| LocalReplyConfig {
        mappers,
        ..LocalReplyConfig::default()
    })
}

fn mapper(code: u16, names: &str) -> ResponseMapper {
    let expression = ExpressionFilter {
        expression: format!("xds.cluster_name in [{names}]"),
        ..ExpressionFilter::default()
    };
    let filter = |specifier| AccessLogFilter {
        filter_specifier: Some(specifier),
    };
    let filters = vec![
        filter(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
            flags: vec![NO_HEALTHY_UPSTREAM.into()],
        })),
        filter(FilterSpecifier::ExtensionFilter(ExtensionFilter {
            name: "envoy.access_loggers.extension_filters.cel".into(),
            config_type: Some(ConfigType::TypedConfig(any(&expression))),
        })),
    ];
    ResponseMapper {
        filter: Some(filter(FilterSpecifier::AndFilter(AndFilter { filters }))),
        status_code: Some(UInt32Value { value: code.into() }),
        ..ResponseMapper::default()
    }
}
