//! Gateways that tell each other: what one knows of the other's requests.

use std::time::Duration;

use proptest::prelude::*;

use super::{World, blocks, load, prompt};
use crate::peer::{Event, News, PeerId, Peers, Report, Scope};
use crate::pool::{End, Lease, PoolSettings};
use crate::request::RequestView;

const PEER: PeerId = PeerId(7);

const DONE: End = End::Completed { output_tokens: 10 };

/// Two gateways over the same two endpoints.
fn two() -> (World, World) {
    let world = || World::new(2, PoolSettings { peers: Peers::Known, ..PoolSettings::default() });
    (world(), world())
}

impl World {
    /// Reads what `teller` tells from `since` on; returns the number to ask from next.
    fn ask(&mut self, teller: &World, since: u64) -> u64 {
        let report = teller.pool.report(since, teller.now);
        self.pool.hear(PEER, &report, self.now, self.now);
        report.next
    }

    /// Requests and prompt tokens of peers at each endpoint.
    fn told(&self) -> Vec<(u32, u64)> {
        let endpoints = self.pool.endpoints(self.now);
        endpoints.iter().map(|view| (view.peer_requests, view.peer_tokens)).collect()
    }

    fn here(&self) -> u32 {
        self.pool.endpoints(self.now).iter().map(|view| view.in_flight_requests).sum()
    }
}

#[test]
fn endpoint_that_a_peer_has_loaded_is_avoided_though_its_page_does_not_show_it() {
    let (mut a, mut b) = two();
    let (loaded, _lease) = a.send(&prompt(20_000));
    b.ask(&a, 0);
    for _ in 0..8 {
        let (index, lease) = b.send(&prompt(100));
        assert_ne!(index, loaded);
        b.finish(lease);
    }
}

#[test]
fn prefix_goes_where_a_peer_has_put_it() {
    let (mut a, mut b) = two();
    let chain: Vec<u64> = (1..=200).collect();
    let (home, lease) = a.send(&blocks(&chain));
    a.finish(lease);
    b.ask(&a, 0);
    for _ in 0..4 {
        assert_eq!(b.touch(&blocks(&chain)), home);
    }
    let view = b.pool.explain(&blocks(&chain), b.now);
    assert_eq!(view.endpoints[home].cached_tokens, 3_200);
}

#[test]
fn hashes_of_another_grid_mean_nothing() {
    let (mut a, mut b) = two();
    let chain: Vec<u64> = (1..=200).collect();
    let (_, _lease) = a.send(&blocks(&chain));
    let report = Report { block_tokens: 32, ..a.pool.report(0, a.now) };
    b.pool.hear(PEER, &report, b.now, b.now);
    let view = b.pool.explain(&blocks(&chain), b.now);
    assert!(view.endpoints.iter().all(|endpoint| endpoint.cached_tokens == 0));
    assert_eq!(b.told().iter().map(|told| told.0).sum::<u32>(), 1);
}

#[test]
fn news_follow_a_request_to_its_end() {
    let (mut a, mut b) = two();
    let (at, lease) = a.send(&prompt(1_000));
    let next = b.ask(&a, 0);
    assert_eq!(b.told()[at], (1, 1_000));
    a.pass(100);
    a.pool.first_token(&lease, a.now);
    b.pass(100);
    let next = b.ask(&a, next);
    assert_eq!(b.told()[at], (1, 0));
    a.finish(lease);
    b.ask(&a, next);
    assert_eq!(b.told(), [(0, 0), (0, 0)]);
    assert_eq!(b.here(), 0);
}

#[test]
fn what_a_peer_sent_is_no_reservation_of_this_gateway() {
    let settings = PoolSettings { max_in_flight: Some(1), ..PoolSettings::default() };
    let (mut a, _) = two();
    let mut b = World::new(1, settings);
    let _leases: Vec<Lease> = (0..4).map(|_| a.send(&prompt(10)).1).collect();
    b.ask(&a, 0);
    assert!(b.pick(&prompt(10)).is_ok());
}

