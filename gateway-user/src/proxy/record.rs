//! The account of one request: kept while it runs, written when it ends.
//!
//! Every request has exactly one record, and whatever ends the request (the last
//! byte, a client that goes away, an error, a shutdown) drops it. The drop is
//! what counts the request and writes its line in the access log, so no way out
//! can forget to.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_core::Time;
use gateway_core::sse::{Progress, Watch};

use super::answer::AnswerError;
use super::error::ProxyError;
use crate::access_log::Line;
use crate::gateway::Gateway;
use crate::metrics::model::ModelMetrics;
use crate::splice::Moved;

/// See the module.
#[derive(Debug)]
pub(crate) struct Record {
    gateway: Arc<Gateway>,
    started: Time,
    pub(crate) method: &'static str,
    pub(crate) api: &'static str,
    pub(crate) request_id: Box<str>,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) request_bytes: u64,
    pub(crate) attempts: u32,
    pub(crate) queued: Option<Duration>,
    pub(crate) predicted_ttft: Option<Duration>,
    routed: Option<Routed>,
    endpoint: Option<Arc<str>>,
    status: u16,
    outcome: Outcome,
    first_token: Option<Time>,
    response_bytes: u64,
    watch: Option<Watch>,
    streamed: Streamed,
    /// What the kernel moved; not counted in what was watched.
    moved: Moved,
    /// How it did.
    path: Path,
}

/// How the bytes of an answer go to the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Path {
    User,
    Splice,
    SkMsg,
}

impl Path {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::Splice, Self::SkMsg];

    /// Its name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Splice => "splice",
            Self::SkMsg => "sk_msg",
        }
    }
}

/// Whether an answer comes token by token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Streamed {
    #[default]
    No,
    Yes,
}

/// Where a request went.
#[derive(Debug)]
struct Routed {
    pool: Arc<str>,
    model: Arc<str>,
    metrics: Arc<ModelMetrics>,
}

/// How a request ended. Until told otherwise, the client went away: that is what
/// a dropped request means.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Outcome {
    Broken,
    #[default]
    Cancelled,
    Completed,
    Local(&'static str),
}

impl Record {
    pub(crate) fn open(
        gateway: Arc<Gateway>,
        method: &'static str,
        api: &'static str,
        request_id: Box<str>,
    ) -> Self {
        Self {
            started: gateway.clock.now(),
            gateway,
            method,
            api,
            request_id,
            key: None,
            request_bytes: 0,
            attempts: 0,
            queued: None,
            predicted_ttft: None,
            routed: None,
            endpoint: None,
            status: 0,
            outcome: Outcome::default(),
            first_token: None,
            response_bytes: 0,
            watch: None,
            streamed: Streamed::default(),
            moved: Moved::default(),
            path: Path::User,
        }
    }

    /// The request belongs to a pool from here on.
    pub(crate) fn routed(&mut self, pool: Arc<str>, model: Arc<str>, metrics: Arc<ModelMetrics>) {
        metrics.requests.inc();
        metrics.running.inc();
        metrics.request_bytes.observe(self.request_bytes as f64);
        self.routed = Some(Routed { pool, model, metrics });
    }

    /// An engine's answer has begun. Only a streamed one has a first token to see.
    pub(crate) fn answered(
        &mut self,
        endpoint: Arc<str>,
        status: u16,
        watch: Watch,
        answer: Streamed,
    ) {
        self.streamed = answer;
        self.endpoint = Some(endpoint);
        self.status = status;
        self.watch = Some(watch);
    }

    /// The gateway answers by itself.
    pub(crate) fn local(&mut self, error: &ProxyError) {
        self.status = error.status();
        self.outcome = match error {
            ProxyError::ClientGone => Outcome::Cancelled,
            _ => Outcome::Local(error.reason()),
        };
    }

    /// The gateway answers by itself, and all is well.
    pub(crate) fn local_ok(&mut self, bytes: usize) {
        self.status = 200;
        self.response_bytes = bytes as u64;
        self.outcome = Outcome::Completed;
    }

    /// Payload of the answer goes by. True at the first token.
    pub(crate) fn data(&mut self, data: &[u8]) -> bool {
        self.response_bytes += data.len() as u64;
        let Some(watch) = &mut self.watch else { return false };
        let progress = watch.push(data);
        if self.streamed == Streamed::No {
            return false;
        }
        if progress == Progress::Content && self.first_token.is_none() {
            self.first_token = Some(self.gateway.clock.now());
            return true;
        }
        false
    }

    /// A part of the answer went by without us. Its last chunks are looked at for what
    /// the engine says there of tokens.
    pub(crate) fn moved(&mut self, moved: &Moved, path: Path) {
        if moved.bytes > 0 {
            self.path = path;
        }
        let before = self.watched_tokens();
        if let Some(watch) = &mut self.watch {
            for tail in &moved.tails {
                watch.push(tail);
            }
        }
        let looked_at = self.watched_tokens() - before;
        self.moved.bytes += moved.bytes;
        self.moved.data += moved.data;
        self.moved.chunks += moved.chunks.saturating_sub(looked_at);
        self.moved.span += moved.span;
        self.response_bytes += moved.data;
    }

