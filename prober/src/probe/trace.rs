//! What an attempt did, step by step, for people who look at one probe (`oneshot`).
//!
//! In: steps as they happen. Out: the same, each with its time. In the engine nobody listens, and a step costs one
//! branch. What went over the wire is bounded before it is noted.

use std::net::SocketAddr;
use std::time::Instant;

use crate::clock;

/// The most bytes of one piece that a step carries.
pub const SHOWN_BYTES: usize = 2048;

/// One step of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connect begins.
    Connecting {
        /// To where.
        to: SocketAddr,
    },
    /// The connection is open.
    Connected {
        /// Our own side of it, where the system tells.
        local: Option<SocketAddr>,
    },
    /// The PROXY header goes first (semantics P11).
    ProxyHeader {
        /// Its bytes.
        bytes: Piece,
    },
    /// The TLS handshake is complete.
    TlsEstablished(Established),
    /// What we said, before TLS encrypts it.
    Sent(Piece),
    /// What the peer said, decrypted.
    Received(Piece),
    /// The peer has closed its side.
    PeerClosed,
    /// A fresh connection follows: after GOAWAY below our stream (semantics P14), or because a short TLS handshake has
    /// not led to a pass (P10).
    Retrying,
}

/// What a TLS handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// `TLSv1_3`, `TLSv1_2`.
    pub version: String,
    /// The cipher suite.
    pub cipher: String,
    /// The protocol that was chosen by ALPN, escaped.
    pub alpn: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// How many certificates the server showed.
    pub certificates: usize,
}

/// Bytes from the wire: the first [`SHOWN_BYTES`] of them, and how many there were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    bytes: Vec<u8>,
    total: usize,
}

impl Piece {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.get(..SHOWN_BYTES).unwrap_or(bytes).to_vec(),
            total: bytes.len(),
        }
    }

    /// The beginning of it, as it was.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes it was.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// The beginning of it, escaped to printable ASCII on one line.
    #[must_use]
    pub fn escaped(&self) -> String {
        self.bytes.escape_ascii().to_string()
    }
}

/// Where steps are noted, when somebody looks.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<Vec<(Instant, Event)>>);

impl Trace {
    /// A trace that notes.
    pub(crate) fn listening() -> Self {
        Self(Some(Vec::new()))
    }

    pub(super) fn note(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.0 {
            events.push((clock::now(), event()));
        }
    }

    /// The steps since the last call.
    pub(crate) fn take(&mut self) -> Vec<(Instant, Event)> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
