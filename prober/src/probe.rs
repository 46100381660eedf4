//! One attempt: a fresh connection, what is said over it, and what came of it (semantics P1, P4, P8, P9, P15, P16).
//!
//! In: a target, readiness of its socket, and time. Out: one [`Outcome`].
//!
//! ```text
//!            writable, no error        all sent
//! CONNECTING ─────────────────► SENDING ──────► RECEIVING ── verdict of the reader, FIN or error ─► outcome
//!     │                           │                 │
//!     │ error, deadline           │ nothing to say  │ deadline
//!     ▼                           ▼                 ▼
//!  outcome                     PASS (P9)         outcome
//! ```
//!
//! The deadline is absolute, from the start of the connect (P1); an answer that is seen together with the deadline
//! counts, because the caller drives readiness before time. An attempt whose deadline is served much too late says
//! nothing: our own fault (P16). The connection is closed by RST when the attempt is dropped (P15, design 5.12).
//!
//! The attempt does no waiting: it is driven by `ready` and `elapsed`, and the event queue is the caller's. What the
//! bytes mean is for `tcp` and `http1`; which errors are whose fault is for `fault`.

mod fault;
mod http1;
mod tcp;
mod text;

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::check::Protocol;
use crate::outcome::{Outcome, ProbeResult, Reason, ReasonCode, Times};
use crate::schedule;
use crate::target::Target;

/// What a reader has found: the result and why.
type Finding = (ProbeResult, Reason);

/// What the event queue says of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) error: bool,
}

/// Buffers that all attempts of a worker share: an attempt holds them only while it is driven.
#[derive(Debug)]
pub(crate) struct Scratch {
    read: Box<[u8]>,
    write: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            read: vec![0; 16 * 1024].into_boxed_slice(),
            write: Vec::with_capacity(1024),
        }
    }
}

/// One probe under way.
#[derive(Debug)]
pub(crate) struct Attempt {
    socket: Socket,
    started: Instant,
    deadline: Instant,
    stage: Stage,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    reader: Reader,
}

#[derive(Debug)]
enum Stage {
    Connecting,
    /// So many bytes of the request are sent.
    Sending(usize),
    Receiving,
}

/// Who reads the answer.
#[derive(Debug)]
enum Reader {
    /// Nobody: the verdict falls when the connection is open and the request, if any, is sent (P8, P9).
    None,
    Tcp(tcp::Reader),
    Http(Box<http1::Reader>),
}

impl Attempt {
    /// Starts to connect. The caller registers the socket for edges of both readiness kinds.
    ///
    /// # Errors
    /// The outcome, where the system refuses the attempt at once.
    pub(crate) fn start(target: &Target, now: Instant) -> Result<Self, Outcome> {
        let refused = |error: io::Error| Self::refused(target, &error);
        let reader = match target.check.protocol() {
            Protocol::Tcp(tcp) if tcp.response().is_none() => Reader::None,
            Protocol::Tcp(_) => Reader::Tcp(tcp::Reader::default()),
            Protocol::Http(_) => Reader::Http(Box::default()),
        };
        let socket = open(target).map_err(refused)?;
        match socket.connect(&SockAddr::from(target.address)) {
            Ok(()) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {}
            Err(error) => return Err(refused(error)),
        }
        Ok(Self {
            socket,
            started: now,
            deadline: now + target.check.timeout(),
            stage: Stage::Connecting,
            connect: None,
            first_byte: None,
            reader,
        })
    }

