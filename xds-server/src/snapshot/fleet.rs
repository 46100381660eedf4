//! All that one fleet is served, whole: a reference that leads nowhere is refused.
//!
//! In: the resources of all types, and what of them is held. Out: a [`FleetSnapshot`], which may follow another. Where
//! endpoints stand apart (LEDS), it has the load assignments in both forms.
//!
//! Not here: which resources a fleet gets (`publish`), and which form a client takes (`stream`).

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::collections::{Assignment, Collections, PlainAssignments};
use super::log::ChangeLog;
use super::{Resource, ResourceType, TypeSnapshot};
use crate::model::{Name, NodeMatcher};
use crate::trust::Allow;

/// All that one fleet is served.
#[derive(Debug)]
pub struct FleetSnapshot {
    name: Name,
    matcher: NodeMatcher,
    allow: Option<Arc<Allow>>,
    state: u128,
    /// Of LbEndpoint there is nothing: endpoints are not asked for by name.
    types: [Arc<TypeSnapshot>; 5],
    apart: Option<Apart>,
}

/// What a fleet has more when its endpoints stand apart from their load assignments (LEDS).
#[derive(Debug)]
struct Apart {
    collections: Collections,
    plain: PlainAssignments,
}

/// A reference that leads nowhere: a defect of the renderer, never of the configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("fleet {fleet}: {from_kind} {from} refers to {to_kind} {to}, which is not there", from_kind = .from_kind.as_str(), to_kind = .to_kind.as_str())]
pub struct DanglingReference {
    fleet: Name,
    from_kind: ResourceType,
    from: Arc<str>,
    to_kind: ResourceType,
    to: Arc<str>,
}

impl FleetSnapshot {
    /// Gathers what a fleet is served; `held` are resources that exist but may not be answered yet.
    ///
    /// # Errors
    /// When a resource refers to one that is neither there nor held.
    pub fn new(
        name: Name,
        matcher: NodeMatcher,
        resources: impl IntoIterator<Item = Arc<Resource>>,
        held: BTreeSet<(ResourceType, Arc<str>)>,
    ) -> Result<Self, DanglingReference> {
        let mut by_type: [Vec<Arc<Resource>>; 5] = Default::default();
        for resource in resources {
            if let Some(list) = by_type.get_mut(resource.kind().index()) {
                list.push(resource);
            }
        }
        let types = ResourceType::ALL.map(|kind| {
            let list = by_type
                .get_mut(kind.index())
                .map(std::mem::take)
                .unwrap_or_default();
            let held = held
                .iter()
                .filter(|(of, _)| *of == kind)
                .map(|(_, name)| Arc::clone(name));
            Arc::new(TypeSnapshot::new(list, held.collect()))
        });
        let states: Vec<u8> = types.iter().flat_map(|of| of.state.to_le_bytes()).collect();
        let fleet = Self {
            name,
            matcher,
            allow: None,
            state: xxh3_128(&states),
            types,
            apart: None,
        };
        fleet.check_references()?;
        Ok(fleet)
    }

    /// The same with endpoints that stand apart. Its load assignments are of that form, and `assignments` are the same
    /// ones, each with its collections and its plain form.
    #[must_use]
    pub fn with_collections(self, assignments: Vec<Arc<Assignment>>) -> Self {
        let collections = Collections::of(&assignments);
        let held = self.of_type(ResourceType::ClusterLoadAssignment).held();
        let plain = PlainAssignments::new(assignments, held.clone());
        let mut states = self.state.to_le_bytes().to_vec();
        states.extend_from_slice(collections.version().as_bytes());
        Self {
            apart: Some(Apart { collections, plain }),
            state: xxh3_128(&states),
            ..self
        }
    }

    /// The same as what the fleet is served after `before`: streams that have served `before` need look only at what
    /// differs.
    #[must_use]
    pub fn following(self, before: &Self) -> Self {
        self.following_with(before, ChangeLog::then)
    }

