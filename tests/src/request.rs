//! One HTTP/1.1 request with every detail: from which address, with which headers; and the answer's headers.
//!
//! In: where to, and a [`Request`]. Out: an [`Answer`]. Not here: redirects, compression, anything that a client does by
//! itself; `http_client` is for those who only want to know the answer.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use tokio::net::TcpSocket;

use crate::backend::RUNTIME;

const LIMIT: Duration = Duration::from_secs(10);

/// A request for `path`.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The path.
    pub path: &'r str,
    /// Headers besides Host.
    pub headers: &'r [(&'r str, &'r str)],
    /// The address that it comes from; `None` leaves it to the system.
    pub source: Option<IpAddr>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Connects from `source`.
pub fn connect(to: SocketAddr, source: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let stream = RUNTIME.block_on(async {
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(source) = source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        socket.connect(to).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Sends the request on a connection of its own.
pub fn send(to: SocketAddr, request: Request<'_>) -> Result<Answer, String> {
    let mut text = format!(
        "GET {} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n",
        request.path
    );
    for (name, value) in request.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = Vec::new();
    let mut talk = || -> std::io::Result<()> {
        let mut stream = connect(to, request.source)?;
        stream.write_all(text.as_bytes())?;
        stream.read_to_end(&mut bytes)?;
        Ok(())
    };
    talk().map_err(|error| format!("GET {} at {to}: {error}", request.path))?;
    let text = String::from_utf8_lossy(&bytes);
    parse(&text).ok_or_else(|| format!("{text:?} is no answer"))
}

/// The body is what follows the head: good for answers that are not chunked.
fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Answer {
        status,
        headers,
        body: body.into(),
    })
}