#[test]
fn peer_that_is_forgotten_leaves_nothing_in_flight() {
    let (mut a, mut b) = two();
    let leases: Vec<Lease> = (0..5).map(|_| a.send(&prompt(1_000)).1).collect();
    b.ask(&a, 0);
    assert_eq!(b.told().iter().map(|told| told.0).sum::<u32>(), 5);
    b.pool.forget_peer(PEER, b.now);
    assert_eq!(b.told(), [(0, 0), (0, 0)]);
    b.pool.forget_peer(PEER, b.now);
    drop(leases);
}

#[test]
fn reader_that_missed_news_gets_the_whole_picture() {
    let (mut a, mut b) = two();
    let (at, long) = a.send(&prompt(1_000));
    let next = b.ask(&a, 0);
    // More than the journal keeps.
    for _ in 0..5_000 {
        a.touch(&prompt(10));
    }
    let report = a.pool.report(next, a.now);
    assert_eq!(report.scope, Scope::Whole);
    b.pool.hear(PEER, &report, b.now, b.now);
    assert_eq!(b.told()[at], (1, 1_000));
    assert_eq!(b.told()[1 - at], (0, 0));
    a.finish(long);
    b.ask(&a, report.next);
    assert_eq!(b.told(), [(0, 0), (0, 0)]);
}

#[test]
fn number_that_was_never_given_gets_the_whole_picture() {
    let (mut a, _) = two();
    let (_, _lease) = a.send(&prompt(1));
    assert_eq!(a.pool.report(2, a.now).news, []);
    for since in [0, 3, u64::MAX] {
        assert_eq!(a.pool.report(since, a.now).scope, Scope::Whole, "{since}");
    }
}

#[test]
fn pool_without_peers_keeps_no_news() {
    let mut alone = World::new(1, PoolSettings::default());
    alone.touch(&blocks(&[1, 2, 3]));
    assert_eq!(alone.pool.report(0, alone.now).news, []);
}

#[test]
fn what_the_page_already_shows_is_not_counted_twice() {
    let (mut a, mut b) = two();
    let (at, _lease) = a.send(&prompt(1_000));
    b.pass(30);
    b.observe(at, &load(1.0, 0.0, 0.0));
    let mut report = a.pool.report(0, a.now);
    for news in &mut report.news {
        news.age += Duration::from_millis(40);
    }
    b.pool.hear(PEER, &report, b.now, b.now);
    let waiting = |world: &World| world.pool.signs[world.slot(at)].waiting;
    assert_eq!(waiting(&b), Some(1.0));
    // Sent after the page was written, it comes on top.
    let (mut c, _) = two();
    let lease = loop {
        let (index, lease) = c.send(&prompt(1_000));
        if index == at {
            break lease;
        }
    };
    let report = c.pool.report(c.pool.report(0, c.now).next - 1, c.now);
    b.pool.hear(PeerId(8), &report, b.now + Duration::from_millis(1), b.now);
    assert_eq!(waiting(&b), Some(2.0));
    drop(lease);
}

#[test]
fn first_tokens_of_a_peer_teach_how_fast_an_endpoint_is() {
    let (mut a, mut b) = two();
    let mut next = b.ask(&a, 0);
    for _ in 0..100 {
        let (_, lease) = a.send(&prompt(2_000));
        a.pass(500);
        b.pass(500);
        a.pool.first_token(&lease, a.now);
        a.pool.finish(lease, DONE, a.now);
        next = b.ask(&a, next);
        for world in [&mut a, &mut b] {
            world.observe(0, &load(0.0, 0.0, 0.0));
            world.observe(1, &load(0.0, 0.0, 0.0));
        }
    }
    for view in b.pool.endpoints(b.now) {
        assert!(view.speed.samples > 10.0, "{view:?}");
        let rate = view.speed.prefill_tokens_per_second;
        assert!((3_000.0..6_000.0).contains(&rate), "{rate}");
    }
}

#[test]
fn nonsense_of_a_peer_changes_nothing() {
    let (_, mut b) = two();
    let news = |what| News { request: 5, age: Duration::MAX, what };
    let report = Report {
        next: 0,
        scope: Scope::Since,
        block_tokens: 16,
        news: vec![news(Event::FirstToken), news(Event::Ended)],
    };
    b.pool.hear(PEER, &report, b.now, b.now);
    assert_eq!(b.told(), [(0, 0), (0, 0)]);
}

