//! Servers of others that a probe may meet: nginx, HAProxy, OpenSSL's, grpcio's; and certificates for them.
//!
//! In: a folder, addresses, configuration. Out: processes that accept connections and end with their guards.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Process, run, text};
use crate::tools;
use crate::wait::{SOON, eventually};

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Certificate {
    /// A self-signed one for `name`, valid for a month.
    #[track_caller]
    #[must_use]
    pub fn self_signed(dir: &Path, name: &str) -> Self {
        let made = Self::at(dir, "self-signed");
        made.request(dir, name, &["-x509", "-days", "30"], &made.cert);
        made
    }

    /// A self-signed one for `name` that was valid on the first day of 2020.
    #[track_caller]
    #[must_use]
    pub fn expired(dir: &Path, name: &str) -> Self {
        let made = Self::at(dir, "expired");
        let request = dir.join("expired.csr");
        made.request(dir, name, &[], &request);
        // `req` knows no dates in the past; `ca` does, and wants a database.
        write(&dir.join("ca.index"), "");
        let mut command = tools::openssl();
        command.args(["ca", "-batch", "-notext", "-selfsign", "-config"]);
        command.arg(dir.join("openssl.conf"));
        command.args(["-startdate", "20200101000000Z"]);
        command.args(["-enddate", "20200102000000Z", "-in"]);
        command.arg(&request).arg("-keyfile").arg(&made.key);
        command.arg("-out").arg(&made.cert);
        must(&mut command);
        made
    }

    fn at(dir: &Path, file: &str) -> Self {
        Self {
            cert: dir.join(format!("{file}.pem")),
            key: dir.join(format!("{file}.key")),
        }
    }

    /// Makes the key and, with it, what `flags` ask for.
    #[track_caller]
    fn request(&self, dir: &Path, name: &str, flags: &[&str], out: &Path) {
        // Left to its defaults, `req` makes certificates of authorities, which no server may use in verified TLS.
        let place = dir.display();
        let text = format!(
            "[req]
distinguished_name = subject
x509_extensions = server
prompt = no
[subject]
commonName = {name}
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:{name}
[ca]
default_ca = own
[own]
database = {place}/ca.index
new_certs_dir = {place}
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = server
[any]
commonName = supplied
"
        );
        let config = dir.join("openssl.conf");
        write(&config, &text);
        let mut command = tools::openssl();
        command.args(["req", "-new", "-newkey", "ec", "-nodes", "-config"]);
        command.arg(&config).args(flags);
        command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout"]);
        command.arg(&self.key).arg("-out").arg(out);
        must(&mut command);
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the scenario's folder is writable");
}

#[track_caller]
fn must(command: &mut Command) {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", text(&output));
}

/// nginx with these `server { … }` blocks; accepts on `addresses`.
#[track_caller]
#[must_use]
pub fn nginx(dir: &Path, servers: &str, addresses: &[SocketAddr]) -> Process {
    let place = dir.display();
    // Without a master there is one process, which ends with its guard.
    let config = format!(
        "daemon off;
master_process off;
pid {place}/nginx.pid;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {place}/nginx-body;
  proxy_temp_path {place}/nginx-proxy;
  fastcgi_temp_path {place}/nginx-fastcgi;
  uwsgi_temp_path {place}/nginx-uwsgi;
  scgi_temp_path {place}/nginx-scgi;
  {servers}
}}
"
    );
    let path = dir.join("nginx.conf");
    write(&path, &config);
    let mut command = tools::nginx();
    command.arg("-p").arg(dir).arg("-c").arg(&path);
    command.args(["-e", "stderr"]);
    start("nginx", &mut command, dir, addresses)
}

/// HAProxy that answers 200 to those who begin with a PROXY header of either version.
#[track_caller]
#[must_use]
pub fn haproxy(dir: &Path, address: SocketAddr) -> Process {
    let config = format!(
        "defaults
  mode http
  timeout client 10s
  timeout connect 10s
  timeout server 10s
frontend probes
  bind {address} accept-proxy
  http-request return status 200 content-type text/plain lf-string from-%[src]
"
    );
    let path = dir.join("haproxy.cfg");
    write(&path, &config);
    let mut command = tools::haproxy();
    command.arg("-db").arg("-f").arg(&path);
    start("haproxy", &mut command, dir, &[address])
}

/// HAProxy that passes the bytes of those who begin with a PROXY header on to a server, and turns all others away.
#[track_caller]
#[must_use]
pub fn haproxy_before(dir: &Path, ways: &[(SocketAddr, SocketAddr)]) -> Process {
    let mut config = String::from(
        "defaults
  mode tcp
  timeout client 10s
  timeout connect 10s
  timeout server 10s
",
    );
    for (n, (front, back)) in ways.iter().enumerate() {
        config.push_str(&format!(
            "listen way{n}\n  bind {front} accept-proxy\n  server back {back}\n"
        ));
    }
    let path = dir.join("haproxy-before.cfg");
    write(&path, &config);
    let mut command = tools::haproxy();
    command.arg("-db").arg("-f").arg(&path);
    let fronts: Vec<SocketAddr> = ways.iter().map(|(front, _)| *front).collect();
    start("haproxy", &mut command, dir, &fronts)
}

/// `openssl s_server` with these flags.
#[track_caller]
#[must_use]
pub fn s_server(
    dir: &Path,
    address: SocketAddr,
    certificate: &Certificate,
    flags: &str,
) -> Process {
    let mut command = tools::openssl();
    command.args(["s_server", "-accept", &address.to_string()]);
    command.arg("-cert").arg(&certificate.cert);
    command.arg("-key").arg(&certificate.key);
    command.args(flags.split_whitespace());
    start("s_server", &mut command, dir, &[address])
}

/// grpcio's server with a health service: SERVING as a whole, NOT_SERVING for `sick`, NOT_FOUND for all others.
#[track_caller]
#[must_use]
pub fn grpcio(dir: &Path, address: SocketAddr, certificate: Option<&Certificate>) -> Process {
    let mut command = python("health_server.py");
    command.arg(address.to_string());
    if let Some(certificate) = certificate {
        command.arg(&certificate.cert).arg(&certificate.key);
    }
    start("grpcio", &mut command, dir, &[address])
}

/// A server that speaks this `ssl.TLSVersion` alone, and leaves right after the handshake.
#[track_caller]
#[must_use]
pub fn tls_leaver(
    dir: &Path,
    address: SocketAddr,
    certificate: &Certificate,
    version: &str,
) -> Process {
    let mut command = python("tls_leaver.py");
    command.arg(address.to_string());
    command.arg(&certificate.cert).arg(&certificate.key);
    command.arg(version);
    start("tls_leaver", &mut command, dir, &[address])
}

fn python(script: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut command = Command::new(tools::python());
    command.arg(folder.join(script));
    command
}

/// Starts it and waits until it accepts everywhere. Its stdin stays open and silent.
#[track_caller]
fn start(name: &str, command: &mut Command, dir: &Path, addresses: &[SocketAddr]) -> Process {
    let port = addresses.first().map_or(0, SocketAddr::port);
    let log = dir.join(format!("{name}-{port}.log"));
    let mut process = Process::spawn(name, command.stdin(Stdio::piped()), &log);
    for address in addresses {
        eventually(SOON, &format!("{name} accepts on {address}"), || {
            if let Some(status) = process.ended() {
                panic!("{name} ended with {status}");
            }
            TcpStream::connect(address)
                .map(drop)
                .map_err(|error| error.to_string())
        });
    }
    process
}
