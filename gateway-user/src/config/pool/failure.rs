//! What a pool does about endpoints and requests that fail.

use gateway_core::health::EjectionSettings;
use gateway_core::retry::{BudgetSettings, Retry, RetrySettings};

use super::super::error::ConfigError;
use super::super::raw;
use super::super::switch::Section;
use super::convert::positive;
use super::{HealthConfig, signals};

pub(super) fn ejection(raw: &Section<raw::Ejection>) -> Result<EjectionSettings, ConfigError> {
    let Section::On(raw) = raw else {
        return Ok(EjectionSettings { consecutive_failures: 0, ..EjectionSettings::default() });
    };
    if *raw.max_percent > 100 {
        let problem = format!("maxPercent is {}", *raw.max_percent);
        return Err(ConfigError::at(&raw.max_percent, problem, "give a number from 0 to 100"));
    }
    let base = positive("base", &raw.base)?;
    if raw.max.0 < base {
        let problem = format!("max {} is less than base {}", raw.max.value, raw.base.value);
        return Err(ConfigError::at(&raw.max, problem, "make max the longer one"));
    }
    Ok(EjectionSettings {
        consecutive_failures: *raw.consecutive_failures,
        base,
        max: raw.max.0,
        max_percent: *raw.max_percent,
    })
}

pub(super) fn retry(raw: &Section<raw::Retry>) -> Result<RetrySettings, ConfigError> {
    let Section::On(raw) = raw else {
        return Ok(RetrySettings { retries: 0, ..RetrySettings::default() });
    };
    let mut settings = RetrySettings {
        retries: raw.attempts,
        budget: BudgetSettings {
            percent: raw.budget_percent,
            min_per_second: raw.min_retries_per_second,
        },
        on_connect: Retry::Off,
        on_close: Retry::Off,
        on_status: Vec::new(),
    };
    for on in &raw.on {
        match (&*on.0, on.0.parse::<u16>()) {
            ("connect", _) => settings.on_connect = Retry::On,
            ("close", _) => settings.on_close = Retry::On,
            (_, Ok(status @ 500..=599)) => settings.on_status.push(status),
            _ => {
                let problem = format!("`{}` is nothing that can be retried", on.0);
                let fix = "use connect, close or a status from 500 to 599";
                return Err(ConfigError::at(on, problem, fix));
            }
        }
    }
    Ok(settings)
}

pub(super) fn health(raw: &Section<raw::Health>) -> Result<Option<HealthConfig>, ConfigError> {
    let Section::On(raw) = raw else { return Ok(None) };
    for (name, count) in [("failures", &raw.failures), ("successes", &raw.successes)] {
        if **count == 0 {
            let fix = "give at least 1; write `health: off` for no probes";
            return Err(ConfigError::at(count, format!("{name} is 0"), fix));
        }
    }
    Ok(Some(HealthConfig {
        path: signals::path(&raw.path)?,
        interval: positive("interval", &raw.interval)?,
        timeout: positive("timeout", &raw.timeout)?,
        failures: *raw.failures,
        successes: *raw.successes,
    }))
}
