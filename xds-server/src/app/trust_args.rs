//! The flags of `serve` about trust and limits, and what they come to.
//!
//! In: flags. Out: [`Trust`]: what the two listeners are opened with, or what is wrong with the flags. Whether the admin
//! API may listen where it is told to is decided here: beyond loopback, not without a token.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::parse_duration;
use crate::model::Model;
use crate::transport::{Limits, MAX_HANDSHAKES, Tls, TlsFiles, Token};

/// Flags about who may connect, and how much.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trust and limits")]
pub struct TrustArgs {
    /// TLS: the server's certificate in PEM, its chain after it. Read again when it changes, as are the others. xDS then
    /// speaks TLS alone, and so does the admin API where it listens beyond loopback.
    #[arg(
        long,
        value_name = "FILE",
        env = "VITALS_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// TLS: the certificate's key in PEM.
    #[arg(
        long,
        value_name = "FILE",
        env = "VITALS_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// Mutual TLS: the authorities, in PEM, that sign clients' certificates. Whoever has none of theirs gets nothing; what fleets
    /// admit of the others is in their `allow`.
    #[arg(
        long,
        value_name = "FILE",
        env = "VITALS_CLIENT_CA",
        requires = "tls_cert"
    )]
    client_ca: Option<PathBuf>,
    /// A file with the token that requests to the admin API must bear; the token itself may stand in VITALS_ADMIN_TOKEN.
    /// Needed where the admin API listens beyond loopback.
    #[arg(long, value_name = "FILE", env = "VITALS_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// The token itself; an argument could be read by everybody on the machine, so it is for the variable.
    #[arg(
        long,
        hide = true,
        value_name = "TOKEN",
        env = "VITALS_ADMIN_TOKEN",
        hide_env_values = true
    )]
    admin_token: Option<String>,
    /// Let the admin API listen beyond loopback without a token: whoever reaches it reads it.
    #[arg(long, env = "VITALS_INSECURE_ADMIN", value_parser = clap::builder::FalseyValueParser::new())]
    insecure_admin: bool,
    /// Connections of one peer (an IPv4 address, an IPv6 /64) on each listener.
    #[arg(long, value_name = "N", env = "VITALS_MAX_CONNECTIONS_PER_PEER", default_value_t = 8_192, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_peer: u32,
    /// xDS streams of one peer.
    #[arg(long, value_name = "N", env = "VITALS_MAX_STREAMS_PER_PEER", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    max_streams_per_peer: u32,
    /// Requests a second of one xDS stream; ten times as many at once. A stream that makes more is read later.
    #[arg(long, value_name = "N", env = "VITALS_MAX_REQUESTS_PER_SECOND", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_requests_per_second: u32,
    /// After so long an xDS connection is asked to end, a tenth more or less, so that streams spread over replicas that
    /// were added. Default: never.
    #[arg(long, value_name = "DURATION", env = "VITALS_MAX_CONNECTION_AGE", value_parser = |text: &str| duration(text, 10, 604_800))]
    max_connection_age: Option<Duration>,
    /// How often xDS connections are pinged, and how long the answer may take: so a peer that vanished is noticed.
    #[arg(long, value_name = "DURATION", env = "VITALS_KEEPALIVE", default_value = "20s", value_parser = |text: &str| duration(text, 1, 3_600))]
    keepalive: Duration,
}

/// What the flags come to.
#[derive(Debug)]
pub(super) struct Trust {
    pub(super) files: Option<TlsFiles>,
    /// What the files hold, and the number that tells it apart.
    pub(super) tls: Option<(u64, Tls)>,
    pub(super) token: Option<Token>,
    /// Where the token is read again; `None`: it is the variable's.
    pub(super) token_file: Option<PathBuf>,
    /// Whether the admin API speaks TLS.
    pub(super) admin_tls: bool,
    pub(super) xds_limits: Limits,
    pub(super) admin_limits: Limits,
    /// What is allowed and probably not meant.
    pub(super) warnings: Vec<String>,
}

