//! Who may serve.

use super::*;
use crate::pool::{Drain, EndpointState, Failure, FailureMode, Probe, Scraping, Verdict};
use crate::signals::GpuSignals;

fn none_ready(world: &mut World) -> (u32, u32, u32, u32, u32) {
    match world.pick(&prompt(10)).unwrap_err() {
        NoEndpoint::NoneReady { stale, ejected, draining, failing, faulty } => {
            (stale, ejected, draining, failing, faulty)
        }
        other => panic!("{other}"),
    }
}

fn fail(world: &mut World, failure: Failure) -> usize {
    let (index, lease) = world.send(&prompt(10));
    world.pool.finish(lease, End::Failed(failure), world.now);
    index
}

#[test]
fn an_empty_pool_says_so() {
    let mut world = World::new(0, PoolSettings::default());
    assert_eq!(world.pick(&prompt(10)).unwrap_err(), NoEndpoint::Empty);
}

#[test]
fn a_stale_endpoint_is_left_out_and_returns_when_fresh() {
    let mut world = World::new(2, PoolSettings::default());
    world.pass(2_000);
    world.observe(0, &load(0.0, 0.0, 0.0));
    assert!(world.shares(20, &prompt(10))[1] > 0, "2 s is not yet too old");
    world.pass(1);
    assert_eq!(world.shares(20, &prompt(10)), [20, 0]);
    world.observe(1, &load(0.0, 0.0, 0.0));
    assert!(world.shares(50, &prompt(10))[1] > 0);
}

#[test]
fn all_stale_fails_closed_by_default_and_open_if_asked() {
    let mut world = World::new(3, PoolSettings::default());
    world.pass(60_000);
    assert_eq!(none_ready(&mut world), (3, 0, 0, 0, 0));
    let failure_mode = FailureMode::Open;
    world.pool.reconfigure(PoolSettings { failure_mode, ..PoolSettings::default() });
    assert_eq!(world.shares(100, &prompt(10)).iter().filter(|&&n| n > 0).count(), 3);
    world.observe(1, &load(0.0, 0.0, 0.0));
    assert_eq!(world.shares(10, &prompt(10)), [0, 10, 0], "open only while all are stale");
}

#[test]
fn failing_open_does_not_bring_back_draining_endpoints() {
    let failure_mode = FailureMode::Open;
    let mut world = World::new(2, PoolSettings { failure_mode, ..PoolSettings::default() });
    world.pass(60_000);
    world.pool.set_draining(world.ids[0], Drain::On);
    assert_eq!(world.shares(10, &prompt(10)), [0, 10]);
}

#[test]
fn an_endpoint_not_yet_scraped_serves_until_it_should_have_been() {
    let mut world = World::new(0, PoolSettings::default());
    world.set_endpoints(&[0]);
    assert_eq!(world.touch(&prompt(10)), 0);
    world.pass(2_001);
    assert_eq!(none_ready(&mut world), (1, 0, 0, 0, 0));
}

#[test]
fn without_scraping_nothing_is_ever_stale() {
    let mut world =
        World::new(0, PoolSettings { scraping: Scraping::Off, ..PoolSettings::default() });
    world.set_endpoints(&[0, 1]);
    world.pass(3_600_000);
    assert_eq!(world.shares(100, &prompt(10)).iter().filter(|&&n| n > 0).count(), 2);
}

#[test]
fn draining_and_probe_failing_endpoints_get_nothing_until_they_return() {
    let mut world = World::new(3, PoolSettings::default());
    world.pool.set_draining(world.ids[0], Drain::On);
    world.pool.set_probe(world.ids[1], Probe::Failing, world.now);
    assert_eq!(world.shares(20, &prompt(10)), [0, 0, 20]);
    world.pool.set_draining(world.ids[2], Drain::On);
    assert_eq!(none_ready(&mut world), (0, 0, 2, 1, 0));
    world.pool.set_draining(world.ids[0], Drain::Off);
    world.pool.set_probe(world.ids[1], Probe::Passing, world.now);
    let shares = world.shares(50, &prompt(10));
    assert!(shares[0] > 0 && shares[1] > 0 && shares[2] == 0, "{shares:?}");
}

