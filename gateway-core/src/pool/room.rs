//! Whether the pool can take more, for admission.

use super::row::Row;
use super::{Pool, Room, SaturationSettings};
use crate::time::Time;

impl Pool {
    /// Whether the pool can take one more request.
    ///
    /// The load of an endpoint is that of the extension's utilization detector,
    /// `max(waiting / queue_depth, usage / kv_usage)`, and the share of its bound of requests
    /// in flight. The pool's saturation is the mean; one that may not serve counts
    /// as full, one that drains does not count.
    #[must_use]
    pub fn room(&self, now: Time) -> Room {
        let oldest = self.oldest_useful(self.if_stale(now), now);
        let (mut sum, mut counted, mut ready, mut open) = (0.0, 0_u32, 0_u32, 0_u32);
        for (slot, gate) in self.gates.iter().enumerate() {
            if gate.open_from <= now && gate.seen >= oldest {
                let load = f64::from(self.loads[slot]);
                sum += load;
                ready += 1;
                open += u32::from(load < 1.0);
            } else if self.rows[slot].absent || self.rows[slot].draining {
                continue;
            } else {
                sum += 1.0;
            }
            counted += 1;
        }
        let saturation = sum / f64::from(counted.max(1));
        match (ready, open) {
            (0, _) => Room::None,
            (_, 0) => Room::Full { saturation },
            _ => Room::Open { saturation },
        }
    }
}

/// How full an endpoint is; 1 and above is full. A missing signal adds nothing.
pub(super) fn load(row: &Row, limits: &SaturationSettings, max_in_flight: Option<u32>) -> f64 {
    let queue = row.scraped_waiting.zip(row.waiting).map_or(0.0, |(scraped, merged)| {
        let waiting =
            if scraped < 1.0 { (merged - f64::from(limits.burst)).max(0.0) } else { merged };
        (waiting + f64::from(row.own.held)) / f64::from(limits.queue_depth.max(1))
    });
    let kv = row.kv_usage.map_or(0.0, |usage| usage / limits.kv_usage.max(0.01));
    let own = max_in_flight.map_or(0.0, |most| f64::from(row.own.here()) / f64::from(most.max(1)));
    queue.max(kv).max(own)
}
