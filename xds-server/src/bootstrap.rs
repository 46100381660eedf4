//! A ready Envoy bootstrap for a node of a fleet.
//!
//! In: the fleet, where the server is, what the operator chose. Out: YAML. It is the one place where the node's side of
//! the contract stands: ADS over gRPC, the node only on the first message, keep-alive so that a server that vanished is
//! noticed, no time-out on the stream.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::model::{EndpointDiscovery, Fleet, Name};

/// What goes into a bootstrap.
#[derive(Clone, Debug)]
pub struct Bootstrap<'a> {
    /// The fleet that the node is to belong to.
    pub fleet: &'a Fleet,
    /// All fleets, in the order of the configuration: the first that matches takes a node.
    pub fleets: &'a [Arc<Fleet>],
    /// Host and port of the xDS listener.
    pub server: (&'a str, u16),
    /// `node.id`, if the operator names it.
    pub node_id: Option<&'a str>,
    /// The name of the machine that the bootstrap is made on, for an id that nobody names; empty: not known.
    pub machine: &'a str,
    /// Delta instead of state of the world.
    pub delta: bool,
    /// Port of Envoy's own admin interface, on 127.0.0.1.
    pub admin_port: u16,
    /// TLS to the server; `None`: plain.
    pub tls: Option<ServerTls<'a>>,
}

/// How an Envoy speaks TLS to the server. The files are the Envoy's own: nothing reads them here.
#[derive(Clone, Copy, Debug)]
pub struct ServerTls<'a> {
    /// The authorities that have signed the server's certificate.
    pub ca: &'a str,
    /// The Envoy's certificate and its key, for mutual TLS.
    pub pair: Option<(&'a str, &'a str)>,
    /// The name that the server's certificate must have, and SNI; `None`: the server's host.
    pub name: Option<&'a str>,
}

/// Why there is no bootstrap.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// The id that the operator named is not of this fleet.
    #[error(
        "node id {id:?} does not match this fleet's match.id; name one that does with --node-id"
    )]
    IdDoesNotMatch {
        /// The id.
        id: String,
    },
    /// Another fleet stands before this one and matches the node too.
    #[error(
        "the node (id {id:?}, cluster {cluster:?}) would belong to fleet {taken_by}, which stands before this one and \
         matches it too; put this fleet first, or match more narrowly there"
    )]
    TakenByAnother {
        /// The node's id.
        id: String,
        /// The node's cluster.
        cluster: String,
        /// The fleet that takes it.
        taken_by: Name,
    },
    /// No node could be made up that matches the patterns.
    #[error(
        "no node could be made up that matches this fleet's match; write the bootstrap's node by hand"
    )]
    NoSuchNode,
}

