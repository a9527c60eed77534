//! The other gateways in front of the same engines.

use std::time::Duration;

use super::address::{HttpAddress, Scheme};
use super::error::ConfigError;
use super::pool::positive;
use super::raw;

/// Port of a peer when none is written: that of `admin.listen`.
const PORT: u16 = 9090;

/// The other gateways in front of the same engines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeersConfig {
    /// Where their admin ports are; a name may stand for several.
    pub addresses: Vec<HttpAddress>,
    /// Time between two questions to one of them.
    pub interval: Duration,
    /// The same while no pool has requests; at least `interval`.
    pub idle_interval: Duration,
    /// Time without an answer after which a peer's requests count no longer.
    pub stale_after: Duration,
}

/// `None` when no address is given.
pub(super) fn peers(raw: &raw::Peers) -> Result<Option<PeersConfig>, ConfigError> {
    let addresses = raw.addresses.iter().map(|text| {
        let address = HttpAddress::parse(text, "a peer", PORT)?;
        if address.scheme == Scheme::Https || address.path != "/" {
            let problem = format!("`{}` is not the address of an admin port", &**text);
            return Err(ConfigError::at(text, problem, "write host:port"));
        }
        Ok(address)
    });
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let interval = positive("interval", &raw.interval)?;
    let idle_interval = positive("idleInterval", &raw.idle_interval)?.max(interval);
    let stale = &raw.stale_after;
    if stale.0 <= idle_interval {
        let problem = format!("staleAfter {} is not longer than the intervals", stale.value);
        let fix = "make it at least twice idleInterval, or every peer will be stale";
        return Err(ConfigError::at(stale, problem, fix));
    }
    let config = PeersConfig { addresses, interval, idle_interval, stale_after: stale.0 };
    Ok(Some(config).filter(|config| !config.addresses.is_empty()))
}
