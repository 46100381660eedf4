//! Doubt driven by hand: turns, recoveries and time made up.

use std::time::SystemTime;

use proptest::prelude::*;
use vitals_prober::clock;

use super::*;

const WINDOW: Duration = Duration::from_secs(15);

struct Bench {
    doubt: Doubt,
    now: Now,
    events: Vec<Event>,
}

impl Bench {
    /// A vantage of 20 endpoints in groups of ten, under the default policy.
    fn new() -> Self {
        Self::of(20, Guard::default())
    }

    fn of(total: usize, policy: Guard) -> Self {
        let now = Now {
            mono: clock::now() + Duration::from_secs(3600),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        };
        let mut doubt = Doubt::new("a".into(), policy, now);
        doubt.set_scope(total, WINDOW, |_| true);
        Self {
            doubt,
            now,
            events: Vec::new(),
        }
    }

    fn turn(&mut self, n: u8) {
        self.turn_and(n, false);
    }

    fn turn_and(&mut self, n: u8, agrees: bool) {
        let group = Name::new(&format!("g{}", n / 10)).unwrap();
        let event = self
            .doubt
            .turn(key(n), [group].into(), self.now, |_| agrees);
        self.events.extend(event);
    }

    fn recover(&mut self, n: u8) {
        self.events.extend(self.doubt.recover(&key(n)));
    }

    fn pass(&mut self, time: Duration) {
        self.pass_and(time, false);
    }

    fn pass_and(&mut self, time: Duration, agrees: bool) {
        self.now.mono += time;
        self.now.wall += time;
        self.events.extend(self.doubt.tick(self.now, |_| agrees));
    }

    fn canaries(&mut self, silent: bool) {
        let of = ["127.0.9.1:1", "127.0.9.2:1"].map(|address| address.parse().unwrap());
        let word = if silent {
            Word::Silent(of.into())
        } else {
            Word::Answer
        };
        self.events
            .extend(self.doubt.canaries(word, false, self.now));
    }

    fn abstains(&self) -> bool {
        self.doubt.abstention().is_some()
    }

    /// The events since the last time, `None` for a start.
    fn told(&mut self) -> Vec<Option<End>> {
        self.events
            .drain(..)
            .map(|event| match event {
                Event::Started(_) => None,
                Event::Ended(_, why) => Some(why),
            })
            .collect()
    }
}

fn key(n: u8) -> StateKey {
    StateKey::from_bytes([n; 16])
}

#[test]
fn v5_more_than_the_share_in_two_groups_within_the_window_is_doubted_once() {
    let mut bench = Bench::new();
    for n in 0..10 {
        bench.turn(n * 2);
    }
    assert!(!bench.abstains(), "half is not more than half");
    bench.turn(1);
    assert!(bench.abstains());
    for n in [3, 5, 7, 9] {
        bench.turn(n);
    }
    assert_eq!(bench.told(), [None], "one event");
    let text = bench.doubt.abstention().unwrap().to_string();
    assert_eq!(
        text,
        "a abstains since 2023-11-14T22:13:20.000Z, it turned 11 of 20 endpoints in 2 groups from healthy within 15 s"
    );
}

#[test]
fn v5_turns_that_are_spread_over_more_than_the_window_are_no_doubt() {
    let mut bench = Bench::new();
    for n in 0..20 {
        bench.turn(n);
        bench.pass(Duration::from_secs(2));
    }
    assert_eq!(bench.told(), []);
}

#[test]
fn v5_turns_in_one_group_are_that_groups_trouble() {
    let mut bench = Bench::of(10, Guard::default());
    for n in 0..10 {
        bench.turn(n);
    }
    assert!(!bench.abstains());
}

#[test]
fn v5_of_too_few_endpoints_a_share_says_nothing() {
    let mut bench = Bench::of(9, Guard::default());
    for n in 5..14 {
        bench.turn(n);
    }
    assert!(!bench.abstains());
}

