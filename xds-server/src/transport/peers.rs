//! How many connections and streams each peer has.
//!
//! In: openings and closings. Out: guards, or none when the peer has as many as it may. A peer is an IPv4 address or an
//! IPv6 network of 64 bits: whoever has one address of such a network has them all. A peer without a connection costs nothing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    connections: usize,
    streams: usize,
}

/// The counts of all peers.
#[derive(Debug)]
pub(super) struct Peers {
    max_connections: usize,
    max_streams: usize,
    // A std mutex: held for moments, never over an await.
    counts: Mutex<HashMap<IpAddr, Counts>>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connection,
    Stream,
}

/// A connection or a stream; dropping it gives its place back.
#[derive(Debug)]
pub struct Place {
    peers: Arc<Peers>,
    peer: IpAddr,
    kind: Kind,
}

impl Peers {
    /// Nobody yet.
    #[must_use]
    pub(super) fn new(max_connections: usize, max_streams: usize) -> Arc<Self> {
        Arc::new(Self {
            max_connections,
            max_streams,
            counts: Mutex::default(),
        })
    }

    /// A place for one more connection, if the peer may have it.
    #[must_use]
    pub(super) fn connection(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        self.enter(address, Kind::Connection)
    }

    /// A place for one more stream, if the peer may have it.
    #[must_use]
    pub(super) fn stream(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        self.enter(address, Kind::Stream)
    }

    fn enter(self: &Arc<Self>, address: IpAddr, kind: Kind) -> Option<Place> {
        let peer = peer(address);
        self.with(|counts| {
            let entry = counts.entry(peer).or_default();
            let (count, most) = match kind {
                Kind::Connection => (&mut entry.connections, self.max_connections),
                Kind::Stream => (&mut entry.streams, self.max_streams),
            };
            let free = *count < most;
            if free {
                *count += 1;
            } else if entry.connections == 0 && entry.streams == 0 {
                counts.remove(&peer);
            }
            free
        })
        .then(|| Place {
            peers: Arc::clone(self),
            peer,
            kind,
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<IpAddr, Counts>) -> T) -> T {
        work(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.peers.with(|counts| {
            let Some(entry) = counts.get_mut(&self.peer) else {
                return;
            };
            match self.kind {
                Kind::Connection => entry.connections = entry.connections.saturating_sub(1),
                Kind::Stream => entry.streams = entry.streams.saturating_sub(1),
            }
            if entry.connections == 0 && entry.streams == 0 {
                counts.remove(&self.peer);
                // After a storm the table does not stay as large as it was.
                if counts.capacity() > 64 && counts.len() < counts.capacity() / 8 {
                    counts.shrink_to_fit();
                }
            }
        });
    }
}

fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_has_as_many_places_as_it_may_and_gets_them_back() {
        let peers = Peers::new(2, 1);
        let one = peers.connection(ip("192.0.2.1"));
        let two = peers.connection(ip("::ffff:192.0.2.1"));
        assert!(one.is_some() && two.is_some());
        assert!(peers.connection(ip("192.0.2.1")).is_none());
        assert!(peers.connection(ip("192.0.2.2")).is_some(), "another peer");
        drop(one);
        assert!(peers.connection(ip("192.0.2.1")).is_some());
        let stream = peers.stream(ip("192.0.2.1"));
        assert!(stream.is_some() && peers.stream(ip("192.0.2.1")).is_none());
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_peer() {
        let peers = Peers::new(1, 1);
        let _one = peers.connection(ip("2001:db8:0:1::1")).unwrap();
        assert!(peers.connection(ip("2001:db8:0:1:ffff::2")).is_none());
        assert!(peers.connection(ip("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn whoever_has_gone_leaves_nothing_behind() {
        let peers = Peers::new(1, 0);
        for n in 0..10_000u32 {
            let address = IpAddr::from(n.to_be_bytes());
            let place = peers.connection(address);
            assert!(peers.stream(address).is_none());
            drop(place);
            assert!(peers.stream(address).is_none(), "none allowed");
        }
        assert!(peers.with(|counts| counts.is_empty() && counts.capacity() < 128));
    }
}