#[test]
fn a_probe_does_not_touch_counts() {
    let mut world = World::new(1, PoolSettings::default());
    let (_, lease) = world.send(&prompt(1000));
    for _ in 0..10 {
        world.pool.set_probe(world.ids[0], Probe::Failing, world.now);
        world.pool.set_probe(world.ids[0], Probe::Passing, world.now);
    }
    let view = &world.pool.endpoints(world.now)[0];
    assert_eq!((view.in_flight_requests, view.in_flight_tokens), (1, 1000));
    world.finish(lease);
}

#[test]
fn a_fresh_xid_error_takes_the_endpoint_out_for_the_window() {
    let mut world = World::with_policy(2, "round_robin");
    let gpu = |xid| GpuSignals { xid: Some(xid), ..GpuSignals::default() };
    world.pool.observe_gpu(world.ids[0], &gpu(0), world.now);
    world.pool.observe_gpu(world.ids[0], &gpu(79), world.now);
    assert_eq!(world.shares(10, &prompt(10)), [0, 10]);
    world.pass(299_000);
    // The exporter goes on showing the last error; that is no new one.
    world.pool.observe_gpu(world.ids[0], &gpu(79), world.now);
    world.observe(0, &load(0.0, 0.0, 0.0));
    world.observe(1, &load(0.0, 0.0, 0.0));
    assert_eq!(world.pool.endpoints(world.now)[0].state, EndpointState::GpuFault);
    world.pass(1_000);
    assert_eq!(world.shares(10, &prompt(10)), [5, 5]);
    world.pool.observe_gpu(world.ids[0], &gpu(48), world.now);
    assert_eq!(world.shares(10, &prompt(10)), [0, 10]);
    world.pool.observe_gpu(world.ids[0], &gpu(0), world.now);
    assert_eq!(world.shares(10, &prompt(10)), [5, 5]);
}

#[test]
fn a_reading_without_an_xid_says_nothing_about_it() {
    let mut world = World::new(1, PoolSettings::default());
    let gpu = |xid| GpuSignals { xid, ..GpuSignals::default() };
    world.pool.observe_gpu(world.ids[0], &gpu(Some(0)), world.now);
    world.pool.observe_gpu(world.ids[0], &gpu(Some(31)), world.now);
    world.pool.observe_gpu(world.ids[0], &gpu(None), world.now);
    assert_eq!(none_ready(&mut world), (0, 0, 0, 0, 1));
}

#[test]
fn five_failures_eject_one_endpoint_and_it_returns_by_itself() {
    let mut world = World::with_policy(2, "round_robin");
    for _ in 0..5 {
        let (index, lease) = world.send(&RequestView { tried: &[EndpointId(2)], ..prompt(10) });
        assert_eq!(index, 0);
        world.pool.finish(lease, End::Failed(Failure::Status(503)), world.now);
    }
    assert_eq!(world.shares(10, &prompt(10)), [0, 10], "isolated per endpoint");
    world.pass(10_000);
    for index in 0..2 {
        world.observe(index, &load(0.0, 0.0, 0.0));
    }
    assert_eq!(world.shares(10, &prompt(10)), [5, 5]);
}

#[test]
fn client_errors_and_cancellations_never_eject() {
    let mut world = World::new(1, PoolSettings::default());
    for _ in 0..50 {
        fail(&mut world, Failure::Status(400));
        let (_, lease) = world.send(&prompt(10));
        world.pool.finish(lease, End::Cancelled, world.now);
    }
    assert_eq!(world.touch(&prompt(10)), 0);
}

