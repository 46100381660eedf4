//! The stream without sockets: single behaviours (named after xds.md §2 and §3 where they stand there), and in `walks`
//! a client that must end with exactly the server's state whatever happens on the way.

mod envoy;
mod walks;

use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

use envoy_types::pb::google::rpc::Status;

use super::oracle::{delta_request, fleet, fleet_holding, resource, strings};
use super::*;
use crate::model::{Name, NodeMatcher};
use crate::snapshot::collections::{Assignment, Collection};
use ResourceType::{
    Cluster as Cds, ClusterLoadAssignment as Eds, Listener as Lds, RouteConfiguration as Rds,
};

/// A stream and the client's side of it.
struct Talk {
    stream: Stream,
}

impl Talk {
    fn sotw() -> Self {
        Self {
            stream: Stream::new(Transport::Sotw),
        }
    }

    fn delta() -> Self {
        Self {
            stream: Stream::new(Transport::Delta),
        }
    }

    fn ask(&mut self, kind: ResourceType, names: &[&str], nonce: &str) -> Received {
        let request = DiscoveryRequest {
            type_url: kind.type_url().into(),
            resource_names: strings(names),
            response_nonce: nonce.into(),
            ..DiscoveryRequest::default()
        };
        self.stream.on_sotw(request, UNIX_EPOCH).unwrap()
    }

    fn subscribe(&mut self, kind: ResourceType, names: &[&str]) -> Received {
        self.stream
            .on_delta(delta_request(kind, names, &[], ""), UNIX_EPOCH)
            .unwrap()
    }

    fn unsubscribe(&mut self, kind: ResourceType, names: &[&str]) -> Received {
        self.stream
            .on_delta(delta_request(kind, &[], names, ""), UNIX_EPOCH)
            .unwrap()
    }

    /// Subscribes with `initial_resource_versions` of these revisions.
    fn reconnect(&mut self, kind: ResourceType, names: &[&str], has: &[(&str, u32)]) {
        let versions = has.iter().map(|&(name, revision)| {
            (
                name.to_owned(),
                resource(kind, name, revision).version().to_string(),
            )
        });
        let request = DeltaDiscoveryRequest {
            initial_resource_versions: versions.collect(),
            ..delta_request(kind, names, &[], "")
        };
        self.stream.on_delta(request, UNIX_EPOCH).unwrap();
    }

    fn ack(&mut self, response: &Response, names: &[&str]) -> Received {
        match self.stream.transport {
            Transport::Sotw => self.ask(response.kind, names, &response.nonce),
            Transport::Delta => {
                let request = delta_request(response.kind, &[], &[], &response.nonce);
                self.stream.on_delta(request, UNIX_EPOCH).unwrap()
            }
        }
    }

    fn nack(&mut self, response: &Response, names: &[&str]) -> Received {
        let error_detail = Some(Status {
            code: 3,
            message: "no".into(),
            ..Status::default()
        });
        match self.stream.transport {
            Transport::Sotw => {
                let request = DiscoveryRequest {
                    type_url: response.kind.type_url().into(),
                    resource_names: strings(names),
                    response_nonce: response.nonce.clone(),
                    error_detail,
                    ..DiscoveryRequest::default()
                };
                self.stream.on_sotw(request, UNIX_EPOCH).unwrap()
            }
            Transport::Delta => {
                let request = delta_request(response.kind, &[], &[], &response.nonce);
                self.stream
                    .on_delta(
                        DeltaDiscoveryRequest {
                            error_detail,
                            ..request
                        },
                        UNIX_EPOCH,
                    )
                    .unwrap()
            }
        }
    }

    /// All responses until there is nothing to say, as `type +name.. -removed..`.
    fn says(&mut self, fleet: &FleetSnapshot) -> Vec<String> {
        std::iter::from_fn(|| self.stream.next(fleet))
            .map(|response| shown(&response))
            .collect()
    }
}

fn shown(response: &Response) -> String {
    let added = response
        .resources
        .iter()
        .map(|resource| format!(" +{}", resource.name()));
    let removed = response.removed.iter().map(|name| format!(" -{name}"));
    response.kind.as_str().to_owned() + &added.chain(removed).collect::<String>()
}

const NOTHING: [&str; 0] = [];

#[test]
fn h1_h5_sotw_wildcard_gets_the_whole_set_in_one_response_and_again_after_a_change() {
    let mut talk = Talk::sotw();
    talk.ask(Cds, &[], "");
    let one = fleet(&[(Cds, "a", 1), (Cds, "b", 1)], &[]);
    let response = talk.stream.next(&one).unwrap();
    assert_eq!(shown(&response), "Cluster +a +b");
    assert_eq!(talk.ack(&response, &[]), Received::Ack(Cds));
    assert_eq!(talk.says(&one), NOTHING, "no reply to an ACK");
    assert_eq!(
        talk.says(&fleet(&[(Cds, "a", 2), (Cds, "b", 1)], &[])),
        ["Cluster +a +b"]
    );
}

