//! One attempt: a fresh connection, what is said over it, and what came of it (semantics P1, P4, P8–P11, P14–P16).
//!
//! In: a target, readiness of its socket, and time. Out: one [`Outcome`].
//!
//! ```text
//!            writable, no error      TLS: handshake complete
//! CONNECTING ─────────────────► HANDSHAKING ─────────► TALKING ── verdict, FIN or error ─► outcome
//!   │  ▲  │                       │                     │  │
//!   │  │  └───────── no TLS ──────│────────────────────►│  │ nothing to say, or no answer wanted
//!   │  │                          │                     │  ▼
//!   │  └── P14: retry, once; ─────│─────────────────────┤ PASS (P8, P9)
//!   │      after a short TLS handshake: no pass, once   │
//!   ▼ error, deadline             ▼ refused, deadline   ▼ deadline
//!  outcome                     outcome               outcome
//! ```
//!
//! The deadline is absolute, from the start of the connect (P1); an answer that is seen together with the deadline
//! counts, because the caller drives readiness before time. An attempt whose deadline is served much too late says
//! nothing: our own fault (P16). The connection is closed with the attempt (P15, `socket`).
//!
//! The attempt does no waiting: it is driven by `ready` and `elapsed`, and the event queue is the caller's. How bytes
//! go over the socket is for `exchange`; what they mean is for the conversations (`tcp`, `http1`, `http2`, `grpc`), TLS
//! for `tls`, whose fault an error is for `fault`.

mod conversation;
mod exchange;
mod expect;
mod fault;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grpc;
mod http1;
mod http2;
mod socket;
mod tcp;
mod text;
mod tls;
mod trace;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;

use self::conversation::{Conversation, Step};
pub(crate) use self::tls::{Configs, Sessions};
use self::tls::{Layer, Offer};
pub(crate) use self::trace::Trace;
pub use self::trace::{Established, Event, Piece, SHOWN_BYTES};
use crate::check::Close;
use crate::outcome::{Outcome, ProbeResult, Reason, ReasonCode, Times};
use crate::schedule;
use crate::target::Target;

/// What a conversation has found: the result and why.
type Finding = (ProbeResult, Reason);

/// What the event queue says of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) error: bool,
}

/// What a wake-up has come to.
#[derive(Debug, PartialEq)]
pub(crate) enum Progress {
    /// Nothing yet.
    Waiting,
    /// The socket is a new one, to be registered anew (semantics P14).
    Reconnected,
    /// The probe is over.
    Ended(Outcome),
}

/// What all attempts of a worker share: buffers that an attempt holds only while it is driven, TLS configurations, and
/// the prober's source address.
#[derive(Debug)]
pub(crate) struct Context {
    read: Box<[u8]>,
    plain: Box<[u8]>,
    out: Out,
    configs: Arc<Configs>,
    source: Option<IpAddr>,
}

/// What an attempt has to say while it is driven, and who else listens.
#[derive(Debug)]
struct Out {
    /// What the conversation says, where TLS is between it and the socket.
    say: Vec<u8>,
    /// What goes to the socket.
    write: Vec<u8>,
    trace: Trace,
}

impl Context {
    pub(crate) fn new(configs: Arc<Configs>, source: Option<IpAddr>, trace: Trace) -> Self {
        Self {
            read: vec![0; 16 * 1024].into_boxed_slice(),
            plain: vec![0; 16 * 1024].into_boxed_slice(),
            out: Out {
                say: Vec::with_capacity(1024),
                write: Vec::with_capacity(1024),
                trace,
            },
            configs,
            source,
        }
    }

    /// Does what the first handshake of a process does beside shaking hands, above all gathering entropy for keys: tens of
    /// milliseconds that are no time of the peer's.
    pub(crate) fn warm_up(&self, target: &Target) {
        if target.check.is_tls() {
            // Where this fails, the attempt does too, and says so.
            Layer::open(target, &Arc::default(), &self.configs).ok();
        }
    }

    /// The steps since the last call, when somebody looks.
    pub(crate) fn steps(&mut self) -> Vec<(Instant, Event)> {
        self.out.trace.take()
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
    handshake: Option<Duration>,
    first_byte: Option<Duration>,
    conversation: Option<Box<dyn Conversation + Send>>,
    sessions: Option<Arc<Sessions>>,
    tls: Option<Layer>,
    /// What the socket did not take yet; empty in the usual case.
    unsent: Vec<u8>,
    taken: usize,
    retried: bool,
    /// A short TLS handshake did not lead to a pass, so a full one follows.
    doubted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Handshaking,
    Talking,
}

impl Attempt {
    /// Starts to connect. The caller registers the socket for edges of both readiness kinds. `sessions`: what the
    /// target keeps from one probe to the next.
    ///
    /// # Errors
    /// The outcome, where the system refuses the attempt at once.
    pub(crate) fn start(
        target: &Target,
        sessions: &mut Option<Arc<Sessions>>,
        context: &mut Context,
        now: Instant,
    ) -> Result<Self, Outcome> {
        let to = target.address;
        context.out.trace.note(|| Event::Connecting { to });
        let socket = socket::connect(target, context.source)?;
        let sessions = target
            .check
            .is_tls()
            .then(|| Arc::clone(sessions.get_or_insert_default()));
        Ok(Self {
            socket,
            started: now,
            deadline: now + target.check.timeout(),
            stage: Stage::Connecting,
            connect: None,
            handshake: None,
            first_byte: None,
            conversation: conversation::begin(target),
            sessions,
            tls: None,
            unsent: Vec::new(),
            taken: 0,
            retried: false,
            doubted: false,
        })
    }

