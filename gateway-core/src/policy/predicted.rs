//! `predicted`: the endpoint that will answer first, with regard for the others.
//!
//! The cost of an endpoint is the time to first token predicted there, from what was
//! learnt of its speed and the work before it, plus a price for the harm that the request does to those
//! already there. Everything is seconds, so that the parts can be compared.

use std::time::Duration;

use crate::pool::digest::Digest;
use crate::score::Scene;

/// Settings of the `predicted` policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedSettings {
    /// Price of one second by which a running answer is slowed, in seconds of
    /// own time to first token. 0 is selfish.
    pub harm_price: f64,
    /// Time to load an adapter that is not resident.
    pub adapter_load: Duration,
    /// Time until a slot is free for it where every one is in use by another adapter:
    /// as long as answers take, for all that use one of them have to end.
    pub adapter_slot: Duration,
    /// What a preemption near a full KV cache costs.
    pub preemption: Duration,
    /// What leaving the endpoint of the session costs, when a session is named.
    pub leave_session: Duration,
    /// Share of the cost forgiven to an endpoint never tried; shrinks with every answer
    /// learnt from.
    pub exploration: f64,
    /// Whether prompts that find a full batch start together.
    pub lots: Lots,
    /// Longest time for which a prompt that is much longer than usual gives way to others at
    /// its endpoint; 0 sends it at once.
    pub max_deferral: Duration,
}

/// Whether prompts for an engine whose batch is full are held back until several can start in
/// one step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Lots {
    /// Every prompt is sent at once; the engine starts one whenever one ends.
    Off,
    /// They wait in the gateway until a lot of places is free.
    #[default]
    On,
}

impl Default for PredictedSettings {
    fn default() -> Self {
        Self {
            harm_price: 0.02,
            adapter_load: Duration::from_millis(500),
            adapter_slot: Duration::from_secs(10),
            preemption: Duration::from_secs(4),
            leave_session: Duration::from_millis(100),
            exploration: 0.1,
            lots: Lots::On,
            max_deferral: Duration::from_secs(30),
        }
    }
}

/// What a request would cost at one endpoint, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Predicted time to first token.
    pub(crate) ttft: f64,
    /// Price of slowing the answers that are running there.
    pub(crate) harm: f64,
    /// Price of computing what another endpoint has.
    pub(crate) duplication: f64,
    /// Loading the adapter, and waiting for a slot first.
    pub(crate) adapter: f64,
    /// Risk of preemption.
    pub(crate) preemption: f64,
    /// Leaving the session's endpoint.
    pub(crate) session: f64,
    /// What all this is multiplied by: below 1 to try what is little known, above
    /// 1 while an endpoint starts slowly.
    pub(crate) factor: f64,
}

impl Cost {
    /// The parts by name, as an explanation shows them.
    pub(crate) fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("predicted-ttft", self.ttft),
            ("harm", self.harm),
            ("duplication", self.duplication),
            ("adapter-load", self.adapter),
            ("preemption-risk", self.preemption),
            ("leave-session", self.session),
            ("factor", self.factor),
        ]
    }

    pub(crate) fn total(&self) -> f64 {
        let delays = self.ttft + self.harm + self.duplication;
        (delays + self.adapter + self.preemption + self.session) * self.factor
    }
}

/// Price of duplicates for each request that waits for its first token.
const PER_WAITING: f64 = 0.05;

/// The same for each second of waiting beyond [`LONG_WAIT`].
const PER_SECOND: f64 = 20.0;

/// Waits up to this many seconds are usual.
const LONG_WAIT: f64 = 2.0;

/// KV-cache use from which on preemptions become likely.
const TIGHT: f64 = 0.9;

const PER_SLACK: f64 = 1.0 / (1.0 - TIGHT);

/// What the request would cost at `slot`. Finite whatever the inputs.
#[inline]
pub(crate) fn cost(settings: &PredictedSettings, scene: &Scene<'_>, slot: u32) -> Cost {
    let digest = scene.digest(slot);
    let uncached = scene.expected_uncached(slot);
    let own = digest.per_token * f64::from(uncached);
    let mut wait = digest.wait(scene.seconds);
    if scene.gives_way {
        // To all but those that give way, too.
        wait += scene.row(slot).own.deferred_tokens as f64 * digest.per_token;
    }
    // Also where it is nothing: a branch for each endpoint costs more than the product.
    let duplicated = f64::from(uncached.saturating_sub(scene.least_uncached));
    let load_adapter = scene.must_load_adapter(slot);
    let elsewhere = scene.session_home().is_some_and(|home| home != slot);
    Cost {
        ttft: wait + own,
        // While the prompt is computed, every running answer waits: for it and for the step
        // that it starts.
        harm: settings.harm_price * f64::from(digest.batch) * (own + f64::from(digest.overhead)),
        duplication: duplicate_price(digest, wait) * digest.per_token * duplicated,
        adapter: price(load_adapter, settings.adapter_load)
            + price(load_adapter && scene.must_await_adapter_slot(slot), settings.adapter_slot),
        preemption: preemption_risk(digest, scene.request.prompt_tokens)
            * settings.preemption.as_secs_f64(),
        session: price(elsewhere, settings.leave_session),
        factor: (1.0 - settings.exploration * f64::from(digest.doubt)) * scene.handicap(slot),
    }
}

/// Price of a second for which an endpoint computes what another one has in its cache, in
/// seconds: those who wait there wait longer, and so do those who come next. Where the wait
/// is long, computing anything twice makes it longer for good.
#[inline]
fn duplicate_price(digest: &Digest, wait: f64) -> f64 {
    PER_WAITING * f64::from(digest.own_waiting) + PER_SECOND * (wait - LONG_WAIT).max(0.0)
}

fn price(due: bool, price: Duration) -> f64 {
    if due { price.as_secs_f64() } else { 0.0 }
}

/// How likely the request is to cause a preemption, 0 to 1.
///
/// Rises with the square of how far the KV cache would be filled beyond
/// [`TIGHT`]. An engine that does not tell its use shows no risk.
#[inline]
fn preemption_risk(digest: &Digest, prompt_tokens: u32) -> f64 {
    let own = f64::from(digest.kv_per_token) * f64::from(prompt_tokens);
    let filled = f64::from(digest.kv_promised) + own;
    let excess = ((filled - TIGHT) * PER_SLACK).clamp(0.0, 1.0);
    excess * excess
}

/// Writes each candidate's total to `totals`: minus its cost.
pub(crate) fn rate(
    settings: &PredictedSettings,
    scene: &Scene<'_>,
    candidates: &[u32],
    totals: &mut Vec<f64>,
) {
    totals.clear();
    totals.extend(candidates.iter().map(|&slot| -cost(settings, scene, slot).total()));
}

/// The total from which on candidates are as good as the best, and chance decides:
/// predictions are not exact, and a herd is worse than a millisecond.
///
/// Where the best has nothing to do, more is forgiven: its next request will find it as
/// fast, and who was measured a little faster must not get everything.
pub(crate) fn floor(scene: &Scene<'_>, candidates: &[u32], totals: &[f64]) -> f64 {
    let best = totals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let place = totals.iter().rposition(|total| *total >= best);
    let is_idle = place.is_some_and(|place| scene.digest(candidates[place]).is_idle());
    let (seconds, share) = if is_idle { IDLE_TIE } else { TIE };
    best - seconds - share * best.abs()
}

/// Seconds, and share of the cost, within which candidates are tied.
const TIE: (f64, f64) = (0.000_5, 0.02);

/// The same where the best is idle.
const IDLE_TIE: (f64, f64) = (0.005, 0.05);
