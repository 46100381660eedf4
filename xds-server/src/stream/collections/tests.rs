//! What a change of a collection costs a stream, and what a stream is told of one that it does not keep up with.

use envoy_types::pb::envoy::config::endpoint::v3::LbEndpoint;
use envoy_types::pb::google::protobuf::UInt32Value;

use super::*;
use crate::model::{Name, NodeMatcher};
use crate::snapshot::collections::Assignment;
use crate::snapshot::{FleetSnapshot, ResourceType};

const GLOB: &str = "xdstp://vitals/t/shop/*";
const OTHER: &str = "xdstp://vitals/t/tail/*";

fn name(number: usize) -> Arc<str> {
    format!("xdstp://vitals/t/shop/{number:03}").into()
}

fn entry(number: usize, revision: u32) -> Arc<Resource> {
    let message = LbEndpoint {
        load_balancing_weight: Some(UInt32Value { value: revision }),
        ..LbEndpoint::default()
    };
    let kind = ResourceType::LbEndpoint;
    Arc::new(Resource::new(kind, name(number), &message, Vec::new()))
}

fn resource(name: String) -> Arc<Resource> {
    let (kind, message) = (ResourceType::LbEndpoint, LbEndpoint::default());
    Arc::new(Resource::new(kind, name.into(), &message, Vec::new()))
}

/// So large that four fill a response.
fn large(number: usize, revision: u8) -> Arc<Resource> {
    let mut bytes = vec![0x7a, 0x80, 0x80, 0x10];
    bytes.resize(4 + (256 << 10), revision);
    let kind = ResourceType::LbEndpoint;
    Arc::new(Resource::encoded(kind, name(number), bytes, Vec::new()))
}

fn collection(entries: impl IntoIterator<Item = Arc<Resource>>) -> Collection {
    Collection::new(GLOB.into(), entries)
}

/// What a fleet has of which this is the one collection.
fn all(collection: Collection, before: Option<&FleetSnapshot>) -> FleetSnapshot {
    let plain = || unreachable!("nobody asks for the plain form");
    let shop = Assignment::apart(shop(), vec![Arc::new(collection)], plain);
    following(vec![Arc::new(shop)], before)
}

/// What it has while the service is held.
fn nothing(before: Option<&FleetSnapshot>) -> FleetSnapshot {
    following(Vec::new(), before)
}

fn following(assignments: Vec<Arc<Assignment>>, before: Option<&FleetSnapshot>) -> FleetSnapshot {
    let edge = Name::new("edge").unwrap();
    let new = FleetSnapshot::new(edge, NodeMatcher::default(), [], BTreeSet::new()).unwrap();
    let new = new.with_collections(assignments);
    match before {
        Some(before) => new.following(before),
        None => new,
    }
}

fn shop() -> Arc<Resource> {
    let kind = ResourceType::ClusterLoadAssignment;
    Arc::new(Resource::encoded(
        kind,
        "shop".into(),
        Vec::new(),
        Vec::new(),
    ))
}

fn get(of: &FleetSnapshot) -> &Collection {
    of.collections().unwrap().get(GLOB).unwrap()
}

/// A client that is subscribed to the collection.
struct Client {
    subscription: CollectionSubscription,
    nonce: u64,
}

impl Client {
    fn subscribed() -> Self {
        let mut subscription = CollectionSubscription::default();
        subscription.subscribe(vec![GLOB.into()]).unwrap();
        Self {
            subscription,
            nonce: 0,
        }
    }

    /// The next response, unanswered: the numbers of its entries, and of those that are gone.
    fn next(&mut self, of: &FleetSnapshot) -> Option<(Vec<usize>, Vec<usize>)> {
        self.nonce += 1;
        let batch = self
            .subscription
            .next(of.collections().unwrap(), self.nonce)?;
        self.subscription.sent(self.nonce, "v".into());
        let number = |name: &Arc<str>| name.rsplit('/').next().unwrap().parse().unwrap();
        let entries = batch.resources.iter().map(|entry| number(entry.name()));
        Some((
            entries.collect(),
            batch.removed.iter().map(number).collect(),
        ))
    }

    fn answer(&mut self, nonce: u64, error: Option<&str>) -> Option<Option<Nack>> {
        let error = error.map(|message| Status {
            message: message.into(),
            ..Status::default()
        });
        let now = SystemTime::UNIX_EPOCH;
        self.subscription.answer(&nonce.to_string(), error, now)
    }

    fn refusal(&mut self) -> Option<String> {
        let interest = self.subscription.interest();
        let status = self.subscription.acks().status(interest);
        status.nack.map(|nack| nack.message)
    }
}

#[test]
fn a_change_costs_what_it_changes_whatever_the_collection_has() {
    let first = all(collection((0..1000).map(|n| entry(n, 1))), None);
    let mut client = Client::subscribed();
    assert_eq!(client.next(&first), Some(((0..1000).collect(), vec![])));
    assert_eq!(client.next(&first), None);
    let next = get(&first).next(vec![entry(7, 2)], vec![name(8)]);
    let second = all(next, Some(&first));
    assert_eq!(client.next(&second), Some((vec![7], vec![8])));
    assert_eq!(client.next(&second), None);
    // A publication that changed nothing of it.
    let third = all(get(&second).next(vec![], vec![]), Some(&second));
    assert_eq!(client.next(&third), None);
}

