//! A scripted gRPC client: opens xDS streams and does on them what a scenario tells it, the wrong things included.
//!
//! In: requests in protobuf's JSON. Out: the responses and the ends of the streams. The wire is grpcio's
//! (`python/xds_client.py`), so that the server meets another HTTP/2 and gRPC than its own.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::backend::lock;
use crate::process::Process;
use crate::security;
use crate::servers::Certificate;
use crate::wait::{eventually, holds};
use crate::{Transport, tools};

/// Type URL of clusters.
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of endpoint assignments.
pub const ASSIGNMENT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Type URL of endpoints that stand apart.
pub const ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
/// Type URL of listeners.
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// The client's process; its streams are named by the scenario.
#[derive(Debug)]
pub struct XdsClient {
    stdin: ChildStdin,
    events: Arc<Mutex<Vec<Value>>>,
    _process: Process,
}

impl XdsClient {
    /// Starts a client of `server`, which speaks as that does ([`security`]). `dir` takes its log.
    #[must_use]
    pub fn start(server: SocketAddr, dir: &Path) -> Self {
        match security::files(server) {
            Some(files) => Self::start_tls(server, dir, &files.ca, files.own.as_ref()),
            None => Self::start_with(server, dir, &[]),
        }
    }

    /// Starts a client over TLS, which trusts `ca` and shows `own`, if there is one.
    #[must_use]
    pub fn start_tls(server: SocketAddr, dir: &Path, ca: &Path, own: Option<&Certificate>) -> Self {
        let own = own.map(|own| [&*own.cert, &*own.key]);
        let files: Vec<&Path> = std::iter::once(ca)
            .chain(own.into_iter().flatten())
            .collect();
        Self::start_with(server, dir, &files)
    }

    fn start_with(server: SocketAddr, dir: &Path, tls: &[&Path]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/xds_client.py");
        let (read, write) = std::io::pipe().expect("the system has pipes");
        let mut command = Command::new(tools::python());
        command.arg(script).arg(server.to_string()).args(tls);
        command.stdin(Stdio::piped());
        let mut process = Process::spawn_piped("xds client", command, write, &dir.join("xds.log"));
        let stdin = process.child().stdin.take().expect("stdin is a pipe");
        let events = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&events);
        // Ends when the process does: the pipe closes.
        std::thread::spawn(move || {
            for line in BufReader::new(read).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "bad": line }));
                lock(&list).push(event);
            }
        });
        Self {
            stdin,
            events,
            _process: process,
        }
    }

    /// Opens a stream.
    pub fn open(&mut self, stream: &str, transport: Transport) {
        self.open_with(stream, transport, true);
    }

    /// Opens a stream from which nothing is ever read.
    pub fn open_deaf(&mut self, stream: &str, transport: Transport) {
        self.open_with(stream, transport, false);
    }

    fn open_with(&mut self, stream: &str, transport: Transport, read: bool) {
        let method = transport.name().to_lowercase();
        self.command(json!({ "op": "open", "stream": stream, "method": method, "read": read }));
    }

    /// Sends a request.
    pub fn send(&mut self, stream: &str, request: Value) {
        self.command(json!({ "op": "send", "stream": stream, "request": request }));
    }

    /// Sends a request with `names` more resource names and `padding` more bytes.
    pub fn send_large(&mut self, stream: &str, request: Value, names: usize, padding: usize) {
        self.command(json!({
            "op": "send", "stream": stream, "request": request, "names": names, "padding": padding,
        }));
    }

    /// Cancels a stream.
    pub fn close(&mut self, stream: &str) {
        self.command(json!({ "op": "close", "stream": stream }));
    }

    /// What has happened on a stream so far.
    #[must_use]
    pub fn events(&self, stream: &str) -> Vec<Value> {
        let mut events = lock(&self.events).clone();
        events.retain(|event| event["stream"] == stream);
        events
    }

    /// Waits for a response of a type; `skip` is how many of that type to pass over.
    #[track_caller]
    #[must_use]
    pub fn response(&self, limit: Duration, stream: &str, kind: &str, skip: usize) -> Value {
        eventually(
            limit,
            &format!("response {skip} of {kind} on {stream}"),
            || {
                let events = self.events(stream);
                events
                    .iter()
                    .filter(|event| event["event"] == "response" && event["type"] == kind)
                    .nth(skip)
                    .cloned()
                    .ok_or_else(|| summary(&events))
            },
        )
    }

    /// How many responses of a type have come on a stream.
    #[must_use]
    pub fn count(&self, stream: &str, kind: &str) -> usize {
        self.events(stream)
            .iter()
            .filter(|event| event["event"] == "response" && event["type"] == kind)
            .count()
    }

    /// Waits for the end of a stream; returns the status code's name and the details.
    #[track_caller]
    #[must_use]
    pub fn end(&self, limit: Duration, stream: &str) -> (String, String) {
        eventually(limit, &format!("{stream} has ended"), || {
            let events = self.events(stream);
            let end = events.iter().find(|event| event["event"] == "end");
            let word = |end: &Value, key: &str| end[key].as_str().unwrap_or_default().to_owned();
            end.map(|end| (word(end, "code"), word(end, "details")))
                .ok_or_else(|| summary(&events))
        })
    }

    /// Sees that nothing more comes on a stream for `period`.
    #[track_caller]
    pub fn silent(&self, period: Duration, stream: &str) {
        let before = self.events(stream).len();
        holds(period, &format!("nothing comes on {stream}"), || {
            let events = self.events(stream);
            if events.len() == before {
                Ok(())
            } else {
                Err(summary(&events))
            }
        });
    }

    fn command(&mut self, command: Value) {
        writeln!(self.stdin, "{command}").expect("the xds client is there");
    }
}

/// A node of a cluster, for a stream's first request.
#[must_use]
pub fn node(id: &str, cluster: &str) -> Value {
    json!({ "id": id, "cluster": cluster })
}

/// The ACK of a SotW response.
#[must_use]
pub fn ack(response: &Value) -> Value {
    json!({
        "type_url": response["type"], "response_nonce": response["nonce"],
        "version_info": response["version"],
    })
}

/// The last few events, shortened.
fn summary(events: &[Value]) -> String {
    let tail = events.get(events.len().saturating_sub(4)..).unwrap_or(&[]);
    let lines: Vec<String> = tail
        .iter()
        .map(|event| event.to_string().chars().take(400).collect())
        .collect();
    format!("{} events; the last: {}", events.len(), lines.join("\n"))
}
