//! Serves one HTTP/2 client connection.
//!
//! hyper speaks the protocol; each stream's head is turned into the same checked
//! [`RequestHead`] that an HTTP/1.1 request has, so both protocols share every
//! line of the handler.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use gateway_core::http1::RequestHead;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::answer::Answer;
use super::error::{Dialect, ProxyError, stream_error_event};
use super::handler::{self, Caller};
use super::reply::{Reply, ReplyBody};
use super::upload::Upload;
use super::worker::{Worker, new_request_id};
use crate::drain::Phase;

/// Streams one client may have open on a connection.
const STREAMS: u32 = 1024;
/// How often a silent connection is asked whether it is still there.
const PING: Duration = Duration::from_mins(1);
/// How long the last bytes of a broken answer have to leave before the reset: it
/// overtakes, and discards, whatever of its stream is still queued.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Serves until either side closes, or the daemon drains.
pub(crate) async fn serve(
    stream: TcpStream,
    received: BytesMut,
    peer: SocketAddr,
    worker: Arc<Worker>,
) {
    let mut drain = worker.gateway.drain.clone();
    let io = TokioIo::new(Replayed { received, stream });
    let service = service_fn(|request| answer(request, peer, Arc::clone(&worker)));
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(PING)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = drain.reached(Phase::Draining) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "HTTP/2 connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    worker: Arc<Worker>,
) -> Result<Response<Outgoing>, Infallible> {
    let (parts, body) = request.into_parts();
    let text = head_text(&parts);
    let is_head = parts.method == http::Method::HEAD;
    let reply = match RequestHead::parse(&text) {
        Ok(Some((head, _))) => {
            let mut upload = Upload::Http2(body);
            let caller = Caller { peer, verbatim: false, flow: 0 };
            handler::handle(&worker, &head, &mut upload, caller).await
        }
        other => {
            let (status, message) = match other {
                Err(error) => (error.status(), error.to_string()),
                Ok(_) => (400, "malformed head".to_owned()),
            };
            let error = ProxyError::BadHead { status, message };
            Some(Reply::error(&error, Dialect::OpenAi, &new_request_id()))
        }
    };
    // Without a reply nobody is there to read one.
    let mut response =
        reply.map_or_else(|| Response::new(Outgoing::Full(Bytes::new())), into_response);
    if is_head {
        // Its length is told, the body is not sent (RFC 9110, 9.3.2).
        *response.body_mut() = Outgoing::Full(Bytes::new());
    }
    Ok(response)
}

/// Writes an HTTP/2 head as the HTTP/1.1 head that says the same.
fn head_text(parts: &http::request::Parts) -> Vec<u8> {
    let mut text = Vec::with_capacity(1024);
    text.extend_from_slice(parts.method.as_str().as_bytes());
    text.push(b' ');
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    text.extend_from_slice(target.as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let mut has_host = false;
    for (name, value) in &parts.headers {
        has_host |= name == HOST;
        // Framing is HTTP/2's own business; the length comes back as the body's hint.
        // A cookie may come in crumbs.
        if ![CONTENT_LENGTH, COOKIE, TRANSFER_ENCODING].contains(name) {
            line(&mut text, name.as_str(), value.as_bytes());
        }
    }
    let crumbs: Vec<&[u8]> =
        parts.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if !crumbs.is_empty() {
        // RFC 9113, 8.2.3: outside of HTTP/2 they are one.
        line(&mut text, "cookie", &crumbs.join(&b"; "[..]));
    }
    if !has_host {
        let host = parts.uri.authority().map_or("localhost", |authority| authority.as_str());
        line(&mut text, "host", host.as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn line(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    super::reply::push_field(text, name, value);
}

fn into_response(reply: Reply) -> Response<Outgoing> {
    let length = match &reply.body {
        ReplyBody::Full(body) => Some(body.len() as u64),
        ReplyBody::Answer(_, length) => *length,
    };
    let mut response = reply.into_response(|body| match body {
        ReplyBody::Full(body) => Outgoing::Full(body),
        ReplyBody::Answer(answer, _) => Outgoing::Answer(answer),
    });
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}

/// An answer as HTTP/2 data frames.
#[derive(Debug)]
enum Outgoing {
    Answer(Box<Answer>),
    /// After the last bytes of an answer that broke off: the stream must not end as
    /// if it were whole.
    Broken(Pin<Box<Sleep>>),
    Full(Bytes),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => {
                let all = std::mem::take(bytes);
                Poll::Ready(Some(Ok(Frame::data(all))))
            }
            Self::Broken(pause) => {
                ready!(pause.as_mut().poll(cx));
                Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
            }
            Self::Answer(answer) => match ready!(answer.poll_next(cx)) {
                None => Poll::Ready(None),
                Some(Ok(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                Some(Err(error)) => {
                    let event = answer
                        .at_boundary()
                        .then(|| stream_error_event(answer.dialect(), &error.to_string()));
                    *self = Self::Broken(Box::pin(tokio::time::sleep(LAST_WORDS)));
                    match event {
                        Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
                        None => self.poll_frame(cx),
                    }
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Answer(_) | Self::Broken(_) => SizeHint::default(),
        }
    }
}

/// A stream whose first bytes were already read.
#[derive(Debug)]
struct Replayed {
    received: BytesMut,
    stream: TcpStream,
}

impl AsyncRead for Replayed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received[..length]);
        self.received.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replayed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