#[test]
fn h5_sotw_endpoints_travel_alone() {
    let mut talk = Talk::sotw();
    talk.ask(Eds, &["a", "b"], "");
    assert_eq!(
        talk.says(&fleet(&[(Eds, "a", 1), (Eds, "b", 1)], &[])),
        ["ClusterLoadAssignment +a +b"]
    );
    assert_eq!(
        talk.says(&fleet(&[(Eds, "a", 1), (Eds, "b", 2)], &[])),
        ["ClusterLoadAssignment +b"]
    );
}

#[test]
fn g4_a_stale_nonce_is_ignored_in_sotw_and_does_not_hide_an_interest_in_delta() {
    let state = fleet(&[(Eds, "a", 1), (Eds, "b", 1)], &[]);
    let mut talk = Talk::sotw();
    talk.ask(Eds, &["a"], "");
    let first = talk.stream.next(&state).unwrap();
    let second = talk.stream.next(&fleet(&[(Eds, "a", 2)], &[])).unwrap();
    assert_eq!(
        talk.ask(Eds, &["a", "b"], &first.nonce),
        Received::Stale(Eds)
    );
    assert_eq!(
        talk.ask(Eds, &["a", "b"], &second.nonce),
        Received::Subscription(Eds)
    );

    let mut talk = Talk::delta();
    talk.subscribe(Eds, &["a"]);
    talk.says(&state);
    let request = delta_request(Eds, &["b"], &[], "no-such-nonce");
    assert_eq!(
        talk.stream.on_delta(request, UNIX_EPOCH),
        Ok(Received::Subscription(Eds))
    );
    assert_eq!(talk.says(&state), ["ClusterLoadAssignment +b"]);
}

#[test]
fn g8_sotw_legacy_wildcard_ends_with_the_first_name() {
    let state = fleet(&[(Cds, "a", 1), (Cds, "b", 1)], &[]);
    let mut talk = Talk::sotw();
    talk.ask(Cds, &[], "");
    let response = talk.stream.next(&state).unwrap();
    talk.ack(&response, &["a"]);
    assert_eq!(
        talk.says(&state),
        ["Cluster +a"],
        "a name that is asked for is answered"
    );
    assert_eq!(
        talk.says(&fleet(&[(Cds, "a", 1), (Cds, "b", 2)], &[])),
        NOTHING,
        "b is no longer wanted"
    );
    let response = talk
        .stream
        .next(&fleet(&[(Cds, "a", 2), (Cds, "b", 2)], &[]))
        .unwrap();
    assert_eq!(shown(&response), "Cluster +a");
    talk.ack(&response, &[]);
    assert_eq!(
        talk.says(&fleet(&[(Cds, "a", 3)], &[])),
        NOTHING,
        "an empty list now means nothing"
    );
}

#[test]
fn g8_a_star_and_a_name_coexist() {
    let mut talk = Talk::sotw();
    talk.ask(Cds, &["*", "a"], "");
    let response = talk
        .stream
        .next(&fleet(&[(Cds, "a", 1), (Cds, "b", 1)], &[]))
        .unwrap();
    assert_eq!(shown(&response), "Cluster +a +b");
    talk.ack(&response, &["a"]);
    assert_eq!(
        talk.says(&fleet(&[(Cds, "a", 2), (Cds, "b", 2)], &[])),
        ["Cluster +a"]
    );
}

#[test]
fn g9_delta_legacy_wildcard_survives_a_name_and_ends_with_its_unsubscription() {
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &[]);
    assert_eq!(talk.says(&fleet(&[(Cds, "a", 1)], &[])), ["Cluster +a"]);
    talk.subscribe(Cds, &["b"]);
    assert_eq!(
        talk.says(&fleet(&[(Cds, "a", 2), (Cds, "b", 1)], &[])),
        ["Cluster +a +b"]
    );
    talk.unsubscribe(Cds, &["*", "unknown"]);
    assert_eq!(
        talk.says(&fleet(&[(Cds, "a", 3), (Cds, "b", 2)], &[])),
        ["Cluster +b"]
    );
}

#[test]
fn g10_what_the_wildcard_still_covers_is_sent_again_or_said_to_be_gone() {
    let state = fleet(&[(Cds, "a", 1)], &[]);
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &["*", "a", "b"]);
    assert_eq!(talk.says(&state), ["Cluster +a -b"]);
    talk.unsubscribe(Cds, &["a", "b"]);
    assert_eq!(talk.says(&state), ["Cluster +a -b"]);
}

