//! What holds whatever happens.

use proptest::prelude::*;

use super::*;
use crate::policy::POLICY_NAMES;
use crate::pool::batch_limit::BatchLimit;
use crate::pool::row::Own;
use crate::pool::{Drain, Failure, Probe, Verdict};
use crate::request::Answer;
use crate::signals::GpuSignals;

/// Something that can happen to a pool.
#[derive(Clone, Debug)]
enum Event {
    Pick { tokens: u32, blocks: Vec<u64>, session: Option<u64>, answer: Answer, adapter: bool },
    FirstToken(usize),
    Finish(usize, End),
    Observe(usize, [Option<f64>; 3]),
    Members(Vec<usize>),
    Drain(usize, Drain),
    Probe(usize, Probe),
    Reconfigure(&'static str, Option<u32>),
    Limit(usize, u32),
    Due,
    Restart(usize),
    Xid(usize, u32),
    Pass(u64),
}

fn number() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        (0.0..50.0).prop_map(Some),
        (0.0..1.0).prop_map(Some),
        any::<f64>().prop_map(Some),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Cancelled),
        Just(End::NotSent),
        any::<u32>().prop_map(|output_tokens| End::Completed { output_tokens }),
        any::<u16>().prop_map(|status| End::Failed(Failure::Status(status))),
        Just(End::Failed(Failure::Timeout)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let tokens = prop_oneof![0_u32..4000, any::<u32>()];
    let blocks = prop::collection::vec(0_u64..4, 0..6);
    let answer = prop_oneof![Just(Answer::Streamed), Just(Answer::Whole)];
    let pick = (tokens, blocks, prop::option::of(0_u64..3), answer, any::<bool>()).prop_map(
        |(tokens, blocks, session, answer, adapter)| Event::Pick {
            tokens,
            blocks,
            session,
            answer,
            adapter,
        },
    );
    prop_oneof![
        6 => pick,
        4 => any::<usize>().prop_map(Event::FirstToken),
        4 => (any::<usize>(), end()).prop_map(|(at, end)| Event::Finish(at, end)),
        3 => (0_usize..5, [number(), number(), number()]).prop_map(|(at, s)| Event::Observe(at, s)),
        1 => prop::sample::subsequence(vec![0, 1, 2, 3, 4], 0..=5).prop_map(Event::Members),
        1 => (0_usize..5, prop_oneof![Just(Drain::On), Just(Drain::Off)])
            .prop_map(|(at, drain)| Event::Drain(at, drain)),
        1 => (0_usize..5, prop_oneof![Just(Probe::Failing), Just(Probe::Passing)])
            .prop_map(|(at, probe)| Event::Probe(at, probe)),
        2 => (0_usize..5, 0_u32..99).prop_map(|(at, limit)| Event::Limit(at, limit)),
        2 => Just(Event::Due),
        1 => (0_usize..5).prop_map(Event::Restart),
        1 => (0_usize..5, 0_u32..2).prop_map(|(at, xid)| Event::Xid(at, xid)),
        1 => (prop::sample::select(POLICY_NAMES.to_vec()), prop::option::of(0_u32..4))
            .prop_map(|(policy, most)| Event::Reconfigure(policy, most)),
        2 => (0_u64..3000).prop_map(Event::Pass),
    ]
}

/// Picks, and checks that the explanation given before says the same.
fn pick_as_explained(world: &mut World, request: &RequestView<'_>) -> Option<Lease> {
    let explanation = world.pool.explain(request, world.now);
    for endpoint in &explanation.endpoints {
        if let Verdict::Rated { scores, total } = &endpoint.verdict {
            assert!(total.is_finite(), "{total}");
            assert!(scores.iter().all(|(_, score)| score.is_finite()), "{scores:?}");
        }
    }
    let Ok(pick) = world.pick(request) else {
        assert!(explanation.winners.is_empty());
        return None;
    };
    assert!(explanation.winners.contains(&pick.endpoint), "{explanation:?}");
    assert!(pick.cached_tokens <= request.prompt_tokens);
    assert!(pick.held || pick.predicted_ttft.is_some());
    let rated = |verdict: &Verdict| matches!(verdict, Verdict::Rated { .. });
    let rated = explanation.endpoints.iter().filter(|e| rated(&e.verdict)).count();
    assert_eq!(rated, pick.candidates as usize);
    Some(pick.lease)
}

fn idle(own: &Own) -> bool {
    (own.in_flight, own.prefilling, own.prefill_tokens) == (0, 0, 0)
        && (own.held, own.held_tokens) == (0, 0)
        && (own.deferred, own.deferred_tokens) == (0, 0)
}

