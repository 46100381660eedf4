//! The harness of the scenarios: real processes, real sockets, real faults.
//!
//! In: the binaries that `cargo xtask test` built or brought (see [`tools`]). Out: one module per actor that a scenario
//! puts on stage: [`backend`], [`vitals`], [`envoy`], [`xds`] (a scripted gRPC client), [`load`] (somebody who sends
//! requests all the time), [`mod@line`] (a network that fails), [`request`] (one request with every detail), [`open`] (what
//! stays open), [`servers`] of others, an [`authority`], [`security`] of the server's own listener, [`hostile`] ones, also
//! inside TLS ([`hostile_tls`]), [`probe`] (`vitals probe`), and [`lab`], which sets the usual
//! scene. [`wait`] is how a scenario waits.
//!
//! Every scenario has its own addresses in 127.0.0.0/8 ([`net`]), so that ports are fixed and scenarios run side by side.
//!
//! Not here: assertions about behaviour. Those are the scenarios', in `tests/scenarios/` and `tests/probing/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a panic is how a test says that something is wrong"
)]

pub mod authority;
pub mod backend;
pub mod config;
pub mod envoy;
pub mod hostile;
pub mod hostile_tls;
pub mod http_client;
pub mod lab;
pub mod line;
pub mod load;
pub mod net;
pub mod open;
pub mod probe;
pub mod process;
pub mod raw_xds;
pub mod request;
pub mod security;
pub mod servers;
pub mod tcp_backend;
pub mod tools;
pub mod vitals;
pub mod wait;
pub mod xds;

/// How an Envoy, or a scripted client, speaks xDS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// State of the world.
    Sotw,
    /// Incremental.
    Delta,
    /// Incremental, and all fleets have `endpointDiscovery: LEDS` ([`with_leds`](config::with_leds)).
    Leds,
}

impl Transport {
    /// The name that `/v1/clients` uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sotw => "SOTW",
            Self::Delta | Self::Leds => "DELTA",
        }
    }

    /// Whether it is incremental.
    #[must_use]
    pub fn is_delta(self) -> bool {
        self != Self::Sotw
    }
}

/// Makes two tests of each scenario function `fn(Transport)`: `sotw::NAME` and `delta::NAME`.
#[macro_export]
macro_rules! on_both_transports {
    ($($scenario:ident),+ $(,)?) => {
        mod sotw {
            $(#[test] fn $scenario() { super::$scenario($crate::Transport::Sotw); })+
        }
        mod delta {
            $(#[test] fn $scenario() { super::$scenario($crate::Transport::Delta); })+
        }
    };
}

/// Makes three tests of each scenario function `fn(Transport)`: those of [`on_both_transports`], and `leds::NAME`. The server
/// that they start listens in TLS or mutual TLS by turns ([`security`]).
#[macro_export]
macro_rules! on_every_transport {
    ($($scenario:ident),+ $(,)?) => {
        mod sotw {
            $(#[test] fn $scenario() {
                let transport = $crate::Transport::Sotw;
                $crate::security::with_security(transport, || super::$scenario(transport));
            })+
        }
        mod delta {
            $(#[test] fn $scenario() {
                let transport = $crate::Transport::Delta;
                $crate::security::with_security(transport, || super::$scenario(transport));
            })+
        }
        $crate::in_leds!($($scenario),+);
    };
}

/// Makes a test `leds::NAME` of each scenario function `fn(Transport)`.
#[macro_export]
macro_rules! in_leds {
    ($($scenario:ident),+ $(,)?) => {
        mod leds {
            $(#[test] fn $scenario() {
                let transport = $crate::Transport::Leds;
                $crate::security::with_security(transport, || {
                    $crate::config::with_leds(|| super::$scenario(transport));
                });
            })+
        }
    };
}
