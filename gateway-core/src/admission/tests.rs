use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

mod fairness;

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

fn ticket(priority: i32, flow: &str, tokens: u64) -> Ticket {
    Ticket { priority, flow: flow.into(), tokens, bytes: 100, deadline: None }
}

fn queueing() -> AdmissionSettings {
    AdmissionSettings { queueing: Queueing::On, ..AdmissionSettings::default() }
}

fn queue(admission: &mut Admission, now: Time, ticket: Ticket) -> TicketId {
    match admission.offer(now, ticket, Capacity::Full) {
        Offer::Queued(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_flow_control_only_sheddable_requests_are_refused() {
    let mut admission = Admission::new(AdmissionSettings::default());
    for priority in [5, 0] {
        let offer = admission.offer(at(0), ticket(priority, "a", 1), Capacity::Full);
        assert_eq!(offer, Offer::Admit);
    }
    let offer = admission.offer(at(0), ticket(-1, "a", 1), Capacity::Full);
    assert_eq!(offer, Offer::Shed(Shed { reason: Reason::Saturated, ahead: 0 }));
    assert_eq!(admission.offer(at(0), ticket(-1, "a", 1), Capacity::Free), Offer::Admit);
}

#[test]
fn a_pool_with_room_takes_requests_at_once() {
    let mut admission = Admission::new(queueing());
    assert_eq!(admission.offer(at(0), ticket(0, "a", 1), Capacity::Free), Offer::Admit);
    assert!(admission.is_empty());
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait() {
    let mut admission = Admission::new(queueing());
    let first = queue(&mut admission, at(0), ticket(0, "a", 1));
    let Offer::Queued(second) = admission.offer(at(1), ticket(0, "a", 1), Capacity::Free) else {
        panic!("overtaken")
    };
    assert_eq!(admission.next(at(1)), Some(first));
    assert_eq!(admission.next(at(1)), Some(second));
    assert_eq!(admission.next(at(1)), None);
}

#[test]
fn higher_priorities_go_first_within_and_across_bands() {
    let mut admission = Admission::new(queueing());
    let shed = queue(&mut admission, at(0), ticket(-1, "a", 1));
    let usual = queue(&mut admission, at(1), ticket(0, "a", 1));
    let high = queue(&mut admission, at(2), ticket(1, "a", 1));
    let highest = queue(&mut admission, at(3), ticket(9, "a", 1));
    let order: Vec<_> = std::iter::from_fn(|| admission.next(at(4))).collect();
    assert_eq!(order, [highest, high, usual, shed]);
}

#[test]
fn sheddable_requests_wait_only_alone() {
    let mut admission = Admission::new(queueing());
    queue(&mut admission, at(0), ticket(-1, "a", 1));
    let offer = admission.offer(at(0), ticket(-1, "a", 1), Capacity::Full);
    assert_eq!(offer, Offer::Shed(Shed { reason: Reason::Saturated, ahead: 1 }));
}

#[test]
fn a_starved_priority_gets_a_turn_when_a_limit_is_set() {
    let limit = Some(Duration::from_secs(10));
    let mut admission = Admission::new(AdmissionSettings { starvation_limit: limit, ..queueing() });
    let low = queue(&mut admission, at(0), ticket(0, "a", 1));
    for second in 0..10 {
        let high = queue(&mut admission, at(second), ticket(1, "b", 1));
        assert_eq!(admission.next(at(second)), Some(high));
    }
    let high = queue(&mut admission, at(10), ticket(1, "b", 1));
    assert_eq!(admission.next(at(10)), Some(low));
    assert_eq!(admission.next(at(10)), Some(high));
}

#[test]
fn within_a_flow_the_earliest_deadline_may_go_first() {
    let mut settings = queueing();
    settings.bands.standard.order = Order::Edf;
    let mut admission = Admission::new(settings);
    let hasty = Ticket { deadline: Some(at(5)), ..ticket(0, "a", 1) };
    let patient = queue(&mut admission, at(0), ticket(0, "a", 1));
    let hasty = queue(&mut admission, at(1), hasty);
    assert_eq!(admission.next(at(2)), Some(hasty));
    assert_eq!(admission.next(at(2)), Some(patient));
}

#[test]
fn a_full_queue_sheds_by_requests_and_by_bytes() {
    let mut settings = queueing();
    settings.bands.standard =
        BandSettings { max_requests: 2, max_bytes: 250, ..Default::default() };
    let mut admission = Admission::new(settings);
    queue(&mut admission, at(0), ticket(0, "a", 1));
    let large = Ticket { bytes: 151, ..ticket(0, "b", 1) };
    let full = |ahead| Offer::Shed(Shed { reason: Reason::QueueFull, ahead });
    assert_eq!(admission.offer(at(0), large, Capacity::Full), full(1));
    queue(&mut admission, at(0), ticket(0, "b", 1));
    assert_eq!(admission.offer(at(0), ticket(0, "c", 1), Capacity::Full), full(2));
    // Another band has its own bounds.
    queue(&mut admission, at(0), ticket(1, "c", 1));
}

#[test]
fn the_wait_is_bounded() {
    let mut admission = Admission::new(queueing());
    let early = Ticket { deadline: Some(at(10)), ..ticket(0, "a", 1) };
    let early = queue(&mut admission, at(0), early);
    let late = queue(&mut admission, at(0), ticket(0, "a", 1));
    assert_eq!(admission.next_deadline(), Some(at(10)));
    assert_eq!(admission.expire(at(9)), []);
    // Room appears too late for the first.
    assert_eq!(admission.next(at(10)), Some(late));
    assert_eq!(admission.expire(at(10)), [early]);
    assert_eq!(admission.expire(at(100)), []);
    assert_eq!(admission.usage(Band::Standard), Usage::default());
}

#[test]
fn a_cancelled_request_frees_its_place() {
    let mut admission = Admission::new(queueing());
    let id = queue(&mut admission, at(0), ticket(0, "a", 1));
    assert!(admission.cancel(id));
    assert!(!admission.cancel(id));
    assert_eq!(admission.next(at(0)), None);
    assert_eq!(admission.usage(Band::Standard), Usage::default());
}

#[test]
fn advice_follows_queue_and_drain_rate() {
    let seconds = |ahead, rate, jitter| retry_after(ahead, rate, jitter).as_secs();
    assert_eq!(seconds(0, 100.0, 0.0), 1);
    assert_eq!(seconds(39, 2.0, 0.0), 20);
    assert_eq!(seconds(39, 2.0, 1.0), 25);
    assert_eq!(seconds(5000, 2.0, 0.0), 60);
    for rate in [0.0, -1.0, f64::NAN] {
        assert_eq!(seconds(0, rate, 0.5), 60, "{rate}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Cancel(usize),
    Expire,
    Next,
    Offer { priority: i32, flow: u8, tokens: u64, bytes: u64, patience: u64, free: bool },
    Served { flow: u8, charged: u64, actual: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let offer = (-2..3_i32, 0..6_u8, 0..5000_u64, 0..400_u64, 0..90_u64, any::<bool>()).prop_map(
        |(priority, flow, tokens, bytes, patience, free)| Step::Offer {
            priority,
            flow,
            tokens,
            bytes,
            patience,
            free,
        },
    );
    prop_oneof![
        4 => offer,
        2 => Just(Step::Next),
        1 => Just(Step::Expire),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0..6_u8, any::<u64>(), any::<u64>())
            .prop_map(|(flow, charged, actual)| Step::Served { flow, charged, actual }),
    ]
}

proptest! {
    #[test]
    fn every_request_ends_exactly_once_and_bounds_hold(
        steps in prop::collection::vec((step(), 0..3_u64), 1..300),
        limit in prop::option::of(0..20_u64),
    ) {
        let band = BandSettings { max_requests: 5, max_bytes: 1000, ..Default::default() };
        let settings = AdmissionSettings {
            queueing: Queueing::On,
            bands: Bands { critical: band, standard: band, sheddable: band },
            starvation_limit: limit.map(Duration::from_secs),
        };
        let mut admission = Admission::new(settings);
        let (mut now, mut ids, mut ended) = (0, Vec::new(), HashSet::new());
        for (step, pause) in steps {
            now += pause;
            match step {
                Step::Offer { priority, flow, tokens, bytes, patience, free } => {
                    let deadline = Some(at(now + patience));
                    let flow = flow.to_string().into();
                    let ticket = Ticket { priority, flow, tokens, bytes, deadline };
                    let capacity = if free { Capacity::Free } else { Capacity::Full };
                    if let Offer::Queued(id) = admission.offer(at(now), ticket, capacity) {
                        ids.push(id);
                    }
                }
                Step::Next => {
                    if let Some(id) = admission.next(at(now)) {
                        prop_assert!(ended.insert(id));
                    }
                }
                Step::Expire => {
                    for id in admission.expire(at(now)) {
                        prop_assert!(ended.insert(id));
                    }
                }
                Step::Cancel(which) if !ids.is_empty() => {
                    let id = ids[which % ids.len()];
                    prop_assert_eq!(admission.cancel(id), ended.insert(id));
                }
                Step::Cancel(_) => {}
                Step::Served { flow, charged, actual } => {
                    admission.served(0, &flow.to_string(), charged, actual);
                }
            }
            for band in Band::ALL {
                let usage = admission.usage(band);
                prop_assert!(usage.requests <= 5 && usage.bytes <= 1000);
            }
        }
        while let Some(id) = admission.next(at(now)) {
            prop_assert!(ended.insert(id));
        }
        for id in admission.expire(at(now)) {
            prop_assert!(ended.insert(id));
        }
        prop_assert_eq!(ended.len(), ids.len());
        prop_assert!(admission.is_empty() && admission.levels.is_empty());
    }
}
