//! Things by their names: what references are resolved against.
//!
//! In: definitions, of one kind, from all files. Out: the thing that a reference means, or a finding: a name that is
//! taken, or one that nothing has. A thing that is wrong in itself is entered too, because references to it are right.
//!
//! Not here: what the things are.

use std::collections::HashMap;

use super::diagnostic::{Place, clip, quote};
use super::read::Item;

/// Things by their names, of one kind, from all files.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// What the things are, for messages: `health check`.
    kind: &'static str,
    things: HashMap<String, (Place, T)>,
}

impl<T> Table<T> {
    /// An empty table of such things.
    pub(super) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            things: HashMap::new(),
        }
    }

    /// Enters a thing under the name that `item` gives. Also one that is wrong in itself: references to it are right.
    pub(super) fn define(&mut self, item: &Item<'_>, thing: T) {
        let Some(name) = item.scalar() else { return };
        if let Some((first, _)) = self.things.get(name) {
            let first = item.sink.show(*first);
            item.error(format!(
                "another {} has the name {} already, at {first}; rename one",
                self.kind,
                clip(name)
            ));
            return;
        }
        self.things.insert(name.into(), (item.node.place, thing));
    }

    /// The thing that `item` names.
    pub(super) fn find(&self, item: &Item<'_>) -> Option<&T> {
        let name = item.text()?;
        if let Some((_, thing)) = self.things.get(name) {
            return Some(thing);
        }
        if item.sink.is_incomplete() {
            // It may stand in the file that could not be read.
            return None;
        }
        let hint = item
            .sink
            .suggest(name, self.things.keys().map(String::as_str));
        let hint = if hint.is_empty() {
            format!("; define it, or name one that is defined{}", self.sample())
        } else {
            hint
        };
        item.error(format!("no {} is called {}{hint}", self.kind, quote(name)));
        None
    }

    /// The thing of that name.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.things.get(name).map(|(_, thing)| thing)
    }

    /// Everything in it.
    pub(super) fn into_things(self) -> impl Iterator<Item = T> {
        self.things.into_values().map(|(_, thing)| thing)
    }

    /// Everything in it, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.things
            .iter()
            .map(|(name, (_, thing))| (name.as_str(), thing))
    }

    /// A few names, where there are only a few.
    fn sample(&self) -> String {
        if self.things.is_empty() || self.things.len() > 8 {
            return String::new();
        }
        let mut names: Vec<_> = self.things.keys().map(|name| clip(name)).collect();
        names.sort();
        format!(" ({})", names.join(", "))
    }
}
