//! Picking an endpoint: filters, ratings, choice and reservation in one step.

use std::time::Duration;

use fastrand::Rng;

use super::endpoint::Computed;
use super::ledger::{Entry, Found, Lesson, Origin, Stage};
use super::{NoEndpoint, Pick, Pool};
use crate::policy::speed::dot;
use crate::policy::{Ballot, PolicySettings};
use crate::request::{Answer, RequestView};
use crate::score::Scene;
use crate::time::Time;

/// Buffers of a pick, kept so that a pick allocates nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Slots that passed the filters, ascending.
    pub(super) candidates: Vec<u32>,
    /// Per slot, blocks of the prompt held.
    pub(super) matched: Vec<u32>,
    /// Per candidate, what it is compared by.
    pub(super) totals: Vec<f64>,
}

impl Pool {
    /// Picks an endpoint for `request` and reserves room there.
    ///
    /// # Errors
    ///
    /// [`NoEndpoint`] says why none could be picked; nothing is reserved then.
    pub fn pick(
        &mut self,
        request: &RequestView<'_>,
        now: Time,
        rng: &mut Rng,
    ) -> Result<Pick, NoEndpoint> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.pick_with(request, now, rng, &mut scratch);
        self.scratch = scratch;
        result
    }

    fn pick_with(
        &mut self,
        request: &RequestView<'_>,
        now: Time,
        rng: &mut Rng,
        scratch: &mut Scratch,
    ) -> Result<Pick, NoEndpoint> {
        self.sift(request, now, &mut scratch.candidates)?;
        let longest = self.match_prefix(request, &mut scratch.matched);
        let scene = self.scene(request, &scratch.candidates, &scratch.matched, longest, now);
        let ballot = self.ballot(&scene, &scratch.candidates, &mut scratch.totals);
        let slot = ballot.choose(rng);
        let cached_tokens = scene.cached_tokens(slot);
        let lesson = match request.answer {
            _ if scene.must_load_adapter(slot) => Lesson::Nothing,
            Answer::Streamed => Lesson::FirstToken,
            Answer::Whole => Lesson::WholeTime,
        };
        let row = &self.rows[slot as usize];
        let features = scene.features(slot);
        // Of others' requests in the queue, each of ours has its share to wait for.
        let others = row.foreign() / f64::from(row.own.prefilling + 1);
        let typical = row.speed[1] / 1e3 * scene.typical_tokens;
        let foreign = row.foreign_until.since(now).as_secs_f64();
        let entry = Entry {
            serial: 0,
            origin: Origin::Here,
            slot,
            endpoint: self.rows[slot as usize].id,
            stage: Stage::Prefill,
            tokens: scene.uncached_tokens(slot),
            reading: self.endpoints[slot as usize].reading,
            picked: now,
            sent: now,
            features,
            work: row.speed[1] * features[1] + others * typical + foreign,
            start: dot(&row.speed, &row.features(0)),
            found: if row.has_queue() || foreign > 0.0 { Found::Queue } else { Found::Idle },
            predicted: scene.predicted_ttft(slot) + self.loading(&scene, slot),
            lesson,
        };
        let stage = if let Some(until) = self.patience(&scene, slot, &scratch.candidates, now) {
            Stage::Deferred { until }
        } else if self.must_hold(slot, request, &scratch.candidates, now) {
            Stage::Held
        } else {
            Stage::Prefill
        };
        let entry = Entry { stage, ..entry };
        Ok(self.reserve(request, entry, cached_tokens, longest, scratch.candidates.len() as u32))
    }

    /// Seconds for loading the request's adapter at `slot`.
    fn loading(&self, scene: &Scene<'_>, slot: u32) -> f64 {
        match &self.settings.policy {
            PolicySettings::Predicted(settings) if scene.must_load_adapter(slot) => {
                settings.adapter_load.as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// Rates the candidates by the pool's policy.
    pub(super) fn ballot<'a>(
        &'a self,
        scene: &Scene<'_>,
        candidates: &'a [u32],
        totals: &'a mut Vec<f64>,
    ) -> Ballot<'a> {
        let policy = &self.settings.policy;
        Ballot::rate(policy, scene, candidates, &self.cold, self.rotation, totals)
    }

    /// Fills `matched` with the blocks held per slot; returns the longest match.
    pub(super) fn match_prefix(&self, request: &RequestView<'_>, matched: &mut Vec<u32>) -> u32 {
        matched.resize(self.rows.len(), 0);
        self.prefixes.matches(self.blocks(request), matched)
    }

    pub(super) fn blocks<'a>(&self, request: &RequestView<'a>) -> &'a [u64] {
        let blocks = request.blocks;
        &blocks[..blocks.len().min(self.settings.prefix.max_blocks)]
    }

    pub(super) fn scene<'a>(
        &'a self,
        request: &'a RequestView<'a>,
        candidates: &[u32],
        matched: &'a [u32],
        longest: u32,
        now: Time,
    ) -> Scene<'a> {
        let home = request.session.and_then(|session| self.sessions.home(session));
        let block_tokens = self.settings.prefix.block_tokens;
        let held = longest.saturating_mul(block_tokens);
        let least_uncached = request.prompt_tokens.saturating_sub(held);
        let rendezvous = self.rendezvous(request, candidates, longest);
        let least_uncached =
            rendezvous.map_or(least_uncached, |home| home.uncached(least_uncached));
        Scene {
            request,
            now,
            seconds: now.seconds(),
            rows: &self.rows,
            digests: &self.digests,
            signs: &self.signs,
            matched,
            least_uncached,
            gives_way: self.may_defer(request, least_uncached),
            rendezvous,
            block_tokens,
            max_blocks: self.settings.prefix.max_blocks,
            holders: request.adapter.and_then(|adapter| self.residency.holders(adapter)),
            session: home.and_then(|id| self.by_id.get(&id).copied()),
            typical_tokens: self.typical_tokens.unwrap_or(0.0),
            slow_start: self.settings.slow_start,
        }
    }

    /// Enters the request into every account.
    fn reserve(
        &mut self,
        request: &RequestView<'_>,
        entry: Entry,
        cached_tokens: u32,
        longest: u32,
        candidates: u32,
    ) -> Pick {
        let (slot, id, now) = (entry.slot, entry.endpoint, entry.picked);
        let (stage, tokens) = (entry.stage, entry.tokens);
        self.close_batches(slot as usize, now);
        let predicted = Duration::try_from_secs_f64(entry.predicted).ok();
        let row = &mut self.rows[slot as usize];
        match stage {
            Stage::Deferred { .. } => row.defer(tokens),
            Stage::Held => row.hold(tokens),
            Stage::Decode | Stage::Prefill => row.enqueue(tokens, now),
        }
        self.endpoints[slot as usize].picks += 1;
        self.company.count_pick();
        self.rotation.picked(slot);
        self.note_size(tokens, request.prompt_tokens);
        self.refresh(slot as usize);
        self.remember(request, slot, longest, now);
        let lease = self.ledger.enter(entry);
        let news = self.news_of(slot, tokens, request);
        if let Stage::Deferred { .. } = stage {
            self.defer(slot, lease.id(), news);
        } else {
            self.tell_sent(lease.id(), news, now);
        }
        if stage == Stage::Held {
            self.hold(slot, lease.id());
        }
        self.settle_whole(slot as usize, now);
        if request.answer == Answer::Whole {
            self.endpoints[slot as usize].whole.push_back(Computed {
                place: lease.place,
                serial: lease.serial,
                at: now + predicted.unwrap_or_default(),
            });
        }
        self.settle_next(now);
        Pick {
            endpoint: id,
            lease,
            // How long it gives way depends on who comes.
            predicted_ttft: predicted.filter(|_| !matches!(stage, Stage::Deferred { .. })),
            cached_tokens,
            candidates,
            held: stage.is_unsent(),
        }
    }

    /// Follows how large requests usually are.
    pub(super) fn note_size(&mut self, uncached_tokens: u32, prompt_tokens: u32) {
        let tokens = f64::from(uncached_tokens);
        let typical = self.typical_tokens.get_or_insert(tokens);
        *typical += 0.02 * (tokens - *typical);
        let prompt = f64::from(prompt_tokens);
        let typical = self.typical_prompt.get_or_insert(prompt);
        *typical += 0.02 * (prompt - *typical);
    }

    /// Remembers where prefix, adapter and session have gone.
    fn remember(&mut self, request: &RequestView<'_>, slot: u32, longest: u32, now: Time) {
        let row = &self.rows[slot as usize];
        let id = row.id;
        let adapters = row.adapters.map(|slots| slots.max);
        self.prefixes.insert(slot, self.blocks(request));
        if let Some(adapter) = request.adapter {
            self.residency.ask(slot, adapter, adapters);
        }
        if let Some(session) = request.session {
            self.sessions.settle(session, id, now);
        }
        if let PolicySettings::Weighted(weights) = &self.settings.policy
            && weights.no_hit_lru > 0.0
            && longest == 0
        {
            self.cold.used(slot);
        }
    }
}
