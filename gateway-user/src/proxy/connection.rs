//! Serves one HTTP/1.1 client connection: requests in, answers out, in order.
//!
//! One task per connection, one request at a time; a pipelined request waits in
//! the buffer. While a request is queued or an engine works on it, the connection
//! is watched, so that a client that goes away stops its generation at once.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gateway_core::http1::{HeadError, Limits, Persistence, RequestHead, Version};
use tokio::net::TcpStream;

use super::answer::{Answer, AnswerError};
use super::client::{Client, Incoming};
use super::error::{Dialect, ProxyError, stream_error_event};
use super::handler::{self, Caller};
use super::reply::{Reply, ReplyBody, push_field};
use super::upload::{Http1Upload, Upload};
use super::worker::{Worker, new_request_id};
use crate::drain::Phase;
use crate::splice::Bound;

/// How long a connection may be idle between requests.
const IDLE: Duration = Duration::from_mins(10);
/// How long a head may take once its first byte is here.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client may read nothing while an answer waits for it.
const UNREAD: Duration = Duration::from_mins(5);

/// Serves until either side closes, or the daemon drains.
pub(crate) async fn serve(
    stream: TcpStream,
    received: BytesMut,
    peer: SocketAddr,
    worker: Arc<Worker>,
) {
    let mut client = Client::new(stream, received);
    let limits =
        Limits { head: worker.gateway.site.load().config.limits.head_bytes, ..Limits::default() };
    let mut drain = worker.gateway.drain.clone();
    loop {
        let idle = tokio::time::timeout(IDLE, client.wait());
        let waited = tokio::select! {
            biased;
            waited = idle => waited,
            () = drain.reached(Phase::Draining) => return,
        };
        if !matches!(waited, Ok(Ok(()))) {
            return;
        }
        let Ok(Ok(incoming)) = tokio::time::timeout(HEAD, client.read_head(&limits)).await else {
            return;
        };
        let next = match incoming {
            Incoming::Closed => return,
            Incoming::Refused(error) => refuse(&mut client, error, &worker).await,
            // On the heap, so that an idle connection is not as large as a busy one.
            Incoming::Request(head) => Box::pin(exchange(&mut client, &head, peer, &worker)).await,
        };
        match next {
            Ok(Next::Request) => {}
            Ok(Next::Close) | Err(_) => return,
            Ok(Next::Linger) => return client.linger().await,
            Ok(Next::Tear) => return client.tear(),
        }
    }
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    Close,
    /// Part of the request was not read: close, but gently.
    Linger,
    Request,
    /// Some of the answer is missing: close without an end.
    Tear,
}

/// One request and its answer.
async fn exchange(
    client: &mut Client,
    head: &RequestHead,
    peer: SocketAddr,
    worker: &Arc<Worker>,
) -> io::Result<Next> {
    let flow = client.bound.as_ref().map_or(0, Bound::flow);
    let http1 = Http1Upload::new(client, head.framing(), head.expects_continue());
    let mut upload = Upload::Http1(http1);
    let caller = Caller { peer, verbatim: head.version() == Version::Http11, flow };
    let reply = handler::handle(worker, head, &mut upload, caller).await;
    let Upload::Http1(http1) = upload else { return Ok(Next::Close) };
    let whole = http1.is_done();
    let Some(reply) = reply else { return Ok(Next::Close) };

    let draining = worker.gateway.drain.phase() >= Phase::Draining;
    let next = match head.persistence() {
        _ if !whole => Next::Linger,
        Persistence::KeepAlive if !draining => Next::Request,
        _ => Next::Close,
    };
    write_reply(client, head, reply, next).await
}

/// How the body is delimited towards this client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Delivery {
    /// We put chunk framing around the payload.
    Chunked,
    Length(u64),
    /// There is no body.
    None,
    UntilClose,
    /// The engine's own chunks.
    Verbatim,
}

async fn write_reply(
    client: &mut Client,
    head: &RequestHead,
    reply: Reply,
    mut next: Next,
) -> io::Result<Next> {
    let delivery = delivery(head, &reply);
    if delivery == Delivery::UntilClose {
        next = Next::Close;
    }
    let mut out = reply.begin();
    match delivery {
        Delivery::Length(length) => {
            push_field(&mut out, "content-length", length.to_string().as_bytes());
        }
        Delivery::Chunked | Delivery::Verbatim => {
            push_field(&mut out, "transfer-encoding", b"chunked");
        }
        Delivery::None | Delivery::UntilClose => {}
    }
    if next != Next::Request {
        push_field(&mut out, "connection", b"close");
    } else if head.version() == Version::Http10 {
        push_field(&mut out, "connection", b"keep-alive");
    }
    out.extend_from_slice(b"\r\n");
    match reply.body {
        ReplyBody::Full(body) => {
            if delivery != Delivery::None {
                out.extend_from_slice(&body);
            }
            client.write(&out, UNREAD).await?;
            Ok(next)
        }
        ReplyBody::Answer(answer, _) => stream(client, out, *answer, delivery, next).await,
    }
}

