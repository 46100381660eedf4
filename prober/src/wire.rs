//! Our types as protobuf messages and back: the wire of a remote prober, the records of the store, and the canonical
//! bytes of a check's content that go into its state key (semantics V6).
//!
//! Not here: the generated types themselves (`vitals-proto`) and transport.

use std::time::Duration;

use prost::Message as _;
use vitals_proto::prober::v1 as pb;

use crate::check::{
    Close, GrpcAsk, GrpcCheck, HealthCheck, HttpCheck, Method, Protocol, ProxyHeader, TcpCheck,
    TcpMatch, TlsCheck,
};
use crate::outcome::{Reason, ReasonCode};
use crate::tally::{TallyState, Verdict};

/// The canonical bytes of a check's content: what V6 calls "check content". The fixed port is not part of it, because
/// the probed port stands in the state key itself; so is the host that a check names.
#[must_use]
pub fn canonical_check(check: &HealthCheck) -> Vec<u8> {
    check_to_proto(check).encode_to_vec()
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn check_to_proto(check: &HealthCheck) -> pb::HealthCheck {
    let thresholds = check.thresholds();
    pb::HealthCheck {
        interval_ms: millis(check.interval()),
        timeout_ms: millis(check.timeout()),
        healthy_threshold: thresholds.healthy.into(),
        unhealthy_threshold: thresholds.unhealthy.into(),
        r#type: Some(match check.protocol() {
            Protocol::Tcp(tcp) => pb::health_check::Type::Tcp(tcp_to_proto(tcp)),
            Protocol::Http(http) => pb::health_check::Type::Http(http_to_proto(http)),
            Protocol::Http2(http) => pb::health_check::Type::Http2(http_to_proto(http)),
            Protocol::Grpc(grpc) => pb::health_check::Type::Grpc(grpc_to_proto(grpc)),
        }),
        tls: check.tls().map(tls_to_proto),
        proxy_header: match check.proxy_header() {
            ProxyHeader::None => pb::ProxyHeader::None,
            ProxyHeader::V1 => pb::ProxyHeader::V1,
            ProxyHeader::V2 => pb::ProxyHeader::V2,
        }
        .into(),
        close: match check.close() {
            Close::Rst => pb::Close::Rst,
            Close::Fin => pb::Close::Fin,
        }
        .into(),
        threshold_at_first: thresholds.at_first,
    }
}

fn tls_to_proto(tls: &TlsCheck) -> pb::TlsCheck {
    pb::TlsCheck {
        verify: tls.verify(),
        roots_hash: tls
            .roots()
            .map(|roots| roots.hash().to_be_bytes().to_vec())
            .unwrap_or_default(),
        sni: tls.sni().unwrap_or_default().into(),
    }
}

fn grpc_to_proto(grpc: &GrpcCheck) -> pb::GrpcCheck {
    let host = grpc.host().unwrap_or_default().into();
    match grpc.ask() {
        GrpcAsk::Health { service } => pb::GrpcCheck {
            service_name: service.clone().unwrap_or_default(),
            host,
            ..pb::GrpcCheck::default()
        },
        GrpcAsk::Code { method, expected } => pb::GrpcCheck {
            host,
            method: method.clone(),
            expected_codes: expected.to_string(),
            ..pb::GrpcCheck::default()
        },
    }
}

fn tcp_to_proto(tcp: &TcpCheck) -> pb::TcpCheck {
    let bytes = |text: Option<&str>| text.unwrap_or_default().as_bytes().to_vec();
    let matching = match tcp.matching() {
        TcpMatch::Exact => pb::TcpMatch::Exact,
        TcpMatch::Prefix => pb::TcpMatch::Prefix,
        TcpMatch::Contains => pb::TcpMatch::Contains,
    };
    pb::TcpCheck {
        request: bytes(tcp.request()),
        response: bytes(tcp.response()),
        r#match: matching.into(),
    }
}

