//! What is reserved is given back exactly once.

use super::*;
use crate::pool::{Failure, Room};
use crate::request::Answer;

fn in_flight(world: &World) -> (u32, u64) {
    let view = &world.pool.endpoints(world.now)[0];
    (view.in_flight_requests, view.in_flight_tokens)
}

#[test]
fn tokens_leave_with_the_first_token_and_the_request_with_its_end() {
    let mut world = World::new(1, PoolSettings::default());
    let (_, lease) = world.send(&prompt(500));
    assert_eq!(in_flight(&world), (1, 500));
    world.pool.first_token(&lease, world.now);
    assert_eq!(in_flight(&world), (1, 0));
    world.pool.first_token(&lease, world.now);
    assert_eq!(in_flight(&world), (1, 0));
    world.finish(lease);
    assert_eq!(in_flight(&world), (0, 0));
}

#[test]
fn every_end_gives_everything_back() {
    let mut world = World::new(1, PoolSettings::default());
    for end in [
        End::Cancelled,
        End::Completed { output_tokens: 0 },
        End::Failed(Failure::Reset),
        End::NotSent,
    ] {
        let (_, lease) = world.send(&prompt(500));
        world.pool.finish(lease, end, world.now);
        assert_eq!(in_flight(&world), (0, 0), "{end:?}");
    }
}

#[test]
fn a_lease_outlives_its_endpoint() {
    let mut world = World::new(2, PoolSettings::default());
    let leases: Vec<_> = (0..10).map(|_| world.send(&prompt(10)).1).collect();
    world.set_endpoints(&[]);
    assert!(world.pool.endpoints(world.now).is_empty());
    for lease in leases {
        world.pool.first_token(&lease, world.now);
        world.finish(lease);
    }
    assert_eq!(world.pool.vacant.len(), 2, "slots are free again");
    assert_eq!(world.pool.ledger.len(), 0);
}

#[test]
fn an_endpoint_that_flaps_keeps_its_id_and_its_counts() {
    let mut world = World::new(1, PoolSettings::default());
    let id = world.ids[0];
    let (_, lease) = world.send(&prompt(500));
    world.set_endpoints(&[]);
    world.set_endpoints(&[0]);
    assert_eq!(world.ids, [id]);
    assert_eq!(in_flight(&world), (1, 500));
    world.finish(lease);
    assert_eq!(in_flight(&world), (0, 0));
}

#[test]
fn ids_are_never_used_again_but_slots_are() {
    let mut world = World::new(1, PoolSettings::default());
    let first = world.ids[0];
    for index in 1..100 {
        world.set_endpoints(&[index]);
        assert!(world.ids[0] > first);
    }
    assert!(world.pool.rows.len() <= 2);
}

#[test]
fn setting_the_same_endpoints_again_changes_nothing() {
    let mut world = World::new(3, PoolSettings::default());
    let (_, lease) = world.send(&blocks(&[1, 2, 3]));
    let before = (world.ids.clone(), world.pool.endpoints(world.now));
    world.set_endpoints(&[0, 1, 2]);
    assert_eq!(before, (world.ids.clone(), world.pool.endpoints(world.now)));
    world.finish(lease);
}

#[test]
fn a_burst_between_two_readings_is_spread_evenly() {
    for policy in ["predicted", "weighted", "least_request"] {
        let mut world = World::with_policy(10, policy);
        let mut shares = [0; 10];
        let leases: Vec<_> = (0..100)
            .map(|_| {
                let (index, lease) = world.send(&prompt(1000));
                shares[index] += 1;
                lease
            })
            .collect();
        assert!(shares.iter().all(|&share| (9..=11).contains(&share)), "{policy}: {shares:?}");
        for lease in leases {
            world.finish(lease);
        }
    }
}

#[test]
fn the_next_reading_takes_the_place_of_what_was_added_on_top() {
    let mut world = World::with_policy(1, "weighted");
    let leases: Vec<_> = (0..6).map(|_| world.send(&prompt(10)).1).collect();
    assert_eq!(world.pool.rows[0].waiting, Some(6.0));
    world.pass(50);
    world.observe(0, &load(2.0, 4.0, 0.1));
    assert_eq!(world.pool.rows[0].waiting, Some(2.0));
    for lease in leases {
        world.finish(lease);
    }
    assert_eq!(world.pool.rows[0].running, Some(0.0));
}

#[test]
fn a_whole_answer_does_not_count_as_queued_until_its_end() {
    let mut world = World::new(1, PoolSettings::default());
    let request = RequestView { answer: Answer::Whole, ..prompt(1000) };
    let (_, lease) = world.send(&request);
    assert_eq!(in_flight(&world), (1, 1000));
    world.pass(30_000);
    world.observe(0, &load(0.0, 1.0, 0.1));
    assert_eq!(in_flight(&world), (1, 0), "its prompt has long been computed");
    world.finish(lease);
    assert_eq!(in_flight(&world), (0, 0));
}

#[test]
fn the_drain_rate_is_what_ended_per_second() {
    let mut world = World::new(1, PoolSettings::default());
    for _ in 0..200 {
        world.pass(100);
        world.observe(0, &load(0.0, 0.0, 0.0));
        world.touch(&prompt(10));
    }
    let rate = world.pool.drain_rate(world.now);
    assert!((rate - 10.0).abs() < 1.0, "{rate}");
}

#[test]
fn saturation_is_the_mean_of_the_extensions_detector() {
    let mut world = World::new(2, PoolSettings::default());
    world.observe(0, &load(10.0, 30.0, 0.4));
    world.observe(1, &load(0.0, 10.0, 0.4));
    // max(10/5, 0.4/0.8) = 2 and max(0, 0.5) = 0.5
    assert_eq!(world.pool.room(world.now), Room::Open { saturation: 1.25 });
    world.observe(1, &load(0.0, 10.0, 0.8));
    assert_eq!(world.pool.room(world.now), Room::Full { saturation: 1.5 });
}

#[test]
fn an_endpoint_that_may_not_serve_counts_as_full_and_none_is_no_room() {
    let mut world = World::new(2, PoolSettings::default());
    world.pool.set_probe(world.ids[0], crate::pool::Probe::Failing, world.now);
    assert_eq!(world.pool.room(world.now), Room::Open { saturation: 0.5 });
    world.pool.set_probe(world.ids[1], crate::pool::Probe::Failing, world.now);
    assert_eq!(world.pool.room(world.now), Room::None);
}

#[test]
fn a_burst_fills_the_pool_before_the_next_reading_tells() {
    let mut world = World::new(1, PoolSettings::default());
    let leases: Vec<_> = (0..20).map(|_| world.send(&prompt(10)).1).collect();
    assert!(matches!(world.pool.room(world.now), Room::Open { .. }));
    let last = world.send(&prompt(10)).1;
    assert!(matches!(world.pool.room(world.now), Room::Full { .. }), "16 at once and 5 queued");
    for lease in leases.into_iter().chain([last]) {
        world.finish(lease);
    }
}
