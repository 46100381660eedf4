//! Which resources of a type changed from one snapshot to the next, so that a stream need not compare them all.
//!
//! ```text
//!  publication   41   42   43   44          a stream's cursor: 42
//!  names        [a]  [b]  [a,c] [d]         since 42: a, c, d
//! ```
//!
//! In: the names that each publication changed. Out: the names since a [`Cursor`], or `None` when the log does not reach
//! back to it; then everything must be compared. The log is bounded: a stream that far behind has a lot to get anyway.
//!
//! Not here: what changed about them. A stream gets what is newest.

use std::collections::VecDeque;
use std::sync::Arc;

/// The most names that a log remembers, over all of its publications, unless the last one alone has more.
const MAX_NAMES: usize = 4096;

/// The most publications that a log remembers: some seconds of the fastest succession (one every 20 ms).
const MAX_ENTRIES: usize = 256;

/// The last changes that led to a snapshot.
#[derive(Clone, Debug)]
pub struct ChangeLog {
    /// Whose changes these are. Snapshots of other fleets, or of one that began anew, have another.
    lineage: Arc<()>,
    /// The number of the newest publication.
    now: u64,
    /// What each of the last publications changed, the newest last.
    entries: VecDeque<Arc<[Arc<str>]>>,
    names: usize,
}

/// A place in a log: up to where a stream has looked at it.
#[derive(Clone, Debug)]
pub struct Cursor {
    lineage: Arc<()>,
    at: u64,
}

impl ChangeLog {
    /// The log of a first snapshot: no cursor leads to it.
    pub(super) fn begin() -> Self {
        Self {
            lineage: Arc::new(()),
            now: 0,
            entries: VecDeque::new(),
            names: 0,
        }
    }

    /// The log of the next snapshot, which changed these.
    pub(super) fn then(&self, changed: Vec<Arc<str>>) -> Self {
        self.then_within(changed, MAX_NAMES)
    }

    /// The same, with a bound of its own.
    pub(super) fn then_within(&self, changed: Vec<Arc<str>>, max_names: usize) -> Self {
        let mut log = self.clone();
        log.now += 1;
        log.names += changed.len();
        log.entries.push_back(changed.into());
        while log.entries.len() > MAX_ENTRIES || (log.names > max_names && log.entries.len() > 1) {
            log.names -= log.entries.pop_front().map_or(0, |names| names.len());
        }
        log
    }

    /// The place of this snapshot.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            lineage: Arc::clone(&self.lineage),
            at: self.now,
        }
    }

    /// Whether nothing came after the cursor.
    #[must_use]
    pub fn is_at(&self, cursor: &Cursor) -> bool {
        Arc::ptr_eq(&self.lineage, &cursor.lineage) && self.now == cursor.at
    }

    /// The names that changed after the cursor; one may come several times. `None` when that is not known.
    #[must_use]
    pub fn since<'l>(
        &'l self,
        cursor: &Cursor,
    ) -> Option<impl Iterator<Item = &'l Arc<str>> + use<'l>> {
        if !Arc::ptr_eq(&self.lineage, &cursor.lineage) {
            return None;
        }
        // A cursor of a later snapshot than this has nothing to do with it.
        let behind = usize::try_from(self.now.checked_sub(cursor.at)?).ok()?;
        let known = self.entries.len().checked_sub(behind)?;
        Some(
            self.entries
                .iter()
                .skip(known)
                .flat_map(|names| names.iter()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<Arc<str>> {
        of.iter().map(|&name| name.into()).collect()
    }

    fn since<'l>(log: &'l ChangeLog, cursor: &Cursor) -> Option<Vec<&'l str>> {
        log.since(cursor)
            .map(|names| names.map(|name| &**name).collect())
    }

    #[test]
    fn a_cursor_gets_what_came_after_it() {
        let first = ChangeLog::begin();
        let log = first.then(names(&["a"])).then(names(&["b", "c"]));
        assert_eq!(since(&log, &first.cursor()), Some(vec!["a", "b", "c"]));
        assert_eq!(since(&log, &log.cursor()), Some(vec![]));
        assert!(log.is_at(&log.cursor()) && !log.is_at(&first.cursor()));
    }

    #[test]
    fn a_cursor_that_fell_off_or_is_of_another_lineage_gets_nothing() {
        let first = ChangeLog::begin();
        let second = first.then_within(names(&["a", "b"]), 3);
        let third = second.then_within(names(&["c", "d"]), 3);
        assert_eq!(since(&third, &first.cursor()), None);
        assert_eq!(since(&third, &second.cursor()), Some(vec!["c", "d"]));
        assert_eq!(since(&third, &ChangeLog::begin().cursor()), None);
        assert_eq!(since(&second, &third.cursor()), None, "a later one");
    }

    #[test]
    fn a_log_is_bounded_in_names_and_in_publications() {
        let mut log = ChangeLog::begin();
        for _ in 0..10 * MAX_ENTRIES {
            log = log.then(names(&["a"]));
        }
        assert_eq!(log.entries.len(), MAX_ENTRIES);
        for _ in 0..10 {
            log = log.then(vec!["a".into(); MAX_NAMES / 2 + 1]);
            assert!(log.names <= MAX_NAMES);
        }
        log = log.then(vec!["a".into(); 2 * MAX_NAMES]);
        assert_eq!((log.entries.len(), log.names), (1, 2 * MAX_NAMES));
    }
}
