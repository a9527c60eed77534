//! `run`: a configuration from a file, or one pool from flags.

mod pool;

use std::path::PathBuf;

use clap::Args;

use super::Overrides;
use crate::config::{Config, ConfigError, Source};
pub(super) use pool::PoolFlags;

/// Flags of `run`.
#[derive(Args, Debug, Default)]
pub struct RunFlags {
    /// Configuration file, YAML. Read again whenever it changes.
    #[arg(
        long,
        env = "INFERENCE_GATEWAY_CONFIG",
        value_name = "FILE",
        required_unless_present = "worker_urls",
        conflicts_with = "PoolFlags"
    )]
    pub config: Option<PathBuf>,
    /// About the process.
    #[command(flatten)]
    pub overrides: Overrides,
    /// About the one pool, without a file.
    #[command(flatten)]
    pub pool: PoolFlags,
}

/// What the command line amounts to.
#[derive(Debug)]
pub struct Started {
    /// The configuration.
    pub config: Config,
    /// The file it came from, with its text.
    pub file: Option<(PathBuf, String)>,
    /// What the operator should know about the flags.
    pub notes: Vec<String>,
}

impl RunFlags {
    /// Reads the file, or makes a configuration of the flags.
    ///
    /// # Errors
    ///
    /// The first mistake found.
    pub fn start(&self) -> Result<Started, ConfigError> {
        match &self.config {
            Some(path) => {
                let text = Source::read(path)?;
                let config = Config::parse_under(&text, &self.overrides)
                    .map_err(|error| error.in_file(path))?;
                Ok(Started { config, file: Some((path.clone(), text)), notes: Vec::new() })
            }
            None => Config::from_flags(self),
        }
    }
}

impl Config {
    /// A configuration of one pool, named `default`.
    ///
    /// # Errors
    ///
    /// A flag's value does not fit.
    pub fn from_flags(flags: &RunFlags) -> Result<Started, ConfigError> {
        let mut notes = Vec::new();
        let mut source = Source::default();
        flags.pool.apply(&mut source.0, &mut notes)?;
        let config = source.under(&flags.overrides)?;
        Ok(Started { config, file: None, notes })
    }
}

#[cfg(test)]
mod tests;
