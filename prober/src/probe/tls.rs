//! TLS between a socket and a conversation (semantics P10, P12): rustls, sans-IO.
//!
//! In: the peer's bytes from the socket, and plaintext of ours. Out: bytes for the socket, the peer's plaintext, and a
//! finding where the handshake fails or the peer breaks the protocol.
//!
//! ```text
//! socket ──take──► deframe, decrypt ──read_plain──► conversation
//! socket ◄──wire── encrypt         ◄──write_plain── conversation
//! ```
//!
//! Every failure here is the endpoint's: FAIL with a code of layer TLS. Only what our own side cannot set up is
//! INCONCLUSIVE. Not here: which configuration (`config`), resumption (`sessions`), deadlines and sockets (`probe`).

mod config;
mod sentences;
mod sessions;

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, Error, HandshakeKind};

use self::config::Alpn;
pub(crate) use self::config::Configs;
pub(super) use self::sessions::Offer;
pub(crate) use self::sessions::Sessions;
use super::Finding;
use super::text::quoted;
use super::trace::Established;
use crate::check::Protocol;
use crate::outcome::{ProbeResult, Reason, ReasonCode};
use crate::target::Target;

/// A handshake of more bytes than this leaves no session behind, which would hold its certificates.
const RESUMABLE: usize = 16 * 1024;

/// TLS on one connection.
#[derive(Debug)]
pub(super) struct Layer {
    connection: Box<ClientConnection>,
    sessions: Arc<Sessions>,
    alpn: Alpn,
    offer: Offer,
    peer: SocketAddr,
    /// The type of check for a port without TLS, for sentences.
    plain: &'static str,
    taken: usize,
}

/// What there is to read of the peer's plaintext.
pub(super) enum Plain {
    Bytes(usize),
    Nothing,
    /// The peer has said that it is done.
    Closed,
}

impl Layer {
    /// Begins a handshake.
    pub(super) fn open(
        target: &Target,
        sessions: &Arc<Sessions>,
        configs: &Configs,
    ) -> Result<Self, Finding> {
        let alpn = Alpn::of(&target.check);
        Self::begin(target, alpn, sessions, configs).map_err(|problem| {
            let text = format!(
                "this prober cannot speak TLS with {}: {problem}",
                target.address
            );
            let reason = Reason::new(ReasonCode::LocalError, text);
            (ProbeResult::Inconclusive, reason)
        })
    }