#[test]
fn a_whole_that_goes_in_parts_takes_changes_in_on_the_way() {
    let first = all(collection((0..10).map(|n| large(n, 1))), None);
    let mut client = Client::subscribed();
    assert_eq!(client.next(&first), Some((vec![0, 1, 2, 3], vec![])));
    // Of what was sent, one has changed and one is gone; of what was not, likewise.
    let changed = vec![large(1, 2), large(5, 2)];
    let second = all(
        get(&first).next(changed, vec![name(2), name(6)]),
        Some(&first),
    );
    assert_eq!(client.next(&second), Some((vec![4, 5, 7, 8], vec![])));
    assert_eq!(client.next(&second), Some((vec![9, 1], vec![2, 6])));
    assert_eq!(client.next(&second), None);
}

#[test]
fn a_stream_that_the_log_does_not_reach_gets_the_whole_and_what_has_left() {
    let first = all(collection((0..3).map(|n| entry(n, 1))), None);
    let mut client = Client::subscribed();
    assert_eq!(client.next(&first), Some((vec![0, 1, 2], vec![])));
    let next = get(&first).next_within(vec![], vec![name(0)], 1);
    let next = next.next_within(vec![entry(3, 1)], vec![], 1);
    let second = all(next, Some(&first));
    assert_eq!(client.next(&second), Some((vec![1, 2, 3], vec![0])));
}

#[test]
fn a_slow_stream_gets_to_the_end_of_a_collection_that_changes_faster_than_its_log_reaches() {
    let mut now = all(collection((0..10).map(|n| large(n, 0))), None);
    let mut client = Client::subscribed();
    let mut sent = BTreeSet::new();
    for revision in 1u8..=20 {
        let (entries, _) = client.next(&now).unwrap();
        sent.extend(entries);
        client.answer(client.nonce, None);
        // Whatever was sent, the log has lost it by the next time.
        let next = get(&now).next_within(vec![large(0, revision)], vec![], 1);
        let next = next.next_within(vec![large(1, revision)], vec![], 1);
        now = all(next, Some(&now));
    }
    assert_eq!(sent, (0..10).collect());
    // When it changes no more, it has all of it within two rounds.
    let rest: Vec<_> = std::iter::from_fn(|| client.next(&now)).take(10).collect();
    let rest: BTreeSet<usize> = rest.into_iter().flat_map(|(entries, _)| entries).collect();
    assert!(rest.is_superset(&[0, 1].into()), "{rest:?}");
    assert_eq!(client.next(&now), None);
}

#[test]
fn a_collection_that_fills_every_response_keeps_no_other_waiting() {
    let tail = resource(OTHER.replace('*', "999"));
    let tail = Arc::new(Collection::new(OTHER.into(), [tail]));
    let both = |revision, before: Option<&FleetSnapshot>| {
        let shop_now = match before {
            None => collection((0..4).map(|n| large(n, revision))),
            Some(before) => get(before).next((0..4).map(|n| large(n, revision)).collect(), vec![]),
        };
        let collections = vec![Arc::new(shop_now), Arc::clone(&tail)];
        let plain = || unreachable!("nobody asks for the plain form");
        let assignment = Assignment::apart(shop(), collections, plain);
        following(vec![Arc::new(assignment)], before)
    };
    let mut client = Client::subscribed();
    client.subscription.subscribe(vec![OTHER.into()]).unwrap();
    let mut now = both(0, None);
    let mut sent = BTreeSet::new();
    for revision in 1..5 {
        sent.extend(client.next(&now).unwrap().0);
        now = both(revision, Some(&now));
    }
    assert_eq!(sent, [0, 1, 2, 3, 999].into());
}

#[test]
fn who_subscribes_again_gets_the_whole_again() {
    let first = all(collection((0..2).map(|n| entry(n, 1))), None);
    let mut client = Client::subscribed();
    assert_eq!(client.next(&first), Some((vec![0, 1], vec![])));
    client.subscription.subscribe(vec![GLOB.into()]).unwrap();
    assert_eq!(client.next(&first), Some((vec![0, 1], vec![])));
    client.subscription.unsubscribe(&[GLOB.into()]);
    let second = all(get(&first).next(vec![entry(0, 2)], vec![]), Some(&first));
    assert_eq!(client.next(&second), None, "it has given it up");
    client.subscription.subscribe(vec![GLOB.into()]).unwrap();
    assert_eq!(client.next(&second), Some((vec![0, 1], vec![])));
}

#[test]
fn a_collection_that_is_not_there_is_not_answered_until_it_is() {
    let before = nothing(None);
    let mut client = Client::subscribed();
    assert_eq!(client.next(&before), None);
    let first = all(collection([entry(0, 1)]), Some(&before));
    assert_eq!(client.next(&first), Some((vec![0], vec![])));
    // Held for a while: what it has stays, and afterwards it gets only what has changed.
    let held = nothing(Some(&first));
    assert_eq!(client.next(&held), None);
    let back = all(get(&first).next(vec![entry(1, 1)], vec![]), Some(&held));
    assert_eq!(client.next(&back), Some((vec![1], vec![])));
}

