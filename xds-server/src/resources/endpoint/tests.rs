use std::net::SocketAddr;
use std::time::SystemTime;

use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use vitals_prober::check::{HealthCheckSpec, HttpSpec, Kind};

use super::*;
use crate::health::{DetailedStatus, Pool, Routing, Rule};
use crate::model::{
    Backend, EndpointGroup, GroupKind, Name, NamedCheck, ProbedBy, Protocol as ServiceProtocol,
    WhenAllUnhealthy,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn group(of: &str, region: &str, zone: &str) -> Arc<EndpointGroup> {
    Arc::new(EndpointGroup {
        name: name(of),
        kind: GroupKind::NonGcpPrivateIpPort,
        locality: Locality {
            region: region.into(),
            zone: zone.into(),
        },
        endpoints: Vec::new(),
    })
}

fn service(check: Option<HealthCheckSpec>, by: ProbedBy) -> Service {
    Service {
        check: check.map(|spec| NamedCheck {
            name: name("web"),
            check: Arc::new(HealthCheck::new(spec).unwrap()),
        }),
        backends: vec![Backend {
            group: group("dc1", "", ""),
            capacity: 1.0,
            failover: false,
            by,
        }],
        ..Service::new(name("shop"), ServiceProtocol::Http)
    }
}

fn endpoint(host: u8, region: &str, pool: Pool, status: EdsStatus) -> EndpointView {
    EndpointView {
        group: group("dc1", region, ""),
        address: SocketAddr::from(([127, 0, 0, host], 80)),
        pool,
        by: None,
        probe_address: None,
        weight: Some(1),
        status: Some(status),
        detailed: DetailedStatus::Healthy,
        reason: None,
        since: SystemTime::UNIX_EPOCH,
        rule: Rule::NoCheck,
        pinned: None,
        votes: Box::default(),
    }
}

fn decoded(resource: &Resource) -> ClusterLoadAssignment {
    let any = Any::decode(&**resource.any()).unwrap();
    ClusterLoadAssignment::decode(&*any.value).unwrap()
}

/// The last octets of the endpoints by priority.
fn priorities(view: &ServiceView, order: &[&str]) -> Vec<(u32, Vec<u8>)> {
    let order: Vec<Arc<str>> = order.iter().map(|&region| region.into()).collect();
    let shop = service(None, ProbedBy::PROBERS);
    let message = decoded(&assignment(&shop, view, &order));
    let mut priorities: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for locality in &message.endpoints {
        for endpoint in &locality.lb_endpoints {
            let text = format!("{endpoint:?}");
            let host = text.split("127.0.0.").nth(1).unwrap();
            let host = host.split('"').next().unwrap().parse().unwrap();
            priorities.entry(locality.priority).or_default().push(host);
        }
    }
    priorities.into_iter().collect()
}

fn view(active: Pool, open: bool, endpoints: Vec<EndpointView>) -> ServiceView {
    ServiceView {
        held: false,
        routing: Routing { active, open },
        leaves_out_draining: open,
        endpoints: endpoints.into_iter().map(Arc::new).collect(),
        ..ServiceView::default()
    }
}

use EdsStatus::{Draining, Healthy, Unhealthy};
use Pool::{Failover, Primary};

#[test]
fn h2_the_active_pool_is_priority_0_and_the_other_1() {
    let endpoints = vec![
        endpoint(1, "a", Primary, Healthy),
        endpoint(2, "b", Primary, Unhealthy),
        endpoint(3, "a", Failover, Healthy),
    ];
    assert_eq!(
        priorities(&view(Primary, false, endpoints.clone()), &[]),
        [(0, vec![1, 2]), (1, vec![3])]
    );
    assert_eq!(
        priorities(&view(Failover, false, endpoints), &[]),
        [(0, vec![3]), (1, vec![1, 2])]
    );
}

#[test]
fn s6_h6_draining_endpoints_are_not_published_where_envoy_would_panic_over_them_alone() {
    let mut weightless = endpoint(2, "a", Primary, Draining);
    weightless.weight = None;
    let drained = view(
        Primary,
        false,
        vec![endpoint(1, "a", Primary, Draining), weightless],
    );
    let published = |service: &Service, view: &ServiceView| {
        let mut view = view.clone();
        view.leaves_out_draining = view.has_to_leave_out_draining(service);
        let message = decoded(&assignment(service, &view, &[]));
        let endpoints = message.endpoints.iter().map(|l| l.lb_endpoints.len());
        endpoints.sum::<usize>()
    };
    let mut shop = service(None, ProbedBy::PROBERS);
    assert_eq!(published(&shop, &drained), 2, "FAIL_CLOSED never panics");
    shop.when_all_unhealthy = WhenAllUnhealthy::FailOpen;
    assert_eq!(published(&shop, &drained), 0);
    let mut one_left = drained.clone();
    let healthy = endpoint(3, "a", Primary, Healthy);
    one_left.endpoints.push(Arc::new(healthy));
    assert_eq!(published(&shop, &one_left), 3);
    // H3: with failover backends theirs is the word.
    for (drop_traffic_if_unhealthy, count) in [(true, 2), (false, 0)] {
        shop.failover = Some(crate::model::Failover {
            ratio: 0.0,
            failback_ratio: 0.0,
            drop_traffic_if_unhealthy,
        });
        assert_eq!(published(&shop, &drained), count);
    }
}

#[test]
fn no_gap_is_left_where_the_active_pool_publishes_nobody() {
    let mut stopped = endpoint(1, "a", Primary, Healthy);
    stopped.status = None;
    let endpoints = vec![stopped, endpoint(2, "a", Failover, Healthy)];
    assert_eq!(
        priorities(&view(Primary, false, endpoints), &[]),
        [(0, vec![2])]
    );
}

#[test]
fn h3_h6_when_none_is_healthy_all_share_the_traffic_but_those_that_drain() {
    let mut weightless = endpoint(4, "b", Failover, Draining);
    weightless.weight = None;
    let endpoints = vec![
        endpoint(1, "a", Primary, Unhealthy),
        endpoint(2, "b", Failover, Unhealthy),
        endpoint(3, "a", Primary, Draining),
        weightless,
    ];
    let open = view(Failover, true, endpoints.clone());
    assert_eq!(priorities(&open, &["b", "a"]), [(0, vec![1, 2])]);
    let closed = view(Primary, false, endpoints);
    assert_eq!(priorities(&closed, &[]), [(0, vec![1, 3]), (1, vec![2, 4])]);
}

#[test]
fn h10_regions_stand_in_line_within_each_pool_and_unlisted_ones_last() {
    let endpoints = vec![
        endpoint(1, "far", Primary, Healthy),
        endpoint(2, "near", Primary, Healthy),
        endpoint(3, "elsewhere", Primary, Healthy),
        endpoint(4, "", Primary, Healthy),
        endpoint(5, "near", Failover, Healthy),
    ];
    assert_eq!(
        priorities(
            &view(Primary, false, endpoints.clone()),
            &["near", "unknown", "far"]
        ),
        [(0, vec![2]), (1, vec![1]), (2, vec![4, 3]), (3, vec![5])]
    );
    assert_eq!(
        priorities(&view(Failover, false, endpoints), &["near"]),
        [(0, vec![5]), (1, vec![2]), (2, vec![4, 3, 1])]
    );
}

#[test]
fn no_priority_is_greater_than_envoys_greatest() {
    let endpoints = (0..200_u8)
        .map(|host| endpoint(host, &format!("r{host}"), Primary, Healthy))
        .collect();
    let order: Vec<String> = (0..200).map(|n| format!("r{n}")).collect();
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    let priorities = priorities(&view(Primary, false, endpoints), &order);
    assert_eq!(priorities.len(), 128);
    assert_eq!(priorities.last().unwrap().1.len(), 200 - 127);
}

fn config(shop: &Service, change: impl FnOnce(&mut EndpointView)) -> Option<HealthCheckConfig> {
    let mut endpoint = endpoint(1, "a", Primary, Healthy);
    endpoint.by = Some(ProbedBy::ENVOYS);
    endpoint.probe_address = Some(endpoint.address);
    change(&mut endpoint);
    let mut message = decoded(&assignment(
        shop,
        &view(Primary, false, vec![endpoint]),
        &[],
    ));
    let lb_endpoint = message.endpoints.remove(0).lb_endpoints.remove(0);
    match lb_endpoint.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => endpoint.health_check_config,
        other => panic!("{other:?}"),
    }
}

