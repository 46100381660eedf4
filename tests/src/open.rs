//! What stays open through Envoy for as long as a scenario likes: an HTTP answer that does not end, a TCP connection.
//!
//! In: where Envoy listens. Out: a [`Conversation`], which knows its backend and can be asked whether it goes on. Not here:
//! short requests (`http_client`, `request`).

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};

use crate::backend::STREAM_PATH;
use crate::request::connect;
use crate::wait::{SOON, eventually};

/// Something open with one backend.
#[derive(Debug)]
pub struct Conversation {
    reader: BufReader<TcpStream>,
    backend: String,
    http: bool,
}

impl Conversation {
    /// An answer of a `Backend` that goes on for ever; waits until there is one.
    #[track_caller]
    #[must_use]
    pub fn http(to: SocketAddr) -> Self {
        let ask = format!("GET {STREAM_PATH} HTTP/1.1\r\nhost: {to}\r\n\r\n");
        eventually(SOON, "an answer begins", || {
            Self::begin(to, &ask, true).map_err(|error| error.to_string())
        })
    }

    /// A connection to a `TcpBackend`; waits until there is one.
    #[track_caller]
    #[must_use]
    pub fn tcp(to: SocketAddr) -> Self {
        eventually(SOON, "the backend greets", || {
            Self::begin(to, "", false).map_err(|error| error.to_string())
        })
    }

    /// One with this backend: others that open by the way are closed again.
    #[track_caller]
    #[must_use]
    pub fn with(backend: &str, mut open: impl FnMut() -> Self) -> Self {
        eventually(SOON, &format!("a conversation with {backend}"), || {
            let one = open();
            match one.backend == backend {
                true => Ok(one),
                false => Err(one.backend),
            }
        })
    }

    fn begin(to: SocketAddr, ask: &str, http: bool) -> std::io::Result<Self> {
        let mut stream = connect(to, None)?;
        stream.write_all(ask.as_bytes())?;
        let mut this = Self {
            reader: BufReader::new(stream),
            backend: String::new(),
            http,
        };
        if http {
            let status = this.line()?;
            if !status.starts_with("HTTP/1.1 200") {
                return Err(std::io::Error::new(ErrorKind::InvalidData, status));
            }
            while !this.line()?.is_empty() {}
            // The length of the first chunk.
            this.line()?;
        }
        this.backend = this.line()?;
        Ok(this)
    }

    /// `address:port` of the backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Sees that it goes on: three more lines come, of an answer by themselves, on a connection as echoes.
    #[track_caller]
    pub fn goes_on(&mut self) {
        let backend = self.backend.clone();
        self.skip()
            .unwrap_or_else(|error| panic!("{backend} has ended it: {error}"));
        let mut heard = 0;
        while heard < 3 {
            if !self.http {
                let stream = self.reader.get_mut();
                stream
                    .write_all(format!("{backend}\n").as_bytes())
                    .unwrap_or_else(|error| panic!("{backend} is not to be spoken to: {error}"));
            }
            let line = self
                .line()
                .unwrap_or_else(|error| panic!("{backend} says no more: {error}"));
            heard += usize::from(line == backend);
        }
    }

    /// Leaves out what has come so far, which says nothing of now.
    fn skip(&mut self) -> std::io::Result<()> {
        self.reader.get_ref().set_nonblocking(true)?;
        loop {
            let length = match self.reader.fill_buf() {
                Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes.len(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            self.reader.consume(length);
        }
        self.reader.get_ref().set_nonblocking(false)
    }

    /// A line without its end; the end of everything is an error.
    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}
