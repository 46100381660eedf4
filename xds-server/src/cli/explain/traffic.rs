//! Where a service's traffic goes while endpoints are unhealthy (semantics H2–H6, H8).
//!
//! In: a service. Out: its pools, when they change places, what happens when nothing is healthy, what keeps a client
//! with an endpoint.

use std::fmt::{self, Write as _};

use super::super::words;
use super::envoys::some;
use crate::model::{Affinity, Failover, LbPolicy, Service, WhenAllUnhealthy};

pub(super) fn write(out: &mut String, service: &Service) -> fmt::Result {
    writeln!(out, "\ntraffic of {}", service.name)?;
    let names = |failover: bool| -> Vec<String> {
        let backends = service.backends.iter().filter(|b| b.failover == failover);
        backends.map(|b| b.group.name.to_string()).collect()
    };
    writeln!(out, "  goes to            {}", some(&names(false)))?;
    if let Some(failover) = &service.failover {
        writeln!(
            out,
            "  fails over to      {}, {} (H2)",
            some(&names(true)),
            when(failover)
        )?;
    }
    writeln!(out, "  none healthy       {}", none_healthy(service))?;
    let policy = match service.policy {
        LbPolicy::RoundRobin => "ROUND_ROBIN",
        LbPolicy::LeastRequest => "LEAST_REQUEST",
        LbPolicy::Random => "RANDOM",
        LbPolicy::RingHash => "RING_HASH",
        LbPolicy::Maglev => "MAGLEV",
    };
    let hashed = match &service.affinity {
        Affinity::None => String::new(),
        Affinity::ClientIp => " of the client's address".into(),
        Affinity::Header(name) => format!(" of the header {name:?}"),
        Affinity::Cookie { name, .. } => format!(" of the cookie {name:?}"),
    };
    writeln!(out, "  chosen by          {policy}{hashed}")?;
    let connections = match service.close_connections_on_unhealthy {
        true => "an Envoy whose own check fails closes them (H4)",
        false => "stay open while their endpoint is unhealthy (H4)",
    };
    writeln!(out, "  connections        {connections}")?;
    writeln!(
        out,
        "  removed            DRAINING for {}, then omitted",
        words::duration(service.connection_draining)
    )
}

fn when(failover: &Failover) -> String {
    let percent = |share: f64| format!("{} %", words::trimmed(share * 100.0, 2));
    let there = match failover.ratio {
        ratio if ratio > 0.0 => format!(
            "while less than {} of the primaries are healthy",
            percent(ratio)
        ),
        _ => "while none of the primaries is healthy".into(),
    };
    let back = match failover.failback_ratio {
        ratio if ratio > failover.ratio => format!("; back when {} are", percent(ratio)),
        _ => String::new(),
    };
    format!("{there}{back}")
}

fn none_healthy(service: &Service) -> String {
    let refused = || match (service.protocol.is_http(), service.unhealthy_response_code) {
        (true, code) => format!("HTTP {}", code.unwrap_or(503)),
        (false, _) => "new connections end".into(),
    };
    match (&service.failover, service.when_all_unhealthy) {
        (Some(failover), _) if failover.drop_traffic_if_unhealthy => {
            format!("in either pool: {} (dropTrafficIfUnhealthy, H3)", refused())
        }
        (Some(_), _) => {
            "in either pool: all endpoints of both share it, as a last resort (H3)".into()
        }
        (None, WhenAllUnhealthy::FailClosed) => format!("{} (FAIL_CLOSED, H5)", refused()),
        (None, WhenAllUnhealthy::FailOpen) => "all endpoints share it (FAIL_OPEN, H6)".into(),
    }
}
