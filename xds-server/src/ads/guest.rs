//! Who makes a stream, and what it may: admission by certificate, a rate of requests. (It has its place among the peer's
//! streams already: `places`.)
//!
//! In: the [`Peer`] that the listener has put into the request, the fleet that its node belongs to. Out: go on, wait, or the status that
//! ends the stream. A client that is refused is told so in a word; who it was and why it was refused stands in the log.
//!
//! Not here: whom a fleet admits (`trust`), and how the certificate was verified (`transport`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use vitals_prober::clock;

use super::node::NodeIdentity;
use crate::metrics::Metrics;
use crate::metrics::connections::Refused;
use crate::snapshot::FleetSnapshot;
use crate::transport::{Bucket, Ending, Lines, Peer};
use crate::trust::{Allow, NotAdmitted};

/// How long a stream may be open without a request.
const FIRST_REQUEST: Duration = Duration::from_secs(30);

/// The connection is gone before anybody said that it should end.
const ENDED: &str = "the connection has ended; reconnect";

/// Requests that a stream may make at once, in seconds of its rate: an Envoy that starts makes many.
const BURST_SECONDS: u32 = 10;

/// A stream's client.
#[derive(Debug)]
pub(super) struct Guest {
    /// `None` behind a listener that is not `transport`'s: then there are no limits, and no certificate.
    peer: Option<Peer>,
    requests: Option<Bucket>,
    /// It asked too much; until then it is not read.
    waits_until: Option<Instant>,
    opened_at: Instant,
    /// What has admitted it; it is asked again only when it is another.
    admitted: Option<Arc<Allow>>,
    metrics: Arc<Metrics>,
}

impl Guest {
    /// Who makes a request.
    pub(super) fn enter(request: &Extensions, metrics: Arc<Metrics>) -> Self {
        let peer = request.get::<Peer>().cloned();
        let requests = peer.as_ref().map(|peer| {
            let rate = peer.limits().requests_per_second;
            Bucket::new(rate, rate.saturating_mul(BURST_SECONDS), clock::now())
        });
        Self {
            peer,
            requests,
            waits_until: None,
            opened_at: Instant::now(),
            admitted: None,
            metrics,
        }
    }

