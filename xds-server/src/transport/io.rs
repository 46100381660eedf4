//! A connection's bytes, plain or in TLS, with a limit on how long it may say nothing at its beginning.
//!
//! In: an accepted socket. Out: something that HTTP reads and writes; an error where a client begins a TLS handshake on a
//! plain listener, which HTTP would find a bad preface and nobody would hear of. hyper waits without end for a
//! client's preface, by which it also tells HTTP/2 from HTTP/1; here the wait ends with an error. Once that is read, pings
//! find out who has gone, and a request of HTTP/1 has its own time. (One that is shorter has no name of a host in it.)

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

/// The bytes that every HTTP/2 client sends first (RFC 9113 §3.4).
const PREFACE: usize = 24;

/// What reading says where TLS is spoken to a plain listener. By its text: HTTP/2 keeps nothing else of an error.
pub(super) const LOOKS_LIKE_TLS: &str = "this looks like TLS, and the listener is plain";

/// Whether a connection that begins so begins a TLS handshake: a record of type 22, and the first byte of its version (RFC 8446
/// §5.1). No HTTP begins so.
fn looks_like_tls(first: &[u8]) -> bool {
    matches!(first, [0x16] | [0x16, 3, ..])
}

/// A connection's bytes.
#[derive(Debug)]
pub(super) struct Io {
    bytes: Bytes,
    silence: Option<Silence>,
}

#[derive(Debug)]
enum Bytes {
    Plain(TcpStream),
    // A TLS session is many times a socket.
    Tls(Box<TlsStream<TcpStream>>),
}

/// While the client has not said its first words.
#[derive(Debug)]
struct Silence {
    until: Pin<Box<Sleep>>,
    missing: usize,
}

impl Io {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self {
            bytes: Bytes::Plain(stream),
            silence: None,
        }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self {
            bytes: Bytes::Tls(Box::new(stream)),
            silence: None,
        }
    }

    /// The client must have sent a whole preface by then.
    pub(super) fn first_words_within(mut self, limit: Duration) -> Self {
        self.silence = Some(Silence {
            until: Box::pin(tokio::time::sleep(limit)),
            missing: PREFACE,
        });
        self
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Bytes::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        let is_plain = matches!(self.bytes, Bytes::Plain(_));
        if let Some(silence) = &mut self.silence {
            let first = buf.filled().get(before..).unwrap_or_default();
            if is_plain && silence.missing == PREFACE && looks_like_tls(first) {
                let error = io::Error::new(io::ErrorKind::InvalidData, LOOKS_LIKE_TLS);
                return Poll::Ready(Err(error));
            }
            silence.missing = silence
                .missing
                .saturating_sub(buf.filled().len().saturating_sub(before));
            if silence.missing == 0 {
                self.silence = None;
            } else if read.is_pending() && silence.until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Bytes::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Bytes::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.bytes {
            Bytes::Plain(stream) => stream.is_write_vectored(),
            Bytes::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Bytes::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Bytes::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_record_is_told_from_http() {
        for tls in [&b"\x16"[..], b"\x16\x03", b"\x16\x03\x01\x02\x00\x01"] {
            assert!(looks_like_tls(tls), "{tls:?}");
        }
        for other in [
            &b""[..],
            b"P",
            b"PRI * HTTP/2.0",
            b"GET / HTTP/1.1",
            b"\x16\x04",
        ] {
            assert!(!looks_like_tls(other), "{other:?}");
        }
    }
}
