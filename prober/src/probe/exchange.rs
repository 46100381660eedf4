//! The bytes of an attempt: between its socket, TLS where there is any, and its conversation.
//!
//! In: readiness of the socket. Out: a [`Step`] when something is decided.
//!
//! ```text
//!            ┌── PROXY header, once ──┐
//!            ▼                        │
//! socket ◄── write ◄──────────────────┼── plaintext ── conversation
//!   │          ▲                      ▼                  ▲  │
//!   │          └──────── wire ◄──── TLS ◄──── say ───────│──┘
//!   └─► read ──── take ────────────►  └───── plain ──────┤
//!        └───────────── plaintext ───────────────────────┘
//! ```
//!
//! Few system calls: all that is to be said goes in one send, and reading ends when the socket has no more. What the
//! socket does not take is kept until it is writable. A peer that sends or makes us answer without end is cut off: the
//! worker's other probes wait meanwhile.
//!
//! Not here: deadlines, retries, outcomes (`probe`).

use std::io::{self, Read as _};
use std::time::Instant;

use rustix::io::Errno;

use super::conversation::Step;
use super::tls::{Layer, Plain};
use super::trace::{Event, Piece, Trace};
use super::{Attempt, Context, Finding, Out, Readiness, Stage, fault, tcp};
use crate::check::ProxyHeader;
use crate::outcome::{ProbeResult, Reason, ReasonCode};
use crate::proxy_protocol;
use crate::target::Target;

/// The most bytes that a probe takes from a peer. Conversations decide within far fewer; this ends what decides
/// nothing, such as session tickets without end.
const TAKEN_LIMIT: usize = 1024 * 1024;
/// The most bytes that wait for a peer who makes us answer and does not read.
const UNSENT_LIMIT: usize = 64 * 1024;

impl Attempt {
    /// What a wake-up brings: a step where something is decided.
    pub(super) fn drive(
        &mut self,
        ready: Readiness,
        target: &Target,
        context: &mut Context,
        now: Instant,
    ) -> Option<Step> {
        let opens = self.stage == Stage::Connecting;
        context.out.write.clear();
        if opens {
            if ready.error {
                // The error stands in the socket; asking for it also clears it.
                let error = match self.socket.take_error() {
                    Ok(Some(error)) | Err(error) => error,
                    Ok(None) => Errno::CONNRESET.into(),
                };
                return Some(Step::Done(fault::delivered(&error, target.address, false)));
            }
            if !ready.writable {
                return None;
            }
            if let Err(finding) = self.open(target, context, now) {
                return Some(Step::Done(finding));
            }
        }
        let mut broken = None;
        if opens || (!self.unsent.is_empty() && (ready.writable || ready.error)) {
            match self.flush(&mut context.out) {
                Ok(true) => {
                    if let Some(step) = self.all_sent() {
                        return Some(step);
                    }
                }
                Ok(false) => {}
                // The peer may have answered before it broke off: what can be read is read first.
                Err(error) => broken = Some(error),
            }
        }
        let reads = self.conversation.is_some() || self.stage == Stage::Handshaking;
        if reads && (ready.readable || ready.error || broken.is_some()) {
            return self.receive(broken, target, context, now);
        }
        broken.map(|error| Step::Done(fault::delivered(&error, target.address, true)))
    }

    /// The connection is open: collects our first bytes.
    fn open(
        &mut self,
        target: &Target,
        context: &mut Context,
        now: Instant,
    ) -> Result<(), Finding> {
        self.connect = Some(now.saturating_duration_since(self.started));
        let socket = &self.socket;
        let local = || socket.local_addr().ok()?.as_socket();
        context
            .out
            .trace
            .note(|| Event::Connected { local: local() });
        let header = target.check.proxy_header();
        if header != ProxyHeader::None {
            // P11: before a ClientHello too.
            let Some(local) = local() else {
                let error = io::Error::other("it has no address of its own");
                return Err(fault::delivered(&error, target.address, true));
            };
            let Out { write, trace, .. } = &mut context.out;
            proxy_protocol::write(header, local, target.address, write);
            trace.note(|| Event::ProxyHeader {
                bytes: Piece::of(write),
            });
        }
        if let Some(sessions) = &self.sessions {
            let tls = self
                .tls
                .insert(Layer::open(target, sessions, &context.configs)?);
            self.stage = Stage::Handshaking;
            tls.wire(&mut context.out.write)
                .map_err(|error| fault::delivered(&error, target.address, true))
        } else {
            self.stage = Stage::Talking;
            self.speak(&mut context.out);
            Ok(())
        }
    }

    /// Takes what the conversation has to say to the bytes that go out.
    fn speak(&mut self, out: &mut Out) {
        let Some(conversation) = &mut self.conversation else {
            return;
        };
        let Some(tls) = &mut self.tls else {
            let before = out.write.len();
            conversation.send(&mut out.write);
            if let Some(said) = out.write.get(before..)
                && !said.is_empty()
            {
                out.trace.note(|| Event::Sent(Piece::of(said)));
            }
            return;
        };
        out.say.clear();
        conversation.send(&mut out.say);
        if !out.say.is_empty() {
            out.trace.note(|| Event::Sent(Piece::of(&out.say)));
            // Into a buffer without a limit, which takes everything.
            tls.write_plain(&out.say).ok();
        }
    }