#[test]
fn g16_the_first_wildcard_on_an_empty_set_is_answered() {
    for mut talk in [Talk::sotw(), Talk::delta()] {
        match talk.stream.transport {
            Transport::Sotw => talk.ask(Cds, &[], ""),
            Transport::Delta => talk.subscribe(Cds, &[]),
        };
        assert_eq!(talk.says(&fleet(&[], &[])), ["Cluster"]);
    }
}

#[test]
fn g17_a_client_that_has_everything_is_left_in_peace() {
    let state = fleet(
        &[(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1), (Rds, "l", 1)],
        &[],
    );
    let mut talk = Talk::delta();
    talk.reconnect(Cds, &[], &[("a", 1)]);
    talk.reconnect(Eds, &["a"], &[("a", 1)]);
    talk.reconnect(Lds, &[], &[("l", 1)]);
    talk.reconnect(Rds, &["l"], &[("l", 1)]);
    assert_eq!(talk.says(&state), NOTHING);
}

#[test]
fn bug_1_a_changed_cluster_takes_its_load_assignment_along() {
    let before = fleet(
        &[(Cds, "a", 1), (Cds, "b", 1), (Eds, "a", 1), (Eds, "b", 1)],
        &[],
    );
    let after = fleet(
        &[(Cds, "a", 2), (Cds, "b", 1), (Eds, "a", 1), (Eds, "b", 1)],
        &[],
    );
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &[]);
    talk.subscribe(Eds, &["a", "b"]);
    talk.says(&before);
    assert_eq!(
        talk.says(&after),
        ["Cluster +a", "ClusterLoadAssignment +a"],
        "and not the unchanged one's"
    );

    let mut talk = Talk::sotw();
    talk.ask(Cds, &[], "");
    talk.ask(Eds, &["a", "b"], "");
    talk.says(&before);
    assert_eq!(
        talk.says(&after),
        ["Cluster +a +b", "ClusterLoadAssignment +a"]
    );
}

#[test]
fn bug_2_nothing_waits_for_the_ack_of_a_warming_cluster() {
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &[]);
    talk.subscribe(Eds, &["a"]);
    talk.subscribe(Lds, &[]);
    talk.subscribe(Rds, &["l"]);
    let state = fleet(
        &[(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1), (Rds, "l", 1)],
        &[],
    );
    assert_eq!(
        talk.says(&state),
        [
            "Cluster +a",
            "ClusterLoadAssignment +a",
            "Listener +l",
            "RouteConfiguration +l"
        ]
    );
}

#[test]
fn bug_8_what_was_deleted_while_the_client_was_away_is_removed() {
    let mut talk = Talk::delta();
    talk.reconnect(Cds, &[], &[("a", 1), ("gone", 1)]);
    assert_eq!(talk.says(&fleet(&[(Cds, "a", 1)], &[])), ["Cluster -gone"]);
}

#[test]
fn bug_9_a_claimed_load_assignment_is_trusted_only_beside_its_unchanged_cluster() {
    let state = fleet(
        &[(Cds, "a", 2), (Cds, "b", 1), (Eds, "a", 1), (Eds, "b", 1)],
        &[],
    );
    let mut talk = Talk::delta();
    talk.reconnect(Cds, &[], &[("a", 1), ("b", 1)]);
    talk.reconnect(Eds, &["a", "b"], &[("a", 1), ("b", 1)]);
    assert_eq!(
        talk.says(&state),
        ["Cluster +a", "ClusterLoadAssignment +a"]
    );

    let mut talk = Talk::delta();
    talk.reconnect(Eds, &["b"], &[("b", 1)]);
    assert_eq!(
        talk.says(&state),
        ["ClusterLoadAssignment +b"],
        "no cluster vouches for it"
    );
}

#[test]
fn bug_11_a_name_given_up_and_taken_again_is_answered() {
    let state = fleet(&[(Eds, "a", 1), (Eds, "b", 1)], &[]);
    let mut talk = Talk::sotw();
    talk.ask(Eds, &["a", "b"], "");
    let first = talk.stream.next(&state).unwrap();
    talk.ack(&first, &["b"]);
    assert_eq!(talk.says(&state), NOTHING);
    talk.ask(Eds, &["a", "b"], &first.nonce);
    assert_eq!(talk.says(&state), ["ClusterLoadAssignment +a"]);

    let mut talk = Talk::delta();
    talk.subscribe(Eds, &["a"]);
    talk.says(&state);
    talk.subscribe(Eds, &["a"]);
    assert_eq!(
        talk.says(&state),
        ["ClusterLoadAssignment +a"],
        "delta answers every name that is asked for"
    );
}

