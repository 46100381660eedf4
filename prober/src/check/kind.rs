//! The types of a check and what goes with each: its name, and whether it speaks TLS. Not here: which profile allows
//! which (`profile`), what belongs to a type (`tcp`, `http`, `grpc`).

/// The type of a check (semantics P2, P4, P8, P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Connect, and where strings are given, send and match.
    Tcp,
    /// The same over TLS.
    Ssl,
    /// One HTTP/1.1 request.
    Http,
    /// The same over TLS.
    Https,
    /// One HTTP/2 request over TLS.
    Http2,
    /// One RPC over HTTP/2 without TLS.
    Grpc,
    /// The same over TLS.
    GrpcWithTls,
}

impl Kind {
    /// Every type, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Tcp,
        Self::Ssl,
        Self::Http,
        Self::Https,
        Self::Http2,
        Self::Grpc,
        Self::GrpcWithTls,
    ];

    /// As it is written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Ssl => "SSL",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Http2 => "HTTP2",
            Self::Grpc => "GRPC",
            Self::GrpcWithTls => "GRPC_WITH_TLS",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it speaks TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        match self {
            Self::Ssl | Self::Https | Self::Http2 | Self::GrpcWithTls => true,
            Self::Tcp | Self::Http | Self::Grpc => false,
        }
    }
}
