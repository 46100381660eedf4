//! `backends:` of a service: its groups, which pool each belongs to, and who probes it.
//!
//! In: the list, the table of groups, and what the service as a whole says of probing. Out: [`Backends`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::Asked;
use crate::config::groups::{self, Group};
use crate::config::probing;
use crate::config::read::{Fields, Item};
use crate::config::table::Table;
use crate::model::{Backend, GroupKind, Locality, ProbedBy};

/// The groups of a service.
#[derive(Debug, Default)]
pub(super) struct Backends {
    /// Those that are right.
    pub(super) backends: Vec<Backend>,
    /// How many are written as primaries, wrong ones too.
    pub(super) primaries: usize,
    /// How many are written as failover, wrong ones too.
    pub(super) failovers: usize,
    /// Whether one of them says neither, in a wrong form.
    pub(super) unclear: bool,
    /// Whether Envoys do not check a group only because they cannot run the check (semantics H7).
    pub(super) fell_back: bool,
}

impl Backends {
    /// Whether Envoys check one of them, as far as is known.
    pub(super) fn by_envoys(&self) -> bool {
        self.backends.iter().any(|backend| backend.by.envoys)
    }

    /// The first that no prober checks.
    pub(super) fn without_probers(&self) -> Option<&Backend> {
        self.backends.iter().find(|backend| !backend.by.probers)
    }
}

/// Reads the list.
pub(super) fn read(
    item: &Item<'_>,
    fields: &Fields<'_>,
    groups: &Table<Group>,
    asked: &Asked,
    by: Option<ProbedBy>,
) -> Backends {
    let mut read = Backends::default();
    let Some(list) = fields.get("backends") else {
        return read;
    };
    let mut used = HashSet::new();
    let mut seen = HashMap::new();
    let mut sums: BTreeMap<&Locality, f64> = BTreeMap::new();
    for backend in list.list() {
        let Some(fields) = backend.fields(&["group", "capacity", "failover", "probing"]) else {
            continue;
        };
        let capacity = fields
            .get("capacity")
            .and_then(|i| i.number(0.0..=1.0))
            .unwrap_or(1.0);
        let failover = match fields.get("failover").map(|i| i.boolean()) {
            None => false,
            Some(written) => {
                read.unclear |= written.is_none();
                written.unwrap_or_default()
            }
        };
        let pool = if failover {
            &mut read.failovers
        } else {
            &mut read.primaries
        };
        *pool += 1;
        let own = fields
            .get("probing")
            .and_then(|i| probing::read_of_backend(&i, asked));
        let Some(item) = fields.required("group", "name the group of endpoints") else {
            continue;
        };
        let Some(found) = groups.find(&item) else {
            continue;
        };
        let name = item.scalar().unwrap_or_default();
        if !used.insert(name.to_owned()) {
            item.error(format!(
                "the service uses the group {name} already; name each group once, as primary or as failover"
            ));
            continue;
        }
        let Some(group) = &found.group else { continue };
        if let Some((address, other, count)) = groups::shared(group, &mut seen) {
            let more = match count {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            item.error(format!(
                "the service has {address}{more} through the group {other} already, and Envoy keeps one of each; \
                 take them out of {other} or {}",
                group.name
            ));
        }
        let weights: u64 = group.endpoints.iter().map(|e| u64::from(e.weight)).sum();
        #[allow(clippy::cast_precision_loss)] // at most 1,000 for each of some 600,000 endpoints
        let scaled = weights as f64 * (capacity * 100.0).ceil();
        *sums.entry(&group.locality).or_default() += scaled;
        let by = own.or(by).unwrap_or_else(|| {
            let (by, fell_back) = default_by(group.kind, asked);
            read.fell_back |= fell_back;
            by
        });
        read.backends.push(Backend {
            group: Arc::clone(group),
            capacity,
            failover,
            by,
        });
    }
    // Envoy refuses a locality whose weights do not fit; capacity is folded into them in hundredths.
    for (locality, sum) in sums {
        if sum > f64::from(u32::MAX) {
            item.error(format!(
                "the weights of the endpoints in region {:?}, zone {:?} come to {sum:.0} hundredths, and Envoy adds up to {} \
                 at most; give smaller weights",
                locality.region,
                locality.zone,
                u32::MAX
            ));
        }
    }
    read
}

/// Who probes a group where nothing is written, and whether that is less than its kind's default (semantics H7).
fn default_by(kind: GroupKind, asked: &Asked) -> (ProbedBy, bool) {
    match (kind, asked) {
        (GroupKind::GceVmIpPort, _) => (ProbedBy::PROBERS, false),
        (GroupKind::NonGcpPrivateIpPort | GroupKind::InternetIpPort, Asked::Check(check))
            if check.inexpressible.is_some() =>
        {
            (ProbedBy::PROBERS, true)
        }
        (GroupKind::NonGcpPrivateIpPort | GroupKind::InternetIpPort, _) => (ProbedBy::BOTH, false),
    }
}
