//! What `vitals serve` takes (design 4.1).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::source_address;
use crate::config::parse_duration;
use crate::publish::MAX_WINDOW;

fn parse_window(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|window| (Duration::from_millis(1)..=MAX_WINDOW).contains(window))
        .ok_or_else(|| "write a duration from 1ms to 500ms, such as 20ms".to_owned())
}
use super::trust_args::TrustArgs;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration: files, or folders of *.yaml and *.yml; in the variable, with commas between. Read again when they
    /// change.
    #[arg(long, required = true, num_args = 1.., value_name = "PATH", env = "VITALS_CONFIG", value_delimiter = ',')]
    pub config: Vec<PathBuf>,
    /// Where Envoys connect.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "VITALS_XDS_LISTEN",
        default_value = "0.0.0.0:18000"
    )]
    pub xds_listen: SocketAddr,
    /// Where the admin API and the metrics are.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "VITALS_ADMIN_LISTEN",
        default_value = "127.0.0.1:18001"
    )]
    pub admin_listen: SocketAddr,
    /// The address that probes come from, one of this machine's. Default: as its routes choose. Endpoints of the other
    /// family cannot be probed then.
    #[arg(long, value_name = "IP", env = "VITALS_SOURCE_ADDRESS", value_parser = source_address::parse)]
    pub source_address: Option<IpAddr>,
    /// Where the last known state is kept. Without it a restart starts from the first probes.
    #[arg(long, value_name = "DIR", env = "VITALS_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// How long further changes are gathered after one that went out at once, from 1ms to 500ms. Longer costs less, and
    /// tells later.
    #[arg(long, value_name = "DURATION", env = "VITALS_COALESCE", default_value = "20ms", value_parser = parse_window)]
    pub coalesce: Duration,
    /// Who may connect, and how much.
    #[command(flatten)]
    pub trust: TrustArgs,
    /// Delta clients that understand it (node.client_features: xds.config.supports-resource-ttl) forget what they were sent when
    /// they have heard nothing for so long, at least 1s; heartbeats renew it. Without it, and by default, clients keep
    /// what they have however long this server is away.
    #[arg(long, value_name = "DURATION", env = "VITALS_RESOURCE_TTL", value_parser = ttl)]
    pub resource_ttl: Option<Duration>,
    /// How the log is written, on stderr.
    #[arg(long, env = "VITALS_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged: a level, or targets with levels as in `info,vitals::ads=debug`.
    #[arg(
        long,
        value_name = "FILTER",
        env = "VITALS_LOG",
        default_value = "info"
    )]
    pub log: String,
}

/// Shorter ones would make the heartbeats a load, and a late one an outage.
const MIN_TTL: Duration = Duration::from_secs(1);

fn ttl(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is not a TTL; write a duration of at least 1s, e.g. 60s or 10m");
    let ttl = crate::config::parse_duration(text).ok_or_else(wrong)?;
    if ttl < MIN_TTL { Err(wrong()) } else { Ok(ttl) }
}

/// `--log-format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// An object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_duration_of_a_few_milliseconds() {
        assert_eq!(parse_window("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_window("500ms"), Ok(MAX_WINDOW));
        for bad in ["20", "0ms", "501ms", "1s", "-1ms", ""] {
            assert!(parse_window(bad).is_err(), "{bad}");
        }
    }
}
