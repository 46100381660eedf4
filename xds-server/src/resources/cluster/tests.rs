use std::sync::Arc;

use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message;
use vitals_prober::check::{HealthCheck, HealthCheckSpec, Kind};

use super::*;
use crate::model::{
    Backend, EndpointGroup, Failover, GroupKind, Locality, Name, NamedCheck, ProbedBy,
    UpstreamRoots, UpstreamTls, WhenAllUnhealthy,
};

fn service(protocol: Protocol) -> Service {
    Service::new(Name::new("shop").unwrap(), protocol)
}

fn checked(protocol: Protocol, kind: Kind, by: ProbedBy) -> Service {
    let group = EndpointGroup {
        name: Name::new("dc1").unwrap(),
        kind: GroupKind::NonGcpPrivateIpPort,
        locality: Locality::default(),
        endpoints: Vec::new(),
    };
    let check = HealthCheck::new(HealthCheckSpec {
        unhealthy_threshold: Some(1),
        ..HealthCheckSpec::of(kind)
    });
    Service {
        check: Some(NamedCheck {
            name: Name::new("web").unwrap(),
            check: Arc::new(check.unwrap()),
        }),
        backends: vec![Backend {
            group: Arc::new(group),
            capacity: 1.0,
            failover: false,
            by,
        }],
        ..service(protocol)
    }
}

fn rendered(service: &Service) -> pb::Cluster {
    let any = Any::decode(&**cluster(service).any()).unwrap();
    pb::Cluster::decode(&*any.value).unwrap()
}

fn panic_of(service: &Service) -> f64 {
    let common = rendered(service).common_lb_config.unwrap();
    common.healthy_panic_threshold.unwrap().value
}

#[test]
fn only_envoys_checks_are_in_the_cluster() {
    let probers = rendered(&checked(Protocol::Http, Kind::Http, ProbedBy::PROBERS));
    assert!(probers.health_checks.is_empty(), "design 5.2");
    assert!(!probers.ignore_health_on_host_removal);
    for by in [ProbedBy::ENVOYS, ProbedBy::BOTH] {
        let envoys = rendered(&checked(Protocol::Http, Kind::Http, by));
        assert_eq!(envoys.health_checks.len(), 1, "H7");
        assert!(envoys.ignore_health_on_host_removal, "design 5.6");
        assert!(envoys.transport_socket_matches.is_empty());
    }
}

#[test]
fn h3_h5_h6_the_panic_threshold_says_what_becomes_of_the_last_resort() {
    let mut shop = service(Protocol::Http);
    assert_eq!(panic_of(&shop), 0.0, "H5: FAIL_CLOSED");
    shop.when_all_unhealthy = WhenAllUnhealthy::FailOpen;
    assert_eq!(panic_of(&shop), 1.0, "H6");
    let failover = |drop_traffic_if_unhealthy| {
        Some(Failover {
            ratio: 0.0,
            failback_ratio: 0.0,
            drop_traffic_if_unhealthy,
        })
    };
    shop.failover = failover(true);
    assert_eq!(panic_of(&shop), 0.0, "H3: it alone decides");
    shop.when_all_unhealthy = WhenAllUnhealthy::FailClosed;
    shop.failover = failover(false);
    assert_eq!(panic_of(&shop), 1.0, "H3");
}

#[test]
fn h4_connections_are_closed_only_where_it_is_asked_for() {
    let mut shop = checked(Protocol::Tcp, Kind::Tcp, ProbedBy::ENVOYS);
    assert!(!rendered(&shop).close_connections_on_host_health_failure);
    shop.close_connections_on_unhealthy = true;
    assert!(rendered(&shop).close_connections_on_host_health_failure);
}

#[test]
fn h8_every_policy_has_its_name() {
    for (policy, expected) in [
        (LbPolicy::RoundRobin, nested::LbPolicy::RoundRobin),
        (LbPolicy::LeastRequest, nested::LbPolicy::LeastRequest),
        (LbPolicy::Random, nested::LbPolicy::Random),
        (LbPolicy::RingHash, nested::LbPolicy::RingHash),
        (LbPolicy::Maglev, nested::LbPolicy::Maglev),
    ] {
        let shop = Service {
            policy,
            ..service(Protocol::Http)
        };
        assert_eq!(rendered(&shop).lb_policy(), expected);
    }
}

#[test]
fn upstream_tls_is_the_clusters_socket_and_a_check_of_its_own_stands_beside_it() {
    let shop = Service {
        tls: Some(UpstreamTls {
            sni: Some("shop.example".into()),
            verify: Some(UpstreamRoots::Pem("PEM".into())),
        }),
        ..checked(Protocol::Https, Kind::Https, ProbedBy::ENVOYS)
    };
    let cluster = rendered(&shop);
    let traffic = format!("{:?}", transport::of_service(&shop).unwrap());
    assert_eq!(
        cluster.transport_socket,
        transport::of_service(&shop),
        "{traffic}"
    );
    // P10: the check validates nothing although the traffic does.
    let [own] = &cluster.transport_socket_matches[..] else {
        panic!("{cluster:?}");
    };
    assert_ne!(own.transport_socket, cluster.transport_socket);
    let unverified = Service {
        tls: Some(UpstreamTls::default()),
        ..service(Protocol::Http2)
    };
    assert!(rendered(&unverified).transport_socket.is_some());
    assert!(rendered(&service(Protocol::H2c)).transport_socket.is_none());
}

#[test]
fn a_cluster_carries_envoys_own_fields_of_its_service() {
    let outlier_detection = pb::OutlierDetection {
        consecutive_5xx: Some(UInt32Value { value: 3 }),
        ..pb::OutlierDetection::default()
    };
    let circuit_breakers = pb::CircuitBreakers {
        thresholds: vec![pb::circuit_breakers::Thresholds::default()],
        ..pb::CircuitBreakers::default()
    };
    let shop = Service {
        outlier_detection: Some(outlier_detection.clone()),
        circuit_breakers: Some(circuit_breakers.clone()),
        ..service(Protocol::Http)
    };
    let rendered = rendered(&shop);
    assert_eq!(rendered.outlier_detection, Some(outlier_detection));
    assert_eq!(rendered.circuit_breakers, Some(circuit_breakers));
}
