//! Configurations for the scenarios, built as a value and written as YAML's JSON subset.
//!
//! In: addresses. Out: a configuration like `example/first.yaml` with a faster check, which a scenario then edits.
//! Not here: configurations whose text matters (line numbers, comments); those are written out where they are used.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::net::Net;

/// The port of the scenarios' first listener.
pub const LISTENER_PORT: u16 = 21_000;

thread_local! {
    static LEDS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a scenario for which this thread writes every fleet with `endpointDiscovery: LEDS`, unless it says otherwise.
pub fn with_leds(scenario: impl FnOnce()) {
    /// Also when the scenario panics: the next one may run on the same thread.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            LEDS.set(false);
        }
    }
    let _reset = Reset;
    LEDS.set(true);
    scenario();
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config(pub Value);

impl Config {
    /// Service `shop` in group `dc1` with check `web` (HTTP, every 500 ms), fleet `edge` with one listener.
    #[must_use]
    pub fn shop(net: Net, endpoints: &[SocketAddr]) -> Self {
        Self(json!({
            "healthChecks": [{
                "name": "web", "type": "HTTP", "checkInterval": "500ms", "timeout": "500ms",
                "http": { "requestPath": crate::backend::PROBE_PATH },
            }],
            "endpointGroups": [{
                "name": "dc1", "type": "NON_GCP_PRIVATE_IP_PORT",
                "endpoints": endpoints.iter().map(|address| endpoint(*address)).collect::<Vec<_>>(),
            }],
            "backendServices": [{
                "name": "shop", "protocol": "HTTP", "healthCheck": "web",
                "backends": [{ "group": "dc1" }], "probing": { "by": ["PROBERS"] },
            }],
            "fleets": [{
                "name": "edge", "match": { "cluster": "edge" },
                "listeners": [{
                    "name": "http", "address": net.host(1).to_string(), "port": LISTENER_PORT,
                    "routes": [{ "service": "shop" }],
                }],
            }],
        }))
    }

    /// The check `web`.
    pub fn check(&mut self) -> &mut Value {
        &mut self.0["healthChecks"][0]
    }

    /// Sets the check's interval and timeout, in milliseconds.
    #[must_use]
    pub fn every(mut self, interval_ms: u64, timeout_ms: u64) -> Self {
        self.check()["checkInterval"] = json!(format!("{interval_ms}ms"));
        self.check()["timeout"] = json!(format!("{timeout_ms}ms"));
        self
    }

    /// The service `shop`.
    pub fn service(&mut self) -> &mut Value {
        &mut self.0["backendServices"][0]
    }

    /// Endpoint number `n` of group `dc1`.
    pub fn endpoint(&mut self, n: usize) -> &mut Value {
        &mut self.0["endpointGroups"][0]["endpoints"][n]
    }

    /// Adds an endpoint to group `dc1`.
    pub fn add_endpoint(&mut self, address: SocketAddr) {
        self.endpoints().push(endpoint(address));
    }

    /// Removes endpoint number `n` from group `dc1`.
    pub fn remove_endpoint(&mut self, n: usize) {
        self.endpoints().remove(n);
    }

    /// Adds a group of endpoints.
    pub fn add_group(&mut self, name: &str, endpoints: &[SocketAddr]) {
        let endpoints: Vec<Value> = endpoints.iter().copied().map(endpoint).collect();
        self.push(
            "endpointGroups",
            json!({ "name": name, "type": "NON_GCP_PRIVATE_IP_PORT", "endpoints": endpoints }),
        );
    }

    /// Gives the service `shop` failover backends, the group `dc2`, and says by `failover` when they take over.
    pub fn fail_over_to(&mut self, endpoints: &[SocketAddr], failover: Value) {
        self.add_group("dc2", endpoints);
        self.service()["backends"] =
            json!([{ "group": "dc1" }, { "group": "dc2", "failover": true }]);
        self.service()["failover"] = failover;
    }

    /// Appends to one of the top-level lists.
    pub fn push(&mut self, list: &str, item: Value) {
        self.0[list].as_array_mut().expect("a list").push(item);
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut config = self.0.clone();
        let fleets = config.get_mut("fleets").and_then(Value::as_array_mut);
        let fleets = fleets.filter(|_| LEDS.get());
        for fleet in fleets.into_iter().flatten() {
            if fleet.get("endpointDiscovery").is_none() {
                fleet["endpointDiscovery"] = json!("LEDS");
            }
        }
        serde_json::to_string_pretty(&config).expect("a value can be written")
    }

    /// Saves as careful editors do: a new file, renamed over the old one.
    pub fn save(&self, path: &Path) {
        save(path, &self.text());
    }

    fn endpoints(&mut self) -> &mut Vec<Value> {
        self.0["endpointGroups"][0]["endpoints"]
            .as_array_mut()
            .expect("a list")
    }
}

/// Saves a text by renaming a new file over `path`.
pub fn save(path: &Path, text: &str) {
    let new = path.with_extension("yaml.new~");
    fs::write(&new, text).expect("the scenario's folder is writable");
    fs::rename(&new, path).expect("the scenario's folder is writable");
}

/// An entry of `endpoints:`.
#[must_use]
pub fn endpoint(address: SocketAddr) -> Value {
    json!({ "address": address.ip().to_string(), "port": address.port() })
}
