//! One listener's tasks: accept, and per connection shake hands, serve, end.
//!
//! Each connection is one task, from the accept to the end; it ends when the client does, when it is too slow to say who
//! it is, or [`GRACE`] after its age, its certificate or the server has come to the end.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;
use vitals_prober::clock;
use xxhash_rust::xxh3::xxh3_64;

use super::door::{Door, OpenConnection};
use super::io::{Io, LOOKS_LIKE_TLS};
use super::{Ending, Entrance, GRACE, PATIENCE, Peer, failed};
use crate::metrics::connections::Refused;
use crate::trust::Identity;

/// After a failed accept (no descriptor is left, mostly) so long is waited.
const BREATH: Duration = Duration::from_millis(100);

/// While accepting fails, so often that is said.
const AGAIN: Duration = Duration::from_secs(10);

/// What HTTP/2 keeps of a response for a client that does not read, per stream, in bytes.
const SEND_BUFFER: usize = 128 << 10;

/// Which HTTP a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// HTTP/1.1 for people and scrapers, and HTTP/2 for gRPC beside it.
    Any,
    /// HTTP/2, for gRPC.
    Http2,
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Serves until `stopping` turns true and the connections have ended, at most [`GRACE`] later.
pub async fn serve<S, B>(entrance: Entrance, service: S, mut stopping: watch::Receiver<bool>)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let Entrance {
        listener,
        http,
        tls,
        door,
    } = entrance;
    let mut connections = JoinSet::new();
    let stop = stopping.clone();
    let builder = builder(http, &door);
    let mut accepting = Accepting::default();
    loop {
        let accepted = tokio::select! {
            biased;
            // An error means that the sender is gone, and with it the server.
            _ = stopping.wait_for(|stopping| *stopping) => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if of_one_connection(&error) => continue,
            Err(error) => {
                if accepting.fails(clock::now()) {
                    tracing::error!(%error, "cannot accept connections (said every ten seconds while that lasts)");
                }
                sleep(BREATH).await;
                continue;
            }
        };
        let Some(open) = door.connection(address.ip()) else {
            let why = format!("it has {} connections already", door.limits().connections);
            door.refuse(Refused::Connections, address, None, &why);
            continue;
        };
        let connection = Connection {
            address,
            door: Arc::clone(&door),
            stopping: stop.clone(),
            _open: open,
        };
        // What is in the channel now: each handshake has the newest certificate.
        let tls = tls.as_ref().map(|tls| Arc::clone(&tls.borrow()));
        let (service, builder) = (service.clone(), builder.clone());
        // Ends as the module says; at the latest with this function, which owns the set.
        connections.spawn(async move {
            if let Some((io, identity)) = connection.greet(stream, tls).await {
                connection.serve(io, identity, service, builder).await;
            }
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// When it was last said that nothing can be accepted.
#[derive(Debug, Default)]
struct Accepting {
    said: Option<Instant>,
}

impl Accepting {
    /// Takes a failure in. Says whether it is worth a line.
    fn fails(&mut self, now: Instant) -> bool {
        let quiet = |said: Instant| now.saturating_duration_since(said) < AGAIN;
        let worth_a_line = !self.said.is_some_and(quiet);
        if worth_a_line {
            self.said = Some(now);
        }
        worth_a_line
    }
}

/// Errors of a connection that ended before it was accepted.
fn of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    [
        ConnectionAborted,
        ConnectionRefused,
        ConnectionReset,
        Interrupted,
    ]
    .contains(&error.kind())
}

fn builder(http: Listening, door: &Door) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    if http == Listening::Http2 {
        builder = builder.http2_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE);
    let limits = door.limits();
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keepalive)
        .keep_alive_timeout(limits.keepalive)
        .max_concurrent_streams(u32::try_from(limits.streams).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// One connection, from the accept to the end.
struct Connection {
    address: SocketAddr,
    door: Arc<Door>,
    stopping: watch::Receiver<bool>,
    _open: OpenConnection,
}

impl Connection {
    /// Shakes hands; `None` when the client is refused.
    async fn greet(
        &self,
        stream: TcpStream,
        tls: Option<Arc<ServerConfig>>,
    ) -> Option<(Io, Option<Arc<Identity>>)> {
        // Either can fail only when the client is gone.
        drop(stream.set_nodelay(true));
        let words = |io: Io| io.first_words_within(PATIENCE);
        let Some(tls) = tls else {
            return Some((words(Io::plain(stream)), None));
        };
        let (handshake, must_go) = self.door.handshakes.begin();
        let mut stopping = self.stopping.clone();
        let shaken = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return None,
            _ = must_go => {
                self.refuse(Refused::HandshakeCrowd, "too many TLS handshakes are open, and this was the oldest");
                return None;
            }
            shaken = timeout(PATIENCE, failed::with_shown(TlsAcceptor::from(tls).accept(stream))) => shaken,
        };
        drop(handshake);
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err((error, shown))) => {
                let why = failed::why(&error, shown.as_deref());
                let why = format!("the TLS handshake failed: {why}");
                self.refuse(Refused::Handshake, &why);
                return None;
            }
            Err(_elapsed) => {
                let why = format!("no TLS handshake within {} s", PATIENCE.as_secs());
                self.refuse(Refused::HandshakeTimeout, &why);
                return None;
            }
        };
        let shown = stream.get_ref().1.peer_certificates();
        let identity = match shown
            .and_then(|chain| chain.first())
            .map(|leaf| Identity::read(leaf))
        {
            None => None,
            Some(Ok(identity)) => Some(Arc::new(identity)),
            Some(Err(error)) => {
                self.refuse(Refused::Handshake, &error.to_string());
                return None;
            }
        };
        Some((words(Io::tls(stream)), identity))
    }

    /// Serves its requests to the end.
    async fn serve<S, B>(
        self,
        io: Io,
        identity: Option<Arc<Identity>>,
        service: S,
        builder: Builder<TokioExecutor>,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let life = lifetime(
            self.door.limits().max_age,
            identity.as_ref().map(|identity| identity.not_after),
            clock::wall(),
            xxh3_64(self.address.to_string().as_bytes()),
        );
        let (end, ending) = watch::channel(None);
        let service = WithPeer {
            service: TowerToHyperService::new(service),
            peer: Peer {
                address: self.address,
                identity,
                door: Arc::clone(&self.door),
                ending,
            },
        };
        let mut stopping = self.stopping.clone();
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        // A far time where there is no limit.
        let mut timer = pin!(sleep(life.map_or(Duration::MAX, |(life, _)| life)));
        let mut is_ending = false;
        loop {
            let why = tokio::select! {
                biased;
                result = &mut connection => {
                    if let Err(error) = result {
                        self.broke(&*error);
                    }
                    return;
                }
                _ = stopping.wait_for(|stopping| *stopping), if !is_ending => Ending::Stop,
                () = &mut timer => {
                    if is_ending {
                        tracing::debug!(peer = %self.address, "the connection did not end in time and is cut off");
                        return;
                    }
                    life.map_or(Ending::Age, |(_, why)| why)
                }
            };
            tracing::debug!(peer = %self.address, why = why.as_str(), "the connection is asked to end");
            is_ending = true;
            connection.as_mut().graceful_shutdown();
            end.send_replace(Some(why));
            timer.as_mut().reset(tokio::time::Instant::now() + GRACE);
        }
    }

    fn broke(&self, error: &(dyn Error + Send + Sync + 'static)) {
        if is_silence(error) {
            let why = format!("no request within {} s", PATIENCE.as_secs());
            self.refuse(Refused::Silent, &why);
        } else if causes(error).any(|cause| cause.to_string() == LOOKS_LIKE_TLS) {
            let why = match self.door.listener() {
                "admin" => {
                    "the admin API speaks TLS beyond loopback alone, and with --tls-cert; write http://"
                }
                _ => "the server has no --tls-cert",
            };
            let why = format!("{LOOKS_LIKE_TLS}: {why}");
            self.refuse(Refused::Tls, &why);
        } else {
            tracing::debug!(peer = %self.address, error = with_causes(error), "the connection broke");
        }
    }

    fn refuse(&self, reason: Refused, why: &str) {
        self.door.refuse(reason, self.address, None, why);
    }
}

