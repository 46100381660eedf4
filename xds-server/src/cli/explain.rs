//! `vitals explain`: what a check, or a service with its check, comes to.
//!
//! In: a name, the configuration, and how many vantages and Envoys there are to be. Out: on stdout what is asked and what
//! passes, who probes, within which times a change is found, what that costs the backends, and where a service's traffic
//! goes while endpoints are unhealthy. No server is asked: it is arithmetic
//! on the configuration, and the same model and plan that `serve` would run.

mod content;
mod envoys;
mod figures;
mod traffic;
mod votes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use vitals_prober::check::{HealthCheck, Protocol};
use vitals_prober::target::StateKey;

use super::{print, words};
use crate::app::EXIT_USAGE;
use crate::health::registry::EMBEDDED_VANTAGE;
use crate::model::{AdminState, Backend, Endpoint, Model, Service};
use crate::plan::Plan;
use crate::publish::WINDOW;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// A health check or a backend service; where both have the name, both are explained.
    #[arg(value_name = "CHECK|SERVICE")]
    name: String,
    /// Configuration: files, or folders of *.yaml.
    #[arg(long, required = true, num_args = 1.., value_name = "PATH", env = "VITALS_CONFIG", value_delimiter = ',')]
    config: Vec<PathBuf>,
    #[command(flatten)]
    fleet: Fleet,
}

// No doc comment: clap would take it for the command's.
#[derive(Clone, Copy, Debug, Args)]
struct Fleet {
    /// Vantages that probe; this server is one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    vantages: u32,
    /// Envoys that are served.
    #[arg(long, value_name = "M", default_value_t = 0)]
    envoys: u32,
}

pub(super) fn run(args: &ExplainArgs) -> ExitCode {
    match super::load(&args.config) {
        Err(code) => code,
        Ok(loaded) => match explain(&loaded.model, &args.name, args.fleet) {
            Ok(text) => print(&text),
            Err(problem) => {
                eprintln!("{problem}");
                EXIT_USAGE.into()
            }
        },
    }
}

/// A check and the services whose endpoints it is asked of.
struct Subject<'m> {
    /// `check web`, `service shop, check web`.
    title: String,
    check: Arc<HealthCheck>,
    services: Vec<&'m Service>,
}

fn explain(model: &Model, name: &str, fleet: Fleet) -> Result<String, String> {
    let mut text = String::new();
    let check = check(model, name);
    let service = model.services.get(name);
    if check.is_none() && service.is_none() {
        return Err(unknown(model, name));
    }
    let plan = Plan::new(model);
    let subjects = [
        check,
        service.and_then(|service| {
            let named = service.check.as_ref()?;
            Some(Subject {
                title: format!("service {name}, check {}", named.name),
                check: Arc::clone(&named.check),
                services: vec![service],
            })
        }),
    ];
    for subject in subjects.iter().flatten() {
        if !text.is_empty() {
            text.push('\n');
        }
        // A String takes whatever is written.
        subject.write(&mut text, &plan, fleet).unwrap_or_default();
    }
    if let Some(service) = service {
        if service.check.is_none() {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!(
                "service {name}: it has no check. Nobody probes its endpoints: they are DISABLED and served (S5, H1).\n"
            ));
        }
        votes::write(&mut text, service).unwrap_or_default();
        traffic::write(&mut text, service, &model.fleets).unwrap_or_default();
    }
    Ok(text)
}

/// The check of that name. One that is whole only in a service is taken from the first that uses it: they differ in the
/// host alone.
fn check<'m>(model: &'m Model, name: &str) -> Option<Subject<'m>> {
    let named = |service: &&'m Arc<Service>| {
        let check = service.check.as_ref();
        check.is_some_and(|check| check.name.as_str() == name)
    };
    let services: Vec<&Service> = model
        .services
        .values()
        .filter(named)
        .map(|s| &**s)
        .collect();
    let in_a_service = || Some(&services.first()?.check.as_ref()?.check);
    let check = Arc::clone(model.checks.get(name).or_else(in_a_service)?);
    Some(Subject {
        title: format!("check {name}"),
        check,
        services,
    })
}