impl Bootstrap<'_> {
    /// The bootstrap as YAML.
    ///
    /// # Errors
    /// When no node that matches the fleet could be made up.
    pub fn to_yaml(&self) -> Result<String, BootstrapError> {
        let (name, matcher) = (self.fleet.name.as_str(), &self.fleet.matcher);
        let sample = |glob: &globset::GlobMatcher| sample(glob.glob().glob(), name);
        let id = match (self.node_id, &matcher.id) {
            (Some(id), Some(glob)) if !glob.is_match(id) => {
                return Err(BootstrapError::IdDoesNotMatch { id: id.into() });
            }
            (Some(id), _) => id.to_owned(),
            (None, Some(glob)) => self.made_up(glob),
            (None, None) => self.own_name(),
        };
        let cluster = matcher
            .cluster
            .as_ref()
            .map_or_else(|| name.to_owned(), sample);
        let metadata: BTreeMap<String, String> = matcher
            .metadata
            .iter()
            .map(|(key, glob)| (key.clone(), sample(glob)))
            .collect();
        let takes = |fleet: &&Arc<Fleet>| {
            fleet
                .matcher
                .matches(&id, &cluster, |key| metadata.get(key).map(String::as_str))
        };
        match self.fleets.iter().find(takes) {
            Some(fleet) if fleet.name == self.fleet.name => {}
            Some(fleet) => {
                return Err(BootstrapError::TakenByAnother {
                    id,
                    cluster,
                    taken_by: fleet.name.clone(),
                });
            }
            None => return Err(BootstrapError::NoSuchNode),
        }
        Ok(self.render(&id, &cluster, &metadata))
    }

    /// What is printed and will not do: an Envoy without a certificate, of a fleet that admits by certificate.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let has_certificate = self.tls.is_some_and(|tls| tls.pair.is_some());
        (self.fleet.allow.is_some() && !has_certificate).then(|| {
            format!(
                "fleet {} admits Envoys by their certificates (allow), and this bootstrap has none: it will connect nowhere; \
                 give --tls-ca, --tls-cert and --tls-key",
                self.fleet.name
            )
        })
    }

    /// `FLEET-MACHINE`: the same each time, and another on each machine.
    fn own_name(&self) -> String {
        match self.machine {
            "" => self.fleet.name.to_string(),
            machine => format!("{}-{machine}", self.fleet.name),
        }
    }

    /// That name, or where the glob wants another one that has the machine's name in it.
    fn made_up(&self, glob: &globset::GlobMatcher) -> String {
        let (own, pattern) = (self.own_name(), glob.glob().glob());
        let inside = match pattern.rsplit_once('*') {
            Some((before, after)) => {
                let plain = |part: &str| sample(part, "");
                format!("{}{}{}", plain(before), self.machine, plain(after))
            }
            None => String::new(),
        };
        let fits = |id: &String| !id.is_empty() && glob.is_match(id);
        let made = [own, inside].into_iter().find(fits);
        made.unwrap_or_else(|| sample(pattern, self.fleet.name.as_str()))
    }

    fn render(&self, id: &str, cluster: &str, metadata: &BTreeMap<String, String>) -> String {
        let advice = match self.node_id {
            Some(_) => "",
            None => {
                "\n  # Made up where this was printed. Give each Envoy an id of its own: --node-id here, or Envoy's --service-node."
            }
        };
        let mut node_metadata = String::new();
        for (key, value) in metadata {
            node_metadata.push_str(&format!("\n    {}: {}", quoted(key), quoted(value)));
        }
        if !node_metadata.is_empty() {
            node_metadata.insert_str(0, "\n  metadata:");
        }
        let api_type = if self.delta { "DELTA_GRPC" } else { "GRPC" };
        let hint = match (self.delta, self.fleet.endpoint_discovery) {
            (false, EndpointDiscovery::Leds) => {
                "\n    # The fleet's LEDS is for delta: with --delta, a change of one endpoint sends that one, not all of its service."
            }
            (true, _) | (false, EndpointDiscovery::Eds) => "",
        };
        let (host, port) = self.server;
        // A name is resolved again and again; an address needs no resolver.
        let discovery = if host.parse::<IpAddr>().is_ok() {
            "STATIC"
        } else {
            "STRICT_DNS"
        };
        format!(
            "# An Envoy of fleet {fleet}, as printed by `vitals bootstrap`.
node:{advice}
  id: {id}
  cluster: {cluster}{node_metadata}
dynamic_resources:
  ads_config:{hint}
    api_type: {api_type}
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services:
    - envoy_grpc: {{ cluster_name: vitals }}
  cds_config: {{ ads: {{}}, resource_api_version: V3 }}
  lds_config: {{ ads: {{}}, resource_api_version: V3 }}
static_resources:
  clusters:
  - name: vitals
    type: {discovery}
    connect_timeout: 5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            # Notices within half a minute that the server is gone without a word.
            connection_keepalive: {{ interval: 20s, timeout: 10s }}
    load_assignment:
      cluster_name: vitals
      endpoints:
      - lb_endpoints:
        - endpoint:
            address: {{ socket_address: {{ address: {host}, port_value: {port} }} }}
{tls}admin:
  address: {{ socket_address: {{ address: 127.0.0.1, port_value: {admin_port} }} }}
",
            fleet = self.fleet.name,
            id = quoted(id),
            cluster = quoted(cluster),
            host = quoted(host),
            admin_port = self.admin_port,
            tls = self.tls.map_or_else(String::new, |tls| tls.render(host)),
        )
    }
}

