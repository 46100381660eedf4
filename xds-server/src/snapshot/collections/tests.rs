use std::sync::atomic::AtomicUsize;

use super::*;
use crate::model::{Name, NodeMatcher};
use crate::snapshot::{FleetSnapshot, ResourceType};

const GLOB: &str = "xdstp://vitals/t/shop/*";
const EDS: ResourceType = ResourceType::ClusterLoadAssignment;

fn name(number: usize) -> Arc<str> {
    format!("xdstp://vitals/t/shop/{number}").into()
}

fn entry(number: usize, revision: u8) -> Arc<Resource> {
    // Some unknown field.
    let bytes = vec![0x78, revision];
    let kind = ResourceType::LbEndpoint;
    Arc::new(Resource::encoded(kind, name(number), bytes, Vec::new()))
}

fn collection(numbers: std::ops::Range<usize>) -> Collection {
    Collection::new(GLOB.into(), numbers.map(|number| entry(number, 1)))
}

fn assignment_of(revision: u8) -> Arc<Resource> {
    let bytes = vec![0x78, revision];
    Arc::new(Resource::encoded(EDS, "shop".into(), bytes, Vec::new()))
}

#[test]
fn a_collection_remembers_what_has_left_until_it_comes_back() {
    let first = collection(0..3);
    let second = first.next(vec![], vec![name(0), name(1)]);
    assert_eq!(second.entries().len(), 1);
    assert_eq!(second.left().len(), 2);
    let third = second.next(vec![entry(1, 2)], vec![]);
    assert_eq!(third.left().iter().cloned().collect::<Vec<_>>(), [name(0)]);
    let unknown = third.next(vec![], vec![name(9)]);
    assert_eq!(unknown.left().len(), 1, "it was never there");
}

#[test]
fn a_collection_is_worn_when_more_has_left_than_it_has() {
    let of =
        |had: usize, left: usize| collection(0..had).next(vec![], (0..left).map(name).collect());
    assert!(!of(200, 100).is_worn());
    assert!(of(200, 101).is_worn());
    assert!(!of(60, 60).is_worn(), "a small one is not worth a new path");
}

#[test]
fn the_state_is_that_of_the_content_however_it_came_about() {
    let straight = Collection::new(GLOB.into(), [entry(0, 2), entry(2, 1)]);
    let changed = collection(0..2).next(vec![entry(0, 2), entry(2, 1)], vec![name(1)]);
    assert_eq!(straight.state, changed.state);
    assert_ne!(straight.state, collection(0..3).state);
}

/// A fleet with one service, whose plain form counts how often it is encoded.
fn fleet(
    revision: u8,
    encoded: &Arc<AtomicUsize>,
    before: Option<&FleetSnapshot>,
) -> FleetSnapshot {
    let encoded = Arc::clone(encoded);
    let plain = move || {
        encoded.fetch_add(1, Ordering::Relaxed);
        assignment_of(revision)
    };
    let (apart, one) = (assignment_of(100), collection(0..1));
    let assignment = Assignment::apart(Arc::clone(&apart), vec![Arc::new(one)], plain);
    let edge = Name::new("edge").unwrap();
    let new = FleetSnapshot::new(edge, NodeMatcher::default(), [apart], BTreeSet::new()).unwrap();
    let new = new.with_collections(vec![Arc::new(assignment)]);
    match before {
        Some(before) => new.following(before),
        None => new,
    }
}

