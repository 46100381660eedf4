//! One connection with some streams on it, and what each stream says: clusters first, then the load assignments of all of
//! them, then listeners, as an Envoy does, and where endpoints stand apart the collections that load assignments name; an ACK for everything; after a broken connection the same again, in delta with
//! the versions it has.
//!
//! In: where the server is. Out: notes to the [`Tally`]. Not here: reading of messages (`wire`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use h2::SendStream;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::tally::Tally;
use crate::wire::{Ask, Form, Kind, Message, Reader, request, service_name};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Swarm {
    pub(crate) form: Form,
    pub(crate) tally: Tally,
    /// The names of all load assignments.
    pub(crate) names: Vec<String>,
    /// How many endpoints stand apart from them.
    apart: usize,
    /// Streams that read nothing after their first state.
    pub(crate) deaf: usize,
}

impl Swarm {
    pub(crate) fn new(
        form: Form,
        streams: usize,
        services: usize,
        endpoints: usize,
        deaf: usize,
    ) -> Self {
        Self {
            form,
            tally: Tally::new(streams - deaf),
            names: (0..services).map(service_name).collect(),
            apart: if form == Form::Leds {
                services * endpoints
            } else {
                0
            },
            deaf,
        }
    }
}

/// Windows as large as Envoy's.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 24 << 20;

/// Serves one connection for ever. `first` is the number of its first stream.
pub(crate) async fn connection(
    swarm: Arc<Swarm>,
    mut server: watch::Receiver<Option<std::net::SocketAddr>>,
    first: usize,
    count: usize,
) {
    let mut clients: Vec<Client> = (first..first + count)
        .map(|id| Client::new(id, &swarm))
        .collect();
    let mut attempt = 0u64;
    // The first time they come one after the other: a queue of connections that overflows would be what is measured.
    if server.wait_for(Option::is_some).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(first as u64)).await;
    }
    loop {
        let Ok(address) = server
            .wait_for(Option::is_some)
            .await
            .map(|address| *address)
        else {
            return;
        };
        if let Some(address) = address {
            clients = converse(&swarm, address, clients).await;
        }
        for client in &mut clients {
            client.disconnect(&swarm);
        }
        // As many clients do, with jitter, so that they do not come back all at once.
        attempt += 1;
        let jitter = mix(first as u64 ^ attempt << 32) % 500;
        tokio::time::sleep(Duration::from_millis(100 + jitter)).await;
    }
}

fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ seed >> 31
}

/// Runs all streams until the connection breaks.
async fn converse(
    swarm: &Arc<Swarm>,
    address: std::net::SocketAddr,
    clients: Vec<Client>,
) -> Vec<Client> {
    let Ok(sender) = open(address).await else {
        return clients;
    };
    let mut streams = Vec::with_capacity(clients.len());
    for client in clients {
        let (swarm, sender) = (Arc::clone(swarm), sender.clone());
        // Ends with the connection, at the latest.
        streams.push(tokio::spawn(async move {
            let mut client = client;
            // What ends a stream is the same for the swarm: it begins again.
            client.stream(&swarm, sender).await.ok();
            client
        }));
    }
    drop(sender);
    let mut clients = Vec::with_capacity(streams.len());
    for stream in streams {
        clients.extend(stream.await.ok());
    }
    clients
}

async fn open(address: std::net::SocketAddr) -> Result<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(socket)
        .await?;
    // Ends with the connection.
    tokio::spawn(async move { connection.await.ok() });
    Ok(sender)
}

/// One stream, over all of its connections.
#[derive(Debug)]
struct Client {
    id: String,
    deaf: bool,
    /// By service, 0 for none: clusters, load assignments. In SotW 1 stands for any.
    clusters: Vec<u64>,
    assignments: Vec<u64>,
    /// The services whose resources have not come yet.
    missing: usize,
    /// The endpoints that stand apart and have not come since it connected.
    missing_apart: usize,
    globs: BTreeSet<String>,
    subscribed: bool,
    answered: bool,
    in_step: bool,
    flip: u64,
    place: usize,
}

impl Client {
    fn new(number: usize, swarm: &Swarm) -> Self {
        let services = swarm.names.len();
        Self {
            id: format!("swarm-{number}"),
            deaf: number < swarm.deaf,
            clusters: vec![0; services],
            assignments: vec![0; services],
            missing: 2 * services,
            missing_apart: swarm.apart,
            globs: BTreeSet::new(),
            subscribed: false,
            answered: false,
            in_step: false,
            flip: 0,
            place: 0,
        }
    }

    fn disconnect(&mut self, swarm: &Swarm) {
        if std::mem::take(&mut self.in_step) {
            swarm.tally.disconnects.fetch_add(1, Ordering::Relaxed);
            swarm.tally.step(false);
        }
        (self.subscribed, self.answered) = (false, false);
        // No client says which it has.
        self.missing_apart = swarm.apart;
        self.globs.clear();
        if swarm.form == Form::Sotw {
            // It has no versions to show, so all of it comes anew.
            self.clusters.fill(0);
            self.assignments.fill(0);
            self.missing = 2 * swarm.names.len();
        }
    }

