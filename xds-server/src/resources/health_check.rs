//! A check as an Envoy runs it (semantics H7): the one renderer, for clusters and for HDS.
//!
//! In: a check, and the socket that the cluster's traffic uses. Out: a `HealthCheck`, and where the check needs another
//! socket, the entry for the cluster's `transport_socket_matches` that it finds by its criteria. No endpoint's metadata
//! names those criteria, so no traffic ever takes that socket.
//!
//! Not here: what an endpoint adds to a check, port, address and host (`endpoint`).

use std::net::{Ipv4Addr, SocketAddr};

use envoy_types::pb::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use envoy_types::pb::envoy::config::core::v3::health_check::{
    GrpcHealthCheck, HealthChecker, HttpHealthCheck, Payload, TcpHealthCheck, payload,
};
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, HealthCheck, RequestMethod, TransportSocket,
    header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::r#type::v3::{CodecClientType, Int64Range};
use envoy_types::pb::google::protobuf::{BoolValue, Struct, UInt32Value, Value, value};
use vitals_prober::check::{
    self, GrpcAsk, GrpcCheck, HttpCheck, Method, Protocol, StatusSet, TcpCheck, TcpMatch,
};
use vitals_prober::target::Names;

use super::{duration, transport};
use crate::distributed::{INTERVAL_JITTER_PERCENT, initial_jitter};

/// A check's part of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoyCheck {
    /// The check.
    pub health_check: HealthCheck,
    /// The socket that its criteria name; `None`: it uses the traffic's.
    pub socket: Option<TransportSocketMatch>,
}

/// The name of the socket's entry, and the value of the criteria under `vitals`.
const SOCKET_NAME: &str = "health-check";

/// Statuses that Envoy lets a check name.
const STATUSES: (u16, u16) = (100, 599);

/// The check as Envoys run it, in a cluster whose traffic uses `traffic` (`None`: a plain socket). `None` where Envoy has
/// no words for what it asks (semantics H7): exactly where [`expressible`](crate::distributed::expressible) says so, and the
/// configuration has refused Envoys there.
#[must_use]
pub fn health_check(
    check: &check::HealthCheck,
    traffic: Option<&TransportSocket>,
) -> Option<EnvoyCheck> {
    let thresholds = check.thresholds();
    // Envoy ejects at once on an answer without the string, and on every failed RPC.
    let ejects_at_once = thresholds.unhealthy == 1;
    let checker = match check.protocol() {
        Protocol::Tcp(tcp) => HealthChecker::TcpHealthCheck(tcp_check(tcp)?),
        Protocol::Http(http) | Protocol::Http2(http)
            if http.response().is_some() && !ejects_at_once =>
        {
            return None;
        }
        Protocol::Http(http) => {
            HealthChecker::HttpHealthCheck(http_check(http, CodecClientType::Http1))
        }
        Protocol::Http2(http) => {
            HealthChecker::HttpHealthCheck(http_check(http, CodecClientType::Http2))
        }
        Protocol::Grpc(_) if !ejects_at_once => return None,
        Protocol::Grpc(grpc) => HealthChecker::GrpcHealthCheck(grpc_check(grpc)?),
    };
    let socket = socket(check, traffic);
    let count = |count: u8| {
        Some(UInt32Value {
            value: count.into(),
        })
    };
    let health_check = HealthCheck {
        timeout: Some(duration(check.timeout())),
        interval: Some(duration(check.interval())),
        // Without jitter all Envoys of a fleet would probe in step.
        initial_jitter: Some(duration(initial_jitter(check))),
        interval_jitter_percent: INTERVAL_JITTER_PERCENT,
        unhealthy_threshold: count(thresholds.unhealthy),
        healthy_threshold: count(thresholds.healthy),
        // P15
        reuse_connection: Some(BoolValue { value: false }),
        // Envoy's default is 60 s until the cluster has had traffic.
        no_traffic_interval: Some(duration(check.interval())),
        transport_socket_match_criteria: socket.as_ref().and_then(|entry| entry.r#match.clone()),
        health_checker: Some(checker),
        ..HealthCheck::default()
    };
    Some(EnvoyCheck {
        health_check,
        socket,
    })
}

/// Design 5.2: a check over another transport than the traffic's brings its own.
fn socket(
    check: &check::HealthCheck,
    traffic: Option<&TransportSocket>,
) -> Option<TransportSocketMatch> {
    // The server name does not depend on the address (P10).
    let names = Names::new(check, None, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let wanted = transport::of_check(check, names.sni.as_deref());
    if wanted.as_ref() == traffic {
        return None;
    }
    let value = Value {
        kind: Some(value::Kind::StringValue(SOCKET_NAME.into())),
    };
    Some(TransportSocketMatch {
        name: SOCKET_NAME.into(),
        r#match: Some(Struct {
            fields: [("vitals".into(), value)].into(),
        }),
        transport_socket: Some(wanted.unwrap_or_else(transport::plain)),
    })
}