#[test]
fn the_plain_form_is_encoded_when_somebody_asks_and_while_somebody_does() {
    let encoded = Arc::new(AtomicUsize::new(0));
    let count = || encoded.load(Ordering::Relaxed);
    let first = fleet(1, &encoded, None);
    let second = fleet(2, &encoded, Some(&first));
    second.anticipate(&first);
    assert!(second.of_type_for(EDS, true).held().is_empty());
    assert_eq!(count(), 0, "nobody asks");
    let plain = second.of_type_for(EDS, false);
    let version = |of: &Resource| Arc::clone(of.version());
    assert_eq!(
        version(&plain.resources()["shop"]),
        version(&assignment_of(2))
    );
    assert_eq!(count(), 1);
    assert!(second.of_type_for(EDS, false).held().is_empty());
    assert_eq!(count(), 1, "once");
    let third = fleet(3, &encoded, Some(&second));
    third.anticipate(&second);
    assert_eq!(count(), 2, "before the client that asked wakes up");
    // Whom the second was sent is told what has changed.
    let cursor = second.of_type_for(EDS, false).log().cursor();
    let since = third.of_type_for(EDS, false).log().since(&cursor);
    assert_eq!(since.unwrap().count(), 1);
    let fourth = fleet(4, &encoded, Some(&third));
    fourth.anticipate(&third);
    let fifth = fleet(5, &encoded, Some(&fourth));
    fifth.anticipate(&fourth);
    assert_eq!(count(), 3, "the fourth, for which nobody has asked");
}

#[test]
fn clients_that_take_collections_see_the_load_assignment_without_endpoints() {
    let first = fleet(1, &Arc::default(), None);
    let apart = first.of_type_for(EDS, true);
    let due = assignment_of(100);
    assert_eq!(apart.resources()["shop"].version(), due.version());
    assert_eq!(
        first
            .collections()
            .unwrap()
            .get(GLOB)
            .unwrap()
            .entries()
            .len(),
        1
    );
}

#[test]
fn a_fleet_that_turns_to_this_form_and_back_leaves_no_change_unsaid() {
    let together = |revision, before: Option<&FleetSnapshot>| {
        let edge = Name::new("edge").unwrap();
        let resources = [assignment_of(revision)];
        let new = FleetSnapshot::new(edge, NodeMatcher::default(), resources, BTreeSet::new());
        match before {
            Some(before) => new.unwrap().following(before),
            None => new.unwrap(),
        }
    };
    let says_it = |new: &FleetSnapshot, old: &FleetSnapshot| {
        let cursor = old.of_type_for(EDS, false).log().cursor();
        let log = new.of_type_for(EDS, false).log();
        // `None`: everything is to be compared.
        log.since(&cursor)
            .is_none_or(|mut names| names.any(|name| **name == *"shop"))
    };
    let first = together(1, None);
    let second = fleet(2, &Arc::default(), Some(&first));
    assert!(says_it(&second, &first));
    let third = fleet(3, &Arc::default(), Some(&second));
    assert!(says_it(&third, &second));
    let fourth = together(4, Some(&third));
    for old in [&first, &second, &third] {
        assert!(says_it(&fourth, old));
    }
}

#[test]
fn the_log_names_the_collections_that_changed_came_and_went() {
    let other: Arc<str> = "xdstp://vitals/t/cart/*".into();
    let all = |of: Vec<Collection>| {
        let of = of.into_iter().map(Arc::new).collect();
        let assignment = Assignment::apart(assignment_of(1), of, || assignment_of(1));
        Collections::of(&[Arc::new(assignment)])
    };
    let first = all(vec![collection(0..2)]);
    let since = |new: &Collections, old: &Collections| -> Vec<Arc<str>> {
        let cursor = old.log().cursor();
        new.log().since(&cursor).unwrap().cloned().collect()
    };
    let same = first.get(GLOB).unwrap();
    let next = same.next(vec![entry(0, 2)], vec![]);
    let mut second = all(vec![next, Collection::new(Arc::clone(&other), [])]);
    second.follow(&first, ChangeLog::then);
    assert_eq!(since(&second, &first), [Arc::clone(&other), GLOB.into()]);
    assert_ne!(second.version(), first.version());
    let mut third = Collections::of(&[]);
    third.follow(&second, ChangeLog::then);
    assert_eq!(since(&third, &second), [other, GLOB.into()]);
}
