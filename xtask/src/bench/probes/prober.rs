//! The probers that are compared: how each is configured to do the same, and what each tells of itself.
//!
//! In: the binaries, a [`Load`]. Out: a [`Running`] prober. All of them open a connection for each probe and close it. Vitals and
//! HAProxy close with RST; Envoy closes as it likes. HAProxy has no gRPC check.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Kind;
use crate::bench::measure::{free_port, wait};
use crate::bench::metrics::Page;
use crate::bench::server::{Server, addresses, get, write_config};
use crate::process::{Guard, check_interrupt, pause};
use crate::tools::debian::Program;

const PATH: &str = "/healthz";

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(in crate::bench) enum Prober {
    Vitals,
    #[value(name = "HAProxy")]
    HaProxy,
    Envoy,
}

impl Prober {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Vitals => "Vitals",
            Self::HaProxy => "HAProxy",
            Self::Envoy => "Envoy",
        }
    }

    pub(super) fn can(self, kind: Kind) -> bool {
        self != Self::HaProxy || kind != Kind::Grpc
    }
}

/// The binaries.
pub(super) struct Binaries {
    pub(super) vitals: PathBuf,
    pub(super) haproxy: Program,
    pub(super) envoy: PathBuf,
}

/// What a prober shall do.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) kind: Kind,
    pub(super) endpoints: u32,
    pub(super) port: u16,
    pub(super) interval: Duration,
}

/// A prober that runs.
pub(super) enum Running {
    Vitals(Server),
    HaProxy { guard: Guard, socket: PathBuf },
    Envoy { guard: Guard, admin: SocketAddr },
}

impl Running {
    /// Starts one that writes to the folder `dir`, and waits until it answers.
    pub(super) fn start(
        prober: Prober,
        binaries: &Binaries,
        load: Load,
        dir: &Path,
    ) -> Result<Self> {
        match prober {
            Prober::Vitals => start_vitals(&binaries.vitals, load, dir),
            Prober::HaProxy => start_haproxy(&binaries.haproxy, load, dir),
            Prober::Envoy => start_envoy(&binaries.envoy, load, dir),
        }
    }

    pub(super) fn guard(&mut self) -> &mut Guard {
        match self {
            Self::Vitals(server) => &mut server.guard,
            Self::HaProxy { guard, .. } | Self::Envoy { guard, .. } => guard,
        }
    }

    /// How many probes it has made, by its own count; HAProxy has none.
    pub(super) fn probes(&self) -> Result<Option<f64>> {
        match self {
            Self::Vitals(server) => Ok(Some(server.metrics()?.sum("vitals_probes_total", ""))),
            Self::HaProxy { .. } => Ok(None),
            Self::Envoy { admin, .. } => Ok(Some(envoy_stat(*admin, "health_check.attempt")?)),
        }
    }

    /// How many endpoints it believes in.
    pub(super) fn healthy(&self) -> Result<f64> {
        match self {
            Self::Vitals(server) => Ok(server
                .metrics()?
                .sum("vitals_endpoints", "status=\"HEALTHY\"")),
            Self::HaProxy { socket, .. } => haproxy_healthy(socket),
            Self::Envoy { admin, .. } => envoy_stat(*admin, "membership_healthy"),
        }
    }

    /// Vitals' metrics.
    pub(super) fn page(&self) -> Result<Option<Page>> {
        match self {
            Self::Vitals(server) => server.metrics().map(Some),
            Self::HaProxy { .. } | Self::Envoy { .. } => Ok(None),
        }
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.healthy().is_err() {
            self.guard().must_run()?;
            check_interrupt()?;
            if start.elapsed() > Duration::from_secs(60) {
                bail!("a prober does not answer after a minute");
            }
            pause(Duration::from_millis(50));
        }
        wait(Duration::from_millis(100), &mut [self.guard()])
    }
}

/// Vitals' configuration, in `dir`.
pub(super) fn vitals_config(load: Load, dir: &Path) -> Result<PathBuf> {
    let interval = seconds_or_ms(load.interval);
    let name = load.kind.name();
    let mut check = format!("type: {name}, checkInterval: {interval}, timeout: {interval}");
    match load.kind {
        Kind::Http | Kind::Https => write!(check, ", http: {{ requestPath: {PATH} }}")?,
        Kind::Tcp | Kind::Grpc => {}
    }
    // What the endpoints serve is of no interest here; a check need not speak the service's protocol.
    let protocol = match load.kind {
        Kind::Http | Kind::Https => Kind::Http.name(),
        Kind::Tcp | Kind::Grpc => name,
    };
    write_config(dir, &check, protocol, load.endpoints, load.port)
}