#[test]
fn after_a_nack_there_is_silence_until_the_content_changes() {
    for mut talk in [Talk::sotw(), Talk::delta()] {
        match talk.stream.transport {
            Transport::Sotw => talk.ask(Eds, &["a", "b"], ""),
            Transport::Delta => talk.subscribe(Eds, &["a", "b"]),
        };
        let response = talk
            .stream
            .next(&fleet(&[(Eds, "a", 1), (Eds, "b", 1)], &[]))
            .unwrap();
        let Received::Nack(Eds, nack) = talk.nack(&response, &["a", "b"]) else {
            panic!("a NACK")
        };
        assert_eq!(
            (nack.message.as_str(), &nack.version),
            ("no", &response.version)
        );
        assert_eq!(
            talk.says(&fleet(&[(Eds, "a", 1), (Eds, "b", 1)], &[])),
            NOTHING
        );
        let status = talk.stream.status(Eds).unwrap();
        assert_eq!((status.acked_version, status.nack), (None, Some(nack)));
        let response = talk
            .stream
            .next(&fleet(&[(Eds, "a", 1), (Eds, "b", 2)], &[]))
            .unwrap();
        assert_eq!(
            shown(&response),
            "ClusterLoadAssignment +b",
            "only what has changed"
        );
        talk.ack(&response, &["a", "b"]);
        let status = talk.stream.status(Eds).unwrap();
        assert_eq!(status.acked_version, Some(response.version));
        assert!(status.nack.is_some(), "a is still not what it should be");
    }
}

#[test]
fn c1_additions_go_down_the_references_and_removals_up() {
    let old = fleet(
        &[(Cds, "a", 1), (Eds, "a", 1), (Lds, "l", 1), (Rds, "l", 1)],
        &[],
    );
    let new = fleet(
        &[(Cds, "b", 1), (Eds, "b", 1), (Lds, "m", 1), (Rds, "m", 1)],
        &[],
    );
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &[]);
    talk.subscribe(Lds, &[]);
    talk.subscribe(Eds, &["a", "b"]);
    talk.subscribe(Rds, &["l", "m"]);
    talk.says(&old);
    assert_eq!(
        talk.says(&new),
        [
            "Cluster +b",
            "ClusterLoadAssignment +b",
            "Listener +m -l",
            "RouteConfiguration +m",
            "RouteConfiguration -l",
            "ClusterLoadAssignment -a",
            "Cluster -a",
        ]
    );

    let mut talk = Talk::sotw();
    talk.ask(Cds, &[], "");
    talk.ask(Lds, &[], "");
    talk.says(&old);
    assert_eq!(
        talk.says(&new),
        ["Cluster +b +a", "Listener +m", "Cluster +b"],
        "a cluster that will go lingers until what refers to it has changed"
    );
}

#[test]
fn a_renamed_listener_leaves_in_the_response_that_brings_the_new_one() {
    // An Envoy refuses two listeners on one address, and after a refusal there is silence.
    let old = fleet(&[(Lds, "old", 1)], &[]);
    let new = fleet(&[(Lds, "new", 1)], &[]);
    let mut talk = Talk::delta();
    talk.subscribe(Lds, &[]);
    talk.says(&old);
    assert_eq!(talk.says(&new), ["Listener +new -old"]);
    assert_eq!(talk.says(&fleet(&[], &[])), ["Listener -new"]);
    let mut talk = Talk::sotw();
    talk.ask(Lds, &[], "");
    talk.says(&old);
    assert_eq!(talk.says(&new), ["Listener +new"]);
    assert_eq!(talk.says(&fleet(&[], &[])), ["Listener"]);
}

#[test]
fn no_cluster_is_removed_while_the_listeners_cannot_be_said() {
    let before = fleet(&[(Cds, "a", 1), (Cds, "b", 1), (Lds, "l", 1)], &[]);
    // The listener has turned from a to b, and another one is held.
    let during = fleet_holding(&[(Cds, "b", 1), (Lds, "l", 2)], &[(Lds, "held")]);
    let after = fleet(&[(Cds, "b", 1), (Lds, "l", 2), (Lds, "held", 1)], &[]);
    let mut talk = Talk::sotw();
    talk.ask(Cds, &[], "");
    talk.ask(Lds, &[], "");
    talk.says(&before);
    assert_eq!(talk.says(&during), NOTHING);
    assert_eq!(talk.says(&after), ["Listener +held +l", "Cluster +b"]);
}

#[test]
fn a_delta_refusal_stands_until_what_was_refused_is_sent_anew() {
    let nack_of = |talk: &mut Talk| {
        talk.stream
            .status(Eds)
            .unwrap()
            .nack
            .map(|nack| nack.message)
    };
    let mut talk = Talk::delta();
    talk.subscribe(Eds, &["a", "b"]);
    let first = talk
        .stream
        .next(&fleet(&[(Eds, "a", 1), (Eds, "b", 1)], &[]))
        .unwrap();
    talk.nack(&first, &[]);
    for (a, b, stands) in [(1, 2, true), (2, 2, false)] {
        let next = talk
            .stream
            .next(&fleet(&[(Eds, "a", a), (Eds, "b", b)], &[]))
            .unwrap();
        talk.ack(&next, &[]);
        assert_eq!(nack_of(&mut talk).is_some(), stands, "a {a}, b {b}");
    }
}

