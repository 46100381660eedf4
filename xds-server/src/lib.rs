//! Vitals, the server: an xDS management server that takes the pulse of every endpoint and tells every Envoy.
//!
//! The modules stand in the order in which the data travels, and each imports only from above it (blank lines keep the
//! formatter from sorting them):
//!
//! ```text
//! config ─► model ─► plan ─► (engine) ─► health ─► resources ─► snapshot ─► stream ─► ads
//! ```
//!
//! `model` and `snapshot` stand before what makes them, because they are the vocabulary that both sides share;
//! so are `trust`, which says whom a fleet admits, and `distributed`, which says what of a check an Envoy can run.

pub mod trust;

pub mod model;

pub mod distributed;

pub mod config;

pub mod plan;

pub mod health;

pub mod snapshot;

pub mod resources;

pub mod stream;

pub mod metrics;

pub mod transport;

pub mod store;

pub mod publish;

pub mod ads;

pub mod admin;

pub mod bootstrap;

pub mod app;

pub mod cli;
