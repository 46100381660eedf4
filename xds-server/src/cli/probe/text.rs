//! A probe for people: each step on a line as it happens, then what came of it.
//!
//! In: targets, steps, outcomes. Out: lines on a writer. When the reader has gone, the lines go nowhere: the probe is
//! still made, because the exit code is an answer too.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use vitals_prober::check::{HealthCheck, ProxyHeader};
use vitals_prober::oneshot::{Event, Piece};
use vitals_prober::outcome::{Outcome, Times};
use vitals_prober::target::Target;

use super::super::words;
use super::steps::{Allowance, head, lines};

/// Columns of what went over the wire.
const WIDTH: usize = 80;

/// Writes probes as text.
pub(super) struct Text<'w> {
    out: &'w mut dyn Write,
    closed: bool,
    allowance: Allowance,
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").finish_non_exhaustive()
    }
}

impl<'w> Text<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            closed: false,
            allowance: Allowance::new(),
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        if !self.closed {
            let written = writeln!(self.out, "{}", line.trim_end()).and_then(|()| self.out.flush());
            self.closed = written.is_err();
        }
    }

    /// What is about to be asked, of all addresses alike.
    pub(super) fn check(&mut self, check: &HealthCheck) {
        let mut words = vec![
            format!("profile {}", check.profile().name()),
            format!("timeout {}", words::duration(check.timeout())),
        ];
        if check.proxy_header() != ProxyHeader::None {
            words.push(words::proxy_header(check.proxy_header()).into());
        }
        if let Some(tls) = check.tls() {
            let how = if tls.verify() { "is" } else { "is not" };
            words.push(format!("the certificate {how} verified"));
        }
        self.line(&format!(
            "{} check: {}",
            check.type_name(),
            words.join(", ")
        ));
        self.line(&format!("  asks    {}", words::asks(check)));
        self.line(&format!("  passes  when {}", words::passes(check)));
    }

    /// A probe begins.
    pub(super) fn begin(&mut self, target: &Target) {
        self.allowance = Allowance::new();
        let mut names = Vec::new();
        if !target.names.host.is_empty() {
            names.push(format!("host {:?}", target.names.host));
        }
        if target.check.is_tls() {
            names.push(match &target.names.sni {
                Some(sni) => format!("server name {sni:?}"),
                None => "no server name".into(),
            });
        }
        let colon = if names.is_empty() { "" } else { ": " };
        self.line("");
        self.line(&format!(
            "probe of {}{colon}{}",
            target.address,
            names.join(", ")
        ));
    }

    /// A step has happened.
    pub(super) fn step(&mut self, elapsed: Duration, event: &Event) {
        let Some(shown) = self.allowance.take(event) else {
            return;
        };
        let at = format!("+{}", words::millis(elapsed));
        let (what, piece) = tell(event);
        self.line(&format!("  {at:>13}  {what}"));
        let Some(piece) = piece else { return };
        for line in lines(head(piece, shown), WIDTH) {
            self.line(&format!("                   {line}"));
        }
        if shown < piece.total() {
            let more = words::count(piece.total() - shown, "more byte");
            self.line(&format!("                   … {more}"));
        }
    }

    /// A probe has ended.
    pub(super) fn end(&mut self, rule: &str, outcome: &Outcome) {
        match self.allowance.left_out() {
            0 => {}
            more => self.line(&format!(
                "                 … {}",
                words::count(more, "more step")
            )),
        }
        let reason = &outcome.reason;
        self.line(&format!("  rule    {rule}"));
        self.line(&format!("  times   {}", times(&outcome.times)));
        self.line(&format!(
            "  {}, {} ({}): {}",
            outcome.result.as_str(),
            reason.code.as_str(),
            reason.code.layer().as_str(),
            one_line(&reason.text)
        ));
    }
}

/// What a peer said stands in a sentence escaped; should any control character be left, it does no harm to a terminal.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn tell(event: &Event) -> (String, Option<&Piece>) {
    let bytes = |piece: &Piece| words::count(piece.total(), "byte");
    match event {
        Event::Connecting { to } => (format!("connecting to {to}"), None),
        Event::Connected { local: Some(local) } => (format!("connected, from {local}"), None),
        Event::Connected { local: None } => ("connected".into(), None),
        Event::ProxyHeader { bytes: piece } => {
            let what = format!("PROXY header, {}", bytes(piece));
            (what, Some(piece))
        }
        Event::TlsEstablished(tls) => {
            let alpn = match &tls.alpn {
                Some(alpn) => format!("ALPN {alpn}"),
                None => "no ALPN".into(),
            };
            let certificates = words::count(tls.certificates, "certificate");
            let resumed = if tls.resumed { ", resumed" } else { "" };
            let what = format!(
                "TLS handshake complete: {}, {}, {alpn}, {certificates}{resumed}",
                tls.version, tls.cipher
            );
            (what, None)
        }
        Event::Sent(piece) => (format!("sent {}", bytes(piece)), Some(piece)),
        Event::Received(piece) => (format!("received {}", bytes(piece)), Some(piece)),
        Event::PeerClosed => ("the peer closed its side".into(), None),
        Event::Retrying => ("GOAWAY: once more, on a fresh connection".into(), None),
    }
}

fn times(times: &Times) -> String {
    let steps = [
        ("connect", times.connect),
        ("TLS", times.tls),
        ("first byte", times.first_byte),
        ("total", Some(times.total)),
    ];
    let steps: Vec<_> = steps
        .into_iter()
        .filter_map(|(step, time)| Some(format!("{step} {}", words::millis(time?))))
        .collect();
    steps.join(", ")
}
