//! `vitals status`: the tables of `/v1/services` and `/v1/endpoints`; as JSON, the latter. With `--clients`, who is
//! connected ([`clients`]); with `--wait-acked`, nothing until all of them have what is served ([`wait`]).

mod clients;
mod wait;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::admin_api::{AdminApi, AdminArgs};
use super::print;
use crate::admin::api::{Endpoint, PoolStanding, Reason, RegionOrder, Service, Vote};
use crate::app::EXIT_USAGE;

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// How it is printed.
    #[arg(long, env = "VITALS_OUTPUT", default_value = "table")]
    output: Output,
    /// Print it anew every second, until interrupted.
    #[arg(long, conflicts_with = "wait_acked")]
    watch: bool,
    /// Print who is connected, and how far each has come, instead of endpoints.
    #[arg(long)]
    clients: bool,
    #[command(flatten)]
    wait: wait::WaitArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// As the API has it.
    Json,
}

pub(super) fn run(args: &StatusArgs) -> ExitCode {
    if !args.watch && !args.wait.wait_acked {
        return match show(args) {
            Ok(text) => print(&text),
            Err(code) => code,
        };
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start a timer: {error}");
            return ExitCode::FAILURE;
        }
    };
    if args.wait.wait_acked {
        return runtime.block_on(wait::run(args));
    }
    runtime.block_on(async {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            // A server that is away for a moment is a line, not the end of the watch.
            let text = show(args).unwrap_or_default();
            // Only a terminal can be wiped; whoever reads a pipe gets one document after the other.
            let wipe = if std::io::stdout().is_terminal() {
                "\x1b[2J\x1b[H"
            } else {
                ""
            };
            if print(&format!("{wipe}{text}")) != ExitCode::SUCCESS {
                return ExitCode::FAILURE;
            }
        }
    })
}

fn show(args: &StatusArgs) -> Result<String, ExitCode> {
    let api = AdminApi::new(&args.admin)?;
    if args.clients {
        if let Some(name) = &args.wait.fleet
            && let Err(unknown) = clients::must_have(&api, name)?
        {
            eprintln!("{unknown}");
            return Err(EXIT_USAGE.into());
        }
        let clients = clients::fetch_of_fleet(&api, args).map_err(|problem| {
            eprintln!("{problem}");
            ExitCode::FAILURE
        })?;
        return match args.output {
            Output::Table => Ok(clients::table(&clients)),
            Output::Json => json(&clients),
        };
    }
    let endpoints: Vec<Endpoint> = api.fetch("/v1/endpoints")?;
    match args.output {
        Output::Table => {
            let services: Vec<Service> = api.fetch("/v1/services")?;
            Ok(of_services(&services) + "\n" + &of_endpoints(&endpoints) + &of_regions(&services))
        }
        Output::Json => json(&endpoints),
    }
}

fn json<T: Serialize>(rows: &[T]) -> Result<String, ExitCode> {
    match serde_json::to_string_pretty(rows) {
        Ok(json) => Ok(json + "\n"),
        Err(error) => {
            eprintln!("cannot write what came: {error}");
            Err(ExitCode::FAILURE)
        }
    }
}

/// A line per service: where its traffic goes, and why.
fn of_services(services: &[Service]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "SERVICE", "STATUS", "TRAFFIC", "PRIMARY", "FAILOVER", "PINNED", "SINCE", "WHY",
    ]);
    let standing = |pool: &PoolStanding| {
        let unjudged = match pool.unjudged {
            0 => String::new(),
            n => format!(" ({n} probing)"),
        };
        format!("{}/{} healthy{unjudged}", pool.healthy, pool.counted)
    };
    for service in services {
        let failover = service.failover.as_ref();
        let counted = service.primary.counted + failover.map_or(0, |pool| pool.counted);
        let nobody = counted == 0;
        let traffic = match (service.held, service.open) {
            (true, _) => "HELD",
            (_, true) => "ALL",
            _ if service.refused || nobody => "NONE",
            _ => &service.active_pool,
        };
        let abstaining = service
            .abstaining
            .iter()
            .chain(&service.silent_canaries)
            .map(|text| format!("V5 guard: {text}"));
        let why: Vec<String> = std::iter::once(service.rule.clone())
            .chain(abstaining)
            .collect();
        table.add_row([
            service.service.clone(),
            service.status.clone(),
            traffic.into(),
            standing(&service.primary),
            service
                .failover
                .as_ref()
                .map_or_else(|| "-".into(), standing),
            service.pinned.to_string(),
            service.since.clone().unwrap_or_else(|| "-".into()),
            why.join("; "),
        ]);
    }
    lines(&table, services.is_empty().then_some("no services"))
}

