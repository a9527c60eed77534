//! One connection: requests in, answers out, in order.
//!
//! While an answer is being made the connection is also read, because a client
//! that closes must abort its request at once, not when the next token fails to
//! be written. As in uvicorn, half a close counts as a close.

use std::io;
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::failure::{AnswerFault, Failures};
use super::http::{Head, Incoming, Pace, invite_body};
use super::log::{OpenConnection, count};
use super::metrics::Exchange;
use super::outlet::{Next, Outlet, Whole};
use super::route::{self, Reply};
use super::shared::{Shared, lock};

/// Serves a connection to its end.
pub(super) async fn serve(mut stream: TcpStream, shared: &Shared) {
    let _open = OpenConnection::new(&shared.totals);
    let (read, mut write) = stream.split();
    let mut incoming = Incoming::new(read);
    loop {
        match exchange(&mut incoming, &mut write, shared).await {
            Ok(Next::Request) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let refused = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; \
                    charset=utf-8\r\nconnection: close\r\n\r\nInvalid HTTP request received.";
                // The peer may be gone; there is nobody else to tell.
                let _gone = write.write_all(refused.as_bytes()).await;
                break;
            }
            Ok(Next::Close) | Err(_) => break,
        }
    }
    let _gone = write.shutdown().await;
}

/// One request and its answer.
async fn exchange(
    incoming: &mut Incoming<ReadHalf<'_>>,
    write: &mut WriteHalf<'_>,
    shared: &Shared,
) -> io::Result<Next> {
    let Some(head) = incoming.head().await? else { return Ok(Next::Close) };
    let started = Instant::now();
    let failures = shared.current_failures();
    invite_body(write, &head).await?;
    let pace = failures.read_bytes_per_second.map_or(Pace::Free, Pace::BytesPerSecond);
    let body = incoming.body(&head, pace).await?;
    shared.record(&head, &body);
    let is_inference = route::is_inference(head.path());
    if is_inference {
        count(&shared.totals.inference);
    }
    let request = Request { head: &head, body: &body, started, failures: &failures };
    let answered = tokio::select! {
        biased;
        answered = answer(&request, is_inference, write, shared) => Some(answered),
        () = incoming.closed() => None,
    };
    match answered {
        Some(Ok(next)) => {
            if is_inference {
                count(&shared.totals.completed);
            }
            Ok(next)
        }
        failed => {
            if is_inference {
                count(&shared.totals.aborted);
            }
            failed.unwrap_or(Ok(Next::Close))
        }
    }
}

struct Request<'a> {
    head: &'a Head,
    body: &'a [u8],
    started: Instant,
    failures: &'a Failures,
}

async fn answer(
    request: &Request<'_>,
    is_inference: bool,
    write: &mut WriteHalf<'_>,
    shared: &Shared,
) -> io::Result<Next> {
    let fault = if is_inference { shared.strike() } else { None };
    let reply = match &fault {
        Some(AnswerFault::CloseBeforeHead) => return Ok(Next::Close),
        Some(AnswerFault::HangBeforeHead) => return std::future::pending().await,
        Some(AnswerFault::Garbage) => {
            write.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await?;
            return Ok(Next::Close);
        }
        Some(AnswerFault::Status { code, retry_after }) => {
            Reply::Whole(ordered_error(*code, *retry_after))
        }
        _ => route::respond(shared, request.head, request.body).await,
    };
    let request_id = match request.head.text("x-request-id") {
        "" => shared.hex_id() + &shared.hex_id(),
        given => given.to_owned(),
    };
    let failures = if is_inference { request.failures.clone() } else { Failures::default() };
    let mut outlet = Outlet::new(write, &failures, fault, request_id);
    if !request.head.keeps_alive() {
        outlet.announce_close();
    }
    if request.head.method == "HEAD" {
        outlet.send_head_only();
    }
    let mut exchange = Exchange::new(request.head, request.body.len());
    let next = match reply {
        Reply::Generation(generation) if generation.is_streaming() => {
            generation.stream(&mut outlet).await?
        }
        Reply::Generation(generation) => {
            let whole = generation.whole().await;
            exchange.answered(&whole);
            outlet.whole(&whole).await?
        }
        Reply::Whole(whole) => {
            exchange.answered(&whole);
            outlet.whole(&whole).await?
        }
    };
    lock(&shared.http).count(&exchange, request.started.elapsed(), shared.created);
    Ok(next)
}

fn ordered_error(code: u16, retry_after: Option<u64>) -> Whole {
    let refusal = super::error::Refusal::new(code, "InternalServerError", "failed as ordered");
    let mut whole = refusal.answer(None);
    if let Some(seconds) = retry_after {
        whole.headers = format!("retry-after: {seconds}\r\n{}", whole.headers);
    }
    whole
}
