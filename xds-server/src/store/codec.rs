//! Records ↔ the bytes in the state file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use vitals_prober::outcome::Reason;
use vitals_prober::target::StateKey;
use vitals_prober::wire;
use vitals_proto::prober::v1 as pb;

use crate::health::Pool;
use crate::health::registry::{EndpointKey, EndpointRecord, ServiceRecord, TargetRecord};
use crate::model::Name;

pub(super) fn encode_target(record: &TargetRecord) -> Vec<u8> {
    pb::TargetState {
        tally: Some(wire::tally_to_proto(record.tally)),
        since_ms: to_ms(record.since),
        reason: record.reason.as_deref().map(wire::reason_to_proto),
        never_passed: record.never_passed,
    }
    .encode_to_vec()
}

pub(super) fn decode_target(bytes: &[u8]) -> Option<TargetRecord> {
    let state = pb::TargetState::decode(bytes).ok()?;
    Some(TargetRecord {
        tally: wire::tally_from_proto(&state.tally?),
        since: from_ms(state.since_ms)?,
        reason: reason(state.reason.as_ref()),
        never_passed: state.never_passed,
    })
}

pub(super) fn encode_endpoint(record: &EndpointRecord) -> Vec<u8> {
    pb::EndpointRecord {
        status: wire::verdict_to_proto(Some(record.verdict)).into(),
        since_ms: to_ms(record.since),
        reason: record.reason.as_deref().map(wire::reason_to_proto),
        state_key: record
            .key
            .map(|key| key.to_bytes().to_vec())
            .unwrap_or_default(),
    }
    .encode_to_vec()
}

pub(super) fn decode_endpoint(bytes: &[u8]) -> Option<EndpointRecord> {
    let record = pb::EndpointRecord::decode(bytes).ok()?;
    Some(EndpointRecord {
        verdict: wire::verdict_from_proto(record.status)?,
        since: from_ms(record.since_ms)?,
        reason: reason(record.reason.as_ref()),
        key: record.state_key.try_into().ok().map(StateKey::from_bytes),
    })
}

fn reason(reason: Option<&pb::Reason>) -> Option<Arc<Reason>> {
    reason.and_then(wire::reason_from_proto).map(Arc::new)
}

pub(super) fn encode_service(record: &ServiceRecord) -> Vec<u8> {
    let active = match record.active {
        Pool::Primary => pb::Pool::Primary,
        Pool::Failover => pb::Pool::Failover,
    };
    pb::ServiceRecord {
        active: active.into(),
        since_ms: to_ms(record.since),
    }
    .encode_to_vec()
}

pub(super) fn decode_service(bytes: &[u8]) -> Option<ServiceRecord> {
    let record = pb::ServiceRecord::decode(bytes).ok()?;
    Some(ServiceRecord {
        active: match record.active() {
            pb::Pool::Unspecified => return None,
            pb::Pool::Primary => Pool::Primary,
            pb::Pool::Failover => Pool::Failover,
        },
        since: from_ms(record.since_ms)?,
    })
}

/// `service address:port`
pub(super) fn encode_endpoint_key((service, address): &EndpointKey) -> String {
    format!("{service} {address}")
}

pub(super) fn decode_endpoint_key(text: &str) -> Option<EndpointKey> {
    let (service, address) = text.split_once(' ')?;
    Some((Name::new(service)?, address.parse::<SocketAddr>().ok()?))
}

fn to_ms(time: SystemTime) -> u64 {
    u64::try_from(
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis(),
    )
    .unwrap_or(u64::MAX)
}

fn from_ms(ms: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use vitals_prober::outcome::ReasonCode;
    use vitals_prober::tally::{TallyState, Verdict};

    use super::*;

    #[test]
    fn records_come_back_as_they_went() {
        let since = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let reason = Some(Arc::new(Reason::new(
            ReasonCode::StatusMismatch,
            "HTTP 500",
        )));
        let tally = TallyState {
            verdict: Some(Verdict::Unhealthy),
            opposing: 1,
            ..TallyState::default()
        };
        let target = TargetRecord {
            tally,
            since,
            reason: reason.clone(),
            never_passed: true,
        };
        assert_eq!(decode_target(&encode_target(&target)), Some(target));
        let key = Some(StateKey::from_bytes([7; 16]));
        let endpoint = EndpointRecord {
            verdict: Verdict::Timeout,
            since,
            reason,
            key,
        };
        assert_eq!(decode_endpoint(&encode_endpoint(&endpoint)), Some(endpoint));
        for active in [Pool::Primary, Pool::Failover] {
            let service = ServiceRecord { active, since };
            assert_eq!(decode_service(&encode_service(&service)), Some(service));
        }
        let key = (Name::new("shop").unwrap(), "[::1]:80".parse().unwrap());
        assert_eq!(decode_endpoint_key(&encode_endpoint_key(&key)), Some(key));
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        assert_eq!(decode_target(b"\xff\xff"), None);
        assert_eq!(
            decode_endpoint(b""),
            None,
            "a record without a verdict says nothing"
        );
        assert_eq!(decode_service(b""), None);
        assert_eq!(decode_endpoint_key("shop"), None);
    }
}
