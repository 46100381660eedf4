//! `grpc.health.v1.Health` of the xDS listener, for load balancers and orchestrators.
//!
//! In: the stop signal. Out: the service. The listener accepts nothing before there is something to serve, so what is asked
//! is SERVING, as a whole (the empty name) and for each discovery service, until the server stops; watchers are then told
//! NOT_SERVING, and their streams end.

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};

/// The service, for services of these names.
pub(super) async fn service(
    names: &'static [&'static str],
    mut stopping: watch::Receiver<bool>,
) -> HealthServer<impl Health> {
    let (mut reporter, server) = tonic_health::server::health_reporter();
    let with_the_whole = || std::iter::once("").chain(names.iter().copied());
    for name in with_the_whole() {
        let serving = ServingStatus::Serving;
        reporter.set_service_status(name, serving).await;
    }
    // Ends when `stopping` turns true, or with the server.
    tokio::spawn(async move {
        drop(stopping.wait_for(|stopping| *stopping).await);
        for name in with_the_whole() {
            let stopped = ServingStatus::NotServing;
            reporter.set_service_status(name, stopped).await;
            // A watcher's stream ends with the entry, after what it was told last.
            reporter.clear_service_status(name).await;
        }
    });
    server
}
