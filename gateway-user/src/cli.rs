//! Commands that look and tell, and change nothing.

mod ask;
mod bpf;
mod explain;
mod status;
mod table;

use crate::args::ValidateFlags;
use crate::config::{Auth, Config, ConfigError, PoolConfig};
use crate::metrics::Metrics;

pub use bpf::bpf_status;
pub use explain::explain;
pub use status::status;

/// Checks a file; returns what it amounts to, for people.
///
/// # Errors
///
/// The first mistake found.
pub fn validate(flags: &ValidateFlags) -> Result<String, ConfigError> {
    let config = Config::load(&flags.config)?;
    if flags.dump {
        return Ok(config.to_yaml());
    }
    let mut lines: Vec<String> = config.pools.iter().map(pool).collect();
    let access = match &config.auth {
        Auth::ApiKeys(keys) => format!("{} keys", keys.len()),
        Auth::None => "anybody".to_owned(),
    };
    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    lines.push(format!("OK: {} for {access}, admin on {}", listen.join(", "), config.admin));
    Ok(lines.join("\n") + "\n")
}

/// Every metric, as a page of the documentation.
///
/// # Errors
///
/// Two metrics of one name.
pub fn metrics() -> Result<String, prometheus::Error> {
    const INTRODUCTION: &str = "\
# Metrics

What `GET /metrics` on the admin port says, in Prometheus' text format. Names that begin with
`inference_gateway_` are ours; the others are the Gateway API Inference Extension's, with its labels and
buckets. A family is on the page once it has a value. [operations.md](operations.md) says which to
watch.

Written by `inference-gateway metrics`.

";
    Ok(INTRODUCTION.to_owned() + &Metrics::register()?.describe())
}

fn pool(pool: &PoolConfig) -> String {
    let model = pool.names.model.as_deref().unwrap_or("whatever its engines serve");
    let steered = pool.steering.map_or_else(String::new, |steering| {
        format!(", {} steered by {}", steering.address, steering.mode.name())
    });
    format!(
        "pool {}: {model}, {} endpoints, {}, policy {}{steered}",
        pool.name,
        pool.endpoints.len(),
        pool.engine.name(),
        pool.settings.policy
    )
}
