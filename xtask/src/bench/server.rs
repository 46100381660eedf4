//! A `vitals serve` whose metrics are read.
//!
//! In: the binary, a folder of its own, a configuration. Out: a server that is ready. The endpoints are 127.1.0.1 and on, all
//! on one port.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::Instant;
use ureq::Agent;

use super::measure::free_port;
use super::metrics::Page;
use crate::process::{Guard, check_interrupt, pause};

/// On a busy machine, with many endpoints.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running server.
pub(super) struct Server {
    pub(super) guard: Guard,
    admin: SocketAddr,
}

impl Server {
    /// Starts it and waits until it is ready. What it writes goes to `dir`.
    pub(super) fn start(vitals: &Path, dir: &Path, config: &Path) -> Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::start_at(vitals, dir, config, any)
    }

    /// The same, with xDS on that address.
    pub(super) fn start_at(
        vitals: &Path,
        dir: &Path,
        config: &Path,
        xds: SocketAddr,
    ) -> Result<Self> {
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)?));
        let mut command = Command::new(vitals);
        command.arg("serve").arg("--config").arg(config);
        command.args([
            "--xds-listen",
            &xds.to_string(),
            "--admin-listen",
            &admin.to_string(),
        ]);
        command.arg("--state-dir").arg(dir.join("state"));
        let mut server = Self {
            guard: Guard::start("vitals", &mut command, &dir.join("vitals.log"))?,
            admin,
        };
        let start = Instant::now();
        while get(server.admin, "/readyz").is_err() {
            server.guard.must_run()?;
            check_interrupt()?;
            if start.elapsed() > PATIENCE {
                bail!("vitals is not ready after {} s", PATIENCE.as_secs());
            }
            pause(Duration::from_millis(50));
        }
        Ok(server)
    }

    pub(super) fn metrics(&self) -> Result<Page> {
        Ok(Page::parse(&get(self.admin, "/metrics")?))
    }
}

/// Asks an admin interface on loopback.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let agent: Agent = Agent::config_builder()
        .proxy(None)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into();
    let url = format!("http://{address}{path}");
    let mut response = agent.get(&url).call()?;
    let body = response.body_mut().with_config().limit(64 << 20);
    body.read_to_string().with_context(|| url)
}

/// Writes the configuration of one service with `endpoints` endpoints. `check` is the check's keys in YAML, without its name.
pub(super) fn write_config(
    dir: &Path,
    check: &str,
    protocol: &str,
    endpoints: u32,
    port: u16,
) -> Result<PathBuf> {
    let mut text = format!(
        "healthChecks: [{{ name: web, {check} }}]\n\
         backendServices: [{{ name: shop, protocol: {protocol}, healthCheck: web, backends: [{{ group: dc1 }}], probing: {{ by: [PROBERS] }} }}]\n\
         fleets: [{{ name: edge, match: {{ cluster: edge }} }}]\n\
         endpointGroups:\n- name: dc1\n  type: NON_GCP_PRIVATE_IP_PORT\n  endpoints:\n",
    );
    for address in addresses(endpoints) {
        writeln!(text, "  - {{ address: {address}, port: {port} }}")?;
    }
    let path = dir.join("vitals.yaml");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// 127.1.0.1 and the addresses after it.
pub(super) fn addresses(count: u32) -> impl Iterator<Item = Ipv4Addr> {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    (first..first.saturating_add(count)).map(Ipv4Addr::from)
}
