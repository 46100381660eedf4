//! The usual scene: some backends, a server, an Envoy that is live.
//!
//! [`Scene`] is the stage (addresses, folder, turn); [`Lab`] is a stage with everybody on it.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Transport;
use crate::backend::Backend;
use crate::config::{Config, LISTENER_PORT};
use crate::envoy::Envoy;
use crate::http_client::{Reply, get};
use crate::load::Load;
use crate::net::{Net, Turn};
use crate::vitals::Vitals;
use crate::wait::{SOON, eventually};

/// The node id of the scenarios' first Envoy.
pub const NODE: &str = "envoy-1";

/// Addresses, a folder, and a turn on the machine.
#[derive(Debug)]
pub struct Scene {
    net: Net,
    dir: TempDir,
    _turn: Turn,
}

impl Scene {
    /// A stage beside others.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Turn::shared())
    }

    /// A stage while nobody else runs: for scenarios that hold detection against the promise of the check.
    #[must_use]
    pub fn alone() -> Self {
        Self::with(Turn::alone())
    }

    fn with(turn: Turn) -> Self {
        Self {
            net: Net::new(),
            dir: tempfile::tempdir().expect("the system has a folder for temporary files"),
            _turn: turn,
        }
    }

    /// Its addresses.
    #[must_use]
    pub fn net(&self) -> Net {
        self.net
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where its configuration is.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.dir().join("vitals.yaml")
    }

    /// Starts healthy backends, the first on host 11.
    #[must_use]
    pub fn backends(&self, count: u8) -> Vec<Backend> {
        (11..11 + count).map(|n| self.backend(n)).collect()
    }

    /// Starts a healthy backend on a host.
    #[must_use]
    pub fn backend(&self, host: u8) -> Backend {
        Backend::start(SocketAddr::new(self.net.host(host).into(), 0))
    }

    /// A configuration of service `shop` with these backends.
    #[must_use]
    pub fn shop(&self, backends: &[Backend]) -> Config {
        let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
        Config::shop(self.net, &addresses)
    }

    /// Saves the configuration and starts a server with it.
    #[track_caller]
    #[must_use]
    pub fn vitals(&self, config: &Config) -> Vitals {
        config.save(&self.config_path());
        Vitals::start(self.net, &self.config_path(), self.dir())
    }

    /// Starts an Envoy of fleet `edge`; it need not be live yet.
    #[track_caller]
    #[must_use]
    pub fn envoy(&self, vitals: &Vitals, transport: Transport) -> Envoy {
        Envoy::spawn(NODE, &vitals.bootstrap("edge", NODE, transport), self.dir())
    }

    /// A URL on Envoy's listener.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}:{LISTENER_PORT}{path}", self.net.host(1))
    }

    /// A request through Envoy's listener.
    pub fn get(&self, path: &str) -> Result<Reply, String> {
        get(&self.url(path))
    }

    /// Waits until requests through Envoy reach exactly these backends.
    #[track_caller]
    pub fn wait_for_traffic_to(&self, expected: &[&Backend]) {
        let expected: BTreeSet<String> = expected.iter().map(|b| b.name().to_owned()).collect();
        eventually(SOON, &format!("requests reach {expected:?}"), || {
            let seen = self.reached(expected.len() * 4)?;
            if seen == expected {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        });
    }

    /// Sends `count` requests that must all be answered with 200; returns who answered.
    pub fn reached(&self, count: usize) -> Result<BTreeSet<String>, String> {
        (0..count)
            .map(|_| {
                let reply = self.get("/")?;
                if reply.status == 200 {
                    Ok(reply.body)
                } else {
                    Err(format!("{reply:?}"))
                }
            })
            .collect()
    }

    /// Sends `count` requests that must all be answered with 200; returns how many of them each backend got.
    pub fn counted(
        &self,
        count: usize,
        backends: &[impl Borrow<Backend>],
    ) -> Result<Vec<u64>, String> {
        let seen = || backends.iter().map(|b| b.borrow().requests());
        let before: Vec<u64> = seen().collect();
        self.reached(count)?;
        Ok(seen()
            .zip(before)
            .map(|(now, before)| now - before)
            .collect())
    }

    /// Waits until requests through Envoy are answered with this status.
    #[track_caller]
    pub fn wait_for_answer(&self, status: u16) -> Reply {
        eventually(
            SOON,
            &format!("a request is answered with {status}"),
            || {
                let reply = self.get("/")?;
                match reply.status == status {
                    true => Ok(reply),
                    false => Err(format!("{reply:?}")),
                }
            },
        )
    }

    /// Starts a constant stream of requests through Envoy.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::start(&self.url("/"))
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

/// A scene with everybody on it; fields end in this order.
#[derive(Debug)]
pub struct Lab {
    /// An Envoy of fleet `edge`, live.
    pub envoy: Envoy,
    /// The server.
    pub vitals: Vitals,
    /// The backends of service `shop`.
    pub backends: Vec<Backend>,
    /// The configuration as last saved.
    pub config: Config,
    /// The stage.
    pub scene: Scene,
}

impl Lab {
    /// Starts `count` backends, the server and an Envoy, and waits until traffic reaches every backend.
    #[track_caller]
    #[must_use]
    pub fn start(transport: Transport, count: u8) -> Self {
        Self::on(Scene::new(), transport, count, |config| config)
    }

    /// The same on a given stage, with a changed configuration.
    #[track_caller]
    #[must_use]
    pub fn on(
        scene: Scene,
        transport: Transport,
        count: u8,
        change: impl FnOnce(Config) -> Config,
    ) -> Self {
        let backends = scene.backends(count);
        let config = change(scene.shop(&backends));
        let vitals = scene.vitals(&config);
        for backend in &backends {
            vitals.wait_for_status(backend.name(), "HEALTHY");
        }
        let envoy = scene.envoy(&vitals, transport);
        envoy.wait_until_live(SOON);
        let lab = Self {
            envoy,
            vitals,
            backends,
            config,
            scene,
        };
        lab.scene
            .wait_for_traffic_to(&lab.backends.iter().collect::<Vec<_>>());
        lab
    }

    /// Saves the configuration as it now is.
    pub fn save(&self) {
        self.config.save(&self.scene.config_path());
    }
}
