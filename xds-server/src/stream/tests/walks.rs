//! Random walks of the oracle's client, and of a fuzzer's bytes.

use proptest::prelude::*;

use super::*;
use crate::stream::oracle::{Event, fuzz, run};

fn event() -> impl Strategy<Value = Event> {
    let kind = || prop::sample::select(vec![Cds, Eds, Lds, Rds]);
    let names = prop::collection::btree_set(0usize..4, 0..=4);
    prop_oneof![
        3 => (kind(), prop::option::weighted(0.7, names)).prop_map(|(kind, wants)| Event::Want(kind, wants)),
        6 => (kind(), 0usize..4, prop::option::weighted(0.7, 0u32..3)).prop_map(|(k, n, r)| Event::Set(k, n, r)),
        1 => (0usize..4, any::<bool>()).prop_map(|(name, held)| Event::Hold(name, held)),
        1 => Just(Event::Forget),
        6 => Just(Event::Send),
        5 => Just(Event::Ack),
        1 => Just(Event::Nack),
        1 => kind().prop_map(Event::Stale),
        1 => Just(Event::Reconnect),
    ]
}

#[test]
fn a_name_that_is_given_up_while_its_resource_is_on_the_way_is_removed_when_the_wildcard_covers_it()
{
    let kind = ResourceType::Cluster;
    let events = vec![
        Event::Set(kind, 0, Some(0)),
        Event::Want(kind, Some([0].into())),
        Event::Send,
        Event::Want(kind, Some([].into())),
        Event::Want(kind, None),
        Event::Set(kind, 0, None),
    ];
    run(Transport::Delta, events);
}

#[test]
fn a_name_that_is_asked_for_and_given_up_while_the_wildcard_comes_back_is_removed() {
    let kind = ResourceType::Cluster;
    let events = vec![
        Event::Want(kind, None),
        Event::Set(kind, 0, Some(0)),
        Event::Send,
        Event::Want(kind, Some([].into())),
        Event::Set(kind, 0, None),
        Event::Want(kind, Some([0, 1, 3].into())),
        Event::Want(kind, None),
    ];
    run(Transport::Delta, events);
}

#[test]
fn a_name_that_the_wildcard_took_over_and_was_given_up_with_it_is_removed_when_that_comes_back() {
    let kind = ResourceType::Cluster;
    let events = vec![
        Event::Want(kind, Some([0].into())),
        Event::Set(kind, 0, Some(0)),
        Event::Send,
        Event::Want(kind, None),
        Event::Set(kind, 0, None),
        Event::Want(kind, Some([].into())),
        Event::Want(kind, None),
    ];
    run(Transport::Delta, events);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_sotw_client_ends_with_exactly_the_servers_state(events in prop::collection::vec(event(), 0..60)) {
        run(Transport::Sotw, events);
    }

    #[test]
    fn a_delta_client_ends_with_exactly_the_servers_state(events in prop::collection::vec(event(), 0..60)) {
        run(Transport::Delta, events);
    }

    #[test]
    fn any_bytes_are_a_walk(input in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz(&input);
    }
}