    /// The outcome of an attempt that a system call refused at once.
    pub(crate) fn refused(target: &Target, error: &io::Error) -> Outcome {
        let (result, code) = fault::of_call(error);
        let text = fault::call_text(code, target.address, error);
        Outcome {
            result,
            reason: Reason::new(code, text),
            times: Times::default(),
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// When [`Attempt::elapsed`] wants to be called.
    pub(crate) fn timer(&self) -> Instant {
        match &self.reader {
            Reader::Tcp(reader) => reader
                .quiet_until()
                .map_or(self.deadline, |quiet| quiet.min(self.deadline)),
            Reader::None | Reader::Http(_) => self.deadline,
        }
    }

    /// The socket is ready at `now`.
    pub(crate) fn ready(
        &mut self,
        ready: Readiness,
        target: &Target,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Option<Outcome> {
        let finding = self.drive(ready, target, scratch, now)?;
        Some(self.outcome(finding, target, now))
    }

    /// The time of [`Attempt::timer`] has come, and readiness up to then is served.
    pub(crate) fn elapsed(&mut self, target: &Target, now: Instant) -> Option<Outcome> {
        if now < self.timer() {
            return None;
        }
        let peer = target.address;
        let finding = match &self.reader {
            Reader::Tcp(reader) if reader.quiet_until().is_some() => tcp::passed(),
            _ if matches!(self.stage, Stage::Connecting) => {
                let text = format!(
                    "{peer} did not answer the connect within {:?}; the machine is down, or packets to it or from it are lost",
                    target.check.timeout()
                );
                (
                    ProbeResult::Timeout,
                    Reason::new(ReasonCode::ConnectTimeout, text),
                )
            }
            reader => {
                let missing = match reader {
                    Reader::Http(reader) => reader.missing(),
                    Reader::Tcp(reader) => reader.missing(),
                    Reader::None => "it did not take the request".into(),
                };
                let text = format!(
                    "{peer} accepted the connection, but {missing} within {:?}",
                    target.check.timeout()
                );
                (
                    ProbeResult::Timeout,
                    Reason::new(ReasonCode::ResponseTimeout, text),
                )
            }
        };
        Some(self.outcome(finding, target, now))
    }

    /// The outcome of a finding; P16: what is found long after the deadline is our own lateness.
    fn outcome(&self, (result, reason): Finding, target: &Target, now: Instant) -> Outcome {
        let late = now.saturating_duration_since(self.deadline);
        let (result, reason) = if late > schedule::allowance(target.check.timeout()) {
            (ProbeResult::Inconclusive, late_reason("ended", late))
        } else {
            (result, reason)
        };
        Outcome {
            result,
            reason,
            times: Times {
                connect: self.connect,
                tls: None,
                first_byte: self.first_byte,
                total: now.saturating_duration_since(self.started),
            },
        }
    }

    fn drive(
        &mut self,
        ready: Readiness,
        target: &Target,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Option<Finding> {
        if matches!(self.stage, Stage::Connecting) {
            if ready.error {
                // The error stands in the socket; asking for it also clears it.
                let error = match self.socket.take_error() {
                    Ok(Some(error)) | Err(error) => error,
                    Ok(None) => Errno::CONNRESET.into(),
                };
                return Some(fault::delivered(&error, target.address, false));
            }
            if !ready.writable {
                return None;
            }
            self.connect = Some(now.saturating_duration_since(self.started));
            self.stage = Stage::Sending(0);
        }
        let mut broken = None;
        if let Stage::Sending(sent) = self.stage
            && (ready.writable || ready.error)
        {
            match self.send(sent, target, scratch) {
                Ok(true) if matches!(self.reader, Reader::None) => return Some(tcp::connected()),
                Ok(true) => self.stage = Stage::Receiving,
                Ok(false) => {}
                // The peer may have answered before it broke off: what can be read is read first.
                Err(error) => broken = Some(error),
            }
        }
        if (ready.readable || ready.error || broken.is_some())
            && !matches!(self.reader, Reader::None)
            && let Some(finding) = self.receive(target, scratch, now)
        {
            return Some(finding);
        }
        broken.map(|error| fault::delivered(&error, target.address, true))
    }

    /// Sends what is left of the request; `true` when all of it is sent. The request is written anew for each call
    /// instead of being kept: it takes less time than a system call's entry, and no memory per target.
    fn send(&mut self, sent: usize, target: &Target, scratch: &mut Scratch) -> io::Result<bool> {
        let request = &mut scratch.write;
        request.clear();
        match target.check.protocol() {
            Protocol::Tcp(tcp) => {
                request.extend_from_slice(tcp.request().unwrap_or_default().as_bytes());
            }
            Protocol::Http(http) => http1::write_request(http, &target.host, request),
        }
        let mut sent = sent;
        while let Some(rest) = request.get(sent..)
            && !rest.is_empty()
        {
            match self.socket.send(rest) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stage = Stage::Sending(sent);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads until the reader has a finding or nothing is left. Readers decide within some tens of kilobytes, so a peer
    /// that never stops cannot hold the worker here.
    fn receive(&mut self, target: &Target, scratch: &mut Scratch, now: Instant) -> Option<Finding> {
        loop {
            let read = match (&self.socket).read(&mut scratch.read) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => {
                    return Some(match &self.reader {
                        // P8: the whole string has come; how the peer leaves is its own affair.
                        Reader::Tcp(reader) if reader.quiet_until().is_some() => tcp::passed(),
                        _ => fault::delivered(&error, target.address, true),
                    });
                }
            };
            let bytes = scratch.read.get(..read).unwrap_or_default();
            if read > 0 && self.first_byte.is_none() {
                self.first_byte = Some(now.saturating_duration_since(self.started));
            }
            let finding = match (&mut self.reader, target.check.protocol()) {
                (Reader::Http(reader), Protocol::Http(check)) => {
                    let ask = http1::Ask {
                        check,
                        peer: target.address,
                    };
                    if read == 0 {
                        Some(reader.end(&ask))
                    } else {
                        reader.feed(&ask, bytes)
                    }
                }
                (Reader::Tcp(reader), Protocol::Tcp(check)) => {
                    let ask = tcp::Ask {
                        expected: check.response().unwrap_or_default().as_bytes(),
                        matching: check.matching(),
                        peer: target.address,
                    };
                    if read == 0 {
                        Some(reader.end(&ask))
                    } else {
                        reader.feed(&ask, bytes, now)
                    }
                }
                // A target's check never changes under an attempt: the key holds its content.
                _ => None,
            };
            if finding.is_some() || read == 0 {
                return finding;
            }
        }
    }
}

/// A non-blocking socket for one probe.
fn open(target: &Target) -> io::Result<Socket> {
    let domain = match target.address {
        SocketAddr::V4(_) => Domain::IPV4,
        SocketAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new_raw(domain, Type::STREAM.nonblocking().cloexec(), None)?;
    // P15, design 5.12: close by RST, which leaves no TIME_WAIT behind.
    socket.set_linger(Some(Duration::ZERO))?;
    if speaks_first(target.check.protocol()) {
        // The request itself acknowledges the handshake: one packet less each way. Not where the peer speaks first: it
        // would wait for that acknowledgement.
        socket.set_tcp_quickack(false)?;
    }
    Ok(socket)
}

fn speaks_first(protocol: &Protocol) -> bool {
    match protocol {
        Protocol::Tcp(tcp) => tcp.request().is_some(),
        Protocol::Http(_) => true,
    }
}

/// Semantics P16: our own lateness. `what` has happened `late` too late.
pub(crate) fn late_reason(what: &str, late: Duration) -> Reason {
    let text = format!(
        "this prober was too busy: the probe {what} {late:.1?} late, so it says nothing about the endpoint"
    );
    Reason::new(ReasonCode::LocalLate, text)
}

#[cfg(test)]
mod tests;
