//! A target: one address under one check, the unit that is scheduled, probed and judged (semantics V6).
//!
//! In: an address, a check and the host that the probe names. Out: a [`Target`] with its [`StateKey`], which stays the
//! same over restarts, reloads and versions as long as nothing that the probe can see has changed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_128;

use crate::check::{HealthCheck, Protocol};
use crate::tally::Tally;
use crate::wire;

/// Semantics V6: the hash of (probed address, port, effective host, check content). Names, weights and localities are
/// not in it, so services that ask the same of the same address share one state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey(u128);

impl StateKey {
    /// The key of what is asked of `address` under the name `host`.
    #[must_use]
    pub fn new(address: SocketAddr, host: &str, check: &HealthCheck) -> Self {
        let mut bytes = Vec::with_capacity(128);
        // An IPv4 address and its mapped IPv6 form are different targets to the kernel; the text keeps them apart.
        for part in [
            address.to_string().as_bytes(),
            host.as_bytes(),
            &wire::canonical_check(check),
        ] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Self(xxh3_128(&bytes))
    }

    /// The key as bytes, for the store and the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The key from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// A number spread evenly over all keys, for phases and shards.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "half of the hash is as good a hash"
    )]
    pub fn spread(self) -> u64 {
        (self.0 ^ (self.0 >> 64)) as u64
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateKey({:032x})", self.0)
    }
}

/// The last signs of life of one target's probing, written by the engine at every judged probe and read by anyone,
/// without a message per probe. It lives as long as its key is planned, also over reloads.
#[derive(Debug, Default)]
pub struct Pulse {
    last_judged_ms: AtomicU64,
    latency_us: AtomicU64,
}

impl Pulse {
    /// Notes a judged (not INCONCLUSIVE) probe that ended at `at` after `latency`.
    pub fn beat(&self, at: SystemTime, latency: Duration) {
        let ms = at
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        self.latency_us.store(
            u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        self.last_judged_ms
            .store(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// When the last judged probe ended and how long it took; `None` before the first.
    #[must_use]
    pub fn last(&self) -> Option<(SystemTime, Duration)> {
        match self.last_judged_ms.load(Ordering::Acquire) {
            0 => None,
            ms => Some((
                UNIX_EPOCH + Duration::from_millis(ms),
                Duration::from_micros(self.latency_us.load(Ordering::Relaxed)),
            )),
        }
    }
}

/// One address under one check.
#[derive(Clone, Debug)]
pub struct Target {
    /// Who it is, over reloads and restarts.
    pub key: StateKey,
    /// Where the probe connects to.
    pub address: SocketAddr,
    /// The Host header (semantics P7): see [`effective_host`].
    pub host: Arc<str>,
    /// What is asked.
    pub check: Arc<HealthCheck>,
    /// Where its counters stand when the engine does not know the key yet; of no interest when it does.
    pub seed: Tally,
    /// Where the engine leaves its last signs of life.
    pub pulse: Arc<Pulse>,
}

/// Semantics P7: the host that the check names, else the endpoint's FQDN, else the probed address and port, an IPv6
/// address in brackets. A TCP check names no host, and has the empty one.
#[must_use]
pub fn effective_host(check: &HealthCheck, fqdn: Option<&str>, address: SocketAddr) -> Arc<str> {
    match check.protocol() {
        Protocol::Tcp(_) => "".into(),
        Protocol::Http(http) => match http.host().or(fqdn) {
            Some(host) => host.into(),
            None => address.to_string().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{HealthCheckSpec, HttpSpec, ProtocolSpec};

    fn check(path: &str, interval: u64) -> HealthCheck {
        HealthCheck::new(HealthCheckSpec {
            check_interval: Some(Duration::from_secs(interval)),
            protocol: ProtocolSpec::Http(HttpSpec {
                request_path: Some(path.into()),
                ..HttpSpec::default()
            }),
            ..HealthCheckSpec::default()
        })
        .unwrap()
    }

    fn key(address: &str, path: &str, interval: u64) -> StateKey {
        let (address, check) = (address.parse().unwrap(), check(path, interval));
        StateKey::new(address, &effective_host(&check, None, address), &check)
    }

    #[test]
    fn v6_address_port_host_and_content_make_the_key() {
        let base = key("127.0.0.1:80", "/", 5);
        assert_eq!(base, key("127.0.0.1:80", "/", 5));
        for other in [
            key("127.0.0.2:80", "/", 5),
            key("127.0.0.1:81", "/", 5),
            key("127.0.0.1:80", "/x", 5),
            key("127.0.0.1:80", "/", 6),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(StateKey::from_bytes(base.to_bytes()), base);
    }

    #[test]
    fn v6_the_key_is_the_same_in_every_version() {
        // A stored state is found by this number: it may never change for a check that uses no new field.
        assert_eq!(
            format!("{:?}", key("127.0.0.1:80", "/healthz", 5)),
            "StateKey(f4ea142ed9643fa3c200e33d7caa60d5)"
        );
    }

    #[test]
    fn p7_an_ipv6_host_is_bracketed() {
        let address = "[2001:db8::1]:8080".parse().unwrap();
        assert_eq!(
            &*effective_host(&check("/", 5), None, address),
            "[2001:db8::1]:8080"
        );
        assert_eq!(
            &*effective_host(&check("/", 5), Some("api.example"), address),
            "api.example"
        );
    }
}