    /// Sends what was left over and what is in the write buffer; `false` when the socket took not all of it.
    fn flush(&mut self, out: &mut Out) -> io::Result<bool> {
        if !self.unsent.is_empty() {
            self.unsent.append(&mut out.write);
            std::mem::swap(&mut self.unsent, &mut out.write);
        }
        let mut sent = 0;
        while let Some(rest) = out.write.get(sent..)
            && !rest.is_empty()
        {
            match self.socket.send(rest) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = rest.to_vec();
                    out.write.clear();
                    return Ok(false);
                }
                Err(error) => {
                    self.unsent.clear();
                    out.write.clear();
                    return Err(error);
                }
            }
        }
        self.unsent.clear();
        out.write.clear();
        Ok(true)
    }

    /// All that was to be said is on its way.
    fn all_sent(&mut self) -> Option<Step> {
        match (self.stage, &mut self.conversation) {
            (Stage::Connecting | Stage::Handshaking, _) => None,
            (Stage::Talking, Some(conversation)) => conversation.sent(),
            (Stage::Talking, None) if self.tls.is_some() => Some(Step::Done(Layer::passed())),
            (Stage::Talking, None) => Some(Step::Done(tcp::connected())),
        }
    }

    /// Reads until there is a finding or nothing is left.
    fn receive(
        &mut self,
        mut broken: Option<io::Error>,
        target: &Target,
        context: &mut Context,
        now: Instant,
    ) -> Option<Step> {
        let peer = target.address;
        loop {
            let read = match (&self.socket).read(&mut context.read) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return broken.map(|error| Step::Done(fault::delivered(&error, peer, true)));
                }
                // P8: the whole string has come; how the peer leaves is its own affair.
                Err(_) if self.quiet_until().is_some() => return Some(Step::Done(tcp::passed())),
                Err(error) => return Some(Step::Done(fault::delivered(&error, peer, true))),
            };
            self.taken += read;
            if self.taken > TAKEN_LIMIT {
                return Some(flood(format!("{peer} sends without end and never answers")));
            }
            let Context {
                read: buffer,
                plain,
                out,
                ..
            } = &mut *context;
            if read == 0 {
                out.trace.note(|| Event::PeerClosed);
                return Some(self.peer_closed());
            }
            let bytes = buffer.get(..read).unwrap_or_default();
            let handshaking = self.stage == Stage::Handshaking;
            let step = if self.tls.is_some() {
                self.decrypt(bytes, plain, out, now)
            } else {
                let step = self.hear(bytes, &mut out.trace, now);
                if step.is_none() {
                    self.speak(out);
                }
                step
            };
            if step.is_some() {
                return step;
            }
            let established = handshaking && self.stage == Stage::Talking;
            if broken.is_none() && (established || !out.write.is_empty()) {
                match self.flush(out) {
                    Ok(true) => {
                        if let Some(step) = self.all_sent() {
                            return Some(step);
                        }
                    }
                    Ok(false) if self.unsent.len() > UNSENT_LIMIT => {
                        return Some(flood(format!(
                            "{peer} makes the probe answer without end and does not read"
                        )));
                    }
                    Ok(false) => {}
                    Err(error) => broken = Some(error),
                }
            }
            out.write.clear();
        }
    }

    /// Takes bytes of the socket through TLS to the conversation, and its answers to the write buffer.
    fn decrypt(
        &mut self,
        mut bytes: &[u8],
        plain: &mut [u8],
        out: &mut Out,
        now: Instant,
    ) -> Option<Step> {
        while !bytes.is_empty() {
            let tls = self.tls.as_mut()?;
            if let Err(finding) = tls.take(&mut bytes) {
                return Some(Step::Done(finding));
            }
            if self.stage == Stage::Handshaking && !tls.is_handshaking() {
                self.stage = Stage::Talking;
                self.handshake = Some(now.saturating_duration_since(self.started));
                out.trace.note(|| Event::TlsEstablished(tls.established()));
                if let Some(finding) = tls.refusal() {
                    return Some(Step::Done(finding));
                }
                self.speak(out);
            }
            if let Some(step) = self.read_plain(plain, out, now) {
                return Some(step);
            }
            // Into memory, which takes everything.
            self.tls.as_mut()?.wire(&mut out.write).ok();
        }
        None
    }

    fn read_plain(&mut self, plain: &mut [u8], out: &mut Out, now: Instant) -> Option<Step> {
        // Before the handshake is complete nothing the peer says is for the conversation.
        while self.stage == Stage::Talking {
            let read = match self.tls.as_mut()?.read_plain(plain) {
                Plain::Bytes(read) => read,
                Plain::Nothing => return None,
                Plain::Closed => return Some(self.peer_closed()),
            };
            let step = self.hear(plain.get(..read).unwrap_or_default(), &mut out.trace, now);
            if step.is_some() {
                return step;
            }
            self.speak(out);
        }
        None
    }

    /// Plaintext of the peer has come.
    fn hear(&mut self, bytes: &[u8], trace: &mut Trace, now: Instant) -> Option<Step> {
        if self.first_byte.is_none() {
            self.first_byte = Some(now.saturating_duration_since(self.started));
        }
        trace.note(|| Event::Received(Piece::of(bytes)));
        self.conversation.as_mut()?.feed(bytes, now)
    }

    fn peer_closed(&mut self) -> Step {
        match (&self.tls, self.stage, &mut self.conversation) {
            (Some(tls), Stage::Handshaking, _) => Step::Done(tls.closed()),
            (_, _, Some(conversation)) => conversation.end(),
            (Some(_), _, None) => Step::Done(Layer::passed()),
            (None, _, None) => Step::Done(tcp::connected()),
        }
    }
}

fn flood(text: String) -> Step {
    Step::Done((ProbeResult::Fail, Reason::new(ReasonCode::Flood, text)))
}