/// What happens to two gateways.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send { gateway: usize, tokens: u32 },
    FirstToken { gateway: usize, nth: usize },
    Finish { gateway: usize, nth: usize },
    Talk { reader: usize },
    Forget { reader: usize },
    Read { gateway: usize, running: f64 },
    Pass { milliseconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let gateway = 0..2_usize;
    prop_oneof![
        (gateway.clone(), prop_oneof![0..4_000_u32, 20_000..40_000_u32])
            .prop_map(|(gateway, tokens)| Step::Send { gateway, tokens }),
        (gateway.clone(), 0..9_usize).prop_map(|(gateway, nth)| Step::FirstToken { gateway, nth }),
        (gateway.clone(), 0..9_usize).prop_map(|(gateway, nth)| Step::Finish { gateway, nth }),
        gateway.clone().prop_map(|reader| Step::Talk { reader }),
        gateway.clone().prop_map(|reader| Step::Forget { reader }),
        (gateway, 0..9_u8)
            .prop_map(|(gateway, running)| Step::Read { gateway, running: running.into() }),
        (0..200_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ]
}

proptest! {
    #[test]
    fn in_the_end_nothing_is_left_whatever_was_told(steps in prop::collection::vec(step(), 0..120)) {
        let (first, second) = two();
        let mut worlds = [first, second];
        let mut leases: [Vec<Lease>; 2] = Default::default();
        let mut since = [0, 0];
        for step in steps {
            play(step, &mut worlds, &mut leases, &mut since);
            for world in &mut worlds {
                while world.pool.next_due(world.now).is_some() {}
            }
        }
        for (world, leases) in worlds.iter_mut().zip(leases) {
            for lease in leases {
                world.finish(lease);
            }
        }
        for (reader, since) in since.into_iter().enumerate() {
            play(Step::Talk { reader }, &mut worlds, &mut Default::default(), &mut [since; 2]);
        }
        for world in &worlds {
            prop_assert_eq!(world.told(), [(0, 0), (0, 0)]);
            prop_assert_eq!(world.here(), 0);
            for row in &world.pool.rows {
                prop_assert_eq!((row.own.prefilling, row.own.prefill_tokens), (0, 0));
                prop_assert_eq!((row.own.in_flight, row.own.guest_tokens), (0, 0));
            }
        }
    }
}

fn play(step: Step, worlds: &mut [World; 2], leases: &mut [Vec<Lease>; 2], since: &mut [u64; 2]) {
    match step {
        Step::Send { gateway, tokens } => {
            let request = RequestView { blocks: &[1, 2], ..prompt(tokens) };
            // Nobody is picked where readings are too old.
            leases[gateway].extend(worlds[gateway].pick(&request).map(|pick| pick.lease));
        }
        Step::FirstToken { gateway, nth } => {
            if let Some(lease) = leases[gateway].get(nth) {
                let now = worlds[gateway].now;
                worlds[gateway].pool.first_token(lease, now);
            }
        }
        Step::Finish { gateway, nth } => {
            if nth < leases[gateway].len() {
                worlds[gateway].finish(leases[gateway].swap_remove(nth));
            }
        }
        Step::Talk { reader } => {
            let [first, second] = worlds;
            let (reading, telling) = if reader == 0 { (first, second) } else { (second, first) };
            since[reader] = reading.ask(telling, since[reader]);
        }
        Step::Forget { reader } => {
            let now = worlds[reader].now;
            worlds[reader].pool.forget_peer(PEER, now);
            since[reader] = 0;
        }
        Step::Read { gateway, running } => {
            worlds[gateway].observe(0, &load(0.0, running, 0.1));
        }
        Step::Pass { milliseconds } => worlds.iter_mut().for_each(|world| world.pass(milliseconds)),
    }
}

impl World {
    fn slot(&self, index: usize) -> usize {
        self.pool.slot(self.ids[index]).unwrap()
    }
}
