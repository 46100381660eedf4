//! `vitals status`: the table of `/v1/endpoints`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};

use crate::admin::api::{Endpoint, Reason};

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
            if print(&format!("\x1b[2J\x1b[H{text}")) != ExitCode::SUCCESS {
                return ExitCode::FAILURE;
            }
        }
    })
}

/// A closed pipe ends the command without a panic.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::FAILURE,
    }
}

fn show(args: &StatusArgs) -> Result<String, ExitCode> {
    let url = format!("{}/v1/endpoints", args.admin.trim_end_matches('/'));
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
        let reason = |reason: &Reason| format!("{}: {}", reason.code, reason.text);
        let votes = endpoint.votes.iter().map(|vote| {
            let verdict = vote.verdict.as_deref().unwrap_or("PROBING");
            let against = if vote.opposing > 0 {
                format!(" ({} against)", vote.opposing)
            } else {
                String::new()
            };
            format!(
                "{}={verdict}{against}{}",
                vote.vantage,
                if vote.fresh { "" } else { " stale" }
            )
        });
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
            votes.collect::<Vec<_>>().join(" "),
            endpoint.rule.clone(),
            endpoint.reason.as_ref().map(reason).unwrap_or_default(),
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
