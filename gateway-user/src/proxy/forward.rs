//! Sends a request to an endpoint, and to another one if the first fails early.
//!
//! An attempt may be repeated only while nothing of an answer has reached the
//! client, the body can be sent again, and the pool's retry budget allows it. An
//! answer of the engine is an answer, whatever it says: only 502 and 503, with
//! which engines and proxies in front of them say "not me, not now", are tried
//! elsewhere.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::http1::{Persistence, RequestHead, ResponseFraming, ResponseHead};
use gateway_core::rename::{Rename, Shape};
use gateway_core::retry::{self, Attempt, Decision, Fault, Replay};
use gateway_core::sse::Watch;
use tokio::time::Instant;

use super::answer::{Answer, Cut, Parts};
use super::api::Api;
use super::error::ProxyError;
use super::handler::Caller;
use super::headers::{self, Credentials, Outgoing};
use super::intake::{self, Intake};
use super::record::{Record, Streamed};
use super::reply::{Reply, ReplyBody, push_field};
use super::upload::{More, Upload};
use super::upstream::{AttemptError, Connection, Sent};
use super::worker::Worker;
use crate::carrier::Carriers;
use crate::config::{Datapath, Switch};
use crate::endpoint::Endpoint;
use crate::pool::flow::Class;
use crate::pool::{Demand, Pool, Reservation};

/// A request that knows its pool.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) api: Api,
    pub(crate) caller: Caller,
    /// Whether the client's key was meant for the gateway.
    pub(crate) authenticated: bool,
    /// The client's name for the model and the engine's, when they differ.
    pub(crate) rename: Option<(Arc<str>, Arc<str>)>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) class: Class,
    pub(crate) demand: Demand,
    pub(crate) intake: Intake,
    /// Whether the request has a body at all, be it empty.
    pub(crate) has_body: bool,
}

/// An engine has begun to answer.
#[derive(Debug)]
struct Answered {
    connection: Connection,
    head: ResponseHead,
    sent: Sent,
    endpoint: Arc<Endpoint>,
    reservation: Reservation,
}

/// Finds an endpoint, forwards, and returns the start of the answer.
pub(crate) async fn forward(
    worker: &Arc<Worker>,
    mut plan: Plan<'_>,
    mut record: Record,
    upload: &mut Upload<'_>,
) -> Result<Reply, (Record, ProxyError)> {
    let allowed = plan.pool.config.timeouts.request;
    let deadline = Instant::now() + allowed;
    let answered =
        tokio::time::timeout_at(deadline, attempts(worker, &mut plan, &mut record, upload));
    match answered.await {
        Ok(Ok(answered)) => Ok(begin(worker, &plan, answered, record, (deadline, allowed))),
        Ok(Err(error)) => Err((record, error)),
        Err(_) => Err((record, ProxyError::UpstreamTimeout(allowed))),
    }
}

async fn attempts(
    worker: &Worker,
    plan: &mut Plan<'_>,
    record: &mut Record,
    upload: &mut Upload<'_>,
) -> Result<Answered, ProxyError> {
    let pool = Arc::clone(&plan.pool);
    // What went wrong last. An engine's own error is kept to be passed on as it is.
    let mut failed: Option<Result<Answered, ProxyError>> = None;
    loop {
        let metrics = &worker.gateway.metrics;
        let admission = pool.admit(&plan.demand, &plan.class, record.attempts, metrics);
        let admitted = upload.unless_gone(admission).await?;
        let mut reservation = match (admitted, failed.take()) {
            (Ok(admitted), _) => {
                record.queued = record.queued.or(admitted.queued);
                admitted.reservation
            }
            // No other endpoint left: what went wrong at the last one is the answer.
            (Err(_), Some(failed)) => return failed,
            (Err(error), None) => return Err(error),
        };
        if reservation.is_stranded() {
            continue;
        }
        record.attempts += 1;
        record.predicted_ttft = reservation.predicted_ttft;
        let Some(endpoint) = reservation.address() else {
            // It left between the pick and here. Nothing was sent: pick again.
            plan.demand.tried.push(reservation.endpoint());
            continue;
        };
        endpoint
            .picks(|| metrics.picks.with_label_values(&[pool.name(), &endpoint.authority]))
            .inc();
        reservation.sent();
        let (fault, failure) = match attempt(worker, plan, record, &endpoint, upload).await? {
            Ok((connection, head, sent)) => {
                let status = head.status();
                let fault = Fault::Status(status);
                let endpoint = Arc::clone(&endpoint);
                let mut answered = Answered { connection, head, sent, endpoint, reservation };
                if status < 500 || !may_retry(plan, record, fault).await {
                    return Ok(answered);
                }
                answered.reservation.refused(status);
                (fault, Ok(answered))
            }
            Err(error) => {
                tracing::debug!(endpoint = %endpoint.authority, %error, "attempt failed");
                reservation.failed(&error);
                let (fault, refusal) = describe(&error);
                if !may_retry(plan, record, fault).await {
                    return Err(refusal);
                }
                (fault, Err(refusal))
            }
        };
        worker.gateway.metrics.retries.with_label_values(&[&**pool.name(), name(fault)]).inc();
        plan.demand.tried.push(endpoint.id);
        failed = Some(failure);
    }
}

