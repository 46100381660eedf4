//! Files that are read again when they change: TLS and the token.
//!
//! In: a way to read. Out: each new content that is right, once; of one that is wrong, a line in the log and a count,
//! once, and what was there before stays; and a line when it is right again. A gauge says which it is.
//!
//! The files are small and few, so they are read every second and told apart by what is in them: no event gets lost, and
//! a link that is swapped (Kubernetes) is nothing special. Whoever renews a certificate writes two files, one after the
//! other, and in between they do not go together: what is wrong counts only when it is still there a look later.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::metrics::connections::Secret;

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
    /// What was refused is gone, and what runs is there again.
    Mended,
}

impl Known {
    fn look<T>(&mut self, (hash, found): Found<T>) -> Look<T> {
        if hash == self.running {
            // As it was: what was wrong in between is forgotten, and would be told anew.
            self.doubtful = None;
            return match self.refused.take() {
                Some(_) => Look::Mended,
                None => Look::Nothing,
            };
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
    what: Secret,
    running: u64,
    read: impl Fn() -> Found<T> + Clone + Send + 'static,
    mut take: impl FnMut(T) + Send,
    metrics: Arc<Metrics>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut known = Known::of(running);
    let (name, are, those) = match what {
        Secret::Tls => ("TLS files", "are", "those before stay"),
        Secret::AdminToken => ("admin token", "is", "the one before stays"),
    };
    let have = if are == "are" { "have" } else { "has" };
    metrics.connections().set_secret_ok(what, true);
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
                metrics.connections().set_secret_ok(what, true);
                tracing::info!("the {name} {have} changed and {are} in use");
            }
            Look::Refuse(problem) => {
                metrics.connections().secret_reload(false);
                metrics.connections().set_secret_ok(what, false);
                tracing::error!("the changed {name} {are} refused, {those}: {problem}");
            }
            Look::Mended => {
                metrics.connections().set_secret_ok(what, true);
                tracing::info!("the {name} {are} as before and right again");
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
            Look::Mended,
            "what runs is there again"
        );
        assert_eq!(known.look(good(1)), Look::Nothing, "told once");
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
