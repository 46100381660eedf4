//! The one writer of health views and snapshots: a task that turns models, reports and the passing of time into what the
//! fleets are served.
//!
//! ```text
//!  models ──►┐                                   ┌──► engine (targets)
//!  reports ─►├─► Registry ─► Update ─► render ──►├──► snapshots (watch)
//!  time ────►┘                                   ├──► health views (watch)
//!                                                └──► store, log, metrics
//! ```
//!
//! The first change goes out at once; further ones within a window ([`WINDOW`]) go out together, so that a service of thousands of
//! endpoints that all speak at once is rendered a few dozen times, not thousands.
//!
//! Not here: what any of it means. Health is `health`'s, form is `resources`'s.

mod assemble;
mod journal;
mod rendering;
mod warming;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use vitals_prober::clock;
use vitals_prober::engine::{Engine, Report};

use self::journal::Journal;
use self::rendering::Rendering;
use crate::health::guard::Event;
use crate::health::registry::{EMBEDDED_VANTAGE, Registry, Update};
use crate::health::{HealthView, Now, Rerouting};
use crate::metrics::Metrics;
use crate::model::{Model, Name};
use crate::snapshot::Snapshot;
use crate::store::Store;

/// How long further changes are gathered after one went out, at least, unless [`Publisher::window`] says otherwise; where
/// publishing takes long, four times as long as that took, up to [`MAX_WINDOW`].
pub const WINDOW: Duration = Duration::from_millis(20);

/// How long changes are gathered at most, unless publishing itself takes longer: on a machine that is short of processor
/// time, all of it takes long, and waiting does not make it shorter.
pub const MAX_WINDOW: Duration = Duration::from_millis(500);

/// How often stale votes are looked for (semantics V1), and endpoints counted.
const TICK: Duration = Duration::from_secs(1);

/// How many reports are taken at a time.
const BATCH: usize = 1024;

/// What the publisher works with.
#[derive(Debug)]
pub struct Publisher {
    /// The state behind the health view.
    pub registry: Registry,
    /// Where probes are run.
    pub engine: Engine,
    /// Where state is kept, if it is.
    pub store: Option<Store>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How far the Envoys have come.
    pub taken: Taken,
    /// How long changes are gathered at least, up to [`MAX_WINDOW`].
    pub window: Duration,
    /// A word of letters and digits that no start of a server has used before: the paths of endpoints that stand apart
    /// (LEDS) are never used twice.
    pub generation: Arc<str>,
}

/// Says whether all connected Envoys of a fleet have taken this version of its clusters.
pub struct Taken(pub Box<TakenBy>);

/// Asked with the fleet and the version.
pub type TakenBy = dyn Fn(&Name, &str) -> bool + Send + Sync;

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Taken")
    }
}

/// Where the publisher's work is read.
#[derive(Debug)]
pub struct Outputs {
    /// What streams serve.
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    /// What the admin API shows.
    pub health: watch::Sender<Arc<HealthView>>,
}

/// Models, reports and time in, snapshots out. Ends when `models` is closed, and then closes the store and the engine.
pub async fn run(
    mut publisher: Publisher,
    mut models: mpsc::Receiver<Arc<Model>>,
    mut reports: mpsc::Receiver<Report>,
    outputs: Outputs,
) {
    let mut rendering = Rendering::new(Arc::clone(&publisher.generation));
    let mut journal = Journal::start();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut batch = Vec::with_capacity(BATCH);
    let mut probing = true;
    // When the oldest change came in that has not gone out.
    let mut caused_at: Option<Instant> = None;
    let mut may_publish_at = clock::now();
    loop {
        // While something waits to go out, what time brings waits with it.
        let wake_at = match caused_at {
            Some(_) => Some(may_publish_at),
            None => {
                let deadline = publisher.registry.next_deadline();
                deadline.into_iter().chain(rendering.next_look()).min()
            }
        };
        let wake_at = wake_at.map(tokio::time::Instant::from_std);
        // Not biased: a flood of reports must not keep a reload or a deadline waiting.
        tokio::select! {
            model = models.recv() => {
                let Some(model) = model else { break };
                let targets = publisher.registry.set_model(&model, now());
                publisher.engine.set_targets(targets);
                log_differences(rendering.model(), &model);
                rendering.set_model(model);
            }
            received = reports.recv_many(&mut batch, BATCH), if probing => {
                if received == 0 {
                    tracing::error!("the probe engine has stopped; statuses stay as they are until the server is restarted");
                    probing = false;
                }
                let now = now();
                for report in batch.drain(..) {
                    publisher.registry.on_report(EMBEDDED_VANTAGE, report, now);
                }
            }
            _ = tick.tick() => {
                publisher.registry.tick(now());
                publisher.metrics.set_engine_faults(publisher.engine.faults());
            }
            () = sleep_until(wake_at) => {
                publisher.registry.expire(now());
                rendering.look_at_warming(clock::now(), &publisher.taken.0);
            }
        }
        if !publisher.registry.is_touched() && !rendering.is_touched() {
            continue;
        }
        let moment = clock::now();
        let oldest = *caused_at.get_or_insert(moment);
        if moment < may_publish_at {
            continue;
        }
        let update = publisher.registry.update(now());
        publish(
            &publisher,
            &mut rendering,
            &mut journal,
            update,
            oldest,
            &outputs,
        );
        caused_at = None;
        // A service of very many endpoints takes long to render; reports must still be read and deadlines met meanwhile.
        let took = clock::now().saturating_duration_since(moment);
        may_publish_at = moment + took + window_after(took, publisher.window);
    }
    publisher.engine.shutdown();
    // What the engine's last reports said is still worth storing.
    while let Ok(report) = reports.try_recv() {
        publisher
            .registry
            .on_report(EMBEDDED_VANTAGE, report, now());
    }
    let update = publisher.registry.update(now());
    report(&update, &publisher.metrics);
    journal.write(update.transitions);
    if let Some(store) = publisher.store {
        store.write(update.changes);
        store.close().await;
    }
    journal.close().await;
}

