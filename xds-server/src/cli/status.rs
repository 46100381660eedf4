//! `vitals status`: the table of `/v1/endpoints`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};

use super::print;
use crate::admin::api::{Endpoint, Reason, Vote};

/// How long the server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// The server's admin API.
    #[arg(
        long,
        value_name = "URL",
        env = "VITALS_ADMIN",
        default_value = "http://127.0.0.1:18001"
    )]
    admin: String,
    /// How it is printed.
    #[arg(long, env = "VITALS_OUTPUT", default_value = "table")]
    output: Output,
    /// Print it anew every second, until interrupted.
    #[arg(long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// As the API has it.
    Json,
}

pub(super) fn run(args: &StatusArgs) -> ExitCode {
    if !args.watch {
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
    let scheme = if args.admin.contains("://") {
        ""
    } else {
        "http://"
    };
    let url = format!("{scheme}{}/v1/endpoints", args.admin.trim_end_matches('/'));
    let fail = |problem: String| {
        eprintln!("{url}: {problem}; is the server running, and is --admin its admin address?");
        ExitCode::FAILURE
    };
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .build()
        .new_agent();
    let mut response = agent
        .get(&url)
        .call()
        .map_err(|error| fail(error.to_string()))?;
    let body = response
        .body_mut()
        .with_config()
        .limit(1 << 30)
        .read_to_string();
    let body = body.map_err(|error| fail(error.to_string()))?;
    let endpoints: Vec<Endpoint> =
        serde_json::from_str(&body).map_err(|error| fail(error.to_string()))?;
    match args.output {
        Output::Table => Ok(table(&endpoints)),
        Output::Json => {
            let json = serde_json::to_string_pretty(&endpoints)
                .map_err(|error| fail(error.to_string()))?;
            Ok(json + "\n")
        }
    }
}

fn table(endpoints: &[Endpoint]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "SERVICE", "GROUP", "ENDPOINT", "STATUS", "EDS", "SINCE", "VOTES", "RULE", "REASON",
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
            endpoint.since.clone(),
            votes.join(" "),
            endpoint.rule.clone(),
            why(endpoint),
        ]);
    }
    let mut out: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    if endpoints.is_empty() {
        out.push_str("no endpoints\n");
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
        "{}={verdict}{against}{}",
        vote.vantage,
        if vote.fresh { "" } else { " stale" }
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
