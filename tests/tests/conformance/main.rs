//! Conformance: every behaviour that xDS servers owe their clients, on the server's own listener over real gRPC, in SotW and
//! in delta, aggregated and over the services of one type.
//!
//! The server is `vitals serve`'s own listener, streams and codec, in this process, with snapshots that a test makes
//! ([`server`]), so that a test can say exactly what changes when. The client ([`client`]) says what a test tells it and
//! meets every response, so that nothing unexpected passes unseen. Tests that every way must pass are written once and run
//! four times.
//!
//! Where what is (the numbers are those of the project's list of behaviours and bugs of other servers):
//!
//! | item | test |
//! |---|---|
//! | H1–H9, D1–D6 | [`subscribing`], by number |
//! | G1–G5, G7–G10, G12–G14, G16–G19 | [`rules`], by number |
//! | G6 | a server that stops ends streams with UNAVAILABLE: `rules::g6_…` |
//! | G11 | [`rules`]: assignments and routes have no legacy wildcard. A switch per type and client library does not fit: a server cannot know |
//! | G15 | [`ttl`] |
//! | G20 | `vitals::snapshot`: no snapshot with a reference that leads nowhere can be made |
//! | G21 | the scenarios with the real Envoy, SotW and delta, HTTP through its listeners |
//! | I1–I3, J1, C1 | [`rules`], by number; C1 also in [`order`] |
//! | bugs 1–15 | [`bugs`], by number |
//! | NACK, wildcard forms, unknown names, nonces, reconnects, first node | [`rules`] |
//! | the table of clients: acked, refused, what | [`standing`] |
//! | a million names, refusals in a loop, another node, garbage | [`hostile`] |
//! | a client that ends its side, and is still answered | [`ending`] |
//! | health, reflection, what is UNIMPLEMENTED | [`beside`] |
//! | the order of a pass, with a client that withholds its ACKs | [`order`] |
//!
//! What a harness row about versions asks (H: the adapter's own version strings) does not fit: versions are hashes of
//! content (design 4.4). Rows about a target's adapter (`SetState`, `ClearState`) have no server to speak to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a panic is how a test says that something is wrong"
)]

mod beside;
mod bugs;
mod client;
mod ending;
mod hostile;
mod order;
mod rules;
mod server;
mod standing;
mod subscribing;
mod ttl;

use vitals::snapshot::ResourceType;
pub(crate) use vitals::snapshot::ResourceType::{
    Cluster as Cds, ClusterLoadAssignment as Eds, LbEndpoint as Leds, Listener as Lds,
    RouteConfiguration as Rds,
};

use crate::client::Way;

/// The types of which every client may ask. Endpoints apart (LEDS) are for Envoys: the scenarios have them.
pub(crate) const ALL: [ResourceType; 4] = [Cds, Eds, Lds, Rds];

/// Runs a test on one thread, so that what a test does without an `await` happens at once for the server.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// What is expected in SotW, and in delta.
pub(crate) fn by<'a>(way: Way, sotw: &'a str, delta: &'a str) -> &'a str {
    if way.is_sotw() { sotw } else { delta }
}

/// Makes four tests of each `async fn(Way)`: SotW and delta, over ADS and over the services of one type.
macro_rules! on_every_way {
    ($($test:ident),+ $(,)?) => {
        mod sotw_ads {
            $(#[test] fn $test() { crate::run(super::$test(crate::client::Way::SotwAds)); })+
        }
        mod sotw_own {
            $(#[test] fn $test() { crate::run(super::$test(crate::client::Way::SotwOwn)); })+
        }
        mod delta_ads {
            $(#[test] fn $test() { crate::run(super::$test(crate::client::Way::DeltaAds)); })+
        }
        mod delta_own {
            $(#[test] fn $test() { crate::run(super::$test(crate::client::Way::DeltaOwn)); })+
        }
    };
}
pub(crate) use on_every_way;
