//! A blocking HTTP GET without surprises: no proxy, every status is an answer, a limit on time.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// A status and a body.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Keeps no connections: what one look saw does not depend on an earlier one.
static FRESH: LazyLock<Agent> = LazyLock::new(|| agent(0));

/// An agent that keeps at most `idle` connections open.
#[must_use]
pub fn agent(idle: usize) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .max_idle_connections(idle)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into()
}

/// GET on a connection of its own.
pub fn get(url: &str) -> Result<Reply, String> {
    get_with(&FRESH, url)
}

/// GET with the agent's connections.
pub fn get_with(agent: &Agent, url: &str) -> Result<Reply, String> {
    let mut response = agent
        .get(url)
        .call()
        .map_err(|error| format!("GET {url}: {error}"))?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(200 << 20)
        .read_to_string()
        .map_err(|error| format!("GET {url}: {error}"))?;
    Ok(Reply { status, body })
}

/// GET of JSON, whatever the status.
pub fn get_json(url: &str) -> Result<(u16, Value), String> {
    let reply = get(url)?;
    let value = serde_json::from_str(&reply.body)
        .map_err(|error| format!("GET {url}: {error}: {}", reply.body))?;
    Ok((reply.status, value))
}
