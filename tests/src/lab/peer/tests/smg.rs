//! What SMG's router decides, by hand.

use super::*;

fn smg(endpoints: usize) -> Smg {
    with_fleet(endpoints, Smg::new)
}

/// Where SMG would send the request.
fn choice(router: &Smg, request: &Arc<LabRequest>, endpoints: &[Seen]) -> Option<usize> {
    let all: Vec<usize> = (0..endpoints.len()).collect();
    router.choose(&asked(request), &sight(endpoints), &all, &mut Rng::with_seed(1))
}

#[test]
fn deals_evenly_from_the_start_whatever_is_in_flight() {
    let mut router = smg(3);
    // It has polled before the first request: what counts is what it sent since.
    for worker in [0, 2] {
        router.picked(asked(&prompt(&[7])), worker, Time::ZERO);
    }
    assert_eq!(choice(&router, &prompt(&[1]), &[busy(0), busy(9), busy(0)]), Some(1));
}

#[test]
fn takes_the_fewest_in_flight_when_there_are_no_pages() {
    let mut router = smg(3);
    let endpoints = [busy(2), busy(1), busy(3)];
    router.take(&sight(&endpoints));
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(1));
}

#[test]
fn counts_what_it_sent_since_the_poll_and_nothing_that_ended() {
    let mut router = smg(2);
    // One waits at 0: half a second. The cache of 1 is 7/9 full: 0.525 s.
    let endpoints = [seen(1.0, 0.0), seen(0.0, 7.0 / 9.0)];
    router.take(&sight(&endpoints));
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(0));
    router.picked(asked(&prompt(&[2])), 0, Time::ZERO);
    // Now 1.024 s against 0.525 s, though 0 has nothing in flight.
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(1));
    router.take(&sight(&endpoints));
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(0));
}

#[test]
fn counts_what_runs_and_waits_or_what_it_has_in_flight() {
    // As the program logged it for a worker with so many in flight, running and waiting.
    let cases = [(5, 0, 0, 5), (0, 7, 0, 7), (5, 7, 0, 7), (5, 0, 3, 5), (2, 0, 6, 6)];
    for (in_flight, running, waiting, counted) in cases.into_iter().chain([(5, 5, 3, 8)]) {
        let mut router = smg(1);
        let signals = Signals {
            running: Some(f64::from(running)),
            ..Signals::clone(seen(f64::from(waiting), 0.0).signals.as_deref().unwrap())
        };
        let seen = Seen { signals: Some(Arc::new(signals)), ..busy(in_flight) };
        router.take(&sight(&[seen]));
        let wait = router.expected_wait(0).unwrap();
        assert_scores(&[wait], &[f64::from(counted) * 0.512]);
    }
}

#[test]
fn scores_a_worker_without_a_page_as_the_best_of_the_others() {
    let mut router = smg(2);
    let known = Seen { in_flight: 9, ..seen(1.0, 0.0) };
    // As the best, nine times 0.512 s, and 0.512 s for the one in flight.
    let endpoints = [known, busy(1)];
    router.take(&sight(&endpoints));
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(0));
    router.picked(asked(&prompt(&[2])), 0, Time::ZERO);
    router.picked(asked(&prompt(&[3])), 0, Time::ZERO);
    // It is as much worse now as the other one: equals.
    let mut rng = Rng::with_seed(1);
    let mut counts = [0; 2];
    let idle = [endpoints[0].clone(), busy(0)];
    for _ in 0..100 {
        let chosen = router.choose(&asked(&prompt(&[1])), &sight(&idle), &[0, 1], &mut rng);
        counts[chosen.unwrap()] += 1;
    }
    assert!(counts[0] > 30 && counts[1] > 30, "{counts:?}");
}

#[test]
fn leaves_a_holder_only_when_both_thresholds_are_passed() {
    let mut router = smg(4);
    router.picked(asked(&prompt(&[1])), 3, Time::ZERO);
    let goes = |others: [u32; 3], load: u32| {
        let [a, b, c] = others.map(busy);
        choice(&router, &prompt(&[1]), &[a, b, c, busy(load)])
    };
    // More than 4 above the mean of load/4: from 6 on, as the program does.
    assert_eq!(goes([0, 0, 0], 5), Some(3));
    assert_ne!(goes([0, 0, 0], 6), Some(3));
    // 13 is 6 above the mean of 7, and twice the root of 7 is 5.3, that is 6: from 14 on.
    assert_eq!(goes([5, 5, 5], 13), Some(3));
    assert_ne!(goes([5, 5, 5], 14), Some(3));
    // More than 1.5 times the mean of (600 + load)/4: from 361 on.
    assert_eq!(goes([200, 200, 200], 360), Some(3));
    assert_ne!(goes([200, 200, 200], 361), Some(3));
}

#[test]
fn leaves_workers_out_that_were_overloaded_at_the_last_poll() {
    let mut router = smg(3);
    router.picked(asked(&prompt(&[1])), 0, Time::ZERO);
    let polled = |router: &mut Smg, loads: [(f64, f64); 3]| {
        let endpoints = loads.map(|(waiting, usage)| seen(waiting, usage));
        router.take(&sight(&endpoints));
        choice(router, &prompt(&[1]), &endpoints)
    };
    // The holder keeps its prefix up to seven waiting requests and a cache 0.79 full.
    assert_eq!(polled(&mut router, [(7.0, 0.79), (0.0, 0.0), (1.0, 0.0)]), Some(0));
    assert_eq!(polled(&mut router, [(8.0, 0.0), (0.0, 0.0), (1.0, 0.0)]), Some(1));
    assert_eq!(polled(&mut router, [(0.0, 0.8), (0.0, 0.8), (1.0, 0.0)]), Some(2));
    // All are: the fewest in flight.
    let endpoints = [4, 3, 5].map(|in_flight| Seen { in_flight, ..seen(9.0, 0.0) });
    router.take(&sight(&endpoints));
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(1));
}

#[test]
fn does_not_learn_where_prompts_went_past_the_policy() {
    let mut router = smg(2);
    let overloaded = [seen(9.0, 0.0), Seen { in_flight: 1, ..seen(9.0, 0.0) }];
    router.take(&sight(&overloaded));
    assert_eq!(send(&mut router, &prompt(&[1]), &overloaded), 0);
    // 0 would be the only holder, although 1 has the shorter wait.
    let relieved = [seen(1.0, 0.0), seen(0.0, 0.0)];
    router.take(&sight(&relieved));
    assert_eq!(send(&mut router, &prompt(&[1]), &relieved), 1);
    router.take(&sight(&[seen(0.0, 0.0), seen(1.0, 0.0)]));
    assert_eq!(choice(&router, &prompt(&[1]), &relieved), Some(1));
}

#[test]
fn chooses_among_holders_by_expected_wait() {
    let mut router = smg(3);
    for holder in [1, 2] {
        router.picked(asked(&prompt(&[1])), holder, Time::ZERO);
    }
    let endpoints = [seen(0.0, 0.0), seen(5.0, 0.0), seen(3.0, 0.0)];
    router.take(&sight(&endpoints));
    assert_eq!(choice(&router, &prompt(&[1]), &endpoints), Some(2));
    // Three of ten blocks is no hit.
    let stranger = prompt(&[9, 10]);
    assert_eq!(choice(&router, &stranger, &endpoints), Some(0));
}
