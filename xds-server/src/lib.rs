//! Vitals, the server.
pub mod config;
pub mod model;
