//! Opens the two listeners with what the flags about trust come to, and follows the files behind them.
//!
//! In: [`Trust`]. Out: the TLS and the token that the listeners have, and a task that renews them from their files until
//! the stop signal.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use vitals_prober::clock;

use super::trust_args::{TOKEN_FLAG, Trust};
use crate::admin::access::Access;
use crate::metrics::Metrics;
use crate::metrics::connections::Secret;
use crate::transport::{Door, Entrance, Found, Listening, Tls, TlsFiles, Token, follow};

/// What the listeners are opened with.
pub(super) struct Doors {
    pub(super) xds: Entrance,
    pub(super) admin: Entrance,
    pub(super) access: Access,
    /// Ends when `stopping` turns true.
    pub(super) followers: JoinSet<()>,
}

pub(super) fn open(
    trust: Trust,
    xds: TcpListener,
    admin: TcpListener,
    metrics: &Arc<Metrics>,
    stopping: &watch::Receiver<bool>,
) -> Doors {
    let mut followers = JoinSet::new();
    let (mut xds_tls, mut admin_tls) = (None, None);
    let mut certificates = false;
    if let (Some(files), Some((running, tls))) = (trust.files, trust.tls) {
        note(&tls, metrics, clock::wall());
        certificates = files.client_ca.is_some();
        let (of_xds, xds_out) = watch::channel(Arc::clone(&tls.xds));
        let (of_admin, admin_out) = watch::channel(tls.admin);
        (xds_tls, admin_tls) = (Some(xds_out), trust.admin_tls.then_some(admin_out));
        let noted = Arc::clone(metrics);
        followers.spawn(follow(
            Secret::Tls,
            running,
            move || look_at_tls(&files),
            move |tls: Tls| {
                note(&tls, &noted, clock::wall());
                of_xds.send_replace(tls.xds);
                of_admin.send_replace(tls.admin);
            },
            Arc::clone(metrics),
            stopping.clone(),
        ));
    }
    let token = trust.token.map(|token| {
        let running = token.hash();
        let (sender, receiver) = watch::channel(token);
        if let Some(path) = trust.token_file {
            followers.spawn(follow(
                Secret::AdminToken,
                running,
                move || match Token::read(TOKEN_FLAG, &path) {
                    Ok(token) => (token.hash(), Ok(token)),
                    Err(error) => wrong(&error.to_string()),
                },
                move |token| drop(sender.send_replace(token)),
                Arc::clone(metrics),
                stopping.clone(),
            ));
        }
        receiver
    });
    Doors {
        access: Access {
            token,
            certificate: certificates && admin_tls.is_some(),
        },
        xds: Entrance {
            listener: xds,
            http: Listening::Http2,
            tls: xds_tls,
            door: Door::new("xds", trust.xds_limits, Arc::clone(metrics)),
        },
        admin: Entrance {
            listener: admin,
            http: Listening::Any,
            tls: admin_tls,
            door: Door::new("admin", trust.admin_limits, Arc::clone(metrics)),
        },
        followers,
    }
}

fn look_at_tls(files: &TlsFiles) -> Found<Tls> {
    match files.read() {
        Ok(contents) => {
            let parsed = files.parse(&contents);
            (contents.hash(), parsed.map_err(|error| error.to_string()))
        }
        Err(error) => wrong(&error.to_string()),
    }
}

/// What cannot be read is told apart by why.
fn wrong<T>(problem: &str) -> Found<T> {
    let hash = xxhash_rust::xxh3::xxh3_64(problem.as_bytes());
    (hash, Err(problem.into()))
}

/// A certificate that has ended is used all the same: clients tell their operators, and the clock may be wrong.
fn note(tls: &Tls, metrics: &Metrics, now: SystemTime) {
    metrics.connections().set_certificate_end(tls.not_after);
    if tls.not_after <= now {
        tracing::warn!("the server's certificate (--tls-cert) has ended; clients will refuse it");
    }
}
