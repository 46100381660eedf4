//! Files that are read again when they change: TLS and the token.
//!
//! In: a way to read. Out: each new content that is right, once; of one that is wrong, a line in the log and a count,
//! once, and what was there before stays.
//!
//! The files are small and few, so they are read every second and told apart by what is in them: no event gets lost, and
//! a link that is swapped (Kubernetes) is nothing special. Whoever renews a certificate writes two files, one after the
//! other, and in between they do not go together: what is wrong counts only when it is still there a look later.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::metrics::Metrics;

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);

/// What a look found: a number that tells contents apart, and what was made of them.
pub type Found<T> = (u64, Result<T, String>);

/// What is known of the contents.
#[derive(Clone, Copy, Debug)]
struct Known {
    running: u64,
    refused: Option<u64>,
    doubtful: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Look<T> {
    Nothing,
    Take(T),
    Refuse(String),
}

impl Known {
    fn look<T>(&mut self, (hash, found): Found<T>) -> Look<T> {
        if hash == self.running {
            // As it was: what was wrong in between is forgotten, and would be told anew.
            (self.refused, self.doubtful) = (None, None);
            return Look::Nothing;
        }
        match found {
            Ok(found) => {
                *self = Self::of(hash);
                Look::Take(found)
            }
            Err(_) if self.refused == Some(hash) => Look::Nothing,
            Err(problem) if self.doubtful == Some(hash) => {
                self.refused = Some(hash);
                Look::Refuse(problem)
            }
            Err(_) => {
                self.doubtful = Some(hash);
                Look::Nothing
            }
        }
    }

    fn of(running: u64) -> Self {
        Self {
            running,
            refused: None,
            doubtful: None,
        }
    }
}

/// Follows until `stopping` turns true. `running` is the number of what runs, `read` reads, `take` takes what is new.
pub async fn follow<T: Send + 'static>(
    what: &'static str,
    running: u64,
    read: impl Fn() -> Found<T> + Clone + Send + 'static,
    mut take: impl FnMut(T) + Send,
    metrics: Arc<Metrics>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut known = Known::of(running);
    loop {
        tokio::select! {
            biased;
            // An error means that the sender is gone, and with it the server.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        // Ends by itself: files are bounded in size, and only regular files are read.
        let Ok(found) = tokio::task::spawn_blocking(read.clone()).await else {
            continue;
        };
        match known.look(found) {
            Look::Nothing => {}
            Look::Take(new) => {
                take(new);
                metrics.connections().secret_reload(true);
                tracing::info!("the {what} has changed and is in use");
            }
            Look::Refuse(problem) => {
                metrics.connections().secret_reload(false);
                tracing::error!("the changed {what} is refused, the one before stays: {problem}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(hash: u64) -> Found<u64> {
        (hash, Ok(hash))
    }

    fn bad(hash: u64) -> Found<u64> {
        (hash, Err(format!("{hash} is bad")))
    }

    #[test]
    fn what_is_right_is_taken_at_once_and_once() {
        let mut known = Known::of(1);
        assert_eq!(known.look(good(1)), Look::Nothing);
        assert_eq!(known.look(good(2)), Look::Take(2));
        assert_eq!(known.look(good(2)), Look::Nothing);
        assert_eq!(known.look(good(1)), Look::Take(1));
    }

    #[test]
    fn what_is_wrong_for_a_moment_is_not_told() {
        let mut known = Known::of(1);
        assert_eq!(known.look(bad(2)), Look::Nothing);
        assert_eq!(known.look(good(3)), Look::Take(3));
    }

    #[test]
    fn what_stays_wrong_is_told_once_and_again_after_it_was_right() {
        let mut known = Known::of(1);
        assert_eq!(known.look(bad(2)), Look::Nothing);
        assert_eq!(known.look(bad(2)), Look::Refuse("2 is bad".into()));
        assert_eq!(known.look(bad(2)), Look::Nothing);
        assert_eq!(
            known.look(good(1)),
            Look::Nothing,
            "what runs is there again"
        );
        assert_eq!(known.look(bad(2)), Look::Nothing);
        assert_eq!(known.look(bad(2)), Look::Refuse("2 is bad".into()));
    }

    #[test]
    fn files_that_are_written_all_the_time_are_read_all_the_time() {
        let mut known = Known::of(1);
        for hash in 2..10 {
            assert_eq!(known.look(bad(hash)), Look::Nothing);
        }
        assert_eq!(known.look(good(10)), Look::Take(10));
    }
}
