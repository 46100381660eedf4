//! A real Envoy as a process, and what its admin page says.
//!
//! In: a bootstrap. Out: the running Envoy, the health flags of its hosts, its counters, and requests through it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::http_client::{Reply, get};
use crate::process::Process;
use crate::tools;
use crate::wait::{SOON, eventually, pause};

/// The flag of a host that EDS calls UNHEALTHY or TIMEOUT.
pub const FAILED: &str = "/failed_eds_health";
/// The flag of a host that EDS calls DRAINING.
pub const DRAINING: &str = "/eds_status_draining";
/// The flag of a host that fails Envoy's own check.
pub const FAILED_CHECK: &str = "/failed_active_hc";

/// What Envoy says of a host without flags.
pub const HEALTHY: &str = "healthy";

/// An Envoy.
#[derive(Debug)]
pub struct Envoy {
    admin: String,
    process: Process,
}

impl Envoy {
    /// Starts an Envoy and waits for its admin page, not for it to be live. `dir` takes its files, named after `name`.
    #[track_caller]
    #[must_use]
    pub fn spawn(name: &str, bootstrap: &str, dir: &Path) -> Self {
        let file = |suffix: &str| dir.join(format!("{name}{suffix}"));
        let (config, address) = (file(".yaml"), file(".admin"));
        fs::write(&config, bootstrap).expect("the scenario's folder is writable");
        let mut command = Command::new(tools::envoy());
        command.arg("--config-path").arg(&config);
        command.arg("--admin-address-path").arg(&address);
        command.args(["--disable-hot-restart", "--concurrency", "1"]);
        // `main` lists every extension at the start.
        command.args(["--component-log-level", "main:warning"]);
        let mut process = Process::spawn(name, &mut command, &file(".log"));
        let admin = eventually(SOON, "Envoy has an admin page", || {
            if let Some(status) = process.ended() {
                panic!("Envoy ended with {status}:\n{}", process.log());
            }
            let address = fs::read_to_string(&address).map_err(|error| error.to_string())?;
            let admin = format!("http://{}", address.trim());
            get(&format!("{admin}/ready")).map(|_| admin)
        });
        Self { admin, process }
    }

    /// Waits until it is live.
    #[track_caller]
    pub fn wait_until_live(&self, limit: Duration) {
        eventually(limit, "Envoy is live", || {
            let ready = self.admin("/ready")?;
            if ready.status == 200 {
                Ok(())
            } else {
                let stats = self
                    .admin("/stats?filter=control_plane|init_manager|update_")?
                    .body;
                Err(format!("{ready:?}\n{stats}"))
            }
        });
    }

    /// GET on the admin page.
    pub fn admin(&self, path: &str) -> Result<Reply, String> {
        get(&format!("{}{path}", self.admin))
    }

    /// The hosts of a cluster with their health flags.
    pub fn hosts(&self, cluster: &str) -> Result<BTreeMap<String, String>, String> {
        self.facts(cluster, "health_flags")
    }

    /// The hosts of a cluster with the priority of each: 0 takes traffic while it has a healthy host.
    pub fn priorities(&self, cluster: &str) -> Result<BTreeMap<String, String>, String> {
        self.facts(cluster, "priority")
    }

    /// One of the facts that `/clusters` has of each host.
    fn facts(&self, cluster: &str, fact: &str) -> Result<BTreeMap<String, String>, String> {
        let (prefix, infix) = (format!("{cluster}::"), format!("::{fact}::"));
        let page = self.admin("/clusters")?.body;
        Ok(page
            .lines()
            .filter_map(|line| {
                let (host, value) = line.strip_prefix(&prefix)?.split_once(&infix)?;
                Some((host.to_owned(), value.to_owned()))
            })
            .collect())
    }

    /// Looks at the hosts of a cluster all the time while `act` runs; returns what was ever wrong.
    pub fn watch(
        &self,
        cluster: &str,
        wrong: impl Fn(&BTreeMap<String, String>) -> bool + Sync,
        act: impl FnOnce(),
    ) -> Vec<String> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            // Ends when `act` is done.
            let watcher = threads.spawn(|| {
                let mut seen = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match self.hosts(cluster) {
                        Ok(hosts) if wrong(&hosts) => seen.push(format!("{hosts:?}")),
                        Ok(_) => {}
                        Err(error) => seen.push(error),
                    }
                    pause(Duration::from_millis(10));
                }
                seen
            });
            // The watcher must end even when `act` panics, or the scope would wait for ever.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            stop.store(true, Ordering::Relaxed);
            let seen = watcher.join().expect("the watcher does not panic");
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
            seen
        })
    }

    /// Waits until a host of a cluster has these flags.
    #[track_caller]
    pub fn wait_for_flags(&self, limit: Duration, cluster: &str, host: &str, flags: &str) {
        eventually(limit, &format!("Envoy shows {host} as {flags}"), || {
            let hosts = self.hosts(cluster)?;
            if hosts.get(host).is_some_and(|seen| seen == flags) {
                Ok(())
            } else {
                Err(format!("{hosts:?}"))
            }
        });
    }

    /// Waits until a cluster no longer has the host.
    #[track_caller]
    pub fn wait_until_gone(&self, limit: Duration, cluster: &str, host: &str) {
        eventually(limit, &format!("Envoy has no {host}"), || {
            let hosts = self.hosts(cluster)?;
            if hosts.contains_key(host) {
                Err(format!("{hosts:?}"))
            } else {
                Ok(())
            }
        });
    }

    /// The names of its listeners that are not draining.
    pub fn listeners(&self) -> Result<Vec<String>, String> {
        let page = self.admin("/listeners")?.body;
        let names = page.lines().filter_map(|line| line.split_once("::"));
        Ok(names.map(|(name, _)| name.to_owned()).collect())
    }

    /// A counter or gauge; 0 when Envoy has none of that name.
    pub fn stat(&self, name: &str) -> Result<u64, String> {
        let page = self.admin(&format!("/stats?filter=^{name}$"))?.body;
        Ok(page
            .lines()
            .find_map(|line| line.split_once(": ")?.1.trim().parse().ok())
            .unwrap_or(0))
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
