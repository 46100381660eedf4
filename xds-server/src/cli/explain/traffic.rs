//! Where a service's traffic goes while endpoints are unhealthy (semantics H2–H6, H8).
//!
//! In: a service, the fleets. Out: its pools, when they change places, in which order regions take traffic, what happens
//! when nothing is healthy, what keeps a client with an endpoint, what Envoys verify, and what else they do by themselves.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::super::words;
use super::envoys::some;
use crate::model::{
    Affinity, EndpointDiscovery, Failover, Fleet, LbPolicy, Service, UpstreamRoots, UpstreamTls,
    WhenAllUnhealthy,
};

pub(super) fn write(out: &mut String, service: &Service, fleets: &[Arc<Fleet>]) -> fmt::Result {
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
    write_regions(out, service, fleets)?;
    write_discovery(out, service, fleets)?;
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
    )?;
    if let Some(tls) = &service.tls {
        writeln!(out, "  TLS                {}", verified(tls))?;
    }
    write_envoys_own(out, service)
}

/// The order of regions in each fleet that is told of the service (semantics H10).
fn write_regions(out: &mut String, service: &Service, fleets: &[Arc<Fleet>]) -> fmt::Result {
    let mut by_order: BTreeMap<&[Arc<str>], Vec<String>> = BTreeMap::new();
    for fleet in fleets.iter().filter(|f| f.services.contains(&service.name)) {
        let names = by_order.entry(&fleet.region_order).or_default();
        names.push(fleet.name.to_string());
    }
    if by_order.is_empty() {
        return writeln!(
            out,
            "  fleets             none is told of it, so no Envoy gets it"
        );
    }
    for (order, fleets) in by_order {
        let order = match order.is_empty() {
            true => "all alike".to_owned(),
            false => format!("{}, then all others", order.join(", ")),
        };
        writeln!(
            out,
            "  regions            {order} (H10), in {}",
            some(&fleets)
        )?;
    }
    Ok(())
}

/// The fleets whose Envoys get the endpoints one by one.
fn write_discovery(out: &mut String, service: &Service, fleets: &[Arc<Fleet>]) -> fmt::Result {
    let apart = fleets.iter().filter(|fleet| {
        let is_told = fleet.services.contains(&service.name);
        is_told && fleet.endpoint_discovery == EndpointDiscovery::Leds
    });
    let names: Vec<String> = apart.map(|fleet| fleet.name.to_string()).collect();
    if names.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  LEDS               in {}: an Envoy that speaks delta gets of a change the one endpoint, not all {} of them; \
         SotW and gRPC clients get all (EDS)",
        some(&names),
        service
            .backends
            .iter()
            .map(|b| b.group.endpoints.len())
            .sum::<usize>()
    )
}

fn verified(tls: &UpstreamTls) -> String {
    let name = match &tls.sni {
        Some(name) => format!("for the name {name:?}"),
        None => "for no name: every one that they vouch for passes".into(),
    };
    match &tls.verify {
        None => "Envoys do not look at certificates".into(),
        Some(UpstreamRoots::System) => {
            format!("Envoys verify certificates by the roots of their own machines, {name}")
        }
        Some(UpstreamRoots::Pem(_)) => {
            format!("Envoys verify certificates by the given roots, {name}")
        }
    }
}

/// What is Envoy's own, where it is set.
fn write_envoys_own(out: &mut String, service: &Service) -> fmt::Result {
    if let Some(outlier) = &service.outlier_detection {
        let most = match &outlier.max_ejection_percent {
            Some(percent) => format!("{} %", percent.value),
            None => "Envoy's default, 10 %,".into(),
        };
        writeln!(
            out,
            "  outlierDetection   is set: each Envoy ejects endpoints by what requests meet there, up to {most} of them; no \
             prober's verdict shows it"
        )?;
    }
    if let Some(breakers) = &service.circuit_breakers {
        let all = breakers
            .thresholds
            .iter()
            .chain(&breakers.per_host_thresholds);
        let mut priorities: Vec<&str> = all.map(|t| t.priority().as_str_name()).collect();
        priorities.dedup();
        let of = match priorities.is_empty() {
            true => String::new(),
            false => format!(" for the priority {}", priorities.join(", ")),
        };
        writeln!(
            out,
            "  circuitBreakers    are set{of}: each Envoy refuses what is over its limits, however healthy the endpoints are"
        )?;
    }
    Ok(())
}

fn when(failover: &Failover) -> String {
    let there = match failover.ratio {
        ratio if ratio > 0.0 => format!(
            "while less than {} of the primaries are healthy",
            words::percent(ratio)
        ),
        _ => "while none of the primaries is healthy".into(),
    };
    let back = match failover.failback_ratio {
        ratio if ratio > failover.ratio => format!("; back when {} are", words::percent(ratio)),
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