#[test]
fn a_sotw_refusal_counts_also_when_a_newer_response_is_on_its_way() {
    let mut talk = Talk::sotw();
    talk.ask(Eds, &["a"], "");
    let first = talk.stream.next(&fleet(&[(Eds, "a", 1)], &[])).unwrap();
    let second = talk.stream.next(&fleet(&[(Eds, "a", 2)], &[])).unwrap();
    assert!(matches!(talk.nack(&first, &["a"]), Received::Nack(Eds, _)));
    talk.ack(&second, &["a"]);
    assert_eq!(
        talk.stream.status(Eds).unwrap().nack,
        None,
        "the newer one was taken"
    );
}

#[test]
fn a_client_that_does_not_answer_gets_a_few_responses_and_then_the_newest() {
    for mut talk in [Talk::sotw(), Talk::delta()] {
        match talk.stream.transport {
            Transport::Sotw => talk.ask(Eds, &["a"], ""),
            Transport::Delta => talk.subscribe(Eds, &["a"]),
        };
        let sent: Vec<Response> = (0..100)
            .filter_map(|n| talk.stream.next(&fleet(&[(Eds, "a", n)], &[])))
            .collect();
        assert_eq!(sent.len(), MAX_UNANSWERED);
        let newest = fleet(&[(Eds, "a", 100)], &[]);
        assert_eq!(talk.says(&newest), NOTHING);
        talk.ack(&sent[0], &["a"]);
        assert_eq!(talk.says(&newest), ["ClusterLoadAssignment +a"]);
    }
}

#[test]
fn a_client_cannot_make_us_remember_names_of_its_invention() {
    let state = fleet(&[(Cds, "a", 1)], &[]);
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &[]);
    talk.says(&state);
    for n in 0..100 {
        let name = format!("invented-{n}");
        let request = delta_request(Cds, &[&name], &[&name], "");
        talk.stream.on_delta(request, UNIX_EPOCH).unwrap();
    }
    assert_eq!(talk.says(&state), NOTHING);
}

#[test]
fn a_held_load_assignment_is_neither_answered_nor_removed() {
    for mut talk in [Talk::sotw(), Talk::delta()] {
        match talk.stream.transport {
            Transport::Sotw => talk.ask(Eds, &["a"], ""),
            Transport::Delta => talk.subscribe(Eds, &["a"]),
        };
        assert_eq!(talk.says(&fleet(&[], &["a"])), NOTHING);
        assert_eq!(
            talk.says(&fleet(&[(Eds, "a", 1)], &[])),
            ["ClusterLoadAssignment +a"]
        );
        assert_eq!(talk.says(&fleet(&[], &["a"])), NOTHING);
    }
    let mut talk = Talk::delta();
    talk.reconnect(Eds, &["a"], &[("a", 1)]);
    assert_eq!(
        talk.says(&fleet(&[], &["a"])),
        NOTHING,
        "also for a client that has it from before"
    );
}

#[test]
fn a_whole_set_waits_for_what_is_held_so_that_an_omission_is_not_taken_for_a_deletion() {
    let holding = fleet_holding(&[(Lds, "old", 1)], &[(Lds, "new")]);
    let whole = fleet(&[(Lds, "old", 1), (Lds, "new", 1)], &[]);
    let mut talk = Talk::sotw();
    talk.ask(Lds, &[], "");
    assert_eq!(talk.says(&holding), NOTHING);
    assert_eq!(talk.says(&whole), ["Listener +new +old"]);
    assert_eq!(talk.says(&holding), NOTHING);
    let mut talk = Talk::delta();
    talk.reconnect(Lds, &[], &[("old", 1), ("new", 7)]);
    assert_eq!(talk.says(&holding), NOTHING, "what is held is not gone");
    assert_eq!(talk.says(&whole), ["Listener +new"]);
}

#[test]
fn an_unknown_load_assignment_is_answered_empty_so_that_no_cluster_warms_for_ever() {
    for mut talk in [Talk::sotw(), Talk::delta()] {
        match talk.stream.transport {
            Transport::Sotw => talk.ask(Eds, &["x"], ""),
            Transport::Delta => talk.subscribe(Eds, &["x"]),
        };
        let response = talk.stream.next(&fleet(&[], &[])).unwrap();
        assert_eq!(
            response.resources,
            [Arc::new(crate::resources::empty_assignment("x".into()))]
        );
        assert_eq!(
            talk.says(&fleet(&[(Cds, "other", 1)], &[])),
            NOTHING,
            "once"
        );
        assert_eq!(
            talk.says(&fleet(&[(Eds, "x", 1)], &[])),
            ["ClusterLoadAssignment +x"]
        );
    }
}

