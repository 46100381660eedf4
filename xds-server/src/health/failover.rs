//! Which pool of a service takes traffic, and whether all endpoints share it (semantics H2, H3, H5, H6). Pure.
//!
//! In: the service's policy, how many endpoints of each pool EDS says to be healthy, the pool that is active. Out: a
//! [`Choice`] with its reason.
//!
//! **What counts.** Endpoints that may get new requests: DRAINING, STOPPED and weight-0 ones are in neither part of the
//! share (H2). Of those, what EDS says is what counts: an endpoint that only Envoys check is HEALTHY there (H1), so it
//! counts as healthy; a service that only Envoys check is therefore never decided here, and its Envoys spill by
//! themselves, each by what it sees.
//!
//! **Unjudged endpoints** speak neither for leaving the primaries nor for coming back: they are taken as healthy in the
//! one question and as unhealthy in the other. So a start, or new endpoints by a reload, moves no traffic before there
//! are verdicts.
//!
//! **No flapping.** Traffic leaves below `ratio` and comes back from `failbackRatio` on, which is at least `ratio`;
//! between the two it stays where it is. It also comes back when the failover pool has no healthy endpoint left and the
//! primaries have one, because the pool is used only while it can serve.

use std::fmt;

use super::quorum::share_of;
use super::{Pool, Routing};
use crate::model::{Failover, WhenAllUnhealthy};

/// How a pool stands. Endpoints that take no new requests are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Endpoints that were judged healthy, or are served without a judgement of this server (H1).
    pub healthy: usize,
    /// Endpoints that were never judged.
    pub unjudged: usize,
    /// All that count.
    pub counted: usize,
}

/// How both pools stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// The primary backends: without failover backends, all.
    pub primary: Standing,
    /// The failover backends.
    pub failover: Standing,
}

impl Pools {
    /// One of them.
    #[must_use]
    pub fn of(&self, pool: Pool) -> &Standing {
        match pool {
            Pool::Primary => &self.primary,
            Pool::Failover => &self.failover,
        }
    }

    /// One of them, to count in.
    pub fn of_mut(&mut self, pool: Pool) -> &mut Standing {
        match pool {
            Pool::Primary => &mut self.primary,
            Pool::Failover => &mut self.failover,
        }
    }

    /// Healthy endpoints of both.
    #[must_use]
    pub fn healthy(&self) -> usize {
        self.primary.healthy + self.failover.healthy
    }

    /// Unjudged endpoints of both.
    #[must_use]
    pub fn unjudged(&self) -> usize {
        self.primary.unjudged + self.failover.unjudged
    }

    /// Endpoints of both that count.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.primary.counted + self.failover.counted
    }
}

/// What is decided of a service, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Which endpoints take traffic.
    pub routing: Routing,
    /// Why.
    pub why: Why,
}

/// Why traffic goes where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Why {
    /// There is no endpoint that takes new requests.
    #[default]
    Nobody,
    /// Without failover backends: the healthy endpoints take the traffic.
    Healthy {
        /// So many.
        healthy: usize,
        /// Of so many.
        of: usize,
    },
    /// H2: the primaries are not below the ratio.
    Primaries {
        /// Healthy primaries.
        healthy: usize,
        /// Primaries.
        of: usize,
        /// Never judged primaries.
        unjudged: usize,
        /// The ratio that they are held against.
        ratio: f64,
    },
    /// H2: below the ratio, but no failover endpoint is healthy.
    NowhereToGo {
        /// Healthy primaries.
        healthy: usize,
        /// Primaries.
        of: usize,
        /// The ratio that they are held against.
        ratio: f64,
    },
    /// H2: the failover backends take the traffic.
    FailedOver {
        /// Healthy primaries.
        healthy: usize,
        /// Primaries.
        of: usize,
        /// The ratio from which on traffic comes back.
        back_at: f64,
    },
    /// H3: no endpoint of either pool is healthy, all share the traffic.
    LastResort,
    /// H3: no endpoint of either pool is healthy, requests are refused.
    Dropped,
    /// H6: no endpoint is healthy, all share the traffic.
    FailOpen,
    /// H5: no endpoint is healthy, requests are refused.
    FailClosed,
}

