//! Endpoints that stand apart from their load assignment (LEDS): what an Envoy wants of them, and what it has.
//!
//! ```text
//!               subscribed, or its load assignment was sent again
//!                   │
//!                   ▼
//!    ┌──────► Whole(up to) ──── all entries sent, and what has left said ────► Changes ──┐
//!    │                                                                           │  ▲    │
//!    └────────────── the collection's log does not reach back ───────────────────┘  └────┘ what changed
//! ```
//!
//! In: globs subscribed and given up, answers to responses, the newest collections. Out: batches of what is missing. Beside
//! each glob stands only how far the client has come in it, not what it has: thousands of streams have the same ten thousand
//! endpoints. So a collection is sent whole where a load assignment would be compared: to a client that connects (an Envoy
//! does not say what it has, measured), and to one that was silent for longer than the collection's log reaches back. An
//! endpoint that turned and turned back meanwhile is sent again. Where that happens between two parts of a whole, the rest
//! still comes first: were it begun anew each time, a slow client would never see the end of a collection that changes fast.
//!
//! Endpoints that leave are in the same responses: nothing refers to them. A collection that does not exist, or is held, is
//! not answered: an Envoy would take the answer for an empty one, and what it has of an old path must live until it has the
//! new load assignment.
//!
//! An Envoy whose bootstrap has `node_context_params` puts them behind the glob, after a `?`, and passes over names without
//! them (measured). They are the same collections, so its names are written with what it put there.
//!
//! Not here: what is sent of clusters and load assignments (`subscription`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::google::rpc::Status;

use super::acks::{Acks, Interest, Nack, SHOWN_NAMES, parse_nonce};
use super::subscription::{Batch, Lack, check_limits};
use super::{MAX_UNANSWERED, RESPONSE_BYTES, Refusal, blame};
use crate::snapshot::Resource;
use crate::snapshot::collections::{Collection, Collections};
use crate::snapshot::log::Cursor;

/// How many names of a response are remembered until it is answered; of a larger one, its collections.
const MAX_NAMED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct CollectionSubscription {
    /// By glob, without parameters.
    wanted: BTreeMap<Arc<str>, Place>,
    name_bytes: usize,
    /// The globs of which the client may lack something.
    behind: BTreeSet<Arc<str>>,
    /// The last collection of the last response, if that was full: the next begins after it.
    cut: Option<Arc<str>>,
    /// Up to where the changed collections are in `behind`; `None`: any may have changed.
    cursor: Option<Cursor>,
    /// What was in the responses that are not answered, and in the one that was refused: names or, if many, globs.
    unanswered: VecDeque<(u64, Vec<Arc<str>>)>,
    refused: Option<(u64, Vec<Arc<str>>)>,
    shown: Option<Interest>,
    acks: Acks,
}

/// How far a client has come in one collection.
#[derive(Debug, Default)]
struct Place {
    /// What the client put behind the glob.
    parameters: Box<str>,
    progress: Progress,
    /// It was sent the whole, if not in its present state.
    is_complete: bool,
    /// Up to where what has changed is in `lacks`; `None`: nothing was sent.
    at: Option<Cursor>,
    /// What has changed of what it was sent.
    lacks: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
enum Progress {
    /// It is sent the whole, and has it up to this name.
    Whole(Option<Arc<str>>),
    /// As `Whole`, but what it has of it may be old: after the end, the whole begins anew.
    WholeTwice(Arc<str>),
    /// It has been sent the whole, and lacks only what has changed.
    Changes,
}

impl Default for Progress {
    fn default() -> Self {
        Self::Whole(None)
    }
}

impl CollectionSubscription {
    pub(super) fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Whether so much is unanswered that nothing more is sent.
    pub(super) fn must_answer_first(&self) -> bool {
        self.acks.unanswered() >= MAX_UNANSWERED
    }

    /// The globs subscribed to, for people.
    pub(super) fn interest(&mut self) -> Interest {
        let wanted = &self.wanted;
        let shown = self.shown.get_or_insert_with(|| Interest {
            names: wanted
                .iter()
                .take(SHOWN_NAMES)
                .map(|(glob, place)| with_parameters(glob, &place.parameters))
                .collect(),
            count: wanted.len(),
        });
        shown.clone()
    }

    /// Subscribes. What is asked for is sent whole, also when the client has it.
    pub(super) fn subscribe(&mut self, globs: Vec<String>) -> Result<(), Refusal> {
        for glob in globs {
            self.shown = None;
            let (glob, parameters) = split(&glob);
            let place = Place {
                parameters: parameters.into(),
                ..Place::default()
            };
            self.name_bytes += glob.len() + parameters.len();
            let glob: Arc<str> = glob.into();
            if let Some(old) = self.wanted.insert(Arc::clone(&glob), place) {
                self.name_bytes -= glob.len() + old.parameters.len();
            }
            check_limits(self.wanted.len(), self.name_bytes)?;
            self.behind.insert(glob);
        }
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, globs: &[String]) {
        for glob in globs {
            let (glob, _) = split(glob);
            if let Some(old) = self.wanted.remove(glob) {
                self.shown = None;
                self.name_bytes -= glob.len() + old.parameters.len();
                self.behind.remove(glob);
                self.mend(|name| is_in(name, glob));
            }
        }
    }