    async fn stream(&mut self, swarm: &Swarm, sender: SendRequest<Bytes>) -> Result<()> {
        let mut sender = sender.ready().await?;
        let head = http::Request::post(format!("http://vitals{}", swarm.form.path()))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, mut out) = sender.send_request(head, false)?;
        drop(sender);
        let node = Some(&*self.id.clone());
        let ask = Ask {
            node,
            has: &self.clusters,
            ..Ask::default()
        };
        send(swarm, &mut out, Kind::Cluster, &ask)?;
        if self.missing == 0 {
            self.subscribe(swarm, &mut out)?;
        }
        let mut body = response.await?.into_body();
        let mut reader = Reader::new(swarm.form);
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            swarm
                .tally
                .bytes
                .fetch_add(chunk.len() as u64, Ordering::Relaxed);
            reader.feed(&chunk, |message| self.take(swarm, &mut out, message))?;
            if self.deaf && self.answered {
                std::future::pending::<()>().await;
            }
            body.flow_control().release_capacity(chunk.len())?;
        }
        bail!("the server has ended the stream")
    }

    fn subscribe(&mut self, swarm: &Swarm, out: &mut SendStream<Bytes>) -> Result<()> {
        self.subscribed = true;
        let ask = Ask {
            names: &swarm.names,
            has: &self.assignments,
            ..Ask::default()
        };
        send(swarm, out, Kind::Assignment, &ask)?;
        send(swarm, out, Kind::Listener, &Ask::default())
    }

    fn take(&mut self, swarm: &Swarm, out: &mut SendStream<Bytes>, message: Message) -> Result<()> {
        let tally = &swarm.tally;
        let kind = message.kind.context("a type that was not asked for")?;
        tally.messages.fetch_add(1, Ordering::Relaxed);
        tally
            .resources
            .fetch_add(message.resources.len() as u64, Ordering::Relaxed);
        tally
            .removed
            .fetch_add(message.removed as u64, Ordering::Relaxed);
        self.acknowledge(swarm, out, kind, &message)?;
        match kind {
            Kind::Listener => self.answered = true,
            Kind::Cluster | Kind::Assignment => self.keep(swarm, kind, &message.resources),
            Kind::Endpoint => {
                let came = message.resources.len();
                self.missing_apart = self.missing_apart.saturating_sub(came);
            }
        }
        if kind == Kind::Cluster && !self.subscribed {
            self.subscribe(swarm, out)?;
        }
        let mut globs = message.globs.clone();
        globs.retain(|glob| self.globs.insert(glob.clone()));
        if !globs.is_empty() {
            let ask = Ask {
                names: &globs,
                ..Ask::default()
            };
            send(swarm, out, Kind::Endpoint, &ask)?;
        }
        let (of_flips, flipped) = match swarm.form {
            Form::Sotw | Form::Delta => (Kind::Assignment, &tally.flipped),
            Form::Leds => (Kind::Endpoint, &tally.flipped_endpoint),
        };
        if kind == of_flips && !self.deaf {
            if kind == Kind::Assignment {
                self.place = tally.saw(self.place, &message.version);
            }
            let (flip, flipped) = (
                tally.flip.load(Ordering::SeqCst),
                flipped.load(Ordering::SeqCst),
            );
            if self.flip != flip
                && message
                    .resources
                    .iter()
                    .any(|(number, _)| *number == Some(flipped))
            {
                self.flip = flip;
                tally.acked();
            }
        }
        if !self.in_step && !self.deaf && self.answered && self.missing + self.missing_apart == 0 {
            self.in_step = true;
            tally.step(true);
        }
        Ok(())
    }

    fn keep(&mut self, swarm: &Swarm, kind: Kind, resources: &[(Option<usize>, u64)]) {
        let kept = match kind {
            Kind::Cluster => &mut self.clusters,
            Kind::Assignment | Kind::Endpoint | Kind::Listener => &mut self.assignments,
        };
        for (number, version) in resources {
            let Some(slot) = number.and_then(|number| kept.get_mut(number)) else {
                continue;
            };
            let version = (*version).max(1);
            if *slot == 0 {
                self.missing -= 1;
            } else if *slot == version && swarm.form.is_delta() {
                swarm.tally.resent.fetch_add(1, Ordering::Relaxed);
            }
            *slot = version;
        }
    }

    fn acknowledge(
        &self,
        swarm: &Swarm,
        out: &mut SendStream<Bytes>,
        kind: Kind,
        message: &Message,
    ) -> Result<()> {
        let names = match (swarm.form, kind) {
            (Form::Sotw, Kind::Assignment) => &*swarm.names,
            _ => &[],
        };
        let ask = Ask {
            names,
            nonce: &message.nonce,
            version: &message.version,
            ..Ask::default()
        };
        send(swarm, out, kind, &ask)
    }
}

fn send(swarm: &Swarm, out: &mut SendStream<Bytes>, kind: Kind, ask: &Ask<'_>) -> Result<()> {
    out.send_data(request(swarm.form, kind, ask).into(), false)?;
    Ok(())
}
