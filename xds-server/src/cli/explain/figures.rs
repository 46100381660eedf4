//! How soon a check finds out, and what it costs: arithmetic on its content (semantics S3, S4).
//!
//! In: a check, the addresses that it probes, and how many vantages do so. Out: bounds and rates. Pure.
//!
//! ```text
//!  passes ▼   dies ▼ (at once: worst)                    u = unhealthyThreshold, i = interval
//!  ───────┴────────┴──────┬───────────── … ──┬──────┬─►
//!         0               i                 u·i    u·i + the u-th failing probe's time
//! ```
//!
//! At best it dies just before a probe starts, and one interval falls away.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use vitals_prober::check::HealthCheck;

use crate::distributed::{INTERVAL_JITTER_PERCENT, initial_jitter};

/// The longest that the first probe of an endpoint waits (semantics S3).
const FIRST: Duration = Duration::from_secs(1);

/// At least, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) best: Duration,
    pub(super) worst: Duration,
}

/// How long until a vantage's verdict tells what has happened to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detection {
    /// It fell silent: every failing probe takes its whole timeout.
    pub(super) silence: Bounds,
    /// It refuses, or answers wrongly, at once: a failing probe takes no time.
    pub(super) refusal: Bounds,
    /// It came back: at best a passing probe takes no time, at worst all that it may.
    pub(super) recovery: Bounds,
    /// It is new.
    pub(super) first_word: Bounds,
}

/// The bounds of a check.
pub(super) fn detection(check: &HealthCheck) -> Detection {
    let (interval, timeout) = (check.interval(), check.timeout());
    let thresholds = check.thresholds();
    let bounds = |threshold: u8, quickest: Duration, slowest: Duration| Bounds {
        best: interval * u32::from(threshold.saturating_sub(1)) + quickest,
        worst: interval * u32::from(threshold) + slowest,
    };
    // Semantics S2: one probe says the first word, save under TENCENT_ALB.
    let (least, most) = match thresholds.at_first {
        true => (
            thresholds.healthy.min(thresholds.unhealthy),
            thresholds.healthy.max(thresholds.unhealthy),
        ),
        false => (1, 1),
    };
    Detection {
        silence: bounds(thresholds.unhealthy, timeout, timeout),
        refusal: bounds(thresholds.unhealthy, Duration::ZERO, Duration::ZERO),
        recovery: bounds(thresholds.healthy, Duration::ZERO, timeout),
        first_word: Bounds {
            best: interval * u32::from(least.saturating_sub(1)),
            worst: interval.min(FIRST) + interval * u32::from(most.saturating_sub(1)) + timeout,
        },
    }
}

/// The bounds of the same check in one Envoy (semantics H7): its interval runs from the end of a check to the start of
/// the next, and is longer by chance.
pub(super) fn detection_by_envoy(check: &HealthCheck) -> Detection {
    let (interval, timeout) = (check.interval(), check.timeout());
    let longest = interval + interval * INTERVAL_JITTER_PERCENT / 100;
    let bounds = |threshold: u8, quickest: Duration, slowest: Duration| {
        let threshold = u32::from(threshold);
        Bounds {
            best: interval * threshold.saturating_sub(1) + quickest * threshold,
            worst: (longest + slowest) * threshold,
        }
    };
    let thresholds = check.thresholds();
    Detection {
        silence: bounds(thresholds.unhealthy, timeout, timeout),
        refusal: bounds(thresholds.unhealthy, Duration::ZERO, Duration::ZERO),
        recovery: bounds(thresholds.healthy, Duration::ZERO, timeout),
        first_word: Bounds {
            best: Duration::ZERO,
            worst: initial_jitter(check) + timeout,
        },
    }
}

/// Probes and connections per second; each probe is a connection of its own (semantics P15).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// On one probed address and port.
    pub(super) per_target: f64,
    /// On all of them.
    pub(super) total: f64,
    /// On the machine that has most of them, and how many it has.
    pub(super) busiest: Option<(IpAddr, usize, f64)>,
}