impl ServerTls<'_> {
    fn render(&self, host: &str) -> String {
        let name = self.name.unwrap_or(host);
        // An address is no server name (RFC 6066 §3), and is another kind of name in a certificate.
        let (sni, kind) = match name.parse::<IpAddr>() {
            Ok(_) => (String::new(), "IP_ADDRESS"),
            Err(_) => (format!("\n        sni: {}", quoted(name)), "DNS"),
        };
        let pair = self.pair.map_or_else(String::new, |(cert, key)| {
            format!(
                "
          # Read when the Envoy starts; one whose certificate is renewed under way takes it over SDS instead.
          tls_certificates:
          - certificate_chain: {{ filename: {} }}
            private_key: {{ filename: {} }}",
                quoted(cert),
                quoted(key)
            )
        });
        format!(
            "    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext{sni}
        common_tls_context:
          alpn_protocols: [h2]
          tls_params: {{ tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3 }}{pair}
          validation_context:
            trusted_ca: {{ filename: {ca} }}
            match_typed_subject_alt_names:
            - san_type: {kind}
              matcher: {{ exact: {name} }}
",
            ca = quoted(self.ca),
            name = quoted(name),
        )
    }
}

/// A text that the glob matches: what it has besides wildcards, or the fleet's name where there is nothing else (Envoy
/// wants an id and a cluster). The caller checks.
fn sample(glob: &str, name: &str) -> String {
    let text: String = glob
        .chars()
        .filter(|c| *c != '*')
        .map(|c| if c == '?' { 'x' } else { c })
        .collect();
    if text.is_empty() { name.into() } else { text }
}

