//! Child processes that end with their guard, whatever ends the command: success, an error, a panic, Ctrl-C.
//!
//! A child is in a process group of its own, so that Ctrl-C reaches xtask alone, which then ends the children in order.

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A running child.
pub(crate) struct Guard {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Guard {
    /// Starts `command`; what it prints goes to the file `log`. Its stdin is a pipe that closes when xtask is gone.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let child = command
            .stdin(Stdio::piped())
            .stdout(open().with_context(|| format!("cannot write {}", log.display()))?)
            .stderr(open().with_context(|| format!("cannot write {}", log.display()))?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.into(),
        })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Whether it runs.
    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// An error, with the end of its log, unless it runs.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = fs::read(&self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).into_owned();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(20)..).unwrap_or(&[]);
            bail!("{} ended with {status}:\n{}", self.name, tail.join("\n"));
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Asked first, so that it can store and say goodbye; then made to.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            pause(Duration::from_millis(20));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// From now on Ctrl-C, SIGTERM and SIGHUP make [`check_interrupt`] fail instead of ending xtask at once.
pub(crate) fn catch_interrupts() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _context = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        )
    };
    // Ends with the process.
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        INTERRUPTED.store(true, Ordering::Relaxed);
    });
    Ok(())
}

/// Whether somebody asked xtask to end.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// An error when somebody asked xtask to end.
pub(crate) fn check_interrupt() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Lets time pass between two looks.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where xtask sleeps: it waits for other processes, which can only be polled"
)]
pub(crate) fn pause(period: Duration) {
    std::thread::sleep(period);
}
