//! What a change costs a stream: how many names it looks at.

use super::*;
use crate::model::{Name, NodeMatcher};
use crate::resources::empty_assignment;
use crate::snapshot::FleetSnapshot;
use crate::stream::Transport;

const EDS: ResourceType = ResourceType::ClusterLoadAssignment;

fn name(number: usize) -> Arc<str> {
    format!("s-{number:04}").into()
}

/// A thousand load assignments, those of these numbers changed.
fn fleet(changed: &[usize]) -> FleetSnapshot {
    let resources = (0..1000).map(|number| {
        let mut bytes = empty_assignment(name(number)).any().to_vec();
        // Some unknown field that tells the two apart.
        bytes.extend_from_slice(&[0x78, u8::from(changed.contains(&number))]);
        Arc::new(Resource::encoded(EDS, name(number), bytes, Vec::new()))
    });
    let edge = Name::new("edge").unwrap();
    FleetSnapshot::new(edge, NodeMatcher::default(), resources, BTreeSet::new()).unwrap()
}

/// Brings a stream in step. Says how many names it looked at, and how many resources it sent.
fn follow(subscription: &mut Subscription, fleet: &FleetSnapshot) -> (usize, usize) {
    let snapshot = fleet.of_type(EDS);
    let (mut looked_at, mut sent) = (0, 0);
    loop {
        subscription.catch_up(snapshot);
        looked_at = looked_at.max(subscription.unsettled.len());
        match subscription.additions(Transport::Delta, snapshot, 1) {
            Some(batch) => sent += batch.resources.len(),
            None => {
                assert!(
                    subscription
                        .removals(Transport::Delta, snapshot, 1)
                        .is_none()
                );
                return (looked_at, sent);
            }
        }
    }
}

#[test]
fn a_change_costs_a_stream_what_it_changes_whatever_the_fleet_has() {
    let mut subscription = Subscription::new(EDS);
    let names = (0..1000).map(|number| name(number).to_string()).collect();
    subscription.begin_delta(names, HashMap::new()).unwrap();
    let first = fleet(&[]);
    assert_eq!(follow(&mut subscription, &first), (1000, 1000));
    assert_eq!(follow(&mut subscription, &first), (0, 0));
    let second = fleet(&[7]).following(&first);
    let third = fleet(&[7, 8]).following(&second);
    assert_eq!(follow(&mut subscription, &third), (2, 2));
    // Back to what the client has: looked at, and not sent.
    let fourth = fleet(&[8]).following(&third);
    let fifth = fleet(&[7, 8]).following(&fourth);
    assert_eq!(follow(&mut subscription, &fifth), (1, 0));
    // Of another lineage, all must be compared, and still only what differs is sent.
    assert_eq!(follow(&mut subscription, &fleet(&[8])), (1000, 1));
}

#[test]
fn changes_of_what_a_stream_did_not_ask_for_cost_it_nothing() {
    let mut subscription = Subscription::new(EDS);
    let names = vec![name(1).to_string()];
    subscription.begin_delta(names, HashMap::new()).unwrap();
    let first = fleet(&[]);
    assert_eq!(follow(&mut subscription, &first), (1, 1));
    let second = fleet(&[2, 3]).following(&first);
    assert_eq!(follow(&mut subscription, &second), (0, 0));
}

#[test]
fn streams_share_the_names_of_the_resources_they_have() {
    let mut subscription = Subscription::new(EDS);
    let names = vec![name(1).to_string()];
    subscription.begin_delta(names, HashMap::new()).unwrap();
    let first = fleet(&[]);
    follow(&mut subscription, &first);
    let (shared, _) = first
        .of_type(EDS)
        .resources()
        .get_key_value(&name(1))
        .unwrap();
    let shares = |own: Option<&Arc<str>>| own.is_some_and(|own| Arc::ptr_eq(own, shared));
    assert!(shares(subscription.names.first()) && shares(subscription.known.keys().next()));
}

#[test]
fn what_is_known_of_a_resource_is_small() {
    assert_eq!(size_of::<Known>(), 16);
}

#[test]
fn responses_keep_their_order_when_the_lower_half_of_nonces_begins_anew() {
    let (last, next) = (Since::nonce(u64::from(u32::MAX)), Since::nonce(1 << 32));
    assert!(last.is_by(next) && last.is_by(last));
    assert!(!next.is_by(last));
}
