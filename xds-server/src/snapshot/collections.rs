//! Endpoints that stand apart from their load assignment (LEDS): the collections that an Envoy subscribes to, and the
//! load assignments that name them.
//!
//! ```text
//!  Cluster shop ─► ClusterLoadAssignment shop ─┬─► …/shop/dc1/*    192.0.2.1-80  192.0.2.2-80
//!                                              └─► …/shop/dc2/*    198.51.100.1-80
//! ```
//!
//! In: encoded endpoints, and what has changed of them. Out: immutable [`Collection`]s that say what changed since a
//! stream last looked, so that a flip costs everybody one endpoint, whatever the cluster has. An Envoy that reconnects
//! does not say which endpoints it has (measured), so a collection remembers all that ever left it; when those are more
//! than it has, it is due for a new path (`resources`), under which an Envoy knows nothing yet.
//!
//! Whoever does not take collections gets plain load assignments, which are encoded only when somebody asks
//! (`PlainAssignments`).
//!
//! Not here: what an endpoint says and what a path is (`resources`), and what a stream was sent (`stream`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::log::ChangeLog;
use super::{Resource, TypeSnapshot};

/// Endpoints that have left, at least, before they may be a reason for a new path: a small collection whose endpoints
/// come and go is not worth one each time.
const MIN_LEFT: usize = 64;

/// The endpoints of one group in one service, each a resource of its own.
#[derive(Debug)]
pub struct Collection {
    glob: Arc<str>,
    entries: BTreeMap<Arc<str>, Arc<Resource>>,
    /// Names that were once in it.
    left: BTreeSet<Arc<str>>,
    /// A hash of the names and versions, made of one of each, so that a change of one is a change of one.
    state: u64,
    log: ChangeLog,
}

impl Collection {
    /// A collection of a path that was never used before. `glob` is what clients subscribe to; the names of the entries
    /// are it with something else than its last `*`.
    #[must_use]
    pub fn new(glob: Arc<str>, entries: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let mut new = Self {
            glob,
            entries: BTreeMap::new(),
            left: BTreeSet::new(),
            state: 0,
            log: ChangeLog::begin(),
        };
        for entry in entries {
            new.put(entry);
        }
        new
    }

    /// The collection after these entries have changed or come, and those have gone.
    #[must_use]
    pub fn next(&self, changed: Vec<Arc<Resource>>, gone: Vec<Arc<str>>) -> Self {
        self.next_with(changed, gone, ChangeLog::then)
    }

    /// The same, with a log that remembers so many names.
    #[cfg(test)]
    pub(crate) fn next_within(
        &self,
        changed: Vec<Arc<Resource>>,
        gone: Vec<Arc<str>>,
        max_names: usize,
    ) -> Self {
        self.next_with(changed, gone, |log, names| {
            log.then_within(names, max_names)
        })
    }

    fn next_with(
        &self,
        changed: Vec<Arc<Resource>>,
        gone: Vec<Arc<str>>,
        next: impl Fn(&ChangeLog, Vec<Arc<str>>) -> ChangeLog,
    ) -> Self {
        let names = changed.iter().map(|entry| Arc::clone(entry.name()));
        let log = next(&self.log, names.chain(gone.iter().cloned()).collect());
        let mut new = Self {
            glob: Arc::clone(&self.glob),
            entries: self.entries.clone(),
            left: self.left.clone(),
            state: self.state,
            log,
        };
        for name in gone {
            if let Some(old) = new.entries.remove(&name) {
                new.state = new.state.wrapping_sub(hash_of(&old));
                new.left.insert(name);
            }
        }
        for entry in changed {
            new.left.remove(entry.name());
            new.put(entry);
        }
        new
    }

    fn put(&mut self, entry: Arc<Resource>) {
        self.state = self.state.wrapping_add(hash_of(&entry));
        if let Some(old) = self.entries.insert(Arc::clone(entry.name()), entry) {
            self.state = self.state.wrapping_sub(hash_of(&old));
        }
    }

    /// Whether it should get a new path: more is remembered of it than it has.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.left.len() > self.entries.len().max(MIN_LEFT)
    }

    /// What clients subscribe to.
    #[must_use]
    pub fn glob(&self) -> &Arc<str> {
        &self.glob
    }

    /// The endpoints by name.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<Arc<str>, Arc<Resource>> {
        &self.entries
    }

    /// The names that were once in it and are not.
    #[must_use]
    pub fn left(&self) -> &BTreeSet<Arc<str>> {
        &self.left
    }

    /// What has changed on the way to this state.
    #[must_use]
    pub fn log(&self) -> &ChangeLog {
        &self.log
    }
}

fn hash_of(entry: &Resource) -> u64 {
    xxh3_64_with_seed(entry.name().as_bytes(), entry.digest())
}

/// A load assignment in the forms in which it may be served.
#[derive(Debug)]
pub struct Assignment {
    plain: Lazy,
    apart: Option<(Arc<Resource>, Vec<Arc<Collection>>)>,
}

type Lazy = LazyLock<Arc<Resource>, Box<dyn FnOnce() -> Arc<Resource> + Send + Sync>>;

impl Assignment {
    /// One that has the plain form only.
    #[must_use]
    pub fn plain_only(plain: Arc<Resource>) -> Self {
        let lazy: Lazy = LazyLock::new(Box::new(move || plain));
        LazyLock::force(&lazy);
        Self {
            plain: lazy,
            apart: None,
        }
    }

