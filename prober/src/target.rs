//! A target: one address under one check, the unit that is scheduled, probed and judged (semantics V6).
//!
//! In: an address, a check and the host that the probe names. Out: a [`Target`] with its [`StateKey`], which stays the
//! same over restarts, reloads and versions as long as nothing that the probe can see has changed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_128;

use crate::check::{HealthCheck, Protocol, is_dns_name};
use crate::clock;
use crate::outcome::{Outcome, ProbeResult, Reason};
use crate::tally::Tally;
use crate::wire;

/// Semantics V6: the hash of (probed address, port, effective host, check content). Names, weights and localities are
/// not in it, so services that ask the same of the same address share one state. Bytes, not a number: a number of
/// sixteen bytes would make everything that holds a key larger by its alignment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey([u8; 16]);

impl StateKey {
    /// The key of what is asked of `address` under these names.
    #[must_use]
    pub fn new(address: SocketAddr, names: &Names, check: &HealthCheck) -> Self {
        let mut bytes = Vec::with_capacity(128);
        let mut add = |part: &[u8]| {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        };
        // An IPv4 address and its mapped IPv6 form are different targets to the kernel; the text keeps them apart.
        add(address.to_string().as_bytes());
        add(names.host.as_bytes());
        add(&wire::canonical_check(check));
        // Only where there is one: the keys of checks without TLS are older than it.
        if let Some(sni) = &names.sni {
            add(sni.as_bytes());
        }
        Self(xxh3_128(&bytes).to_be_bytes())
    }