#[test]
fn d3_bug_7_a_missing_resource_is_said_to_be_missing_and_sent_when_it_comes() {
    let mut talk = Talk::delta();
    talk.subscribe(Cds, &["a"]);
    assert_eq!(talk.says(&fleet(&[], &[])), ["Cluster -a"]);
    assert_eq!(talk.says(&fleet(&[(Cds, "a", 1)], &[])), ["Cluster +a"]);
    assert_eq!(talk.says(&fleet(&[], &[])), ["Cluster -a"]);
    assert_eq!(talk.says(&fleet(&[(Cds, "a", 1)], &[])), ["Cluster +a"]);
}

#[test]
fn a_request_without_a_type_ends_the_stream_and_an_unknown_type_does_not() {
    let mut talk = Talk::sotw();
    assert_eq!(
        talk.stream.on_sotw(DiscoveryRequest::default(), UNIX_EPOCH),
        Err(Refusal::EmptyTypeUrl)
    );
    let unknown = DiscoveryRequest {
        type_url: "type.googleapis.com/x.Y".into(),
        ..DiscoveryRequest::default()
    };
    assert_eq!(
        talk.stream.on_sotw(unknown, UNIX_EPOCH),
        Ok(Received::UnknownType("type.googleapis.com/x.Y".into()))
    );
}

#[test]
fn g3_on_a_stream_of_one_type_requests_need_not_name_it_and_may_name_no_other() {
    let state = fleet(&[(Cds, "a", 1), (Eds, "a", 1)], &[]);
    let mut stream = Stream::of_type(Transport::Sotw, Eds);
    let request = |type_url: &str| DiscoveryRequest {
        type_url: type_url.into(),
        resource_names: strings(&["a"]),
        ..DiscoveryRequest::default()
    };
    assert_eq!(
        stream.on_sotw(request(""), UNIX_EPOCH),
        Ok(Received::Subscription(Eds))
    );
    assert_eq!(
        shown(&stream.next(&state).unwrap()),
        "ClusterLoadAssignment +a"
    );
    assert!(stream.on_sotw(request(Eds.type_url()), UNIX_EPOCH).is_ok());
    for foreign in [Cds.type_url(), "type.googleapis.com/x.Y"] {
        assert_eq!(
            stream.on_sotw(request(foreign), UNIX_EPOCH),
            Err(Refusal::ForeignType(Eds))
        );
    }
    let mut stream = Stream::of_type(Transport::Delta, Cds);
    assert_eq!(
        stream.on_delta(DeltaDiscoveryRequest::default(), UNIX_EPOCH),
        Ok(Received::Subscription(Cds))
    );
    assert_eq!(shown(&stream.next(&state).unwrap()), "Cluster +a");
}

#[test]
fn more_names_than_a_stream_may_hold_end_it() {
    let names: Vec<String> = (0..=MAX_NAMES).map(|n| n.to_string()).collect();
    let request = DiscoveryRequest {
        type_url: Eds.type_url().into(),
        resource_names: names.clone(),
        ..DiscoveryRequest::default()
    };
    assert_eq!(
        Stream::new(Transport::Sotw).on_sotw(request, UNIX_EPOCH),
        Err(Refusal::TooManyNames)
    );
    let mut stream = Stream::new(Transport::Delta);
    for half in names.chunks(MAX_NAMES / 2) {
        let request = DeltaDiscoveryRequest {
            type_url: Eds.type_url().into(),
            resource_names_subscribe: half.to_vec(),
            ..DeltaDiscoveryRequest::default()
        };
        if let Err(refusal) = stream.on_delta(request, UNIX_EPOCH) {
            assert_eq!(refusal, Refusal::TooManyNames);
            return;
        }
    }
    panic!("the limit holds over several requests too");
}

#[test]
fn a_large_set_is_sent_in_parts_where_the_protocol_allows() {
    let names: Vec<String> = (0..400).map(|n| format!("{n:04000}")).collect();
    let all: Vec<_> = names.iter().map(|name| (Eds, name.as_str(), 1)).collect();
    let state = fleet(&all, &[]);
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut talk = Talk::delta();
    talk.subscribe(Eds, &wanted);
    let parts: Vec<Response> = std::iter::from_fn(|| talk.stream.next(&state)).collect();
    assert!(parts.len() > 1);
    assert_eq!(
        parts.iter().map(|part| part.resources.len()).sum::<usize>(),
        names.len()
    );
}

