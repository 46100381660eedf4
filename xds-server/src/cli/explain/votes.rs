//! What probers' votes come to: quorum and guard of a service (semantics V2, V5).
//!
//! In: a service that probers check. Out: when its endpoints are healthy, and when a vantage is doubted.

use std::fmt::{self, Write as _};

use super::super::words;
use crate::model::{Guard, Quorum, Service};

/// Nothing where no prober votes.
pub(super) fn write(out: &mut String, service: &Service) -> fmt::Result {
    if service.check.is_none() || !service.backends.iter().any(|backend| backend.by.probers) {
        return Ok(());
    }
    writeln!(out, "\nverdicts on {}", service.name)?;
    let quorum = match service.quorum {
        Quorum::Majority => "MAJORITY: more than half of the fresh votes".to_owned(),
        Quorum::Any => "ANY: the latest change of a vote wins".into(),
        Quorum::All => "ALL: healthy when all fresh votes say so".into(),
        Quorum::Share(share) => {
            format!(
                "{share:?}: healthy when more than {} of the fresh votes say so",
                words::percent(share)
            )
        }
    };
    writeln!(out, "  quorum             {quorum} (V2)")?;
    write_guard(out, &service.guard)
}

fn write_guard(out: &mut String, guard: &Guard) -> fmt::Result {
    if !guard.enabled {
        return writeln!(
            out,
            "  guard              off: a vantage that loses its network takes its endpoints down (V5)"
        );
    }
    writeln!(
        out,
        "  guard              a vantage that turns more than {} of its endpoints (maxShare) from healthy abstains, for {} at \
         most (maxHold),",
        words::percent(guard.max_share),
        words::duration(guard.max_hold)
    )?;
    writeln!(
        out,
        "                     if it has {} or more (minEndpoints) (V5)",
        words::count_u32(guard.min_endpoints, "endpoint")
    )?;
    let canaries: Vec<String> = guard.canaries.iter().map(ToString::to_string).collect();
    match canaries.is_empty() {
        true => Ok(()),
        false => writeln!(
            out,
            "  canaries           {}: a vantage that reaches none is not trusted (V5)",
            canaries.join(", ")
        ),
    }
}
