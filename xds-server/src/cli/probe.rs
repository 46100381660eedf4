//! `vitals probe`: one probe, now, with each step and its time (semantics P).
//!
//! In: HOST:PORT and the fields of a check as flags. Out: on stdout the steps, the rule that decided and the outcome, or
//! one JSON document of the same; an exit code that says how it went.
//!
//! A name is resolved by the system, and each of its addresses probed in turn: each has a verdict of its own (semantics
//! V7). One probe is no verdict on an endpoint yet: no threshold is counted, no state kept, no server asked.

mod flags;
mod json;
mod steps;
mod text;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use vitals_prober::check::HealthCheck;
use vitals_prober::oneshot;
use vitals_prober::outcome::ProbeResult;
use vitals_prober::tally::Tally;
use vitals_prober::target::{Names, Pulse, StateKey, Target};

use self::flags::CheckFlags;
use self::json::{Document, Steps};
use self::text::Text;
use crate::app::EXIT_USAGE;

/// What follows the flags in the help.
const AFTER_HELP: &str = "\
Every address of a name is probed in turn. The exit code is that of the worst probe, from good to worst: 0 pass, \
3 inconclusive (this side failed, or the name was not resolved), 1 fail (reached, wrong answer), 2 timeout (not reached, \
or silent). 64: bad arguments.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ProbeArgs {
    /// What is probed: a name, an IPv4 address, or an IPv6 address in brackets; and the port.
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// Probe from this address of this machine. Of a name's addresses, only those of its family are probed.
    #[arg(long, value_name = "IP")]
    source_address: Option<String>,
    /// How it is printed.
    #[arg(long, default_value = "text")]
    output: Output,
    // Last, because its heading stands for all that follows.
    #[command(flatten)]
    check: CheckFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people, each step as it happens.
    Text,
    /// One document.
    Json,
}

/// Arguments that are right.
#[derive(Debug)]
struct Request {
    host: String,
    port: u16,
    check: Arc<HealthCheck>,
    source: Option<IpAddr>,
}

pub(super) fn run(args: &ProbeArgs) -> ExitCode {
    match Request::new(args) {
        Ok(request) => {
            let result = request.serve(&args.target, args.output, &mut io::stdout().lock());
            exit_code(result).into()
        }
        Err(errors) => {
            for error in errors {
                eprintln!("{error}");
            }
            EXIT_USAGE.into()
        }
    }
}

/// Design 4.1.
fn exit_code(result: ProbeResult) -> u8 {
    match result {
        ProbeResult::Pass => 0,
        ProbeResult::Fail => 1,
        ProbeResult::Timeout => 2,
        ProbeResult::Inconclusive => 3,
    }
}

/// What is known to be bad outweighs what is not known, and that what is good.
fn severity(result: ProbeResult) -> u8 {
    match result {
        ProbeResult::Pass => 0,
        ProbeResult::Inconclusive => 1,
        ProbeResult::Fail => 2,
        ProbeResult::Timeout => 3,
    }
}

