//! `predicted` learns, and what it learns is right.

use super::*;
use crate::pool::Verdict;
use crate::request::Answer;

/// A server that computes one prompt after the other.
#[derive(Clone, Copy)]
struct Server {
    overhead: f64,
    seconds_per_thousand: f64,
    free_at: f64,
}

impl Server {
    fn new(seconds_per_thousand: f64) -> Self {
        Self { overhead: 0.02, seconds_per_thousand, free_at: 0.0 }
    }

    /// When the first token of a prompt that arrives at `now` comes.
    fn first_token(&mut self, now: f64, tokens: u32) -> f64 {
        let work = self.seconds_per_thousand * f64::from(tokens) / 1e3;
        self.free_at = self.free_at.max(now) + work;
        self.free_at + self.overhead
    }
}

/// What came of a run.
struct Outcome {
    mean_ttft: f64,
    shares: Vec<usize>,
}

/// Sends prompts of 200 to 3,800 tokens in a Poisson stream to `servers`, for
/// `seconds`; the pool learns as it would in the daemon.
fn simulate(policy: &str, servers: Vec<Server>, per_second: f64, seconds: f64) -> Outcome {
    simulate_answers(Answer::Streamed, policy, servers, per_second, seconds)
}

fn simulate_answers(
    answer: Answer,
    policy: &str,
    mut servers: Vec<Server>,
    per_second: f64,
    seconds: f64,
) -> Outcome {
    let mut world = World::with_policy(servers.len(), policy);
    let start = world.now;
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    let mut open: Vec<(f64, Lease)> = Vec::new();
    let mut ttfts = Vec::new();
    let mut shares = vec![0; servers.len()];
    let (mut now, mut scraped) = (0.0, 0.0);
    while now < seconds {
        now -= (1.0 - world.rng.f64()).ln() / per_second;
        open.sort_by(|a, b| b.0.total_cmp(&a.0));
        while open.last().is_some_and(|(done, _)| *done <= now) {
            let (done, lease) = open.pop().unwrap();
            if answer == Answer::Streamed {
                world.pool.first_token(&lease, at(done));
            }
            world.pool.finish(lease, End::Completed { output_tokens: 1 }, at(done));
        }
        world.now = at(now);
        if now - scraped > 0.05 {
            scraped = now;
            for index in 0..servers.len() {
                let queued = world.pool.rows[index].own.in_flight;
                let waiting = f64::from(queued.saturating_sub(1));
                world.observe(index, &load(waiting, f64::from(queued.min(1)), 0.3));
            }
        }
        let tokens = world.rng.u32(200..3_800);
        let (index, lease) = world.send(&RequestView { answer, ..prompt(tokens) });
        let done = servers[index].first_token(now, tokens);
        shares[index] += 1;
        ttfts.push(done - now);
        open.push((done, lease));
    }
    Outcome { mean_ttft: ttfts.iter().sum::<f64>() / ttfts.len() as f64, shares }
}

/// Two fast GPUs and two that need five times as long.
fn mixed() -> Vec<Server> {
    vec![Server::new(0.1), Server::new(0.1), Server::new(0.5), Server::new(0.5)]
}

#[test]
fn a_mixed_fleet_answers_far_sooner_than_by_round_robin() {
    // 24 k tokens per second are possible; 8 × 2 k are asked for.
    let ours = simulate("predicted", mixed(), 8.0, 300.0);
    let theirs = simulate("round_robin", mixed(), 8.0, 300.0);
    assert!(
        ours.mean_ttft * 10.0 < theirs.mean_ttft,
        "{} s against {} s",
        ours.mean_ttft,
        theirs.mean_ttft
    );
    let slow = (ours.shares[2] + ours.shares[3]) as f64 / ours.shares.iter().sum::<usize>() as f64;
    assert!((0.02..0.30).contains(&slow), "slow GPUs got {slow}");
}

#[test]
fn a_mixed_fleet_is_told_apart_by_whole_answers_alone() {
    let ours = simulate_answers(Answer::Whole, "predicted", mixed(), 8.0, 300.0);
    let theirs = simulate_answers(Answer::Whole, "least_request", mixed(), 8.0, 300.0);
    assert!(
        ours.mean_ttft < 0.8 * theirs.mean_ttft,
        "{} s against {} s, shares {:?}",
        ours.mean_ttft,
        theirs.mean_ttft,
        ours.shares
    );
}

