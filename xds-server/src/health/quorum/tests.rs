//! Ballots counted by hand, and what holds for all of them.

use std::time::Duration;

use proptest::prelude::*;
use vitals_prober::clock;

use super::*;

const H: Option<Verdict> = Some(Verdict::Healthy);
const U: Option<Verdict> = Some(Verdict::Unhealthy);
const T: Option<Verdict> = Some(Verdict::Timeout);

/// Fresh votes of `v0`, `v1`, …, that turned in this order.
fn fresh(verdicts: &[Option<Verdict>]) -> Vec<Vote> {
    let start = clock::now();
    verdicts
        .iter()
        .zip(0u64..)
        .map(|(&verdict, n)| Vote {
            vantage: format!("v{n}").into(),
            verdict,
            turned: verdict.map(|_| start + Duration::from_secs(n)),
            fresh: true,
            abstains: false,
        })
        .collect()
}

fn verdict(quorum: Quorum, votes: &[Vote]) -> Option<Verdict> {
    match decide(quorum, votes) {
        Decision::Settled(verdict, _) => Some(verdict),
        Decision::Keep(_) | Decision::Unjudged => None,
    }
}

fn too_few(fresh: usize, assigned: usize) -> Decision {
    Decision::Keep(Kept::TooFew { fresh, assigned })
}

#[test]
fn v2_one_vantage_decides_alone_in_every_mode() {
    for quorum in [
        Quorum::Majority,
        Quorum::Any,
        Quorum::All,
        Quorum::Share(0.18),
    ] {
        for vote in [H, U, T] {
            assert_eq!(verdict(quorum, &fresh(&[vote])), vote, "{quorum:?}");
        }
    }
}

#[test]
fn v2_majority_follows_more_than_half_of_the_fresh_votes() {
    let rule = |votes, of| Rule::Majority { votes, of };
    assert_eq!(
        decide(Quorum::Majority, &fresh(&[H, H, U])),
        Decision::Settled(Verdict::Healthy, rule(2, 3))
    );
    // 22 of the traps: three of seven vantages fail, and the endpoint is healthy.
    assert_eq!(
        decide(Quorum::Majority, &fresh(&[H, U, H, T, H, U, H])),
        Decision::Settled(Verdict::Healthy, rule(4, 7))
    );
}

#[test]
fn v2_all_needs_every_fresh_vote_and_not_those_that_are_stale() {
    let mut votes = fresh(&[H, H, U]);
    assert_eq!(
        decide(Quorum::All, &votes),
        Decision::Settled(Verdict::Unhealthy, Rule::All { healthy: 2, of: 3 })
    );
    votes[2].fresh = false;
    assert_eq!(
        decide(Quorum::All, &votes),
        Decision::Settled(Verdict::Healthy, Rule::All { healthy: 2, of: 2 })
    );
}

#[test]
fn v2_a_share_must_be_exceeded_not_reached() {
    let of_ten = |healthy: usize| {
        let votes: Vec<_> = (0..10).map(|n| if n < healthy { H } else { U }).collect();
        fresh(&votes)
    };
    // Route 53's 18 %: two of ten are more, one is not.
    assert_eq!(verdict(Quorum::Share(0.18), &of_ten(2)), H);
    assert_eq!(verdict(Quorum::Share(0.18), &of_ten(1)), U);
    for tenths in [1, 2, 3, 5, 6, 7, 9] {
        let share = f64::from(u8::try_from(tenths).unwrap()) / 10.0;
        assert_eq!(verdict(Quorum::Share(share), &of_ten(tenths)), U, "{share}");
        assert_eq!(
            verdict(Quorum::Share(share), &of_ten(tenths + 1)),
            H,
            "{share}"
        );
    }
    assert_eq!(verdict(Quorum::Share(0.0), &of_ten(0)), U);
}

#[test]
fn v2_any_is_the_latest_turn_whichever_vantage_made_it() {
    assert_eq!(verdict(Quorum::Any, &fresh(&[H, H, U])), U);
    assert_eq!(verdict(Quorum::Any, &fresh(&[U, U, H])), H);
    let Decision::Settled(_, rule) = decide(Quorum::Any, &fresh(&[U, H])) else {
        panic!("settled")
    };
    let (vantage, of) = ("v1".into(), 2);
    assert_eq!(rule, Rule::Any { vantage, of });
    // The one that turned last is silent, doubted, or gone: the latest of the others decides.
    let mut votes = fresh(&[H, U]);
    votes[1].fresh = false;
    assert_eq!(verdict(Quorum::Any, &votes), H);
    votes[1].fresh = true;
    votes[1].abstains = true;
    assert_eq!(verdict(Quorum::Any, &votes), H);
    // Both at once: the failing one, whatever the order.
    let mut votes = fresh(&[H, T]);
    votes[1].turned = votes[0].turned;
    assert_eq!(verdict(Quorum::Any, &votes), T);
    votes.reverse();
    assert_eq!(verdict(Quorum::Any, &votes), T);
}

