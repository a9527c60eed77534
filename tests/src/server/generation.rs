//! Runs a request for text or for vectors through the engine.

use std::io;

use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::adapter::{Served, resolve};
use super::asked::{Asked, Streaming};
use super::driver::{Progress, Running};
use super::error::Refusal;
use super::outlet::{Next, Outlet, Whole};
use super::prompt::Prompt;
use super::shared::{Shared, lock};
use super::unix_time;
use super::wire::{Api, Job};
use crate::answer::{Answer, End};
use crate::engine::{AdapterId, EngineRequest, EventKind, FinishReason};
use crate::tokenizer;

/// A request whose choices are in the engine; dropping it aborts them.
pub(super) struct Generation {
    pub(super) job: Job,
    progress: UnboundedReceiver<Progress>,
    _running: Vec<Running>,
}

impl Generation {
    /// Checks a request and queues its choices.
    pub(super) fn start(
        shared: &Shared,
        mut asked: Asked,
        request_id: Option<&str>,
    ) -> Result<Self, Refusal> {
        let served = resolve(shared, &asked.model)?;
        asked.fit(shared.options.context_length())?;
        if asked.model.is_empty() {
            asked.model = shared.options.models.first().cloned().unwrap_or_default();
        }
        let answers = asked.answers(&shared.options.style);
        let (to, progress) = unbounded_channel();
        let mut running = Vec::with_capacity(answers.len());
        for (choice, answer) in answers.iter().enumerate() {
            let prompt = &asked.prompts[choice / asked.choices as usize];
            let request = engine_request(shared, &served, prompt, answer);
            let submitted = shared.driver.submit(request, choice, to.clone());
            running.push(submitted.map_err(too_large)?);
        }
        let part_id = shared.hex_id();
        let id = request_id.map_or_else(|| shared.hex_id(), str::to_owned);
        let job = Job {
            id: format!("{}{}{id}", asked.api.id_prefix(), separator(asked.api)),
            sent: vec![0; answers.len()],
            part_id,
            created: unix_time().as_secs(),
            cached_tokens: 0,
            sequence: 0,
            asked,
            answers,
        };
        Ok(Self { job, progress, _running: running })
    }

    /// Waits for the end and answers in one piece.
    pub(super) async fn whole(mut self) -> Whole {
        while let Some(progress) = self.progress.recv().await {
            match progress.kind {
                EventKind::FirstToken | EventKind::Token => self.job.sent[progress.choice] += 1,
                kind => self.note(kind),
            }
            if self.is_complete() {
                break;
            }
        }
        Whole::json(200, &self.job.whole())
    }

    /// Answers with an event per token, at the moment it exists.
    pub(super) async fn stream<W: AsyncWrite + Unpin>(
        mut self,
        outlet: &mut Outlet<'_, W>,
    ) -> io::Result<Next> {
        outlet.begin("content-type: text/event-stream; charset=utf-8\r\n").await?;
        while let Some(progress) = self.progress.recv().await {
            if progress.kind == EventKind::FirstToken {
                for event in self.job.opening(progress.choice) {
                    outlet.event(event.as_bytes()).await?;
                }
            }
            match progress.kind {
                EventKind::FirstToken | EventKind::Token => {
                    outlet.event(self.job.token(progress.choice).as_bytes()).await?;
                }
                kind => self.note(kind),
            }
            if self.is_complete() {
                break;
            }
        }
        for event in self.job.closing() {
            outlet.event(event.as_bytes()).await?;
        }
        outlet.end().await
    }

    pub(super) fn is_streaming(&self) -> bool {
        self.job.asked.streaming != Streaming::Off
    }

    fn note(&mut self, kind: EventKind) {
        if let EventKind::Scheduled { cached_tokens } = kind {
            self.job.cached_tokens += cached_tokens;
        }
    }

    fn is_complete(&self) -> bool {
        let sent = self.job.sent.iter().map(|sent| *sent as usize);
        sent.eq(self.job.answers.iter().map(|answer| answer.tokens.len()))
    }
}

/// Computes prompts without generating anything; returns how many tokens were cached.
pub(super) async fn compute(
    shared: &Shared,
    served: &Served,
    prompts: &[Prompt],
) -> Result<u32, Refusal> {
    let (to, mut progress) = unbounded_channel();
    let nothing = Answer { tokens: Vec::new(), end: End::Complete };
    let mut running = Vec::with_capacity(prompts.len());
    for (choice, prompt) in prompts.iter().enumerate() {
        let context = shared.options.context_length();
        if prompt.len() > context {
            return Err(Refusal::context_length(prompt.len(), 0, context));
        }
        let request = engine_request(shared, served, prompt, &nothing);
        let submitted = shared.driver.submit(request, choice, to.clone());
        running.push(submitted.map_err(too_large)?);
    }
    let (mut unfinished, mut cached) = (running.len(), 0);
    while unfinished > 0 {
        match progress.recv().await.map(|progress| progress.kind) {
            Some(EventKind::Finished(ended)) => {
                unfinished -= 1;
                cached += ended.cached_tokens;
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(cached)
}

fn engine_request(
    shared: &Shared,
    served: &Served,
    prompt: &Prompt,
    answer: &Answer,
) -> EngineRequest {
    let answered = answer.tokens.iter().map(|piece| tokenizer::token(piece));
    let tokens: Vec<u64> = prompt.tokens.iter().copied().chain(answered).collect();
    let adapter: Option<AdapterId> = match served {
        Served::Adapter(id) => Some(*id),
        Served::Base => None,
    };
    let salt = lock(&shared.adapters).names(adapter.as_slice());
    EngineRequest {
        prompt_tokens: prompt.len(),
        output_tokens: u32::try_from(answer.tokens.len()).unwrap_or(u32::MAX),
        finish: if answer.end == End::Length { FinishReason::Length } else { FinishReason::Stop },
        block_hashes: tokenizer::block_hashes(&tokens, shared.options.engine.block_size, &salt),
        adapter,
    }
}

fn too_large(error: crate::engine::TooLarge) -> Refusal {
    Refusal::new(400, "BadRequestError", error.to_string())
}

fn separator(api: Api) -> &'static str {
    if api == Api::Responses { "_" } else { "-" }
}
