//! The swarm's process, and the talk with it.
//!
//! In: commands. Out: its JSON answers. What a command means is in the swarm's own words (`swarm/src/main.rs`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Size;
use crate::workspace::build;

/// The running swarm. It ends with this value, because its stdin does.
pub(super) struct Swarm {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Where all endpoints are answered.
    pub(super) port: u16,
}

impl Swarm {
    pub(super) fn start(size: &Size) -> Result<Self> {
        let mut command = Command::new(build("vitals-swarm", true)?);
        for (flag, value) in [
            ("--form", size.form.clone()),
            ("--streams", size.streams.to_string()),
            ("--connections", size.connections.to_string()),
            ("--services", size.services.to_string()),
            ("--endpoints", size.endpoints.to_string()),
            ("--flapping-services", size.flapping_services.to_string()),
            ("--deaf", size.deaf.to_string()),
        ] {
            command.arg(flag).arg(value);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start the swarm")?;
        let answers = child.stdout.take().context("the swarm's stdout")?;
        let commands = child.stdin.take();
        let mut swarm = Self {
            child,
            commands,
            answers: BufReader::new(answers),
            port: 0,
        };
        let hello = swarm.answer()?;
        let port = hello.get("port").and_then(Value::as_u64);
        swarm.port = u16::try_from(port.context("the swarm has no port")?)?;
        Ok(swarm)
    }

    /// Gives a command and waits for its answer.
    pub(super) fn ask(&mut self, command: &str) -> Result<Value> {
        self.say(command)?;
        self.answer()
    }

    /// Gives a command; its answer is waited for with [`Swarm::answer`].
    pub(super) fn say(&mut self, command: &str) -> Result<()> {
        let commands = self.commands.as_mut().context("the swarm's stdin")?;
        writeln!(commands, "{command}").context("the swarm has ended")
    }

    pub(super) fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.is_empty() {
            bail!("the swarm has ended");
        }
        let answer: Value = serde_json::from_str(&line).context("the swarm's answer")?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("the swarm: {error} ({answer})"),
            None => Ok(answer),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.commands = None;
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