impl Why {
    /// Whether requests are refused because no endpoint is healthy (semantics H3, H5).
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Dropped | Self::FailClosed)
    }

    /// What is over when it holds no more, for people; `None` where that needs no words.
    #[must_use]
    pub fn ending(&self) -> Option<&'static str> {
        match self {
            Self::FailClosed => Some("no longer refused (H5, FAIL_CLOSED)"),
            Self::Dropped => Some("no longer refused (H3, dropTrafficIfUnhealthy)"),
            Self::FailOpen => Some("no longer shared by all endpoints (H6, FAIL_OPEN)"),
            Self::LastResort => {
                Some("no longer shared by all endpoints of both pools as a last resort (H3)")
            }
            Self::Nobody
            | Self::Healthy { .. }
            | Self::Primaries { .. }
            | Self::NowhereToGo { .. }
            | Self::FailedOver { .. } => None,
        }
    }

    /// Whether it is the same but for its numbers.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("no endpoint takes new requests"),
            Self::Healthy { healthy, of } => write!(f, "{healthy} of {of} healthy"),
            Self::Primaries {
                healthy,
                of,
                unjudged,
                ratio,
            } => {
                write!(f, "H2 {healthy} of {of} primaries healthy, ")?;
                match (*unjudged, *ratio > 0.0) {
                    (0, true) => write!(f, "not below {ratio}"),
                    (0, false) => f.write_str("one is enough"),
                    (n, _) => write!(f, "{n} not judged yet"),
                }
            }
            Self::NowhereToGo { healthy, of, ratio } => write!(
                f,
                "H2 {healthy} of {of} primaries healthy, {}, but no failover endpoint is healthy",
                match *ratio > 0.0 {
                    true => format!("below {ratio}"),
                    false => "none".into(),
                }
            ),
            Self::FailedOver {
                healthy,
                of,
                back_at,
            } => write!(
                f,
                "H2 {healthy} of {of} primaries healthy, failed over until {}",
                match *back_at > 0.0 {
                    true => format!("their share is {back_at}"),
                    false => "one is".into(),
                }
            ),
            Self::LastResort => f.write_str(
                "H3 no endpoint of either pool is healthy: all share the traffic as a last resort",
            ),
            Self::Dropped => f.write_str(
                "H3 no endpoint of either pool is healthy: refused, dropTrafficIfUnhealthy",
            ),
            Self::FailOpen => {
                f.write_str("H6 no endpoint is healthy: all share the traffic, FAIL_OPEN")
            }
            Self::FailClosed => f.write_str("H5 no endpoint is healthy: refused, FAIL_CLOSED"),
        }
    }
}

/// Where the traffic of a service goes while its pools stand like this and `active` has been the active one.
#[must_use]
pub fn choose(
    failover: Option<&Failover>,
    when_all_unhealthy: WhenAllUnhealthy,
    active: Pool,
    pools: &Pools,
) -> Choice {
    let none_healthy = pools.healthy() == 0 && pools.unjudged() == 0;
    let choice = |active, open, why| Choice {
        routing: Routing { active, open },
        why,
    };
    let Some(failover) = failover else {
        let Standing { counted, .. } = pools.primary;
        return match (counted, none_healthy, when_all_unhealthy) {
            (0, ..) => choice(Pool::Primary, false, Why::Nobody),
            (_, true, WhenAllUnhealthy::FailOpen) => choice(Pool::Primary, true, Why::FailOpen),
            (_, true, WhenAllUnhealthy::FailClosed) => {
                choice(Pool::Primary, false, Why::FailClosed)
            }
            (of, false, _) => {
                let healthy = pools.primary.healthy;
                choice(Pool::Primary, false, Why::Healthy { healthy, of })
            }
        };
    };
    if pools.counted() == 0 {
        return choice(active, false, Why::Nobody);
    }
    // H3. The pool that was active stays it, so that the first endpoint that comes back decides.
    if none_healthy {
        return match failover.drop_traffic_if_unhealthy {
            true => choice(active, false, Why::Dropped),
            false => choice(active, true, Why::LastResort),
        };
    }
    let Standing {
        healthy,
        unjudged,
        counted: of,
    } = pools.primary;
    let ratio = failover.ratio;
    let stay = Why::Primaries {
        healthy,
        of,
        unjudged,
        ratio,
    };
    // The failover pool is used only while it can serve.
    let active = match active {
        Pool::Failover if pools.failover.healthy == 0 && healthy > 0 => Pool::Primary,
        other => other,
    };
    match active {
        Pool::Primary if !is_below(healthy + unjudged, of, ratio) => {
            choice(Pool::Primary, false, stay)
        }
        Pool::Primary if pools.failover.healthy == 0 => {
            let why = Why::NowhereToGo { healthy, of, ratio };
            choice(Pool::Primary, false, why)
        }
        Pool::Failover if !is_below(healthy, of, failover.failback_ratio) => {
            choice(Pool::Primary, false, stay)
        }
        Pool::Primary | Pool::Failover => {
            let back_at = failover.failback_ratio;
            let why = Why::FailedOver {
                healthy,
                of,
                back_at,
            };
            choice(Pool::Failover, false, why)
        }
    }
}

/// Whether so many healthy ones of all are too few for `ratio`; for 0, when there is none (semantics H2).
fn is_below(healthy: usize, of: usize, ratio: f64) -> bool {
    healthy == 0 || share_of(healthy, of) < ratio
}

#[cfg(test)]
mod tests;
