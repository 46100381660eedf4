//! What is counted (design 4.3), registered once.
//!
//! In: calls from the engine's workers, the publisher and the streams. Out: the text of `/metrics`. Labels are bounded:
//! types, outcomes, statuses, and the services of the configuration; never a node, an address or an error's text.

pub mod connections;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use vitals_prober::check::HealthCheck;
use vitals_prober::engine::Recorder;
use vitals_prober::outcome::{Outcome, ProbeResult};

use self::connections::ConnectionMetrics;
use crate::health::{DetailedStatus, EdsStatus, HealthView, Pool, Transition};
use crate::model::Name;
use crate::snapshot::ResourceType;
use crate::stream::Transport;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProbeLabels {
    r#type: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ChangeLabels {
    service: String,
    to: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabels {
    service: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServiceLabels {
    service: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VantageLabels {
    vantage: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TransportLabels {
    transport: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Seconds from a tenth of a millisecond to ten minutes: probes, lateness and pushes all lie within.
#[derive(Clone, Debug)]
struct Seconds;

const SECONDS: [f64; 18] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0, 300.0,
];

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SECONDS)
    }
}

/// All metrics of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    probes: Family<ProbeLabels, Counter>,
    probe_seconds: Family<TypeLabels, Histogram, Seconds>,
    probe_lateness: Histogram,
    verdict_changes: Family<ChangeLabels, Counter>,
    endpoints: Family<StatusLabels, Gauge>,
    pinned: Family<ServiceLabels, Gauge>,
    failover: Family<ServiceLabels, Gauge>,
    open: Family<ServiceLabels, Gauge>,
    guard: Family<VantageLabels, Gauge>,
    streams: Family<TransportLabels, Gauge>,
    pushes: Family<TypeLabels, Counter>,
    nacks: Family<TypeLabels, Counter>,
    push_seconds: Histogram,
    reloads: Family<ResultLabels, Counter>,
    engine_faults: Gauge,
    connections: ConnectionMetrics,
}

impl Metrics {
    /// Registers everything.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("vitals");
        let mut metrics = Self {
            registry: Registry::default(),
            probes: Family::default(),
            probe_seconds: Family::new_with_constructor(Seconds),
            probe_lateness: Seconds.new_metric(),
            verdict_changes: Family::default(),
            endpoints: Family::default(),
            pinned: Family::default(),
            failover: Family::default(),
            open: Family::default(),
            guard: Family::default(),
            streams: Family::default(),
            pushes: Family::default(),
            nacks: Family::default(),
            push_seconds: Seconds.new_metric(),
            reloads: Family::default(),
            engine_faults: Gauge::default(),
            connections: ConnectionMetrics::default(),
        };
        let r = &mut registry;
        r.register(
            "probes",
            "Probes by type of check and outcome",
            metrics.probes.clone(),
        );
        r.register(
            "probe_seconds",
            "From the start of the connect to the outcome",
            metrics.probe_seconds.clone(),
        );
        r.register(
            "probe_lateness_seconds",
            "From when a probe was due to its start; the first of an endpoint is due within a second, and may wait for its turn",
            metrics.probe_lateness.clone(),
        );
        r.register(
            "verdict_changes",
            "Changes of an endpoint's detailed status, by an operator's word too",
            metrics.verdict_changes.clone(),
        );
        r.register(
            "endpoints",
            "Endpoints by the status that EDS says",
            metrics.endpoints.clone(),
        );
        r.register(
            "endpoints_pinned",
            "Endpoints whose status stands without enough fresh votes (V3)",
            metrics.pinned.clone(),
        );
        r.register(
            "failover_active",
            "1 while the failover backends take the traffic (H2)",
            metrics.failover.clone(),
        );
        r.register(
            "fail_open_active",
            "1 while all endpoints share the traffic because none is healthy (H3, H6)",
            metrics.open.clone(),
        );
        r.register(
            "guard_active",
            "Guard policies under which the vantage abstains (V5)",
            metrics.guard.clone(),
        );
        r.register("xds_streams", "Open xDS streams", metrics.streams.clone());
        r.register("xds_pushes", "xDS responses sent", metrics.pushes.clone());
        r.register(
            "xds_nacks",
            "xDS responses refused by a client",
            metrics.nacks.clone(),
        );
        r.register(
            "xds_push_seconds",
            "From a verdict to its response being written",
            metrics.push_seconds.clone(),
        );
        r.register(
            "config_reloads",
            "Reloads of the configuration",
            metrics.reloads.clone(),
        );
        r.register(
            "probe_engine_faults",
            "Panics and failures that the probe engine has survived; anything but 0 is a defect",
            metrics.engine_faults.clone(),
        );
        metrics.connections.register(r);
        for transport in [Transport::Sotw, Transport::Delta] {
            drop(metrics.streams.get_or_create(&TransportLabels {
                transport: transport.as_str(),
            }));
        }
        for kind in ResourceType::ALL {
            drop(metrics.pushes.get_or_create(&TypeLabels {
                r#type: kind.as_str(),
            }));
            drop(metrics.nacks.get_or_create(&TypeLabels {
                r#type: kind.as_str(),
            }));
        }
        for result in ["ok", "error"] {
            drop(metrics.reloads.get_or_create(&ResultLabels { result }));
        }
        metrics.registry = registry;
        Arc::new(metrics)
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// Never in practice: the text grows in memory.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    /// What is counted of connections.
    #[must_use]
    pub fn connections(&self) -> &ConnectionMetrics {
        &self.connections
    }

