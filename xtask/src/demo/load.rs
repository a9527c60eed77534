//! Sends a plan's requests, each at its moment, and gathers the answers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{self, MissedTickBehavior};

use super::plan::Plan;
use super::progress::Progress;
use crate::stream::{self, Answer};

/// How long the last answers may take after the last arrival, as a multiple of the
/// plan's length, plus a constant.
const PATIENCE: u32 = 6;

/// What came of a plan.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) answers: Vec<Answer>,
    /// Why requests failed.
    pub(super) failures: Vec<String>,
    /// From the first arrival to the last answer.
    pub(super) elapsed: Duration,
}

/// Runs `plan` against the gateway at `address`.
///
/// One thread sends and measures: at a few dozen requests per second it is idle most
/// of the time, and the engines and the gateway have the rest of the machine.
///
/// # Errors
///
/// When no runtime can be made; requests that fail are part of the outcome.
pub(super) fn run(address: SocketAddr, policy: &str, plan: &Plan) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(send_all(address, policy, plan)))
}

async fn send_all(address: SocketAddr, policy: &str, plan: &Plan) -> Outcome {
    let started = Instant::now();
    let deadline = started + plan.length * PATIENCE + Duration::from_mins(1);
    let progress = Progress::new(policy, plan);
    let mut tick = time::interval(progress.interval());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut outcome =
        Outcome { answers: Vec::new(), failures: Vec::new(), elapsed: Duration::ZERO };
    let mut requests = JoinSet::new();
    let mut arrivals = plan.arrivals.iter().peekable();
    while arrivals.peek().is_some() || !requests.is_empty() {
        let next = arrivals.peek().map(|arrival| started + arrival.at);
        tokio::select! {
            biased;
            () = sleep_until(next) => {
                let Some(arrival) = arrivals.next() else { continue };
                let body = arrival.body.clone();
                requests.spawn(time::timeout_at(deadline.into(), async move {
                    stream::ask(address, "/v1/chat/completions", &body).await
                }));
            }
            Some(done) = requests.join_next() => {
                match done {
                    Ok(Ok(Ok(answer))) => outcome.answers.push(answer),
                    Ok(Ok(Err(error))) => outcome.failures.push(format!("{error:#}")),
                    Ok(Err(late)) => outcome.failures.push(late.to_string()),
                    Err(panic) => outcome.failures.push(panic.to_string()),
                }
            }
            _ = tick.tick() => progress.show(started.elapsed(), &outcome, requests.len()),
        }
    }
    outcome.elapsed = started.elapsed();
    progress.finish(&outcome);
    outcome
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
