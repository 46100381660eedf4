//! The rules of pools, one by one, and what no sequence of counts may do.

use proptest::prelude::*;

use super::*;

fn pool(healthy: usize, counted: usize) -> Standing {
    Standing {
        healthy,
        unjudged: 0,
        counted,
    }
}

fn pools(primary: (usize, usize), failover: (usize, usize)) -> Pools {
    Pools {
        primary: pool(primary.0, primary.1),
        failover: pool(failover.0, failover.1),
    }
}

fn policy(ratio: f64, failback_ratio: f64) -> Failover {
    Failover {
        ratio,
        failback_ratio,
        drop_traffic_if_unhealthy: false,
    }
}

fn routing(policy: Failover, active: Pool, pools: Pools) -> (Pool, bool) {
    let choice = choose(Some(&policy), WhenAllUnhealthy::default(), active, &pools);
    (choice.routing.active, choice.routing.open)
}

const PRIMARY: (Pool, bool) = (Pool::Primary, false);
const FAILOVER: (Pool, bool) = (Pool::Failover, false);

#[test]
fn h2_below_the_ratio_the_failover_pool_takes_all_and_from_it_on_the_primaries() {
    let half = policy(0.5, 0.5);
    assert_eq!(routing(half, Pool::Primary, pools((2, 4), (1, 1))), PRIMARY);
    assert_eq!(
        routing(half, Pool::Primary, pools((1, 4), (1, 1))),
        FAILOVER
    );
    assert_eq!(
        routing(half, Pool::Failover, pools((1, 4), (1, 1))),
        FAILOVER
    );
    assert_eq!(
        routing(half, Pool::Failover, pools((2, 4), (1, 1))),
        PRIMARY
    );
}

#[test]
fn h2_a_ratio_of_zero_means_when_none_is_healthy() {
    let zero = policy(0.0, 0.0);
    assert_eq!(
        routing(zero, Pool::Primary, pools((1, 2_000), (5, 5))),
        PRIMARY
    );
    assert_eq!(
        routing(zero, Pool::Primary, pools((0, 2_000), (1, 5))),
        FAILOVER
    );
    assert_eq!(
        routing(zero, Pool::Failover, pools((1, 2_000), (5, 5))),
        PRIMARY
    );
}

#[test]
fn h2_a_ratio_of_one_means_when_any_is_not_healthy() {
    let one = policy(1.0, 1.0);
    assert_eq!(routing(one, Pool::Primary, pools((3, 3), (1, 1))), PRIMARY);
    assert_eq!(routing(one, Pool::Primary, pools((2, 3), (1, 1))), FAILOVER);
}

#[test]
fn h2_traffic_goes_over_only_where_a_failover_endpoint_is_healthy() {
    let half = policy(0.5, 0.8);
    assert_eq!(routing(half, Pool::Primary, pools((1, 4), (0, 3))), PRIMARY);
    // And comes back when the last of those is gone.
    assert_eq!(
        routing(half, Pool::Failover, pools((1, 4), (0, 3))),
        PRIMARY
    );
}

#[test]
fn h2_primaries_that_take_no_new_requests_hold_no_traffic() {
    for ratio in [0.0, 0.5] {
        let policy = policy(ratio, ratio);
        assert_eq!(
            routing(policy, Pool::Primary, pools((0, 0), (1, 1))),
            FAILOVER
        );
    }
}

#[test]
fn h2_the_failback_ratio_keeps_traffic_where_it_is_in_between() {
    let policy = policy(0.5, 0.75);
    for healthy in [2, 3] {
        let between = pools((healthy * 2, 8), (1, 1));
        let expected = if healthy == 3 { PRIMARY } else { FAILOVER };
        assert_eq!(routing(policy, Pool::Failover, between), expected);
        assert_eq!(routing(policy, Pool::Primary, between), PRIMARY);
    }
}

#[test]
fn s2_unjudged_endpoints_move_no_traffic() {
    let half = policy(0.5, 0.5);
    let mut starting = pools((0, 4), (1, 1));
    starting.primary.unjudged = 4;
    assert_eq!(routing(half, Pool::Primary, starting), PRIMARY);
    starting.primary.unjudged = 2;
    assert_eq!(
        routing(half, Pool::Primary, starting),
        PRIMARY,
        "2 of 4 may be"
    );
    assert_eq!(
        routing(half, Pool::Failover, starting),
        FAILOVER,
        "none is known to be"
    );
    starting.primary.unjudged = 1;
    assert_eq!(routing(half, Pool::Primary, starting), FAILOVER);
}

#[test]
fn h3_with_both_pools_down_all_share_the_traffic_or_it_is_refused() {
    let mut policy = policy(0.5, 0.5);
    let down = pools((0, 2), (0, 2));
    for active in [Pool::Primary, Pool::Failover] {
        policy.drop_traffic_if_unhealthy = false;
        assert_eq!(routing(policy, active, down), (active, true));
        policy.drop_traffic_if_unhealthy = true;
        assert_eq!(routing(policy, active, down), (active, false));
    }
    let mut unsure = down;
    unsure.failover.unjudged = 1;
    policy.drop_traffic_if_unhealthy = false;
    let (_, open) = routing(policy, Pool::Primary, unsure);
    assert!(!open, "the unjudged one is served");
}

