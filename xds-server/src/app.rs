//! `vitals serve`: puts the parts together, starts them in order, and stops them in order.
//!
//! In: arguments, then signals and changes of files. Out: an exit code. Which task runs what, and what ends it:
//!
//! | task | does | ends |
//! |---|---|---|
//! | probe workers (threads of the engine) | probe | when the publisher shuts the engine down |
//! | publisher | health, snapshots | when the channel of models closes, i.e. when the config task ends |
//! | state writer | commits to disk | when the publisher closes the store |
//! | config | re-reads changed files | at the stop signal |
//! | doors | re-read the TLS files and the token | at the stop signal |
//! | xDS server, a task per stream | serve | at the stop signal, GOAWAY first |
//! | admin server | serves HTTP | at the stop signal |

mod args;
mod doors;
mod generation;
mod logging;
mod source_address;
mod trust_args;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tower::util::MapResponse;
use vitals_prober::engine::{self, Engine, EngineConfig};

pub use self::args::{LogFormat, ServeArgs};
pub use self::trust_args::TrustArgs;
use self::trust_args::{Trust, cannot_honour};
use crate::admin::{self, Admin, Reload};
use crate::ads::clients::Clients;
use crate::ads::{self, Ads, Places};
use crate::config::watch::ConfigWatcher;
use crate::config::{self, Loaded};
use crate::health::HealthView;
use crate::health::registry::{EMBEDDED_VANTAGE, Records, Registry};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::publish::{self, Outputs, Publisher, Taken};
use crate::snapshot::{ResourceType, Snapshot};
use crate::store::{OpenError, Store};
use crate::transport::{self, Entrance};

/// Bad arguments or configuration (sysexits.h, EX_USAGE).
pub const EXIT_USAGE: u8 = 64;
/// A port or the state directory cannot be had (sysexits.h, EX_UNAVAILABLE).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// How long streams and admin connections may take to end, of the five seconds that a stop may take in all.
const GRACE: Duration = Duration::from_secs(2);

/// With fewer files than this, connections and probes can be in each other's way.
const FEW_DESCRIPTORS: u64 = 4096;

/// Connections that may wait to be accepted, as far as the system allows (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// Runs the server until SIGTERM or SIGINT.
#[must_use]
pub fn serve(args: ServeArgs) -> ExitCode {
    let loaded = match load(&args.config) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let trust = match args.trust.resolve(args.admin_listen) {
        Ok(trust) => trust,
        Err(error) => {
            eprintln!("{error}");
            return EXIT_USAGE.into();
        }
    };
    let problems = cannot_honour(&loaded.model, args.trust.asks_for_certificates());
    if !problems.is_empty() {
        for problem in problems {
            eprintln!("{problem}");
        }
        return EXIT_USAGE.into();
    }
    if let Err(error) = logging::start(args.log_format, &args.log) {
        eprintln!("--log: {error}");
        return EXIT_USAGE.into();
    }
    let warnings = loaded.warnings.iter().map(ToString::to_string);
    for warning in warnings.chain(trust.warnings.iter().cloned()) {
        tracing::warn!("{warning}");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .thread_name("vitals")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime");
            return EXIT_UNAVAILABLE.into();
        }
    };
    let result = runtime.block_on(run(args, loaded, trust));
    // A read or a commit that hangs on a dead disk must not keep the process.
    runtime.shutdown_timeout(GRACE);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            EXIT_UNAVAILABLE.into()
        }
    }
}

/// Reads a configuration; its errors go to stderr and make exit code 64. Warnings are the caller's to tell.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Loaded, ExitCode> {
    // The tree of a large file is many times the model. Memory that a thread has freed is the allocator's to give back
    // when the thread ends; the main thread would sit on it as long as the server runs.
    let loaded = std::thread::scope(|scope| scope.spawn(|| config::load(paths)).join());
    let loaded = loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    loaded.map_err(|errors| {
        for error in &errors {
            eprintln!("{error}");
        }
        EXIT_USAGE.into()
    })
}

