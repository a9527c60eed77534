//! Policies: how an endpoint is picked among those that may serve.
//!
//! A policy rates each candidate; the highest rating wins and ties are broken at
//! random. Two policies judge by signals ([`predicted`], the default, and
//! [`weighted`]), four are the field's plain baselines.

mod choice;
pub(crate) mod pace;
pub mod predicted;
pub(crate) mod slowness;
pub(crate) mod speed;
pub mod weighted;

use std::fmt;
use std::str::FromStr;

pub(crate) use choice::{Ballot, Rotation};
pub use predicted::{Lots, PredictedSettings};
pub use weighted::Weights;

/// Which policy a pool uses, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicySettings {
    /// Fewest of this gateway's requests in flight, relative to the weight.
    LeastRequest,
    /// The better by `least_request` of two candidates drawn at random.
    PowerOfTwo,
    /// Least predicted time to first token, plus a price for harm to others.
    Predicted(PredictedSettings),
    /// Any candidate, each as likely.
    Random,
    /// One after the other.
    RoundRobin,
    /// Weighted sum of scorers.
    Weighted(Weights),
}

/// Names of all policies, as configuration writes them.
pub const POLICY_NAMES: [&str; 6] =
    ["least_request", "power_of_two", "predicted", "random", "round_robin", "weighted"];

impl PolicySettings {
    /// Name in configuration, metrics and explanations.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LeastRequest => "least_request",
            Self::PowerOfTwo => "power_of_two",
            Self::Predicted(_) => "predicted",
            Self::Random => "random",
            Self::RoundRobin => "round_robin",
            Self::Weighted(_) => "weighted",
        }
    }
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self::Predicted(PredictedSettings::default())
    }
}

impl fmt::Display for PolicySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A policy was named that does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown policy `{name}`; known policies: {}", POLICY_NAMES.join(", "))]
pub struct UnknownPolicy {
    /// The name as given.
    pub name: String,
}

impl FromStr for PolicySettings {
    type Err = UnknownPolicy;

    /// Reads a name; the policy gets its default settings. Hyphens may stand
    /// for underscores.
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match name.replace('-', "_").as_str() {
            "least_request" => Ok(Self::LeastRequest),
            "power_of_two" => Ok(Self::PowerOfTwo),
            "predicted" => Ok(Self::default()),
            "random" => Ok(Self::Random),
            "round_robin" => Ok(Self::RoundRobin),
            "weighted" => Ok(Self::Weighted(Weights::default())),
            _ => Err(UnknownPolicy { name: name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for name in POLICY_NAMES {
            let policy: PolicySettings = name.parse().unwrap();
            assert_eq!(policy.to_string(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "cache_aware".parse::<PolicySettings>().unwrap_err();
        assert!(error.to_string().contains("`cache_aware`"));
        assert!(error.to_string().contains("predicted"));
    }
}
