//! The server as a process, and its admin API.
//!
//! In: a configuration path and a state directory. Out: the running server on the scenario's addresses, which can be killed
//! and started again on the same ports and state.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use serde_json::Value;

use crate::http_client::{Reply, get, get_json};
use crate::net::Net;
use crate::process::{Process, run};
use crate::wait::{SOON, eventually};
use crate::{Transport, security, tools};

const XDS_PORT: u16 = 21_800;
const ADMIN_PORT: u16 = 21_801;

/// A server.
#[derive(Debug)]
pub struct Vitals {
    config: PathBuf,
    state: PathBuf,
    log: PathBuf,
    xds: SocketAddr,
    admin: SocketAddr,
    process: Process,
}

impl Vitals {
    /// Starts `vitals serve` and waits until it is ready. `dir` takes its log.
    #[track_caller]
    #[must_use]
    pub fn start(net: Net, config: &Path, dir: &Path) -> Self {
        let vitals = Self::spawn(net, config, dir);
        vitals.wait_until_ready();
        vitals
    }

    /// Starts `vitals serve` without waiting.
    #[must_use]
    pub fn spawn(net: Net, config: &Path, dir: &Path) -> Self {
        Self::spawn_as(net, config, dir, |command| command)
    }

    /// The same, with a command that is changed or wrapped.
    #[must_use]
    pub fn spawn_as(
        net: Net,
        config: &Path,
        dir: &Path,
        change: impl FnOnce(Command) -> Command,
    ) -> Self {
        let xds = SocketAddr::new(net.host(1).into(), XDS_PORT);
        let admin = SocketAddr::new(net.host(1).into(), ADMIN_PORT);
        let (state, log) = (dir.join("state"), dir.join("vitals.log"));
        let mut command = change(serve(config, &state, xds, admin));
        security::secure(&mut command, xds, dir);
        let process = Process::spawn("vitals", &mut command, &log);
        Self {
            config: config.into(),
            state,
            log,
            xds,
            admin,
            process,
        }
    }

