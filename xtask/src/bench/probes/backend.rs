//! The backends that all probers share: nginx, and our own gRPC health server.
//!
//! In: a folder, nginx. Out: three ports that answer on every address of the machine. Each backend is one process without
//! threads, so that its own time is told apart from a prober's.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::Instant;

use super::Kind;
use crate::bench::measure::{cpu, free_port};
use crate::process::{Guard, check_interrupt, pause};
use crate::tools::debian::Program;
use crate::tools::run;

/// The running backends.
pub(super) struct Backends {
    nginx: Guard,
    grpc: Guard,
    http_port: u16,
    https_port: u16,
    grpc_port: u16,
}

impl Backends {
    /// Starts them and waits until they accept. `descriptors` is how many a process may have.
    pub(super) fn start(dir: &Path, nginx: &Program, descriptors: u64) -> Result<Self> {
        let port = || free_port(Ipv4Addr::UNSPECIFIED);
        let (http_port, https_port, grpc_port) = (port()?, port()?, port()?);
        certificate(dir)?;
        let config = dir.join("nginx.conf");
        let text = nginx_config(dir, http_port, https_port, descriptors);
        fs::write(&config, text).context("cannot write nginx.conf")?;
        let mut command = nginx.command();
        command.arg("-p").arg(dir).arg("-c").arg(&config);
        command.arg("-e").arg(dir.join("nginx-error.log"));
        let nginx = Guard::start("nginx", &mut command, &dir.join("nginx.log"))?;

        let mut command = Command::new(std::env::current_exe()?);
        command.args(["backend", "--grpc", "--listen"]);
        command.arg(format!("0.0.0.0:{grpc_port}"));
        let grpc = Guard::start("gRPC backend", &mut command, &dir.join("grpc.log"))?;
        let mut backends = Self {
            nginx,
            grpc,
            http_port,
            https_port,
            grpc_port,
        };
        backends.wait_until_up()?;
        Ok(backends)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let start = Instant::now();
        for port in [self.http_port, self.https_port, self.grpc_port] {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
                self.nginx.must_run()?;
                self.grpc.must_run()?;
                check_interrupt()?;
                if start.elapsed() > Duration::from_secs(30) {
                    bail!("the backends do not listen after half a minute");
                }
                pause(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// The one that answers probes of a kind.
    pub(super) fn guard(&mut self, kind: Kind) -> &mut Guard {
        match kind {
            Kind::Grpc => &mut self.grpc,
            Kind::Http | Kind::Tcp | Kind::Https => &mut self.nginx,
        }
    }

    pub(super) fn port(&self, kind: Kind) -> u16 {
        match kind {
            Kind::Http | Kind::Tcp => self.http_port,
            Kind::Https => self.https_port,
            Kind::Grpc => self.grpc_port,
        }
    }

    /// The time that all of them have used, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        Ok(cpu(self.nginx.id())? + cpu(self.grpc.id())?)
    }
}

/// A self-signed certificate on a P-256 key.
fn certificate(dir: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    command.args(["-subj", "/CN=bench.example", "-out"]);
    command.arg(dir.join("cert.pem")).arg("-keyout");
    command.arg(dir.join("key.pem"));
    run(
        &mut command,
        "openssl cannot make a certificate (on Debian and Ubuntu: apt-get install openssl)",
    )
}

fn nginx_config(dir: &Path, http_port: u16, https_port: u16, descriptors: u64) -> String {
    let dir = dir.display();
    // Each takes some hundred bytes at once.
    let connections = descriptors.min(65_536);
    // Without a master there is one process, which ends when it is told to.
    format!(
        "daemon off;
master_process off;
user root;
pid {dir}/nginx.pid;
worker_rlimit_nofile {descriptors};
events {{
  worker_connections {connections};
  multi_accept on;
}}
http {{
  access_log off;
  server_tokens off;
  client_body_temp_path {dir}/nginx-body;
  proxy_temp_path {dir}/nginx-proxy;
  fastcgi_temp_path {dir}/nginx-fastcgi;
  uwsgi_temp_path {dir}/nginx-uwsgi;
  scgi_temp_path {dir}/nginx-scgi;
  ssl_certificate {dir}/cert.pem;
  ssl_certificate_key {dir}/key.pem;
  ssl_protocols TLSv1.2 TLSv1.3;
  ssl_session_cache shared:bench:32m;
  server {{
    listen 0.0.0.0:{http_port} backlog=4096;
    listen 0.0.0.0:{https_port} ssl backlog=4096;
    location / {{ return 200 \"ok\"; }}
  }}
}}
"
    )
}
