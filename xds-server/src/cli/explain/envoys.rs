//! Who probes, and what Envoys' own checks come to (semantics H7).
//!
//! In: the check, the services that use it, how many Envoys there are to be. Out: who probes which groups, how soon one
//! Envoy finds out, what all of them put on the backends, and in what their checks differ from a prober's.
//!
//! Not here: the probers' share (`explain`), traffic (`traffic`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::super::words;
use super::{Fleet, Subject, figures, list, not_stopped};
use crate::distributed::{self, Deviation};
use crate::model::{Backend, ProbedBy, Service};

/// Groups that are named on a line; the others are counted.
const MAX_GROUPS: usize = 8;

impl Subject<'_> {
    /// The backends of all services, each with its service.
    pub(super) fn backends(&self) -> impl Iterator<Item = (&Service, &Backend)> {
        self.services
            .iter()
            .flat_map(|service| service.backends.iter().map(move |b| (*service, b)))
    }

    /// Who probes which groups.
    pub(super) fn write_who(&self, out: &mut String) -> fmt::Result {
        let mut groups: BTreeMap<(bool, bool), Vec<String>> = BTreeMap::new();
        for (service, backend) in self.backends() {
            let name = match self.services.len() {
                1 => backend.group.name.to_string(),
                _ => format!("{}/{}", service.name, backend.group.name),
            };
            let by = (backend.by.probers, backend.by.envoys);
            groups.entry(by).or_default().push(name);
        }
        if !groups.is_empty() {
            writeln!(out, "\nwho probes")?;
        }
        for (by, what) in [
            (
                ProbedBy::BOTH,
                (
                    "PROBERS, ENVOYS",
                    "both must find an endpoint healthy: an Envoy ANDs its own check with what EDS says (H7)",
                ),
            ),
            (
                ProbedBy::PROBERS,
                ("PROBERS", "their verdict in EDS is the whole truth"),
            ),
            (
                ProbedBy::ENVOYS,
                (
                    "ENVOYS",
                    "each Envoy for itself; EDS says HEALTHY of every endpoint (H1)",
                ),
            ),
        ] {
            if let Some(names) = groups.get(&(by.probers, by.envoys)) {
                writeln!(out, "  {:<18} {}: {}", what.0, some(names), what.1)?;
            }
        }
        self.write_inexpressible(out)
    }

    /// What keeps Envoys from the check, once for each reason.
    fn write_inexpressible(&self, out: &mut String) -> fmt::Result {
        let reasons: BTreeSet<String> = self
            .services
            .iter()
            .filter_map(|service| {
                let why = distributed::expressible(&self.check, service.protocol).err()?;
                Some(why.to_string())
            })
            .collect();
        for reason in reasons {
            writeln!(out, "  Envoys             cannot run it: {reason}")?;
        }
        Ok(())
    }

    /// Envoys' own checks.
    pub(super) fn write_envoys(&self, out: &mut String, fleet: Fleet) -> fmt::Result {
        let m = fleet.envoys;
        let checked: Vec<_> = self.backends().filter(|(_, b)| b.by.envoys).collect();
        if checked.is_empty() {
            return writeln!(
                out,
                "  Envoys             take this server's word, so {m} of them put nothing on a backend"
            );
        }
        let detection = figures::detection_by_envoy(&self.check);
        let thresholds = self.check.thresholds();
        writeln!(out, "\nan Envoy finds out   best       worst")?;
        for (what, bounds, how) in [
            (
                "silence",
                detection.silence,
                format!(
                    "{} in a row, each after the whole timeout",
                    thresholds.unhealthy
                ),
            ),
            (
                "wrong, refused",
                detection.refusal,
                format!(
                    "{} in a row, plus the time that each takes",
                    thresholds.unhealthy
                ),
            ),
            (
                "recovery",
                detection.recovery,
                format!(
                    "{} in a row; best: plus the time that each takes",
                    thresholds.healthy
                ),
            ),
            (
                "first word",
                detection.first_word,
                "the first pass decides; until then an endpoint gets no traffic".into(),
            ),
        ] {
            let (best, worst) = (words::duration(bounds.best), words::duration(bounds.worst));
            writeln!(out, "  {what:<18} {best:<10} {worst:<10} {how}")?;
        }
        let endpoints = checked.iter().flat_map(|(_, backend)| not_stopped(backend));
        let load = figures::load(&self.check, m, endpoints.clone().map(|e| e.address));
        let rate = |rate| format!("{}/s", words::trimmed(rate, 4));
        writeln!(out, "\nload of {}, at most", words::count_u32(m, "Envoy"))?;
        writeln!(
            out,
            "  per endpoint       {:<10} every Envoy checks for itself, over a connection of its own; the interval runs \
             from end to start,",
            rate(load.per_target)
        )?;
        writeln!(
            out,
            "                                plus up to {} % by chance, and the first checks are spread over {}",
            distributed::INTERVAL_JITTER_PERCENT,
            words::duration(distributed::initial_jitter(&self.check))
        )?;
        let services: BTreeSet<_> = checked.iter().map(|(s, _)| s.name.to_string()).collect();
        writeln!(
            out,
            "  in all             {:<10} {} of {}; what services share is checked for each",
            rate(load.total),
            words::count(endpoints.count(), "endpoint"),
            list(services.into_iter())
        )?;
        let deviations: BTreeSet<Deviation> = checked
            .iter()
            .flat_map(|(s, _)| distributed::deviations(&self.check, s))
            .collect();
        writeln!(out, "\nnot as a prober's (H7)")?;
        for deviation in deviations {
            writeln!(out, "  {}", deviation.text())?;
        }
        Ok(())
    }
}

/// The first names, and how many more there are.
pub(super) fn some(names: &[String]) -> String {
    let mut text = list(names.iter().take(MAX_GROUPS).cloned());
    if let Some(more) = names.len().checked_sub(MAX_GROUPS).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
