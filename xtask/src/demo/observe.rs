//! What the server and Envoy say of each backend, and a line whenever one of them says something new.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::time::Instant;
use ureq::Agent;

use super::ports::Ports;

/// Prints a line of the time line.
pub(super) fn say(start: Instant, what: &str) {
    println!("+{:7.3} s  {what}", start.elapsed().as_secs_f64());
}

/// Whether Envoy's `/ready` says so.
pub(super) fn envoy_is_live(ports: Ports) -> bool {
    get(&format!("http://{}/ready", ports.envoy_admin())).is_ok_and(|(status, _)| status == 200)
}

/// Who says what of the backends, as last seen.
pub(super) struct Watch {
    begun: Instant,
    ports: Ports,
    vitals: BTreeMap<String, String>,
    envoy: BTreeMap<String, String>,
}

impl Watch {
    pub(super) fn new(begun: Instant, ports: Ports) -> Self {
        Self {
            begun,
            ports,
            vitals: BTreeMap::new(),
            envoy: BTreeMap::new(),
        }
    }

    /// Looks at both and prints what changed; whether it printed anything.
    pub(super) fn look(&mut self) -> Result<bool> {
        let vitals = vitals_says(self.ports)?;
        let mut changed = report(self.begun, "vitals", &self.vitals, &vitals);
        self.vitals = vitals;
        let envoy = envoy_says(self.ports)?;
        changed |= report(self.begun, "Envoy ", &self.envoy, &envoy);
        self.envoy = envoy;
        Ok(changed)
    }

    /// Envoy's health flags of a backend.
    pub(super) fn flags(&self, address: SocketAddr) -> &str {
        self.envoy
            .get(&address.to_string())
            .map_or("unknown", String::as_str)
    }

    /// The server's status of a backend, and why.
    pub(super) fn status(&self, address: SocketAddr) -> &str {
        self.vitals
            .get(&address.to_string())
            .map_or("unknown", String::as_str)
    }
}

fn report(
    start: Instant,
    who: &str,
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> bool {
    let mut changed = false;
    for (address, word) in now {
        if before.get(address) != Some(word) {
            say(start, &format!("{who} says {address} is {word}"));
            changed = true;
        }
    }
    for address in before.keys().filter(|address| !now.contains_key(*address)) {
        say(start, &format!("{who} no longer knows {address}"));
        changed = true;
    }
    changed
}

/// `address:port` → status, with the reason when it is not healthy.
fn vitals_says(ports: Ports) -> Result<BTreeMap<String, String>> {
    let (_, body) = get(&format!("http://{}/v1/endpoints", ports.admin()))?;
    let list: Vec<Value> = serde_json::from_str(&body).context("/v1/endpoints")?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
    Ok(list
        .iter()
        .map(|entry| {
            let port = entry.get("port").and_then(Value::as_u64).unwrap_or(0);
            let name = format!("{}:{port}", text(entry.get("address")));
            let status = text(entry.get("detailedStatus"));
            let code = text(entry.pointer("/reason/code"));
            if status == "HEALTHY" || code.is_empty() {
                (name, status)
            } else {
                (name, format!("{status} ({code})"))
            }
        })
        .collect())
}

/// `address:port` → health flags, from `/clusters`.
fn envoy_says(ports: Ports) -> Result<BTreeMap<String, String>> {
    let (_, body) = get(&format!("http://{}/clusters", ports.envoy_admin()))?;
    Ok(body
        .lines()
        .filter_map(|line| {
            let (host, flags) = line
                .strip_prefix("shop::")?
                .split_once("::health_flags::")?;
            Some((host.to_owned(), flags.trim_start_matches('/').to_owned()))
        })
        .collect())
}

fn get(url: &str) -> Result<(u16, String)> {
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_idle_connections(0)
        .timeout_global(Some(Duration::from_secs(5)))
        .build()
        .into();
    let mut response = agent.get(url).call().with_context(|| url.to_owned())?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .read_to_string()
        .with_context(|| url.to_owned())?;
    Ok((status, body))
}
