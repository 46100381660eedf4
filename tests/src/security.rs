//! Whether a scenario's server listens in the clear, in TLS or in mutual TLS, and what its clients need for that.
//!
//! In: `VITALS_TEST_SECURITY`, or the scenario's transport, from which the scenarios of the real Envoy take turns. Out:
//! flags of `vitals serve` and `vitals bootstrap`, files for the scripted client. A server's files are found by its
//! address, so that a scenario need not know.
//!
//! Not here: scenarios about TLS itself, which have an [`Authority`] of their own.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::Transport;
use crate::authority::Authority;
use crate::servers::Certificate;

/// How a server's xDS listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// In the clear.
    Plain,
    /// In TLS; clients show nothing.
    Tls,
    /// In TLS, and clients show a certificate.
    Mutual,
}

/// What the clients of one server need.
#[derive(Clone, Debug)]
pub struct Files {
    /// Whom they trust.
    pub ca: PathBuf,
    /// What they show.
    pub own: Option<Certificate>,
    server: Certificate,
}

thread_local! {
    static SECURITY: Cell<Security> = const { Cell::new(Security::Plain) };
}

static SERVERS: LazyLock<Mutex<HashMap<SocketAddr, Files>>> = LazyLock::new(Mutex::default);

fn servers() -> MutexGuard<'static, HashMap<SocketAddr, Files>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a scenario for which servers that this thread starts speak as is this transport's turn, or as
/// `VITALS_TEST_SECURITY` says: `plain`, `tls` or `mtls`.
pub fn with_security(transport: Transport, scenario: impl FnOnce()) {
    let of_all = std::env::var_os("VITALS_TEST_SECURITY").map(|text| text.into_string());
    let of_all = of_all.map(|text| text.expect("plain, tls or mtls"));
    let security = match (of_all.as_deref(), transport) {
        (Some("plain"), _) | (None, Transport::Leds) => Security::Plain,
        (Some("tls"), _) | (None, Transport::Sotw) => Security::Tls,
        (Some("mtls"), _) | (None, Transport::Delta) => Security::Mutual,
        (Some(other), _) => panic!("VITALS_TEST_SECURITY={other}: write plain, tls or mtls"),
    };
    SECURITY.set(security);
    scenario();
    SECURITY.set(Security::Plain);
}

/// Runs what starts a server that is reached over another address than its own, for which it has no certificate.
pub fn in_the_clear<T>(start: impl FnOnce() -> T) -> T {
    let security = SECURITY.replace(Security::Plain);
    let started = start();
    SECURITY.set(security);
    started
}

/// Flags for a new server that will listen on `xds`; `dir` takes the files.
pub(crate) fn secure(command: &mut Command, xds: SocketAddr, dir: &Path) {
    let security = SECURITY.get();
    // Addresses come again: what is known of this one is a server's of another scenario.
    if security == Security::Plain {
        servers().remove(&xds);
        return;
    }
    let authority = Authority::new(dir, &format!("authority-{}", xds.port()));
    let files = Files {
        ca: authority.cert.clone(),
        server: authority.issue("server", &xds.ip().to_string()),
        own: (security == Security::Mutual).then(|| authority.issue("client", "spiffe://mesh/any")),
    };
    servers().insert(xds, files);
    secure_again(command, xds);
}

/// The same flags for the same server when it is started again.
pub(crate) fn secure_again(command: &mut Command, xds: SocketAddr) {
    let Some(files) = files(xds) else { return };
    command.arg("--tls-cert").arg(&files.server.cert);
    command.arg("--tls-key").arg(&files.server.key);
    if files.own.is_some() {
        command.arg("--client-ca").arg(&files.ca);
    }
}

/// What the clients of a server that a scenario started need; `None`: it listens in the clear, or is none of ours.
#[must_use]
pub fn files(xds: SocketAddr) -> Option<Files> {
    servers().get(&xds).cloned()
}

/// Flags for the bootstrap of an Envoy of that server.
pub(crate) fn know(command: &mut Command, xds: SocketAddr) {
    let Some(files) = files(xds) else { return };
    command.arg("--tls-ca").arg(&files.ca);
    if let Some(own) = &files.own {
        command.arg("--tls-cert").arg(&own.cert);
        command.arg("--tls-key").arg(&own.key);
    }
}