    /// The load assignment that names these collections has been sent again: whoever waits for it has none of them.
    pub(super) fn send_again(&mut self, collections: &[Arc<Collection>]) {
        for collection in collections {
            if let Some(place) = self.wanted.get_mut(&**collection.glob()) {
                place.begin_anew();
                self.behind.insert(Arc::clone(collection.glob()));
            }
        }
    }

    /// Whether the client is subscribed to all of these.
    pub(super) fn wants_all(&self, collections: &[Arc<Collection>]) -> bool {
        let mut globs = collections.iter().map(|collection| collection.glob());
        globs.all(|glob| self.wanted.contains_key(glob))
    }

    /// Takes the answer to a response; see [`Acks::answer`]. A refusal stands until all that was refused was sent anew or
    /// given up.
    pub(super) fn answer(
        &mut self,
        nonce: &str,
        error: Option<Status>,
        now: SystemTime,
    ) -> Option<Option<Nack>> {
        let (refused, unanswered) = (&self.refused, &self.unanswered);
        let blamed = |nonce: u64, message: &str| {
            let sent = || unanswered.iter().flat_map(|(_, names)| names);
            let named = blame::blamed(message, |name| {
                sent().find(|sent| ***sent == *name).cloned()
            });
            let alone = unanswered.iter().find(|(of, _)| *of == nonce);
            match alone {
                // A text that names nothing is about the one resource of the response, if it had one.
                Some((_, names)) if named.is_empty() && names.len() == 1 => names.clone(),
                _ => named,
            }
        };
        let stands = |nonce, _: &[Arc<str>]| {
            (refused.as_ref()).is_some_and(|(of, names)| *of == nonce && !names.is_empty())
        };
        let answer = self.acks.answer(nonce, error, now, blamed, stands)?;
        let nonce = parse_nonce(nonce)?;
        while let Some((sent, names)) = self.unanswered.pop_front_if(|(sent, _)| *sent <= nonce) {
            if sent == nonce && answer.is_some() {
                self.refused = Some((sent, names));
            }
        }
        Some(answer)
    }

    /// What the client lacks, or `None` when it lacks nothing or must answer first. `nonce` is that of the response.
    pub(super) fn next(&mut self, collections: &Collections, nonce: u64) -> Option<Batch> {
        if self.must_answer_first() {
            return None;
        }
        self.catch_up(collections);
        let mut batch = Batch::default();
        let mut bytes = 0;
        // Which collections are in it, and which of those to their end.
        let (mut globs, mut whole) = (Vec::new(), Vec::new());
        while bytes < RESPONSE_BYTES
            && let Some(glob) = self.pop_behind()
        {
            // When one that is not there comes (back), the log names it.
            let Some(collection) = collections.get(&glob) else {
                continue;
            };
            self.share_name(collection);
            let Some(place) = self.wanted.get_mut(&glob) else {
                continue;
            };
            place.catch_up(collection);
            let was_whole = !matches!(place.progress, Progress::Changes);
            if !place.next(collection, &mut batch, &mut bytes) {
                self.behind.insert(Arc::clone(&glob));
            } else if was_whole {
                whole.push(Arc::clone(&glob));
            }
            self.cut = (bytes >= RESPONSE_BYTES).then(|| Arc::clone(&glob));
            globs.push(glob);
        }
        let names = batch.resources.iter().map(|resource| resource.name());
        let names = names.chain(&batch.removed);
        let count = batch.resources.len() + batch.removed.len();
        if count == 0 {
            return None;
        }
        if self.refused.is_some() {
            let names: BTreeSet<&str> = names.clone().chain(&whole).map(|name| &**name).collect();
            self.mend(|name| names.contains(name));
        }
        let sent = match count <= MAX_NAMED {
            true => names.cloned().collect(),
            false => globs,
        };
        self.unanswered.push_back((nonce, sent));
        Some(batch)
    }

    /// What the client lacks of the snapshot.
    pub(super) fn lack(&mut self, collections: &Collections) -> Lack {
        self.catch_up(collections);
        let of = |glob: &Arc<str>| match (self.wanted.get(glob), collections.get(glob)) {
            (Some(place), Some(_)) if place.is_complete => Lack::Changes,
            (Some(_), Some(_)) => Lack::News,
            _ => Lack::Nothing,
        };
        self.behind.iter().map(of).max().unwrap_or(Lack::Nothing)
    }

    pub(super) fn sent(&mut self, nonce: u64, version: Arc<str>) {
        self.acks.sent(nonce, version);
    }

    /// Takes off the refusal what the client was sent anew or no longer wants.
    fn mend(&mut self, is_mended: impl Fn(&str) -> bool) {
        if let Some((_, names)) = &mut self.refused {
            names.retain(|name| !is_mended(name));
        }
    }

