//! What is counted of connections: how many there are, who is refused and why, and the server's own certificate.
//!
//! In: calls from the listeners and from the streams. Out: metrics. Labels are the two listeners and the reasons below,
//! never an address or a name.

use std::time::SystemTime;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why a connection, a stream or a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refused {
    /// The peer has as many connections as it may have.
    Connections,
    /// The peer has as many streams as it may have.
    Streams,
    /// The TLS handshake failed: no certificate, one that nobody trusts, or no TLS at all.
    Handshake,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// More handshakes were open than may be, and this was the oldest.
    HandshakeCrowd,
    /// The connection said nothing.
    Silent,
    /// The stream asked for nothing.
    NoRequest,
    /// The stream named more resources than it may.
    Names,
    /// The stream sent a larger message than it may.
    Size,
    /// No fleet matches the stream's node.
    NoFleet,
    /// The connection speaks TLS, and the listener does not.
    Tls,
    /// The fleet, or the admin API, wants a certificate, and none was shown.
    NoCertificate,
    /// The fleet admits other names.
    OtherName,
    /// The request to the admin API had no token, or a wrong one.
    Token,
}

impl Refused {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Connections,
        Self::Streams,
        Self::Handshake,
        Self::HandshakeTimeout,
        Self::HandshakeCrowd,
        Self::Silent,
        Self::NoRequest,
        Self::Names,
        Self::Size,
        Self::NoFleet,
        Self::Tls,
        Self::NoCertificate,
        Self::OtherName,
        Self::Token,
    ];

    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Handshake => "handshake",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HandshakeCrowd => "handshake_crowd",
            Self::Silent => "silent",
            Self::NoRequest => "no_request",
            Self::Names => "names",
            Self::Size => "size",
            Self::NoFleet => "no_fleet",
            Self::Tls => "tls",
            Self::NoCertificate => "no_certificate",
            Self::OtherName => "other_name",
            Self::Token => "token",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ListenerLabels {
    listener: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    listener: &'static str,
    reason: &'static str,
}

/// What is read again when its files change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Secret {
    /// Certificate, key and authorities.
    Tls,
    /// The admin API's token.
    AdminToken,
}

impl Secret {
    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::AdminToken => "admin_token",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SecretLabels {
    what: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// The metrics of connections.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    open: Family<ListenerLabels, Gauge>,
    refusals: Family<RefusalLabels, Counter>,
    throttled: Counter,
    secrets: Family<ResultLabels, Counter>,
    secrets_ok: Family<SecretLabels, Gauge>,
    certificate_ends: Gauge,
    tasks: Gauge,
}

impl ConnectionMetrics {
    /// Registers everything.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "connections",
            "Open connections by listener, those in the handshake too",
            self.open.clone(),
        );
        registry.register(
            "refusals",
            "Connections, streams and requests that were refused, by listener and reason",
            self.refusals.clone(),
        );
        registry.register(
            "xds_throttled",
            "Requests that had to wait because their stream made too many",
            self.throttled.clone(),
        );
        registry.register(
            "secret_reloads",
            "Changes of the TLS files and the admin token",
            self.secrets.clone(),
        );
        registry.register(
            "secrets_ok",
            "Whether the files are right (1), or refused, and what was there before stays (0), by what is followed",
            self.secrets_ok.clone(),
        );
        registry.register(
            "tls_certificate_end_seconds",
            "When the server's certificate ends, in seconds since 1970; 0 without TLS",
            self.certificate_ends.clone(),
        );
        registry.register(
            "tasks",
            "Tasks of the server that are alive",
            self.tasks.clone(),
        );
        for listener in ["xds", "admin"] {
            drop(self.open.get_or_create(&ListenerLabels { listener }));
            for reason in Refused::ALL.map(Refused::as_str) {
                drop(
                    self.refusals
                        .get_or_create(&RefusalLabels { listener, reason }),
                );
            }
        }
        for result in ["ok", "error"] {
            drop(self.secrets.get_or_create(&ResultLabels { result }));
        }
    }

    /// A connection has opened (1) or closed (-1).
    pub fn opened(&self, listener: &'static str, change: i64) {
        self.open
            .get_or_create(&ListenerLabels { listener })
            .inc_by(change);
    }

    /// Something was refused.
    pub fn refused(&self, listener: &'static str, reason: Refused) {
        let reason = reason.as_str();
        self.refusals
            .get_or_create(&RefusalLabels { listener, reason })
            .inc();
    }

    /// A request had to wait.
    pub fn throttled(&self) {
        self.throttled.inc();
    }

    /// The TLS files or the token have changed.
    pub fn secret_reload(&self, ok: bool) {
        let result = if ok { "ok" } else { "error" };
        self.secrets.get_or_create(&ResultLabels { result }).inc();
    }

    /// The files of a secret are right, or are refused.
    pub fn set_secret_ok(&self, secret: Secret, ok: bool) {
        let what = secret.as_str();
        self.secrets_ok
            .get_or_create(&SecretLabels { what })
            .set(i64::from(ok));
    }

    /// The server's certificate ends then.
    pub fn set_certificate_end(&self, end: SystemTime) {
        let seconds = end
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.certificate_ends
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// So many tasks are alive now.
    pub fn set_tasks(&self, tasks: usize) {
        self.tasks.set(i64::try_from(tasks).unwrap_or(i64::MAX));
    }
}
