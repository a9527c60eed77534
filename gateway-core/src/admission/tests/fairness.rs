//! Sharing among flows.

use super::*;

/// Serves `rounds` requests and adds up the tokens of each flow. Each flow has a
/// request waiting at all times, of the size it is given.
fn share(sizes: &[(&str, u64)], rounds: usize) -> Vec<u64> {
    let mut admission = Admission::new(queueing());
    let mut owner = std::collections::HashMap::new();
    let mut served = vec![0; sizes.len()];
    let add = |admission: &mut Admission, flow: usize| {
        let (name, tokens) = sizes[flow];
        (queue(admission, at(0), ticket(0, name, tokens)), flow)
    };
    for flow in 0..sizes.len() {
        let (id, flow) = add(&mut admission, flow);
        owner.insert(id, flow);
    }
    for _ in 0..rounds {
        let (id, flow) = {
            let first = admission.levels[&Reverse(0)].first().unwrap();
            (first, owner[&first])
        };
        // The next one is there before this one leaves.
        let (next, _) = add(&mut admission, flow);
        owner.insert(next, flow);
        assert_eq!(admission.next(at(0)), Some(id));
        served[flow] += sizes[flow].1;
    }
    served
}

#[test]
fn flows_share_tokens_not_requests() {
    let served = share(&[("long", 10_000), ("short", 100)], 2_020);
    assert!(served[0].abs_diff(served[1]) <= 10_000, "{served:?}");
}

proptest! {
    #[test]
    fn waiting_flows_differ_by_two_requests_at_most(
        sizes in prop::collection::vec(1..5000_u64, 2..8),
        rounds in 1..400_usize,
    ) {
        let names: Vec<String> = (0..sizes.len()).map(|flow| flow.to_string()).collect();
        let flows: Vec<_> = names.iter().map(String::as_str).zip(sizes.iter().copied()).collect();
        let served = share(&flows, rounds);
        let largest = sizes.iter().max().unwrap();
        let spread = served.iter().max().unwrap() - served.iter().min().unwrap();
        prop_assert!(spread <= 2 * largest, "{served:?}");
    }
}

#[test]
fn a_newcomer_waits_for_one_request_of_a_heavy_flow_at_most() {
    let mut admission = Admission::new(queueing());
    for _ in 0..100 {
        queue(&mut admission, at(0), ticket(0, "heavy", 1000));
    }
    for _ in 0..50 {
        admission.next(at(0));
    }
    let light = queue(&mut admission, at(1), ticket(0, "light", 10));
    let position = (0..3).position(|_| admission.next(at(1)) == Some(light));
    assert!(position.is_some_and(|position| position <= 1));
}

#[test]
fn an_idle_flow_does_not_save_up() {
    let mut admission = Admission::new(queueing());
    queue(&mut admission, at(0), ticket(0, "lazy", 1));
    admission.next(at(0));
    for _ in 0..100 {
        queue(&mut admission, at(0), ticket(0, "busy", 1000));
    }
    for _ in 0..40 {
        admission.next(at(0));
    }
    // 40,000 tokens of "busy" later, "lazy" gets half, not 40 in a row.
    let lazy: HashSet<_> =
        (0..50).map(|_| queue(&mut admission, at(1), ticket(0, "lazy", 1000))).collect();
    let turns = (0..20).filter(|_| lazy.contains(&admission.next(at(1)).unwrap())).count();
    assert!((9..=11).contains(&turns), "{turns}");
}

#[test]
fn flows_are_charged_by_what_they_really_used() {
    let mut admission = Admission::new(queueing());
    let add =
        |admission: &mut Admission, flow: &str| queue(admission, at(0), ticket(0, flow, 1000));
    let modest: HashSet<_> = (0..400).map(|_| add(&mut admission, "modest")).collect();
    for _ in 0..400 {
        add(&mut admission, "greedy");
    }
    let mut turns = [0; 2];
    for _ in 0..220 {
        // Both asked for 1,000 tokens; one uses 100 of them.
        if modest.contains(&admission.next(at(0)).unwrap()) {
            turns[0] += 1;
            admission.served(0, "modest", 1000, 100);
        } else {
            turns[1] += 1;
            admission.served(0, "greedy", 1000, 1000);
        }
    }
    assert!((190..=210).contains(&turns[0]), "{turns:?}");
}

