//! Tests of the pool as its users see it, by theme.

mod accounting;
mod affinity;
mod defer;
mod filters;
mod lots;
mod peers;
mod predicted;
mod properties;
mod weighted;

use std::sync::Arc;
use std::time::Duration;

use super::{End, EndpointId, EndpointSpec, Lease, NoEndpoint, Pick, Pool, PoolSettings};
use crate::policy::PolicySettings;
use crate::request::RequestView;
use crate::signals::Signals;
use crate::time::Time;

/// A pool with a clock and a random device.
struct World {
    pool: Pool,
    ids: Vec<EndpointId>,
    now: Time,
    rng: fastrand::Rng,
}

impl World {
    /// `count` endpoints named `e0`, `e1`, ... that were just scraped and idle.
    fn new(count: usize, settings: PoolSettings) -> Self {
        let mut world = Self {
            pool: Pool::new(settings),
            ids: Vec::new(),
            now: Time::from_origin(Duration::from_secs(1000)),
            rng: fastrand::Rng::with_seed(42),
        };
        world.set_endpoints(&(0..count).collect::<Vec<_>>());
        for index in 0..count {
            world.observe(index, &load(0.0, 0.0, 0.0));
        }
        world
    }

    fn with_policy(count: usize, policy: &str) -> Self {
        let policy: PolicySettings = policy.parse().unwrap();
        Self::new(count, PoolSettings { policy, ..PoolSettings::default() })
    }

    fn set_endpoints(&mut self, indices: &[usize]) {
        let specs: Vec<_> = indices.iter().map(|&index| spec(index)).collect();
        self.ids = self.pool.set_endpoints(&specs, self.now);
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn observe(&mut self, index: usize, signals: &Signals) {
        self.pool.observe(self.ids[index], signals, self.now);
    }

    fn pick(&mut self, request: &RequestView<'_>) -> Result<Pick, NoEndpoint> {
        self.pool.pick(request, self.now, &mut self.rng)
    }

    /// Picks, and says which endpoint it was by its place in `ids`.
    fn send(&mut self, request: &RequestView<'_>) -> (usize, Lease) {
        let pick = self.pick(request).unwrap();
        let index = self.ids.iter().position(|&id| id == pick.endpoint).unwrap();
        (index, pick.lease)
    }

    /// Picks and ends at once.
    fn touch(&mut self, request: &RequestView<'_>) -> usize {
        let (index, lease) = self.send(request);
        self.finish(lease);
        index
    }

    fn finish(&mut self, lease: Lease) {
        self.pool.finish(lease, End::Completed { output_tokens: 10 }, self.now);
    }

    /// How often each endpoint is picked in `count` requests that end at once.
    fn shares(&mut self, count: usize, request: &RequestView<'_>) -> Vec<usize> {
        let mut shares = vec![0; self.ids.len()];
        for _ in 0..count {
            shares[self.touch(request)] += 1;
        }
        shares
    }
}

fn spec(index: usize) -> EndpointSpec {
    EndpointSpec { name: Arc::from(format!("e{index}")), weight: 1.0 }
}

fn load(waiting: f64, running: f64, kv_usage: f64) -> Signals {
    Signals {
        waiting: Some(waiting),
        running: Some(running),
        kv_usage: Some(kv_usage),
        ..Signals::default()
    }
}

fn prompt(tokens: u32) -> RequestView<'static> {
    RequestView { prompt_tokens: tokens, ..RequestView::default() }
}

/// A request for a prompt of these blocks of 16 tokens.
fn blocks(blocks: &[u64]) -> RequestView<'_> {
    RequestView { prompt_tokens: blocks.len() as u32 * 16, blocks, ..RequestView::default() }
}

/// Pearson's statistic of `counts` against equal shares.
fn chi_square(counts: &[usize]) -> f64 {
    let expected = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}
