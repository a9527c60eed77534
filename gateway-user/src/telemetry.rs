//! The daemon's own log, on standard error. (The access log is another matter, and
//! goes to standard output.)

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// Starts logging. A second call changes nothing.
pub fn start(log: &LogConfig) {
    let filter = EnvFilter::new(log.level.name());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // It only fails when logging has been started already, in a test for example.
    let _ = match log.format {
        LogFormat::Json => lines.json().finish().try_init(),
        LogFormat::Text => lines
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .finish()
            .try_init(),
    };
}