#[test]
fn an_equal_fleet_does_no_worse_than_least_request() {
    let fleet = || vec![Server::new(0.2); 4];
    let ours = simulate("predicted", fleet(), 7.0, 300.0);
    let theirs = simulate("least_request", fleet(), 7.0, 300.0);
    assert!(ours.mean_ttft < theirs.mean_ttft, "{} s, {} s", ours.mean_ttft, theirs.mean_ttft);
    let most = *ours.shares.iter().max().unwrap() as f64;
    let least = *ours.shares.iter().min().unwrap() as f64;
    assert!(most < 1.5 * least, "{:?}", ours.shares);
}

/// Lets one endpoint answer `count` prompts, each after `seconds`.
fn teach(world: &mut World, index: usize, count: usize, tokens: u32, seconds: f64) {
    let others: Vec<_> = world.ids.iter().copied().filter(|&id| id != world.ids[index]).collect();
    for _ in 0..count {
        let (_, lease) = world.send(&RequestView { tried: &others, ..prompt(tokens) });
        world.now += Duration::from_secs_f64(seconds);
        world.pool.first_token(&lease, world.now);
        world.finish(lease);
        for index in 0..world.ids.len() {
            world.observe(index, &load(0.0, 0.0, 0.0));
        }
    }
}

fn prediction(world: &World, index: usize, tokens: u32) -> f64 {
    let explanation = world.pool.explain(&prompt(tokens), world.now);
    match &explanation.endpoints[index].verdict {
        Verdict::Rated { scores, .. } => scores[0].1,
        Verdict::Dropped(name) => panic!("dropped: {name}"),
    }
}

#[test]
fn a_slow_endpoint_is_known_as_slow_without_being_told() {
    let mut world = World::with_policy(2, "predicted");
    for _ in 0..40 {
        teach(&mut world, 0, 1, 1000, 0.12);
        teach(&mut world, 0, 1, 4000, 0.42);
        teach(&mut world, 1, 1, 1000, 0.52);
        teach(&mut world, 1, 1, 4000, 2.02);
    }
    let (fast, slow) = (prediction(&world, 0, 2000), prediction(&world, 1, 2000));
    assert!((fast - 0.22).abs() < 0.05, "{fast}");
    assert!((slow - 1.02).abs() < 0.25, "{slow}");
    assert_eq!(world.shares(100, &prompt(2000)), [100, 0]);
    let views = world.pool.endpoints(world.now);
    assert!(views[0].speed.mean_error < Duration::from_millis(60), "{:?}", views[0].speed);
    assert!((views[0].speed.prefill_tokens_per_second - 10_000.0).abs() < 2_500.0);
}

#[test]
fn one_stuck_answer_does_not_condemn_an_endpoint() {
    let mut world = World::with_policy(2, "predicted");
    teach(&mut world, 0, 40, 1000, 0.2);
    teach(&mut world, 1, 40, 1000, 0.2);
    let before = prediction(&world, 0, 1000);
    teach(&mut world, 0, 1, 1000, 600.0);
    let after = prediction(&world, 0, 1000);
    assert!(after < 2.5 * before, "{before} then {after}");
    teach(&mut world, 0, 20, 1000, 0.2);
    let later = prediction(&world, 0, 1000);
    assert!((later - before).abs() < 0.1, "{before}, later {later}");
}

#[test]
fn an_endpoint_that_has_become_slow_is_noticed() {
    let mut world = World::with_policy(2, "predicted");
    teach(&mut world, 0, 40, 1000, 0.2);
    teach(&mut world, 0, 25, 1000, 1.0);
    assert!(prediction(&world, 0, 1000) > 0.7, "{}", prediction(&world, 0, 1000));
}

#[test]
fn a_cold_endpoint_is_neither_infinite_favourite_nor_never_chosen() {
    let mut world = World::with_policy(4, "predicted");
    for index in 0..4 {
        teach(&mut world, index, 30, 1000, 0.3);
    }
    world.set_endpoints(&[0, 1, 2, 3, 4]);
    let mut shares = [0_usize; 5];
    let mut open = std::collections::VecDeque::new();
    for round in 0..200 {
        let (index, lease) = world.send(&prompt(1000));
        shares[index] += 1;
        open.push_back(lease);
        world.pass(50);
        for index in 0..5 {
            world.observe(index, &load(0.0, 1.0, 0.1));
        }
        if round > 5 {
            let lease = open.pop_front().unwrap();
            world.pool.first_token(&lease, world.now);
            world.finish(lease);
        }
    }
    assert!((20..=80).contains(&shares[4]), "{shares:?}");
}

