//! Listeners: who may connect, how, for how long, and how much of it.
//!
//! ```text
//! accept ─► places of the peer ─► TLS handshake ─► first words ─► HTTP, each request with its Peer ─► end by age
//!               full: closed       10 s, oldest       10 s                                          GOAWAY, grace
//!                                  makes room
//! ```
//!
//! In: a socket that listens, TLS, limits, a service (tonic's routes or axum's router). Out: its requests, each with a
//! [`Peer`] in its extensions; metrics and log lines of those that were refused. rustls shakes hands and verifies, hyper
//! speaks HTTP; this decides what either may take. tonic's and axum's own accept loops are not used: they know neither
//! certificates that change, nor limits per peer, nor a time to shake hands or to say the first words.
//!
//! Not here: whom a fleet admits (`trust`), what is served (`ads`, `admin`).

mod door;
mod failed;
mod follow;
mod handshakes;
mod io;
mod peers;
mod rate;
mod serve;
mod tls;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use self::door::{Door, Lines};
pub use self::follow::{Found, follow};
pub use self::peers::Place;
pub use self::rate::Bucket;
pub use self::serve::{Listening, serve};
pub use self::tls::{Contents, Tls, TlsError, TlsFiles};
pub use self::token::Token;
use crate::metrics::connections::Refused;
use crate::trust::Identity;

/// How long a TLS handshake may take, then the first words, and a request's head in HTTP/1.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// TLS handshakes that may be open at once on one listener; beyond them the oldest makes room.
pub const MAX_HANDSHAKES: usize = 1_024;

/// How long a connection may take to end after it was told to.
pub const GRACE: Duration = Duration::from_secs(10);

/// A listener, and what it demands.
#[derive(Debug)]
pub struct Entrance {
    /// The socket.
    pub listener: TcpListener,
    /// What it speaks.
    pub http: Listening,
    /// `None`: it speaks plainly. The newest is what the next handshake has.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// What peers may have.
    pub door: Arc<Door>,
}

/// What a listener lets peers have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one peer.
    pub connections: usize,
    /// xDS streams of one peer.
    pub streams: usize,
    /// TLS handshakes that have not ended, of all peers; the oldest makes room.
    pub handshakes: usize,
    /// Requests a second of one xDS stream in the long run; it may burst to ten times as many.
    pub requests_per_second: u32,
    /// After so long a connection is asked to end, give or take a tenth.
    pub max_age: Option<Duration>,
    /// HTTP/2 pings: sent so often, and so long may the answer take.
    pub keepalive: Duration,
}

impl Limits {
    /// The same where a process may have so many files open: one peer must not take those that probes and other clients
    /// need.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let share = |part: u64| {
            usize::try_from(descriptors / part)
                .unwrap_or(usize::MAX)
                .max(1)
        };
        Self {
            connections: self.connections.min(share(2)),
            handshakes: self.handshakes.min(share(8)),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 8_192,
            streams: 16_384,
            handshakes: MAX_HANDSHAKES,
            requests_per_second: 500,
            max_age: None,
            keepalive: Duration::from_secs(20),
        }
    }
}

/// Who makes a request.
#[derive(Clone, Debug)]
pub struct Peer {
    address: SocketAddr,
    identity: Option<Arc<Identity>>,
    door: Arc<Door>,
    ending: watch::Receiver<Option<Ending>>,
}

/// Why a connection is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is as old as [`Limits::max_age`] lets it be.
    Age,
    /// The client's certificate has ended.
    Certificate,
    /// The server stops.
    Stop,
}

impl Ending {
    /// For the client and the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Age => "the connection has reached --max-connection-age; reconnect",
            Self::Certificate => "the client's certificate has ended; reconnect with a new one",
            Self::Stop => "the server is stopping; reconnect",
        }
    }
}

impl Peer {
    /// Where it comes from.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who it is by its certificate, which TLS has verified; `None`: it has shown none.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// What it may have.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.door.limits()
    }

    /// A place for one more stream.
    ///
    /// # Errors
    /// When it has as many as it may; that is counted and logged.
    pub fn open_stream(&self) -> Result<Place, TooManyStreams> {
        let most = self.limits().streams;
        self.door.stream(self.address.ip()).ok_or_else(|| {
            self.refuse(Refused::Streams, &format!("it has {most} already"));
            TooManyStreams { most }
        })
    }

    /// Counts and logs that it is refused, and why.
    pub fn refuse(&self, reason: Refused, why: &str) {
        self.door.refuse(reason, self.address, self.identity(), why);
    }

    /// Whether there is room in the log for one more line of this kind, which it can cause at will: how many were left out
    /// before; `None`: this one must be, too.
    #[must_use]
    pub fn line(&self, of: Lines) -> Option<u64> {
        self.door.line(of)
    }

    /// Waits until its connection is to end, and says why; `None`: it has ended.
    pub async fn ending(&mut self) -> Option<Ending> {
        let ending = self.ending.wait_for(Option::is_some).await;
        ending.ok().and_then(|ending| *ending)
    }
}

/// A peer has as many streams as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this peer has {most} streams already, as many as it may")]
pub struct TooManyStreams {
    most: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_few_files_may_be_open_a_peer_gets_a_share() {
        let few = Limits::default().within(300);
        assert_eq!((few.connections, few.handshakes), (150, 37));
        let many = Limits::default().within(1 << 20);
        assert_eq!((many.connections, many.handshakes), (8_192, MAX_HANDSHAKES));
        assert_eq!(Limits::default().within(0).handshakes, 1);
    }
}
