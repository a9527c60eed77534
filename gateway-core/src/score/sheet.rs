//! What scorers need of all candidates together.

use super::no_hit_lru::{ColdOrder, Ranks};
use super::{Range, Scene};
use crate::policy::Weights;
use crate::pool::digest::Signs;

/// Where a count comes from.
///
/// When no candidate tells its queue (engines without metrics, or scraping is off),
/// this gateway's own counts stand in: all candidates are then measured
/// by the same rule. When only some do not tell, those are missing and score neutral.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    Running,
    Waiting,
    OwnRunning,
    OwnWaiting,
}

impl Source {
    #[inline]
    pub(crate) fn of(self, signs: &Signs) -> Option<f64> {
        match self {
            Self::Running => signs.running,
            Self::Waiting => signs.waiting,
            Self::OwnRunning => Some(signs.own_running),
            Self::OwnWaiting => Some(signs.own_waiting),
        }
    }
}

/// Ranges and ranks over the candidates, for the scorers that are in use.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) queue_source: Source,
    pub(crate) queue: Option<Range>,
    pub(crate) running_source: Source,
    pub(crate) running: Option<Range>,
    pub(crate) latency: Option<Range>,
    /// `None` when a candidate holds a part of the prompt.
    pub(crate) ranks: Option<Ranks>,
}

impl Sheet {
    pub(crate) fn gather(
        weights: &Weights,
        scene: &Scene<'_>,
        candidates: &[u32],
        cold: &ColdOrder,
    ) -> Self {
        let range =
            |source: Source| Range::of(candidates.iter().map(|&slot| source.of(scene.signs(slot))));
        let column = |weight: f64, scraped: Source, own: Source| {
            if weight <= 0.0 {
                return (scraped, None);
            }
            match range(scraped) {
                Some(range) => (scraped, Some(range)),
                None => (own, range(own)),
            }
        };
        let (queue_source, queue) = column(weights.queue, Source::Waiting, Source::OwnWaiting);
        let (running_source, running) =
            column(weights.running_requests, Source::Running, Source::OwnRunning);
        let latency = (weights.predicted_latency > 0.0)
            .then(|| {
                let seconds = candidates.iter().map(|&slot| Some(scene.predicted_ttft(slot)));
                Range::of(seconds)
            })
            .flatten();
        let is_cold = |slot: &u32| scene.matched(*slot) == 0;
        let ranks = (weights.no_hit_lru > 0.0 && candidates.iter().all(is_cold))
            .then(|| cold.ranks(candidates, scene.rows.len()));
        Self { queue_source, queue, running_source, running, latency, ranks }
    }
}
