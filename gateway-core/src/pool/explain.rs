//! Showing the pool: why a request would go where, and how its endpoints are.

use std::time::Duration;

use super::pick::Scratch;
use super::view::{EndpointView, Explained, Explanation, SpeedView, Verdict};
use super::{EndpointState, Pool};
use crate::policy::{PolicySettings, predicted};
use crate::request::RequestView;
use crate::score::{Scene, Sheet};
use crate::time::Time;

impl Pool {
    /// What a pick for `request` would see and do now, without doing it.
    #[must_use]
    pub fn explain(&self, request: &RequestView<'_>, now: Time) -> Explanation {
        let mut scratch = Scratch::default();
        let longest = self.match_prefix(request, &mut scratch.matched);
        let is_served = self.sift(request, now, &mut scratch.candidates).is_ok();
        let scene = self.scene(request, &scratch.candidates, &scratch.matched, longest, now);
        let winners = if is_served {
            self.ballot(&scene, &scratch.candidates, &mut scratch.totals).winners()
        } else {
            Vec::new()
        };
        let mut winners: Vec<_> = winners.iter().map(|&slot| scene.row(slot).id).collect();
        winners.sort_unstable();
        Explanation {
            policy: self.settings.policy.name(),
            endpoints: self.explained(&scene, &scratch),
            winners,
        }
    }

    fn explained(&self, scene: &Scene<'_>, scratch: &Scratch) -> Vec<Explained> {
        let if_stale = self.if_stale(scene.now);
        let sheet = match &self.settings.policy {
            PolicySettings::Weighted(weights) => {
                Some(Sheet::gather(weights, scene, &scratch.candidates, &self.cold))
            }
            _ => None,
        };
        let mut all: Vec<_> = self
            .present()
            .map(|slot| {
                let row = &self.rows[slot];
                let verdict = match self.dropped(slot as u32, scene.request, scene.now, if_stale) {
                    Some(dropped) => Verdict::Dropped(dropped.name()),
                    None => self.rated(scene, sheet.as_ref(), scratch, slot as u32),
                };
                Explained {
                    id: row.id,
                    name: self.endpoints[slot].name.clone(),
                    signals: self.endpoints[slot].signals.clone(),
                    in_flight_requests: row.own.here(),
                    peer_requests: row.own.guests,
                    cached_tokens: scene.cached_tokens(slot as u32),
                    verdict,
                }
            })
            .collect();
        all.sort_unstable_by_key(|explained| explained.id);
        all
    }

    fn rated(
        &self,
        scene: &Scene<'_>,
        sheet: Option<&Sheet>,
        scratch: &Scratch,
        slot: u32,
    ) -> Verdict {
        let at = scratch.candidates.binary_search(&slot);
        let total = at.map_or(f64::NEG_INFINITY, |at| scratch.totals[at]);
        let scores = match (&self.settings.policy, sheet) {
            (PolicySettings::Predicted(settings), _) => {
                predicted::cost(settings, scene, slot).parts().to_vec()
            }
            (PolicySettings::Weighted(weights), Some(sheet)) => weights
                .scorers()
                .map(|(scorer, _)| (scorer.name(), scorer.score(scene, sheet, slot)))
                .collect(),
            _ => Vec::new(),
        };
        Verdict::Rated { scores, total }
    }

    /// Every endpoint, in id order.
    #[must_use]
    pub fn endpoints(&self, now: Time) -> Vec<EndpointView> {
        let mut views: Vec<_> = self.present().map(|slot| self.view(slot, now)).collect();
        views.sort_unstable_by_key(|view| view.id);
        views
    }

    pub(super) fn present(&self) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| !row.absent).map(|(slot, _)| slot)
    }

    fn view(&self, slot: usize, now: Time) -> EndpointView {
        let (row, endpoint) = (&self.rows[slot], &self.endpoints[slot]);
        let state = row.obstacle(now).unwrap_or(if self.is_stale(row, now) {
            EndpointState::Stale
        } else {
            EndpointState::Serving
        });
        let (error, bias) = endpoint.speed.errors();
        let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
        EndpointView {
            id: row.id,
            name: endpoint.name.clone(),
            weight: row.weight,
            state,
            signals: endpoint.signals.clone(),
            signal_age: endpoint.read.map(|read| now.since(read)),
            gpu: endpoint.gpu,
            in_flight_requests: row.own.here(),
            in_flight_tokens: row.own.prefill_tokens.saturating_sub(row.own.guest_tokens),
            peer_requests: row.own.guests,
            peer_tokens: row.own.guest_tokens,
            picks: endpoint.picks,
            consecutive_failures: endpoint.health.consecutive_failures(),
            indexed_blocks: self.prefixes.held(slot as u32),
            speed: SpeedView {
                prefill_tokens_per_second: 1000.0 / row.speed[1],
                overhead: seconds(row.speed[0]),
                samples: endpoint.speed.samples(),
                mean_error: seconds(error),
                bias_seconds: bias,
            },
        }
    }
}