/// Asks the pool, and pauses if it says so.
async fn may_retry(plan: &Plan<'_>, record: &Record, fault: Fault) -> bool {
    let replay = match (plan.intake.more, fault) {
        (More::No, _) => Replay::Whole,
        // Nothing was sent, so the upload is still all there.
        (More::Yes, Fault::Connect) => Replay::Unstarted,
        (More::Yes, _) => Replay::Impossible,
    };
    let attempt =
        Attempt { number: record.attempts, fault, replay, answered: retry::Answered::Nothing };
    match plan.pool.decide_retry(&attempt) {
        Decision::Retry { after } if after.is_zero() => true,
        Decision::Retry { after } => {
            tokio::time::sleep(after).await;
            true
        }
        Decision::GiveUp(reason) => {
            tracing::debug!(reason = reason.name(), "attempt not repeated");
            false
        }
    }
}

fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::Closed => "closed",
        Fault::Connect => "connect",
        Fault::Malformed => "malformed",
        Fault::Status(_) => "status",
        Fault::Timeout => "timeout",
    }
}

type Outcome = Result<(Connection, ResponseHead, Sent), AttemptError>;

/// One attempt at one endpoint. The outer error ends the request.
async fn attempt(
    worker: &Worker,
    plan: &Plan<'_>,
    record: &Record,
    endpoint: &Arc<Endpoint>,
    upload: &mut Upload<'_>,
) -> Result<Outcome, ProxyError> {
    let timeouts = &plan.pool.config.timeouts;
    let (connect, first_byte) = (timeouts.connect, timeouts.first_byte);
    let mut head = Vec::with_capacity(1024);
    let whole = plan.intake.more == More::No;
    let body = plan.intake.body.clone();
    let length = if whole {
        Some(body.len() as u64)
    } else {
        upload.remaining().map(|rest| rest + body.len() as u64)
    };
    let key = plan.pool.engine_key();
    headers::request(
        &mut head,
        &Outgoing {
            head: plan.head,
            endpoint,
            peer: plan.caller.peer,
            request_id: &record.request_id,
            credentials: match key {
                Some(key) => Credentials::Replace(key),
                None if plan.authenticated => Credentials::Remove,
                None => Credentials::Pass,
            },
            length,
            has_body: plan.has_body,
            plain_answer: plan.rename.is_some(),
        },
    );
    if !whole {
        return stream_upload(plan, endpoint, head, length, upload).await;
    }
    let sending = async {
        let carriers = carriers(worker, plan);
        if let Some(mut connection) = worker.idle.take(endpoint, plan.caller.flow) {
            match send(&mut connection, &head, &body, first_byte).await {
                // The keep-alive race: the engine closed while our request was on
                // its way. It has not seen it; a fresh connection settles it.
                Err(AttemptError::Closed(_)) if connection.buffer.is_empty() => {}
                sent => return sent.map(|(head, sent)| (connection, head, sent)),
            }
        }
        let mut connection = Connection::open(endpoint, connect, &carriers).await?;
        let (answer, sent) = send(&mut connection, &head, &body, first_byte).await?;
        Ok((connection, answer, sent))
    };
    upload.unless_gone(sending).await
}

/// Who may carry the pool's answers besides us.
fn carriers(worker: &Worker, plan: &Plan<'_>) -> Carriers {
    let config = &plan.pool.config;
    let Some(node) = &worker.gateway.node else { return Carriers::default() };
    let splicer = || node.splicer().cloned();
    match config.datapath {
        Datapath::Auto | Datapath::Splice => Carriers { splicer: splicer(), sk_msg: None },
        Datapath::SkMsg => {
            let sk_msg = node.sk_msg_for(config.accept_broken_fionread).cloned();
            Carriers { splicer: splicer(), sk_msg }
        }
        Datapath::User => Carriers::default(),
    }
}

async fn send(
    connection: &mut Connection,
    head: &[u8],
    body: &[u8],
    first_byte: Duration,
) -> Result<(ResponseHead, Sent), AttemptError> {
    let sent = match connection.send(head, body).await {
        Ok(sent) => sent,
        // It may have answered before it closed on our body.
        Err(_) => Sent::AnsweredEarly,
    };
    let answer = connection.read_head(first_byte).await?;
    Ok((answer, sent))
}