    /// An endpoint's status has changed.
    pub fn transition(&self, transition: &Transition) {
        let labels = ChangeLabels {
            service: transition.service.as_str().into(),
            to: transition.to.as_str(),
        };
        self.verdict_changes.get_or_create(&labels).inc();
    }

    /// How many endpoints of these services have which status now. `model_is_new`: services may be gone, and leave the
    /// metric; the others are all among these.
    pub fn set_endpoints(&self, view: &HealthView, services: &BTreeSet<Name>, model_is_new: bool) {
        if model_is_new {
            self.endpoints.clear();
            self.failover.clear();
            self.open.clear();
            self.pinned.clear();
            for (name, service) in &view.services {
                self.set_pinned(name, service.pinned);
            }
        }
        for (name, service) in services
            .iter()
            .filter_map(|name| view.services.get_key_value(name))
        {
            let mut counts: BTreeMap<&str, i64> =
                EdsStatus::ALL.map(|status| (status.as_str(), 0)).into();
            for endpoint in &service.endpoints {
                // What EDS omits is STOPPED.
                let status = endpoint
                    .status
                    .map_or(DetailedStatus::Stopped.as_str(), EdsStatus::as_str);
                *counts.entry(status).or_default() += 1;
            }
            for (family, value) in [
                (
                    &self.failover,
                    i64::from(service.routing.active == Pool::Failover),
                ),
                (&self.open, i64::from(service.routing.open)),
            ] {
                let service = name.as_str().into();
                family.get_or_create(&ServiceLabels { service }).set(value);
            }
            for (status, count) in counts {
                self.endpoints
                    .get_or_create(&StatusLabels {
                        service: name.as_str().into(),
                        status,
                    })
                    .set(count);
            }
        }
    }

    /// How many endpoints of a service are pinned now.
    pub fn set_pinned(&self, service: &Name, endpoints: usize) {
        let service = service.as_str().into();
        self.pinned
            .get_or_create(&ServiceLabels { service })
            .set(i64::try_from(endpoints).unwrap_or(i64::MAX));
    }

    /// Under how many guard policies each vantage abstains; one that is not among them is gone.
    pub fn set_guards(&self, abstaining: BTreeMap<Arc<str>, usize>) {
        self.guard.clear();
        for (vantage, policies) in abstaining {
            let vantage = (*vantage).into();
            self.guard
                .get_or_create(&VantageLabels { vantage })
                .set(i64::try_from(policies).unwrap_or(i64::MAX));
        }
    }

    /// How often the probe engine had to catch itself.
    pub fn set_engine_faults(&self, faults: u64) {
        self.engine_faults
            .set(i64::try_from(faults).unwrap_or(i64::MAX));
    }

    /// Counts a stream for as long as the guard lives.
    #[must_use]
    pub fn stream(self: &Arc<Self>, transport: Transport) -> StreamGuard {
        self.streams
            .get_or_create(&TransportLabels {
                transport: transport.as_str(),
            })
            .inc();
        StreamGuard {
            metrics: Arc::clone(self),
            transport,
        }
    }

    /// A response was handed to the transport.
    pub fn push(&self, kind: ResourceType) {
        self.pushes
            .get_or_create(&TypeLabels {
                r#type: kind.as_str(),
            })
            .inc();
    }

    /// A response that publishes a verdict was written to its stream, so long after the verdict.
    pub fn push_latency(&self, latency: Duration) {
        self.push_seconds.observe(latency.as_secs_f64());
    }

    /// A client has refused a response.
    pub fn nack(&self, kind: ResourceType) {
        self.nacks
            .get_or_create(&TypeLabels {
                r#type: kind.as_str(),
            })
            .inc();
    }

    /// The configuration was read again.
    pub fn reload(&self, ok: bool) {
        self.reloads
            .get_or_create(&ResultLabels {
                result: if ok { "ok" } else { "error" },
            })
            .inc();
    }
}

impl Recorder for Metrics {
    fn probe(&self, check: &HealthCheck, outcome: &Outcome, lateness: Duration) {
        let r#type = check.type_name();
        self.probes
            .get_or_create(&ProbeLabels {
                r#type,
                outcome: outcome.result.as_str(),
            })
            .inc();
        if outcome.result != ProbeResult::Inconclusive {
            self.probe_seconds
                .get_or_create(&TypeLabels { r#type })
                .observe(outcome.times.total.as_secs_f64());
        }
        self.probe_lateness.observe(lateness.as_secs_f64());
    }
}

/// Counts an open stream.
#[derive(Debug)]
pub struct StreamGuard {
    metrics: Arc<Metrics>,
    transport: Transport,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.metrics
            .streams
            .get_or_create(&TransportLabels {
                transport: self.transport.as_str(),
            })
            .dec();
    }
}
