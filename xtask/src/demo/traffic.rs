//! Somebody who sends about 50 requests a second through Envoy, and remembers who answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;
use ureq::Agent;

use crate::process::pause;

/// One request: when it was sent, and who answered, or what went wrong.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) sent: Instant,
    pub(super) answer: Result<String, String>,
}

/// The stream of requests; ends when it is dropped.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    pub(super) fn start(listener: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let url = format!("http://{listener}/");
        let (flag, list) = (Arc::clone(&stop), Arc::clone(&samples));
        // Ends when `stop` is set, by `Drop`.
        let thread = std::thread::spawn(move || {
            let agent: Agent = Agent::config_builder()
                .http_status_as_error(false)
                .proxy(None)
                .timeout_global(Some(Duration::from_secs(5)))
                .build()
                .into();
            while !flag.load(Ordering::Relaxed) {
                let sent = Instant::now();
                let answer = ask(&agent, &url);
                list.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Sample { sent, answer });
                pause(Duration::from_millis(20).saturating_sub(sent.elapsed()));
            }
        });
        Self {
            stop,
            samples,
            thread: Some(thread),
        }
    }

    /// The requests that were sent from `from` on.
    pub(super) fn since(&self, from: Instant) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let first = samples.partition_point(|sample| sample.sent < from);
        samples.get(first..).unwrap_or(&[]).to_vec()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// How many requests each backend answered, failures under their error.
pub(super) fn count(samples: &[Sample]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sample in samples {
        let who = match &sample.answer {
            Ok(who) => who.clone(),
            Err(error) => format!("failed: {error}"),
        };
        *counts.entry(who).or_default() += 1;
    }
    counts
}

fn ask(agent: &Agent, url: &str) -> Result<String, String> {
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    let body = response
        .body_mut()
        .read_to_string()
        .map_err(|error| error.to_string())?;
    if response.status() == 200 {
        Ok(body)
    } else {
        Err(format!("{} {body}", response.status().as_u16()))
    }
}