#[test]
fn h5_h6_without_failover_backends_only_when_all_are_unhealthy() {
    let open = |when, pools: Pools| choose(None, when, Pool::Primary, &pools).routing.open;
    assert!(!open(WhenAllUnhealthy::FailOpen, pools((1, 2_000), (0, 0))));
    assert!(open(WhenAllUnhealthy::FailOpen, pools((0, 2_000), (0, 0))));
    assert!(!open(
        WhenAllUnhealthy::FailClosed,
        pools((0, 2_000), (0, 0))
    ));
    assert!(
        !open(WhenAllUnhealthy::FailOpen, pools((0, 0), (0, 0))),
        "there is nobody to open to"
    );
}

#[test]
fn every_choice_says_why_in_words_with_its_counts() {
    let say = |policy: Failover, active, pools| {
        let when = WhenAllUnhealthy::default();
        choose(Some(&policy), when, active, &pools).why.to_string()
    };
    for (got, text) in [
        (
            say(policy(0.5, 0.5), Pool::Primary, pools((3, 4), (1, 1))),
            "H2 3 of 4 primaries healthy, not below 0.5",
        ),
        (
            say(policy(0.0, 0.0), Pool::Primary, pools((1, 4), (1, 1))),
            "H2 1 of 4 primaries healthy, one is enough",
        ),
        (
            say(policy(0.5, 0.75), Pool::Failover, pools((2, 4), (1, 1))),
            "H2 2 of 4 primaries healthy, failed over until their share is 0.75",
        ),
        (
            say(policy(0.0, 0.0), Pool::Primary, pools((0, 4), (1, 1))),
            "H2 0 of 4 primaries healthy, failed over until one is",
        ),
        (
            say(policy(0.5, 0.5), Pool::Primary, pools((1, 4), (0, 1))),
            "H2 1 of 4 primaries healthy, below 0.5, but no failover endpoint is healthy",
        ),
    ] {
        assert_eq!(got, text);
    }
}

fn standings() -> impl Strategy<Value = Standing> {
    (0usize..6, 0usize..4, 0usize..6).prop_map(|(healthy, unjudged, failing)| Standing {
        healthy,
        unjudged,
        counted: healthy + unjudged + failing,
    })
}

fn policies() -> impl Strategy<Value = Failover> {
    (0u8..=20, 0u8..=20, any::<bool>()).prop_map(|(a, b, drop_traffic_if_unhealthy)| Failover {
        ratio: f64::from(a.min(b)) / 20.0,
        failback_ratio: f64::from(a.max(b)) / 20.0,
        drop_traffic_if_unhealthy,
    })
}

proptest! {
    /// As long as the share stays between the two ratios and the failover pool can serve, nothing moves.
    #[test]
    fn h2_there_is_no_flapping_between_the_two_ratios(
        policy in policies(), start in any::<bool>(), healthy in prop::collection::vec(1usize..=40, 1..40),
    ) {
        let start = if start { Pool::Failover } else { Pool::Primary };
        let mut active = start;
        for healthy in healthy {
            let share = share_of(healthy, 40);
            if share < policy.ratio || share >= policy.failback_ratio {
                continue;
            }
            active = routing(policy, active, pools((healthy, 40), (1, 2))).0;
            prop_assert_eq!(active, start);
        }
    }

    /// A choice is stable: asked again about the same pools it is the same.
    #[test]
    fn h2_the_same_counts_move_traffic_at_most_once(
        policy in policies(), start in any::<bool>(), primary in standings(), failover in standings(),
    ) {
        let start = if start { Pool::Failover } else { Pool::Primary };
        let pools = Pools { primary, failover };
        let first = choose(Some(&policy), WhenAllUnhealthy::default(), start, &pools);
        let second = choose(Some(&policy), WhenAllUnhealthy::default(), first.routing.active, &pools);
        prop_assert_eq!(first, second);
    }

    /// H2 and H3 as they are written, for pools of which all is known.
    #[test]
    fn h2_h3_hold_for_all_counts(policy in policies(), start in any::<bool>(), primary in standings(), failover in standings()) {
        let start = if start { Pool::Failover } else { Pool::Primary };
        let known = |s: Standing| Standing { unjudged: 0, counted: s.counted - s.unjudged, ..s };
        let pools = Pools { primary: known(primary), failover: known(failover) };
        let (active, open) = routing(policy, start, pools);
        let (p, f) = (pools.primary, pools.failover);
        let share = share_of(p.healthy, p.counted);
        let none = p.healthy == 0 && f.healthy == 0;
        prop_assert_eq!(open, none && pools.counted() > 0 && !policy.drop_traffic_if_unhealthy);
        if none {
            prop_assert_eq!(active, start);
        } else if f.healthy == 0 {
            prop_assert_eq!(active, Pool::Primary);
        } else if p.healthy == 0 || share < policy.ratio {
            prop_assert_eq!(active, Pool::Failover);
        } else if share >= policy.failback_ratio {
            prop_assert_eq!(active, Pool::Primary);
        } else {
            prop_assert_eq!(active, start);
        }
    }
}
