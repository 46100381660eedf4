//! A health check from its specification to a verdict.
//!
//! The modules stand in the order in which the data travels (blank lines keep the formatter from sorting them):
//!
//! ```text
//! HealthCheckSpec ─► HealthCheck ─► Target ─► Schedule ─► attempt ─► Outcome ─► Tally ─► Report
//!     (check)                      (target)  (schedule)   (probe)   (outcome)  (tally)  (engine)
//! ```
//!
//! `oneshot` runs a single attempt for a person who watches; `proxy_protocol` and `wire` are the formats.
//!
//! What this crate does not do: it knows nothing of services, groups, Envoys or votes. It judges targets from where it
//! stands and says so; what follows from that is the server's business.

pub mod clock;

pub mod check;

pub mod outcome;

pub mod tally;

pub mod wire;

pub mod target;

pub mod schedule;

pub mod proxy_protocol;

pub mod probe;

pub mod oneshot;

pub mod engine;
