//! Tests of `schedule` with time moved by hand.

use proptest::prelude::*;

use super::*;
use crate::clock;

const ALLOWANCE: Duration = Duration::from_millis(250);

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key(n: u128) -> StateKey {
    StateKey::from_bytes(n.to_be_bytes())
}

fn judged(interval: Duration) -> (Instant, Schedule) {
    let origin = clock::now();
    let spread = Spread::new("here", origin);
    let schedule = Schedule::new(&spread, key(7), interval, true, origin);
    (origin, schedule)
}

#[test]
fn s3_starts_are_counted_from_start_to_start() {
    let (_, mut schedule) = judged(secs(30));
    let first = schedule.due();
    for n in 0..10u32 {
        let start = first + secs(30) * n;
        assert_eq!(schedule.due(), start);
        assert_eq!(schedule.begin(start, ALLOWANCE), Turn::Run(ms(0)));
        schedule.end(start + secs(5));
    }
}

#[test]
fn s3_a_small_lateness_is_not_passed_on_to_the_next_slot() {
    let (_, mut schedule) = judged(secs(5));
    let first = schedule.due();
    assert_eq!(
        schedule.begin(first + ms(200), ALLOWANCE),
        Turn::Run(ms(200))
    );
    schedule.end(first + ms(201));
    assert_eq!(schedule.due(), first + secs(5));
}

#[test]
fn s3_a_slot_that_falls_due_during_a_probe_starts_when_it_ends_and_the_rest_is_skipped() {
    let (_, mut schedule) = judged(secs(1));
    let first = schedule.due();
    schedule.begin(first, ALLOWANCE);
    let end = first + ms(3_400);
    schedule.end(end);
    assert_eq!(schedule.due(), end, "at once");
    // Lateness counts from the end of the probe that was in the way.
    assert_eq!(schedule.begin(end + ms(100), ALLOWANCE), Turn::Run(ms(100)));
    schedule.end(end + ms(150));
    assert_eq!(schedule.due(), first + secs(4), "back on the grid");
}

#[test]
fn p16_a_slot_that_is_late_by_our_fault_is_missed_and_the_next_follows() {
    let (_, mut schedule) = judged(secs(5));
    let first = schedule.due();
    let late = first + ALLOWANCE + ms(1);
    assert_eq!(
        schedule.begin(late, ALLOWANCE),
        Turn::Missed(ALLOWANCE + ms(1))
    );
    assert_eq!(schedule.due(), first + secs(5));
    let stalled = first + secs(61);
    assert_eq!(schedule.begin(stalled, ALLOWANCE), Turn::Missed(secs(56)));
    assert_eq!(schedule.due(), first + secs(65), "one report for one stall");
}

#[test]
fn p16_the_allowance_is_a_quarter_of_the_timeout_and_at_least_250_ms() {
    assert_eq!(allowance(ms(100)), ms(250));
    assert_eq!(allowance(secs(1)), ms(250));
    assert_eq!(allowance(secs(5)), ms(1_250));
}

#[test]
fn s3_a_first_probe_that_waits_for_the_cap_is_not_late() {
    let origin = clock::now();
    let spread = Spread::new("here", origin);
    let mut schedule = Schedule::new(&spread, key(1), secs(5), false, origin);
    assert_eq!(schedule.late_from(ALLOWANCE), None);
    let due = schedule.due();
    let start = due + secs(17);
    assert_eq!(schedule.begin(start, ALLOWANCE), Turn::Run(secs(17)));
    schedule.end(start + ms(1));
    assert!(schedule.due() > start + ms(1), "no second probe in haste");
    assert!(schedule.due() <= start + secs(5) + ms(1));
    assert!(schedule.late_from(ALLOWANCE).is_some());
}

#[test]
fn s3_first_probes_are_spread_over_a_second_and_phases_over_the_interval() {
    let origin = clock::now();
    let spread = Spread::new("here", origin);
    let (mut firsts, mut phases) = ([0u32; 10], [0u32; 10]);
    for n in 0..10_000u128 {
        let bucket = |at: Instant, width: Duration| {
            usize::try_from((at - origin).as_nanos() / width.as_nanos()).unwrap()
        };
        let first = Schedule::new(&spread, key(n), secs(5), false, origin);
        firsts[bucket(first.due(), ms(100))] += 1;
        let known = Schedule::new(&spread, key(n), secs(5), true, origin);
        // Phase 0 is a slot now, so the next one is an interval away.
        phases[bucket(known.due(), ms(500)) % 10] += 1;
        for due in [first.due(), known.due()] {
            let since = (due - origin).as_nanos();
            assert!(since.is_multiple_of(TICK.as_nanos()), "on a tick");
        }
    }
    for count in firsts.into_iter().chain(phases) {
        assert!(
            (800..1_200).contains(&count),
            "{firsts:?} {phases:?} are not even"
        );
    }
}

#[test]
fn d5_11_two_vantages_do_not_probe_in_step() {
    let origin = clock::now();
    let due = |vantage: &str| {
        Schedule::new(&Spread::new(vantage, origin), key(9), secs(5), true, origin).due()
    };
    assert_ne!(due("paris"), due("oslo"));
    assert_eq!(due("paris"), due("paris"));
}

proptest! {
    #[test]
    fn s3_p16_hold_for_any_durations_and_delays(
        id: u128,
        interval in 100u64..5_000,
        is_judged: bool,
        met in 0u64..20_000,
        probes in prop::collection::vec((0u64..900, 0u64..12_000), 1..40),
    ) {
        let origin = clock::now();
        let interval = ms(interval);
        let spread = Spread::new("here", origin);
        let met = origin + ms(met);
        let mut schedule = Schedule::new(&spread, key(id), interval, is_judged, met);
        prop_assert!(schedule.due() >= met);
        let within = if is_judged { interval } else { interval.min(FIRST_WITHIN) };
        prop_assert!(schedule.due() <= met + within);
        let phase = phase(spread.hash(key(id)), interval);
        let on_grid = |t: Instant| {
            ((t - origin) + interval - phase).as_nanos().is_multiple_of(interval.as_nanos())
        };
        let mut ended = met;
        for (i, (delay, took)) in probes.into_iter().enumerate() {
            let due = schedule.due();
            prop_assert!(due >= ended, "probes of one target never overlap");
            if i > 0 || is_judged {
                prop_assert!(due == ended || on_grid(due), "due at a slot or at the end of the previous probe");
                prop_assert!(due <= ended + interval, "no slot is passed over");
            }
            let now = due + ms(delay);
            match schedule.begin(now, ALLOWANCE) {
                Turn::Run(lateness) => {
                    prop_assert_eq!(lateness, ms(delay));
                    prop_assert!(lateness <= ALLOWANCE || (i == 0 && !is_judged));
                    ended = now + ms(took);
                    schedule.end(ended);
                }
                Turn::Missed(lateness) => {
                    prop_assert!(lateness > ALLOWANCE);
                    prop_assert!(schedule.due() > now && on_grid(schedule.due()));
                    ended = now;
                }
            }
        }
    }
}