    /// The key as bytes, for the store and the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The key from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A number spread evenly over all keys, for phases and shards.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "half of the hash is as good a hash"
    )]
    pub fn spread(self) -> u64 {
        let number = u128::from_be_bytes(self.0);
        (number ^ (number >> 64)) as u64
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateKey({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The last signs of life of one target's probing, written by the engine at every judged probe and read by anyone,
/// without a message per probe. It lives as long as its key is planned, also over reloads.
#[derive(Debug, Default)]
pub struct Pulse {
    last_judged_ms: AtomicU64,
    /// By this process's monotonic clock, since [`clock::epoch`].
    heard_us: AtomicU64,
    latency_us: AtomicU64,
    /// The last probe that did not pass; boxed, because most targets have none. A std mutex: taken for moments, and only
    /// by probes that did not pass.
    failure: Mutex<Option<Box<Failure>>>,
}

/// A probe that did not pass, or that said nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it ended.
    pub at: SystemTime,
    /// FAIL, TIMEOUT or INCONCLUSIVE.
    pub result: ProbeResult,
    /// Why.
    pub reason: Reason,
}

impl Pulse {
    /// Notes a probe that did not pass: below the threshold, of another kind than the verdict's, or INCONCLUSIVE, it is
    /// what an operator looks for, and in no report.
    pub fn note_failure(&self, at: SystemTime, outcome: &Outcome) {
        let failure = Failure {
            at,
            result: outcome.result,
            reason: outcome.reason.clone(),
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(failure));
    }

    /// The last probe that did not pass; `None` when all have.
    #[must_use]
    pub fn last_failure(&self) -> Option<Failure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_deref()
            .cloned()
    }

    /// Notes a judged (not INCONCLUSIVE) probe that ended at `at` after `latency`, and of which this process heard at
    /// `heard`: where the prober is elsewhere, its wall clock is not to be relied on (semantics V1).
    pub fn beat(&self, at: SystemTime, heard: Instant, latency: Duration) {
        let since_epoch = heard.saturating_duration_since(clock::epoch());
        self.heard_us.store(
            u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
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

    /// When this process heard of the last judged probe; `None` before the first.
    #[must_use]
    pub fn heard(&self) -> Option<Instant> {
        if self.last_judged_ms.load(Ordering::Acquire) == 0 {
            return None;
        }
        let since_epoch = Duration::from_micros(self.heard_us.load(Ordering::Relaxed));
        clock::epoch().checked_add(since_epoch)
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
    /// The names that the probe gives it.
    pub names: Names,
    /// What is asked.
    pub check: Arc<HealthCheck>,
    /// Where its counters stand when the engine does not know the key yet; of no interest when it does.
    pub seed: Tally,
    /// Where the engine leaves its last signs of life.
    pub pulse: Arc<Pulse>,
}

/// The names under which a probe speaks to an address (semantics P7, P10): part of what it is (V6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The Host header or :authority; empty for TCP and SSL, which send neither.
    pub host: Arc<str>,
    /// The server name of the TLS handshake; `None` where there is none, or no handshake.
    pub sni: Option<Arc<str>>,
}

impl Names {
    /// The names for `address`, an address of the endpoint `fqdn` where it has such a name.
    ///
    /// The host is what the check names, else the FQDN, else address and port, an IPv6 address in brackets. The server
    /// name is `tls.sni`, else the check's host if that is a DNS name, else the FQDN; never an address.
    #[must_use]
    pub fn new(check: &HealthCheck, fqdn: Option<&str>, address: SocketAddr) -> Self {
        let host = match check.protocol() {
            Protocol::Tcp(_) => "".into(),
            Protocol::Http(_) | Protocol::Http2(_) | Protocol::Grpc(_) => {
                match check.host().or(fqdn) {
                    Some(host) => host.into(),
                    None => address.to_string().into(),
                }
            }
        };
        let sni = check.tls().and_then(|tls| {
            [tls.sni(), check.host().map(without_port), fqdn]
                .into_iter()
                .flatten()
                // The dot that ends a full name is no part of the server name (RFC 6066 §3).
                .map(|name| name.strip_suffix('.').unwrap_or(name))
                .find(|name| is_dns_name(name))
                .map(Into::into)
        });
        Self { host, sni }
    }
}

/// A host without its port. What is left of an IPv6 address is no DNS name, which is all that matters here.
fn without_port(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{HealthCheckSpec, HttpSpec, Kind, ProxyHeader, TlsSpec};

    fn check(path: &str, interval: u64) -> HealthCheck {
        HealthCheck::new(HealthCheckSpec {
            check_interval: Some(Duration::from_secs(interval)),
            ..HealthCheckSpec::http(HttpSpec {
                request_path: Some(path.into()),
                ..HttpSpec::default()
            })
        })
        .unwrap()
    }

    fn key(address: &str, path: &str, interval: u64) -> StateKey {
        let (address, check) = (address.parse().unwrap(), check(path, interval));
        StateKey::new(address, &Names::new(&check, None, address), &check)
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
            &*Names::new(&check("/", 5), None, address).host,
            "[2001:db8::1]:8080"
        );
        assert_eq!(
            &*Names::new(&check("/", 5), Some("api.example"), address).host,
            "api.example"
        );
    }

    #[test]
    fn v6_everything_that_a_probe_can_see_is_in_the_key() {
        let address = "192.0.2.1:443".parse().unwrap();
        let https = HealthCheckSpec::of(Kind::Https);
        let tls = |tls| HealthCheckSpec {
            tls: Some(tls),
            ..https.clone()
        };
        let root = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let specs = [
            HealthCheckSpec::of(Kind::Tcp),
            HealthCheckSpec::of(Kind::Ssl),
            HealthCheckSpec::of(Kind::Http),
            HealthCheckSpec::of(Kind::Http2),
            HealthCheckSpec::of(Kind::Grpc),
            HealthCheckSpec::of(Kind::GrpcWithTls),
            https.clone(),
            tls(TlsSpec {
                verify: Some(true),
                ..TlsSpec::default()
            }),
            tls(TlsSpec {
                verify: Some(true),
                roots: Some(root.cert.pem().into_bytes()),
                ..TlsSpec::default()
            }),
            tls(TlsSpec {
                sni: Some("b.example".into()),
                ..TlsSpec::default()
            }),
            HealthCheckSpec {
                close: Some(crate::check::Close::Fin),
                ..https.clone()
            },
            HealthCheckSpec {
                proxy_header: Some(ProxyHeader::V1),
                ..https.clone()
            },
            HealthCheckSpec {
                proxy_header: Some(ProxyHeader::V2),
                ..https.clone()
            },
        ];
        let key = |spec: &HealthCheckSpec, fqdn| {
            let check = HealthCheck::new(spec.clone()).unwrap();
            StateKey::new(address, &Names::new(&check, fqdn, address), &check)
        };
        let mut keys: Vec<_> = specs.iter().map(|spec| key(spec, None)).collect();
        keys.push(key(&https, Some("c.example")));
        keys.push(key(&HealthCheckSpec::of(Kind::Ssl), Some("c.example")));
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn p10_the_server_name_is_a_name_and_never_an_address() {
        let address: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        let sni = |kind, host: Option<&str>, sni: Option<&str>, fqdn| {
            let check = HealthCheck::new(HealthCheckSpec {
                http: HttpSpec {
                    host: host.map(Into::into),
                    ..HttpSpec::default()
                },
                tls: Some(TlsSpec {
                    sni: sni.map(Into::into),
                    ..TlsSpec::default()
                }),
                ..HealthCheckSpec::of(kind)
            })
            .unwrap();
            let names = Names::new(&check, fqdn, address);
            (names.host.to_string(), names.sni.map(|sni| sni.to_string()))
        };
        let https = |host, given, fqdn| sni(Kind::Https, host, given, fqdn).1;
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(https(None, None, None), None);
        assert_eq!(https(None, None, Some("f.example.")), name("f.example"));
        assert_eq!(
            https(Some("h.example:8443"), None, Some("f.example")),
            name("h.example")
        );
        assert_eq!(
            https(Some("h.example"), Some("s.example"), None),
            name("s.example")
        );
        assert_eq!(
            https(Some("192.0.2.1:80"), None, Some("f.example")),
            name("f.example")
        );
        assert_eq!(https(Some("[2001:db8::2]:80"), None, None), None);
        assert_eq!(https(Some("2001:db8::2"), None, None), None);
        // Without TLS there is none; without a host header there is none of that.
        assert_eq!(
            sni(Kind::Http, Some("h.example"), Some("s.example"), None),
            ("h.example".into(), None)
        );
        assert_eq!(
            sni(Kind::Ssl, None, None, Some("f.example")),
            (String::new(), name("f.example"))
        );
        assert_eq!(sni(Kind::Http2, None, None, None).0, "[2001:db8::1]:443");
        assert_eq!(
            sni(Kind::GrpcWithTls, None, None, Some("f.example")).0,
            "f.example"
        );
    }
}
