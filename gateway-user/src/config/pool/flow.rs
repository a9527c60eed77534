//! Flow control of a pool.

use gateway_core::admission::{AdmissionSettings, BandSettings, Bands, Order, Queueing};
use gateway_core::pool::SaturationSettings;

use super::super::error::ConfigError;
use super::super::raw;
use super::convert::{optional, positive};

pub(super) fn saturation(
    raw: Option<&raw::FlowControl>,
) -> Result<SaturationSettings, ConfigError> {
    let defaults = SaturationSettings::default();
    let Some(raw) = raw else { return Ok(defaults) };
    if let Some(depth) = raw.queue_depth.as_ref().filter(|depth| ***depth == 0) {
        let fix = "give at least 1; an engine is full when this many wait in it";
        return Err(ConfigError::at(depth, "queueDepth is 0", fix));
    }
    let in_range = |usage: f64| usage > 0.0 && usage <= 1.0;
    if let Some(usage) = raw.kv_usage.as_ref().filter(|usage| !in_range(***usage)) {
        let problem = format!("kvUsage is {}", **usage);
        return Err(ConfigError::at(
            usage,
            problem,
            "give a share above 0 and up to 1, such as 0.8",
        ));
    }
    Ok(SaturationSettings {
        queue_depth: raw.queue_depth.as_deref().copied().unwrap_or(defaults.queue_depth),
        kv_usage: raw.kv_usage.as_deref().copied().unwrap_or(defaults.kv_usage),
        ..defaults
    })
}

pub(super) fn max_in_flight(raw: Option<&raw::FlowControl>) -> Result<Option<u32>, ConfigError> {
    let Some(most) = raw.and_then(|raw| raw.max_in_flight_per_endpoint.as_ref()) else {
        return Ok(None);
    };
    if **most == 0 {
        let fix = "give at least 1, or leave it out for no bound";
        return Err(ConfigError::at(most, "maxInFlightPerEndpoint is 0", fix));
    }
    Ok(Some(**most))
}

pub(super) fn admission(raw: Option<&raw::FlowControl>) -> Result<AdmissionSettings, ConfigError> {
    let Some(raw) = raw else { return Ok(AdmissionSettings::default()) };
    Ok(AdmissionSettings {
        queueing: Queueing::On,
        bands: Bands {
            critical: band(&raw.bands.critical)?,
            standard: band(&raw.bands.standard)?,
            sheddable: band(&raw.bands.sheddable)?,
        },
        starvation_limit: optional(raw.starvation_limit.as_ref()),
    })
}

fn band(raw: &raw::Band) -> Result<BandSettings, ConfigError> {
    Ok(BandSettings {
        max_requests: raw.max_requests,
        max_bytes: raw.max_bytes.0,
        timeout: positive("timeout", &raw.timeout)?,
        order: match raw.order {
            raw::Order::Edf => Order::Edf,
            raw::Order::Fifo => Order::Fifo,
        },
    })
}
