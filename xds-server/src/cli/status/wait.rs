//! `vitals status --wait-acked`: waits until every connected client of a fleet has taken what is served now, for scripts
//! that deploy.
//!
//! In: `/readyz` and `/v1/clients`, ten times a second. Out: an exit code, and a line that says why:
//!
//! | code | |
//! |---|---|
//! | 0 | everybody has acknowledged the present state |
//! | 1 | the server cannot be reached, or no longer for five seconds |
//! | 2 | the time is up; who is missing stands on stderr |
//! | 3 | a client refuses what it was sent, or the server refuses its changed configuration: waiting would not help |
//! | 64 | bad arguments, also a `--fleet` that the server does not have |
//!
//! A server sees a changed file a moment after it was saved. Therefore nothing counts before `--settle` has passed. Clients
//! are counted by node id: an Envoy with several streams is one.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use vitals_prober::clock;

use super::super::admin_api::AdminApi;
use super::super::words;
use super::{StatusArgs, clients, print};
use crate::admin::api::Ready;
use crate::admin::clients::Client;
use crate::app::EXIT_USAGE;
use crate::config;

/// The time is up.
const EXIT_TIME: u8 = 2;
/// Somebody refuses.
const EXIT_REFUSED: u8 = 3;

/// How often is asked.
const PERIOD: Duration = Duration::from_millis(100);

/// A server that was there may be away for so long: while it is started again, or does not know the file's new token yet.
const AWAY: Duration = Duration::from_secs(5);

/// So many of those that are missing are named.
const NAMED: usize = 20;

#[derive(Debug, Args)]
pub(super) struct WaitArgs {
    /// Wait until every connected client has acknowledged what is served now. Exit code: 0 they have; 1 the server cannot
    /// be reached; 2 the time is up; 3 a client refuses it, or the server refuses its changed configuration.
    #[arg(long, conflicts_with = "clients")]
    pub(super) wait_acked: bool,
    /// Only clients of this fleet; with --clients or --wait-acked.
    #[arg(long, value_name = "NAME", env = "VITALS_FLEET")]
    pub(super) fleet: Option<String>,
    /// How long --wait-acked waits at most.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration, requires = "wait_acked")]
    timeout: Duration,
    /// How long a saved configuration may take to be seen by the server; --wait-acked is not content before that.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration, requires = "wait_acked")]
    settle: Duration,
    /// How many clients, by node id, must be connected for --wait-acked to be content; 0 accepts that there is none.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        requires = "wait_acked"
    )]
    min_clients: usize,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write e.g. 30s, 500ms or 5m");
    config::parse_duration(text).ok_or_else(wrong)
}

/// What a look at the clients comes to.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// So many have everything.
    Acked(usize),
    /// Who refuses what.
    Refused(Vec<String>),
    /// Who is missing, and why.
    Waiting(Vec<String>),
}

pub(super) async fn run(args: &StatusArgs) -> ExitCode {
    let wait = &args.wait;
    let mut api = match AdminApi::new(&args.admin) {
        Ok(api) => api,
        Err(code) => return code,
    };
    let start = clock::now();
    let mut heard_at = None;
    let mut period = tokio::time::interval(PERIOD);
    loop {
        period.tick().await;
        let (ready, clients) = match look(&api, args) {
            Ok(seen) => seen,
            // It was there a moment ago: it is started again, or its token has changed and the file will have it.
            Err(_) if heard_at.is_some_and(|at| recently(at, clock::now())) => {
                api = api.renewed(&args.admin);
                continue;
            }
            Err(problem) => {
                eprintln!("{problem}");
                return ExitCode::FAILURE;
            }
        };
        heard_at = Some(clock::now());
        let waited = clock::now().saturating_duration_since(start);
        let standing = standing(&ready, &clients, wait.min_clients);
        let settled = waited >= wait.settle;
        if settled && let Some(name) = &wait.fleet {
            // A fleet may be as new as the file: only now is it known that there is none.
            match clients::must_have(&api, name) {
                Ok(Ok(())) => {}
                Ok(Err(unknown)) => {
                    eprintln!("{unknown}");
                    return EXIT_USAGE.into();
                }
                Err(code) => return code,
            }
        }
        match standing {
            Standing::Acked(count) if settled => {
                return print(&format!("acked by {}\n", words::count(count, "client")));
            }
            Standing::Refused(who) if settled => {
                tell(&who);
                return EXIT_REFUSED.into();
            }
            Standing::Waiting(who) if settled && waited >= wait.timeout => {
                tell(&who);
                return EXIT_TIME.into();
            }
            Standing::Acked(_) | Standing::Refused(_) | Standing::Waiting(_) => {}
        }
    }
}

