//! One probe, now, for a person who watches: the engine's own attempt, driven by a loop of its own.
//!
//! In: a target, the source address, and an observer. Out: every step to the observer as it happens, then the outcome;
//! [`rule`] says which rule of the semantics decided.
//!
//! It blocks, for the check's timeout at most. It counts nothing: one probe is no verdict on an endpoint.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::check::{GrpcAsk, HealthCheck, HttpCheck, Protocol};
use crate::clock;
use crate::outcome::{Outcome, ReasonCode};
use crate::probe::{Attempt, Context, Progress, Readiness, Sessions, Trace};
pub use crate::probe::{Established, Event, Piece, SHOWN_BYTES};
use crate::target::Target;

/// Runs one probe. The observer gets each step with the time since the probe began.
pub fn run(
    target: &Target,
    source: Option<IpAddr>,
    observer: &mut dyn FnMut(Duration, &Event),
) -> Outcome {
    let mut context = Context::new(Arc::default(), source, Trace::listening());
    context.warm_up(target);
    let started = clock::now();
    let outcome = drive(target, started, &mut None, &mut context, observer);
    tell(started, &mut context, observer);
    outcome.unwrap_or_else(|error| Attempt::refused(target, &error))
}

fn tell(started: Instant, context: &mut Context, observer: &mut dyn FnMut(Duration, &Event)) {
    for (at, event) in context.steps() {
        observer(at.saturating_duration_since(started), &event);
    }
}

/// An error is of the event queue, so of our own side.
fn drive(
    target: &Target,
    started: Instant,
    sessions: &mut Option<Arc<Sessions>>,
    context: &mut Context,
    observer: &mut dyn FnMut(Duration, &Event),
) -> io::Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(4);
    let mut attempt = match Attempt::start(target, sessions, context, started) {
        Ok(attempt) => attempt,
        Err(outcome) => return Ok(outcome),
    };
    // Tells the sockets of the attempt apart.
    let mut serial = 0;
    register(&poll, &attempt, serial)?;
    loop {
        tell(started, context, observer);
        let patience = attempt.timer().saturating_duration_since(clock::now());
        match poll.poll(&mut events, Some(patience)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        let now = clock::now();
        for event in &events {
            if event.token() != Token(serial) {
                continue;
            }
            let ready = Readiness {
                readable: event.is_readable() || event.is_read_closed(),
                writable: event.is_writable(),
                error: event.is_error(),
            };
            match attempt.ready(ready, target, context, now) {
                Progress::Waiting => {}
                Progress::Reconnected => {
                    serial += 1;
                    register(&poll, &attempt, serial)?;
                }
                Progress::Ended(outcome) => return Ok(outcome),
            }
        }
        if let Some(outcome) = attempt.elapsed(target, context, now) {
            return Ok(outcome);
        }
    }
}

fn register(poll: &Poll, attempt: &Attempt, serial: usize) -> io::Result<()> {
    poll.registry().register(
        &mut SourceFd(&attempt.socket().as_raw_fd()),
        Token(serial),
        Interest::READABLE | Interest::WRITABLE,
    )
}

/// The rule that decided, by its number and applied to this check: `P4: the final status is in {200}`.
#[must_use]
pub fn rule(check: &HealthCheck, outcome: &Outcome) -> String {
    use ReasonCode as Code;
    match outcome.reason.code {
        Code::Connected if asks(check) => {
            "P8: a request without response is sent, and its answer is not read".into()
        }
        Code::Connected => "P8: without strings the check passes when the connection opens".into(),
        Code::TlsEstablished => {
            "P8: without strings the check passes when the TLS handshake completes".into()
        }
        Code::ConnectRefused | Code::Unreachable | Code::ConnectFailed => {
            "P16: an endpoint that is not reached, refused included, is TIMEOUT".into()
        }
        Code::ConnectTimeout | Code::TlsTimeout | Code::ResponseTimeout => format!(
            "P1: the deadline is {:?} after the start of the connect, whatever came by then",
            check.timeout()
        ),
        Code::PeerReset | Code::PeerClosed | Code::TlsClosed => {
            "P16: reached, and left without the answer, is FAIL".into()
        }
        Code::TlsAlert | Code::TlsHandshake if outcome.times.tls.is_some() => {
            "P16: reached, and answered wrongly, is FAIL".into()
        }
        Code::TlsAlert | Code::TlsHandshake => {
            "P10: TLS 1.2 or 1.3 must come about; certificates are not looked at".into()
        }
        Code::TlsCertificate => "P10: tls.verify wants a valid certificate".into(),
        Code::NoAlpn => match check.protocol() {
            Protocol::Http2(_) | Protocol::Grpc(_) => "P12: HTTP/2 over TLS needs ALPN h2".into(),
            Protocol::Tcp(_) | Protocol::Http(_) => {
                "P10: the TLS handshake must complete, and HTTPS speaks http/1.1".into()
            }
        },
        Code::Http2Goaway => "P14: GOAWAY gets one retry on a fresh connection".into(),
        Code::ResponseOk | Code::StatusMismatch | Code::BodyMismatch | Code::BodyWindowFull => {
            answer_rule(check, outcome.reason.code)
        }
        Code::GrpcStatus | Code::NotServing => grpc_rule(check),
        Code::MalformedResponse | Code::HeadersTooLarge | Code::Http2Error | Code::Flood => {
            "P16: reached, and answered wrongly, is FAIL".into()
        }
        Code::LocalFds
        | Code::LocalPorts
        | Code::LocalNoRoute
        | Code::LocalError
        | Code::LocalLate => {
            "P16: a fault of this prober's own side is INCONCLUSIVE and counts for nothing".into()
        }
    }
}

/// Whether a check is of TCP or SSL with a request alone.
fn asks(check: &HealthCheck) -> bool {
    matches!(check.protocol(), Protocol::Tcp(tcp) if tcp.request().is_some())
}

fn answer_rule(check: &HealthCheck, code: ReasonCode) -> String {
    match check.protocol() {
        Protocol::Tcp(tcp) => format!(
            "P8: the bytes that come are held against {:?}, {:?}",
            tcp.response().unwrap_or_default(),
            tcp.matching()
        ),
        Protocol::Http(http) | Protocol::Http2(http) => http_rule(http, code),
        Protocol::Grpc(_) => grpc_rule(check),
    }
}

fn grpc_rule(check: &HealthCheck) -> String {
    match check.protocol() {
        Protocol::Grpc(grpc) => match grpc.ask() {
            GrpcAsk::Health { .. } => "P12: the RPC must end with OK and say SERVING".into(),
            GrpcAsk::Code { method, expected } => {
                format!("P13: the RPC {method} must end with a code in {{{expected}}}")
            }
        },
        Protocol::Tcp(_) | Protocol::Http(_) | Protocol::Http2(_) => String::new(),
    }
}

fn http_rule(http: &HttpCheck, code: ReasonCode) -> String {
    let statuses = http.expected_statuses();
    let Some(response) = http.response() else {
        let is = if code == ReasonCode::ResponseOk {
            "is"
        } else {
            "is not"
        };
        return format!("P4: the final status {is} in {{{statuses}}}");
    };
    match code {
        ReasonCode::StatusMismatch => format!("P4: the final status is not in {{{statuses}}}"),
        ReasonCode::ResponseOk => format!(
            "P4: the final status is in {{{statuses}}}, and {response:?} stands in the first 1,024 bytes of the body"
        ),
        _ => format!("P4: {response:?} does not stand in the first 1,024 bytes of the body"),
    }
}

#[cfg(test)]
mod tests;