#[test]
fn v5_an_endpoint_that_came_back_or_turned_twice_counts_once_or_not_at_all() {
    let mut bench = Bench::new();
    for _ in 0..30 {
        for n in [1, 11, 12] {
            bench.turn(n);
            bench.recover(n);
            bench.turn(n);
        }
    }
    assert!(!bench.abstains());
    assert_eq!(bench.doubt.suspects().len(), 3);
    assert!(
        bench.doubt.order.len() <= 2 * 3 + 65,
        "it stays in proportion"
    );
}

fn doubted() -> Bench {
    let mut bench = Bench::new();
    for n in 5..16 {
        bench.turn(n);
    }
    assert_eq!(bench.told(), [None]);
    bench
}

#[test]
fn v5_it_ends_when_the_share_is_below_half_of_max_share_and_not_by_age() {
    let mut bench = doubted();
    bench.pass(Duration::from_secs(120));
    for n in 5..11 {
        bench.recover(n);
        assert!(bench.abstains(), "5 of 20 are not below a quarter");
    }
    bench.recover(11);
    assert_eq!(bench.told(), [Some(End::Recovered { turned: 4, of: 20 })]);
}

#[test]
fn v5_it_ends_when_another_vantage_agrees_and_does_not_start_again_on_the_same_turns() {
    let mut bench = doubted();
    bench.pass_and(Duration::from_secs(1), true);
    assert_eq!(bench.told(), [Some(End::Agreed)]);
    bench.turn(16);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.told(), []);
}

#[test]
fn v5_it_does_not_start_when_another_vantage_agrees_already() {
    let mut bench = Bench::new();
    for n in 0..20 {
        bench.turn_and(n, true);
    }
    assert_eq!(bench.told(), []);
    assert!(
        bench.doubt.suspects().len() < 11,
        "what is believed is forgotten"
    );
}

#[test]
fn v5_it_ends_when_max_hold_is_over() {
    let mut bench = doubted();
    bench.pass(Duration::from_secs(299));
    assert!(bench.abstains());
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.told(), [Some(End::HoldOver)]);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.told(), [], "one event per end");
}

#[test]
fn v5_silent_canaries_are_doubt_until_one_answers() {
    let mut bench = Bench::new();
    bench.canaries(false);
    bench.canaries(true);
    bench.canaries(true);
    assert_eq!(bench.told(), [None]);
    bench.pass(Duration::from_secs(60));
    assert!(bench.abstains());
    bench.canaries(false);
    assert_eq!(bench.told(), [Some(End::Recovered { turned: 0, of: 20 })]);
}

#[test]
fn v5_canaries_that_stay_silent_over_max_hold_are_disregarded_until_one_has_answered() {
    let mut bench = Bench::new();
    bench.canaries(true);
    bench.pass(Duration::from_secs(300));
    bench.canaries(true);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.told(), [None, Some(End::HoldOver)]);
    bench.canaries(false);
    bench.canaries(true);
    assert_eq!(bench.told(), [None]);
}

#[test]
fn v5_with_silent_canaries_a_low_share_is_not_enough() {
    let mut bench = doubted();
    bench.canaries(true);
    for n in 5..16 {
        bench.recover(n);
    }
    assert!(bench.abstains());
    bench.canaries(false);
    assert_eq!(bench.told(), [Some(End::Recovered { turned: 0, of: 20 })]);
}

#[test]
fn v5_switched_off_it_never_doubts() {
    let policy = Guard {
        enabled: false,
        ..Guard::default()
    };
    let mut bench = Bench::of(20, policy);
    for n in 0..20 {
        bench.turn(n);
    }
    bench.canaries(true);
    assert_eq!(bench.told(), []);
}

#[test]
fn v1_a_vantage_that_is_gone_ends_its_doubt() {
    let mut bench = doubted();
    let event = bench.doubt.dissolve();
    assert!(matches!(event, Some(Event::Ended(_, End::Gone))));
    assert_eq!(bench.doubt.dissolve(), None);
    assert_eq!(bench.doubt.suspects().len(), 0);
}

