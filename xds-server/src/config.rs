//! Configuration files → the validated [`Model`].
//!
//! In: paths of files and folders, or their bytes. Out: a [`Loaded`] model with warnings, or every error at once, each
//! with file, line, column and path. The stages, in the order of the data's travel:
//!
//! ```text
//! source (bytes) → tree (located nodes) → read (typed values) → checks, groups → services → fleets → hosts → Model
//! ```
//!
//! Things are read in the order in which they refer to each other, from all files, so that a reference is resolved
//! where it is read and no half-typed copy of the configuration lives between the stages. A configuration with one
//! error is no configuration: nothing of it is used. [`watch`] reads again when the files change.
//!
//! Not here: what to do with a model, or with the errors (`app`, `cli`).

mod allow;
mod attached;
mod checks;
mod diagnostic;
mod envoy;
mod fleets;
mod groups;
mod hosts;
mod probing;
mod read;
mod routes;
mod services;
mod source;
mod table;
mod text;
mod tree;
pub mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use diagnostic::{Diagnostic, Kind};
pub use source::{Digest, Source};

use crate::model::{Model, Name};
use attached::Attached;
pub(crate) use envoy::descriptors as envoy_descriptors;
use read::Item;
pub(crate) use read::parse_duration;
use services::Complete;
use table::Table;

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub model: Model,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Diagnostic>,
    /// What it was read from: the same digest is the same configuration.
    pub digest: Digest,
}

/// Reads files and folders.
///
/// # Errors
/// All findings, in the order of files and lines.
pub fn load(paths: &[PathBuf]) -> Result<Loaded, Vec<Diagnostic>> {
    parse_sources(&source::read(paths)?)
}

/// Reads files that are in memory already, and those that they name (`tls.roots`) from disk.
///
/// # Errors
/// All findings, in the order of files and lines.
pub fn parse_sources(sources: &[Source]) -> Result<Loaded, Vec<Diagnostic>> {
    parse_and_digest(sources).0
}

/// The same, and what it was read from also where it is wrong.
fn parse_and_digest(sources: &[Source]) -> (Result<Loaded, Vec<Diagnostic>>, Digest) {
    let attached = Attached::default();
    let parsed = parse(sources, &attached);
    let digest = Digest::new(sources, &attached.into_files());
    let loaded = parsed.map(|(model, warnings)| Loaded {
        model,
        warnings,
        digest: digest.clone(),
    });
    (loaded, digest)
}

/// The model and the warnings; the files that the sources name go to `attached`.
fn parse(
    sources: &[Source],
    attached: &Attached,
) -> Result<(Model, Vec<Diagnostic>), Vec<Diagnostic>> {
    let sink = diagnostic::Sink::new(sources.iter().map(|s| s.name.as_str()).collect());
    let mut budget = tree::Budget::default();
    let trees: Vec<_> = (0u32..)
        .zip(sources)
        .filter_map(|(file, source)| tree::parse(&source.bytes, file, &mut budget, &sink))
        .collect();
    let complete = trees.len();
    let (model, defines_something) = build(&trees, attached, &sink);
    let (mut errors, warnings) = sink.finish();
    if !defines_something && errors.is_empty() {
        let name = sources.first().map_or("configuration", |s| s.name.as_str());
        let what = if complete == 0 {
            "the configuration is empty"
        } else {
            "the configuration defines no service and no fleet"
        };
        let message = format!(
            "{what}; an empty one would take all services from every Envoy, so define at least one service or fleet"
        );
        errors.push(Diagnostic::whole_file(name, message));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok((model, warnings))
}

/// Keys at the root of a file.
const KEYS: &[&str] = &[
    "healthChecks",
    "endpointGroups",
    "backendServices",
    "fleets",
    "probers",
];

/// The model, as far as it is right, and whether there is a service or a fleet at all.
fn build(
    trees: &[tree::Node<'_>],
    attached: &Attached,
    sink: &diagnostic::Sink<'_>,
) -> (Model, bool) {
    let files: Vec<_> = trees
        .iter()
        .filter_map(|tree| Item::root(tree, sink).fields(KEYS))
        .collect();
    let each = |key: &'static str, read: &mut dyn FnMut(&Item<'_>)| {
        for file in &files {
            if let Some(list) = file.get(key) {
                list.list().for_each(|item| read(&item));
            }
        }
    };
    let mut checks = Table::new("health check");
    each("healthChecks", &mut |item| {
        checks::read(item, attached, &mut checks);
    });
    let mut groups = Table::new("endpoint group");
    each("endpointGroups", &mut |item| {
        groups::read(item, &mut groups);
    });
    let mut services = Table::new("backend service");
    each("backendServices", &mut |item| {
        let known = services::Known {
            checks: &checks,
            groups: &groups,
            attached,
        };
        services::read(item, known, &mut services);
    });
    let mut fleets = fleets::Fleets::new();
    let errors = sink.errors();
    let regions = groups::regions(&groups);
    each("fleets", &mut |item| {
        fleets.read(item, &services, &regions);
    });
    // Where something is wrong, that is what is said, and once.
    if fleets.is_empty()
        && services.iter().next().is_some()
        && sink.errors() == 0
        && let Some(item) = files.iter().find_map(|file| file.get("backendServices"))
    {
        item.warning(
            "no fleet is defined, so nobody is told of these services; add fleets, such as fleets: [{ name: edge }]",
        );
    }
    // Where routes are missing, what they do not say is no finding.
    let routes_known = sink.errors() == errors && !sink.is_incomplete();
    for file in &files {
        if let Some(probers) = file.get("probers") {
            probers.key_unsupported(
                "remote vantage points",
                "leave probers out: this server probes alone",
            );
            probers.list().for_each(|item| read_prober(&item));
        }
    }
    let defines_something = services.iter().next().is_some() || !fleets.is_empty();
    let mut model = Model {
        checks: checks
            .iter()
            .filter_map(|(name, check)| Some((Name::new(name)?, check.whole()?)))
            .collect(),
        services: BTreeMap::new(),
        fleets: fleets.into_fleets(),
    };
    let mut unhosted = BTreeMap::new();
    for service in services.into_things().filter_map(|defined| defined.service) {
        match service {
            Complete::Yes(service) => {
                model.services.insert(service.name.clone(), service);
            }
            Complete::Unhosted(lacking) => {
                unhosted.insert(lacking.service.name.clone(), *lacking);
            }
        }
    }
    if routes_known {
        for service in hosts::complete(unhosted, &checks, &model.fleets, attached, sink) {
            model
                .services
                .insert(service.name.clone(), Arc::new(service));
        }
    }
    (model, defines_something)
}

/// An item of `probers`: a later version's, read for unknown keys and wrong forms only.
fn read_prober(item: &Item<'_>) {
    const KEYS: &[&str] = &["name", "region", "zone", "sources", "allow"];
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    fields
        .required("name", "give the prober a name")
        .and_then(|i| i.name());
    for key in ["region", "zone"] {
        fields.get(key).and_then(|i| i.text());
    }
    if let Some(sources) = fields.get("sources") {
        sources.texts();
    }
    if let Some(allow) = fields.get("allow") {
        allow.fields(&["spiffeIds", "dnsNames"]);
    }
}
