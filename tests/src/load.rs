//! Somebody who sends requests all the time, and remembers each answer.
//!
//! In: a URL. Out: one [`Sample`] per request. About 50 requests a second, one after the other, on one connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::lock;
use crate::http_client::{Reply, agent, get_with};
use crate::wait::pause;

/// One request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was sent.
    pub sent: Instant,
    /// The answer, or the client's error.
    pub answer: Result<Reply, String>,
}

impl Sample {
    /// Whether it was answered with 200.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.answer.as_ref().is_ok_and(|reply| reply.status == 200)
    }
}

/// A running load; ends when it is dropped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts sending.
    #[must_use]
    pub fn start(url: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (url, flag, list) = (url.to_owned(), Arc::clone(&stop), Arc::clone(&samples));
        // Ends when `stop` is set, by `Drop` at the latest.
        let thread = std::thread::spawn(move || {
            let agent = agent(1);
            while !flag.load(Ordering::Relaxed) {
                let sent = Instant::now();
                let answer = get_with(&agent, &url);
                lock(&list).push(Sample { sent, answer });
                pause(Duration::from_millis(20));
            }
        });
        Self {
            stop,
            samples,
            thread: Some(thread),
        }
    }

    /// What it has seen so far.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        lock(&self.samples).clone()
    }

    /// The failed requests among those sent at `from` or later.
    #[must_use]
    pub fn failures_since(&self, from: Instant) -> Vec<Sample> {
        let mut samples = self.samples();
        samples.retain(|sample| sample.sent >= from && !sample.ok());
        samples
    }

    /// How many requests were sent at `from` or later.
    #[must_use]
    pub fn count_since(&self, from: Instant) -> usize {
        lock(&self.samples)
            .iter()
            .filter(|sample| sample.sent >= from)
            .count()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic; and if it did, the samples say so.
            thread.join().ok();
        }
    }
}