    fn begin(
        target: &Target,
        alpn: Alpn,
        sessions: &Arc<Sessions>,
        configs: &Configs,
    ) -> Result<Self, String> {
        let check = target.check.tls().ok_or("the check has no TLS")?;
        let name = match &target.names.sni {
            Some(sni) => ServerName::try_from(sni.to_string())
                .map_err(|error| format!("{sni} is no server name ({error})"))?,
            // Without a name none is sent, and a certificate is verified against the address.
            None => ServerName::IpAddress(target.address.ip().into()),
        };
        let (offer, resumption) = if check.verify() {
            // A session that is resumed shows no certificate.
            (Offer::Both, Resumption::disabled())
        } else {
            let one_decides = target.check.thresholds().unhealthy == 1;
            let offer = sessions.turn(one_decides);
            (offer, Resumption::store(sessions.clone()))
        };
        // A copy of the template costs less than a microsecond; one kept per target would cost memory.
        let mut config = (*configs.get(alpn, offer, check)?).clone();
        config.resumption = resumption;
        let mut connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| format!("no handshake can be made ({error})"))?;
        // What a conversation may say is bounded by the attempt.
        connection.set_buffer_limit(None);
        Ok(Self {
            connection: Box::new(connection),
            sessions: Arc::clone(sessions),
            alpn,
            offer,
            peer: target.address,
            plain: match target.check.protocol() {
                Protocol::Tcp(_) => "TCP",
                Protocol::Http(_) | Protocol::Http2(_) => "HTTP",
                Protocol::Grpc(_) => "GRPC",
            },
            taken: 0,
        })
    }

    /// What the handshake offers.
    pub(super) fn offer(&self) -> Offer {
        self.offer
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Takes some of the bytes from the socket; those that are left are for after the plaintext is read.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<(), Finding> {
        let start = *bytes;
        let first = self.taken == 0;
        let read = self.connection.read_tls(bytes);
        self.taken += start.len() - bytes.len();
        let failed = match read {
            Err(error) => Some(error.to_string()),
            // A full buffer takes nothing; plaintext is read off after every piece, so only a handshake can fill it.
            Ok(0) => Some("a handshake message larger than any".into()),
            Ok(_) => None,
        };
        if let Some(problem) = failed {
            return Err(self.broken(&problem));
        }
        let handshaking = self.is_handshaking();
        let result = self.connection.process_new_packets();
        if self.taken > RESUMABLE && handshaking {
            self.sessions.forget();
        }
        match result {
            Ok(_) => Ok(()),
            Err(error) => Err(self.finding(&error, if first { start } else { b"" })),
        }
    }

    /// Why the handshake that has just ended is not good enough (semantics P12).
    pub(super) fn refusal(&self) -> Option<Finding> {
        if self.alpn == Alpn::H2 && self.connection.alpn_protocol() != Some(b"h2") {
            let text = format!(
                "{} does not choose h2 in the TLS handshake (no ALPN), and the check speaks nothing else",
                self.peer
            );
            return Some(fail(ReasonCode::NoAlpn, text));
        }
        None
    }

    /// The finding when a handshake that ended well is all that the check asks for (semantics P8).
    pub(super) fn passed() -> Finding {
        let reason = Reason::new(ReasonCode::TlsEstablished, "the TLS handshake completed");
        (ProbeResult::Pass, reason)
    }

    pub(super) fn read_plain(&mut self, buffer: &mut [u8]) -> Plain {
        match self.connection.reader().read(buffer) {
            Ok(0) => Plain::Closed,
            Ok(n) => Plain::Bytes(n),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Plain::Nothing,
            // FIN without close_notify; the caller has seen the FIN itself.
            Err(_) => Plain::Closed,
        }
    }

    pub(super) fn write_plain(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(bytes)
    }

    /// Appends what is to go to the socket.
    pub(super) fn wire(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    /// Says that we are done, for a graceful close.
    pub(super) fn say_goodbye(&mut self) {
        self.connection.send_close_notify();
    }

    /// The peer has closed its side in the middle of the handshake.
    pub(super) fn closed(&self) -> Finding {
        let text = format!(
            "{} closed the connection in the TLS handshake{}",
            self.peer,
            if self.taken == 0 {
                ", without an answer; perhaps it speaks no TLS on this port"
            } else {
                ""
            }
        );
        fail(ReasonCode::TlsClosed, text)
    }

    /// What was agreed on, to show it.
    pub(super) fn established(&self) -> Established {
        let connection = &self.connection;
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        Established {
            version: connection
                .protocol_version()
                .and_then(|version| version.as_str())
                .unwrap_or("?")
                .into(),
            cipher: connection
                .negotiated_cipher_suite()
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or("?")
                .into(),
            alpn: connection.alpn_protocol().map(text),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            certificates: connection.peer_certificates().map_or(0, <[_]>::len),
        }
    }

    fn finding(&self, error: &Error, start: &[u8]) -> Finding {
        match error {
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                let text = format!(
                    "{} refuses the TLS handshake: it speaks none of the protocols that are offered (ALPN {})",
                    self.peer,
                    if self.alpn == Alpn::H2 {
                        "h2"
                    } else {
                        "http/1.1"
                    }
                );
                fail(ReasonCode::NoAlpn, text)
            }
            Error::AlertReceived(alert) => {
                let alert = sentences::alert(*alert);
                let text = format!("{} ended TLS with the alert {alert}", self.peer);
                fail(ReasonCode::TlsAlert, text)
            }
            Error::InvalidCertificate(problem) => {
                let text = format!(
                    "the certificate of {} is not valid, and the check verifies it: {}",
                    self.peer,
                    sentences::certificate(problem)
                );
                fail(ReasonCode::TlsCertificate, text)
            }
            Error::InvalidMessage(_) if !start.is_empty() && !looks_like_tls(start) => {
                let text = format!(
                    "{} does not speak TLS; its answer begins with {}; a port without TLS is checked by type {}",
                    self.peer,
                    quoted(start),
                    self.plain
                );
                fail(ReasonCode::TlsHandshake, text)
            }
            error => self.broken(&sentences::problem(error)),
        }
    }

    fn broken(&self, problem: &str) -> Finding {
        let text = format!("{} does not keep to TLS: {problem}", self.peer);
        fail(ReasonCode::TlsHandshake, text)
    }
}

/// Whether bytes begin as a TLS record does: its type, and the major version.
fn looks_like_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=23, 3, ..])
}

fn fail(code: ReasonCode, text: String) -> Finding {
    (ProbeResult::Fail, Reason::new(code, text))
}