#[test]
fn no_more_than_the_allowed_share_is_ejected() {
    let mut world = World::with_policy(4, "round_robin");
    for _ in 0..100 {
        fail(&mut world, Failure::Connect);
    }
    let out = world.pool.endpoints(world.now);
    let out = out.iter().filter(|view| matches!(view.state, EndpointState::Ejected { .. }));
    assert_eq!(out.count(), 2);
}

#[test]
fn all_ejected_is_told_apart_from_an_empty_pool() {
    let mut world = World::new(1, PoolSettings::default());
    for _ in 0..5 {
        fail(&mut world, Failure::Timeout);
    }
    assert_eq!(none_ready(&mut world), (0, 1, 0, 0, 0));
}

#[test]
fn endpoints_that_failed_the_request_are_not_tried_again() {
    let mut world = World::new(2, PoolSettings::default());
    let tried = world.ids.clone();
    for _ in 0..20 {
        assert_eq!(world.touch(&RequestView { tried: &tried[..1], ..prompt(10) }), 1);
    }
    let all = RequestView { tried: &tried, ..prompt(10) };
    assert_eq!(world.pick(&all).unwrap_err(), NoEndpoint::AllTried);
}

#[test]
fn the_bound_of_requests_in_flight_is_hard() {
    let mut world =
        World::new(2, PoolSettings { max_in_flight: Some(3), ..PoolSettings::default() });
    let mut leases: Vec<_> = (0..6).map(|_| world.send(&prompt(10)).1).collect();
    assert_eq!(world.pick(&prompt(10)).unwrap_err(), NoEndpoint::Full);
    assert_eq!(world.pool.room(world.now), crate::pool::Room::Full { saturation: 1.0 });
    world.finish(leases.pop().unwrap());
    assert!(world.pick(&prompt(10)).is_ok());
}

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

#[test]
fn a_request_for_an_adapter_goes_only_where_it_may_be() {
    let mut world = World::with_policy(3, "random");
    let request = RequestView { adapter: Some("sql"), ..prompt(10) };
    assert!(world.shares(60, &request).iter().all(|&n| n > 0), "nobody has told its adapters");
    world.pool.set_adapters(world.ids[0], &names(&["sql"]));
    world.pool.set_adapters(world.ids[1], &names(&["poems"]));
    let shares = world.shares(60, &request);
    assert!(shares[0] > 0 && shares[1] == 0 && shares[2] > 0, "{shares:?}");
    assert!(world.shares(60, &prompt(10)).iter().all(|&n| n > 0), "the base model is everywhere");
    world.pool.set_adapters(world.ids[2], &[]);
    world.pool.set_adapters(world.ids[0], &names(&["poems"]));
    world.pool.set_adapters(world.ids[1], &names(&["sql"]));
    assert_eq!(world.shares(10, &request), [0, 10, 0]);
}

#[test]
fn an_adapter_nobody_lists_may_be_anywhere() {
    let mut world = World::with_policy(2, "random");
    for id in world.ids.clone() {
        world.pool.set_adapters(id, &names(&["poems"]));
    }
    let request = RequestView { adapter: Some("sql"), ..prompt(10) };
    assert!(world.shares(60, &request).iter().all(|&n| n > 0));
}

#[test]
fn the_only_holder_of_an_adapter_is_not_replaced_while_it_is_out() {
    let mut world = World::new(2, PoolSettings::default());
    world.pool.set_adapters(world.ids[0], &names(&["sql"]));
    world.pool.set_adapters(world.ids[1], &[]);
    world.pool.set_probe(world.ids[0], Probe::Failing, world.now);
    let request = RequestView { adapter: Some("sql"), ..prompt(10) };
    let refusal = world.pick(&request).unwrap_err();
    assert!(matches!(refusal, NoEndpoint::NoneReady { failing: 1, .. }), "{refusal}");
    let explained = world.pool.explain(&request, world.now);
    assert_eq!(explained.endpoints[1].verdict, Verdict::Dropped("adapter_missing"));
    // Whoever starts anew may have loaded it.
    world.pool.restarted(world.ids[1], world.now);
    assert_eq!(world.touch(&request), 1);
}
