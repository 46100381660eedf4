//! The TLS sessions of one target, kept from one probe to the next: endpoint, server name and check are its key, since
//! it is dropped with the target.
//!
//! In: what servers hand out in a handshake, and what came of the probe. Out: which versions the next handshake offers,
//! and at most one session for it.
//!
//! ```text
//!  ┌────────────── every tenth passed probe; a probe that did not pass ────────────────┐
//!  ▼                                                                                   │
//! FULL: 1.2 and 1.3, no session ──passed──► SHORT: 1.2 alone, and its session if kept ─┤
//!                                             │ a pass without a session; a time-out   │
//!                                             │ where none passed before;              │
//!                                             │ not passed where FULL then passed;     │
//!                                             │ or one probe decides (threshold 1)     │
//!                                             ▼                                        │
//!                                           1.2 and 1.3, and the session if kept ──────┘
//! ```
//!
//! Why 1.2 alone: to resume a session of TLS 1.3 takes rustls a key exchange, so it costs us as much as a full
//! handshake without verification (60 µs); resuming one of TLS 1.2 takes none (11 µs). A full handshake (key,
//! certificate and all) is seen to work every tenth time, and always after a probe that did not pass.
//!
//! A short handshake can only confirm: what else than a pass comes of it is not believed, and the attempt asks again at
//! once in full (see `probe`). So a server that speaks TLS 1.3 alone, or begins to, passes every probe. Only the deadline
//! can come before the full one has spoken, once, or twice but not in a row; where a single probe decides, even that
//! would be a wrong verdict, and no handshake is a short one. A check that verifies resumes nothing at all (see `tls`):
//! certificates are seen only in full.
//!
//! Bounded: one session of one version. Its size is the ticket (some 200 bytes) and the server's certificates (1–4 KiB
//! as a rule); a handshake of more than 16 KiB leaves no session behind (see `tls`).

use std::sync::{Mutex, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use crate::outcome::ProbeResult;

/// One probe of so many makes a full handshake.
const FULL_EVERY: u8 = 10;

/// The versions of TLS that a handshake offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::probe) enum Offer {
    /// TLS 1.2 and 1.3 (semantics P10).
    Both,
    /// TLS 1.2, for a short handshake.
    Tls12,
}

/// What is kept for a target's next probe.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Passed probes since the last full handshake.
    passed: u8,
    /// The handshake under way is a full one: what is kept is not for it.
    full: bool,
    /// Short handshakes are of no use with this server.
    never_short: bool,
    /// A short handshake has led to a pass, and to no time-out since.
    proven: bool,
    group: Option<NamedGroup>,
    session: Option<Session>,
}

#[derive(Debug)]
enum Session {
    Tls12(Box<Tls12ClientSessionValue>),
    Tls13(Box<Tls13ClientSessionValue>),
}

impl Sessions {
    fn kept<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        // The lock guards values that are whole at any time, so a panic elsewhere spoils nothing.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A handshake begins. `one_decides`: a single probe that does not pass turns the target.
    pub(super) fn turn(&self, one_decides: bool) -> Offer {
        self.kept(|kept| {
            kept.never_short |= one_decides;
            kept.full = kept.passed == 0;
            if kept.full || kept.never_short {
                Offer::Both
            } else {
                Offer::Tls12
            }
        })
    }

    pub(super) fn forget(&self) {
        self.kept(|kept| kept.session = None);
    }

    /// What came of a short handshake is not believed: a full one follows at once.
    pub(in crate::probe) fn doubt(&self) {
        self.kept(|kept| (kept.passed, kept.session) = (0, None));
    }

    /// A probe has ended; `offer`: how its last handshake began, if it came to one; `doubted`: after [`Self::doubt`].
    pub(in crate::probe) fn note(&self, result: ProbeResult, offer: Option<Offer>, doubted: bool) {
        let short = offer == Some(Offer::Tls12);
        self.kept(|kept| match result {
            ProbeResult::Pass => {
                kept.passed = (kept.passed + 1) % FULL_EVERY;
                let resumable = matches!(kept.session, Some(Session::Tls12(_)));
                kept.never_short |= doubted || (short && !resumable);
                kept.proven |= short;
            }
            ProbeResult::Fail | ProbeResult::Timeout => {
                (kept.passed, kept.session) = (0, None);
                // The deadline left no time to ask in full, or too little. Maybe the server is silent to TLS 1.2, or slow to
                // refuse it: where nothing speaks against that, it is asked for TLS 1.2 no more, so that it is wronged
                // once, or twice but not in a row where it used to answer. One who used to may as well just have been
                // too slow.
                if short || (doubted && result == ProbeResult::Timeout) {
                    kept.never_short |= !kept.proven;
                    kept.proven = false;
                }
            }
            ProbeResult::Inconclusive => {}
        });
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _server_name: ServerName<'static>, group: NamedGroup) {
        self.kept(|kept| kept.group = Some(group));
    }

    fn kx_hint(&self, _server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept(|kept| kept.group)
    }

    fn set_tls12_session(&self, _server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept(|kept| kept.session = Some(Session::Tls12(Box::new(value))));
    }

    fn tls12_session(&self, _server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept(|kept| match &kept.session {
            Some(Session::Tls12(value)) if !kept.full => Some((**value).clone()),
            _ => None,
        })
    }

    fn remove_tls12_session(&self, _server_name: &ServerName<'static>) {
        // A full handshake that ends in TLS 1.3 says so too.
        self.kept(|kept| {
            if !kept.full && matches!(kept.session, Some(Session::Tls12(_))) {
                kept.session = None;
            }
        });
    }

    fn insert_tls13_ticket(
        &self,
        _server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.kept(|kept| {
            // The one for short handshakes is worth more.
            if kept.never_short || !matches!(kept.session, Some(Session::Tls12(_))) {
                kept.session = Some(Session::Tls13(Box::new(value)));
            }
        });
    }

    fn take_tls13_ticket(
        &self,
        _server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.kept(|kept| match kept.session.take() {
            Some(Session::Tls13(value)) if !kept.full => Some(*value),
            other => {
                kept.session = other;
                None
            }
        })
    }
}
