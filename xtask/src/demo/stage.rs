//! The processes of the demo: three backends, the server, an Envoy.
//!
//! In: the binaries and `deploy/quickstart/`. Out: everything running, Envoy live. They end with the [`Stage`].

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::time::Instant;

use super::observe::{self, say};
use super::ports::Ports;
use crate::process::{Guard, check_interrupt, pause};
use crate::workspace::root;

const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that runs; fields end in this order.
pub(super) struct Stage {
    envoy: Guard,
    vitals: Guard,
    backends: Vec<(SocketAddr, Guard)>,
    dir: TempDir,
    ports: Ports,
    begun: Instant,
}

impl Stage {
    /// Starts everything and waits until Envoy is live.
    pub(super) fn start(vitals: &Path, envoy: &Path, sotw: bool) -> Result<Self> {
        let begun = Instant::now();
        let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
        let ports = Ports::free()?;
        let config = config(ports, dir.path(), begun)?;
        let backends = ports
            .backends()
            .into_iter()
            .map(|address| Ok((address, backend(address, dir.path())?)))
            .collect::<Result<Vec<_>>>()?;
        say(begun, "3 backends started");

        let mut serve = Command::new(vitals);
        serve.arg("serve").arg("--config").arg(&config);
        serve.args(["--xds-listen", &ports.xds().to_string()]);
        serve.args(["--admin-listen", &ports.admin().to_string()]);
        serve.arg("--state-dir").arg(dir.path().join("state"));
        let vitals_guard = Guard::start("vitals", &mut serve, &dir.path().join("vitals.log"))?;
        say(begun, "vitals started");

        let bootstrap = bootstrap(vitals, &config, dir.path(), ports, sotw)?;
        let mut command = Command::new(envoy);
        command.arg("--config-path").arg(bootstrap);
        command.args(["--disable-hot-restart", "--concurrency", "2"]);
        let envoy = Guard::start("Envoy", &mut command, &dir.path().join("envoy.log"))?;
        say(begun, "Envoy started; it knows nothing but where vitals is");
        let mut stage = Self {
            envoy,
            vitals: vitals_guard,
            backends,
            dir,
            ports,
            begun,
        };
        stage.wait_until_live()?;
        Ok(stage)
    }

    fn wait_until_live(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.check()?;
            if observe::envoy_is_live(self.ports) {
                break;
            }
            if begin.elapsed() > PATIENCE {
                bail!("Envoy is not live after {} s", PATIENCE.as_secs());
            }
            pause(Duration::from_millis(20));
        }
        say(
            self.begun,
            &format!(
                "Envoy is live and serves the listener that vitals pushed, {}",
                self.ports.listener()
            ),
        );
        Ok(())
    }

    /// When the demo began.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Where everybody is.
    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    /// An error when the server or Envoy has ended, or somebody pressed Ctrl-C.
    pub(super) fn check(&mut self) -> Result<()> {
        check_interrupt()?;
        self.vitals.must_run()?;
        self.envoy.must_run()
    }

    /// Kills a backend.
    pub(super) fn kill(&mut self, address: SocketAddr) -> Result<()> {
        self.backend(address)?.kill()
    }

    /// Starts a backend again.
    pub(super) fn revive(&mut self, address: SocketAddr) -> Result<()> {
        let guard = backend(address, self.dir.path())?;
        *self.backend(address)? = guard;
        Ok(())
    }

    /// The backends with their process ids; `None` for one that is dead.
    pub(super) fn backends(&mut self) -> Result<Vec<(SocketAddr, Option<u32>)>> {
        self.backends
            .iter_mut()
            .map(|(address, guard)| Ok((*address, guard.is_running()?.then(|| guard.id()))))
            .collect()
    }

    fn backend(&mut self, address: SocketAddr) -> Result<&mut Guard> {
        self.backends
            .iter_mut()
            .find(|(own, _)| *own == address)
            .map(|(_, guard)| guard)
            .with_context(|| format!("there is no backend {address}"))
    }
}

fn backend(address: SocketAddr, dir: &Path) -> Result<Guard> {
    let xtask = std::env::current_exe().context("cannot find xtask's own binary")?;
    let mut command = Command::new(xtask);
    command.args(["backend", "--listen", &address.to_string()]);
    Guard::start("backend", &mut command, &dir.join("backend.log"))
}

/// The quickstart's configuration, or a copy with other ports.
fn config(ports: Ports, dir: &Path, begun: Instant) -> Result<PathBuf> {
    let quickstart = root()?.join("deploy/quickstart/vitals.yaml");
    if ports.are_the_quickstarts() {
        return Ok(quickstart);
    }
    say(
        begun,
        "somebody has a port of the quickstart; taking other ports",
    );
    let text = fs::read_to_string(&quickstart).context("deploy/quickstart/vitals.yaml")?;
    let path = dir.join("vitals.yaml");
    fs::write(&path, ports.apply(&text))?;
    Ok(path)
}

/// Lets `vitals bootstrap` write Envoy's configuration.
fn bootstrap(
    vitals: &Path,
    config: &Path,
    dir: &Path,
    ports: Ports,
    sotw: bool,
) -> Result<PathBuf> {
    let mut command = Command::new(vitals);
    command.arg("bootstrap").arg("--config").arg(config);
    command.args(["--fleet", "edge", "--server", &ports.xds().to_string()]);
    command.args(["--node-id", "quickstart"]);
    command.args(["--admin-port", &ports.envoy_admin().port().to_string()]);
    if !sotw {
        command.arg("--delta");
    }
    let output = command.output().context("cannot start vitals bootstrap")?;
    if !output.status.success() {
        bail!(
            "vitals bootstrap: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let path = dir.join("envoy.yaml");
    fs::write(&path, output.stdout)?;
    Ok(path)
}
