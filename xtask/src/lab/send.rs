//! Sends a plan's sessions, each at its moment, whatever became of those before.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time;

use crate::stream::{self, Answer};

/// How long the last answers may take after the last arrival.
const PATIENCE: Duration = Duration::from_mins(10);

/// Requests of a plan of which each follows the answer to the one before.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Session {
    /// When the first one is due.
    pub(super) at_ms: f64,
    pub(super) turns: Vec<Turn>,
}

/// A request of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Turn {
    /// Time from the answer before.
    pub(super) pause_ms: f64,
    /// What comes after the prompt and the answer before.
    pub(super) text: String,
    pub(super) output_tokens: u32,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// When it was due.
    pub(super) at_ms: f64,
    /// After the first one was due.
    pub(super) finished: Duration,
    pub(super) result: Result<Answer, String>,
}

/// The figures of a run, as the lab's summary has them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) ttft_ms: Percentiles,
    pub(super) output_tokens_per_s: f64,
    /// Requests without an answer; the lab's own rows have none.
    #[serde(default)]
    pub(super) failed: usize,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

/// Sends all of `sessions` to the gateway at `address`, for `model`.
///
/// One thread sends and measures: it is idle most of the time, and engines and gateway
/// have the rest of the machine.
///
/// # Errors
///
/// When no runtime can be made; requests that fail are part of the outcome.
pub(super) fn send(address: SocketAddr, model: &str, sessions: &[Session]) -> Result<Vec<Sent>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(send_all(address, model, sessions)))
}

async fn send_all(address: SocketAddr, model: &str, sessions: &[Session]) -> Vec<Sent> {
    let started = Instant::now();
    let mut runs = JoinSet::new();
    for session in sessions {
        let due = started + Duration::from_secs_f64(session.at_ms / 1e3);
        time::sleep_until(due.into()).await;
        runs.spawn(run(address, model.to_owned(), session.clone(), started));
    }
    runs.join_all().await.into_iter().flatten().collect()
}

/// A session to its end, or to the first request without an answer: nobody can go on
/// from that.
async fn run(address: SocketAddr, model: String, session: Session, started: Instant) -> Vec<Sent> {
    let mut sent = Vec::with_capacity(session.turns.len());
    let (mut at_ms, mut prompt) = (session.at_ms, String::new());
    for turn in session.turns {
        if !sent.is_empty() {
            at_ms = milliseconds(started.elapsed()) + turn.pause_ms;
            let due = started + Duration::from_secs_f64(at_ms / 1e3);
            time::sleep_until(due.into()).await;
        }
        prompt.push_str(&turn.text);
        let body = body(&model, &prompt, turn.output_tokens);
        let ask = stream::ask(address, "/v1/completions", &body);
        let result = match time::timeout(PATIENCE, ask).await {
            Ok(answer) => answer.map_err(|error| format!("{error:#}")),
            Err(late) => Err(late.to_string()),
        };
        let answered = result.as_ref().map(|answer| prompt.push_str(&answer.text)).is_ok();
        sent.push(Sent { at_ms, finished: started.elapsed(), result });
        if !answered {
            break;
        }
    }
    sent
}

fn body(model: &str, prompt: &str, output_tokens: u32) -> String {
    serde_json::json!({
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "ignore_eos": true,
        "stream": true,
        "stream_options": { "include_usage": true },
    })
    .to_string()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Percentiles { p50, p95, p99 } = self.ttft_ms;
        let tokens = self.output_tokens_per_s;
        write!(f, "P50 {p50:.0} ms, P95 {p95:.0} ms, P99 {p99:.0} ms, {tokens:.0} tokens/s")?;
        if self.failed > 0 { write!(f, ", {} failed", self.failed) } else { Ok(()) }
    }
}

impl Figures {
    /// Of the requests that were due within `counted`, in milliseconds. A request without an
    /// answer waited for `never_ms`.
    pub(super) fn of(sent: &[Sent], counted: &Range<f64>, never_ms: f64) -> Self {
        let from = counted.start;
        let counted: Vec<&Sent> =
            sent.iter().filter(|sent| counted.contains(&sent.at_ms)).collect();
        let answers = counted.iter().filter_map(|sent| sent.result.as_ref().ok());
        let wait = |sent: &&Sent| match &sent.result {
            Ok(answer) => milliseconds(answer.ttft),
            Err(_) => never_ms,
        };
        let mut waits: Vec<f64> = counted.iter().map(wait).collect();
        waits.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * waits.len() as f64).ceil() as usize;
            waits.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let tokens: u64 = answers.clone().map(|answer| answer.output_tokens).sum();
        let last = counted.iter().map(|sent| sent.finished).max().unwrap_or_default();
        let seconds = last.as_secs_f64() - from / 1e3;
        Self {
            ttft_ms: Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99) },
            output_tokens_per_s: if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 },
            failed: counted.len() - answers.count(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the expected values are exact")]
mod tests {
    use super::*;

    fn sent(at_ms: f64, ttft_ms: Option<u64>) -> Sent {
        let answer = |ttft| Answer {
            ttft: Duration::from_millis(ttft),
            text: String::new(),
            output_tokens: 10,
            endpoint: None,
        };
        Sent {
            at_ms,
            finished: Duration::from_secs(3),
            result: ttft_ms.map(answer).ok_or_else(|| "lost".to_owned()),
        }
    }

    #[test]
    fn figures_leave_out_what_came_too_early_or_late_and_count_failures_as_slowest() {
        let sent = [
            sent(0.0, Some(9_000)),
            sent(1000.0, Some(100)),
            sent(1500.0, Some(300)),
            sent(1800.0, Some(200)),
            sent(1900.0, None),
            sent(2000.0, Some(9_000)),
        ];
        let figures = Figures::of(&sent, &(1000.0..2000.0), 1e6);
        assert_eq!(figures.ttft_ms, Percentiles { p50: 200.0, p95: 1e6, p99: 1e6 });
        assert_eq!((figures.output_tokens_per_s, figures.failed), (15.0, 1));
    }
}