    /// One whose endpoints stand in `collections`, which `apart` refers to. `plain` is called if somebody needs it.
    #[must_use]
    pub fn apart(
        apart: Arc<Resource>,
        collections: Vec<Arc<Collection>>,
        plain: impl FnOnce() -> Arc<Resource> + Send + Sync + 'static,
    ) -> Self {
        Self {
            plain: LazyLock::new(Box::new(plain)),
            apart: Some((apart, collections)),
        }
    }

    /// With its endpoints in it. Encodes it when asked for the first time.
    #[must_use]
    pub fn plain(&self) -> &Arc<Resource> {
        &self.plain
    }

    /// With its endpoints apart, where there is that form.
    #[must_use]
    pub fn without_endpoints(&self) -> Option<&Arc<Resource>> {
        self.apart.as_ref().map(|(resource, _)| resource)
    }

    /// Where its endpoints stand apart.
    #[must_use]
    pub fn collections(&self) -> &[Arc<Collection>] {
        self.apart
            .as_ref()
            .map_or(&[], |(_, collections)| collections)
    }

    /// The name of its service: where endpoints stand apart, without encoding the plain form.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.without_endpoints()
            .unwrap_or_else(|| self.plain())
            .name()
    }
}

/// All collections of a fleet.
#[derive(Debug)]
pub struct Collections {
    by_glob: BTreeMap<Arc<str>, Arc<Collection>>,
    /// By service.
    assignments: BTreeMap<Arc<str>, Arc<Assignment>>,
    version: Arc<str>,
    log: ChangeLog,
}

impl Collections {
    pub(super) fn of(assignments: &[Arc<Assignment>]) -> Self {
        let all = assignments.iter().flat_map(|of| of.collections());
        let by_glob: BTreeMap<Arc<str>, Arc<Collection>> = all
            .map(|one| (Arc::clone(&one.glob), Arc::clone(one)))
            .collect();
        let mut text = Vec::with_capacity(by_glob.len() * 64);
        for (glob, collection) in &by_glob {
            text.extend_from_slice(glob.as_bytes());
            text.extend_from_slice(&collection.state.to_be_bytes());
        }
        let by_name = |of: &Arc<Assignment>| (Arc::clone(of.name()), Arc::clone(of));
        Self {
            by_glob,
            assignments: assignments.iter().map(by_name).collect(),
            version: format!("{:016x}", xxh3_64(&text)).into(),
            log: ChangeLog::begin(),
        }
    }

    /// Takes the place after `before`: with its log, to which `next` adds what has changed.
    pub(super) fn follow(
        &mut self,
        before: &Self,
        next: impl Fn(&ChangeLog, Vec<Arc<str>>) -> ChangeLog,
    ) {
        let globs: BTreeSet<&Arc<str>> = self.by_glob.keys().chain(before.by_glob.keys()).collect();
        let same = |glob: &&Arc<str>| match (self.get(glob), before.get(glob)) {
            (Some(new), Some(old)) => new.log.is_at(&old.log.cursor()),
            _ => false,
        };
        let changed: Vec<_> = globs
            .into_iter()
            .filter(|glob| !same(glob))
            .cloned()
            .collect();
        self.log = match changed.is_empty() {
            true => before.log.clone(),
            false => next(&before.log, changed),
        };
    }

    /// The collection that a client subscribes to by this.
    #[must_use]
    pub fn get(&self, glob: &str) -> Option<&Arc<Collection>> {
        self.by_glob.get(glob)
    }

    /// The load assignment of a service.
    #[must_use]
    pub fn assignment(&self, service: &str) -> Option<&Arc<Assignment>> {
        self.assignments.get(service)
    }

    /// Which collections have changed, by what is subscribed to.
    #[must_use]
    pub fn log(&self) -> &ChangeLog {
        &self.log
    }

    /// A hash of the whole.
    #[must_use]
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }
}

/// The load assignments for those who do not take collections, made when one asks.
#[derive(Debug)]
pub(super) struct PlainAssignments {
    assignments: Vec<Arc<Assignment>>,
    held: BTreeSet<Arc<str>>,
    /// What these follow, if it was made.
    before: Option<Arc<TypeSnapshot>>,
    made: OnceLock<Arc<TypeSnapshot>>,
    asked_for: AtomicBool,
}

impl PlainAssignments {
    pub(super) fn new(assignments: Vec<Arc<Assignment>>, held: BTreeSet<Arc<str>>) -> Self {
        Self {
            assignments,
            held,
            before: None,
            made: OnceLock::new(),
            asked_for: AtomicBool::new(false),
        }
    }

    pub(super) fn set_before(&mut self, before: Option<Arc<TypeSnapshot>>) {
        self.before = before;
    }

    /// For a client.
    pub(super) fn get(&self) -> &TypeSnapshot {
        self.asked_for.store(true, Ordering::Relaxed);
        self.make()
    }

    /// Whether a client has asked.
    pub(super) fn was_asked_for(&self) -> bool {
        self.asked_for.load(Ordering::Relaxed)
    }

    /// If they were made already.
    pub(super) fn made(&self) -> Option<&Arc<TypeSnapshot>> {
        self.made.get()
    }

    pub(super) fn make(&self) -> &Arc<TypeSnapshot> {
        self.made.get_or_init(|| {
            let plain = self.assignments.iter().map(|of| Arc::clone(of.plain()));
            let new = TypeSnapshot::new(plain, self.held.clone());
            match &self.before {
                Some(before) => new.following(before, ChangeLog::then),
                None => Arc::new(new),
            }
        })
    }
}

#[cfg(test)]
mod tests;