fn of_endpoints(endpoints: &[Endpoint]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "SERVICE", "GROUP", "ENDPOINT", "STATUS", "EDS", "TRAFFIC", "SINCE", "VOTES", "RULE",
        "REASON",
    ]);
    for endpoint in endpoints {
        let votes: Vec<String> = endpoint.votes.iter().map(shown).collect();
        let address = match endpoint.address.contains(':') {
            true => format!("[{}]:{}", endpoint.address, endpoint.port),
            false => format!("{}:{}", endpoint.address, endpoint.port),
        };
        table.add_row([
            endpoint.service.clone(),
            endpoint.group.clone(),
            address,
            endpoint.detailed_status.clone(),
            endpoint.status.clone().unwrap_or_else(|| "-".into()),
            match (
                endpoint.takes_traffic,
                endpoint.status.as_deref(),
                &*endpoint.detailed_status,
            ) {
                (_, Some("HEALTHY"), "UNKNOWN") => "by Envoys".into(),
                (true, ..) => "yes".into(),
                (false, Some("HEALTHY"), _) => "standby".into(),
                (false, ..) => "no".into(),
            },
            endpoint.since.clone(),
            votes.join(" "),
            endpoint.rule.clone(),
            why(endpoint),
        ]);
    }
    lines(&table, endpoints.is_empty().then_some("no endpoints"))
}

/// A line per fleet with an order of regions, which TRAFFIC cannot tell: it is the same for no two fleets.
fn of_regions(services: &[Service]) -> String {
    let mut fleets: BTreeMap<&str, (&[String], Vec<&str>)> = BTreeMap::new();
    for service in services {
        for RegionOrder { fleet, order } in &service.region_order {
            let (_, told) = fleets.entry(fleet).or_insert((order, Vec::new()));
            told.push(&service.service);
        }
    }
    let line = |(fleet, (order, told)): (&str, (&[String], Vec<&str>))| {
        format!(
            "fleet {fleet} (H10): of the endpoints that take traffic, its Envoys use those of the first region that has a \
             healthy one: {}, then others. Services: {}\n",
            order.join(", "),
            some(&told)
        )
    };
    let lines: String = fleets.into_iter().map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{lines}"),
    }
}

/// The first few names.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{}{more}", shown.join(", "))
}

fn lines(table: &Table, instead: Option<&str>) -> String {
    let mut out: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    if let Some(nothing) = instead {
        out.push_str(nothing);
        out.push('\n');
    }
    out
}

fn shown(vote: &Vote) -> String {
    let verdict = vote.verdict.as_deref().unwrap_or("PROBING");
    let against = match vote.opposing {
        0 => String::new(),
        n => format!(" ({n} against)"),
    };
    format!(
        "{}={verdict}{against}{}{}",
        vote.vantage,
        if vote.fresh { "" } else { " stale" },
        if vote.abstains.is_some() {
            " abstains"
        } else {
            ""
        },
    )
}

/// What the deciding probe met; and what the last failed one met, where that is what keeps the endpoint from another
/// verdict: it speaks against the present one, or says nothing at all.
fn why(endpoint: &Endpoint) -> String {
    let reason = |reason: &Reason| format!("{}: {}", reason.code, reason.text);
    let decided = endpoint.reason.as_ref().map(reason);
    let telling = |vote: &&Vote| vote.verdict.is_none() || vote.opposing > 0 || !vote.fresh;
    let last = endpoint
        .votes
        .iter()
        .filter(telling)
        .find_map(|vote| vote.last_failure.as_ref());
    let last = last.map(|failure| format!("last {}: {}", failure.outcome, reason(&failure.reason)));
    let both: Vec<String> = decided.into_iter().chain(last).collect();
    both.join("; ")
}
