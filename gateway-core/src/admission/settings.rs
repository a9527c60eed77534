//! How a pool queues.

use std::time::Duration;

/// How a pool queues. `Default` is what a pool without configuration gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdmissionSettings {
    /// Whether requests wait here at all.
    pub queueing: Queueing,
    /// Bounds of the bands.
    pub bands: Bands,
    /// Longest time that a lower priority with requests waiting gets nothing at
    /// all while higher ones are served. `None`: for as long as it takes.
    pub starvation_limit: Option<Duration>,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self { queueing: Queueing::Off, bands: Bands::default(), starvation_limit: None }
    }
}

/// Whether requests wait in the gateway.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Queueing {
    /// They wait in the engines; only sheddable ones are refused while the pool is full.
    /// What the inference extension does without its flow-control gate.
    #[default]
    Off,
    /// They wait here while the pool is full, so that priority, fairness and the
    /// choice of an endpoint come to bear when room appears.
    On,
}

/// Bounds by band.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bands {
    /// Of [`Band::Critical`].
    pub critical: BandSettings,
    /// Of [`Band::Standard`].
    pub standard: BandSettings,
    /// Of [`Band::Sheddable`].
    pub sheddable: BandSettings,
}

impl Bands {
    /// Those of one band.
    #[must_use]
    pub const fn of(&self, band: Band) -> &BandSettings {
        match band {
            Band::Critical => &self.critical,
            Band::Standard => &self.standard,
            Band::Sheddable => &self.sheddable,
        }
    }
}

/// Bounds of one band's queue. Defaults are the inference extension's, with a time
/// limit that it leaves to the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BandSettings {
    /// Requests that may wait; 0 means none ever does.
    pub max_requests: usize,
    /// Bytes of their bodies.
    pub max_bytes: u64,
    /// Longest wait.
    pub timeout: Duration,
    /// Who of one flow goes first.
    pub order: Order,
}

impl Default for BandSettings {
    fn default() -> Self {
        Self {
            max_requests: 5000,
            max_bytes: 1_000_000_000,
            timeout: Duration::from_mins(1),
            order: Order::Fifo,
        }
    }
}

/// Who of one flow goes first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// The earliest deadline.
    Edf,
    /// The first to come.
    #[default]
    Fifo,
}

/// Bands of priorities, most urgent first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Band {
    /// Priorities above 0.
    Critical,
    /// Priority 0, which is what a request without one has.
    Standard,
    /// Priorities below 0: refused as soon as others wait.
    Sheddable,
}

impl Band {
    /// All, most urgent first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Standard, Self::Sheddable];

    /// The band of a priority, as `InferenceObjective` has them.
    #[must_use]
    pub const fn of(priority: i32) -> Self {
        match priority {
            1.. => Self::Critical,
            0 => Self::Standard,
            _ => Self::Sheddable,
        }
    }

    /// Name in configuration and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Standard => "standard",
            Self::Sheddable => "sheddable",
        }
    }
}