    /// Where it connects from.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.peer.as_ref().map(Peer::address)
    }

    /// Whether its next request may be read.
    pub(super) fn may_ask(&self) -> bool {
        self.waits_until.is_none()
    }

    /// Notes a request. One too many is served like the others, and the next ones are read later: HTTP/2's flow control
    /// holds them back in the client.
    pub(super) fn has_asked(&mut self) {
        self.pay();
        if self.waits_until.is_some() {
            self.metrics.connections().throttled();
        }
    }

    /// Pays for a request, or waits until it can.
    fn pay(&mut self) {
        let bucket = self.requests.as_mut();
        let paid = bucket.map_or(Ok(()), |bucket| bucket.take(clock::now()));
        self.waits_until = paid.err().map(|wait| Instant::now() + wait);
    }

    /// Waits until its connection is to end, and says why; without end behind a listener that is not `transport`'s.
    pub(super) fn ending(&self) -> impl Future<Output = &'static str> + Send + use<> {
        let peer = self.peer.clone();
        async move {
            match peer {
                Some(mut peer) => (peer.ending().await).map_or(ENDED, Ending::as_str),
                None => std::future::pending().await,
            }
        }
    }

    /// Whether there is a time to wait for: it has not said who it is (`known`), or must pause.
    pub(super) fn is_timed(&self, known: bool) -> bool {
        !known || self.waits_until.is_some()
    }

    /// Waits until the client has not said who it is (`known`) in time, and says how the stream must end; or until it may
    /// ask again: `None`. Nothing is lost when it is dropped.
    pub(super) async fn turn(&mut self, known: bool) -> Option<Status> {
        let (pause, first) = (self.waits_until, self.opened_at + FIRST_REQUEST);
        tokio::select! {
            biased;
            () = sleep_until(first), if !known => {
                let why = format!("no request within {} s", FIRST_REQUEST.as_secs());
                self.refuse(Refused::NoRequest, &why);
                Some(Status::deadline_exceeded(why))
            }
            () = sleep_until(pause.unwrap_or(first)), if pause.is_some() => {
                self.pay();
                None
            }
            else => None,
        }
    }

    /// Counts and logs that no fleet matches its node, and says how the stream must end.
    pub(super) fn without_fleet(&self, node: &NodeIdentity) -> Status {
        let why = node.no_fleet();
        self.refuse(Refused::NoFleet, &why);
        Status::not_found(why)
    }

    /// Sees whether the fleet admits it.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a certificate, PERMISSION_DENIED with a wrong one.
    pub(super) fn admit(
        &mut self,
        fleet: &FleetSnapshot,
        node_id: &str,
        node_cluster: &str,
    ) -> Result<(), Status> {
        let Some(allow) = fleet.allow() else {
            return Ok(());
        };
        if matches!(&self.admitted, Some(admitted) if Arc::ptr_eq(admitted, allow)) {
            return Ok(());
        }
        let identity = self.peer.as_ref().and_then(Peer::identity);
        let Err(why) = allow.admit(identity) else {
            self.admitted = Some(Arc::clone(allow));
            return Ok(());
        };
        let clip = |text: &str| -> String { text.chars().take(128).collect() };
        let said = format!(
            "{why} (fleet {}, node id {:?}, cluster {:?})",
            fleet.name(),
            clip(node_id),
            clip(node_cluster)
        );
        Err(match why {
            NotAdmitted::NoCertificate => {
                self.refuse(Refused::NoCertificate, &said);
                Status::unauthenticated("a client certificate is wanted")
            }
            NotAdmitted::OtherName => {
                self.refuse(Refused::OtherName, &said);
                Status::permission_denied("the client certificate does not admit this node")
            }
        })
    }

    /// Whether a line about it may be logged: how many were left out before; `None`: this one must be, too.
    pub(super) fn line(&self, of: Lines) -> Option<u64> {
        self.peer.as_ref().map_or(Some(0), |peer| peer.line(of))
    }

    /// Counts and logs that it is refused, and why.
    pub(super) fn refuse(&self, reason: Refused, why: &str) {
        match &self.peer {
            Some(peer) => peer.refuse(reason, why),
            None => tracing::warn!(reason = reason.as_str(), "refused: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tonic::Code;

    use super::*;
    use crate::model::{Name, NodeMatcher};
    use crate::trust::dns_glob;

    fn fleet(allow: Option<Arc<Allow>>) -> FleetSnapshot {
        let name = Name::new("edge").unwrap();
        let fleet = FleetSnapshot::new(name, NodeMatcher::default(), [], BTreeSet::new());
        fleet.unwrap().admitting(allow)
    }

    #[test]
    fn without_a_certificate_a_fleet_with_allow_is_told_to_nobody() {
        let mut guest = Guest::enter(&Extensions::new(), Metrics::new());
        assert!(guest.admit(&fleet(None), "a", "b").is_ok());
        let allow = Allow::new(Vec::new(), vec![dns_glob("**").unwrap()]);
        let refused = guest.admit(&fleet(Some(Arc::new(allow))), "a", "b");
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(!status.message().contains("edge"), "{status}");
    }

    #[test]
    fn what_was_admitted_is_asked_again_when_allow_is_another() {
        let mut guest = Guest::enter(&Extensions::new(), Metrics::new());
        let allow = Arc::new(Allow::default());
        guest.admitted = Some(Arc::clone(&allow));
        assert!(guest.admit(&fleet(Some(allow)), "a", "b").is_ok());
        let other = fleet(Some(Arc::new(Allow::default())));
        assert!(guest.admit(&other, "a", "b").is_err());
    }
}
