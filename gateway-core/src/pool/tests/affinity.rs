//! Ties, rotation, prefixes, adapters and sessions.

use super::*;
use crate::signals::Adapters;

/// 99.9 % quantile of chi-square with 4 degrees of freedom.
const LIMIT: f64 = 18.47;

#[test]
fn ties_are_broken_uniformly() {
    for policy in ["least_request", "power_of_two", "predicted", "random", "weighted"] {
        let mut world = World::with_policy(5, policy);
        let shares = world.shares(10_000, &prompt(100));
        assert!(chi_square(&shares) < LIMIT, "{policy}: {shares:?}");
    }
}

#[test]
fn round_robin_gives_everyone_the_same() {
    let mut world = World::with_policy(5, "round_robin");
    assert_eq!(world.shares(10_000, &prompt(100)), [2_000; 5]);
}

#[test]
fn two_gateways_with_the_same_picture_do_not_pick_in_step() {
    let mut one = World::with_policy(8, "predicted");
    let mut other = World::with_policy(8, "predicted");
    other.rng = fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    let same = (0..400).filter(|_| one.touch(&prompt(9)) == other.touch(&prompt(9))).count();
    assert!((20..=80).contains(&same), "{same} of 400, 50 expected");
}

#[test]
fn least_request_takes_the_least_and_respects_weights() {
    let mut world = World::with_policy(0, "least_request");
    let mut specs = [spec(0), spec(1)];
    specs[1].weight = 3.0;
    world.ids = world.pool.set_endpoints(&specs, world.now);
    let mut shares = [0; 2];
    for _ in 0..40 {
        shares[world.send(&prompt(10)).0] += 1;
    }
    assert_eq!(shares, [10, 30]);
}

#[test]
fn power_of_two_never_takes_the_busiest_of_all() {
    let mut world = World::with_policy(3, "power_of_two");
    let id = world.ids[2];
    let others = [world.ids[0], world.ids[1]];
    let (busy, _lease) = world.send(&RequestView { tried: &others, ..prompt(10) });
    assert_eq!(world.ids[busy], id);
    assert_eq!(world.shares(300, &prompt(10))[2], 0);
}

#[test]
fn a_known_prefix_draws_its_continuation() {
    for policy in ["predicted", "weighted"] {
        let mut world = World::with_policy(4, policy);
        let conversation: Vec<u64> = (1..=200).collect();
        let home = world.touch(&blocks(&conversation[..100]));
        let pick = world.pick(&blocks(&conversation)).unwrap();
        assert_eq!(pick.endpoint, world.ids[home], "{policy}");
        assert_eq!(pick.cached_tokens, 1600);
        world.finish(pick.lease);
    }
}

#[test]
fn affinity_returns_after_an_imbalance() {
    for policy in ["predicted", "weighted"] {
        let mut world = World::with_policy(4, policy);
        let conversation: Vec<u64> = (1..=64).collect();
        let home = world.touch(&blocks(&conversation));
        world.observe(home, &load(200.0, 200.0, 0.99));
        let refuge = world.touch(&blocks(&conversation));
        assert_ne!(refuge, home, "{policy}");
        world.observe(home, &load(0.0, 0.0, 0.0));
        for _ in 0..50 {
            let index = world.touch(&blocks(&conversation));
            assert!(index == home || index == refuge, "{policy}: went to {index}");
        }
    }
}

#[test]
fn a_restarted_endpoint_is_not_sent_every_miss() {
    for policy in ["predicted", "weighted"] {
        let mut world = World::with_policy(4, policy);
        for conversation in 0..400_u64 {
            world.touch(&blocks(&[conversation * 2 + 1, conversation * 2 + 2]));
        }
        world.pool.restarted(world.ids[3], world.now);
        world.observe(3, &load(0.0, 0.0, 0.0));
        let mut shares = [0; 4];
        for miss in 0..4000_u64 {
            shares[world.touch(&blocks(&[1_000_000 + miss]))] += 1;
        }
        assert!(shares[3] < 1200, "{policy}: {shares:?}");
        assert!(shares[3] > 800, "{policy}: {shares:?}");
    }
}

#[test]
fn a_restart_forgets_prefixes() {
    let mut world = World::with_policy(1, "predicted");
    world.touch(&blocks(&[1, 2, 3]));
    world.pool.restarted(world.ids[0], world.now);
    let pick = world.pick(&blocks(&[1, 2, 3])).unwrap();
    assert_eq!(pick.cached_tokens, 0);
    world.finish(pick.lease);
}