fn delivery(head: &RequestHead, reply: &Reply) -> Delivery {
    let length = match &reply.body {
        _ if head.method() == "HEAD" || matches!(reply.status, 204 | 304) => return Delivery::None,
        ReplyBody::Full(body) => Some(body.len() as u64),
        ReplyBody::Answer(_, length) => *length,
    };
    match (length, &reply.body) {
        (Some(length), _) => Delivery::Length(length),
        (None, ReplyBody::Answer(answer, _)) if answer.is_verbatim() => Delivery::Verbatim,
        (None, _) if head.version() == Version::Http11 => Delivery::Chunked,
        (None, _) => Delivery::UntilClose,
    }
}

/// Passes an engine's answer on. `out` holds the head that is still to be
/// written; whatever of the body is there already leaves with it.
async fn stream(
    client: &mut Client,
    mut out: Vec<u8>,
    mut answer: Answer,
    delivery: Delivery,
    next: Next,
) -> io::Result<Next> {
    let carried = answer.may_be_carried() && delivery == Delivery::Verbatim;
    if let Some(splicer) = answer.splicer().filter(|_| carried).cloned() {
        client.bind(&splicer);
    }
    loop {
        let piece = poll_fn(|cx| match answer.poll_next(cx) {
            Poll::Ready(piece) => Poll::Ready(Some(piece)),
            // Nothing to pass on yet: let the head go out first.
            Poll::Pending if !out.is_empty() => Poll::Ready(None),
            Poll::Pending => match client.poll_gone(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Some(Err(AnswerError::ClientGone)))),
                Poll::Pending => Poll::Pending,
            },
        })
        .await;
        if matches!(piece, Some(Some(Err(AnswerError::ClientGone)))) {
            return Ok(Next::Close);
        }
        if answer.settle(client).is_err() {
            return Ok(Next::Tear);
        }
        match piece {
            None => {}
            Some(None) => {
                if delivery == Delivery::Chunked {
                    out.extend_from_slice(b"0\r\n\r\n");
                }
                client.write(&out, UNREAD).await?;
                return Ok(next);
            }
            Some(Some(Ok(piece))) if out.is_empty() && delivery != Delivery::Chunked => {
                client.write(&piece, UNREAD).await?;
                if carried {
                    answer.offer(client);
                }
                continue;
            }
            Some(Some(Ok(piece))) => push_piece(&mut out, &piece, delivery),
            Some(Some(Err(error))) => {
                return end_broken(client, out, &answer, &error, delivery).await;
            }
        }
        client.write(&out, UNREAD).await?;
        out.clear();
        if carried {
            answer.offer(client);
        }
    }
}

fn push_piece(out: &mut Vec<u8>, piece: &Bytes, delivery: Delivery) {
    if delivery == Delivery::Chunked {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    } else {
        out.extend_from_slice(piece);
    }
}

/// Ends an answer that broke off: with an error event where one can stand, and
/// always without the end that would make it look whole.
async fn end_broken(
    client: &mut Client,
    mut out: Vec<u8>,
    answer: &Answer,
    error: &AnswerError,
    delivery: Delivery,
) -> io::Result<Next> {
    if answer.at_boundary() {
        let event = stream_error_event(answer.dialect(), &error.to_string());
        let chunked = matches!(delivery, Delivery::Chunked | Delivery::Verbatim);
        push_piece(&mut out, &event, if chunked { Delivery::Chunked } else { delivery });
    }
    client.write(&out, UNREAD).await?;
    Ok(Next::Close)
}

/// Answers what is not a request we can read, and closes.
async fn refuse(client: &mut Client, error: HeadError, worker: &Worker) -> io::Result<Next> {
    let error = ProxyError::BadHead { status: error.status(), message: error.to_string() };
    worker.gateway.metrics.local_replies.with_label_values(&[error.reason()]).inc();
    let reply = Reply::error(&error, Dialect::OpenAi, &new_request_id());
    let ReplyBody::Full(body) = &reply.body else { return Ok(Next::Close) };
    let mut out = reply.begin();
    push_field(&mut out, "content-length", body.len().to_string().as_bytes());
    push_field(&mut out, "connection", b"close");
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    client.write(&out, UNREAD).await?;
    Ok(Next::Linger)
}
