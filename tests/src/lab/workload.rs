//! Requests made up by chance, from a seed.
//!
//! A [`Text`] is a stream of blocks whose contents are random numbers. Prompts that begin with
//! the same blocks share a prefix, and hashes are chained by the gateway's own code, so
//! engine and gateway agree on what is shared as they do for real text.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use gateway_core::Time;
use gateway_core::prefix::hash::{Seed, chain};

use super::request::{BLOCK_TOKENS, LabRequest, adapter_name};
use crate::engine::{AdapterId, EngineRequest};

/// Text that grows, block by block.
#[derive(Clone, Debug, Default)]
pub struct Text {
    contents: Vec<u64>,
}

impl Text {
    /// New text of `tokens` tokens.
    #[must_use]
    pub fn new(tokens: u32, rng: &mut Rng) -> Self {
        let mut text = Self::default();
        text.grow_to(tokens, rng);
        text
    }

    /// Appends new text until there are `tokens` tokens; the last block may be more than
    /// is needed of it.
    pub fn grow_to(&mut self, tokens: u32, rng: &mut Rng) {
        let blocks = tokens.div_ceil(BLOCK_TOKENS) as usize;
        let missing = blocks.saturating_sub(self.contents.len());
        self.contents.extend((0..missing).map(|_| rng.u64(..)));
    }

    /// Drops what is beyond the last block that `tokens` tokens fill.
    pub fn cut_to(&mut self, tokens: u32) {
        self.contents.truncate((tokens / BLOCK_TOKENS) as usize);
    }

    /// A request whose prompt is the first `prompt_tokens` tokens of this text, and whose answer
    /// is what follows. Text beyond what was written is nobody else's.
    #[must_use]
    pub fn request(
        &self,
        prompt_tokens: u32,
        output_tokens: u32,
        adapter: Option<AdapterId>,
    ) -> LabRequest {
        let name = adapter.map(adapter_name);
        let known = ((prompt_tokens + output_tokens) / BLOCK_TOKENS) as usize;
        let mut block_hashes = self.contents[..known.min(self.contents.len())].to_vec();
        let seed = Seed { model: "model", adapter: name.as_deref(), cache_salt: None };
        chain(&mut block_hashes, &seed);
        LabRequest {
            engine: EngineRequest {
                prompt_tokens,
                output_tokens,
                block_hashes,
                adapter,
                ..EngineRequest::default()
            },
            adapter: name.map(Arc::from),
            ..LabRequest::default()
        }
    }
}

/// A number of tokens whose logarithm is normal: many short ones, a few very long.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Half are shorter.
    pub median: f64,
    /// Standard deviation of the natural logarithm.
    pub spread: f64,
    /// None is shorter.
    pub least: u32,
    /// None is longer.
    pub most: u32,
}

impl Length {
    /// Draws one.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let tokens = self.median * (self.spread * normal(rng)).exp();
        (tokens as u32).clamp(self.least, self.most)
    }
}

/// A standard normal number (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    // 1 - u is never 0, whose logarithm is infinite.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Time to the next event of a Poisson process of `rate` events per second.
#[must_use]
pub fn exponential(rate: f64, rng: &mut Rng) -> Duration {
    Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate)
}

/// Moments at which somebody comes, in order.
#[derive(Clone, Copy, Debug)]
pub enum Rhythm {
    /// Independent of each other.
    Poisson,
    /// Evenly, with a tenth of the gap as jitter.
    Steady,
    /// Independent of each other, at a rate that is high for a while and then low.
    Bursts {
        /// Length of a burst.
        high: Duration,
        /// Length of the lull after it.
        low: Duration,
        /// Rate in a burst over rate in a lull.
        ratio: f64,
    },
}

impl Rhythm {
    /// Moments before `length` with `rate` per second on average.
    #[must_use]
    pub fn moments(&self, rate: f64, length: Duration, rng: &mut Rng) -> Vec<Time> {
        let mut moments = Vec::new();
        let mut at = Duration::ZERO;
        loop {
            at += self.gap(rate, at, rng);
            if at >= length {
                return moments;
            }
            moments.push(Time::from_origin(at));
        }
    }