async fn run(args: ServeArgs, loaded: Loaded, trust: Trust) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let xds = bind("--xds-listen", args.xds_listen)?;
    let admin = bind("--admin-listen", args.admin_listen)?;
    let (xds_address, admin_address) = (xds.local_addr()?, admin.local_addr()?);
    let (store, records) = open_store(&args)?;
    let remembered = records.endpoints.len();
    let descriptors =
        engine::raise_descriptor_limit().context("cannot raise the limit of open files")?;
    if descriptors < FEW_DESCRIPTORS {
        tracing::warn!(
            descriptors,
            "the system lets this process open few files (RLIMIT_NOFILE, or LimitNOFILE of a unit): a peer may have half as many \
             connections, and where none is left endpoints cannot be probed; raise it to {FEW_DESCRIPTORS} or more"
        );
    }
    let trust = trust.within(descriptors);
    let metrics = Metrics::new();
    let engine = engine_config(descriptors, args.source_address)?;
    let (probes, reports) = Engine::start(engine, Arc::clone(&metrics) as _)
        .context("cannot start the probe engine")?;

    let (stop, stopping) = watch::channel(false);
    let (models, models_in) = mpsc::channel(1);
    let (snapshots, snapshots_out) = watch::channel(Arc::new(Snapshot::default()));
    let (health, health_out) = watch::channel(Arc::new(HealthView::default()));
    let (reload, reload_out) = watch::channel(Reload::default());
    let clients = Arc::new(Clients::default());
    let connected = Arc::clone(&clients);
    let publisher = Publisher {
        registry: Registry::new(records),
        engine: probes,
        store,
        metrics: Arc::clone(&metrics),
        taken: Taken(Box::new(move |fleet, version| {
            connected.have_taken(fleet, ResourceType::Cluster, version)
        })),
        window: args.coalesce,
        generation: generation::generation(vitals_prober::clock::wall()),
    };
    // Ends when `models` is dropped, which the config task does at the stop.
    let mut publisher = tokio::spawn(publish::run(
        publisher,
        models_in,
        reports,
        Outputs { snapshots, health },
    ));
    let digest = loaded.digest;
    let model = Arc::new(loaded.model);
    source_address::warn(args.source_address, &model);
    let (running, running_out) = watch::channel(Arc::clone(&model));
    models
        .send(model)
        .await
        .context("the publisher has stopped")?;
    let watcher = ConfigWatcher::new(args.config.clone()).running(digest);
    // Ends when `stopping` turns true.
    let mut config = tokio::spawn(follow_config(
        watcher,
        Follow {
            models,
            running,
            reload,
            metrics: Arc::clone(&metrics),
            source_address: args.source_address,
            asks_for_certificates: args.trust.asks_for_certificates(),
        },
        stopping.clone(),
    ));

    let api = Admin {
        health: health_out,
        snapshots: snapshots_out.clone(),
        models: running_out,
        source_address: args.source_address,
        reload: reload_out,
        clients: Arc::clone(&clients),
        metrics: Arc::clone(&metrics),
    };
    let doors = doors::open(trust, xds, admin, &metrics, &stopping);
    // Ends with `stopping`, or with this function.
    let _followers = doors.followers;
    let (xds_is_tls, admin_is_tls) = (doors.xds.tls.is_some(), doors.admin.tls.is_some());
    // Both end when `stopping` turns true and their connections have ended, or with this function.
    let mut admin_server = tokio::spawn(admin::serve(
        api,
        doors.admin,
        doors.access,
        stopping.clone(),
    ));
    let mut xds_server = tokio::spawn(serve_xds(
        doors.xds,
        snapshots_out,
        clients,
        metrics,
        stopping,
        args.resource_ttl,
    ));
    // The real ports, where the system was asked to choose.
    tracing::info!(
        xds = %xds_address, xds_tls = xds_is_tls, admin = %admin_address, admin_tls = admin_is_tls,
        remembered_endpoints = remembered, "serving"
    );

    // A part that ends by itself is a defect, and half a server is worse than none: whoever runs it starts it anew.
    let failure = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        ended = &mut xds_server => Some(format!("the xDS server has ended: {ended:?}")),
        ended = &mut admin_server => Some(format!("the admin server has ended: {ended:?}")),
        ended = &mut publisher => Some(format!("the publisher has ended: {ended:?}")),
        ended = &mut config => Some(format!("the config task has ended: {ended:?}")),
    };
    tracing::info!("stopping");
    stop.send_replace(true);
    if let Some(failure) = failure {
        anyhow::bail!(failure);
    }
    tokio::join!(
        finish("config", config),
        finish("publisher", publisher),
        finish("xDS server", xds_server),
        finish("admin server", admin_server),
    );
    tracing::info!("stopped");
    Ok(())
}