#[test]
fn what_was_refused_is_not_sent_until_it_changes_and_the_refusal_stands_so_long() {
    let first = all(collection((0..2).map(|n| entry(n, 1))), None);
    let mut client = Client::subscribed();
    client.next(&first).unwrap();
    assert!(matches!(client.answer(1, Some("no")), Some(Some(_))));
    assert_eq!(client.next(&first), None);
    let second = all(get(&first).next(vec![entry(0, 2)], vec![]), Some(&first));
    let nonce = client.nonce + 1;
    assert_eq!(client.next(&second), Some((vec![0], vec![])));
    assert_eq!(client.answer(nonce, None), Some(None));
    assert_eq!(client.refusal().as_deref(), Some("no"), "of the other one");
    let third = all(get(&second).next(vec![], vec![name(1)]), Some(&second));
    let nonce = client.nonce + 1;
    assert_eq!(client.next(&third), Some((vec![], vec![1])));
    assert_eq!(client.answer(nonce, None), Some(None));
    assert_eq!(client.refusal(), None);
}

#[test]
fn a_refused_whole_stands_until_it_is_sent_again_or_given_up() {
    let first = all(collection((0..1000).map(|n| entry(n, 1))), None);
    let mut client = Client::subscribed();
    client.next(&first).unwrap();
    client.answer(1, Some("no"));
    let second = all(get(&first).next(vec![entry(0, 2)], vec![]), Some(&first));
    client.next(&second).unwrap();
    client.answer(2, None);
    assert_eq!(client.refusal().as_deref(), Some("no"));
    client.subscription.subscribe(vec![GLOB.into()]).unwrap();
    client.next(&second).unwrap();
    client.answer(3, None);
    assert_eq!(client.refusal(), None);
}

#[test]
fn a_client_that_does_not_answer_gets_nothing_more_and_then_the_newest() {
    let mut now = all(collection([entry(0, 0)]), None);
    let mut client = Client::subscribed();
    client.next(&now).unwrap();
    for revision in 1u8..40 {
        now = all(
            get(&now).next(vec![entry(0, revision.into())], vec![]),
            Some(&now),
        );
        let sent = client.next(&now).is_some();
        assert_eq!(
            sent,
            usize::from(revision) < MAX_UNANSWERED,
            "revision {revision}"
        );
    }
    assert!(client.subscription.must_answer_first());
    client.answer(16, None);
    assert_eq!(client.next(&now), Some((vec![0], vec![])));
    assert_eq!(client.next(&now), None);
}

#[test]
fn an_envoy_that_puts_parameters_behind_the_glob_finds_them_behind_the_names() {
    let first = all(collection([entry(0, 1), entry(1, 1)]), None);
    let second = all(get(&first).next(vec![], vec![name(1)]), Some(&first));
    let asked = format!("{GLOB}?xds.node.cluster=edge");
    let mut subscription = CollectionSubscription::default();
    subscription.subscribe(vec![asked.clone()]).unwrap();
    assert_eq!(*subscription.interest().names, [asked.as_str().into()]);
    let batch = subscription.next(first.collections().unwrap(), 1).unwrap();
    let written = |number| format!("{}?xds.node.cluster=edge", name(number));
    let sent = &batch.resources[0];
    assert_eq!(**sent.name(), *written(0));
    assert_eq!(sent.any(), entry(0, 1).any());
    let batch = subscription.next(second.collections().unwrap(), 2).unwrap();
    assert_eq!(batch.removed, [written(1).into()]);
    subscription.unsubscribe(&[asked]);
    assert!(subscription.interest().names.is_empty());
    assert_eq!(subscription.name_bytes, 0);
}

#[test]
fn streams_share_the_names_of_their_collections() {
    let first = all(collection([entry(0, 1)]), None);
    let mut client = Client::subscribed();
    let shares = |client: &Client| {
        let mut names = client.subscription.wanted.keys();
        names.all(|name| Arc::ptr_eq(name, get(&first).glob()))
    };
    assert!(!shares(&client));
    client.next(&first).unwrap();
    assert!(shares(&client));
    // Also one that is asked for when others are there already.
    client.subscription.unsubscribe(&[GLOB.into()]);
    client.subscription.subscribe(vec![GLOB.into()]).unwrap();
    assert!(!shares(&client));
    client.next(&first).unwrap();
    assert!(shares(&client));
    assert!(Arc::ptr_eq(
        &client.subscription.interest().names[0],
        get(&first).glob()
    ));
}

#[test]
fn names_are_bounded() {
    let mut subscription = CollectionSubscription::default();
    let names = (0..=super::super::MAX_NAMES).map(|n| n.to_string());
    let refused = subscription.subscribe(names.collect());
    assert_eq!(refused, Err(Refusal::TooManyNames));
}