fn with_host(kind: Kind) -> HealthCheckSpec {
    HealthCheckSpec {
        http: HttpSpec {
            host: Some("app.example".into()),
            ..HttpSpec::default()
        },
        ..HealthCheckSpec::of(kind)
    }
}

#[test]
fn an_endpoint_says_of_checks_only_what_envoy_would_not_know() {
    let by_probers = service(Some(HealthCheckSpec::of(Kind::Http)), ProbedBy::PROBERS);
    assert_eq!(config(&by_probers, |_| {}), None);
    for spec in [HealthCheckSpec::of(Kind::Tcp), with_host(Kind::Http)] {
        let by_envoys = service(Some(spec), ProbedBy::ENVOYS);
        assert_eq!(config(&by_envoys, |_| {}), None);
    }
}

#[test]
fn p7_without_a_host_each_endpoint_has_its_address_and_port() {
    let shop = service(Some(HealthCheckSpec::of(Kind::Http)), ProbedBy::BOTH);
    assert_eq!(config(&shop, |_| {}).unwrap().hostname, "127.0.0.1:80");
    let probed = |endpoint: &mut EndpointView| {
        endpoint.probe_address = Some("[2001:db8::1]:9000".parse().unwrap());
    };
    assert_eq!(
        config(&shop, probed).unwrap().hostname,
        "[2001:db8::1]:9000"
    );
}

