use std::time::Duration;

use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::*;
use crate::model::{Affinity, Protocol};

fn service(name: &str, code: Option<u16>) -> Service {
    Service {
        unhealthy_response_code: code,
        affinity: Affinity::ClientIp,
        ..Service::new(Name::new(name).unwrap(), Protocol::Http)
    }
}

fn filter_of(kind: ListenerKind, services: &[Service]) -> Any {
    let of = Listener {
        name: Name::new("front").unwrap(),
        address: "127.0.0.1:80".parse().unwrap(),
        kind,
    };
    let resource = listener(&of, |name| {
        services.iter().find(|service| service.name == *name)
    });
    let any = Any::decode(&**resource.any()).unwrap();
    let mut message = pb::Listener::decode(&*any.value).unwrap();
    let mut filters = message.filter_chains.remove(0).filters;
    match filters.remove(0).config_type {
        Some(ConfigType::TypedConfig(any)) => any,
        other => panic!("{other:?}"),
    }
}

fn mappers(services: &[Service]) -> Vec<String> {
    let route = |service: &Service| Route {
        domains: vec!["*".into()],
        prefix: "/".into(),
        service: service.name.clone(),
    };
    // Each twice: two routes may lead to one service.
    let routes = services.iter().chain(services).map(route).collect();
    let any = filter_of(ListenerKind::Http(routes), services);
    let manager = HttpConnectionManager::decode(&*any.value).unwrap();
    let mappers = manager.local_reply_config.map(|config| config.mappers);
    let mappers = mappers.unwrap_or_default();
    mappers.iter().map(|mapper| format!("{mapper:?}")).collect()
}

#[test]
fn h5_a_code_is_mapped_for_its_own_services_alone() {
    assert!(mappers(&[service("a", None)]).is_empty());
    let mappers = mappers(&[
        service("d", Some(502)),
        service("a", Some(502)),
        service("b", None),
        service("c", Some(429)),
    ]);
    let [first, second] = &mappers[..] else {
        panic!("{mappers:?}");
    };
    for (mapper, code, names) in [(first, 429, "['c']"), (second, 502, "['a', 'd']")] {
        assert!(
            mapper.contains(&format!("UInt32Value {{ value: {code} }}")),
            "{mapper}"
        );
        assert!(mapper.contains("flags: [\"UH\"]"), "{mapper}");
        let expression = format!("xds.cluster_name in {names}");
        let bytes = format!("{:?}", expression.as_bytes());
        let bytes = bytes.trim_matches(['[', ']']);
        assert!(mapper.contains(bytes), "{expression} is not in {mapper}");
    }
}

#[test]
fn h8_a_tcp_proxy_hashes_the_clients_address() {
    let hashed = |affinity| {
        let db = Service {
            affinity,
            ..service("db", None)
        };
        let any = filter_of(ListenerKind::Tcp(db.name.clone()), &[db]);
        TcpProxy::decode(&*any.value).unwrap().hash_policy.len()
    };
    assert_eq!(hashed(Affinity::ClientIp), 1);
    assert_eq!(hashed(Affinity::None), 0);
    let cookie = Affinity::Cookie {
        name: "sid".into(),
        ttl: Duration::ZERO,
    };
    assert_eq!(hashed(cookie), 0, "a connection has no cookies");
}