fn http_to_proto(http: &HttpCheck) -> pb::HttpCheck {
    let method = match http.method() {
        Method::Get => pb::HttpMethod::Get,
        Method::Head => pb::HttpMethod::Head,
    };
    let range = |&(first, last): &(u16, u16)| pb::StatusRange {
        first: first.into(),
        last: last.into(),
    };
    let header = |(name, value): &(String, String)| pb::Header {
        name: name.clone(),
        value: value.clone(),
    };
    pb::HttpCheck {
        request_path: http.request_path().into(),
        method: method.into(),
        expected_statuses: http
            .expected_statuses()
            .ranges()
            .iter()
            .map(range)
            .collect(),
        host: http.host().unwrap_or_default().into(),
        response: http.response().unwrap_or_default().into(),
        headers: http.headers().iter().map(header).collect(),
    }
}

/// A verdict on the wire; `None` is PROBING.
#[must_use]
pub fn verdict_to_proto(verdict: Option<Verdict>) -> pb::Verdict {
    match verdict {
        None => pb::Verdict::Unspecified,
        Some(Verdict::Healthy) => pb::Verdict::Healthy,
        Some(Verdict::Unhealthy) => pb::Verdict::Unhealthy,
        Some(Verdict::Timeout) => pb::Verdict::Timeout,
    }
}

/// A verdict from the wire; a number that this version does not know reads as PROBING, which judges anew.
#[must_use]
pub fn verdict_from_proto(verdict: i32) -> Option<Verdict> {
    match pb::Verdict::try_from(verdict) {
        Ok(pb::Verdict::Healthy) => Some(Verdict::Healthy),
        Ok(pb::Verdict::Unhealthy) => Some(Verdict::Unhealthy),
        Ok(pb::Verdict::Timeout) => Some(Verdict::Timeout),
        Ok(pb::Verdict::Unspecified) | Err(_) => None,
    }
}

/// A reason on the wire.
#[must_use]
pub fn reason_to_proto(reason: &Reason) -> pb::Reason {
    pb::Reason {
        code: reason.code.as_str().into(),
        text: reason.text.clone().into_owned(),
    }
}

/// A reason from the wire; `None` when its code is not of this version's list.
#[must_use]
pub fn reason_from_proto(reason: &pb::Reason) -> Option<Reason> {
    Some(Reason::new(
        ReasonCode::from_name(&reason.code)?,
        reason.text.clone(),
    ))
}

/// A tally's counters on the wire.
#[must_use]
pub fn tally_to_proto(state: TallyState) -> pb::TallyState {
    pb::TallyState {
        verdict: verdict_to_proto(state.verdict).into(),
        previous: verdict_to_proto(state.previous).into(),
        opposing: state.opposing.into(),
        other_kind: state.other_kind.into(),
    }
}

/// A tally's counters from the wire; counters beyond a byte are cut to it, which the thresholds bound anyway.
#[must_use]
pub fn tally_from_proto(state: &pb::TallyState) -> TallyState {
    let byte = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
    TallyState {
        verdict: verdict_from_proto(state.verdict),
        previous: verdict_from_proto(state.previous),
        opposing: byte(state.opposing),
        other_kind: byte(state.other_kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_and_a_reason_come_back_as_they_went() {
        let state = TallyState {
            verdict: Some(Verdict::Timeout),
            previous: None,
            opposing: 1,
            other_kind: 3,
        };
        assert_eq!(tally_from_proto(&tally_to_proto(state)), state);
        let reason = Reason::new(ReasonCode::StatusMismatch, "HTTP 500; 200 is expected");
        assert_eq!(reason_from_proto(&reason_to_proto(&reason)), Some(reason));
        assert_eq!(
            reason_from_proto(&pb::Reason {
                code: "FROM_THE_FUTURE".into(),
                text: String::new()
            }),
            None
        );
        assert_eq!(verdict_from_proto(99), None);
    }
}
