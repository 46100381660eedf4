//! The commands of `vitals` (design 4.1): what they take, and the small ones whole. `serve` is `app`'s.
//!
//! In: arguments, each also as `VITALS_…` save those of a single probe. Out: text on stdout, errors on stderr, an exit
//! code: 0 done, 1 the server cannot be reached, 64 bad arguments or configuration, 69 cannot bind or the state directory
//! is locked; `probe` has its own.

mod admin_api;
mod explain;
mod probe;
mod status;
mod words;

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app::{self, EXIT_USAGE, ServeArgs};
use crate::bootstrap::{Bootstrap, ServerTls};
use crate::config::Loaded;

/// Takes the pulse of every endpoint and tells every Envoy.
#[derive(Debug, Parser)]
#[command(name = "vitals", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Check a configuration: prints every error with its place, and exits 64 if there is one.
    Validate(ValidateArgs),
    /// Print an Envoy bootstrap whose node belongs to a fleet.
    Bootstrap(BootstrapArgs),
    /// Print the health of every endpoint, and why.
    Status(status::StatusArgs),
    /// Probe one address now, and print every step with its time.
    Probe(Box<probe::ProbeArgs>),
    /// Explain a check, or a service's: how soon it finds out, what it costs, what passes.
    Explain(explain::ExplainArgs),
}

#[derive(Debug, Args)]
struct ValidateArgs {
    /// Files, or folders of *.yaml.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct BootstrapArgs {
    /// Configuration: files, or folders of *.yaml.
    #[arg(long, required = true, num_args = 1.., value_name = "PATH", env = "VITALS_CONFIG", value_delimiter = ',')]
    config: Vec<PathBuf>,
    /// The fleet.
    #[arg(long, value_name = "NAME", env = "VITALS_FLEET")]
    fleet: String,
    /// The server's xDS address, as the Envoy reaches it; an IPv6 address in brackets.
    #[arg(long, value_name = "HOST:PORT", env = "VITALS_SERVER", value_parser = host_and_port)]
    server: (String, u16),
    /// The node's id, which each Envoy should have of its own; made up of the fleet's and this machine's name if it is not
    /// given. Envoy's --service-node overrides it.
    #[arg(long, value_name = "ID", env = "VITALS_NODE_ID")]
    node_id: Option<String>,
    /// Delta xDS instead of state of the world: only what changes travels.
    #[arg(long, env = "VITALS_DELTA", value_parser = clap::builder::FalseyValueParser::new())]
    delta: bool,
    /// Port of Envoy's own admin interface on 127.0.0.1.
    #[arg(
        long,
        value_name = "PORT",
        env = "VITALS_ENVOY_ADMIN_PORT",
        default_value_t = 9901
    )]
    admin_port: u16,
    /// TLS to the server: a file, on the Envoy's machine, with the authorities that signed the server's certificate.
    #[arg(long, value_name = "FILE", env = "VITALS_BOOTSTRAP_TLS_CA")]
    tls_ca: Option<String>,
    /// Mutual TLS: a file, on the Envoy's machine, with its certificate.
    #[arg(
        long,
        value_name = "FILE",
        env = "VITALS_BOOTSTRAP_TLS_CERT",
        requires_all = ["tls_ca", "tls_key"]
    )]
    tls_cert: Option<String>,
    /// Mutual TLS: a file, on the Envoy's machine, with the certificate's key.
    #[arg(
        long,
        value_name = "FILE",
        env = "VITALS_BOOTSTRAP_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<String>,
    /// The name that the server's certificate must have, where it is not that of --server; also SNI.
    #[arg(
        long,
        value_name = "NAME",
        env = "VITALS_BOOTSTRAP_TLS_SNI",
        requires = "tls_ca"
    )]
    tls_sni: Option<String>,
}