    /// The same, with a log that remembers so many names.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn following_within(self, before: &Self, max_names: usize) -> Self {
        self.following_with(before, |log, changed| log.then_within(changed, max_names))
    }

    fn following_with(
        mut self,
        before: &Self,
        next: impl Fn(&ChangeLog, Vec<Arc<str>>) -> ChangeLog,
    ) -> Self {
        let mut old = before.types.iter();
        self.types = self
            .types
            .map(|new| match (Arc::try_unwrap(new), old.next()) {
                (Ok(new), Some(old)) => new.following(old, &next),
                (Ok(new), None) => Arc::new(new),
                (Err(shared), _) => shared,
            });
        if let Some(apart) = &mut self.apart {
            // In a fleet that has turned to this form, the log of before goes on in `types`. With it here too there would be
            // two ways on from one place, and a cursor on one would pass for a cursor on the other.
            if let Some(old) = &before.apart {
                apart.collections.follow(&old.collections, &next);
                apart.plain.set_before(old.plain.made().map(Arc::clone));
            }
        }
        self
    }

    /// Encodes the plain load assignments now if a client asked for them in `before`: then one will again.
    pub fn anticipate(&self, before: &Self) {
        if let (Some(new), Some(old)) = (&self.apart, &before.apart)
            && old.plain.was_asked_for()
        {
            new.plain.make();
        }
    }

    fn check_references(&self) -> Result<(), DanglingReference> {
        for resource in self
            .types
            .iter()
            .flat_map(|of_type| of_type.resources.values())
        {
            for (kind, name) in resource.references() {
                let there = self.of_type(*kind);
                if !there.resources.contains_key(name) && !there.is_held(name) {
                    return Err(DanglingReference {
                        fleet: self.name.clone(),
                        from_kind: resource.kind(),
                        from: Arc::clone(resource.name()),
                        to_kind: *kind,
                        to: Arc::clone(name),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether a node belongs to the fleet.
    pub(super) fn matches<'n>(
        &self,
        id: &str,
        cluster: &str,
        metadata: impl Fn(&str) -> Option<&'n str>,
    ) -> bool {
        self.matcher.matches(id, cluster, metadata)
    }

    /// The same for nodes that `allow` admits alone.
    #[must_use]
    pub fn admitting(mut self, allow: Option<Arc<Allow>>) -> Self {
        self.allow = allow;
        self
    }

    /// Whom the fleet admits by certificate; `None`: every node that matches.
    #[must_use]
    pub fn allow(&self) -> Option<&Arc<Allow>> {
        self.allow.as_ref()
    }

    /// A hash of all that the fleet is served and of what is held.
    #[must_use]
    pub fn state(&self) -> u128 {
        self.state
    }

    /// Whether nothing is held: all that exists may be answered.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.types.iter().all(|of_type| of_type.held.is_empty())
    }

    /// The fleet's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The resources of one type. Where endpoints stand apart, the load assignments are those without endpoints.
    #[must_use]
    pub fn of_type(&self, kind: ResourceType) -> &TypeSnapshot {
        let [clusters, assignments, endpoints, listeners, routes] = &self.types;
        match kind {
            ResourceType::Cluster => clusters,
            ResourceType::ClusterLoadAssignment => assignments,
            ResourceType::LbEndpoint => endpoints,
            ResourceType::Listener => listeners,
            ResourceType::RouteConfiguration => routes,
        }
    }

    /// The resources of one type as a client is told that takes endpoints apart, or that does not.
    #[must_use]
    pub fn of_type_for(&self, kind: ResourceType, takes_collections: bool) -> &TypeSnapshot {
        match &self.apart {
            Some(apart) if kind == ResourceType::ClusterLoadAssignment && !takes_collections => {
                apart.plain.get()
            }
            _ => self.of_type(kind),
        }
    }

    /// The endpoints that stand apart; `None`: they are in the load assignments.
    #[must_use]
    pub fn collections(&self) -> Option<&Collections> {
        self.apart.as_ref().map(|apart| &apart.collections)
    }
}
