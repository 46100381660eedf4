//! A probe for programs: one JSON document. Field names are the contract, as in the admin API.
//!
//! In: targets, steps, outcomes. Out: a [`Document`]. Times are milliseconds since the start of the connect, to the
//! microsecond; bytes from the wire are printable ASCII with escapes.

use std::time::Duration;

use serde::Serialize;
use vitals_prober::check::HealthCheck;
use vitals_prober::oneshot::{Event, Piece};
use vitals_prober::outcome::Outcome;
use vitals_prober::target::Target;

use super::steps::{Allowance, escaped, head};

/// All that one command did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    /// HOST:PORT as it was given.
    pub(super) target: String,
    pub(super) check: Check,
    /// The worst of the probes: what the exit code says.
    pub(super) result: &'static str,
    pub(super) exit_code: u8,
    /// Why nothing was probed.
    pub(super) error: Option<String>,
    /// One for each address.
    pub(super) probes: Vec<Probe>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Check {
    r#type: &'static str,
    profile: &'static str,
    timeout_ms: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Probe {
    address: String,
    host: Option<String>,
    sni: Option<String>,
    result: &'static str,
    reason: Reason,
    rule: String,
    times: Times,
    steps: Vec<Step>,
    steps_left_out: usize,
}

#[derive(Debug, Serialize)]
struct Reason {
    code: &'static str,
    layer: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    connect_ms: Option<f64>,
    tls_ms: Option<f64>,
    first_byte_ms: Option<f64>,
    total_ms: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    at_ms: f64,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Serialize)]
#[serde(
    tag = "step",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
enum What {
    Connecting {
        to: String,
    },
    Connected {
        local: Option<String>,
    },
    ProxyHeader {
        bytes: usize,
        data: String,
    },
    TlsEstablished {
        version: String,
        cipher: String,
        alpn: Option<String>,
        resumed: bool,
        certificates: usize,
    },
    Sent {
        bytes: usize,
        data: String,
    },
    Received {
        bytes: usize,
        data: String,
    },
    PeerClosed,
    Retrying,
}

impl Check {
    pub(super) fn new(check: &HealthCheck) -> Self {
        Self {
            r#type: check.type_name(),
            profile: check.profile().name(),
            timeout_ms: millis(check.timeout()),
        }
    }
}

/// The steps of one probe.
#[derive(Debug)]
pub(super) struct Steps {
    steps: Vec<Step>,
    allowance: Allowance,
}

impl Steps {
    pub(super) fn new() -> Self {
        Self {
            steps: Vec::new(),
            allowance: Allowance::new(),
        }
    }

    /// A step has happened.
    pub(super) fn step(&mut self, elapsed: Duration, event: &Event) {
        if let Some(shown) = self.allowance.take(event) {
            self.steps.push(Step {
                at_ms: millis(elapsed),
                what: What::new(event, shown),
            });
        }
    }

    /// The probe has ended.
    pub(super) fn end(self, target: &Target, rule: String, outcome: &Outcome) -> Probe {
        let (reason, times) = (&outcome.reason, &outcome.times);
        let host = &target.names.host;
        Probe {
            address: target.address.to_string(),
            host: (!host.is_empty()).then(|| host.to_string()),
            sni: target.names.sni.as_ref().map(ToString::to_string),
            result: outcome.result.as_str(),
            reason: Reason {
                code: reason.code.as_str(),
                layer: reason.code.layer().as_str(),
                text: reason.text.to_string(),
            },
            rule,
            times: Times {
                connect_ms: times.connect.map(millis),
                tls_ms: times.tls.map(millis),
                first_byte_ms: times.first_byte.map(millis),
                total_ms: millis(times.total),
            },
            steps: self.steps,
            steps_left_out: self.allowance.left_out(),
        }
    }
}

impl What {
    fn new(event: &Event, shown: usize) -> Self {
        let data = |piece: &Piece| escaped(head(piece, shown));
        match event {
            Event::Connecting { to } => Self::Connecting { to: to.to_string() },
            Event::Connected { local } => Self::Connected {
                local: local.map(|local| local.to_string()),
            },
            Event::ProxyHeader { bytes: piece } => Self::ProxyHeader {
                bytes: piece.total(),
                data: data(piece),
            },
            Event::TlsEstablished(tls) => Self::TlsEstablished {
                version: tls.version.clone(),
                cipher: tls.cipher.clone(),
                alpn: tls.alpn.clone(),
                resumed: tls.resumed,
                certificates: tls.certificates,
            },
            Event::Sent(piece) => Self::Sent {
                bytes: piece.total(),
                data: data(piece),
            },
            Event::Received(piece) => Self::Received {
                bytes: piece.total(),
                data: data(piece),
            },
            Event::PeerClosed => Self::PeerClosed,
            Event::Retrying => Self::Retrying,
        }
    }
}

/// To the microsecond.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
