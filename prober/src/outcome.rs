//! One attempt's outcome (semantics P16): what came of one probe, on which layer, why, and how long each step took.
//!
//! In: what an attempt in `probe` met. Out: `tally` takes the [`ProbeResult`]; logs, API and store take the [`Reason`].
//! It is not a verdict: whether an endpoint is up is for the thresholds to say.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// What one probe came to (semantics P16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeResult {
    /// The endpoint answered as the check asks.
    Pass,
    /// The endpoint was reached and answered wrongly.
    Fail,
    /// The endpoint was not reached (refused and unreachable included), or the deadline ended the probe.
    Timeout,
    /// Our own side failed; the probe says nothing about the endpoint and changes no counter (semantics S1).
    Inconclusive,
}

impl ProbeResult {
    /// Every result, in the order of the declaration.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Fail, Self::Timeout, Self::Inconclusive];

    /// The name in metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Timeout => "TIMEOUT",
            Self::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// The layer on which the probe was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Our own side.
    Local,
    /// The transport: TCP.
    L4,
    /// The TLS handshake.
    Tls,
    /// The application: HTTP, or the strings of a TCP check.
    L7,
}

impl Layer {
    /// The name in logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "LOCAL",
            Self::L4 => "L4",
            Self::Tls => "TLS",
            Self::L7 => "L7",
        }
    }
}

macro_rules! reason_codes {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal, $layer:ident;)+) => {
        /// Why a probe ended as it did: a closed list, each code with the layer that it belongs to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ReasonCode { $($(#[$doc])+ $variant,)+ }

        impl ReasonCode {
            /// Every code, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in logs, JSON and the store.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The layer that the code belongs to.
            #[must_use]
            pub fn layer(self) -> Layer {
                match self { $(Self::$variant => Layer::$layer,)+ }
            }

            /// The code of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

reason_codes! {
    /// The connection opened and the check asks no more (semantics P8, P9).
    Connected = "CONNECTED", L4;
    /// The peer or a firewall refused the connection.
    ConnectRefused = "CONNECT_REFUSED", L4;
    /// No answer to the connect before the deadline.
    ConnectTimeout = "CONNECT_TIMEOUT", L4;
    /// The network reported the endpoint as unreachable.
    Unreachable = "UNREACHABLE", L4;
    /// The peer reset the connection before it had answered.
    PeerReset = "PEER_RESET", L4;
    /// The connection failed in another way before it opened.
    ConnectFailed = "CONNECT_FAILED", L4;
    /// The TLS handshake completed and the check asks no more (semantics P8, P9).
    TlsEstablished = "TLS_ESTABLISHED", Tls;
    /// The peer ended TLS with an alert.
    TlsAlert = "TLS_ALERT", Tls;
    /// What the peer says is not TLS, or breaks its protocol.
    TlsHandshake = "TLS_HANDSHAKE", Tls;
    /// The certificate is not valid, and the check verifies it.
    TlsCertificate = "TLS_CERTIFICATE", Tls;
    /// The peer closed the connection in the TLS handshake.
    TlsClosed = "TLS_CLOSED", Tls;
    /// The deadline passed in the TLS handshake.
    TlsTimeout = "TLS_TIMEOUT", Tls;
    /// The server did not choose the protocol that the check needs (semantics P12).
    NoAlpn = "NO_ALPN", Tls;
    /// The answer is what the check asks for.
    ResponseOk = "RESPONSE_OK", L7;
    /// The deadline passed while we waited for the answer, or for the rest of it.
    ResponseTimeout = "RESPONSE_TIMEOUT", L7;
    /// The peer closed the connection before its answer was whole.
    PeerClosed = "PEER_CLOSED", L7;
    /// The HTTP status is not in the pass set (semantics P4).
    StatusMismatch = "STATUS_MISMATCH", L7;
    /// The body is over and does not hold `response` (semantics P4), or the bytes of a TCP check do not match (P8).
    BodyMismatch = "BODY_MISMATCH", L7;
    /// The first 1,024 bytes of the body do not hold `response` (semantics P4).
    BodyWindowFull = "BODY_WINDOW_FULL", L7;
    /// The bytes are not an answer of the protocol that the check speaks.
    MalformedResponse = "MALFORMED_RESPONSE", L7;
    /// The response's head is larger than a probe reads.
    HeadersTooLarge = "HEADERS_TOO_LARGE", L7;
    /// The call ended with a gRPC status that the check does not expect (semantics P12, P13).
    GrpcStatus = "GRPC_STATUS", L7;
    /// The health service answers something else than SERVING (semantics P12).
    NotServing = "NOT_SERVING", L7;
    /// The peer broke a rule of HTTP/2, or broke our request off (RST_STREAM).
    Http2Error = "HTTP2_ERROR", L7;
    /// The peer said that it is going away, and left the request unanswered (semantics P14).
    Http2Goaway = "HTTP2_GOAWAY", L7;
    /// The peer sends, or makes us answer, without end.
    Flood = "FLOOD", L7;
    /// No file descriptor was left for the probe (EMFILE, ENFILE).
    LocalFds = "LOCAL_FDS", Local;
    /// No local port was left for the probe (EADDRNOTAVAIL).
    LocalPorts = "LOCAL_PORTS", Local;
    /// This machine has no route to the endpoint's network (ENETUNREACH from connect()).
    LocalNoRoute = "LOCAL_NO_ROUTE", Local;
    /// Another local fault: memory, permissions, an address that is not ours.
    LocalError = "LOCAL_ERROR", Local;
    /// The prober itself was late by more than max(timeout / 4, 250 ms) (semantics P16).
    LocalLate = "LOCAL_LATE", Local;
}

/// Why, for machines and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The code, out of a closed list.
    pub code: ReasonCode,
    /// One sentence for people; bounded to [`Reason::MAX_TEXT`] bytes.
    pub text: Cow<'static, str>,
}

impl Reason {
    /// The longest text that a reason carries, in bytes; longer ones are cut at a character's end.
    pub const MAX_TEXT: usize = 512;

    /// A reason with its sentence.
    pub fn new(code: ReasonCode, text: impl Into<Cow<'static, str>>) -> Self {
        let mut text = text.into();
        if text.len() > Self::MAX_TEXT {
            let end = text.floor_char_boundary(Self::MAX_TEXT);
            text.to_mut().truncate(end);
        }
        Self { code, text }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.text)
    }
}

/// How long each step took, from the start of the connect. A step that was not reached is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Until the connection was open.
    pub connect: Option<Duration>,
    /// Until the TLS handshake was complete.
    pub tls: Option<Duration>,
    /// Until the first byte of the answer came.
    pub first_byte: Option<Duration>,
    /// Until the outcome was known.
    pub total: Duration,
}

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result that the thresholds count.
    pub result: ProbeResult,
    /// Why.
    pub reason: Reason,
    /// How long it took.
    pub times: Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_name() {
        for &code in ReasonCode::ALL {
            assert_eq!(ReasonCode::from_name(code.as_str()), Some(code));
        }
        assert_eq!(ReasonCode::from_name("NO_SUCH_CODE"), None);
    }

    #[test]
    fn a_long_text_is_cut_at_a_characters_end() {
        let reason = Reason::new(ReasonCode::BodyMismatch, "é".repeat(400));
        assert_eq!(reason.text.len(), Reason::MAX_TEXT);
        let reason = Reason::new(ReasonCode::BodyMismatch, format!("x{}", "é".repeat(400)));
        assert_eq!(reason.text.len(), Reason::MAX_TEXT - 1);
    }
}
