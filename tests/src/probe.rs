//! `vitals probe`, as a program uses it.
//!
//! In: HOST:PORT and the flags of a check. Out: the exit code and what the JSON document says. Here, too, is the bound of the
//! harness on each run: the timeout of the check and ten seconds for a process to start and end on a busy machine.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::process::{run, text};
use crate::tools;

/// What a run may take beyond the timeout of the check. It catches what never ends; it measures no speed.
const MARGIN: Duration = Duration::from_secs(10);

/// What one run said.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How the process ended.
    pub exit_code: i32,
    /// PASS, FAIL, TIMEOUT or INCONCLUSIVE.
    pub result: String,
    /// The reason's code.
    pub code: String,
    /// The reason's sentence.
    pub text: String,
    /// The whole document.
    pub document: Value,
}

impl Verdict {
    /// Whether the result and the code, one of these, are as they should be; `Err` tells what they are.
    pub fn is(&self, result: &str, codes: &[&str]) -> Result<(), String> {
        let due = match result {
            "PASS" => 0,
            "FAIL" => 1,
            "TIMEOUT" => 2,
            _ => 3,
        };
        if self.result == result && codes.contains(&&*self.code) && self.exit_code == due {
            return Ok(());
        }
        Err(format!(
            "{result} {} is due, got {} {} (exit code {}): {}\n{:#}",
            codes.join(" or "),
            self.result,
            self.code,
            self.exit_code,
            self.text,
            self.document
        ))
    }
}

/// Probes once; `flags` is divided at spaces. `Err`: it said something else than one verdict, or took too long.
pub fn probe(target: SocketAddr, flags: &str) -> Result<Verdict, String> {
    let mut command = Command::new(tools::vitals());
    command.arg("probe").arg(target.to_string());
    command.args(["--output", "json"]);
    command.args(flags.split_whitespace());
    let start = Instant::now();
    let output = run(&mut command);
    let took = start.elapsed();
    let said = || format!("`vitals probe {target} {flags}`: {}", text(&output));
    let document: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {}", said()))?;
    let timeout = document["check"]["timeoutMs"].as_f64();
    let timeout = Duration::from_secs_f64(timeout.ok_or_else(said)? / 1000.0);
    if took > timeout + MARGIN {
        return Err(format!("it took {took:?}: {}", said()));
    }
    let [probe] = document["probes"].as_array().map_or(&[][..], |list| list) else {
        return Err(said());
    };
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Verdict {
        exit_code: output.status.code().unwrap_or(-1),
        result: word(&document["result"]),
        code: word(&probe["reason"]["code"]),
        text: word(&probe["reason"]["text"]),
        document,
    })
}

/// Probes once and compares.
#[track_caller]
pub fn expect(target: SocketAddr, flags: &str, result: &str, code: &str) -> Verdict {
    let verdict = probe(target, flags).unwrap_or_else(|problem| panic!("{problem}"));
    if let Err(problem) = verdict.is(result, &[code]) {
        panic!("`vitals probe {target} {flags}`: {problem}");
    }
    verdict
}