/// How long changes are gathered after a publication that took so long.
fn window_after(took: Duration, least: Duration) -> Duration {
    (took * 4).min(MAX_WINDOW.max(took)).max(least)
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn now() -> Now {
    Now {
        mono: clock::now(),
        wall: clock::wall(),
    }
}

fn publish(
    publisher: &Publisher,
    rendering: &mut Rendering,
    journal: &mut Journal,
    mut update: Update,
    caused_at: Instant,
    outputs: &Outputs,
) {
    report(&update, &publisher.metrics);
    journal.write(std::mem::take(&mut update.transitions));
    if let Some(store) = &publisher.store {
        store.write(std::mem::take(&mut update.changes));
    }
    let view = publisher.registry.view();
    publisher
        .metrics
        .set_endpoints(&view, &update.services, rendering.model_is_new());
    publisher
        .metrics
        .set_guards(publisher.registry.abstaining());
    if rendering.render(&update.services, &view) {
        match rendering.assemble(clock::now()) {
            Ok(fleets) => drop(
                outputs
                    .snapshots
                    .send_replace(Arc::new(Snapshot::new(fleets, Some(caused_at)))),
            ),
            // A defect of ours: what is served stays as it is, which is whole.
            Err(error) => {
                tracing::error!(%error, "the new state contradicts itself; the old one stays")
            }
        }
    }
    outputs.health.send_replace(Arc::new(view));
}

/// Counts transitions, and says what holds for whole services now.
fn report(update: &Update, metrics: &Metrics) {
    for transition in &update.transitions {
        metrics.transition(transition);
    }
    for service in &update.benefit_of_doubt {
        tracing::warn!(
            %service,
            "no endpoint is known to be healthy and some are not judged yet; those are served until they are judged"
        );
    }
    for (service, endpoints) in &update.pinned_now {
        metrics.set_pinned(service, *endpoints);
    }
    for service in &update.unpinned {
        tracing::info!(%service, "there are enough fresh votes again: statuses follow them");
    }
    for (service, endpoints) in &update.pinned {
        tracing::warn!(%service, endpoints, "too few fresh votes (V3): statuses are pinned to what they were");
    }
    for event in &update.guards {
        match event {
            Event::Started(abstention) => tracing::warn!(
                vantage = &*abstention.vantage,
                "guard (V5): {abstention}; its votes do not count, and what it turned is undone where no others decide"
            ),
            Event::Ended(abstention, why) => tracing::warn!(
                vantage = &*abstention.vantage,
                %why,
                "guard (V5): the votes of {} count again: {why}", abstention.vantage
            ),
        }
    }
    for unanswered in &update.unanswered {
        tracing::warn!(vantage = &*unanswered.vantage, canary = %unanswered.canary, "guard (V5): {unanswered}");
    }
    for rerouting in &update.rerouted {
        log_rerouting(rerouting);
    }
}

fn log_rerouting(rerouting: &Rerouting) {
    let Rerouting {
        service,
        from,
        to,
        was: _,
        why,
    } = rerouting;
    let over = rerouting
        .ending()
        .map(|over| format!("{over}: "))
        .unwrap_or_default();
    let (was, is) = (from.active.as_str(), to.active.as_str());
    if from.active != to.active {
        tracing::warn!(%service, previous = was, pool = is, open = to.open, rule = %why, "traffic goes from {was} to {is}: {over}{why}");
    } else {
        tracing::warn!(%service, pool = is, open = to.open, rule = %why, "traffic: {over}{why}");
    }
}

/// Says what a new model brings and takes: a half-written file can be valid, and what it lacks leaves every Envoy.
fn log_differences(before: &Model, after: &Model) {
    type Names = BTreeSet<String>;
    let services =
        |model: &Model| -> Names { model.services.keys().map(Name::to_string).collect() };
    let fleets = |model: &Model| -> Names {
        model
            .fleets
            .iter()
            .map(|fleet| fleet.name.to_string())
            .collect()
    };
    let listeners = |model: &Model| -> Names {
        let mut names = Names::new();
        for fleet in &model.fleets {
            names.extend(
                fleet
                    .listeners
                    .iter()
                    .map(|listener| format!("{}/{}", fleet.name, listener.name)),
            );
        }
        names
    };
    // The first of those that `all` has and `others` do not.
    let lacking = |all: &Names, others: &Names| {
        let names: Vec<&str> = all
            .difference(others)
            .take(20)
            .map(String::as_str)
            .collect();
        names.join(", ")
    };
    for (what, before, after) in [
        ("services", services(before), services(after)),
        ("fleets", fleets(before), fleets(after)),
        ("listeners", listeners(before), listeners(after)),
    ] {
        let (added, removed) = (lacking(&after, &before), lacking(&before, &after));
        if !added.is_empty() {
            tracing::info!("{what} added: {added}");
        }
        if !removed.is_empty() {
            tracing::warn!("{what} removed: {removed}");
        }
    }
    if after.fleets.is_empty() {
        tracing::warn!(
            "the configuration has no fleet: every Envoy is refused, and keeps what it has"
        );
    }
}
