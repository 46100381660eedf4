//! An HTTP server that can fall ill: HTTP/1.1 and HTTP/2 with prior knowledge on one port.
//!
//! In: an address and, later, changes of [`Mode`]. Out: answers that name the backend, counts of requests, and the time of
//! each probe. A request for [`PROBE_PATH`] is a probe; everything else is traffic and is answered with 200 in every mode
//! but `TrafficStatus`, `Silent` and `Closed`; one for [`STREAM_PATH`] with a body that never ends.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version, header};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, Interval, interval};

/// What the checks of the scenarios ask for.
pub const PROBE_PATH: &str = "/healthz";

/// Traffic whose answer goes on and on: a line with the backend's name, ten times a second.
pub const STREAM_PATH: &str = "/stream";

/// All backends of a test run live here.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built")
});

/// How a backend behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Answers everything with 200.
    Healthy,
    /// Answers probes with this status, traffic with 200.
    ProbeStatus(u16),
    /// Answers traffic with this status, probes with 200: only its clients see that something is wrong.
    TrafficStatus(u16),
    /// Accepts connections and reads, but never answers.
    Silent,
    /// Nothing listens and all connections are reset or closed: the process is dead.
    Closed,
}

/// A backend; gone when it is dropped.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    mode: Mutex<Mode>,
    requests: AtomicU64,
    http2: AtomicU64,
    hosts: Mutex<BTreeSet<String>>,
    probes: Mutex<Vec<Instant>>,
}

impl Backend {
    /// Starts a healthy backend on `address`; port 0 lets the system choose.
    #[must_use]
    pub fn start(address: SocketAddr) -> Self {
        let listener = bind(address);
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            name: address.to_string(),
            mode: Mutex::new(Mode::Healthy),
            requests: AtomicU64::new(0),
            http2: AtomicU64::new(0),
            hosts: Mutex::default(),
            probes: Mutex::new(Vec::new()),
        });
        let server = RUNTIME.spawn(serve(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            server: Mutex::new(Some(server)),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `address:port`: its name in answers, in `/v1/endpoints` and in Envoy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Changes its behaviour, at once.
    pub fn become_(&self, mode: Mode) {
        *lock(&self.shared.mode) = mode;
        let mut server = lock(&self.server);
        if mode == Mode::Closed {
            if let Some(server) = server.take() {
                server.abort();
                // Dropping the task closes the listener and every connection.
                RUNTIME.block_on(server).expect_err("the task was aborted");
            }
        } else if server.is_none() {
            *server = Some(RUNTIME.spawn(serve(bind(self.address), Arc::clone(&self.shared))));
        }
    }

    /// Requests so far that were no probes.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Those of them that came over HTTP/2.
    #[must_use]
    pub fn requests_over_http2(&self) -> u64 {
        self.shared.http2.load(Ordering::Relaxed)
    }

    /// Every Host header or :authority that requests, probes or not, have come with.
    #[must_use]
    pub fn hosts(&self) -> BTreeSet<String> {
        lock(&self.shared.hosts).clone()
    }

    /// When each probe came.
    #[must_use]
    pub fn probes(&self) -> Vec<Instant> {
        lock(&self.shared.probes).clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(server) = lock(&self.server).take() {
            server.abort();
        }
    }
}

/// Ends when it is aborted; its connections end with it.
async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The peer gave up between SYN and accept.
                Err(_) => continue,
            },
            Some(_) = connections.join_next() => continue,
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
            // A peer that hangs up in the middle is everyday life for a backend that is probed.
            auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

/// A line at a time, for ever.
struct Lines {
    line: Bytes,
    tick: Interval,
}

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.tick.poll_tick(context));
        Poll::Ready(Some(Ok(Frame::data(self.line.clone()))))
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Either<Full<Bytes>, Lines>>, Infallible> {
    let probe = request.uri().path() == PROBE_PATH;
    let authority = request.uri().authority().map(ToString::to_string);
    let host = request.headers().get(header::HOST);
    let host = authority.or(host.map(|host| String::from_utf8_lossy(host.as_bytes()).into()));
    lock(&shared.hosts).extend(host);
    if probe {
        lock(&shared.probes).push(Instant::now());
    } else {
        shared.requests.fetch_add(1, Ordering::Relaxed);
        if request.version() == Version::HTTP_2 {
            shared.http2.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mode = *lock(&shared.mode);
    let status = match mode {
        Mode::Silent => std::future::pending().await,
        Mode::ProbeStatus(status) if probe => status,
        Mode::TrafficStatus(status) if !probe => status,
        Mode::Healthy | Mode::ProbeStatus(_) | Mode::TrafficStatus(_) | Mode::Closed => 200,
    };
    let body = match request.uri().path() {
        STREAM_PATH => Either::Right(Lines {
            line: format!("{}\n", shared.name).into(),
            tick: interval(Duration::from_millis(100)),
        }),
        _ => Either::Left(Full::new(Bytes::from(shared.name.clone()))),
    };
    let response = Response::builder()
        .status(status)
        .body(body)
        .expect("a status and a body make a response");
    Ok(response)
}

/// Binds; an address that is still closing is waited for.
pub(crate) fn bind(address: SocketAddr) -> TcpListener {
    crate::wait::eventually(
        Duration::from_secs(5),
        &format!("{address} can be bound"),
        || {
            RUNTIME
                .block_on(TcpListener::bind(address))
                .map_err(|error| error.to_string())
        },
    )
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