/// Runs the command line.
#[must_use]
pub fn run() -> ExitCode {
    let empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let parsed = without_empty(Cli::command(), &empty).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return if error.use_stderr() {
                EXIT_USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match cli.command {
        Command::Serve(args) => app::serve(args),
        Command::Validate(args) => validate(&args),
        Command::Bootstrap(args) => bootstrap(&args),
        Command::Status(args) => status::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Explain(args) => explain::run(&args),
    }
}

/// Leaves out the variables that are `empty`: one that a manifest or a unit file leaves without a value is not set.
fn without_empty(command: clap::Command, empty: &impl Fn(&OsStr) -> bool) -> clap::Command {
    command
        .mut_args(|arg| match arg.get_env() {
            Some(name) if empty(name) => arg.env(None::<&'static str>),
            _ => arg,
        })
        .mut_subcommands(|subcommand| without_empty(subcommand, empty))
}

/// Reads a configuration for a command that prints on stdout; warnings go to stderr.
fn load(paths: &[PathBuf]) -> Result<Loaded, ExitCode> {
    let loaded = app::load(paths)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(loaded)
}

/// Prints on stdout. A closed pipe or a full disk ends the command without a panic.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::FAILURE,
    }
}

fn validate(args: &ValidateArgs) -> ExitCode {
    match load(&args.paths) {
        Ok(loaded) => {
            let (services, fleets) = (loaded.model.services.len(), loaded.model.fleets.len());
            let endpoints: usize = loaded
                .model
                .services
                .values()
                .map(|service| service.addresses().count())
                .sum();
            print(&format!(
                "ok: {} with {}, {}\n",
                words::count(services, "service"),
                words::count(endpoints, "endpoint"),
                words::count(fleets, "fleet")
            ))
        }
        Err(code) => code,
    }
}

fn bootstrap(args: &BootstrapArgs) -> ExitCode {
    let loaded = match load(&args.config) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let Some(fleet) = loaded
        .model
        .fleets
        .iter()
        .find(|fleet| fleet.name.as_str() == args.fleet)
    else {
        let names: Vec<&str> = loaded
            .model
            .fleets
            .iter()
            .map(|fleet| fleet.name.as_str())
            .collect();
        eprintln!(
            "there is no fleet {:?}; the configuration has: {}",
            args.fleet,
            names.join(", ")
        );
        return EXIT_USAGE.into();
    };
    let (host, port) = &args.server;
    let machine = rustix::system::uname();
    let bootstrap = Bootstrap {
        fleet,
        fleets: &loaded.model.fleets,
        server: (host, *port),
        node_id: args.node_id.as_deref(),
        machine: &machine.nodename().to_string_lossy(),
        delta: args.delta,
        admin_port: args.admin_port,
        tls: args.tls_ca.as_deref().map(|ca| ServerTls {
            ca,
            pair: args.tls_cert.as_deref().zip(args.tls_key.as_deref()),
            name: args.tls_sni.as_deref(),
        }),
    };
    match bootstrap.to_yaml() {
        Ok(yaml) => {
            if let Some(warning) = bootstrap.warning() {
                eprintln!("warning: {warning}");
            }
            print(&yaml)
        }
        Err(error) => {
            eprintln!("{error}");
            EXIT_USAGE.into()
        }
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || {
        format!("{text:?} is not HOST:PORT; write e.g. vitals.example:18000 or [2001:db8::1]:18000")
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(wrong)?;
    let host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address
            .parse::<std::net::Ipv6Addr>()
            .map(|address| address.to_string())
            .ok(),
        None => (!host.is_empty() && !host.contains([':', ' '])).then(|| host.to_owned()),
    };
    Ok((host.ok_or_else(wrong)?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_empty_variable_is_none_at_every_depth() {
        let empty = |name: &OsStr| name == "VITALS_TLS_CERT" || name == "VITALS_ADMIN_CA";
        let command = without_empty(Cli::command(), &empty);
        let names = |of: &str| -> Vec<String> {
            let command = command.find_subcommand(of).unwrap();
            let names = command.get_arguments().filter_map(|arg| arg.get_env());
            names
                .map(|name| name.to_str().unwrap().to_owned())
                .collect()
        };
        assert!(!names("serve").contains(&"VITALS_TLS_CERT".to_owned()));
        assert!(names("serve").contains(&"VITALS_TLS_KEY".to_owned()));
        assert!(!names("status").contains(&"VITALS_ADMIN_CA".to_owned()));
    }

    #[test]
    fn a_server_is_host_and_port() {
        assert_eq!(
            host_and_port("vitals.example:18000"),
            Ok(("vitals.example".into(), 18000))
        );
        assert_eq!(
            host_and_port("[2001:db8::1]:1"),
            Ok(("2001:db8::1".into(), 1))
        );
        for bad in [
            "vitals",
            "vitals:",
            "vitals:0",
            ":1",
            "2001:db8::1:80",
            "[vitals]:1",
            "vitals:65536",
        ] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
