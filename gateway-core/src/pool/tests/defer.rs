//! Long prompts that give way to short ones.

use super::*;
use crate::peer::{Event, PeerId, Peers};
use crate::policy::PredictedSettings;
use crate::pool::batch_limit::BatchLimit;
use crate::pool::{Drain, LeaseId};
use crate::request::Answer;

/// Of so many tokens are the prompts that come first.
const USUAL: u32 = 300;
const LONG: u32 = 8_000;

/// Endpoints with `each` usual prompts that are not computed yet.
fn busy(endpoints: usize, each: usize, settings: PoolSettings) -> (World, Vec<Lease>) {
    let mut world = World::new(endpoints, settings);
    // What is usual is known.
    for _ in 0..100 {
        world.touch(&prompt(USUAL));
    }
    let mut leases = Vec::new();
    for _ in 0..endpoints * each {
        leases.push(world.send(&prompt(USUAL)).1);
    }
    let loads: Vec<u32> = world.pool.rows.iter().map(|row| row.own.prefilling).collect();
    assert_eq!(loads, vec![each as u32; endpoints]);
    (world, leases)
}

fn defer(world: &mut World) -> Lease {
    let pick = world.pick(&prompt(LONG)).unwrap();
    assert!(pick.held && pick.predicted_ttft.is_none());
    pick.lease
}

/// Who is due now.
fn due(world: &mut World) -> Vec<LeaseId> {
    std::iter::from_fn(|| world.pool.next_due(world.now)).collect()
}

fn answer_all(world: &mut World, leases: &mut Vec<Lease>) {
    for lease in leases.drain(..) {
        world.pool.first_token(&lease, world.now);
        world.finish(lease);
    }
}

#[test]
fn a_long_prompt_waits_until_those_before_it_are_computed() {
    let (mut world, mut usual) = busy(1, 8, PoolSettings::default());
    let long = defer(&mut world);
    assert_eq!((world.pool.deferred(), due(&mut world)), (1, vec![]));
    // Five are 1,500 tokens, a fifth of its own are 1,600.
    usual.drain(..3).for_each(|lease| world.pool.first_token(&lease, world.now));
    assert_eq!(due(&mut world), [long.id()]);
    assert_eq!(world.pool.deferred(), 0);
    world.pool.first_token(&long, world.now);
    world.finish(long);
    answer_all(&mut world, &mut usual);
    assert_eq!(world.pool.rows[0].own.prefill_tokens, 0);
}

#[test]
fn its_patience_is_sixteen_times_what_it_takes_to_compute() {
    let (mut world, _usual) = busy(1, 8, PoolSettings::default());
    let seconds = world.pool.rows[0].speed[1] / 1e3 * f64::from(LONG);
    let long = defer(&mut world);
    let patience = (16.0 * seconds * 1e3) as u64;
    assert!((1_000..29_000).contains(&patience), "{patience} ms");
    world.pass(patience - 1);
    world.observe(0, &load(0.0, 8.0, 0.1));
    assert_eq!(due(&mut world), []);
    world.pass(2);
    assert_eq!(due(&mut world), [long.id()]);
}

#[test]
fn nobody_gives_way_for_longer_than_the_operator_wants() {
    let brief = settings(Duration::from_millis(700));
    let (mut world, _usual) = busy(1, 8, brief);
    let long = defer(&mut world);
    world.pass(699);
    assert_eq!(due(&mut world), []);
    world.pass(1);
    assert_eq!(due(&mut world), [long.id()]);
}

#[test]
fn short_ones_do_not_see_it_and_long_ones_do() {
    let (mut world, _usual) = busy(2, 8, PoolSettings::default());
    let wait = |world: &mut World, tokens, at: usize| {
        let explained = world.pool.explain(&prompt(tokens), world.now);
        let crate::pool::Verdict::Rated { scores, .. } = &explained.endpoints[at].verdict else {
            panic!("{explained:?}")
        };
        scores[0].1
    };
    let before = [wait(&mut world, USUAL, 0), wait(&mut world, USUAL, 1)];
    let (first, _first) = world.send(&prompt(LONG));
    assert_eq!([wait(&mut world, USUAL, 0), wait(&mut world, USUAL, 1)], before);
    let (second, _second) = world.send(&prompt(LONG));
    assert_ne!(first, second);
    let (longer, shorter) = (wait(&mut world, LONG, first), wait(&mut world, USUAL, first));
    let computing = world.pool.rows[first].speed[1] / 1e3;
    let apart = computing * f64::from(LONG - USUAL);
    assert!((longer - shorter - apart - computing * f64::from(LONG)).abs() < 1e-6);
}

#[test]
fn those_that_give_way_go_one_after_the_other() {
    let (mut world, mut usual) = busy(1, 8, PoolSettings::default());
    let (first, second) = (defer(&mut world), defer(&mut world));
    answer_all(&mut world, &mut usual);
    assert_eq!(due(&mut world), [first.id()]);
    world.pool.first_token(&first, world.now);
    assert_eq!(due(&mut world), [second.id()]);
}