/// Why the server refuses a kind of check that it does not have yet; any other refusal is an error.
pub(super) fn refusal(vitals: &Path, load: Load, dir: &Path) -> Result<Option<String>> {
    let config = vitals_config(load, dir)?;
    let output = Command::new(vitals).arg("validate").arg(config).output();
    let output = output.with_context(|| format!("cannot start {}", vitals.display()))?;
    if output.status.success() {
        return Ok(None);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    match text.lines().find(|line| line.contains("not supported yet")) {
        Some(_) => Ok(Some("not supported yet".into())),
        None => bail!("vitals validate: {text}"),
    }
}

fn start_vitals(vitals: &Path, load: Load, dir: &Path) -> Result<Running> {
    let config = vitals_config(load, dir)?;
    Server::start(vitals, dir, &config).map(Running::Vitals)
}

fn start_haproxy(haproxy: &Program, load: Load, dir: &Path) -> Result<Running> {
    let socket = dir.join("haproxy.sock");
    let interval = load.interval.as_millis();
    let mode = match load.kind {
        Kind::Tcp => "tcp",
        Kind::Http | Kind::Https | Kind::Grpc => "http",
    };
    let mut text = format!(
        "global\n  nbthread 1\n  maxconn 1000\n  stats socket {} mode 600 level admin\n\
         defaults\n  mode {mode}\n  timeout connect {interval}ms\n  timeout check {interval}ms\n  timeout client 1m\n  timeout server 1m\n\
         backend shop\n  default-server check inter {interval}ms rise 2 fall 2{}\n",
        socket.display(),
        if load.kind == Kind::Https {
            " check-ssl verify none"
        } else {
            ""
        },
    );
    if load.kind != Kind::Tcp {
        writeln!(text, "  option httpchk GET {PATH}")?;
    }
    for (n, address) in addresses(load.endpoints).enumerate() {
        writeln!(text, "  server s{n} {address}:{}", load.port)?;
    }
    let config = dir.join("haproxy.cfg");
    fs::write(&config, text).context("cannot write haproxy.cfg")?;
    let mut command = haproxy.command();
    command.args(["-db", "-f"]).arg(config);
    let mut running = Running::HaProxy {
        guard: Guard::start("HAProxy", &mut command, &dir.join("haproxy.log"))?,
        socket,
    };
    running.wait_until_it_answers()?;
    Ok(running)
}

/// Servers whose last check passed.
fn haproxy_healthy(socket: &Path) -> Result<f64> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // All proxies, servers only, all servers.
    stream.write_all(b"show stat -1 4 -1\n")?;
    let mut csv = String::new();
    stream.read_to_string(&mut csv)?;
    let passed = |line: &&str| ["L4OK", "L6OK", "L7OK"].iter().any(|ok| line.contains(ok));
    let count = u32::try_from(csv.lines().filter(passed).count())?;
    Ok(count.into())
}

fn start_envoy(envoy: &Path, load: Load, dir: &Path) -> Result<Running> {
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)?));
    let bootstrap = json!({
        "admin": { "address": socket_address(Ipv4Addr::LOCALHOST, admin.port()) },
        "static_resources": { "clusters": [envoy_cluster(load)] },
    });
    let config = dir.join("envoy.json");
    fs::write(&config, bootstrap.to_string()).context("cannot write envoy.json")?;
    let mut command = Command::new(envoy);
    command.arg("--config-path").arg(config);
    command.args(["--disable-hot-restart", "--concurrency", "1"]);
    command.args(["--log-level", "warning"]);
    let mut running = Running::Envoy {
        guard: Guard::start("Envoy", &mut command, &dir.join("envoy.log"))?,
        admin,
    };
    running.wait_until_it_answers()?;
    Ok(running)
}

fn envoy_cluster(load: Load) -> Value {
    let interval = format!("{:.3}s", load.interval.as_secs_f64());
    let (check, body) = match load.kind {
        Kind::Http | Kind::Https => ("http_health_check", json!({ "path": PATH })),
        Kind::Tcp => ("tcp_health_check", json!({})),
        Kind::Grpc => ("grpc_health_check", json!({})),
    };
    let endpoints: Vec<Value> = addresses(load.endpoints)
        .map(|address| json!({ "endpoint": { "address": socket_address(address, load.port) } }))
        .collect();
    let extensions = "type.googleapis.com/envoy.extensions";
    let tls = json!({
        "name": "tls",
        "typed_config": { "@type": format!("{extensions}.transport_sockets.tls.v3.UpstreamTlsContext") },
    });
    let http2 = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": format!("{extensions}.upstreams.http.v3.HttpProtocolOptions"),
            "explicit_http_config": { "http2_protocol_options": {} },
        },
    });
    let only = |kind: Kind, value: Value| Some(value).filter(|_| load.kind == kind);
    json!({
        "name": "checked",
        "type": "STATIC",
        "connect_timeout": interval,
        "transport_socket": only(Kind::Https, tls),
        "typed_extension_protocol_options": only(Kind::Grpc, http2),
        "load_assignment": { "cluster_name": "checked", "endpoints": [{ "lb_endpoints": endpoints }] },
        "health_checks": [{
            "timeout": interval,
            "interval": interval,
            "no_traffic_interval": interval,
            "initial_jitter": interval,
            "healthy_threshold": 2,
            "unhealthy_threshold": 2,
            "reuse_connection": false,
            check: body,
        }],
    })
}

fn socket_address(address: Ipv4Addr, port: u16) -> Value {
    json!({ "socket_address": { "address": address.to_string(), "port_value": port } })
}

/// A counter or gauge of the cluster.
fn envoy_stat(admin: SocketAddr, name: &str) -> Result<f64> {
    let page = get(
        admin,
        "/stats?filter=^cluster.checked.(health_check|membership)",
    )?;
    let prefix = format!("cluster.checked.{name}: ");
    page.lines()
        .find_map(|line| line.strip_prefix(&prefix)?.parse().ok())
        .with_context(|| format!("Envoy has no cluster.checked.{name}"))
}

/// A duration as Vitals' configuration says it.
pub(super) fn seconds_or_ms(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms.is_multiple_of(1000) {
        format!("{}s", ms / 1000)
    } else {
        format!("{ms}ms")
    }
}
