use std::time::SystemTime;

use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use envoy_types::pb::google::protobuf::Any;

use super::*;
use crate::health::{DetailedStatus, Routing, Rule};
use crate::model::{GroupKind, Protocol};
use crate::resources::assignment as plain_assignment;
use EdsStatus::{Healthy, Unhealthy};
use Pool::{Failover, Primary};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn endpoint(group: &str, region: &str, address: &str, pool: Pool) -> EndpointView {
    EndpointView {
        group: Arc::new(EndpointGroup {
            name: name(group),
            kind: GroupKind::NonGcpPrivateIpPort,
            locality: Locality {
                region: region.into(),
                zone: "".into(),
            },
            endpoints: Vec::new(),
        }),
        address: address.parse().unwrap(),
        pool,
        by: None,
        probe_address: None,
        weight: Some(3),
        status: Some(Healthy),
        detailed: DetailedStatus::Healthy,
        reason: None,
        since: SystemTime::UNIX_EPOCH,
        rule: Rule::NoCheck,
        pinned: None,
        votes: Box::default(),
    }
}

fn view(endpoints: impl IntoIterator<Item = EndpointView>) -> Arc<ServiceView> {
    Arc::new(ServiceView {
        endpoints: endpoints.into_iter().map(Arc::new).collect(),
        ..ServiceView::default()
    })
}

/// Two in group `dc1`, one in `dc2`, which is a failover backend.
fn three() -> [EndpointView; 3] {
    [
        endpoint("dc1", "eu", "192.0.2.1:80", Primary),
        endpoint("dc1", "eu", "[2001:db8::1]:80", Primary),
        endpoint("dc2", "", "192.0.2.3:80", Failover),
    ]
}

/// The same view, one endpoint of another status; all others are the same values.
fn flipped(view: &ServiceView, place: usize, status: EdsStatus) -> Arc<ServiceView> {
    let mut new = view.clone();
    let endpoint = EndpointView::clone(&new.endpoints[place]);
    new.endpoints[place] = Arc::new(EndpointView {
        status: Some(status),
        ..endpoint
    });
    Arc::new(new)
}

struct Stage {
    service: Arc<Service>,
    paths: Paths,
}

impl Stage {
    fn new() -> Self {
        Self {
            service: Arc::new(Service::new(name("shop"), Protocol::Http)),
            paths: Paths::new("gen".into()),
        }
    }

    fn render(&mut self, before: Option<&Endpoints>, view: &Arc<ServiceView>) -> Endpoints {
        Endpoints::render(before, &self.service, view, &mut self.paths)
    }
}

fn message(resource: &Resource) -> ClusterLoadAssignment {
    let any = Any::decode(&**resource.any()).unwrap();
    ClusterLoadAssignment::decode(&*any.value).unwrap()
}

/// The globs of a load assignment by priority and region.
fn globs(assignment: &Resource) -> Vec<(u32, String, String)> {
    let of = |locality: LocalityLbEndpoints| {
        assert!(locality.lb_endpoints.is_empty(), "Envoy refuses both");
        let region = locality.locality.unwrap().region;
        match locality.lb_config {
            Some(LbConfig::LedsClusterLocalityConfig(config)) => {
                assert_eq!(config.leds_config, Some(ads()));
                (locality.priority, region, config.leds_collection_name)
            }
            other => panic!("{other:?}"),
        }
    };
    message(assignment).endpoints.into_iter().map(of).collect()
}

const DC1: &str = "xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/gen.1/shop/dc1/eu./*";
const DC2: &str = "xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/gen.2/shop/dc2/*";