impl Request {
    /// # Errors
    /// Everything that is wrong with the arguments, a line each.
    fn new(args: &ProbeArgs) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let place = super::host_and_port(&args.target).and_then(|(host, port)| {
            let is_host = |b: u8| b.is_ascii_alphanumeric() || b".-_:".contains(&b);
            match host.bytes().all(is_host) {
                true => Ok((host, port)),
                false => Err(format!("{host:?} is neither a name nor an address")),
            }
        });
        let place = place
            .map_err(|problem| errors.push(format!("HOST:PORT: {problem}")))
            .ok();
        let source = args.source_address.as_deref().and_then(|text| {
            let source = text.parse::<IpAddr>();
            source
                .map_err(|_not_one| {
                    errors.push(format!(
                        "--source-address: {text:?} is not an IP address; write e.g. 192.0.2.1 or 2001:db8::1"
                    ));
                })
                .ok()
        });
        if let (Some((host, _)), Some(source)) = (&place, source)
            && let Ok(address) = host.parse::<IpAddr>()
            && address.is_ipv4() != source.is_ipv4()
        {
            errors.push(format!(
                "--source-address: {source} is of another family than {address}; give one of the same, or none"
            ));
        }
        let port = place.as_ref().map_or(1, |(_, port)| *port);
        let check = args.check.check(port);
        match (place, check) {
            (Some((host, port)), Ok(check)) if errors.is_empty() => Ok(Self {
                host,
                port,
                check: Arc::new(check),
                source,
            }),
            (_, Ok(_)) => Err(errors),
            (_, Err(found)) => {
                errors.extend(found);
                Err(errors)
            }
        }
    }

    /// Probes every address, writes what there is to tell, and gives the worst result.
    fn serve(&self, written: &str, output: Output, out: &mut dyn Write) -> ProbeResult {
        let addresses = self.addresses();
        match output {
            Output::Text => self.as_text(addresses, &mut Text::new(out)),
            Output::Json => {
                let (document, result) = self.as_json(written, addresses);
                let text = serde_json::to_string_pretty(&document).unwrap_or_default();
                // The reader may have gone; the exit code is an answer too.
                writeln!(out, "{text}").and_then(|()| out.flush()).ok();
                result
            }
        }
    }

    fn as_text(
        &self,
        addresses: Result<Vec<SocketAddr>, String>,
        text: &mut Text<'_>,
    ) -> ProbeResult {
        text.check(&self.check);
        let addresses = addresses.unwrap_or_else(|problem| {
            text.line(&format!("\n  INCONCLUSIVE: {problem}"));
            Vec::new()
        });
        let mut results = Vec::new();
        for address in addresses {
            let target = self.target(address);
            text.begin(&target);
            let outcome = oneshot::run(&target, self.source, &mut |elapsed, event| {
                text.step(elapsed, event);
            });
            text.end(&oneshot::rule(&self.check, &outcome), &outcome);
            results.push(outcome.result);
        }
        let result = worst(&results);
        if results.len() > 1 {
            let (addresses, result) = (results.len(), result.as_str());
            text.line(&format!("\n{addresses} addresses, the worst: {result}"));
        }
        result
    }

    fn as_json(
        &self,
        written: &str,
        addresses: Result<Vec<SocketAddr>, String>,
    ) -> (Document, ProbeResult) {
        let (addresses, error) = match addresses {
            Ok(addresses) => (addresses, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let mut results = Vec::new();
        let mut probes = Vec::new();
        for address in addresses {
            let target = self.target(address);
            let mut steps = Steps::new();
            let outcome = oneshot::run(&target, self.source, &mut |elapsed, event| {
                steps.step(elapsed, event);
            });
            let rule = oneshot::rule(&self.check, &outcome);
            probes.push(steps.end(&target, rule, &outcome));
            results.push(outcome.result);
        }
        let result = worst(&results);
        let document = Document {
            target: written.into(),
            check: json::Check::new(&self.check),
            result: result.as_str(),
            exit_code: exit_code(result),
            error,
            probes,
        };
        (document, result)
    }

    /// The addresses of the host, each once, in the system's order.
    fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let host = self.host.as_str();
        let found = (host, self.port)
            .to_socket_addrs()
            .map_err(|error| format!("{host} cannot be resolved: {error}"))?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            let of_family = self
                .source
                .is_none_or(|source| source.is_ipv4() == address.is_ipv4());
            if of_family && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        match self.source {
            _ if !addresses.is_empty() => Ok(addresses),
            Some(source) => Err(format!("{host} has no address that {source} could reach")),
            None => Err(format!("{host} has no address")),
        }
    }

    fn target(&self, address: SocketAddr) -> Target {
        let is_name = self.host.parse::<IpAddr>().is_err();
        let names = Names::new(&self.check, is_name.then_some(&*self.host), address);
        Target {
            key: StateKey::new(address, &names, &self.check),
            address,
            names,
            check: Arc::clone(&self.check),
            seed: Tally::new(),
            pulse: Arc::new(Pulse::default()),
        }
    }
}

/// Of no result at all: INCONCLUSIVE.
fn worst(results: &[ProbeResult]) -> ProbeResult {
    let worst = results.iter().max_by_key(|result| severity(**result));
    worst.copied().unwrap_or(ProbeResult::Inconclusive)
}