/// Sends a body that is still coming in. Cannot be repeated.
async fn stream_upload(
    plan: &Plan<'_>,
    endpoint: &Endpoint,
    mut head: Vec<u8>,
    length: Option<u64>,
    upload: &mut Upload<'_>,
) -> Result<Outcome, ProxyError> {
    let body = &plan.intake.body;
    let timeouts = &plan.pool.config.timeouts;
    // A fresh connection: the keep-alive race could not be settled by a repeat.
    let mut connection =
        match Connection::open(endpoint, timeouts.connect, &Carriers::default()).await {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
    let limit = plan.pool.config.max_request_body_bytes;
    let mut passed = body.len() as u64;
    let sending = connection.send_piece(&mut head, body, length.is_some());
    let mut sent = upload.unless_left(sending).await?;
    let mut piece = bytes::BytesMut::new();
    let mut more = plan.intake.more;
    while more == More::Yes && matches!(sent, Ok(Sent::Whole)) {
        piece.clear();
        more = intake::append(upload, &mut piece).await?;
        passed += piece.len() as u64;
        if passed > limit {
            return Err(ProxyError::TooLarge { limit });
        }
        let mut no_head = Vec::new();
        let sending = connection.send_piece(&mut no_head, &piece, length.is_some());
        sent = upload.unless_left(sending).await?;
    }
    if length.is_none() && more == More::No && matches!(sent, Ok(Sent::Whole)) {
        sent = connection.send(b"0\r\n\r\n", b"").await;
    }
    let sent = sent.unwrap_or(Sent::AnsweredEarly);
    let reading = async {
        let answer = connection.read_head(timeouts.first_byte).await?;
        Ok((connection, answer, sent))
    };
    if more == More::No { upload.unless_gone(reading).await } else { Ok(reading.await) }
}

fn describe(error: &AttemptError) -> (Fault, ProxyError) {
    match error {
        AttemptError::Connect(_) | AttemptError::ConnectTimeout(_) => {
            (Fault::Connect, ProxyError::UpstreamConnect)
        }
        AttemptError::Closed(_) => (Fault::Closed, ProxyError::UpstreamClosed),
        AttemptError::Malformed(_) => (Fault::Malformed, ProxyError::UpstreamMalformed),
        AttemptError::Timeout(limit) => (Fault::Timeout, ProxyError::UpstreamTimeout(*limit)),
    }
}

/// Where the model's name stands in an answer of this type, if it does at all.
fn shape(content_type: Option<&str>) -> Option<Shape> {
    let essence = content_type?.split(';').next()?.trim();
    if essence.eq_ignore_ascii_case("text/event-stream") {
        Some(Shape::Events)
    } else {
        essence.eq_ignore_ascii_case("application/json").then_some(Shape::Json)
    }
}

/// Turns the start of an engine's answer into ours.
fn begin(
    worker: &Worker,
    plan: &Plan<'_>,
    answered: Answered,
    mut record: Record,
    deadline: (Instant, Duration),
) -> Reply {
    let Answered { connection, head, sent, endpoint, reservation } = answered;
    let method = plan.head.method();
    let framing = head.framing(method);
    let content_type = head.fields().text_of("content-type");
    let encoded = head.fields().first("content-encoding").is_some();
    // An engine that compresses although it was not asked to is passed on as it is.
    let has_text = framing != ResponseFraming::None && !encoded;
    let rename = plan.rename.as_ref().filter(|_| has_text).and_then(|(alias, target)| {
        let shape = shape(content_type)?;
        Some(Rename::new(shape, target, alias))
    });
    let watch = if encoded { Watch::opaque() } else { Watch::for_content_type(content_type) };
    let streamed = match shape(content_type) {
        Some(Shape::Events) => Streamed::Yes,
        _ => Streamed::No,
    };
    if streamed == Streamed::Yes && plan.pool.config.delayed_acks == Switch::On {
        connection.delay_acks();
    }
    record.answered(Arc::clone(&endpoint.authority), head.status(), watch, streamed);
    let verbatim = plan.caller.verbatim && rename.is_none() && framing == ResponseFraming::Chunked;
    let length = match framing {
        ResponseFraming::Length(length) if rename.is_none() => Some(length),
        _ => None,
    };
    let mut fields = Vec::with_capacity(512);
    headers::response(&mut fields, &head, &record.request_id);
    if plan.pool.config.debug_headers {
        push_field(&mut fields, "x-inference-gateway-endpoint", endpoint.authority.as_bytes());
    }
    let reusable = sent == Sent::Whole && head.persistence(method) == Persistence::KeepAlive;
    let answer = Answer::new(Parts {
        connection,
        reuse: reusable.then(|| Arc::clone(&worker.idle)),
        framing,
        cut: if verbatim { Cut::Verbatim } else { Cut::Payload },
        dialect: plan.api.dialect,
        rename,
        idle: plan.pool.config.timeouts.idle,
        deadline,
        endpoint,
        reservation,
        record,
        carriers: if verbatim && streamed == Streamed::Yes {
            carriers(worker, plan)
        } else {
            Carriers::default()
        },
    });
    Reply { status: head.status(), fields, body: ReplyBody::Answer(Box::new(answer), length) }
}