#[test]
fn a_late_correction_buys_nothing_in_a_new_contest() {
    let mut admission = Admission::new(queueing());
    queue(&mut admission, at(0), ticket(0, "a", 1_000_000));
    admission.next(at(0));
    // The queue was empty: a new contest, at equal counters.
    for flow in ["a", "b"] {
        for _ in 0..20 {
            queue(&mut admission, at(1), ticket(0, flow, 100));
        }
    }
    admission.served(0, "a", 1_000_000, 0);
    let flow_of = |admission: &Admission, id| admission.tickets[&id].flow.to_string();
    let mut turns = 0;
    for _ in 0..20 {
        let id = admission.levels[&Reverse(0)].first().unwrap();
        turns += usize::from(flow_of(&admission, id) == "a");
        admission.next(at(1));
    }
    assert!((9..=11).contains(&turns), "{turns}");
}

#[test]
fn made_up_flows_share_one_place_beyond_a_bound() {
    let settings = AdmissionSettings {
        bands: Bands {
            standard: BandSettings { max_requests: 100_000, ..Default::default() },
            ..Bands::default()
        },
        ..queueing()
    };
    let mut admission = Admission::new(settings);
    let honest = queue(&mut admission, at(0), ticket(0, "honest", 100));
    for flow in 0..5000 {
        queue(&mut admission, at(0), ticket(0, &flow.to_string(), 100));
    }
    let position = (0..5001).position(|_| admission.next(at(0)) == Some(honest)).unwrap();
    assert!(position <= 1025, "{position}");
    assert_eq!(admission.expire(at(60)).len() + position + 1, 5001);
}

/// Waits of the light tenant's requests, in seconds, at a pool that serves one
/// request at a time. Virtual time; service takes a second per 100 tokens.
fn light_waits(heavy_per_second: u64) -> Vec<u64> {
    let mut admission = Admission::new(queueing());
    let mut light = std::collections::HashMap::new();
    let (mut free_at, mut waits) = (0, Vec::new());
    for second in 0..4_000 {
        let mut arrivals = vec![];
        arrivals.extend((0..heavy_per_second).map(|_| ticket(0, "heavy", 200)));
        if second % 5 == 0 {
            arrivals.push(ticket(0, "light", 100));
        }
        for ticket in arrivals {
            let is_light = &*ticket.flow == "light";
            let service = ticket.tokens / 100;
            let capacity = if free_at <= second { Capacity::Free } else { Capacity::Full };
            match admission.offer(at(second), ticket, capacity) {
                Offer::Admit => {
                    free_at = second + service;
                    if is_light {
                        waits.push(service);
                    }
                }
                Offer::Queued(id) if is_light => drop(light.insert(id, second)),
                Offer::Queued(_) | Offer::Shed(_) => {}
            }
        }
        let _ = admission.expire(at(second));
        if free_at <= second
            && let Some(id) = admission.next(at(second))
        {
            let since = light.get(&id);
            free_at = second + if since.is_some() { 1 } else { 2 };
            waits.extend(since.map(|since| free_at - since));
        }
    }
    waits.sort_unstable();
    waits
}

#[test]
fn a_heavy_tenant_does_not_starve_a_light_one() {
    let solo = light_waits(0);
    let beside = light_waits(10);
    assert_eq!(solo.len(), beside.len());
    let p99 = |waits: &[u64]| waits[waits.len() * 99 / 100];
    // One request of the other (2 s) may be under way and one may go first: what no
    // scheduler without preemption avoids.
    assert!(p99(&beside) <= 2 * p99(&solo) + 2, "{} {}", p99(&beside), p99(&solo));
}