impl Trust {
    /// The same where the process may have so many files open.
    pub(super) fn within(self, descriptors: u64) -> Self {
        Self {
            xds_limits: self.xds_limits.within(descriptors),
            // Few ask there.
            admin_limits: self.admin_limits.within(descriptors / 4),
            ..self
        }
    }
}

/// The flag, as errors name it.
pub(super) const TOKEN_FLAG: &str = "--admin-token-file";

impl TrustArgs {
    /// Reads the files and judges the flags.
    pub(super) fn resolve(&self, admin_listen: SocketAddr) -> Result<Trust, String> {
        let files = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: self.client_ca.clone(),
            }),
            _ => None,
        };
        let read = |files: &TlsFiles| {
            let contents = files.read()?;
            Ok((contents.hash(), files.parse(&contents)?))
        };
        let tls = files.as_ref().map(read).transpose();
        let tls = tls.map_err(|error: crate::transport::TlsError| error.to_string())?;
        let token = match (&self.admin_token_file, &self.admin_token) {
            (Some(path), None) => {
                Some(Token::read(TOKEN_FLAG, path).map_err(|error| error.to_string())?)
            }
            (None, Some(token)) => {
                Some(Token::new(token).map_err(|error| format!("VITALS_ADMIN_TOKEN: {error}"))?)
            }
            (Some(_), Some(_)) => {
                return Err(format!(
                    "{TOKEN_FLAG} and VITALS_ADMIN_TOKEN both name a token; drop one"
                ));
            }
            (None, None) => None,
        };
        let beyond_loopback = !admin_listen.ip().to_canonical().is_loopback();
        if beyond_loopback && token.is_none() && !self.insecure_admin {
            return Err(format!(
                "--admin-listen: {admin_listen} is reached from beyond this machine, and the admin API has no token; give it one \
                 with {TOKEN_FLAG}, listen on 127.0.0.1, or say --insecure-admin"
            ));
        }
        let admin_tls = tls.is_some() && beyond_loopback;
        let mut warnings = Vec::new();
        if token.is_some() && beyond_loopback && !admin_tls {
            warnings.push(
                "the admin API is reached from beyond this machine without TLS: its token can be read on the way; give --tls-cert and --tls-key"
                    .into(),
            );
        }
        if token.is_none() && beyond_loopback {
            warnings.push(format!(
                "the admin API on {admin_listen} can be read by whoever reaches it (--insecure-admin)"
            ));
        }
        let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let limits = Limits {
            connections: count(self.max_connections_per_peer),
            streams: count(self.max_streams_per_peer),
            requests_per_second: self.max_requests_per_second,
            handshakes: MAX_HANDSHAKES,
            max_age: self.max_connection_age,
            keepalive: self.keepalive,
        };
        Ok(Trust {
            files,
            tls,
            token,
            token_file: self.admin_token_file.clone(),
            admin_tls,
            xds_limits: limits,
            admin_limits: Limits {
                max_age: None,
                ..limits
            },
            warnings,
        })
    }

    /// Whether clients are asked for certificates.
    pub(super) fn asks_for_certificates(&self) -> bool {
        self.client_ca.is_some()
    }
}

/// What of a configuration this server could not honour: fleets that admit by certificate, while it asks for none. It is
/// refused as one with errors is; to serve it would be to serve those fleets to nobody.
pub(super) fn cannot_honour(model: &Model, asks_for_certificates: bool) -> Vec<String> {
    let fleets = model.fleets.iter().filter(|fleet| fleet.allow.is_some());
    if asks_for_certificates {
        return Vec::new();
    }
    fleets
        .map(|fleet| {
            format!(
                "fleet {}: allow admits clients by certificate, and this server asks for none; start it with --tls-cert, \
                 --tls-key and --client-ca, or leave allow out",
                fleet.name
            )
        })
        .collect()
}

fn duration(text: &str, least: u64, most: u64) -> Result<Duration, String> {
    let (least, most) = (Duration::from_secs(least), Duration::from_secs(most));
    let duration = parse_duration(text)
        .ok_or_else(|| format!("{text:?} is no duration; write one such as 20s or 30m"))?;
    if (least..=most).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!(
            "{text} is out of range; {} to {} is allowed",
            written(least),
            written(most)
        ))
    }
}