/// Semantics P8. `None`: EXACT, PREFIX, and a request whose answer is not read.
fn tcp_check(tcp: &TcpCheck) -> Option<TcpHealthCheck> {
    match (tcp.request(), tcp.response()) {
        (None, None) => Some(TcpHealthCheck::default()),
        (request, Some(response)) if tcp.matching() == TcpMatch::Contains => Some(TcpHealthCheck {
            send: request.map(hex),
            // One block, for several need not stand together.
            receive: vec![hex(response)],
            ..TcpHealthCheck::default()
        }),
        _ => None,
    }
}

/// Semantics P4, P6, P7.
fn http_check(http: &HttpCheck, codec: CodecClientType) -> HttpHealthCheck {
    HttpHealthCheck {
        // Unset, each endpoint has its own.
        host: http.host().unwrap_or_default().into(),
        path: http.request_path().into(),
        method: match http.method() {
            Method::Get => RequestMethod::Get,
            Method::Head => RequestMethod::Head,
        }
        .into(),
        receive: http.response().map(hex).into_iter().collect(),
        request_headers_to_add: headers(http.headers()),
        expected_statuses: half_open(http.expected_statuses().ranges()),
        retriable_statuses: half_open(&others(http.expected_statuses())),
        codec_client_type: codec.into(),
        ..HttpHealthCheck::default()
    }
}

/// Semantics P12. `None`: a check by method and code (P13).
fn grpc_check(grpc: &GrpcCheck) -> Option<GrpcHealthCheck> {
    match grpc.ask() {
        GrpcAsk::Health { service } => Some(GrpcHealthCheck {
            service_name: service.clone().unwrap_or_default(),
            authority: grpc.host().unwrap_or_default().into(),
            ..GrpcHealthCheck::default()
        }),
        GrpcAsk::Code { .. } => None,
    }
}

/// Each as it is written. The first of a name replaces what Envoy would send itself (`user-agent`); in values Envoy reads
/// `%` as the start of a command.
fn headers(headers: &[(String, String)]) -> Vec<HeaderValueOption> {
    let mut options = Vec::with_capacity(headers.len());
    for (index, (name, value)) in headers.iter().enumerate() {
        let repeated = headers
            .iter()
            .take(index)
            .any(|(before, _)| before.eq_ignore_ascii_case(name));
        let action = if repeated {
            HeaderAppendAction::AppendIfExistsOrAdd
        } else {
            HeaderAppendAction::OverwriteIfExistsOrAdd
        };
        options.push(HeaderValueOption {
            header: Some(HeaderValue {
                key: name.clone(),
                value: value.replace('%', "%%"),
                ..HeaderValue::default()
            }),
            append_action: action.into(),
            keep_empty_value: true,
            ..HeaderValueOption::default()
        });
    }
    options
}

/// Every status that does not pass. Retriable ones count to the threshold; Envoy ejects at once on what is neither.
fn others(passing: &StatusSet) -> Vec<(u16, u16)> {
    let (first, last) = STATUSES;
    let mut others = Vec::new();
    let mut next = first;
    for &(from, to) in passing.ranges() {
        if from > next {
            others.push((next, from - 1));
        }
        next = next.max(to.saturating_add(1));
    }
    if next <= last {
        others.push((next, last));
    }
    others
}

fn half_open(ranges: &[(u16, u16)]) -> Vec<Int64Range> {
    let range = |&(first, last): &(u16, u16)| Int64Range {
        start: first.into(),
        end: i64::from(last) + 1,
    };
    ranges.iter().map(range).collect()
}

/// As hexadecimal text: Envoy takes `binary` and never sends it.
fn hex(text: &str) -> Payload {
    let text = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    Payload {
        payload: Some(payload::Payload::Text(text)),
    }
}

#[cfg(test)]
mod tests;
