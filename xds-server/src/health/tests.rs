//! The operator's page, `docs/health.md`, shows every text that says why.
//!
//! A text's numbers, times and names may differ from those on the page; all else must stand there, on one line.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Rule;
use super::failover::Why;
use super::guard::{Abstention, Cause, End};

const PAGE: &str = include_str!("../../../docs/health.md");

/// A vantage's name, for what is not a fixed word.
const NAME: &str = "0-a-name";

/// What a text says whoever it speaks of: its words but for those that begin with a digit.
fn fixed(text: &str) -> Vec<String> {
    let mut phrases = vec![String::new()];
    for word in text.split_whitespace() {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            phrases.push(String::new());
        } else if let Some(phrase) = phrases.last_mut() {
            if !phrase.is_empty() {
                phrase.push(' ');
            }
            phrase.push_str(word);
        }
    }
    phrases.retain(|phrase| !phrase.is_empty());
    phrases
}

/// Whether a line of sample output on the page has these phrases, in their order.
fn shown(phrases: &[String]) -> bool {
    let samples = PAGE.split("```").skip(1).step_by(2);
    samples.flat_map(str::lines).any(|line| {
        let mut rest = line;
        phrases
            .iter()
            .all(|phrase| match rest.split_once(phrase.as_str()) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
    })
}

#[track_caller]
fn assert_shown(text: &str) {
    let phrases = fixed(text);
    assert!(
        shown(&phrases),
        "docs/health.md has no sample line with {phrases:?}, which `vitals status` or the log can print; show it there, \
         say what it means and what to do"
    );
}

fn abstention(cause: Cause) -> Arc<Abstention> {
    let now = vitals_prober::clock::now();
    Arc::new(Abstention {
        vantage: NAME.into(),
        since: SystemTime::UNIX_EPOCH,
        cause,
        undone: (now, now),
    })
}

fn causes() -> Vec<Cause> {
    let turned = Cause::Turned {
        turned: 7,
        of: 12,
        groups: 2,
        window: Duration::from_secs(1),
    };
    // A new one fails to compile here: it belongs into the list too.
    match turned {
        Cause::Turned { .. } | Cause::Canaries { .. } => {}
    }
    let canaries = |addresses: &[&str]| {
        let of = addresses.iter().map(|address| address.parse().unwrap());
        Cause::Canaries { of: of.collect() }
    };
    let (one, two) = (["192.0.2.1:443"], ["192.0.2.1:443", "192.0.2.2:443"]);
    vec![turned, canaries(&one), canaries(&two)]
}

#[test]
fn the_page_shows_every_rule() {
    let mut rules = vec![
        Rule::Majority { votes: 2, of: 3 },
        Rule::Any {
            vantage: NAME.into(),
            of: 3,
        },
        Rule::All { healthy: 2, of: 3 },
        Rule::Share {
            healthy: 2,
            of: 3,
            share: 0.18,
        },
        Rule::Tie { each: 1 },
        Rule::Pinned {
            fresh: 1,
            assigned: 3,
            since: SystemTime::UNIX_EPOCH,
        },
        Rule::LastKnown {
            fresh: 1,
            assigned: 3,
        },
        Rule::CanariesFirst(NAME.into()),
        Rule::PreviousCheck,
        Rule::AwaitingFirstSuccess,
        Rule::BenefitOfDoubt,
        Rule::NoCheck,
        Rule::EnvoysOnly,
        Rule::AdminDraining,
        Rule::AdminStopped,
        Rule::NoWeight,
        Rule::Removed,
    ];
    rules.extend(
        causes()
            .into_iter()
            .map(|cause| Rule::Guarded(abstention(cause))),
    );
    for rule in &rules {
        // A new one fails to compile here: it belongs into the list too.
        match rule {
            Rule::Majority { .. }
            | Rule::Any { .. }
            | Rule::All { .. }
            | Rule::Share { .. }
            | Rule::Tie { .. }
            | Rule::Pinned { .. }
            | Rule::LastKnown { .. }
            | Rule::Guarded(_)
            | Rule::CanariesFirst(_)
            | Rule::PreviousCheck
            | Rule::AwaitingFirstSuccess
            | Rule::BenefitOfDoubt
            | Rule::NoCheck
            | Rule::EnvoysOnly
            | Rule::AdminDraining
            | Rule::AdminStopped
            | Rule::NoWeight
            | Rule::Removed => assert_shown(&rule.to_string()),
        }
    }
}

#[test]
fn the_page_shows_why_traffic_goes_where_it_goes() {
    let primaries = |unjudged, ratio| Why::Primaries {
        healthy: 1,
        of: 2,
        unjudged,
        ratio,
    };
    let nowhere = |ratio| Why::NowhereToGo {
        healthy: 1,
        of: 2,
        ratio,
    };
    let over = |back_at| Why::FailedOver {
        healthy: 1,
        of: 2,
        back_at,
    };
    let all = [
        Why::Nobody,
        Why::Healthy { healthy: 1, of: 2 },
        primaries(0, 0.5),
        primaries(0, 0.0),
        primaries(1, 0.0),
        nowhere(0.6),
        nowhere(0.0),
        over(0.6),
        over(0.0),
        Why::LastResort,
        Why::Dropped,
        Why::FailOpen,
        Why::FailClosed,
    ];
    for why in all {
        // A new one fails to compile here: it belongs into the list too.
        match why {
            Why::Nobody
            | Why::Healthy { .. }
            | Why::Primaries { .. }
            | Why::NowhereToGo { .. }
            | Why::FailedOver { .. }
            | Why::LastResort
            | Why::Dropped
            | Why::FailOpen
            | Why::FailClosed => assert_shown(&why.to_string()),
        }
    }
}

#[test]
fn the_page_shows_how_a_doubt_ends() {
    let all = [
        End::Recovered { turned: 2, of: 12 },
        End::Agreed,
        End::HoldOver,
        End::Gone,
    ];
    for end in all {
        // A new one fails to compile here: it belongs into the list too.
        match end {
            End::Recovered { .. } | End::Agreed | End::HoldOver | End::Gone => {
                assert_shown(&format!(
                    "guard (V5): the votes of {NAME} count again: {end}"
                ));
            }
        }
    }
}

#[test]
fn a_text_that_the_page_lacks_is_found_out() {
    assert_eq!(
        fixed("V2 share: 2 of 3 say healthy, more than 0.18 must"),
        ["V2 share:", "of", "say healthy, more than", "must"]
    );
    assert!(!shown(&fixed("V2 minority 1 of 3")));
    // In its order, and in one line.
    assert!(!shown(&fixed("must 1 V2 share:")));
    assert!(!shown(&fixed(
        "S6 weight 0 removed from the configuration, draining"
    )));
}