/// A YAML double-quoted scalar; JSON's strings are such.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.into()).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::NodeMatcher;

    fn fleet(name: &str, id: Option<&str>, cluster: Option<&str>) -> Arc<Fleet> {
        let glob = |text: &str| globset::Glob::new(text).unwrap().compile_matcher();
        Arc::new(Fleet {
            name: Name::new(name).unwrap(),
            matcher: NodeMatcher {
                id: id.map(glob),
                cluster: cluster.map(glob),
                metadata: BTreeMap::new(),
            },
            allow: None,
            services: BTreeSet::new(),
            listeners: Vec::new(),
            region_order: Vec::new(),
            endpoint_discovery: EndpointDiscovery::Eds,
        })
    }

    /// The bootstrap of the last of the fleets.
    fn yaml(fleets: &[Arc<Fleet>], node_id: Option<&str>) -> Result<String, BootstrapError> {
        let fleet = fleets.last().unwrap();
        let server = ("127.0.0.1", 18000);
        Bootstrap {
            fleet,
            fleets,
            server,
            node_id,
            machine: "m1",
            delta: true,
            admin_port: 9901,
            tls: None,
        }
        .to_yaml()
    }

    #[test]
    fn tls_names_the_files_and_whom_it_expects() {
        let plain = yaml(&[fleet("edge", None, None)], None).unwrap();
        assert!(!plain.contains("transport_socket"), "{plain}");
        let render = |name, host| {
            let tls = ServerTls {
                ca: "/ca.pem",
                pair: Some(("/envoy.pem", "/envoy.key")),
                name,
            };
            tls.render(host)
        };
        let by_host = render(None, "vitals.example");
        for part in [
            "sni: \"vitals.example\"",
            "filename: \"/ca.pem\"",
            "filename: \"/envoy.key\"",
            "san_type: DNS\n              matcher: { exact: \"vitals.example\" }",
        ] {
            assert!(by_host.contains(part), "{part} is not in {by_host}");
        }
        let by_address = render(None, "192.0.2.1");
        assert!(!by_address.contains("sni:"), "{by_address}");
        assert!(by_address.contains("san_type: IP_ADDRESS"), "{by_address}");
        let by_name = render(Some("vitals.example"), "192.0.2.1");
        assert!(by_name.contains("sni: \"vitals.example\""), "{by_name}");
    }

    #[test]
    fn a_fleet_with_allow_and_no_certificate_is_warned_of() {
        let plain = fleet("edge", None, None);
        let allowing = Arc::new(Fleet {
            allow: Some(Arc::default()),
            ..Fleet::clone(&plain)
        });
        let warning = |fleet: &Arc<Fleet>, tls| {
            let fleets = [Arc::clone(fleet)];
            let bootstrap = Bootstrap {
                fleet,
                fleets: &fleets,
                server: ("127.0.0.1", 18000),
                node_id: None,
                machine: "m1",
                delta: true,
                admin_port: 9901,
                tls,
            };
            bootstrap.warning()
        };
        let tls = |pair| {
            Some(ServerTls {
                ca: "/ca.pem",
                pair,
                name: None,
            })
        };
        assert_eq!(warning(&plain, None), None);
        assert_eq!(warning(&allowing, tls(Some(("/a.pem", "/a.key")))), None);
        for without in [None, tls(None)] {
            let said = warning(&allowing, without).unwrap();
            assert!(
                said.contains("edge") && said.contains("--tls-cert"),
                "{said}"
            );
        }
    }

    #[test]
    fn the_node_matches_the_fleet() {
        let text = yaml(&[fleet("edge", Some("envoy-?*"), Some("edge*"))], None).unwrap();
        assert!(
            text.contains("id: \"envoy-xm1\"\n  cluster: \"edge\"\n"),
            "{text}"
        );
        assert!(text.contains("api_type: DELTA_GRPC"), "{text}");
        let text = yaml(&[fleet("all", Some("*"), Some("*"))], None).unwrap();
        assert!(
            text.contains("id: \"all-m1\"\n  cluster: \"all\"\n"),
            "Envoy wants both: {text}"
        );
        let text = yaml(&[fleet("one", Some("the-only"), None)], None).unwrap();
        assert!(text.contains("id: \"the-only\"\n"), "{text}");
    }

    #[test]
    fn an_id_that_nobody_names_is_the_machines_own_and_comes_with_advice() {
        let advice = "Give each Envoy an id of its own: --node-id here, or Envoy's --service-node.";
        let made_up = yaml(&[fleet("edge", None, None)], None).unwrap();
        assert!(made_up.contains("id: \"edge-m1\"\n"), "{made_up}");
        assert!(made_up.contains(advice), "{made_up}");
        let named = yaml(&[fleet("edge", None, None)], Some("envoy-7")).unwrap();
        assert!(named.contains("node:\n  id: \"envoy-7\"\n"), "{named}");
        assert!(!named.contains(advice), "{named}");
    }

    #[test]
    fn a_fleet_whose_endpoints_stand_apart_is_told_to_speak_delta() {
        let hint = "The fleet's LEDS is for delta";
        let leds = Fleet {
            endpoint_discovery: EndpointDiscovery::Leds,
            ..Fleet::clone(&fleet("edge", None, None))
        };
        let text = |fleet: &Fleet, delta| {
            let bootstrap = Bootstrap {
                fleet,
                fleets: &[Arc::new(fleet.clone())],
                server: ("127.0.0.1", 18000),
                tls: None,
                node_id: None,
                machine: "m1",
                delta,
                admin_port: 9901,
            };
            bootstrap.to_yaml().unwrap()
        };
        assert!(text(&leds, false).contains(hint));
        assert!(!text(&leds, true).contains(hint));
        assert!(!text(&fleet("edge", None, None), false).contains(hint));
    }

    #[test]
    fn an_id_of_another_fleet_is_refused() {
        let error = yaml(&[fleet("edge", Some("envoy-*"), None)], Some("other")).unwrap_err();
        assert_eq!(error, BootstrapError::IdDoesNotMatch { id: "other".into() });
    }

    #[test]
    fn a_fleet_that_another_stands_before_gets_no_bootstrap_that_is_not_its_own() {
        let fleets = [
            fleet("all", None, None),
            fleet("edge-eu", None, Some("edge-eu")),
        ];
        let error = yaml(&fleets, None).unwrap_err();
        assert!(
            matches!(error, BootstrapError::TakenByAnother { ref taken_by, .. } if taken_by.as_str() == "all")
        );
    }
}