#[test]
fn an_endpoint_not_tried_for_long_gets_a_fresh_chance() {
    let mut world = World::with_policy(2, "predicted");
    for _ in 0..40 {
        teach(&mut world, 1, 1, 1000, 5.0);
        teach(&mut world, 0, 3, 1000, 0.2);
    }
    let condemned = prediction(&world, 1, 1000);
    for _ in 0..1200 {
        world.pass(1_000);
        for index in 0..2 {
            world.observe(index, &load(0.0, 0.0, 0.0));
        }
    }
    let later = prediction(&world, 1, 1000);
    assert!(later < condemned / 1.5, "{condemned}, later {later}");
}

#[test]
fn a_nearly_full_cache_is_avoided_when_another_is_free() {
    let mut world = World::with_policy(2, "predicted");
    world.observe(0, &load(0.0, 4.0, 0.99));
    world.observe(1, &load(0.0, 4.0, 0.5));
    assert_eq!(world.shares(50, &prompt(100)), [0, 50]);
}

#[test]
fn a_prompt_is_not_put_before_a_large_running_batch() {
    let mut world = World::with_policy(2, "predicted");
    world.observe(0, &load(0.0, 120.0, 0.5));
    world.observe(1, &load(0.0, 4.0, 0.5));
    assert_eq!(world.shares(50, &prompt(4000)), [0, 50]);
}

#[test]
fn a_weight_scales_what_is_assumed_of_a_cold_endpoint() {
    let mut world = World::with_policy(0, "predicted");
    let mut specs = [spec(0), spec(1)];
    specs[0].weight = 2.0;
    world.ids = world.pool.set_endpoints(&specs, world.now);
    let (twice, once) = (prediction(&world, 0, 1000), prediction(&world, 1, 1000));
    assert!((once - 2.0 * twice).abs() < 1e-9, "{twice}, {once}");
}

#[test]
fn engines_that_hang_share_what_comes_even_where_one_began_later() {
    let mut world = World::with_policy(4, "predicted");
    for index in 0..3 {
        teach(&mut world, index, 10, 50, 0.004);
    }
    let mut shares = [0_usize; 4];
    let mut held = Vec::new();
    for _ in 0..40 {
        let (index, lease) = world.send(&prompt(30));
        shares[index] += 1;
        held.push(lease);
        world.pass(1);
    }
    assert!(shares.iter().all(|share| (1..=20).contains(share)), "{shares:?}");
}

#[test]
fn an_idle_fleet_shares_requests_that_come_one_after_the_other() {
    let mut world = World::with_policy(3, "predicted");
    // Measured a little differently, as equal machines are.
    for (index, seconds) in [0.0300, 0.0312, 0.0322].into_iter().enumerate() {
        teach(&mut world, index, 30, 100, seconds);
    }
    let shares = world.shares(300, &prompt(100));
    assert!(shares.iter().all(|share| (60..=140).contains(share)), "{shares:?}");
}

/// Sends `count` prompts of 600 tokens to the endpoint at `index` and leaves them there.
fn burden(world: &mut World, index: usize, count: usize) -> Vec<Lease> {
    let others: Vec<_> = world.ids.iter().copied().filter(|&id| id != world.ids[index]).collect();
    (0..count).map(|_| world.send(&RequestView { tried: &others, ..prompt(600) }).1).collect()
}

#[test]
fn what_is_cached_elsewhere_is_computed_again_only_where_nobody_waits() {
    let mut world = World::with_policy(2, "predicted");
    let blocks: Vec<u64> = (1..=125).collect();
    let shared = RequestView { blocks: &blocks, ..prompt(2_000) };
    let (home, _) = world.send(&shared);
    let other = 1 - home;
    let _queue = burden(&mut world, home, 30);
    assert_eq!(world.shares(1, &shared)[other], 1, "nobody waits there");

    let mut world = World::with_policy(2, "predicted");
    let (home, _) = world.send(&shared);
    let other = 1 - home;
    let _queues = [burden(&mut world, home, 30), burden(&mut world, other, 24)];
    // 0.7 s less to wait for, and 0.4 s to compute.
    assert_eq!(world.shares(20, &shared)[home], 20);
}
