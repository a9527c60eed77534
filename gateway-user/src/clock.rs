//! The daemon's clock: turns the machine's monotonic clock into the core's [`Time`].

use std::time::Instant;

use gateway_core::Time;

/// Reads the time since the daemon started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The origin, for timers.
    #[must_use]
    pub fn origin(self) -> tokio::time::Instant {
        self.origin.into()
    }

    /// Now, as the core counts it.
    #[must_use]
    pub fn now(self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }
}