#[test]
fn endpoints_apart_are_for_envoys_that_speak_delta_alone() {
    let leds = ResourceType::LbEndpoint;
    let unknown = Received::UnknownType(leds.type_url().into());
    let mut talk = Talk::sotw();
    talk.stream.take_collections();
    assert_eq!(talk.ask(leds, &["xdstp://vitals/x/*"], ""), unknown);
    let mut talk = Talk::delta();
    assert_eq!(talk.subscribe(leds, &["xdstp://vitals/x/*"]), unknown);
    talk.stream.take_collections();
    let received = talk.subscribe(leds, &["xdstp://vitals/x/*"]);
    assert_eq!(received, Received::Subscription(leds));
    let status = talk.stream.status(leds).unwrap();
    assert_eq!(*status.interest.names, ["xdstp://vitals/x/*".into()]);
}

/// A fleet with a cluster `a` whose one endpoint stands apart, and a route in this revision.
fn fleet_apart(route: u32, before: &FleetSnapshot) -> FleetSnapshot {
    let glob = "xdstp://vitals/x/a/*";
    let entry = resource(ResourceType::LbEndpoint, "xdstp://vitals/x/a/1", 1);
    let collection = Collection::new(glob.into(), [entry]);
    let apart = resource(Eds, "a", 1);
    let plain = || unreachable!("nobody asks for the plain form");
    let assignment = Assignment::apart(apart, vec![Arc::new(collection)], plain);
    fleet(&[(Cds, "a", 1), (Eds, "a", 1), (Rds, "r", route)], &[])
        .with_collections(vec![Arc::new(assignment)])
        .following(before)
}

#[test]
fn a_route_goes_out_after_the_endpoints_that_a_new_load_assignment_names() {
    for refuses in [false, true] {
        let mut talk = Talk::delta();
        talk.stream.take_collections();
        let held = fleet(&[(Cds, "a", 1), (Rds, "r", 1)], &["a"]);
        let held = held.with_collections(Vec::new());
        talk.subscribe(Cds, &[]);
        talk.subscribe(Eds, &["a"]);
        talk.subscribe(Rds, &["r"]);
        for kind in [Cds, Rds] {
            let response = talk.stream.next(&held).unwrap();
            assert_eq!(response.kind, kind);
            talk.ack(&response, &[]);
        }
        let fleet = fleet_apart(2, &held);
        let assignment = talk.stream.next(&fleet).unwrap();
        assert_eq!(assignment.kind, Eds);
        assert_eq!(talk.stream.next(&fleet), None, "the route waits");
        if refuses {
            talk.nack(&assignment, &[]);
        } else {
            // In the order of an Envoy.
            talk.subscribe(ResourceType::LbEndpoint, &["xdstp://vitals/x/a/*"]);
            let endpoints = talk.stream.next(&fleet).unwrap();
            assert_eq!(endpoints.kind, ResourceType::LbEndpoint);
            assert_eq!(talk.stream.next(&fleet), None, "until the answer");
            talk.ack(&assignment, &[]);
        }
        assert_eq!(talk.stream.next(&fleet).unwrap().kind, Rds);
        assert_eq!(talk.stream.next(&fleet), None);
    }
}

#[test]
fn a_route_does_not_wait_for_load_assignments_that_name_nothing_new() {
    let mut talk = Talk::delta();
    talk.stream.take_collections();
    let before = fleet(&[(Rds, "r", 1)], &[]).with_collections(Vec::new());
    talk.subscribe(Eds, &["a", "b"]);
    talk.subscribe(Rds, &["r"]);
    let entry = resource(ResourceType::LbEndpoint, "xdstp://vitals/x/a/1", 1);
    let collection = Arc::new(Collection::new("xdstp://vitals/x/a/*".into(), [entry]));
    let named = |other: u32, before: &FleetSnapshot| {
        let plain = || unreachable!("nobody asks for the plain form");
        let a = Assignment::apart(resource(Eds, "a", 1), vec![Arc::clone(&collection)], plain);
        let b = Assignment::apart(resource(Eds, "b", other), Vec::new(), plain);
        fleet(&[(Eds, "a", 1), (Eds, "b", other), (Rds, "r", 1)], &[])
            .with_collections(vec![Arc::new(a), Arc::new(b)])
            .following(before)
    };
    let first = named(1, &before);
    let names_it = talk.stream.next(&first).unwrap();
    talk.subscribe(ResourceType::LbEndpoint, &["xdstp://vitals/x/a/*"]);
    assert_eq!(
        talk.stream.next(&first).unwrap().kind,
        ResourceType::LbEndpoint
    );
    // Another load assignment changes again and again, faster than the client answers.
    let second = named(2, &first);
    let another = talk.stream.next(&second).unwrap();
    assert_eq!(another.kind, Eds);
    assert_eq!(talk.stream.next(&second), None, "the route waits");
    talk.ack(&names_it, &[]);
    assert_eq!(talk.stream.next(&second).unwrap().kind, Rds);
}

