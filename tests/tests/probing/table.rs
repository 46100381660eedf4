//! The table of hostile backends: what each does, and what the rules make of it.
//!
//! In: rows. Out: one report of all rows whose verdict is another one. Rows run side by side, each with a backend of its own.

use std::net::SocketAddr;

use vitals_tests::hostile::{Act, Hostile};
use vitals_tests::hostile_tls::{HostileTls, TlsAct, Version};
use vitals_tests::net::{Net, Turn};
use vitals_tests::probe::probe;

/// P16: a probe that was late for want of a turn on the machine says nothing about its backend, and one that the deadline
/// ended may have wanted for the backend's turn: such are made again, with twice the time.
const ATTEMPTS: u8 = 4;

/// What a backend does.
pub(crate) enum Script {
    /// Nothing listens.
    Nobody,
    /// This to the first connection, the second, …
    Tcp(Vec<Vec<Act>>),
    /// This after the handshake, with these protocols for ALPN.
    Tls(Version, &'static [&'static str], Vec<TlsAct>),
}

/// A running backend; gone when it is dropped.
enum Backend {
    Nobody,
    Tcp(#[expect(dead_code, reason = "held")] Hostile),
    Tls(#[expect(dead_code, reason = "held")] HostileTls),
}

impl Script {
    fn start(&self, address: SocketAddr) -> Backend {
        match self {
            Self::Nobody => Backend::Nobody,
            Self::Tcp(turns) => Backend::Tcp(Hostile::in_turn(address, turns.clone())),
            Self::Tls(version, alpn, acts) => {
                Backend::Tls(HostileTls::start(address, *version, alpn, acts.clone()))
            }
        }
    }
}

/// A backend, a check, and what is due.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) script: Script,
    pub(crate) flags: String,
    pub(crate) result: &'static str,
    /// One of these, where the rules leave it to the network which of two comes first.
    pub(crate) codes: &'static [&'static str],
}

/// A row whose backend does the same to every connection.
pub(crate) fn row(
    name: &'static str,
    rule: &'static str,
    acts: Vec<Act>,
    flags: &str,
    result: &'static str,
    codes: &'static [&'static str],
) -> Row {
    Row {
        name,
        rule,
        script: Script::Tcp(vec![acts]),
        flags: flags.into(),
        result,
        codes,
    }
}

pub(crate) fn send(bytes: impl AsRef<[u8]>) -> Act {
    Act::Send(bytes.as_ref().to_vec())
}

/// Reads the request, then sends this.
pub(crate) fn answer(bytes: impl AsRef<[u8]>) -> Vec<Act> {
    vec![Act::Read, send(bytes)]
}

/// Runs the rows; with a timeout of one second at first, unless their flags have one.
pub(crate) fn judge(rows: Vec<Row>) {
    let _turn = Turn::shared();
    let net = Net::new();
    let count = rows.len();
    let lanes = 3;
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let rows = &rows;
        let threads: Vec<_> = (0..lanes)
            .map(|lane| {
                scope.spawn(move || {
                    let rows = rows.iter().enumerate().skip(lane).step_by(lanes);
                    rows.filter_map(|(n, row)| problem(net, n, row))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a row panicked"))
            .collect()
    });
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} of {count} rows are judged wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn problem(net: Net, n: usize, row: &Row) -> Option<String> {
    let host = u8::try_from(11 + n).expect("a table has fewer than 240 rows");
    let address = SocketAddr::new(net.host(host).into(), 21_900);
    let mut seen = Err("it was not probed".to_owned());
    let mut flags = row.flags.clone();
    for attempt in 0..ATTEMPTS {
        if !row.flags.contains("--timeout") {
            flags = format!("{} --timeout {}s", row.flags, 1 << attempt);
        }
        let _backend = row.script.start(address);
        let verdict = probe(address, &flags);
        let hurried = verdict.as_ref().is_ok_and(|verdict| {
            let timeout = verdict.result == "TIMEOUT" && row.result != "TIMEOUT";
            timeout || verdict.code == "LOCAL_LATE"
        });
        seen = verdict.and_then(|verdict| verdict.is(row.result, row.codes));
        if !hurried {
            break;
        }
    }
    let (name, rule) = (row.name, row.rule);
    seen.err()
        .map(|problem| format!("--- {name} ({rule}), `{flags}`: {problem}"))
}