fn look(api: &AdminApi, args: &StatusArgs) -> Result<(Ready, Vec<Client>), String> {
    let ready = api.try_fetch("/readyz")?;
    Ok((ready, clients::fetch_of_fleet(api, args)?))
}

fn recently(heard_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(heard_at) < AWAY
}

fn tell(lines: &[String]) {
    for line in lines.iter().take(NAMED) {
        eprintln!("{line}");
    }
    if lines.len() > NAMED {
        eprintln!("and {} more", lines.len() - NAMED);
    }
}

/// Where all stand together. A refusal is told first: nobody need wait for it.
fn standing(ready: &Ready, clients: &[Client], min_clients: usize) -> Standing {
    let mut refused: Vec<String> = (ready.errors.iter())
        .filter(|_| ready.reload == "error")
        .map(|error| format!("the server refuses its configuration: {error}"))
        .collect();
    let mut waiting = Vec::new();
    for client in clients {
        let of = |kind: &str, what: String| format!("{} {kind}: {what}", client.node_id);
        for (kind, of_type) in &client.types {
            if of_type.nack.is_some() {
                refused.push(of(kind, format!("refuses {}", clients::refusal(of_type))));
            } else if of_type.unanswered > 0 {
                let responses = words::count(of_type.unanswered, "response");
                let what = format!("has not answered {responses}");
                waiting.push(of(kind, what));
            }
        }
        let settled = client.types.values().all(|of_type| of_type.unanswered == 0);
        if !client.acked && settled {
            waiting.push(format!("{}: not everything was sent yet", client.node_id));
        }
    }
    let nodes: BTreeSet<_> = (clients.iter())
        .map(|client| (&client.fleet, &client.node_id))
        .collect();
    if nodes.len() < min_clients {
        let are = if nodes.len() == 1 { "is" } else { "are" };
        waiting.push(format!(
            "{} {are} connected; {min_clients} must be",
            words::count(nodes.len(), "client")
        ));
    }
    match (refused.is_empty(), waiting.is_empty()) {
        (false, _) => Standing::Refused(refused),
        (true, false) => Standing::Waiting(waiting),
        (true, true) => Standing::Acked(nodes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::clients::tests::{client, of_type};
    use super::*;

    fn ready() -> Ready {
        Ready {
            reload: "ok".into(),
            errors: Vec::new(),
        }
    }

    #[test]
    fn a_server_that_was_there_is_given_five_seconds() {
        let now = clock::now();
        assert!(recently(now, now + AWAY / 2));
        assert!(!recently(now, now + AWAY));
    }

    #[test]
    fn all_have_acked_when_each_has() {
        let one = client("one", true, of_type(0, None));
        let two = client("two", true, of_type(0, None));
        assert_eq!(standing(&ready(), &[one, two], 1), Standing::Acked(2));
    }

    #[test]
    fn a_client_that_has_not_answered_or_not_all_is_waited_for() {
        let one = client("one", true, of_type(0, None));
        let two = client("two", false, of_type(1, None));
        let three = client("three", false, of_type(0, None));
        let waiting = [
            "two Cluster: has not answered 1 response",
            "three: not everything was sent yet",
        ];
        assert_eq!(
            standing(&ready(), &[one, two, three], 1),
            Standing::Waiting(waiting.map(Into::into).into())
        );
    }

    #[test]
    fn a_refusal_is_not_waited_for() {
        let one = client("one", false, of_type(1, None));
        let two = client("two", false, of_type(0, Some("no")));
        let Standing::Refused(who) = standing(&ready(), &[one, two], 1) else {
            panic!("refused")
        };
        assert_eq!(who, ["two Cluster: refuses shop: no"]);
        let refused = Ready {
            reload: "error".into(),
            errors: vec!["a.yaml:1:1: no".into()],
        };
        assert!(matches!(standing(&refused, &[], 0), Standing::Refused(_)));
    }

    #[test]
    fn a_node_with_several_streams_is_one_client() {
        let stream = |node| client(node, true, of_type(0, None));
        let both = [stream("one"), stream("one"), stream("two")];
        assert_eq!(standing(&ready(), &both, 2), Standing::Acked(2));
        let missing = "2 clients are connected; 3 must be".to_owned();
        assert_eq!(
            standing(&ready(), &both, 3),
            Standing::Waiting(vec![missing])
        );
        let missing = "1 client is connected; 2 must be".to_owned();
        assert_eq!(
            standing(&ready(), &both[..2], 2),
            Standing::Waiting(vec![missing])
        );
    }

    #[test]
    fn nobody_is_not_everybody_unless_that_is_enough() {
        assert!(matches!(standing(&ready(), &[], 1), Standing::Waiting(_)));
        assert_eq!(standing(&ready(), &[], 0), Standing::Acked(0));
    }
}
