//! A health check from its specification to a verdict.
//!
//! The modules stand in the order in which the data travels:
//!
//! ```text
//! HealthCheckSpec ─► HealthCheck ─► Target ─► Schedule ─► attempt ─► Outcome ─► Tally ─► Report
//!     (check)                      (target)  (schedule)   (probe)   (outcome)  (tally)  (engine)
//! ```
//!
//! What this crate does not do: it knows nothing of services, groups, Envoys or votes. It judges targets from where it
//! stands and says so; what follows from that is the server's business.

pub mod check;
pub mod clock;
pub mod engine;
pub mod outcome;
pub mod probe;
pub mod schedule;
pub mod tally;
pub mod target;
pub mod wire;