/// What so many vantages put on these addresses, each of which is one target.
pub(super) fn load(
    check: &HealthCheck,
    vantages: u32,
    targets: impl Iterator<Item = SocketAddr>,
) -> Load {
    let per_target = f64::from(vantages) / check.interval().as_secs_f64();
    let mut machines = BTreeMap::<IpAddr, usize>::new();
    for target in targets {
        *machines.entry(target.ip()).or_default() += 1;
    }
    let times = |targets: usize| f64::from(u32::try_from(targets).unwrap_or(u32::MAX)) * per_target;
    // Of several the first: the last of the reversed order.
    let busiest = machines.iter().rev().max_by_key(|(_, targets)| **targets);
    Load {
        per_target,
        total: times(machines.values().sum()),
        busiest: busiest.map(|(ip, &targets)| (*ip, targets, times(targets))),
    }
}

#[cfg(test)]
mod tests {
    use vitals_prober::check::{HealthCheckSpec, Kind, Profile};

    use super::*;

    fn check(spec: HealthCheckSpec) -> HealthCheck {
        HealthCheck::new(spec).unwrap()
    }

    fn bounds(best: u64, worst: u64) -> Bounds {
        Bounds {
            best: Duration::from_millis(best),
            worst: Duration::from_millis(worst),
        }
    }

    #[test]
    fn s4_azure_finds_a_silent_failure_between_5_and_10_seconds() {
        let azure = check(HealthCheckSpec {
            profile: Some(Profile::AzureLb),
            ..HealthCheckSpec::of(Kind::Tcp)
        });
        assert_eq!(
            detection(&azure),
            Detection {
                silence: bounds(5_000, 10_000),
                refusal: bounds(0, 5_000),
                recovery: bounds(0, 10_000),
                first_word: bounds(0, 6_000),
            }
        );
    }

    #[test]
    fn h7_an_envoy_waits_from_the_end_of_a_check_and_a_little_longer_by_chance() {
        // 5 s, 5 s, thresholds 2 and 2.
        let tcp = check(HealthCheckSpec::of(Kind::Tcp));
        assert_eq!(
            detection_by_envoy(&tcp),
            Detection {
                silence: bounds(15_000, 21_000),
                refusal: bounds(5_000, 11_000),
                recovery: bounds(5_000, 21_000),
                first_word: bounds(0, 6_000),
            }
        );
    }

    #[test]
    fn s4_thresholds_and_timeout_widen_the_bounds() {
        let slow = check(HealthCheckSpec {
            check_interval: Some(Duration::from_secs(30)),
            timeout: Some(Duration::from_secs(5)),
            healthy_threshold: Some(2),
            unhealthy_threshold: Some(3),
            ..HealthCheckSpec::of(Kind::Http)
        });
        assert_eq!(
            detection(&slow),
            Detection {
                silence: bounds(65_000, 95_000),
                refusal: bounds(60_000, 90_000),
                recovery: bounds(30_000, 65_000),
                first_word: bounds(0, 6_000),
            }
        );
    }

    #[test]
    fn s3_the_first_word_of_a_quick_check_is_within_its_interval() {
        let quick = check(HealthCheckSpec {
            check_interval: Some(Duration::from_millis(200)),
            timeout: Some(Duration::from_millis(100)),
            ..HealthCheckSpec::of(Kind::Tcp)
        });
        assert_eq!(detection(&quick).first_word, bounds(0, 300));
    }

    #[test]
    fn s2_tencents_first_word_takes_a_threshold() {
        let tencent = check(HealthCheckSpec {
            profile: Some(Profile::TencentAlb),
            healthy_threshold: Some(2),
            ..HealthCheckSpec::default()
        });
        // 5 s and 2 s, thresholds 2 and 3.
        assert_eq!(detection(&tencent).first_word, bounds(5_000, 13_000));
        assert_eq!(detection(&tencent).silence, bounds(12_000, 17_000));
    }

    #[test]
    fn p15_every_probe_of_every_vantage_is_a_connection() {
        let check = check(HealthCheckSpec::of(Kind::Tcp));
        let addresses = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.2:81", "[::1]:80"];
        let three = load(&check, 3, addresses.iter().map(|a| a.parse().unwrap()));
        assert!((three.per_target - 0.6).abs() < 1e-9);
        assert!((three.total - 2.4).abs() < 1e-9);
        let (ip, targets, rate) = three.busiest.unwrap();
        assert_eq!((ip.to_string().as_str(), targets), ("10.0.0.2", 2));
        assert!((rate - 1.2).abs() < 1e-9);
        let nothing = load(&check, 1, std::iter::empty());
        assert!(nothing.total.abs() < 1e-9 && nothing.busiest.is_none());
    }
}