/// Whole seconds as they are written in a flag: `10s`, `90s`, `168h`.
fn written(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches};

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn resolve(flags: &[&str], admin: &str) -> Result<Trust, String> {
        let command = TrustArgs::augment_args(Command::new("serve").no_binary_name(true));
        let matches = command
            .try_get_matches_from(flags)
            .map_err(|error| error.to_string())?;
        let args = TrustArgs::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        args.resolve(admin.parse().unwrap())
    }

    #[test]
    fn the_admin_api_does_not_leave_loopback_without_a_token() {
        for loopback in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(
                resolve(&[], loopback).unwrap().warnings.is_empty(),
                "{loopback}"
            );
        }
        for beyond in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let error = resolve(&[], beyond).unwrap_err();
            assert!(
                error.contains("--admin-token-file") && error.contains("--insecure-admin"),
                "{error}"
            );
            let trust = resolve(&["--insecure-admin"], beyond).unwrap();
            assert_eq!(trust.warnings.len(), 1, "{:?}", trust.warnings);
            let trust = resolve(&["--admin-token", TOKEN], beyond).unwrap();
            assert!(
                trust.warnings[0].contains("without TLS"),
                "{:?}",
                trust.warnings
            );
        }
    }

    #[test]
    fn a_token_that_cannot_be_one_is_refused() {
        let error = resolve(&["--admin-token", "short"], "127.0.0.1:1").unwrap_err();
        assert!(error.starts_with("VITALS_ADMIN_TOKEN: "), "{error}");
        let error = resolve(&["--admin-token-file", "/nowhere/token"], "127.0.0.1:1").unwrap_err();
        assert!(
            error.starts_with("--admin-token-file /nowhere/token: "),
            "{error}"
        );
        let both = ["--admin-token-file", "/nowhere", "--admin-token", TOKEN];
        assert!(
            resolve(&both, "127.0.0.1:1")
                .unwrap_err()
                .contains("drop one")
        );
    }

    #[test]
    fn files_that_are_not_there_name_the_flag() {
        let flags = ["--tls-cert", "/nowhere/cert", "--tls-key", "/nowhere/key"];
        let error = resolve(&flags, "127.0.0.1:1").unwrap_err();
        assert!(error.starts_with("--tls-cert /nowhere/cert: "), "{error}");
    }

    #[test]
    fn half_a_pair_is_refused() {
        for half in [
            ["--tls-cert", "a"],
            ["--tls-key", "a"],
            ["--client-ca", "a"],
        ] {
            let error = resolve(&half, "127.0.0.1:1").unwrap_err();
            assert!(error.contains("required"), "{error}");
        }
    }

    #[test]
    fn durations_have_ranges() {
        for (flag, value) in [
            ("--max-connection-age", "9s"),
            ("--max-connection-age", "169h"),
            ("--keepalive", "900ms"),
            ("--keepalive", "soon"),
            ("--max-requests-per-second", "0"),
        ] {
            assert!(
                resolve(&[flag, value], "127.0.0.1:1").is_err(),
                "{flag} {value}"
            );
        }
        let error = resolve(&["--max-connection-age", "169h"], "127.0.0.1:1").unwrap_err();
        assert!(error.contains("10s to 168h"), "{error}");
        let trust = resolve(&["--max-connection-age", "30m"], "127.0.0.1:1").unwrap();
        assert_eq!(trust.xds_limits.max_age, Some(Duration::from_secs(1_800)));
        assert_eq!(trust.admin_limits.max_age, None);
    }

    #[test]
    fn a_fleet_that_admits_by_certificate_wants_a_server_that_asks_for_them() {
        let text = "backendServices: [{ name: shop }]\nfleets:\n- { name: edge, allow: { dnsNames: [a.example] } }";
        let source = crate::config::Source::new("a.yaml", text);
        let loaded = crate::config::parse_sources(&[source]).unwrap();
        assert_eq!(cannot_honour(&loaded.model, true), [""; 0]);
        let told = cannot_honour(&loaded.model, false);
        assert!(told.len() == 1 && told[0].contains("edge") && told[0].contains("--client-ca"));
    }
}
