//! Probes, judged by `vitals probe` and `vitals serve`: real servers, and backends that break every rule.
//!
//! `real_*`: nginx, HAProxy, grpcio, OpenSSL. `hostile_*`: tables over raw TCP, a row for each fault, with the rule of
//! semantics that decides it. `leaks`: what thousands of hostile probes leave behind. `cargo xtask test` runs them with
//! everything they need.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a panic is how a test says that something is wrong"
)]

mod frames;
mod hostile_grpc;
mod hostile_grpc_faults;
mod hostile_http;
mod hostile_http_framing;
mod hostile_in_tls;
mod hostile_tcp;
mod hostile_tls;
mod leaks;
mod local;
mod real_grpc;
mod real_http;
mod real_openssl;
mod real_together;
mod table;
