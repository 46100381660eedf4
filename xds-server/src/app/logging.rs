//! The log: tracing to stderr, as text or JSON, filtered.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::TryInitError;

use super::LogFormat;

/// Why the log cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoggingError {
    /// The filter is not one.
    #[error(
        "{0}; a level (error, warn, info, debug, trace) or e.g. info,vitals::ads=debug is right"
    )]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// There is a log already.
    #[error(transparent)]
    Twice(#[from] TryInitError),
}

/// Starts the process's log.
pub(super) fn start(format: LogFormat, filter: &str) -> Result<(), LoggingError> {
    use tracing_subscriber::util::SubscriberInitExt;
    let filter = EnvFilter::builder().parse(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .finish()
            .try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
