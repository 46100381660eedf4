//! Who may be sent its first resources when a whole fleet comes at once.
//!
//! In: streams with a first subscription to a type. Out: places, of which there are few, in the order of asking. What a
//! stream gets first may be megabytes, which wait in the system's buffers until the client has read them; thousands at once
//! would all be late, and take memory for each. One after the other the first are served while the last still wait.
//!
//! No client can lock others out: a place is given up after [`MAX_STAY`] even when its client has not read all, and nobody
//! waits for longer than [`MAX_WAIT`]. Changes for streams that have their resources wait for nobody.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};

/// Streams that are sent their first resources at a time: enough that slow networks do not leave the server idle.
pub const PLACES: usize = 64;

/// How long a stream may keep its place.
pub const MAX_STAY: Duration = Duration::from_millis(500);

/// How long a stream waits for a place at most. Then it goes on without: late is better than never.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// The places.
#[derive(Clone, Debug)]
pub(super) struct Admission(Arc<Semaphore>);

impl Admission {
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }
}

/// Where one stream stands.
#[derive(Default)]
pub(super) enum Entry {
    /// It asks for nothing.
    #[default]
    Outside,
    Waiting(Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>),
    Inside {
        _place: OwnedSemaphorePermit,
        end: Pin<Box<Sleep>>,
    },
}

impl Entry {
    /// Asks for a place, unless it has one or asks already.
    pub(super) fn ask(&mut self, admission: &Admission) {
        if matches!(self, Self::Outside) {
            let places = Arc::clone(&admission.0);
            *self = Self::Waiting(Box::pin(async move {
                // The semaphore is never closed.
                timeout(MAX_WAIT, places.acquire_owned()).await.ok()?.ok()
            }));
        }
    }

    /// Whether it must wait.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// Gives the place up, if it has one: the stream has been sent what it asked for.
    pub(super) fn leave(&mut self) {
        if matches!(self, Self::Inside { .. }) {
            *self = Self::Outside;
        }
    }

    /// Returns when something has changed: a place was got, or must be given up. May be dropped and called again without
    /// losing the turn.
    pub(super) async fn turn(&mut self) {
        match self {
            Self::Outside => std::future::pending().await,
            Self::Waiting(place) => {
                *self = match place.await {
                    Some(place) => Self::Inside {
                        _place: place,
                        end: Box::pin(sleep(MAX_STAY)),
                    },
                    None => Self::Outside,
                };
            }
            Self::Inside { end, .. } => {
                end.await;
                *self = Self::Outside;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(admission: &Admission) -> Entry {
        let mut entry = Entry::default();
        entry.ask(admission);
        // Takes its turn in the queue.
        drop(timeout(Duration::ZERO, entry.turn()).await);
        entry
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_few_and_go_in_the_order_of_asking() {
        let admission = Admission::new(1);
        let mut first = asked(&admission).await;
        assert!(!first.is_waiting());
        let (mut second, mut third) = (asked(&admission).await, asked(&admission).await);
        assert!(second.is_waiting() && third.is_waiting());
        first.leave();
        drop(timeout(Duration::ZERO, third.turn()).await);
        assert!(third.is_waiting(), "the second asked before");
        second.turn().await;
        assert!(!second.is_waiting());
        second.leave();
        third.turn().await;
        assert!(matches!(third, Entry::Inside { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_loses_its_place() {
        let admission = Admission::new(1);
        let mut slow = asked(&admission).await;
        let mut next = asked(&admission).await;
        let start = tokio::time::Instant::now();
        slow.turn().await;
        assert!(matches!(slow, Entry::Outside) && !slow.is_waiting());
        next.turn().await;
        assert!(matches!(next, Entry::Inside { .. }));
        assert_eq!(start.elapsed().as_millis(), MAX_STAY.as_millis());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let admission = Admission::new(0);
        let mut entry = asked(&admission).await;
        assert!(entry.is_waiting());
        entry.turn().await;
        assert!(
            matches!(entry, Entry::Outside),
            "it goes on without a place"
        );
    }
}