/// Who gives way is held, and who is held is not computed.
fn nests(own: &Own) -> bool {
    own.deferred <= own.held
        && own.held <= own.prefilling
        && own.deferred_tokens <= own.held_tokens
        && own.held_tokens <= own.prefill_tokens
}

fn apply(world: &mut World, leases: &mut Vec<Lease>, event: Event) {
    match event {
        Event::Pick { tokens, blocks, session, answer, adapter } => {
            let request = RequestView {
                prompt_tokens: tokens,
                blocks: &blocks,
                session,
                answer,
                adapter: adapter.then_some("sql"),
                ..RequestView::default()
            };
            leases.extend(pick_as_explained(world, &request));
        }
        Event::FirstToken(at) if !leases.is_empty() => {
            world.pool.first_token(&leases[at % leases.len()], world.now);
        }
        Event::Finish(at, end) if !leases.is_empty() => {
            let lease = leases.swap_remove(at % leases.len());
            world.pool.finish(lease, end, world.now);
        }
        Event::Observe(at, [waiting, running, kv_usage]) if at < world.ids.len() => {
            let signals = Signals { waiting, running, kv_usage, ..Signals::default() };
            world.observe(at, &signals);
        }
        Event::Members(indices) => world.set_endpoints(&indices),
        Event::Drain(at, drain) if at < world.ids.len() => {
            world.pool.set_draining(world.ids[at], drain);
        }
        Event::Probe(at, probe) if at < world.ids.len() => {
            world.pool.set_probe(world.ids[at], probe, world.now);
        }
        Event::Limit(at, limit) if at < world.ids.len() => {
            let slot = world.pool.slot(world.ids[at]).unwrap();
            // Small enough to be reached.
            let running = [0.0, 64.0][limit as usize % 2];
            world.observe(at, &load(0.0, running, 0.5));
            world.pool.endpoints[slot].batch_limit = BatchLimit::of(f64::from(limit), world.now);
        }
        Event::Due => while world.pool.next_due(world.now).is_some() {},
        Event::Restart(at) if at < world.ids.len() => {
            world.pool.restarted(world.ids[at], world.now);
        }
        Event::Xid(at, xid) if at < world.ids.len() => {
            let gpu = GpuSignals { xid: Some(xid), ..GpuSignals::default() };
            world.pool.observe_gpu(world.ids[at], &gpu, world.now);
        }
        Event::Reconfigure(policy, max_in_flight) => {
            let policy = policy.parse().unwrap();
            let settings = PoolSettings { policy, max_in_flight, ..PoolSettings::default() };
            world.pool.reconfigure(settings);
        }
        Event::Pass(milliseconds) => world.pass(milliseconds),
        _ => {}
    }
}

proptest! {
    #[test]
    fn counts_add_up_and_explanations_agree(
        policy in prop::sample::select(POLICY_NAMES.to_vec()),
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut world = World::with_policy(5, policy);
        let mut leases = Vec::new();
        for event in events {
            apply(&mut world, &mut leases, event);
            let in_flight: u32 = world.pool.rows.iter().map(|row| row.own.in_flight).sum();
            prop_assert_eq!(in_flight as usize, leases.len());
            prop_assert!(world.pool.rows.iter().all(|row| nests(&row.own)));
            prop_assert_eq!(world.pool.ledger.len(), leases.len());
            let saturation = world.pool.room(world.now).saturation();
            prop_assert!(saturation.is_finite() && saturation >= 0.0);
        }
        for lease in leases {
            world.pool.finish(lease, End::Cancelled, world.now);
        }
        prop_assert!(world.pool.rows.iter().all(|row| idle(&row.own)));
        prop_assert!(world.pool.drain_rate(world.now).is_finite());
    }

    #[test]
    fn learning_stays_finite_whatever_comes(
        samples in prop::collection::vec((any::<u32>(), 0_u64..1_000_000_000), 1..60),
    ) {
        let mut world = World::with_policy(2, "predicted");
        for (tokens, milliseconds) in samples {
            for index in 0..2 {
                world.observe(index, &load(1e9, 1e9, 1.0));
            }
            let lease = pick_as_explained(&mut world, &prompt(tokens));
            world.pass(milliseconds);
            if let Some(lease) = lease {
                world.pool.first_token(&lease, world.now);
                world.pool.finish(lease, End::Completed { output_tokens: 1 }, world.now);
            }
            for view in world.pool.endpoints(world.now) {
                prop_assert!(view.speed.prefill_tokens_per_second.is_finite());
                prop_assert!(view.speed.prefill_tokens_per_second > 0.0);
                prop_assert!(view.speed.bias_seconds.is_finite());
            }
        }
    }
}
