//! A listener's door: its limits, the places of its peers, and the books of what is logged of them.
//!
//! In: who comes. Out: places; a count of each refusal, and a line in the log of as many as somebody can read: a peer that
//! tries a thousand times a second must not fill the disk, neither by being refused nor by what it may do.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use vitals_prober::clock;

use super::peers::{Peers, Place};
use super::rate::Bucket;
use super::{Limits, handshakes::Handshakes};
use crate::metrics::Metrics;
use crate::metrics::connections::Refused;
use crate::trust::Identity;

/// Lines a second in the long run, and at once.
const LINES: (u32, u32) = (10, 100);

/// The same for clients that come and go: a fleet that comes back at once is written down whole.
const COMINGS: (u32, u32) = (100, 20_000);

/// Of what peers can have as many lines written into the log as they like. None takes the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// They were refused.
    Refusals,
    /// They were let in, and refuse what they are sent, or ask for what there is not.
    Complaints,
    /// They were let in. (That they have gone is written down of those alone of whom this was.)
    Comings,
}

/// A listener's door.
#[derive(Debug)]
pub struct Door {
    listener: &'static str,
    limits: Limits,
    peers: Arc<Peers>,
    pub(super) handshakes: Arc<Handshakes>,
    metrics: Arc<Metrics>,
    // A std mutex: held for moments, never over an await.
    refusals: Mutex<Book>,
    complaints: Mutex<Book>,
    comings: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    lines: Bucket,
    left_out: u64,
}

impl Book {
    fn of((per_second, burst): (u32, u32)) -> Mutex<Self> {
        Mutex::new(Self {
            lines: Bucket::new(per_second, burst, clock::now()),
            left_out: 0,
        })
    }
}

impl Door {
    /// The door of the listener `xds` or `admin`.
    #[must_use]
    pub fn new(listener: &'static str, limits: Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            listener,
            limits,
            peers: Peers::new(limits.connections, limits.streams),
            handshakes: Handshakes::new(limits.handshakes),
            metrics,
            refusals: Book::of(LINES),
            complaints: Book::of(LINES),
            comings: Book::of(COMINGS),
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
        let Some(left_out) = self.line(Lines::Refusals) else {
            return;
        };
        let identity = identity.map_or_else(|| "none".into(), ToString::to_string);
        tracing::warn!(
            listener = self.listener, %peer, certificate = identity, reason = reason.as_str(), left_out,
            "refused: {why}"
        );
    }

    /// How many lines were left out before this one; `None`: it is left out too.
    #[must_use]
    pub fn line(&self, of: Lines) -> Option<u64> {
        let book = match of {
            Lines::Refusals => &self.refusals,
            Lines::Complaints => &self.complaints,
            Lines::Comings => &self.comings,
        };
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_can_have_logged_is_bounded_and_none_of_it_crowds_out_another() {
        let door = Door::new("xds", Limits::default(), Metrics::new());
        let written = |of| (0..1_000).filter(|_| door.line(of).is_some()).count();
        for of in [Lines::Refusals, Lines::Complaints] {
            // A few more may come in while this runs.
            let lines = written(of);
            assert!((100..200).contains(&lines), "{of:?}: {lines}");
        }
        assert_eq!(written(Lines::Comings), 1_000, "a fleet that comes back");
        let comings = (0..50).map(|_| written(Lines::Comings)).sum::<usize>();
        assert!(comings < 25_000, "{comings}");
    }
}
