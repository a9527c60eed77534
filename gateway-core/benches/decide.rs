//! How long a decision takes: pick, first token and finish, by policy, endpoints and blocks.
//!
//! `cargo bench -p gateway-core --bench decide [-- --json FILE] [--quick]`
//!
//! The state is that of a busy pool: every endpoint has been scraped, its prefix
//! memory is full of other prompts, and some requests are always in flight. Prompts mix
//! three kinds, as traffic does: continued conversations, a system prompt that every
//! endpoint has with a question of its own, and prompts never seen before.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::policy::{POLICY_NAMES, PolicySettings};
use gateway_core::pool::{End, EndpointSpec, Lease, Pool, PoolSettings};
use gateway_core::{RequestView, Signals, Time};

/// Blocks of other prompts in the index per endpoint, before measuring.
const WARM_BLOCKS: usize = 2_048;

/// Requests per measurement; a scrape of all endpoints stands between two.
const BATCH: usize = 64;

/// Requests kept in flight while measuring.
const IN_FLIGHT: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().position(|argument| argument == "--json");
    let json = json.and_then(|at| arguments.get(at + 1));
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let budget = Duration::from_millis(if quick { 50 } else { 400 });
    println!("{:<14} {:>9} {:>6} {:>12}", "policy", "endpoints", "blocks", "ns/decision");
    let mut rows = String::new();
    for policy in POLICY_NAMES {
        for endpoints in [10, 100, 1_000, 4_000] {
            for blocks in [0, 32, 256] {
                let nanoseconds = measure(policy, endpoints, blocks, budget);
                println!("{policy:<14} {endpoints:>9} {blocks:>6} {nanoseconds:>12.0}");
                let separator = if rows.is_empty() { "" } else { "," };
                let _ = write!(
                    rows,
                    "{separator}\n  {{\"policy\":\"{policy}\",\"endpoints\":{endpoints},\
                     \"blocks\":{blocks},\"ns\":{nanoseconds:.0}}}"
                );
            }
        }
    }
    if let Some(file) = json {
        let text = format!("{{\"rows\":[{rows}\n]}}\n");
        if let Err(error) = std::fs::write(file, text) {
            eprintln!("cannot write {file}: {error}");
            std::process::exit(1);
        }
    }
}

/// Nanoseconds of one request's decisions: the median over batches, because other work on
/// the machine only ever adds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn measure(policy: &str, endpoints: usize, blocks: usize, budget: Duration) -> f64 {
    let mut bench = Bench::new(policy, endpoints, blocks);
    bench.run(2 * IN_FLIGHT);
    let (mut spent, mut batches) = (Duration::ZERO, Vec::new());
    while spent < budget {
        // Prompts are made outside the measured time, for they are hashed elsewhere.
        let prompts: Vec<_> = (0..BATCH).map(|_| bench.prompt()).collect();
        let started = Instant::now();
        for prompt in &prompts {
            bench.request(prompt);
        }
        let elapsed = started.elapsed();
        spent += elapsed;
        batches.push(elapsed);
        bench.scrape();
    }
    batches.sort_unstable();
    batches[batches.len() / 2].as_nanos() as f64 / BATCH as f64
}

struct Bench {
    pool: Pool,
    ids: Vec<gateway_core::pool::EndpointId>,
    rng: fastrand::Rng,
    now: Time,
    blocks: usize,
    conversations: Vec<Vec<u64>>,
    in_flight: std::collections::VecDeque<Lease>,
}

impl Bench {
    fn new(policy: &str, endpoints: usize, blocks: usize) -> Self {
        let policy: PolicySettings = policy.parse().unwrap_or_default();
        let mut pool = Pool::new(PoolSettings { policy, ..PoolSettings::default() });
        let now = Time::from_origin(Duration::from_secs(1));
        let specs: Vec<_> = (0..endpoints)
            .map(|i| EndpointSpec {
                name: Arc::from(format!("10.0.{}.{}:8000", i / 250, i % 250)),
                weight: 1.0,
            })
            .collect();
        let ids = pool.set_endpoints(&specs, now);
        let mut bench = Self {
            pool,
            ids,
            rng: fastrand::Rng::with_seed(7),
            now,
            blocks,
            conversations: Vec::new(),
            in_flight: std::collections::VecDeque::new(),
        };
        bench.scrape();
        bench.warm();
        bench
    }

    /// Fills the index: every endpoint gets prompts of its own and the shared one.
    fn warm(&mut self) {
        if self.blocks == 0 {
            return;
        }
        let picks = self.ids.len() * WARM_BLOCKS / self.blocks;
        self.conversations = (0..4 * self.ids.len()).map(|_| self.fresh(0)).collect();
        for turn in 0..picks {
            let conversation = turn % self.conversations.len();
            let prompt = self.conversations[conversation].clone();
            self.request(&prompt);
            if turn % 64 == 0 {
                self.scrape();
            }
        }
    }

    /// A prompt whose first `shared` blocks are the system prompt.
    fn fresh(&mut self, shared: usize) -> Vec<u64> {
        let shared = (0..shared as u64).map(|block| 0xbeef_0000 + block);
        let own = std::iter::repeat_with(|| self.rng.u64(..));
        shared.chain(own).take(self.blocks).collect()
    }

    fn prompt(&mut self) -> Vec<u64> {
        if self.blocks == 0 {
            return Vec::new();
        }
        match self.rng.u8(..3) {
            0 => {
                let at = self.rng.usize(..self.conversations.len());
                // A turn of a conversation differs from the last one at its end.
                let keep = self.blocks - self.blocks / 8;
                let mut next = self.conversations[at][..keep].to_vec();
                next.extend(std::iter::repeat_with(|| self.rng.u64(..)).take(self.blocks - keep));
                self.conversations[at].clone_from(&next);
                next
            }
            1 => self.fresh(self.blocks / 2),
            _ => self.fresh(0),
        }
    }

    fn request(&mut self, blocks: &[u64]) {
        self.now += Duration::from_micros(200);
        let request = RequestView {
            prompt_tokens: blocks.len() as u32 * 16 + 7,
            blocks,
            ..RequestView::default()
        };
        if let Ok(pick) = self.pool.pick(&request, self.now, &mut self.rng) {
            self.in_flight.push_back(pick.lease);
        }
        if let Some(lease) = self.in_flight.get(IN_FLIGHT / 2) {
            self.pool.first_token(lease, self.now);
        }
        if self.in_flight.len() > IN_FLIGHT
            && let Some(lease) = self.in_flight.pop_front()
        {
            self.pool.finish(lease, End::Completed { output_tokens: 128 }, self.now);
        }
    }

    fn run(&mut self, requests: usize) {
        for _ in 0..requests {
            let prompt = self.prompt();
            self.request(&prompt);
        }
    }

    fn scrape(&mut self) {
        for &id in &self.ids {
            let signals = Signals {
                waiting: Some(f64::from(self.rng.u8(..4))),
                running: Some(f64::from(self.rng.u8(..64))),
                kv_usage: Some(self.rng.f64()),
                block_size: Some(16),
                blocks: Some(31_250),
                ..Signals::default()
            };
            self.pool.observe(id, &signals, self.now);
        }
    }
}