#[test]
fn a_prefix_survives_reconfiguration_unless_its_grid_changes() {
    let mut world = World::with_policy(1, "predicted");
    world.touch(&blocks(&[1, 2, 3]));
    let mut settings = PoolSettings { policy: PolicySettings::Random, ..PoolSettings::default() };
    world.pool.reconfigure(settings.clone());
    assert_eq!(world.pool.endpoints(world.now)[0].indexed_blocks, 3);
    settings.prefix.block_tokens = 32;
    world.pool.reconfigure(settings);
    assert_eq!(world.pool.endpoints(world.now)[0].indexed_blocks, 0);
}

#[test]
fn a_session_stays_where_it_was() {
    let mut world = World::with_policy(8, "predicted");
    let request = RequestView { session: Some(77), ..prompt(100) };
    let home = world.touch(&request);
    assert_eq!(world.shares(100, &request)[home], 100);
}

#[test]
fn an_adapter_draws_its_requests_even_while_idle() {
    let mut world = World::with_policy(4, "predicted");
    let request = RequestView { adapter: Some("sql"), ..prompt(100) };
    let home = world.touch(&request);
    for index in 0..4 {
        // Nothing is running, so the engine's page shows no adapter.
        let adapters = Adapters { max: 2, ..Adapters::default() };
        world.observe(index, &Signals { adapters: Some(adapters), ..load(0.0, 0.0, 0.0) });
    }
    assert_eq!(world.shares(100, &request)[home], 100);
}

#[test]
fn a_slow_start_keeps_the_newcomer_from_the_whole_load() {
    let slow_start = Some(Duration::from_secs(100));
    let policy = PolicySettings::LeastRequest;
    let mut world = World::new(1, PoolSettings { policy, slow_start, ..PoolSettings::default() });
    world.pass(200_000);
    let mut leases: Vec<_> = (0..20)
        .map(|_| {
            world.observe(0, &load(0.0, 0.0, 0.0));
            world.send(&prompt(10)).1
        })
        .collect();
    world.set_endpoints(&[0, 1]);
    let mut shares = [0; 2];
    for _ in 0..10 {
        let (index, lease) = world.send(&prompt(10));
        shares[index] += 1;
        leases.push(lease);
    }
    assert!(shares[1] <= 3, "{shares:?}");
    for lease in leases {
        world.finish(lease);
    }
}

#[test]
fn an_adapter_without_a_free_slot_goes_where_one_is_free_even_to_a_busier_endpoint() {
    let mut world = World::with_policy(2, "predicted");
    let running = |names: &[&str]| Adapters {
        max: 2,
        running: names.iter().map(ToString::to_string).collect(),
        waiting: Vec::new(),
    };
    let full = Signals { adapters: Some(running(&["a", "b"])), ..load(0.0, 2.0, 0.1) };
    let free = Signals { adapters: Some(running(&["c"])), ..load(3.0, 40.0, 0.1) };
    world.observe(0, &full);
    world.observe(1, &free);
    let request = |adapter| RequestView { adapter: Some(adapter), ..prompt(100) };
    // One each: an endpoint that was asked for an adapter once is taken to have it.
    assert_eq!(world.touch(&request("d")), 1);
    assert_eq!(world.touch(&request("a")), 0);
}

/// Where a gateway sends the first request of each of 40 applications, while engines run
/// `running` requests each.
fn firsts(seed: u64, running: f64) -> Vec<usize> {
    let mut world = World::with_policy(8, "predicted");
    world.rng = fastrand::Rng::with_seed(seed);
    (0..40)
        .map(|application| {
            for index in 0..8 {
                world.observe(index, &load(0.0, running, 0.2));
            }
            let blocks: Vec<u64> = (0..100).map(|block| application * 1_000 + block).collect();
            world.touch(&RequestView { blocks: &blocks, ..prompt(1_600) })
        })
        .collect()
}

#[test]
fn gateways_that_do_not_know_of_each_other_agree_on_where_a_new_prefix_goes() {
    let (one, other) = (firsts(1, 16.0), firsts(2, 16.0));
    assert_eq!(one[..8], other[..8]);
    let homes: std::collections::HashSet<_> = one.iter().collect();
    assert!(homes.len() >= 6, "{one:?}");
    // Alone, nobody has anything in a cache.
    assert_ne!(firsts(1, 0.0), firsts(2, 0.0));
}