/// Waits for a task that was told to stop, but not for ever.
async fn finish<T>(what: &str, mut task: JoinHandle<T>) {
    match tokio::time::timeout(GRACE, &mut task).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::error!(%error, "the {what} task failed"),
        Err(_elapsed) => {
            tracing::warn!("the {what} task did not end in time and is cut off");
            task.abort();
        }
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it the server.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

/// Listens on what a flag says, with room for a fleet that comes back at once: of a full queue of connections that are not
/// accepted yet (128 by default), the system drops or resets the next.
///
/// # Errors
/// When the address cannot be had.
pub fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // As the standard library does: a port in TIME_WAIT can be had again.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().with_context(|| format!("{flag}: cannot listen on {address}"))
}

fn open_store(args: &ServeArgs) -> Result<(Option<Store>, Records), OpenError> {
    match &args.state_dir {
        None => Ok((None, Records::default())),
        Some(dir) => Store::open(dir).map(|(store, records)| (Some(store), records)),
    }
}

/// Half of the cores probe, so that the other half always serves.
fn engine_config(descriptors: u64, source: Option<IpAddr>) -> anyhow::Result<EngineConfig> {
    source.map_or(Ok(()), source_address::check)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(EngineConfig {
        workers: (cores / 2).clamp(1, 16),
        max_in_flight: engine::in_flight_cap(descriptors),
        vantage: EMBEDDED_VANTAGE.into(),
        source_address: source,
    })
}

/// Where the configuration goes.
struct Follow {
    /// To the publisher, which takes each.
    models: mpsc::Sender<Arc<Model>>,
    /// To those who look at the newest.
    running: watch::Sender<Arc<Model>>,
    reload: watch::Sender<Reload>,
    metrics: Arc<Metrics>,
    source_address: Option<IpAddr>,
    asks_for_certificates: bool,
}

/// Takes every change of the configuration to the publisher. A configuration with errors changes nothing and is reported
/// in the log, in `/readyz` and in a metric.
async fn follow_config(mut watcher: ConfigWatcher, to: Follow, stopping: watch::Receiver<bool>) {
    let stopped = stopped(stopping);
    tokio::pin!(stopped);
    loop {
        let changed = tokio::select! {
            biased;
            () = &mut stopped => return,
            changed = watcher.changed() => changed,
        };
        let changed = changed
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
            .and_then(|loaded| {
                let problems = cannot_honour(&loaded.model, to.asks_for_certificates);
                if problems.is_empty() {
                    Ok(loaded)
                } else {
                    Err(problems)
                }
            });
        to.metrics.reload(changed.is_ok());
        match changed {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    tracing::warn!("{warning}");
                }
                let model = Arc::new(loaded.model);
                source_address::warn(to.source_address, &model);
                if to.models.send(Arc::clone(&model)).await.is_err() {
                    return;
                }
                to.running.send_replace(model);
                tracing::info!("the configuration has changed and is running");
                to.reload.send_replace(Reload::default());
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!("{error}");
                }
                tracing::error!(
                    errors = errors.len(),
                    "the changed configuration is refused; the one before keeps running"
                );
                to.reload.send_replace(Reload { errors });
            }
        }
    }
}

/// Serves xDS on a listener until `stopping` turns true. Nothing is accepted before the first snapshot.
///
/// # Errors
/// When no snapshot will ever come.
pub async fn serve_xds(
    entrance: Entrance,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    clients: Arc<Clients>,
    metrics: Arc<Metrics>,
    stopping: watch::Receiver<bool>,
    resource_ttl: Option<Duration>,
) -> anyhow::Result<()> {
    // Connections wait in the backlog until there is something to serve: an empty answer would be a wrong one.
    snapshots
        .wait_for(|snapshot| snapshot.caused_at().is_some())
        .await
        .context("the publisher has stopped")?;
    let ads = Ads::new(snapshots, clients, metrics, stopping.clone());
    let ads = ads.with_resource_ttl(resource_ttl);
    let routes = ads::routes(ads).await.prepare();
    // Every stream writes its responses itself; see `ads::put_in_place`.
    let service = Places::new(MapResponse::new(routes, ads::put_in_place));
    transport::serve(entrance, service, stopping).await;
    Ok(())
}
