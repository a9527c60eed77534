//! An HTTP/2 client.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use gateway_tests::place;
use gateway_tests::wait::soon;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// A connection; clones share it.
pub(crate) async fn connect(addr: SocketAddr) -> SendRequest<Body> {
    let stream = place::connect(addr).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    sender
}

/// A POST of a JSON body.
pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Body> {
    Request::post(format!("http://test{path}"))
        .header("content-type", "application/json")
        .body(Full::new(body.into()).boxed())
        .unwrap()
}

/// No body.
pub(crate) fn nothing() -> Body {
    Empty::new().boxed()
}

/// Sends a request and waits for the head of its answer.
pub(crate) async fn send(
    connection: &SendRequest<Body>,
    request: Request<Body>,
) -> Response<Incoming> {
    let mut connection = connection.clone();
    soon(async {
        connection.ready().await.unwrap();
        connection.send_request(request).await
    })
    .await
    .unwrap()
}

/// The whole body of an answer, or how it broke off.
pub(crate) async fn body(response: Response<Incoming>) -> Result<Vec<u8>, hyper::Error> {
    Ok(soon(response.into_body().collect()).await?.to_bytes().to_vec())
}

/// The next piece of an answer; `None` at its end.
pub(crate) async fn piece(
    response: &mut Response<Incoming>,
) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        match soon(response.body_mut().frame()).await? {
            Ok(frame) => {
                // The end may come with an empty one.
                if let Some(data) = frame.into_data().ok().filter(|data| !data.is_empty()) {
                    return Some(Ok(data));
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The first header of this name, as text.
pub(crate) fn header<'a>(response: &'a Response<Incoming>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}