    fn catch_up(&mut self, collections: &Collections) {
        let log = collections.log();
        if self.cursor.as_ref().is_some_and(|cursor| log.is_at(cursor)) {
            return;
        }
        let before = self.cursor.replace(log.cursor());
        match before.as_ref().and_then(|before| log.since(before)) {
            Some(changed) => {
                let wanted = changed.filter(|glob| self.wanted.contains_key(*glob));
                self.behind.extend(wanted.cloned());
            }
            None => self.behind = self.wanted.keys().cloned().collect(),
        }
    }

    fn pop_behind(&mut self) -> Option<Arc<str>> {
        let after = self.cut.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.behind.range((after, Bound::Unbounded)).next();
        let next = next.or_else(|| self.behind.first()).cloned()?;
        self.behind.take(&next)
    }

    /// Thousands of streams have the same globs: one copy of each is enough.
    fn share_name(&mut self, collection: &Collection) {
        let shared = collection.glob();
        let own = self.wanted.get_key_value(shared);
        if own.is_some_and(|(own, _)| !Arc::ptr_eq(own, shared))
            && let Some(place) = self.wanted.remove(shared)
        {
            self.wanted.insert(Arc::clone(shared), place);
            self.shown = None;
        }
    }
}

impl Place {
    fn begin_anew(&mut self) {
        *self = Self {
            parameters: std::mem::take(&mut self.parameters),
            ..Self::default()
        };
    }

    /// An entry under the name that the client knows it by.
    fn known_as(&self, entry: &Arc<Resource>) -> Arc<Resource> {
        match &*self.parameters {
            "" => Arc::clone(entry),
            parameters => Arc::new(entry.renamed(with_parameters(entry.name(), parameters))),
        }
    }

    /// Puts what the client lacks of the collection into the batch. Says whether that is all.
    fn next(&mut self, collection: &Collection, batch: &mut Batch, bytes: &mut usize) -> bool {
        loop {
            let (up_to, twice) = match &self.progress {
                Progress::Whole(up_to) => (up_to.clone(), false),
                Progress::WholeTwice(up_to) => (Some(Arc::clone(up_to)), true),
                Progress::Changes => break,
            };
            batch.is_answer = true;
            let before = *bytes;
            let after = up_to.map_or(Bound::Unbounded, Bound::Excluded);
            for (name, entry) in collection.entries().range((after, Bound::Unbounded)) {
                if *bytes >= RESPONSE_BYTES {
                    return false;
                }
                *bytes += entry.delta_entry().len();
                batch.resources.push(self.known_as(entry));
                self.progress = match twice {
                    true => Progress::WholeTwice(Arc::clone(name)),
                    false => Progress::Whole(Some(Arc::clone(name))),
                };
            }
            if twice {
                self.progress = Progress::Whole(None);
                if *bytes > before {
                    // It begins with the next response: no name stands twice in one.
                    *bytes = RESPONSE_BYTES.max(*bytes);
                    return false;
                }
            } else {
                self.progress = Progress::Changes;
                self.is_complete = true;
                self.lacks.extend(collection.left().iter().cloned());
            }
        }
        while let Some(name) = self.lacks.pop_first() {
            if *bytes >= RESPONSE_BYTES {
                self.lacks.insert(name);
                return false;
            }
            match collection.entries().get(&name) {
                Some(entry) => {
                    *bytes += entry.delta_entry().len();
                    batch.resources.push(self.known_as(entry));
                }
                None => {
                    *bytes += name.len();
                    let name = with_parameters(&name, &self.parameters);
                    batch.removed.push(name);
                }
            }
        }
        true
    }

    fn catch_up(&mut self, collection: &Collection) {
        let log = collection.log();
        let before = self.at.replace(log.cursor());
        let Some(changed) = before.as_ref().and_then(|before| log.since(before)) else {
            self.progress = match std::mem::take(&mut self.progress) {
                Progress::Whole(Some(up_to)) | Progress::WholeTwice(up_to) => {
                    Progress::WholeTwice(up_to)
                }
                Progress::Whole(None) | Progress::Changes => Progress::Whole(None),
            };
            self.lacks.clear();
            return;
        };
        let is_sent = |name: &&Arc<str>| match &self.progress {
            Progress::Whole(up_to) => up_to.as_ref().is_some_and(|up_to| *name <= up_to),
            Progress::WholeTwice(_) => false,
            Progress::Changes => true,
        };
        self.lacks.extend(changed.filter(is_sent).cloned());
    }
}

/// What a client asks for, without and with what it puts behind it.
fn split(asked: &str) -> (&str, &str) {
    asked.split_at(asked.find('?').unwrap_or(asked.len()))
}

fn with_parameters(name: &Arc<str>, parameters: &str) -> Arc<str> {
    match parameters {
        "" => Arc::clone(name),
        parameters => format!("{name}{parameters}").into(),
    }
}

/// Whether a name, or a glob, is of this glob.
fn is_in(name: &str, glob: &str) -> bool {
    glob.strip_suffix('*')
        .is_some_and(|path| name.starts_with(path))
}

#[cfg(test)]
mod tests;