fn unknown(model: &Model, name: &str) -> String {
    let list = |names: BTreeSet<&str>| match names.len() {
        0 => "none".to_owned(),
        1..=20 => names.into_iter().collect::<Vec<_>>().join(", "),
        many => format!("{many} of them"),
    };
    let in_services = model.services.values().filter_map(|s| s.check.as_ref());
    let checks = model.checks.keys().chain(in_services.map(|c| &c.name));
    format!(
        "{name:?} is neither a check nor a service; checks: {}; services: {}",
        list(checks.map(|name| name.as_str()).collect()),
        list(model.services.keys().map(|name| name.as_str()).collect())
    )
}

impl Subject<'_> {
    fn write(&self, out: &mut String, plan: &Plan, fleet: Fleet) -> fmt::Result {
        self.write_content(out)?;
        self.write_who(out)?;
        let probed = self.backends().any(|(_, backend)| backend.by.probers);
        if probed || self.backends().next().is_none() {
            self.write_detection(out, fleet)?;
            self.write_load(out, plan, fleet)?;
        }
        self.write_envoys(out, fleet)
    }

    fn write_content(&self, out: &mut String) -> fmt::Result {
        let check = &*self.check;
        let profile = check.profile().name();
        writeln!(
            out,
            "{}: {}, profile {profile}",
            self.title,
            check.type_name()
        )?;
        writeln!(out, "  asks       {}", words::asks(check))?;
        writeln!(out, "  passes     when {}", words::passes(check))?;
        if !matches!(check.protocol(), Protocol::Tcp(_)) {
            match self.host() {
                Some(host) => writeln!(out, "  host       {host}")?,
                None => writeln!(out, "  host       the address and port that are probed")?,
            }
        }
        if let Some(tls) = check.tls() {
            let name = tls.sni().map_or_else(
                || "the host if it is a name, else none".to_owned(),
                |sni| format!("{sni:?}"),
            );
            let certificate = match (tls.verify(), tls.roots()) {
                (false, _) => "the certificate is not looked at",
                (true, None) => "the certificate is verified by the system's roots",
                (true, Some(_)) => "the certificate is verified by the given roots",
            };
            writeln!(out, "  TLS        server name: {name}; {certificate}")?;
        }
        writeln!(out, "  port       {}", self.port())?;
        let (same, other): (Vec<_>, Vec<_>) = content::fields(check)
            .into_iter()
            .partition(|field| field.default.as_ref() == Some(&field.value));
        let other = other.iter().map(|field| match &field.default {
            Some(default) => format!("{} {} (not {default})", field.name, field.value),
            None => format!("{} {}", field.name, field.value),
        });
        let same = same
            .iter()
            .map(|field| format!("{} {}", field.name, field.value));
        writeln!(out, "  set        {}", list(other))?;
        writeln!(out, "  default    {} (of {profile})", list(same))
    }

    /// The host that the check names, as each service has it.
    fn host(&self) -> Option<String> {
        let in_services = self.services.iter().filter_map(|service| {
            let check = &service.check.as_ref()?.check;
            Some(format!("{:?}", check.host()?))
        });
        let own = self.check.host().map(|host| format!("{host:?}"));
        let hosts: BTreeSet<_> = in_services.chain(own).collect();
        (!hosts.is_empty()).then(|| hosts.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Semantics P3.
    fn port(&self) -> String {
        let mut text = match self.check.fixed_port() {
            Some(port) => format!("{port} (USE_FIXED_PORT)"),
            None => "each endpoint's serving port".into(),
        };
        let endpoints = || self.services.iter().flat_map(|service| endpoints(service));
        let own = endpoints()
            .filter(|e| e.health_check_port.is_some() || e.health_check_address.is_some())
            .count();
        if own > 0 {
            let own = words::count(own, "endpoint");
            text.push_str(&format!(
                "; {own} with a health-check address or port of its own"
            ));
        }
        text
    }

    fn write_detection(&self, out: &mut String, fleet: Fleet) -> fmt::Result {
        let detection = figures::detection(&self.check);
        let thresholds = self.check.thresholds();
        let (down, up) = (thresholds.unhealthy, thresholds.healthy);
        let timeout = words::duration(self.check.timeout());
        let first = match thresholds.at_first {
            true => "PROBING until a threshold is reached",
            false => "one probe decides; the first starts within min(interval, 1 s)",
        };
        writeln!(out, "\nfound out within     best       worst")?;
        for (what, bounds, how) in [
            (
                "silence",
                detection.silence,
                format!("{down} in a row that take the whole timeout, {timeout}"),
            ),
            (
                "wrong, refused",
                detection.refusal,
                format!("{down} in a row, plus the time that such a probe takes"),
            ),
            (
                "recovery",
                detection.recovery,
                format!("{up} in a row; best: plus the time that such a probe takes"),
            ),
            ("first word", detection.first_word, first.into()),
        ] {
            let (best, worst) = (words::duration(bounds.best), words::duration(bounds.worst));
            writeln!(out, "  {what:<18} {best:<10} {worst:<10} {how}")?;
        }
        let window = words::duration(WINDOW);
        writeln!(
            out,
            "  then merge and push: what changes within {window} goes out together, to every Envoy at once"
        )?;
        if fleet.vantages > 1 {
            let n = fleet.vantages;
            writeln!(
                out,
                "  each of {n} vantages finds out within these; their majority, too"
            )?;
        }
        Ok(())
    }

    fn write_load(&self, out: &mut String, plan: &Plan, fleet: Fleet) -> fmt::Result {
        let keys: BTreeSet<StateKey> = self
            .services
            .iter()
            .filter_map(|service| plan.keys.get(&service.name))
            .flat_map(|keys| keys.iter().flatten().copied())
            .collect();
        let targets = keys.iter().filter_map(|key| plan.targets.get(key));
        let vantages = fleet.vantages;
        let load = figures::load(
            &self.check,
            vantages,
            targets.clone().map(|target| target.address),
        );
        let rate = |rate| format!("{}/s", words::trimmed(rate, 4));
        let vantage = match vantages {
            1 => "1 vantage".to_owned(),
            n => format!("{n} vantages"),
        };
        writeln!(out, "\nload of {vantage}")?;
        writeln!(
            out,
            "  per endpoint       {:<10} probes, each a connection of its own (P15)",
            rate(load.per_target)
        )?;
        writeln!(
            out,
            "  in all             {:<10} {}",
            rate(load.total),
            self.whom(keys.len())
        )?;
        if let Some((ip, targets, busiest)) = load.busiest {
            let most = if targets > 1 {
                format!(
                    "at most, on {ip}, which is probed at {targets} ports or under {targets} names"
                )
            } else {
                "connections".into()
            };
            writeln!(out, "  on each backend    {:<10} {most}", rate(busiest))?;
        }
        let shared: BTreeSet<&str> = targets
            .flat_map(|target| &target.places)
            .map(|place| place.service.as_str())
            .filter(|name| self.services.iter().all(|s| s.name.as_str() != *name))
            .collect();
        if !shared.is_empty() {
            let shared = shared.into_iter().collect::<Vec<_>>().join(", ");
            writeln!(
                out,
                "  shared with        {shared}: probed once for all (V6)"
            )?;
        }
        let more = match fleet.vantages {
            1 => String::new(),
            n => format!(
                "; the other {} are assumed: remote vantages are not there yet",
                n - 1
            ),
        };
        writeln!(
            out,
            "  from               this server, the vantage {EMBEDDED_VANTAGE:?}{more}"
        )
    }

    /// Whose endpoints are probed.
    fn whom(&self, targets: usize) -> String {
        if self.services.is_empty() {
            return "no service uses it, so nobody is probed".into();
        }
        let probed = || self.backends().filter(|(_, backend)| backend.by.probers);
        let endpoints: usize = probed().map(|(_, b)| not_stopped(b).count()).sum();
        let all: usize = probed().map(|(_, b)| b.group.endpoints.len()).sum();
        let stopped = all - endpoints;
        let names: BTreeSet<_> = probed().map(|(s, _)| s.name.to_string()).collect();
        let mut text = format!(
            "{} of {}",
            words::count(endpoints, "endpoint"),
            list(names.into_iter())
        );
        if targets < endpoints {
            let targets = words::count(targets, "target");
            text.push_str(&format!(
                ", which are {targets}: the same is asked once (V6)"
            ));
        }
        if stopped > 0 {
            text.push_str(&format!("; {stopped} STOPPED, not probed"));
        }
        text
    }
}

fn endpoints(service: &Service) -> impl Iterator<Item = &Endpoint> {
    service.endpoints().map(|(_, endpoint)| endpoint)
}

/// The endpoints of a group that are probed at all (semantics S6).
fn not_stopped(backend: &Backend) -> impl Iterator<Item = &Endpoint> + Clone {
    let endpoints = backend.group.endpoints.iter();
    endpoints.filter(|endpoint| endpoint.state != AdminState::Stopped)
}

fn list(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    match words.is_empty() {
        true => "nothing".into(),
        false => words.join(", "),
    }
}