#[test]
fn who_goes_away_meanwhile_leaves_no_trace() {
    let (mut world, mut usual) = busy(1, 8, PoolSettings::default());
    let long = defer(&mut world);
    world.pool.finish(long, End::NotSent, world.now);
    assert_eq!(world.pool.deferred(), 0);
    answer_all(&mut world, &mut usual);
    assert_eq!(due(&mut world), []);
    let own = world.pool.rows[0].own;
    assert_eq!((own.in_flight, own.held, own.deferred, own.deferred_tokens), (0, 0, 0, 0));
    assert!(world.pool.deferring.is_empty());
}

#[test]
fn whatever_is_in_doubt_is_sent_at_once() {
    let at_once = |settings: PoolSettings, request: RequestView<'_>| {
        let (mut world, _usual) = busy(1, 8, settings);
        assert!(!world.pick(&request).unwrap().held);
    };
    at_once(settings(Duration::ZERO), prompt(LONG));
    let policy = "weighted".parse().unwrap();
    at_once(PoolSettings { policy, ..PoolSettings::default() }, prompt(LONG));
    // Its first token will not be seen, or it may wait for an adapter.
    let usual = PoolSettings::default;
    at_once(usual(), RequestView { answer: Answer::Whole, ..prompt(LONG) });
    at_once(usual(), RequestView { adapter: Some("sql"), ..prompt(LONG) });
    // It is long for such prompts, and short for an engine; or not much longer than usual.
    let (mut world, _short) = {
        let mut world = World::new(1, usual());
        let leases: Vec<Lease> = (0..100).map(|_| world.send(&prompt(20)).1).collect();
        (world, leases)
    };
    assert!(!world.pick(&prompt(1_000)).unwrap().held);
    at_once(usual(), prompt(USUAL * 7));
}

#[test]
fn nobody_gives_way_while_an_endpoint_is_idle() {
    let (mut world, _usual) = busy(1, 8, PoolSettings::default());
    world.set_endpoints(&[0, 1]);
    world.observe(1, &load(0.0, 0.0, 0.0));
    assert!(!world.pick(&prompt(LONG)).unwrap().held);
}

#[test]
fn an_endpoint_that_stops_serving_keeps_nobody() {
    let (mut world, _usual) = busy(1, 8, PoolSettings::default());
    let long = defer(&mut world);
    world.pool.set_draining(world.ids[0], Drain::On);
    assert_eq!(due(&mut world), [long.id()]);
    assert!(!world.pool.is_serving(world.ids[0], world.now));
}

#[test]
fn those_who_wait_go_at_once_when_it_is_turned_off() {
    let (mut world, _usual) = busy(1, 8, PoolSettings::default());
    let long = defer(&mut world);
    world.pool.reconfigure(settings(Duration::ZERO));
    assert_eq!(due(&mut world), [long.id()]);
}

#[test]
fn whoever_has_given_way_waits_for_a_place_like_everybody() {
    let (mut world, mut usual) = busy(1, 8, PoolSettings::default());
    let long = defer(&mut world);
    world.pool.endpoints[0].batch_limit = BatchLimit::of(64.0, world.now);
    answer_all(&mut world, &mut usual);
    let running: Vec<Lease> = (0..64).map(|_| world.send(&prompt(1)).1).collect();
    for lease in &running {
        world.pool.first_token(lease, world.now);
    }
    world.observe(0, &load(0.0, 64.0, 0.5));
    assert_eq!(due(&mut world), []);
    assert_eq!((world.pool.held(), world.pool.deferred()), (1, 0));
    running.into_iter().take(2).for_each(|lease| world.finish(lease));
    assert_eq!(due(&mut world), [long.id()]);
}

#[test]
fn peers_hear_of_it_when_it_is_sent() {
    let known = PoolSettings { peers: Peers::Known, ..PoolSettings::default() };
    let (mut world, mut usual) = busy(1, 8, known);
    let all = world.pool.report(0, world.now);
    let long = defer(&mut world);
    let sent = |world: &World, since| {
        let report = world.pool.report(since, world.now);
        let sent = report.news.iter().filter_map(|news| match &news.what {
            Event::Sent(sent) => Some(sent.uncached_tokens),
            _ => None,
        });
        sent.filter(|&tokens| tokens == LONG).count()
    };
    assert_eq!(sent(&world, all.next), 0);
    // Nor who asks for everything, though the journal has forgotten.
    world.pool.journal.clear();
    assert_eq!(sent(&world, 0), 0);
    answer_all(&mut world, &mut usual);
    assert_eq!(due(&mut world), [long.id()]);
    assert_eq!(sent(&world, 0), 1);
    // Ends of what was never told say nothing.
    let mut other = World::new(1, PoolSettings { peers: Peers::Known, ..PoolSettings::default() });
    let another = defer_and_leave(&mut world);
    let report = world.pool.report(0, world.now);
    assert!(report.news.iter().any(|news| news.request == another));
    other.pool.hear(PeerId(1), &report, other.now, other.now);
    assert_eq!(other.pool.rows[0].own.guests, 1);
}

/// Defers a request that ends before it is sent; returns its number.
fn defer_and_leave(world: &mut World) -> u64 {
    let lease = defer(world);
    let number = lease.id().serial;
    world.pool.finish(lease, End::NotSent, world.now);
    number
}

fn settings(max_deferral: Duration) -> PoolSettings {
    let policy = PredictedSettings { max_deferral, ..PredictedSettings::default() };
    PoolSettings { policy: PolicySettings::Predicted(policy), ..PoolSettings::default() }
}