    /// Waits for `/readyz` to say 200.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        eventually(SOON, "vitals is ready", || {
            let reply = self.get("/readyz")?;
            (reply.status == 200)
                .then_some(())
                .ok_or_else(|| format!("{reply:?}"))
        });
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM; returns how it ended.
    #[track_caller]
    pub fn terminate(&mut self, limit: Duration) -> ExitStatus {
        self.process.terminate();
        self.process.wait(limit)
    }

    /// Starts it again, on the same ports and state, and waits until it is ready.
    #[track_caller]
    pub fn start_again(&mut self) {
        let mut command = serve(&self.config, &self.state, self.xds, self.admin);
        security::secure_again(&mut command, self.xds);
        self.process = Process::spawn("vitals", &mut command, &self.log);
        self.wait_until_ready();
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What all its runs have printed.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Where it serves xDS.
    #[must_use]
    pub fn xds(&self) -> SocketAddr {
        self.xds
    }

    /// The admin API's URL.
    #[must_use]
    pub fn admin(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// GET on the admin API.
    pub fn get(&self, path: &str) -> Result<Reply, String> {
        get(&format!("{}{path}", self.admin()))
    }

    /// GET of JSON on the admin API.
    pub fn json(&self, path: &str) -> Result<Value, String> {
        Ok(get_json(&format!("{}{path}", self.admin()))?.1)
    }

    /// The entry of `/v1/endpoints` for `address:port`; an `Err` holds the list when it is not there.
    pub fn endpoint(&self, name: &str) -> Result<Value, String> {
        let list = self.json("/v1/endpoints")?;
        list.as_array()
            .into_iter()
            .flatten()
            .find(|entry| endpoint_name(entry) == name)
            .cloned()
            .ok_or_else(|| format!("{name} is not in {list}"))
    }

    /// Waits until an endpoint's `status` is as given.
    #[track_caller]
    pub fn wait_for_status(&self, name: &str, status: &str) -> Value {
        eventually(
            SOON,
            &format!("vitals says that {name} is {status}"),
            || {
                let entry = self.endpoint(name)?;
                // Before its first verdict an endpoint has a status too; that is not what is waited for.
                if entry["status"] == status && entry["detailedStatus"] != "PROBING" {
                    Ok(entry)
                } else {
                    Err(entry.to_string())
                }
            },
        )
    }

    /// What `vitals status` prints.
    pub fn status(&self) -> Result<String, String> {
        let output = vitals(&["status", "--admin", &self.admin()]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => Err(format!("{output:?}")),
        }
    }

    /// Waits until a line of `vitals status` begins with this service and holds all of these words; returns it.
    #[track_caller]
    pub fn wait_for_line(&self, service: &str, words: &[&str]) -> String {
        eventually(
            SOON,
            &format!("`vitals status` has a line of {service} with {words:?}"),
            || {
                let text = self.status()?;
                let line = text.lines().find(|line| {
                    line.split_whitespace().next() == Some(service)
                        && words.iter().all(|word| line.contains(word))
                });
                line.map(str::to_owned).ok_or(text)
            },
        )
    }

    /// Waits until a line of the log holds all of these words; returns it.
    #[track_caller]
    pub fn wait_for_log(&self, words: &[&str]) -> String {
        eventually(SOON, &format!("the log has {words:?}"), || {
            let log = self.log();
            let line = log
                .lines()
                .find(|line| words.iter().all(|word| line.contains(word)));
            line.map(str::to_owned).ok_or(log)
        })
    }

    /// The entry of `/v1/clients` for a node.
    pub fn client(&self, node_id: &str) -> Result<Value, String> {
        let list = self.json("/v1/clients")?;
        list.as_array()
            .into_iter()
            .flatten()
            .find(|entry| entry["nodeId"] == node_id)
            .cloned()
            .ok_or_else(|| format!("{node_id} is not in {list}"))
    }

    /// The sum of a metric's samples whose labels contain `labels` (`key="value"`); 0 when there is none.
    pub fn metric(&self, name: &str, labels: &str) -> Result<f64, String> {
        let text = self.get("/metrics")?.body;
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        Ok(samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// `vitals bootstrap` for an Envoy of `fleet` that knows this server.
    #[track_caller]
    #[must_use]
    pub fn bootstrap(&self, fleet: &str, node_id: &str, transport: Transport) -> String {
        bootstrap(&self.config, fleet, self.xds, node_id, transport)
    }
}

/// `vitals bootstrap`; Envoy's admin port is left to the system.
#[track_caller]
#[must_use]
pub fn bootstrap(
    config: &Path,
    fleet: &str,
    server: SocketAddr,
    node_id: &str,
    transport: Transport,
) -> String {
    bootstrap_with(config, fleet, server, node_id, transport, &[])
}

/// The same, with more flags.
#[track_caller]
#[must_use]
pub fn bootstrap_with(
    config: &Path,
    fleet: &str,
    server: SocketAddr,
    node_id: &str,
    transport: Transport,
    flags: &[&str],
) -> String {
    let mut command = Command::new(tools::vitals());
    command.arg("bootstrap").arg("--config").arg(config);
    command.args(["--fleet", fleet, "--server", &server.to_string()]);
    command.args(["--node-id", node_id, "--admin-port", "0"]);
    if transport.is_delta() {
        command.arg("--delta");
    }
    security::know(&mut command, server);
    command.args(flags);
    let output = run(&mut command);
    assert!(output.status.success(), "vitals bootstrap: {output:?}");
    String::from_utf8(output.stdout).expect("a bootstrap is text")
}

/// Runs `vitals` with arguments and returns what it said.
#[track_caller]
#[must_use]
pub fn vitals(arguments: &[&str]) -> Output {
    run(Command::new(tools::vitals()).args(arguments))
}

/// `address:port` of an entry of `/v1/endpoints`.
#[must_use]
pub fn endpoint_name(entry: &Value) -> String {
    let address = entry["address"].as_str().unwrap_or_default();
    format!("{address}:{}", entry["port"])
}

/// The command `vitals serve`.
#[must_use]
pub fn serve(config: &Path, state: &Path, xds: SocketAddr, admin: SocketAddr) -> Command {
    let mut command = Command::new(tools::vitals());
    command.arg("serve").arg("--config").arg(config);
    command.args(["--xds-listen", &xds.to_string()]);
    command.args(["--admin-listen", &admin.to_string()]);
    command.arg("--state-dir").arg(state);
    command
}