    /// The outcome of an attempt that a system call refused at once.
    pub(crate) fn refused(target: &Target, error: &io::Error) -> Outcome {
        socket::refused(target, error)
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// When [`Attempt::elapsed`] wants to be called.
    pub(crate) fn timer(&self) -> Instant {
        self.quiet_until()
            .map_or(self.deadline, |quiet| quiet.min(self.deadline))
    }

    fn quiet_until(&self) -> Option<Instant> {
        self.conversation.as_ref()?.quiet_until()
    }

    /// The socket is ready at `now`.
    pub(crate) fn ready(
        &mut self,
        ready: Readiness,
        target: &Target,
        context: &mut Context,
        now: Instant,
    ) -> Progress {
        let finding = match self.drive(ready, target, context, now) {
            None => return Progress::Waiting,
            Some(Step::Done(finding)) => finding,
            Some(Step::Retry) if self.retried => {
                let missing = self.conversation.as_ref().map(|c| c.missing());
                http2::refused_again(target.address, &missing.unwrap_or_default())
            }
            Some(Step::Retry) => {
                // Semantics P14: once more.
                self.retried = true;
                return self.reconnect(target, context);
            }
        };
        // P10: a TLS handshake that offers less than both versions can only confirm; a full one has the last word.
        let failed = matches!(finding.0, ProbeResult::Fail | ProbeResult::Timeout);
        if let Some(sessions) = &self.sessions
            && self.tls.as_ref().map(Layer::offer) == Some(Offer::Tls12)
            && failed
            && now < self.deadline
        {
            sessions.doubt();
            (self.doubted, self.retried) = (true, false);
            return self.reconnect(target, context);
        }
        self.end(finding, target, context, now)
    }

    /// On a fresh connection, within the same deadline.
    fn reconnect(&mut self, target: &Target, context: &mut Context) -> Progress {
        context.out.trace.note(|| Event::Retrying);
        self.leave(target, context);
        self.socket = match socket::connect(target, context.source) {
            Ok(socket) => socket,
            Err(outcome) => return Progress::Ended(outcome),
        };
        self.stage = Stage::Connecting;
        (self.connect, self.handshake, self.first_byte) = (None, None, None);
        self.conversation = conversation::begin(target);
        self.tls = None;
        self.unsent.clear();
        self.taken = 0;
        Progress::Reconnected
    }

    /// The time of [`Attempt::timer`] has come, and readiness up to then is served.
    pub(crate) fn elapsed(
        &mut self,
        target: &Target,
        context: &mut Context,
        now: Instant,
    ) -> Option<Outcome> {
        if now < self.timer() {
            return None;
        }
        let finding = if self.quiet_until().is_some() {
            tcp::passed()
        } else {
            self.timed_out(target)
        };
        match self.end(finding, target, context, now) {
            Progress::Ended(outcome) => Some(outcome),
            Progress::Waiting | Progress::Reconnected => None,
        }
    }

    fn timed_out(&self, target: &Target) -> Finding {
        let (peer, timeout) = (target.address, target.check.timeout());
        let (code, text) = match (self.stage, &self.conversation) {
            (Stage::Connecting, _) => (
                ReasonCode::ConnectTimeout,
                format!(
                    "{peer} did not answer the connect within {timeout:?}; the machine is down, or packets to it or from it are lost"
                ),
            ),
            (Stage::Handshaking, _) => (
                ReasonCode::TlsTimeout,
                format!(
                    "{peer} accepted the connection, but the TLS handshake was not complete within {timeout:?}"
                ),
            ),
            (Stage::Talking, conversation) => {
                let missing = match conversation {
                    Some(conversation) => conversation.missing(),
                    None => "it did not take our first bytes".into(),
                };
                (
                    ReasonCode::ResponseTimeout,
                    format!("{peer} accepted the connection, but {missing} within {timeout:?}"),
                )
            }
        };
        (ProbeResult::Timeout, Reason::new(code, text))
    }

    /// The outcome of a finding; P16: what is found long after the deadline is our own lateness.
    fn end(
        &mut self,
        (result, reason): Finding,
        target: &Target,
        context: &mut Context,
        now: Instant,
    ) -> Progress {
        self.leave(target, context);
        let late = now.saturating_duration_since(self.deadline);
        let (result, reason) = if late > schedule::allowance(target.check.timeout()) {
            (ProbeResult::Inconclusive, late_reason("ended", late))
        } else {
            (result, reason)
        };
        if let Some(sessions) = &self.sessions {
            sessions.note(result, self.tls.as_ref().map(Layer::offer), self.doubted);
        }
        Progress::Ended(Outcome {
            result,
            reason,
            times: Times {
                connect: self.connect,
                tls: self.handshake,
                first_byte: self.first_byte,
                total: now.saturating_duration_since(self.started),
            },
        })
    }

    /// Before the connection is closed: the farewell of a graceful close. A reset needs none.
    fn leave(&mut self, target: &Target, context: &mut Context) {
        if target.check.close() != Close::Fin || self.stage == Stage::Connecting {
            return;
        }
        if let Some(tls) = &mut self.tls {
            tls.say_goodbye();
            let write = &mut context.out.write;
            write.clear();
            // Whether a peer hears a farewell changes nothing.
            if tls.wire(write).is_ok() && self.unsent.is_empty() {
                self.socket.send(write).ok();
            }
        }
        socket::leave(&self.socket, &mut context.read);
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