    fn watched_tokens(&self) -> u64 {
        self.watch.as_ref().map_or(0, Watch::content_events)
    }

    /// Whether the first token has been seen, or two events that are not known to have
    /// any: the first one names the role.
    pub(crate) fn has_begun(&self) -> bool {
        self.first_token.is_some() || self.watch.as_ref().is_some_and(|w| w.events_seen() >= 2)
    }

    /// Whether the answer's payload so far ends with a whole event.
    pub(crate) fn at_event_boundary(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::at_event_boundary)
    }

    /// Output tokens: the engine's count, else the events that carried content.
    pub(crate) fn output_tokens(&self) -> u32 {
        let Some(watch) = &self.watch else { return 0 };
        let counted = watch.usage().and_then(|usage| usage.output);
        counted.unwrap_or_else(|| watch.content_events() + self.moved.chunks) as u32
    }

    /// Status of the answer; 0 before there is one.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The answer is whole.
    pub(crate) fn completed(&mut self) {
        self.outcome = Outcome::Completed;
    }

    /// The answer broke off.
    pub(crate) fn broken(&mut self, error: &AnswerError) {
        tracing::debug!(request_id = %self.request_id, %error, "answer broke off");
        self.outcome = Outcome::Broken;
    }

    fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Outcome::Broken => "upstream-broken",
            Outcome::Cancelled => "cancelled",
            Outcome::Local(reason) => reason,
            Outcome::Completed => match self.status {
                ..400 => "ok",
                400..500 => "client-error",
                _ => "upstream-error",
            },
        }
    }

    /// The extension's name for an error.
    fn error_code(&self) -> Option<&'static str> {
        match (self.outcome, self.status) {
            (Outcome::Completed, ..400) => None,
            (Outcome::Cancelled, _) => Some("ClientClosed"),
            (Outcome::Local(_), 400 | 413) => Some("BadRequest"),
            (Outcome::Local(_), 429) => Some("ResourceExhausted"),
            (Outcome::Local(_), 503) => Some("ServiceUnavailable"),
            _ => Some("ModelServerError"),
        }
    }

    fn observe(&self, duration: Duration) {
        if let Outcome::Local(reason) = self.outcome {
            self.gateway.metrics.local_replies.with_label_values(&[reason]).inc();
        }
        let Some(Routed { metrics, .. }) = &self.routed else { return };
        metrics.running.dec();
        metrics.outcome(self.outcome_name());
        if let Some(code) = self.error_code() {
            metrics.error(code);
        }
        metrics.duration.observe(duration.as_secs_f64());
        metrics.response_bytes.observe(self.response_bytes as f64);
        if self.watch.is_some() {
            metrics.answers[self.path as usize].inc();
        }
        self.observe_tokens(metrics, duration);
    }

    fn observe_tokens(&self, metrics: &ModelMetrics, duration: Duration) {
        let Some(watch) = &self.watch else { return };
        let usage = watch.usage().unwrap_or_default();
        if let Some(prompt) = usage.prompt {
            metrics.input_tokens.observe(prompt as f64);
            metrics.prompt_tokens_total.inc_by(prompt);
        }
        if let Some(cached) = usage.cached {
            metrics.cached_tokens.observe(cached as f64);
            metrics.cached_tokens_total.inc_by(cached);
        }
        let output = self.output_tokens();
        if output > 0 {
            metrics.output_tokens.observe(f64::from(output));
            metrics.output_tokens_total.inc_by(u64::from(output));
            metrics.per_output_token.observe(duration.as_secs_f64() / f64::from(output));
        }
        let Some(ttft) = self.ttft() else { return };
        metrics.ttft.observe(ttft.as_secs_f64());
        if let Some(predicted) = self.predicted_ttft {
            metrics.predicted_ttft.observe(predicted.as_secs_f64());
        }
        if output > 1 {
            let decode = duration.saturating_sub(ttft).as_secs_f64();
            metrics.tpot.observe(decode / f64::from(output - 1));
        }
    }

    fn ttft(&self) -> Option<Duration> {
        self.first_token.map(|first| first.since(self.started))
    }

    fn write_line(&self, duration: Duration) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let usage = self.watch.as_ref().and_then(Watch::usage).unwrap_or_default();
        let output = self.output_tokens();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.gateway.log.write(&Line {
            time: since_epoch.as_secs_f64(),
            request_id: &self.request_id,
            method: self.method,
            api: self.api,
            status: self.status,
            outcome: self.outcome_name(),
            pool: self.routed.as_ref().map(|routed| &*routed.pool),
            model: self.routed.as_ref().map(|routed| &*routed.model),
            endpoint: self.endpoint.as_deref(),
            key: self.key.as_deref(),
            attempts: self.attempts,
            duration_ms: ms(duration),
            queued_ms: self.queued.map(ms),
            ttft_ms: self.ttft().map(ms),
            predicted_ttft_ms: self.predicted_ttft.map(ms),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            prompt_tokens: usage.prompt,
            cached_tokens: usage.cached,
            output_tokens: (output > 0).then_some(u64::from(output)),
            path: self.path.name(),
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let duration = self.gateway.clock.now().since(self.started);
        self.observe(duration);
        if self.gateway.log.is_on() {
            self.write_line(duration);
        }
    }
}
