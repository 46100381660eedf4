//! Vitals, the server: an xDS management server that takes the pulse of every endpoint and tells every Envoy.
//!
//! The modules stand in the order in which the data travels, and each imports only from above it:
//!
//! ```text
//! config ─► model ─► plan ─► (engine) ─► health ─► resources ─► snapshot ─► stream ─► ads
//! ```
//!
//! `model` and `snapshot` stand before what makes them, because they are the vocabulary that both sides share.

pub mod admin;
pub mod ads;
pub mod app;
pub mod bootstrap;
pub mod cli;
pub mod config;
pub mod health;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod publish;
pub mod resources;
pub mod snapshot;
pub mod store;
pub mod stream;