/// How long a connection may last: to its age, a tenth more or less by `random`, and no longer than its certificate.
/// Also, which of them it is. `None`: without end.
fn lifetime(
    max_age: Option<Duration>,
    certificate_ends: Option<SystemTime>,
    now: SystemTime,
    random: u64,
) -> Option<(Duration, Ending)> {
    let age = max_age.map(|age| {
        let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        (age.mul_f64(0.9 + 0.2 * share), Ending::Age)
    });
    let certificate = certificate_ends.map(|end| {
        let left = end.duration_since(now).unwrap_or_default();
        (left, Ending::Certificate)
    });
    let ends = age.into_iter().chain(certificate);
    ends.min_by_key(|(left, _)| *left)
}

/// Whether `io` has lost its patience.
fn is_silence(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    })
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| {
        (*error).source()
    })
}

/// Gives every request its peer.
#[derive(Clone, Debug)]
struct WithPeer<S> {
    service: S,
    peer: Peer,
}

impl<S: hyper::service::Service<Request<Incoming>>> hyper::service::Service<Request<Incoming>>
    for WithPeer<S>
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.service.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn that_nothing_can_be_accepted_is_said_every_ten_seconds() {
        let start = clock::now();
        let mut accepting = Accepting::default();
        let said = (0..250).filter(|n| accepting.fails(start + BREATH * *n));
        assert_eq!(said.collect::<Vec<u32>>(), [0, 100, 200]);
    }

    #[test]
    fn an_age_is_a_tenth_more_or_less() {
        let now = SystemTime::UNIX_EPOCH;
        let life = |random| lifetime(Some(HOUR), None, now, random).unwrap().0;
        assert_eq!(life(0), HOUR.mul_f64(0.9));
        assert_eq!(life(u64::MAX), HOUR.mul_f64(1.1));
        let middle = life(u64::MAX / 2).as_secs();
        assert!((3_590..=3_610).contains(&middle), "{middle}");
        assert_eq!(lifetime(None, None, now, 7), None);
    }

    #[test]
    fn a_connection_ends_with_its_certificate() {
        let now = SystemTime::UNIX_EPOCH + HOUR;
        let ends = |after| Some(now + after);
        let by_certificate = |after| Some((after, Ending::Certificate));
        assert_eq!(lifetime(None, ends(HOUR), now, 7), by_certificate(HOUR));
        let soon = Duration::from_secs(9);
        assert_eq!(
            lifetime(Some(HOUR), ends(soon), now, 7),
            by_certificate(soon)
        );
        assert_eq!(
            lifetime(Some(HOUR), ends(HOUR * 9), now, 0),
            Some((HOUR.mul_f64(0.9), Ending::Age))
        );
        let past = Some(SystemTime::UNIX_EPOCH);
        assert_eq!(lifetime(None, past, now, 7), by_certificate(Duration::ZERO));
    }
}
