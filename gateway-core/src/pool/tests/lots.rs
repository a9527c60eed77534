//! Prompts that wait until several can start in one step.

use super::*;
use crate::policy::{Lots, PredictedSettings};
use crate::pool::LeaseId;
use crate::pool::batch_limit::BatchLimit;
use crate::request::Answer;

/// Sequences of a batch; a lot is two.
const LIMIT: u32 = 64;

/// One endpoint whose limit is known and whose batch is full, and who runs there.
fn full() -> (World, Vec<Lease>) {
    let mut world = World::with_policy(1, "predicted");
    let running = (0..LIMIT)
        .map(|_| {
            let pick = world.pick(&prompt(100)).unwrap();
            assert!(!pick.held);
            world.pass(10);
            world.pool.first_token(&pick.lease, world.now);
            pick.lease
        })
        .collect();
    world.observe(0, &load(0.0, f64::from(LIMIT), 0.5));
    world.pool.endpoints[0].batch_limit = BatchLimit::of(f64::from(LIMIT), world.now);
    (world, running)
}

fn hold(world: &mut World) -> Lease {
    let pick = world.pick(&prompt(100)).unwrap();
    assert!(pick.held);
    pick.lease
}

/// Who is due now.
fn due(world: &mut World) -> Vec<LeaseId> {
    std::iter::from_fn(|| world.pool.next_due(world.now)).collect()
}

#[test]
fn prompts_that_find_a_full_batch_go_in_lots_and_in_order() {
    let (mut world, mut running) = full();
    let held: Vec<Lease> = (0..5).map(|_| hold(&mut world)).collect();
    assert_eq!((world.pool.held(), due(&mut world)), (5, vec![]));
    world.finish(running.pop().unwrap());
    assert_eq!(due(&mut world), []);
    world.finish(running.pop().unwrap());
    assert_eq!(due(&mut world), [held[0].id(), held[1].id()]);
    assert_eq!(world.pool.held(), 3);
    // Nobody overtakes those who wait.
    assert!(hold(&mut world).id() != held[2].id());
}

#[test]
fn a_prompt_with_room_is_not_held() {
    let (mut world, mut running) = full();
    let first = hold(&mut world);
    world.finish(running.pop().unwrap());
    world.finish(running.pop().unwrap());
    assert_eq!(due(&mut world), [first.id()]);
    assert!(!world.pick(&prompt(100)).unwrap().held);
    assert!(world.pick(&prompt(100)).unwrap().held);
}

#[test]
fn who_goes_away_while_held_leaves_no_trace() {
    let (mut world, mut running) = full();
    let (first, second) = (hold(&mut world), hold(&mut world));
    world.pool.finish(first, End::NotSent, world.now);
    assert_eq!(world.pool.held(), 1);
    for lease in running.drain(..) {
        world.finish(lease);
    }
    assert_eq!(due(&mut world), [second.id()]);
    world.finish(second);
    assert_eq!(world.pool.rows[0].own.in_flight, 0);
    assert_eq!((world.pool.rows[0].own.held, world.pool.rows[0].own.held_tokens), (0, 0));
}

#[test]
fn whatever_is_in_doubt_is_sent_at_once() {
    let at_once = |change: fn(&mut World), request: RequestView<'_>| {
        let (mut world, _running) = full();
        change(&mut world);
        assert!(!world.pick(&request).unwrap().held);
    };
    // No limit is known, the engine does not tell, readings are off, or lots are.
    at_once(|world| world.pool.endpoints[0].batch_limit = BatchLimit::default(), prompt(100));
    at_once(|world| world.observe(0, &Signals::default()), prompt(100));
    at_once(
        |world| {
            let off = crate::pool::Scraping::Off;
            world.pool.reconfigure(PoolSettings { scraping: off, ..PoolSettings::default() });
        },
        prompt(100),
    );
    at_once(|world| world.pool.reconfigure(settings(Lots::Off)), prompt(100));
    // Its first token will not be seen, or it may wait for an adapter.
    at_once(|_| (), RequestView { answer: Answer::Whole, ..prompt(100) });
    at_once(|_| (), RequestView { adapter: Some("sql"), ..prompt(100) });
}

#[test]
fn nobody_waits_while_an_endpoint_is_idle() {
    let (mut world, _running) = full();
    world.set_endpoints(&[0, 1]);
    world.observe(1, &load(0.0, 0.0, 0.0));
    assert!(!world.pick(&prompt(100)).unwrap().held);
}

#[test]
fn an_endpoint_that_stops_serving_holds_nobody() {
    let (mut world, _running) = full();
    let lease = hold(&mut world);
    assert!(world.pool.is_serving(world.ids[0], world.now));
    world.pool.set_draining(world.ids[0], crate::pool::Drain::On);
    assert!(!world.pool.is_serving(world.ids[0], world.now));
    assert_eq!(due(&mut world), [lease.id()]);
}

#[test]
fn those_who_wait_go_at_once_when_lots_are_turned_off() {
    let (mut world, _running) = full();
    let lease = hold(&mut world);
    world.pool.reconfigure(settings(Lots::Off));
    assert_eq!(due(&mut world), [lease.id()]);
}

#[test]
fn a_full_batch_is_learnt_from_steps_that_leave_prompts() {
    let (mut world, mut running) = full();
    world.pool.endpoints[0].batch_limit = BatchLimit::default();
    let blocks =
        Signals { blocks: Some(9_000), block_size: Some(16), ..load(0.0, f64::from(LIMIT), 0.5) };
    world.observe(0, &blocks);
    // Some step has computed as much as these prompts are.
    let together: Vec<Lease> = (0..3).map(|_| world.pick(&prompt(300)).unwrap().lease).collect();
    world.pass(100);
    for lease in together {
        world.pool.first_token(&lease, world.now);
        running.push(lease);
    }
    running.drain(..3).for_each(|lease| world.finish(lease));
    let mut waiting: Vec<Lease> =
        (0..9).map(|_| world.pick(&prompt(100)).unwrap().lease).rev().collect();
    for _ in 0..6 {
        world.pass(100);
        world.finish(running.remove(0));
        let started = waiting.pop().unwrap();
        world.pool.first_token(&started, world.now);
        running.push(started);
    }
    let limit = world.pool.endpoints[0].batch_limit.known();
    assert_eq!(limit, Some(f64::from(LIMIT)));
}

fn settings(lots: Lots) -> PoolSettings {
    let policy = PredictedSettings { lots, ..PredictedSettings::default() };
    PoolSettings { policy: PolicySettings::Predicted(policy), ..PoolSettings::default() }
}
