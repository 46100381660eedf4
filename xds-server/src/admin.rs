//! The admin API (design 4.3): health for people, machines and scrapers, on loopback by default; beyond it with a token
//! (`access`), and over TLS where the server has a certificate.
//!
//! In: the newest health view, the running model, the table of clients, the last reload, the metrics. Out: JSON (`api`, `clients`
//! and `sources` say in what form), the text of `/metrics`, and over gRPC the status of clients (`csds`) and reflection. It reads and never waits for the health path; nothing here changes anything.

pub mod access;
pub mod api;
pub mod clients;
mod csds;
mod json;
pub mod sources;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use axum::{Extension, Router, middleware};
use tokio::sync::watch;
use vitals_prober::clock;

use self::access::{Access, Admitted};
use crate::ads::clients::Clients;
use crate::ads::reflection;
use crate::health::HealthView;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::snapshot::Snapshot;
use crate::transport::{self, Entrance};

/// What the last reading of the configuration came to.
#[derive(Clone, Debug, Default)]
pub struct Reload {
    /// Its errors, a line each; none when it runs.
    pub errors: Vec<String>,
}

/// What the admin API shows.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The health of all services.
    pub health: watch::Receiver<Arc<HealthView>>,
    /// What is served; `/readyz` waits for the first.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The configuration that runs.
    pub models: watch::Receiver<Arc<Model>>,
    /// `--source-address`
    pub source_address: Option<IpAddr>,
    /// The last reload.
    pub reload: watch::Receiver<Reload>,
    /// Who is connected.
    pub clients: Arc<Clients>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Where gRPC clients ask for the status of xDS clients.
const CLIENT_STATUS: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/{method}";

/// The gRPC services beside it, for tools that read descriptors from the server.
const GRPC: [&str; 3] = [
    "envoy.service.status.v3.ClientStatusDiscoveryService",
    reflection::NAMES[0],
    reflection::NAMES[1],
];

/// Where they ask for those.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/{method}";
const OLDER_REFLECTION: &str = "/grpc.reflection.v1alpha.ServerReflection/{method}";

/// Serves the API to those who bring what `access` wants, until `stopping` turns true.
pub async fn serve(
    admin: Admin,
    entrance: Entrance,
    access: Access,
    stopping: watch::Receiver<bool>,
) {
    let (clients, snapshots) = (Arc::clone(&admin.clients), admin.snapshots.clone());
    let status = csds::service(clients, snapshots, stopping.clone());
    let reflection = reflection::service(&GRPC, stopping.clone());
    let older_reflection = reflection::older_service(&GRPC, stopping.clone());
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/services", get(services))
        .route("/v1/endpoints", get(endpoints))
        .route("/v1/clients", get(connected))
        .route("/v1/fleets", get(fleets))
        .route("/v1/sources", get(all_sources))
        .route_service(CLIENT_STATUS, status)
        .route_service(REFLECTION, reflection)
        .route_service(OLDER_REFLECTION, older_reflection)
        .layer(middleware::from_fn_with_state(access, access::guard))
        .with_state(admin);
    transport::serve(entrance, router, stopping).await;
}

async fn readyz(State(admin): State<Admin>, Extension(admitted): Extension<Admitted>) -> Response {
    if admin.snapshots.borrow().caused_at().is_none() {
        let starting = api::Ready {
            reload: "ok".into(),
            errors: vec!["starting: nothing is published yet".into()],
        };
        return json::line(StatusCode::SERVICE_UNAVAILABLE, &starting);
    }
    let mut errors = admin.reload.borrow().errors.clone();
    let reload = if errors.is_empty() { "ok" } else { "error" };
    if admitted == Admitted(false) {
        errors.clear();
    }
    let ready = api::Ready {
        reload: reload.into(),
        errors,
    };
    json::line(StatusCode::OK, &ready)
}

async fn metrics(State(admin): State<Admin>) -> Response {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    admin.metrics.connections().set_tasks(tasks);
    match admin.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn endpoints(State(admin): State<Admin>) -> Response {
    let view = Arc::clone(&admin.health.borrow());
    json::array(api::endpoints(&view, clock::now()))
}

async fn services(State(admin): State<Admin>) -> Json<Vec<api::Service>> {
    let view = Arc::clone(&admin.health.borrow());
    let model = Arc::clone(&admin.models.borrow());
    Json(api::services(&view, &model.fleets))
}

async fn fleets(State(admin): State<Admin>) -> Json<Vec<api::Fleet>> {
    let model = Arc::clone(&admin.models.borrow());
    Json(api::fleets(&model.fleets))
}

async fn connected(State(admin): State<Admin>) -> Json<Vec<clients::Client>> {
    // The table first: what a row says of an older state than the snapshot's counts as not acked.
    let rows = admin.clients.list();
    let snapshot = Arc::clone(&admin.snapshots.borrow());
    let shown = rows.iter().map(|row| clients::client(row, &snapshot));
    Json(shown.collect())
}

async fn all_sources(State(admin): State<Admin>) -> Response {
    let model = Arc::clone(&admin.models.borrow());
    let (fixed, clients) = (admin.source_address, admin.clients.list());
    // A system call or three for each address: not on a thread that serves.
    let rows = tokio::task::spawn_blocking(move || {
        sources::sources(&model, fixed, &clients, sources::by_routes)
    });
    match rows.await {
        Ok(rows) => Json(rows).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
