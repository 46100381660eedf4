//! `outlierDetection` and `circuitBreakers` of a service: Envoy's own messages, read by `envoy`.
//!
//! In: the two keys, and how many endpoints there are. Out: the messages, with findings for what Envoy takes without a word
//! and then does not do. Not here: what Envoy refuses (`envoy`).

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, OutlierDetection};

use super::backends::Backends;
use crate::config::envoy;
use crate::config::read::Fields;
use crate::model::AdminState;

/// Envoy's own `max_ejection_percent`.
const DEFAULT_EJECTION_PERCENT: u32 = 10;

/// Reads `outlierDetection`.
pub(super) fn read_outlier_detection(
    fields: &Fields<'_>,
    backends: &Backends,
) -> Option<OutlierDetection> {
    let item = fields.get("outlierDetection")?;
    let message: OutlierDetection = envoy::read(&item)?;
    let endpoints = backends.backends.iter().flat_map(|b| &b.group.endpoints);
    let served = endpoints.filter(|e| e.state != AdminState::Stopped).count();
    let written = message.max_ejection_percent.as_ref().map(|v| v.value);
    let percent = written.unwrap_or(DEFAULT_EJECTION_PERCENT);
    let one_always = message.always_eject_one_host.is_some_and(|v| v.value);
    // An Envoy ejects no endpoint with which it would be more than the share; 0 is how one says to eject none.
    let none = u64::try_from(served).is_ok_and(|n| n > 0 && n.saturating_mul(percent.into()) < 100);
    if none && percent > 0 && !one_always {
        let whose = if written.is_some() {
            ""
        } else {
            "Envoy's default, "
        };
        let least = 100u64.div_ceil(u64::try_from(served).unwrap_or(u64::MAX).max(1));
        item.warning(format!(
            "maxEjectionPercent is {whose}{percent}, which of {} is less than one, so no Envoy ever ejects any; write \
             maxEjectionPercent: {least} or more, or alwaysEjectOneHost: true",
            match served {
                1 => "1 endpoint".to_owned(),
                n => format!("{n} endpoints"),
            }
        ));
    }
    Some(message)
}

/// Reads `circuitBreakers`.
pub(super) fn read_circuit_breakers(fields: &Fields<'_>) -> Option<CircuitBreakers> {
    let item = fields.get("circuitBreakers")?;
    let message: CircuitBreakers = envoy::read(&item)?;
    let entries = item.entries()?;
    for (key, list) in entries.all() {
        let thresholds = match key {
            "thresholds" => &message.thresholds,
            "per_host_thresholds" | "perHostThresholds" => &message.per_host_thresholds,
            _ => continue,
        };
        for (index, (of, item)) in thresholds.iter().zip(list.list()).enumerate() {
            let same = |other: &&Thresholds| other.priority == of.priority;
            if thresholds.iter().take(index).any(|other| same(&other)) {
                item.error(format!(
                    "{} has thresholds here already, and Envoy takes the first; drop one",
                    of.priority().as_str_name()
                ));
            }
        }
    }
    Some(message)
}
