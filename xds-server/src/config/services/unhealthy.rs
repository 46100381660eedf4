//! What becomes of traffic while endpoints are unhealthy: `failover`, `whenAllUnhealthy`, `unhealthyResponseCode`,
//! `closeConnectionsOnUnhealthy` (semantics H2–H6).
//!
//! In: the keys, and what is known of the service's backends and check. Out: [`Unhealthy`], and findings where they
//! contradict each other or who probes.

use vitals_prober::check::Profile;

use super::Asked;
use super::backends::Backends;
use crate::config::read::{Fields, Item};
use crate::model::{AdminState, Backend, Endpoint, Failover, Protocol, WhenAllUnhealthy};

/// The keys, read.
#[derive(Debug, Default)]
pub(super) struct Unhealthy {
    pub(super) failover: Option<Failover>,
    pub(super) when_all: WhenAllUnhealthy,
    pub(super) response_code: Option<u16>,
    pub(super) close_connections: bool,
}

/// Reads the keys.
pub(super) fn read(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    asked: &Asked,
    backends: &Backends,
) -> Unhealthy {
    let has_failover = backends.failovers > 0;
    let failover = read_failover(fields, asked, backends);
    let when_all = read_when_all(fields, asked, has_failover);
    // What lets endpoints share the requests while none is healthy.
    let shared = match failover {
        Some(failover) if !failover.drop_traffic_if_unhealthy => Some((
            "failover without dropTrafficIfUnhealthy",
            "dropTrafficIfUnhealthy: true",
        )),
        None if when_all == WhenAllUnhealthy::FailOpen => {
            Some(("FAIL_OPEN", "whenAllUnhealthy: FAIL_CLOSED"))
        }
        Some(_) | None => None,
    };
    if shared.is_some() {
        warn_panic(fields, backends);
    }
    Unhealthy {
        failover,
        when_all,
        response_code: read_response_code(fields, protocol, shared),
        close_connections: read_close(fields, protocol, asked, backends),
    }
}

/// Semantics H6: while all endpoints share the traffic, those that drain or have no weight are left out of what Envoys are
/// told. What an Envoy finds by its own checks is not known here, so there they cannot be left out in time.
fn warn_panic(fields: &Fields<'_>, backends: &Backends) {
    let closed = match backends.failovers {
        0 => "whenAllUnhealthy: FAIL_CLOSED",
        _ => "failover: { dropTrafficIfUnhealthy: true }",
    };
    let rests = |backend: &&Backend, endpoint: &&Endpoint| match endpoint.state {
        AdminState::Active => !backend.gives_weight(endpoint),
        AdminState::Draining => true,
        AdminState::Stopped => false,
    };
    let resting = backends.backends.iter().find_map(|backend| {
        let endpoints = &backend.group.endpoints;
        endpoints.iter().find(|endpoint| rests(&backend, endpoint))
    });
    if backends.by_envoys()
        && let Some(resting) = resting
        && let Some(item) = fields.get("backends")
    {
        item.warning(format!(
                "an Envoy that finds no endpoint healthy by its own check gives all of them traffic, those that drain or \
                 have weight 0 too, such as {}; write state: STOPPED where that must not be, or {closed}",
                resting.address
            ));
    }
}

fn read_failover(fields: &Fields<'_>, asked: &Asked, backends: &Backends) -> Option<Failover> {
    if backends.failovers > 0
        && backends.primaries == 0
        && !backends.unclear
        && let Some(item) = fields.get("backends")
    {
        item.error(
            "every backend is failover, and there is no primary to fail over from; take failover: true from one",
        );
    }
    if backends.failovers > 0
        && matches!(asked, Asked::Nothing)
        && let Some(item) = fields.get("backends")
    {
        item.warning(
            "the service has no check, so no endpoint is ever unhealthy and only DRAINING, STOPPED and weight 0 make \
             traffic fail over; name a healthCheck",
        );
    }
    let block = fields.get("failover");
    if let Some(item) = &block
        && backends.failovers == 0
        && !backends.unclear
    {
        item.misplaced(
            "no backend is failover, so there is nothing to fail over to; write failover: true at one of backends, or \
             drop this",
        );
    }
    let failover = match &block {
        None => Failover {
            ratio: 0.0,
            failback_ratio: 0.0,
            drop_traffic_if_unhealthy: false,
        },
        Some(item) => read_block(item, asked, backends)?,
    };
    (backends.failovers > 0 && backends.primaries > 0).then_some(failover)
}

