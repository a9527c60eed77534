//! Room that a request holds at an endpoint, given back however it ends.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::pool::{End, EndpointId, Failure, Lease, Pick};

use super::Shared;
use super::flow::Class;
use crate::endpoint::Endpoint;
use crate::proxy::answer::AnswerError;
use crate::proxy::upstream::AttemptError;

/// Held from the pick to the last byte. Dropping it means the client went away.
#[derive(Debug)]
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    lease: Option<Lease>,
    endpoint: EndpointId,
    class: Class,
    /// Whether it had to wait after the pick.
    held: bool,
    /// Whether anything has been sent: until then, giving up costs the endpoint nothing.
    sent: bool,
    /// Tokens of an answer that did not reach its end.
    delivered: u32,
    /// Time to first token that the pick expected.
    pub(crate) predicted_ttft: Option<Duration>,
}

impl Reservation {
    pub(crate) fn new(shared: Arc<Shared>, pick: Pick, class: Class) -> Self {
        shared.started();
        Self {
            shared,
            endpoint: pick.endpoint,
            predicted_ttft: pick.predicted_ttft,
            held: pick.held,
            lease: Some(pick.lease),
            class,
            sent: false,
            delivered: 0,
        }
    }

    /// Which endpoint.
    pub(crate) fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// Where it is, unless it has left since.
    pub(crate) fn address(&self) -> Option<Arc<Endpoint>> {
        self.shared.endpoint(self.endpoint)
    }

    /// Whether the request was held, and its endpoint may not serve any more. Nothing was
    /// sent: pick again.
    pub(crate) fn is_stranded(&self) -> bool {
        self.held && !self.shared.with(|pool, now| pool.is_serving(self.endpoint, now))
    }

    /// The request is about to be sent.
    pub(crate) fn sent(&mut self) {
        self.sent = true;
    }

    /// The first token was seen.
    pub(crate) fn first_token(&self) {
        if let Some(lease) = &self.lease {
            self.shared.with(|pool, now| pool.first_token(lease, now));
        }
    }

    /// The answer will not reach its end, and this much of it was sent. How it ended
    /// is told next, or by the drop.
    pub(crate) fn cut(&mut self, output_tokens: u32) {
        self.delivered = output_tokens;
    }

    /// The answer is whole.
    pub(crate) fn completed(&mut self, output_tokens: u32) {
        self.end(End::Completed { output_tokens });
    }

    /// The answer is whole, and is an error.
    pub(crate) fn refused(&mut self, status: u16) {
        self.end(End::Failed(Failure::Status(status)));
    }

    /// The answer broke off.
    pub(crate) fn broken(&mut self, error: &AnswerError) {
        self.end(match error {
            AnswerError::ClientGone | AnswerError::Deadline(_) | AnswerError::Torn => {
                End::Cancelled
            }
            AnswerError::Closed(_) | AnswerError::Malformed => End::Failed(Failure::Reset),
            AnswerError::Idle(_) => End::Failed(Failure::Timeout),
        });
    }

    /// The attempt failed before an answer.
    pub(crate) fn failed(&mut self, error: &AttemptError) {
        self.end(End::Failed(match error {
            AttemptError::Connect(_) | AttemptError::ConnectTimeout(_) => Failure::Connect,
            AttemptError::Closed(_) | AttemptError::Malformed(_) => Failure::Reset,
            AttemptError::Timeout(_) => Failure::Timeout,
        }));
    }

    fn end(&mut self, end: End) {
        if let Some(lease) = self.lease.take() {
            self.shared.finish(lease, end, &self.class, self.worth(end));
        }
    }

    /// What the request's flow is charged for: what it got.
    fn worth(&self, end: End) -> u64 {
        let prompt = self.class.prompt_tokens;
        match end {
            End::Completed { output_tokens } => prompt + u64::from(output_tokens),
            End::Cancelled => prompt + u64::from(self.delivered),
            End::Failed(_) if self.delivered > 0 => prompt + u64::from(self.delivered),
            End::Failed(_) | End::NotSent => 0,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end(if self.sent { End::Cancelled } else { End::NotSent });
    }
}