#[test]
fn p3_another_port_or_interface_is_probed() {
    let shop = service(Some(with_host(Kind::Http)), ProbedBy::ENVOYS);
    let at = |text: &'static str| {
        config(&shop, |endpoint| {
            endpoint.probe_address = Some(text.parse().unwrap())
        })
        .unwrap()
    };
    let port = at("127.0.0.1:9000");
    assert_eq!((port.port_value, port.address), (9000, None));
    let interface = at("127.0.0.9:80");
    assert_eq!(interface.port_value, 80);
    assert_eq!(
        interface.address,
        Some(address("127.0.0.9:80".parse().unwrap()))
    );
}

#[test]
fn an_endpoint_that_envoys_do_not_check_says_so_where_they_check_others() {
    let shop = service(Some(HealthCheckSpec::of(Kind::Http)), ProbedBy::ENVOYS);
    for by in [Some(ProbedBy::PROBERS), None] {
        let config = config(&shop, |endpoint| endpoint.by = by).unwrap();
        let only_that = HealthCheckConfig {
            disable_active_health_check: true,
            ..HealthCheckConfig::default()
        };
        assert_eq!(config, only_that, "design 5.2");
    }
}

#[test]
fn what_is_encoded_in_parts_is_the_message_byte_for_byte() {
    let shop = service(Some(HealthCheckSpec::of(Kind::Http)), ProbedBy::ENVOYS);
    let at = |group: &Arc<EndpointGroup>, address: &str, weight, status| {
        let mut endpoint = endpoint(1, "", Primary, Healthy);
        endpoint.group = Arc::clone(group);
        endpoint.address = address.parse().unwrap();
        endpoint.weight = weight;
        endpoint.status = status;
        endpoint
    };
    let (a, b) = (group("a", "r", "z2"), group("b", "r", "z1"));
    let mut spare = at(&b, "10.0.0.4:80", Some(2), Some(Healthy));
    spare.pool = Failover;
    spare.by = Some(ProbedBy::ENVOYS);
    let endpoints = vec![
        at(&a, "10.0.0.1:80", Some(1), Some(Healthy)),
        at(&b, "[2001:db8::1]:80", None, Some(Draining)),
        at(&a, "10.0.0.2:80", Some(300), Some(EdsStatus::Timeout)),
        at(&a, "10.0.0.3:80", Some(1), None),
        spare,
    ];
    let resource = assignment(&shop, &view(Primary, false, endpoints), &[]);
    let bytes = Any::decode(&**resource.any()).unwrap().value;
    let message = ClusterLoadAssignment::decode(&*bytes).unwrap();
    assert_eq!(message.encode_to_vec(), bytes);

    assert_eq!(message.cluster_name, "shop");
    let factor = message.policy.unwrap().overprovisioning_factor;
    assert_eq!(factor.unwrap().value, OVERPROVISIONING_FACTOR);
    let seen: Vec<_> = message
        .endpoints
        .iter()
        .map(|of| {
            let zone = of.locality.as_ref().unwrap().zone.clone();
            let status = |e: &LbEndpoint| (e.health_status(), e.load_balancing_weight.is_some());
            let statuses: Vec<_> = of.lb_endpoints.iter().map(status).collect();
            (of.priority, zone, statuses)
        })
        .collect();
    use super::core::HealthStatus;
    assert_eq!(
        seen,
        [
            (0, "z1".into(), vec![(HealthStatus::Draining, false)]),
            (
                0,
                "z2".into(),
                vec![(HealthStatus::Healthy, true), (HealthStatus::Timeout, true)]
            ),
            (1, "z1".into(), vec![(HealthStatus::Healthy, true)]),
        ]
    );
    let of = &message.endpoints.first().unwrap().lb_endpoints;
    let told = of.first().unwrap().metadata.as_ref().unwrap();
    assert_eq!(told, &metadata(&b.name));
}
