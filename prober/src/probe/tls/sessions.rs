//! The TLS sessions of one target, kept from one probe to the next: endpoint, server name and check are its key, since
//! it is dropped with the target.
//!
//! In: what servers hand out in a handshake. Out: at most one session for the next probe; every tenth probe forgets it
//! first, so that a full handshake (key, certificate and all) is still seen to work.
//!
//! Bounded: one session of one version. Its size is the ticket (some 200 bytes) and the server's certificates (1–4 KiB
//! as a rule); a handshake of more than 16 KiB leaves no session behind (see `tls`).

use std::sync::{Mutex, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// One probe of so many makes a full handshake.
const FULL_EVERY: u8 = 10;

/// What is kept for a target's next probe.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Probes since the last full handshake.
    probes: u8,
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

    /// A probe begins its handshake.
    pub(super) fn turn(&self) {
        self.kept(|kept| {
            if kept.probes == 0 {
                kept.session = None;
            }
            kept.probes = (kept.probes + 1) % FULL_EVERY;
        });
    }

    pub(super) fn forget(&self) {
        self.kept(|kept| kept.session = None);
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
            Some(Session::Tls12(value)) => Some((**value).clone()),
            _ => None,
        })
    }

    fn remove_tls12_session(&self, _server_name: &ServerName<'static>) {
        self.kept(|kept| {
            if matches!(kept.session, Some(Session::Tls12(_))) {
                kept.session = None;
            }
        });
    }

    fn insert_tls13_ticket(
        &self,
        _server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.kept(|kept| kept.session = Some(Session::Tls13(Box::new(value))));
    }

    fn take_tls13_ticket(
        &self,
        _server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.kept(|kept| match kept.session.take() {
            Some(Session::Tls13(value)) => Some(*value),
            other => {
                kept.session = other;
                None
            }
        })
    }
}