#[test]
fn v5_endpoints_that_leave_the_configuration_leave_the_count() {
    let mut bench = doubted();
    bench
        .doubt
        .set_scope(9, WINDOW, |key| key.to_bytes()[0] >= 15);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.told(), [Some(End::Recovered { turned: 1, of: 9 })]);
}

proptest! {
    /// Starts and ends take turns, whatever happens; the count is what has turned and not come back; nothing that was
    /// fine for a whole window is doubted.
    #[test]
    fn v5_one_event_per_start_and_end(
        steps in prop::collection::vec((0u8..6, 0u8..20, any::<bool>()), 0..200), share in 1u8..=10,
    ) {
        let max_share = f64::from(share) / 10.0;
        let mut bench = Bench::of(20, Guard { max_share, ..Guard::default() });
        let mut abstained = false;
        for (step, n, flag) in steps {
            match step {
                0 => bench.pass_and(Duration::from_secs(u64::from(n)), flag),
                1 | 2 => bench.recover(n),
                3 => bench.canaries(flag),
                _ => bench.turn(n),
            }
            for event in bench.events.drain(..) {
                let starts = matches!(event, Event::Started(_));
                prop_assert_ne!(starts, abstained, "{:?}", event);
                abstained = starts;
            }
            prop_assert_eq!(bench.doubt.abstention().is_some(), abstained);
            let in_groups: usize = bench.doubt.groups.values().sum();
            prop_assert_eq!(in_groups, bench.doubt.suspects().len());
            prop_assert!(bench.doubt.groups.values().all(|count| *count > 0));
            if !abstained {
                let now = bench.now.mono;
                bench.doubt.age(bench.now);
                let oldest = bench.doubt.order.front();
                prop_assert!(oldest.is_none_or(|(at, ..)| now - *at <= WINDOW));
                prop_assert!(bench.doubt.order.len() >= bench.doubt.suspects().len());
            }
        }
    }

    /// The rule of the start, against a count over the whole history.
    #[test]
    fn v5_it_starts_exactly_when_the_rule_says(
        steps in prop::collection::vec((0u8..3, 0u8..20), 0..120),
    ) {
        let mut bench = Bench::new();
        let mut turned: BTreeMap<u8, Instant> = BTreeMap::new();
        for (step, n) in steps {
            match step {
                0 => bench.pass(Duration::from_secs(u64::from(n % 4))),
                1 if n % 5 == 0 => { turned.remove(&n); bench.recover(n); }
                _ => { turned.insert(n, bench.now.mono); bench.turn(n); }
            }
            turned.retain(|_, at| bench.now.mono - *at <= WINDOW);
            let both = turned.keys().any(|n| *n < 10) && turned.keys().any(|n| *n >= 10);
            let expected = turned.len() > 10 && both;
            if step >= 1 {
                prop_assert_eq!(bench.abstains(), expected, "{:?}", turned);
            }
            if bench.abstains() {
                break;
            }
        }
    }

    /// However many endpoints turn, and however often: what is kept and what is done stays in proportion.
    #[test]
    fn v5_every_endpoint_turning_at_once_asks_for_agreement_at_most_once_per_half(rounds in 1usize..6) {
        let total = 2_000u32;
        let now = Bench::new().now;
        let mut doubt = Doubt::new("a".into(), Guard::default(), now);
        doubt.set_scope(total as usize, WINDOW, |_| true);
        let mut asked = 0usize;
        for _ in 0..rounds {
            for n in 0..total {
                let key = StateKey::from_bytes(u128::from(n).to_be_bytes());
                let group = Name::new(&format!("g{}", n % 7)).unwrap();
                doubt.turn(key, [group].into(), now, |_| { asked += 1; true });
            }
        }
        prop_assert!(asked <= 2 * rounds, "{} times", asked);
        prop_assert!(doubt.order.len() <= 2 * doubt.suspects().len() + 65);
    }
}