    fn gap(&self, rate: f64, at: Duration, rng: &mut Rng) -> Duration {
        match *self {
            Self::Poisson => exponential(rate, rng),
            Self::Steady => Duration::from_secs_f64((0.95 + 0.1 * rng.f64()) / rate),
            Self::Bursts { high, low, ratio } => {
                let (high, low) = (high.as_secs_f64(), low.as_secs_f64());
                let base = rate * (high + low) / (high * ratio + low);
                // Thinning: candidates come at the high rate, in lulls few are taken.
                let mut gap = Duration::ZERO;
                loop {
                    gap += exponential(base * ratio, rng);
                    let phase = (at + gap).as_secs_f64() % (high + low);
                    if phase < high || rng.f64() * ratio < 1.0 {
                        return gap;
                    }
                }
            }
        }
    }
}

/// Draws from `0..count`, the n-th with a probability proportional to `1 / n^exponent` (Zipf).
#[must_use]
pub fn zipf(count: u32, exponent: f64, rng: &mut Rng) -> u32 {
    let weight = |rank: u32| f64::from(rank + 1).powf(-exponent);
    let mut left = rng.f64() * (0..count).map(weight).sum::<f64>();
    for rank in 0..count {
        left -= weight(rank);
        if left < 0.0 {
            return rank;
        }
    }
    count.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTES: Duration = Duration::from_mins(20);

    #[test]
    fn every_rhythm_keeps_its_mean_rate() {
        let bursts = Rhythm::Bursts {
            high: Duration::from_secs(10),
            low: Duration::from_secs(30),
            ratio: 8.0,
        };
        for rhythm in [Rhythm::Poisson, Rhythm::Steady, bursts] {
            let moments = rhythm.moments(10.0, MINUTES, &mut Rng::with_seed(1));
            assert!((11_400..12_600).contains(&moments.len()), "{rhythm:?} {}", moments.len());
            assert!(moments.is_sorted());
        }
    }

    #[test]
    fn bursts_are_as_much_denser_as_they_say() {
        let (high, low) = (Duration::from_secs(10), Duration::from_secs(30));
        let moments =
            Rhythm::Bursts { high, low, ratio: 8.0 }.moments(20.0, MINUTES, &mut Rng::with_seed(2));
        let in_burst = moments.iter().filter(|at| at.as_nanos() % 40_000_000_000 < 10_000_000_000);
        let share = in_burst.count() as f64 / moments.len() as f64;
        assert!((share - 80.0 / 110.0).abs() < 0.02, "{share}");
    }

    #[test]
    fn prompts_that_begin_alike_share_hashes_up_to_where_they_part() {
        let mut rng = Rng::with_seed(3);
        let system = Text::new(160, &mut rng);
        let blocks = |adapter, rng: &mut Rng| {
            let mut text = system.clone();
            text.grow_to(320, rng);
            text.request(320, 32, adapter).engine.block_hashes
        };
        let (one, two) = (blocks(None, &mut rng), blocks(None, &mut rng));
        assert_eq!((one.len(), &one[..10]), (20, &two[..10]));
        assert_ne!(one[10], two[10]);
        assert_ne!(blocks(Some(AdapterId(1)), &mut rng)[0], one[0]);
    }

    #[test]
    fn lengths_have_the_median_they_say() {
        let mut rng = Rng::with_seed(4);
        let length = Length { median: 500.0, spread: 1.0, least: 16, most: 8_000 };
        let mut drawn: Vec<u32> = (0..10_001).map(|_| length.draw(&mut rng)).collect();
        drawn.sort_unstable();
        assert!((470..530).contains(&drawn[5_000]), "{}", drawn[5_000]);
        assert!(drawn[10_000] <= 8_000 && drawn[9_900] > 4_000);
    }
}
