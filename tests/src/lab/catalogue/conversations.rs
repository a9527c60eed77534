//! Requests that wait for answers: people who chat, agents that call tools.
//!
//! Each turn's prompt is the whole conversation so far, answers included, so an endpoint
//! that has seen the turn before computes only what is new.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::announced::equal_8b;
use super::{Entry, LOADS, USUAL, plain};
use crate::lab::scenario::{Session, Turn};
use crate::lab::workload::{Length, Rhythm, Text, exponential};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "multi_turn_8b",
        about: "chats of 2 to 10 turns with thinking pauses, on equal GPUs",
        fleet: equal_8b,
        sessions: |rate, length, rng| CHATS.sessions(rate, length, rng),
        target: Duration::from_secs(1),
        loads: LOADS,
        twist: plain,
    },
    Entry {
        name: "agents_8b",
        about: "agents that call 5 to 20 tools in a row, contexts grow to 20k tokens",
        fleet: equal_8b,
        sessions: |rate, length, rng| AGENTS.sessions(rate, length, rng),
        target: Duration::from_secs(1),
        loads: USUAL,
        twist: plain,
    },
];

/// What conversations of one kind are like.
struct Kind {
    /// Tokens that all of them begin with.
    system_tokens: u32,
    /// Turns, least and most.
    turns: (usize, usize),
    /// New text of a turn, the first aside.
    asked: Length,
    first: Length,
    answer: Length,
    /// Mean time between an answer and the next turn.
    pause: Duration,
}

const CHATS: Kind = Kind {
    system_tokens: 400,
    turns: (2, 10),
    first: Length { median: 200.0, spread: 1.0, least: 16, most: 6_000 },
    asked: Length { median: 80.0, spread: 0.8, least: 8, most: 2_000 },
    answer: Length { median: 200.0, spread: 0.6, least: 16, most: 1_000 },
    pause: Duration::from_secs(8),
};

const AGENTS: Kind = Kind {
    system_tokens: 2_000,
    turns: (5, 20),
    first: Length { median: 800.0, spread: 0.8, least: 100, most: 8_000 },
    // What a tool returns.
    asked: Length { median: 400.0, spread: 1.2, least: 16, most: 8_000 },
    answer: Length { median: 80.0, spread: 0.6, least: 16, most: 600 },
    pause: Duration::from_millis(700),
};

impl Kind {
    /// Conversations whose turns come to `rate` per second.
    fn sessions(&self, rate: f64, length: Duration, rng: &mut Rng) -> Vec<Session> {
        // The same for every seed, as an application's system prompt is.
        let system = Text::new(self.system_tokens, &mut Rng::with_seed(7));
        let turns = (self.turns.0 + self.turns.1) as f64 / 2.0;
        let starts = Rhythm::Poisson.moments(rate / turns, length, rng);
        let session = |start| Session { start, turns: self.turns(system.clone(), rng) };
        starts.into_iter().map(session).collect()
    }

    fn turns(&self, mut text: Text, rng: &mut Rng) -> Vec<Turn> {
        text.cut_to(self.system_tokens);
        let mut tokens = self.system_tokens;
        let pauses = 1.0 / self.pause.as_secs_f64();
        (0..rng.usize(self.turns.0..=self.turns.1))
            .map(|turn| {
                let asked = if turn == 0 { &self.first } else { &self.asked };
                let prompt = tokens + asked.draw(rng);
                let answer = self.answer.draw(rng);
                tokens = prompt + answer;
                text.grow_to(tokens, rng);
                let request = Arc::new(text.request(prompt, answer, None));
                Turn { pause: exponential(pauses, rng), request }
            })
            .collect()
    }
}