#[test]
fn v3_half_of_the_assigned_is_too_few_and_a_tie_keeps() {
    for quorum in [Quorum::Majority, Quorum::All, Quorum::Share(0.5)] {
        let mut votes = fresh(&[H, U]);
        votes[1].fresh = false;
        assert_eq!(decide(quorum, &votes), too_few(1, 2), "{quorum:?}");
        let unjudged = fresh(&[None, None, H]);
        assert_eq!(decide(quorum, &unjudged), too_few(1, 3), "{quorum:?}");
    }
    let tie = Decision::Keep(Kept::Tie { each: 1 });
    assert_eq!(decide(Quorum::Majority, &fresh(&[H, U])), tie);
}

#[test]
fn v5_an_abstaining_vantage_has_no_vote_but_stays_assigned() {
    let mut votes = fresh(&[U, H, H]);
    votes[0].abstains = true;
    assert_eq!(
        decide(Quorum::Majority, &votes),
        Decision::Settled(Verdict::Healthy, Rule::Majority { votes: 2, of: 2 })
    );
    votes[1].abstains = true;
    assert_eq!(decide(Quorum::Majority, &votes), too_few(1, 3));
    votes[2].abstains = true;
    assert_eq!(decide(Quorum::Any, &votes), too_few(0, 3));
}

#[test]
fn v4_timeout_only_when_all_failing_votes_are() {
    for quorum in [Quorum::Majority, Quorum::All, Quorum::Share(0.5)] {
        assert_eq!(verdict(quorum, &fresh(&[T, T, H])), T);
        assert_eq!(verdict(quorum, &fresh(&[T, U, H])), U);
    }
    assert_eq!(verdict(Quorum::Any, &fresh(&[U, T])), U);
    assert_eq!(verdict(Quorum::Any, &fresh(&[H, T])), T);
}

#[test]
fn never_judged_is_not_a_vote() {
    for quorum in [Quorum::Majority, Quorum::Any, Quorum::All] {
        assert_eq!(decide(quorum, &fresh(&[None])), Decision::Unjudged);
        assert_eq!(decide(quorum, &[]), Decision::Unjudged);
    }
}

fn quorums() -> impl Strategy<Value = Quorum> {
    prop_oneof![
        Just(Quorum::Majority),
        Just(Quorum::Any),
        Just(Quorum::All),
        (0.0..1.0f64).prop_map(Quorum::Share),
    ]
}

fn ballots() -> impl Strategy<Value = Vec<Vote>> {
    let vote = (
        prop::sample::select(vec![None, H, U, T]),
        0u64..4,
        any::<bool>(),
        prop::bool::weighted(0.2),
    );
    prop::collection::vec(vote, 0..8).prop_map(|votes| {
        let start = clock::now();
        votes
            .into_iter()
            .enumerate()
            .map(|(n, (verdict, turned, fresh, abstains))| Vote {
                vantage: format!("v{n}").into(),
                verdict,
                turned: verdict.map(|_| start + Duration::from_secs(turned)),
                fresh,
                abstains,
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn v2_the_order_of_the_votes_does_not_matter(quorum in quorums(), votes in ballots(), turn in 0usize..8) {
        let mut others = votes.clone();
        others.rotate_left(turn.min(votes.len()));
        prop_assert_eq!(decide(quorum, &votes), decide(quorum, &others));
        others.reverse();
        prop_assert_eq!(decide(quorum, &votes), decide(quorum, &others));
    }

    #[test]
    fn v1_v5_what_does_not_count_changes_no_verdict(
        quorum in quorums(), votes in ballots(), other in prop::sample::select(vec![None, H, U, T]),
    ) {
        // Silent and doubted vantages may say whatever they like.
        let mut changed = votes.clone();
        for vote in &mut changed {
            if vote.verdict.is_some() && (!vote.fresh || vote.abstains) && other.is_some() {
                vote.verdict = other;
            }
        }
        prop_assert_eq!(decide(quorum, &votes), decide(quorum, &changed));
    }

    #[test]
    fn v2_v3_a_status_is_settled_by_enough_votes_and_by_nothing_else(quorum in quorums(), votes in ballots()) {
        let counting: Vec<Verdict> = votes
            .iter()
            .filter(|vote| vote.fresh && !vote.abstains)
            .filter_map(|vote| vote.verdict)
            .collect();
        let needed = if quorum == Quorum::Any { 1 } else { votes.len() / 2 + 1 };
        let settled = verdict(quorum, &votes);
        if counting.len() < needed {
            prop_assert_eq!(settled, None);
        } else if quorum != Quorum::Majority {
            prop_assert!(settled.is_some());
        }
        // Nobody is HEALTHY, or not, without a vote that says so.
        if let Some(settled) = settled {
            prop_assert!(counting.iter().any(|vote| vote.is_healthy() == settled.is_healthy()));
            if settled == Verdict::Timeout {
                prop_assert!(!counting.contains(&Verdict::Unhealthy), "V4");
            }
        }
    }

    /// One more healthy vote never turns an endpoint from healthy.
    #[test]
    fn v2_votes_for_health_only_ever_help(quorum in quorums(), votes in ballots(), which in 0usize..8) {
        if quorum == Quorum::Any {
            return Ok(());
        }
        let before = verdict(quorum, &votes);
        let mut votes = votes;
        let judged = votes.iter_mut().filter(|vote| vote.verdict.is_some());
        if let Some(vote) = judged.skip(which).next() {
            vote.verdict = H;
        }
        if before == H {
            prop_assert_ne!(verdict(quorum, &votes).map(Verdict::is_healthy), Some(false));
        }
    }
}