/// A fleet with a route and these load assignments, each as large as a response may be.
fn fleet_of_large(route: u32, revisions: &[(&str, u8)], before: &FleetSnapshot) -> FleetSnapshot {
    let large = |(name, revision): &(&str, u8)| {
        let mut bytes = vec![0x7a, 0x80, 0x80, 0x40];
        bytes.resize(4 + RESPONSE_BYTES, *revision);
        Arc::new(Resource::encoded(Eds, (*name).into(), bytes, Vec::new()))
    };
    let route = resource(Rds, "r", route);
    let resources = revisions.iter().map(large).chain([route]);
    let edge = Name::new("edge").unwrap();
    let held = BTreeSet::new();
    FleetSnapshot::new(edge, NodeMatcher::default(), resources, held)
        .unwrap()
        .following(before)
}

#[test]
fn a_load_assignment_that_changes_all_the_time_keeps_no_other_waiting() {
    let mut talk = Talk::delta();
    let mut now = fleet(&[], &[]);
    talk.subscribe(Eds, &["a", "z"]);
    let mut sent = BTreeSet::new();
    // It changes as often as the client can take a response.
    for revision in 0..4 {
        now = fleet_of_large(0, &[("a", revision), ("z", 0)], &now);
        let response = talk.stream.next(&now).unwrap();
        sent.extend(response.resources.iter().map(|r| r.name().to_string()));
        talk.ack(&response, &[]);
    }
    assert_eq!(sent, ["a".to_owned(), "z".to_owned()].into());
}

#[test]
fn a_load_assignment_that_changes_all_the_time_keeps_no_route_waiting() {
    let mut talk = Talk::delta();
    let mut now = fleet_of_large(1, &[("a", 0)], &fleet(&[], &[]));
    talk.subscribe(Eds, &["a"]);
    talk.subscribe(Rds, &["r"]);
    while let Some(response) = talk.stream.next(&now) {
        talk.ack(&response, &[]);
    }
    let mut kinds = Vec::new();
    for revision in 1..4 {
        now = fleet_of_large(2, &[("a", revision)], &now);
        let response = talk.stream.next(&now).unwrap();
        kinds.push(response.kind);
        talk.ack(&response, &[]);
    }
    assert!(kinds.contains(&Rds), "{kinds:?}");
}

#[test]
fn endpoints_that_change_all_the_time_keep_no_removal_waiting() {
    let mut talk = Talk::delta();
    let both = [(Cds, "a", 1), (Cds, "b", 1), (Eds, "a", 1)];
    let first = fleet(&both, &[]);
    talk.subscribe(Cds, &[]);
    talk.subscribe(Eds, &["a"]);
    while let Some(response) = talk.stream.next(&first) {
        talk.ack(&response, &[]);
    }
    // A client that answers slower than they change: it is at its limit whenever it is looked at.
    let mut now = first;
    let mut removed = false;
    for revision in 2..40 {
        now = fleet(&[(Cds, "a", 1), (Eds, "a", revision)], &[]).following(&now);
        let response = talk.stream.next(&now);
        removed |= response.is_some_and(|response| !response.removed.is_empty());
    }
    assert!(removed, "the cluster is gone");
    let nonce = |response: Response| response.nonce;
    assert_eq!(talk.stream.next(&now).map(nonce), None, "the limit holds");
}

#[test]
fn a_route_waits_for_a_load_assignment_that_is_withheld_until_an_answer() {
    let mut talk = Talk::delta();
    talk.subscribe(Eds, &["a"]);
    talk.subscribe(Rds, &["r"]);
    let mut now = fleet(&[(Eds, "a", 1), (Rds, "r", 1)], &[]);
    let mut last = None;
    for revision in 2..40 {
        while let Some(response) = talk.stream.next(&now) {
            match response.kind {
                Eds => last = Some(response),
                _ => drop(talk.ack(&response, &[])),
            }
        }
        now = fleet(&[(Eds, "a", revision), (Rds, "r", 1)], &[]).following(&now);
    }
    assert!(talk.stream.waits_for_answers());
    // A new cluster, for which it asks, and a route to it.
    talk.subscribe(Eds, &["b"]);
    let now = fleet(&[(Eds, "a", 1), (Eds, "b", 1), (Rds, "r", 2)], &[]).following(&now);
    assert_eq!(talk.stream.next(&now), None);
    talk.ack(&last.unwrap(), &[]);
    let kinds: Vec<_> = std::iter::from_fn(|| talk.stream.next(&now)).collect();
    let kinds: Vec<_> = kinds.iter().map(|response| response.kind).collect();
    assert_eq!(kinds, [Eds, Rds]);
}