#[test]
fn each_group_is_a_collection_that_the_load_assignment_names() {
    let mut stage = Stage::new();
    let endpoints = stage.render(None, &view(three()));
    assert_eq!(
        globs(&endpoints.assignment(&[])),
        [(0, "eu".into(), DC1.into()), (1, "".into(), DC2.into())]
    );
    let names: Vec<&str> = endpoints
        .collections()
        .flat_map(|collection| collection.entries().keys())
        .map(|name| name.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(names, ["192.0.2.1-80", "2001_db8__1-80", "192.0.2.3-80"]);
}

#[test]
fn an_endpoint_says_the_same_in_both_forms() {
    let mut stage = Stage::new();
    let view = view(three());
    let endpoints = stage.render(None, &view);
    let apart: Vec<LbEndpoint> = endpoints
        .collections()
        .flat_map(|collection| collection.entries().values())
        .map(|entry| {
            let any = Any::decode(&**entry.any()).unwrap();
            assert_eq!(any.type_url, ResourceType::LbEndpoint.type_url());
            LbEndpoint::decode(&*any.value).unwrap()
        })
        .collect();
    let plain = message(&plain_assignment(&stage.service, &view, &[]));
    let localities = plain.endpoints.iter();
    let plain_endpoints: Vec<_> = localities.flat_map(|l| l.lb_endpoints.clone()).collect();
    assert_eq!(apart, plain_endpoints);
    assert_eq!(message(&endpoints.assignment(&[])).policy, plain.policy);
}

#[test]
fn a_flip_changes_one_entry_and_nothing_else() {
    let mut stage = Stage::new();
    let before = view(three());
    let old = stage.render(None, &before);
    let new = stage.render(Some(&old), &flipped(&before, 1, Unhealthy));
    assert!(!new.is_same_as(&old));
    assert_eq!(new.assignment(&[]).version(), old.assignment(&[]).version());
    let [(old_one, new_one), (old_two, new_two)] =
        &old.collections().zip(new.collections()).collect::<Vec<_>>()[..]
    else {
        panic!("two groups");
    };
    assert!(Arc::ptr_eq(old_two, new_two), "not touched");
    let since = new_one.log().since(&old_one.log().cursor()).unwrap();
    assert_eq!(since.count(), 1);
    let kept = (old_one.entries().iter())
        .filter(|(name, entry)| Arc::ptr_eq(entry, &new_one.entries()[*name]));
    assert_eq!(kept.count(), 1, "of two");
    // And nothing where what is published is the same.
    let same = stage.render(Some(&new), &flipped(&new.view, 1, Unhealthy));
    assert!(same.is_same_as(&new));
}

#[test]
fn h2_an_exchange_of_pools_changes_the_load_assignment_alone() {
    let mut stage = Stage::new();
    let before = view(three());
    let old = stage.render(None, &before);
    let exchanged = ServiceView {
        routing: Routing {
            active: Failover,
            open: false,
        },
        ..ServiceView::clone(&before)
    };
    let new = stage.render(Some(&old), &Arc::new(exchanged));
    assert!(new.is_same_as(&old));
    assert_eq!(
        globs(&new.assignment(&[])),
        [(0, "".into(), DC2.into()), (1, "eu".into(), DC1.into())]
    );
}

#[test]
fn what_comes_and_goes_changes_the_collection_and_a_reload_keeps_the_rest() {
    let mut stage = Stage::new();
    let old = stage.render(None, &view(three()));
    // A reload makes all values anew.
    stage.service = Arc::new(Service::new(name("shop"), Protocol::Http));
    let [one, _, three] = three();
    let four = endpoint("dc1", "eu", "192.0.2.4:80", Primary);
    let new = stage.render(Some(&old), &view([four, one, three]));
    let collections: Vec<_> = old.collections().zip(new.collections()).collect();
    let (old_one, new_one) = collections[0];
    assert_eq!(old_one.glob(), new_one.glob());
    assert_eq!(new_one.entries().len(), 2);
    assert_eq!(new_one.left().len(), 1);
    assert_eq!(
        new_one
            .log()
            .since(&old_one.log().cursor())
            .unwrap()
            .count(),
        2
    );
    assert!(Arc::ptr_eq(collections[1].0, collections[1].1));
}

#[test]
fn a_group_of_which_nothing_is_told_is_left_out_and_comes_back_under_another_path() {
    let mut stage = Stage::new();
    let first = stage.render(None, &view(three()));
    let mut stopped = three();
    stopped[2].status = None;
    let second = stage.render(Some(&first), &view(stopped));
    assert_eq!(globs(&second.assignment(&[])).len(), 1);
    let third = stage.render(Some(&second), &view(three()));
    let globs = globs(&third.assignment(&[]));
    assert_eq!(globs[1].2, DC2.replace("gen.2", "gen.3"));
}

#[test]
fn a_worn_collection_gets_a_new_path() {
    let mut stage = Stage::new();
    let all = |hosts: std::ops::Range<u8>| {
        view(hosts.map(|host| endpoint("dc2", "", &format!("192.0.2.{host}:80"), Primary)))
    };
    let first = stage.render(None, &all(0..100));
    let second = stage.render(Some(&first), &all(60..100));
    let glob = |of: &Endpoints| of.collections().next().unwrap().glob().to_string();
    assert_eq!(
        glob(&second),
        glob(&first),
        "60 have left, and 40 are there"
    );
    let third = stage.render(Some(&second), &all(65..100));
    assert_eq!(glob(&third), DC2);
    let collection = third.collections().next().unwrap();
    assert_eq!(
        (collection.entries().len(), collection.left().len()),
        (35, 0)
    );
}

#[test]
fn a_path_has_no_letters_that_mean_something_in_a_url() {
    let mut stage = Stage::new();
    let endpoints = stage.render(
        None,
        &view([endpoint("a", "x/?*", "192.0.2.1:80", Primary)]),
    );
    let (_, region, glob) = globs(&endpoints.assignment(&[])).remove(0);
    assert_eq!(region, "x/?*");
    assert!(glob.ends_with("/shop/a/x___./*"), "{glob}");
}