fn read_block(item: &Item<'_>, asked: &Asked, backends: &Backends) -> Option<Failover> {
    let fields = item.fields(&["ratio", "failbackRatio", "dropTrafficIfUnhealthy"])?;
    let ratio_item = fields.get("ratio");
    let failback_item = fields.get("failbackRatio");
    let drop = fields
        .get("dropTrafficIfUnhealthy")
        .and_then(|i| i.boolean());
    let share = |item: &Option<Item<'_>>| match item {
        None => Some(None),
        Some(item) => item.number(0.0..=1.0).map(Some),
    };
    let (ratio, failback) = (share(&ratio_item), share(&failback_item));
    // Semantics H2: what no prober judges the server takes for healthy, and an Envoy alone spills in proportion.
    for (item, share) in [(&ratio_item, ratio), (&failback_item, failback)] {
        if let (Some(item), Some(Some(share))) = (item, share)
            && share > 0.0
            && matches!(asked, Asked::Check(_))
            && let Some(backend) = backends.without_probers()
        {
            item.error(format!(
                "a share over 0.0 is counted from probers' verdicts, and ENVOYS alone check the group {}; add PROBERS to \
                 its probing.by, or write 0.0",
                backend.group.name
            ));
        }
    }
    let ratio = ratio?.unwrap_or(0.0);
    let failback_ratio = failback?.unwrap_or(ratio);
    if failback_ratio < ratio
        && let Some(item) = failback_item
    {
        item.error(format!(
            "{failback_ratio:?} is below ratio ({ratio:?}), so traffic would go to and fro between them; write {ratio:?} \
             or more, or leave failbackRatio out"
        ));
    }
    Some(Failover {
        ratio,
        failback_ratio,
        drop_traffic_if_unhealthy: drop.unwrap_or(false),
    })
}

/// Semantics H3, H5, H6.
fn read_when_all(fields: &Fields<'_>, asked: &Asked, has_failover: bool) -> WhenAllUnhealthy {
    let words = [
        ("FAIL_CLOSED", WhenAllUnhealthy::FailClosed),
        ("FAIL_OPEN", WhenAllUnhealthy::FailOpen),
    ];
    let item = fields.get("whenAllUnhealthy");
    let written = item.as_ref().and_then(|i| i.choice(&words));
    if has_failover {
        if let Some(item) = item {
            let same = match written {
                Some(WhenAllUnhealthy::FailOpen) => "false",
                Some(WhenAllUnhealthy::FailClosed) | None => "true",
            };
            item.misplaced(format!(
                "with failover backends failover.dropTrafficIfUnhealthy decides this alone; write \
                 dropTrafficIfUnhealthy: {same} there, and drop this"
            ));
        }
        return WhenAllUnhealthy::FailClosed;
    }
    let default = match asked {
        Asked::Check(check) if check.profile == Profile::TencentAlb => WhenAllUnhealthy::FailOpen,
        Asked::Check(_) | Asked::Nothing | Asked::Unknown => WhenAllUnhealthy::FailClosed,
    };
    written.unwrap_or(default)
}

/// Semantics H5.
fn read_response_code(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    shared: Option<(&str, &str)>,
) -> Option<u16> {
    let item = fields.get("unhealthyResponseCode")?;
    let code = item.integer(200..=599)?;
    if code < 300 {
        item.warning(format!(
            "{code} tells clients and monitors that a request went well which nobody has answered, and hides the outage; \
             write an error such as 503"
        ));
    }
    if let Some((why, instead)) = shared {
        item.warning(format!(
            "with {why} endpoints get the requests while none is healthy, and this code is never answered as long as there is \
             one; write {instead}, or drop unhealthyResponseCode"
        ));
    }
    if let Some(protocol) = protocol
        && !protocol.is_http()
    {
        item.misplaced(format!(
            "the service speaks {}, where nothing is answered with a status; drop unhealthyResponseCode",
            protocol.name()
        ));
    }
    u16::try_from(code).ok()
}

/// Semantics H4.
fn read_close(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    asked: &Asked,
    backends: &Backends,
) -> bool {
    let Some(item) = fields.get("closeConnectionsOnUnhealthy") else {
        return false;
    };
    if item.boolean() != Some(true) {
        return false;
    }
    match asked {
        Asked::Nothing => item.error(
            "the service has no check, so nothing is ever found unhealthy; name a healthCheck, or write false",
        ),
        Asked::Check(_) if !backends.backends.is_empty() && !backends.by_envoys() => item.error(
            "an Envoy closes connections for its own checks only, and ENVOYS check no endpoint of the service; write \
             probing: { by: [PROBERS, ENVOYS] }, or false",
        ),
        Asked::Check(_) | Asked::Unknown => {
            if protocol.is_some_and(Protocol::is_http) {
                item.warning(
                    "Envoy closes the connections of its TCP proxy only; of an HTTP service requests under way are \
                     finished, and new ones go elsewhere. Write false",
                );
            }
        }
    }
    true
}
