//! A listener's door: its limits, the places of its peers, and the book of those who were refused.
//!
//! In: who comes. Out: places; a count of each refusal, and a line in the log of as many as somebody can read: a peer that
//! tries a thousand times a second must not fill the disk.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use vitals_prober::clock;

use super::peers::{Peers, Place};
use super::rate::Bucket;
use super::{Limits, MAX_HANDSHAKES, handshakes::Handshakes};
use crate::metrics::Metrics;
use crate::metrics::connections::Refused;
use crate::trust::Identity;

/// Lines a second in the long run, and at once.
const LINES: (u32, u32) = (10, 100);

/// A listener's door.
#[derive(Debug)]
pub struct Door {
    listener: &'static str,
    limits: Limits,
    peers: Arc<Peers>,
    pub(super) handshakes: Arc<Handshakes>,
    metrics: Arc<Metrics>,
    // A std mutex: held for moments, never over an await.
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    lines: Bucket,
    left_out: u64,
}

impl Door {
    /// The door of the listener `xds` or `admin`.
    #[must_use]
    pub fn new(listener: &'static str, limits: Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            listener,
            limits,
            peers: Peers::new(limits.connections, limits.streams),
            handshakes: Handshakes::new(MAX_HANDSHAKES),
            metrics,
            book: Mutex::new(Book {
                lines: Bucket::new(LINES.0, LINES.1, clock::now()),
                left_out: 0,
            }),
        })
    }

    /// Its name: `xds` or `admin`.
    pub(super) fn listener(&self) -> &'static str {
        self.listener
    }

    /// What it lets peers have.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A place for one more stream of a peer.
    pub(super) fn stream(&self, peer: IpAddr) -> Option<Place> {
        self.peers.stream(peer)
    }

    /// A place for one more connection of a peer; it is counted as open as long as the place is held.
    pub(super) fn connection(&self, peer: IpAddr) -> Option<OpenConnection> {
        let place = self.peers.connection(peer)?;
        self.metrics.connections().opened(self.listener, 1);
        Some(OpenConnection {
            listener: self.listener,
            metrics: Arc::clone(&self.metrics),
            _place: place,
        })
    }

    /// Counts a refusal, and logs it where there is room.
    pub(super) fn refuse(
        &self,
        reason: Refused,
        peer: SocketAddr,
        identity: Option<&Identity>,
        why: &str,
    ) {
        self.metrics.connections().refused(self.listener, reason);
        let Some(left_out) = self.line() else { return };
        let identity = identity.map_or_else(|| "none".into(), ToString::to_string);
        tracing::warn!(
            listener = self.listener, %peer, certificate = identity, reason = reason.as_str(), left_out,
            "refused: {why}"
        );
    }

    /// How many lines were left out before this one; `None`: it is left out too.
    fn line(&self) -> Option<u64> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        match book.lines.take(clock::now()) {
            Ok(()) => Some(std::mem::take(&mut book.left_out)),
            Err(_wait) => {
                book.left_out += 1;
                None
            }
        }
    }
}

/// An open connection, counted.
#[derive(Debug)]
pub(super) struct OpenConnection {
    listener: &'static str,
    metrics: Arc<Metrics>,
    _place: Place,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.connections().opened(self.listener, -1);
    }
}
