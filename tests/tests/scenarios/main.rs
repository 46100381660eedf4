//! Scenarios on the real thing: the server's binary, Envoy 1.40, a grpcio client, and real faults.
//!
//! One binary, so that scenarios run side by side. Those with an Envoy run three times: in SotW, in delta, and in delta with
//! endpoints apart from their load assignment (LEDS). The names of
//! semantics' rules stand where a scenario shows one. `cargo xtask test` runs them with everything they need.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a panic is how a test says that something is wrong"
)]

mod affinity;
mod cli;
mod detailed;
mod distributed;
mod distributed_checks;
mod draining;
mod envoys_own;
mod fail_open;
mod failover;
mod failure;
mod first_words;
mod fleets;
mod guard;
mod hostile_xds;
mod leases;
mod leds;
mod lifecycle;
mod protocols;
mod regions;
mod reload;
mod reload_invalid;
mod restart;
mod saves;
mod sources;
mod standing;
mod states;
mod status_texts;
mod store;
mod traffic;
mod trust;
mod trust_admin;
mod trust_hostile;
mod unhealthy_code;
mod upstream_tls;
mod warming;
mod xds_protocol;
