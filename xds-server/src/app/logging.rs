//! The log: tracing to stderr, as text or JSON, filtered.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
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
    /// A word that would silently mute everything.
    #[error("{0:?} is not a level; error, warn, info, debug, trace and off are")]
    Level(String),
    /// There is a log already.
    #[error(transparent)]
    Twice(#[from] TryInitError),
}

/// Starts the process's log.
pub(super) fn start(format: LogFormat, filter: &str) -> Result<(), LoggingError> {
    use tracing_subscriber::util::SubscriberInitExt;
    // The parser takes a bare word for the name of a target, so a typo in a level would mute the server.
    for directive in filter.split(',').map(str::trim) {
        if !directive.contains('=') && directive.parse::<LevelFilter>().is_err() {
            return Err(LoggingError::Level(directive.into()));
        }
    }
    // The file watcher would log every write to a log file that lies beside the configuration, and so on for ever.
    let filter = EnvFilter::builder().parse(format!("notify=info,{filter}"))?;
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
