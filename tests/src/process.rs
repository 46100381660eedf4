//! A child process that never outlives the test, and whose log is shown when the test fails.
//!
//! In: a command. Out: the running process, its log, its memory, its end. Not here: what the process is.

use std::fs::{self, File, OpenOptions};
use std::io::{PipeWriter, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::wait::{SOON, eventually, pause};

/// A running process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints is appended to the file `log`.
    #[must_use]
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Self {
        Self::begin(name, command.stdout(append(log)), log)
    }

    /// Starts `command` with its stdout going to `stdout` and its stderr appended to the file `log`.
    #[must_use]
    pub fn spawn_piped(name: &str, mut command: Command, stdout: PipeWriter, log: &Path) -> Self {
        Self::begin(name, command.stdout(stdout), log)
    }

    fn begin(name: &str, command: &mut Command, log: &Path) -> Self {
        let child = command
            .stderr(append(log))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self {
            name: name.into(),
            child,
            log: log.into(),
        }
    }

    /// The process, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Everything it has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.log)
    }

    /// `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("the process is there");
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process is there");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits for it to end by itself.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let name = self.name.clone();
        eventually(limit, &format!("{name} has ended"), || {
            self.ended().ok_or_else(|| "it runs".into())
        })
    }

    /// Resident memory, in MiB.
    #[must_use]
    pub fn resident_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the process is there");
        let kib: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .expect("Linux tells VmRSS");
        kib / 1024
    }

    /// Stops it for so long, as a machine does that is suspended.
    pub fn suspend(&self, period: Duration) {
        kill_process(self.pid(), Signal::STOP).expect("the process is there");
        pause(period);
        kill_process(self.pid(), Signal::CONT).expect("the process is there");
    }

    /// How many descriptors it has open.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .expect("the process is there")
            .count()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(60)..).unwrap_or(&[]);
            eprintln!("--- {} ended with this in its log:", self.name);
            eprintln!("{}", tail.join("\n"));
            eprintln!("---");
        }
        // It may have ended by itself; then there is nothing to kill.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

/// Runs a command that is expected to end soon and returns what it printed.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let name = format!("{command:?}");
    let (stdout, stderr) = (temporary(), temporary());
    let shared = |file: &File| file.try_clone().expect("files can be shared");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(shared(&stdout))
        .stderr(shared(&stderr))
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None if begin.elapsed() < SOON => pause(Duration::from_millis(5)),
            None => {
                child.kill().ok();
                child.wait().ok();
                panic!("{name} still ran after {} s", SOON.as_secs());
            }
        }
    };
    Output {
        status,
        stdout: whole(stdout),
        stderr: whole(stderr),
    }
}

fn temporary() -> File {
    tempfile::tempfile().expect("temporary files can be made")
}

fn whole(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("a file can be rewound");
    file.read_to_end(&mut bytes).expect("a file can be read");
    bytes
}

/// What a command printed, as text, stdout first.
#[must_use]
pub fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

fn append(log: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", log.display()))
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
