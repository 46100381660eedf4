//! The TLS handshakes that have not ended: at most so many, and the oldest makes room.
//!
//! In: beginnings and ends. Out: a notice to the one that must go. A client that means it shakes hands in milliseconds
//! and is hardly ever the oldest; one that only holds a socket is, so those make room for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// All that have not ended.
#[derive(Debug)]
pub(super) struct Handshakes {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    // In the order of beginning. Dropping a sender is the notice.
    notices: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One that has not ended; dropping it says that it has.
#[derive(Debug)]
pub(super) struct Handshake {
    all: Arc<Handshakes>,
    number: u64,
}

impl Handshakes {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            open: Mutex::default(),
        })
    }

    /// Begins one. The receiver resolves when it must make room.
    pub(super) fn begin(self: &Arc<Self>) -> (Handshake, oneshot::Receiver<()>) {
        let (notice, noticed) = oneshot::channel();
        let mut open = self.lock();
        if open.notices.len() >= self.most {
            drop(open.notices.pop_first());
        }
        let number = open.next;
        open.next += 1;
        open.notices.insert(number, notice);
        drop(open);
        let handshake = Handshake {
            all: Arc::clone(self),
            number,
        };
        (handshake, noticed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.lock().notices.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    #[test]
    fn the_oldest_makes_room_and_one_that_has_ended_needs_none() {
        let all = Handshakes::new(2);
        let (one, mut one_must_go) = all.begin();
        let (two, mut two_must_go) = all.begin();
        assert_eq!(one_must_go.try_recv(), Err(TryRecvError::Empty));
        let (_three, mut three_must_go) = all.begin();
        assert_eq!(one_must_go.try_recv(), Err(TryRecvError::Closed));
        drop((one, two));
        let (_four, _) = all.begin();
        assert_eq!(three_must_go.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(two_must_go.try_recv(), Err(TryRecvError::Closed), "ended");
        assert_eq!(all.lock().notices.len(), 2);
    }
}
