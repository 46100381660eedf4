//! Transport sockets: how an Envoy reaches a service's endpoints, and how its checks do.
//!
//! In: `tls:` of a service, or a check. Out: a `TransportSocket`; `None` is a plain socket. The two are rendered alike, so
//! that equal ones compare equal: then the check needs no socket of its own (design 5.2).
//!
//! Not here: which of them a check uses (`health_check`).

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, ProxyProtocolConfig, TransportSocket, data_source::Specifier,
    proxy_protocol_config::Version, transport_socket::ConfigType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SubjectAltNameMatcher, TlsParameters,
    UpstreamTlsContext,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::google::protobuf::UInt32Value;
use vitals_prober::check::{HealthCheck, Kind, ProxyHeader};

use super::any;
use crate::model::{Protocol, Service, UpstreamRoots};

/// Where an Envoy's own roots are. Envoy has a field `system_root_certs`, but 1.40 takes it and then validates nothing
/// (measured). This is the path that its images and most distributions have; where it is missing the Envoy refuses the
/// cluster, which is loud.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// How the endpoints of a service are reached; `None`: without TLS.
#[must_use]
pub(super) fn of_service(service: &Service) -> Option<TransportSocket> {
    let tls = service.tls.as_ref()?;
    let alpn = match service.protocol {
        Protocol::Https => Some("http/1.1"),
        Protocol::Http2 | Protocol::GrpcWithTls => Some("h2"),
        Protocol::Http | Protocol::H2c | Protocol::Grpc | Protocol::Tcp | Protocol::Ssl => None,
    };
    let roots = tls.verify.as_ref().map(|roots| match roots {
        UpstreamRoots::System => system_roots(),
        UpstreamRoots::Pem(pem) => inline(pem),
    });
    Some(tls_socket(&UpstreamTlsContext {
        sni: tls.sni.clone().unwrap_or_default(),
        common_tls_context: Some(common(alpn, roots, tls.sni.as_deref())),
        ..UpstreamTlsContext::default()
    }))
}

/// How a check reaches an endpoint; `None`: without TLS and without a PROXY header. `sni` is the server name that it
/// gives.
///
/// Nothing is validated unless the check says so (semantics P10). Sessions are not resumed, so that every probe is a whole
/// handshake.
#[must_use]
pub(super) fn of_check(check: &HealthCheck, sni: Option<&str>) -> Option<TransportSocket> {
    let inner = check.tls().map(|tls| {
        let roots = tls.verify().then(|| {
            tls.roots()
                .map_or_else(system_roots, |roots| inline(roots.pem()))
        });
        // As the prober offers them: SSL speaks no protocol.
        let alpn = match check.kind() {
            Kind::Https => Some("http/1.1"),
            Kind::Http2 | Kind::GrpcWithTls => Some("h2"),
            Kind::Tcp | Kind::Ssl | Kind::Http | Kind::Grpc => None,
        };
        tls_socket(&UpstreamTlsContext {
            sni: sni.unwrap_or_default().into(),
            common_tls_context: Some(common(alpn, roots, sni)),
            max_session_keys: Some(UInt32Value { value: 0 }),
            ..UpstreamTlsContext::default()
        })
    });
    let version = match check.proxy_header() {
        ProxyHeader::None => return inner,
        ProxyHeader::V1 => Version::V1,
        ProxyHeader::V2 => Version::V2,
    };
    // Without a connection of a client behind it, Envoy writes the addresses of the check's own connection (V1), or the
    // LOCAL command (V2): what semantics P11 says.
    let transport = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig {
            version: version.into(),
            ..ProxyProtocolConfig::default()
        }),
        transport_socket: Some(inner.unwrap_or_else(plain)),
        ..ProxyProtocolUpstreamTransport::default()
    };
    Some(TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".into(),
        config_type: Some(ConfigType::TypedConfig(any(&transport))),
    })
}

/// A plain socket, written out: for a check in a cluster that speaks TLS.
#[must_use]
pub(super) fn plain() -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".into(),
        config_type: Some(ConfigType::TypedConfig(any(&RawBuffer {}))),
    }
}

fn tls_socket(context: &UpstreamTlsContext) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(ConfigType::TypedConfig(any(context))),
    }
}

/// What both contexts share. With roots the certificate must also be for `name`, where there is one: Envoy alone would
/// take any certificate of the roots.
fn common(alpn: Option<&str>, roots: Option<DataSource>, name: Option<&str>) -> CommonTlsContext {
    let validation = roots.map(|roots| {
        let names = name.map(|name| SubjectAltNameMatcher {
            san_type: SanType::Dns.into(),
            matcher: Some(StringMatcher {
                match_pattern: Some(MatchPattern::Exact(name.into())),
                ..StringMatcher::default()
            }),
            ..SubjectAltNameMatcher::default()
        });
        ValidationContextType::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(roots),
            match_typed_subject_alt_names: names.into_iter().collect(),
            ..CertificateValidationContext::default()
        })
    });
    CommonTlsContext {
        // Envoy's default for clients ends at TLS 1.2.
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..TlsParameters::default()
        }),
        alpn_protocols: alpn.map(Into::into).into_iter().collect(),
        validation_context_type: validation,
        ..CommonTlsContext::default()
    }
}

fn system_roots() -> DataSource {
    DataSource {
        specifier: Some(Specifier::Filename(SYSTEM_ROOTS.into())),
        ..DataSource::default()
    }
}

fn inline(pem: &str) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineString(pem.into())),
        ..DataSource::default()
    }
}
