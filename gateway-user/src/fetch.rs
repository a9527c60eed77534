//! Small GETs to endpoints over a kept connection: metrics pages, health, models.

use std::future::poll_fn;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use gateway_common::chunked::{ChunkTracker, Kind};
use gateway_core::http1::{Persistence, ResponseFraming};

use crate::carrier::Carriers;
use crate::endpoint::Endpoint;
use crate::proxy::reply::push_field;
use crate::proxy::upstream::{AttemptError, Connection};

/// Largest page we take; an engine's metrics are about 60 KB.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Why a page could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// No connection, or no answer on it.
    #[error("no answer")]
    Attempt(#[from] AttemptError),
    /// The page did not come in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection broke in the middle of the page.
    #[error("the page broke off")]
    Truncated,
    /// The engine answered, but not with a page.
    #[error("status {0}")]
    Status(u16),
    /// More than [`PAGE_BYTES`].
    #[error("the page is larger than {PAGE_BYTES} bytes")]
    TooLarge,
}

impl FetchError {
    /// Whether nobody listens there: the engine is gone, and comes back empty.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Attempt(AttemptError::Connect(error))
            if error.kind() == std::io::ErrorKind::ConnectionRefused)
    }
}

/// Fetches one path of one endpoint, again and again.
#[derive(Debug)]
pub(crate) struct Fetcher {
    request: Vec<u8>,
    connection: Option<Connection>,
}

/// A page, on loan until the next fetch.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) body: BytesMut,
}

impl Fetcher {
    /// A fetcher of `path`, with the engine's key if it has one.
    pub(crate) fn new(endpoint: &Endpoint, path: &str, key: Option<&str>) -> Self {
        let mut fetcher = Self { request: Vec::with_capacity(256), connection: None };
        fetcher.aim(endpoint, path, key);
        fetcher
    }

    /// Fetches another path of the same endpoint from now on.
    pub(crate) fn aim(&mut self, endpoint: &Endpoint, path: &str, key: Option<&str>) {
        let request = &mut self.request;
        request.clear();
        request.extend_from_slice(format!("GET {path} HTTP/1.1\r\n").as_bytes());
        push_field(request, "host", endpoint.authority.as_bytes());
        push_field(
            request,
            "user-agent",
            concat!("inference-gateway/", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        push_field(request, "accept", b"*/*");
        if let Some(key) = key {
            push_field(request, "authorization", format!("Bearer {key}").as_bytes());
        }
        request.extend_from_slice(b"\r\n");
    }

    /// Fetches the page; `limit` bounds the whole of it. `buffer` is reused for it.
    ///
    /// # Errors
    ///
    /// See [`FetchError`]. A status is not an error here.
    pub(crate) async fn fetch(
        &mut self,
        endpoint: &Endpoint,
        limit: Duration,
        buffer: BytesMut,
    ) -> Result<Page, FetchError> {
        if let Ok(page) =
            tokio::time::timeout(limit, self.fetch_unbounded(endpoint, limit, buffer)).await
        {
            page
        } else {
            self.connection = None;
            Err(FetchError::Timeout(limit))
        }
    }

    async fn fetch_unbounded(
        &mut self,
        endpoint: &Endpoint,
        limit: Duration,
        buffer: BytesMut,
    ) -> Result<Page, FetchError> {
        if let Some(mut kept) = self.connection.take() {
            kept.buffer = buffer;
            match self.ask(kept, limit).await {
                // The keep-alive race; a fresh connection settles it.
                Err(FetchError::Attempt(AttemptError::Closed(_))) => {}
                result => return result,
            }
        }
        let connection = Connection::open(endpoint, limit, &Carriers::default()).await?;
        self.ask(connection, limit).await
    }

    async fn ask(
        &mut self,
        mut connection: Connection,
        limit: Duration,
    ) -> Result<Page, FetchError> {
        connection.buffer.reserve(64 * 1024);
        let sent = connection.send(&self.request, b"").await;
        sent.map_err(|error| AttemptError::Closed(Some(error)))?;
        let head = connection.read_head(limit).await?;
        let body = match head.framing("GET") {
            ResponseFraming::None => BytesMut::new(),
            ResponseFraming::Length(length) => read_length(&mut connection, length).await?,
            ResponseFraming::Chunked => read_chunks(&mut connection).await?,
            ResponseFraming::UntilClose => read_to_end(&mut connection).await?,
        };
        if head.persistence("GET") == Persistence::KeepAlive && connection.buffer.is_empty() {
            connection.buffer = BytesMut::new();
            self.connection = Some(connection);
        }
        Ok(Page { status: head.status(), body })
    }
}

async fn read_length(connection: &mut Connection, length: u64) -> Result<BytesMut, FetchError> {
    let length = usize::try_from(length).ok().filter(|length| *length <= PAGE_BYTES);
    let length = length.ok_or(FetchError::TooLarge)?;
    while connection.buffer.len() < length {
        let missing = length - connection.buffer.len();
        connection.buffer.reserve(missing);
        fill(connection).await?;
    }
    Ok(connection.buffer.split_to(length))
}

async fn read_chunks(connection: &mut Connection) -> Result<BytesMut, FetchError> {
    let mut tracker = ChunkTracker::new();
    let mut page = BytesMut::new();
    loop {
        if connection.buffer.is_empty() {
            fill(connection).await?;
        }
        let step = tracker.next(&connection.buffer);
        match step.kind {
            Kind::Data => page.extend_from_slice(&connection.buffer[..step.consumed]),
            Kind::Lost => return Err(FetchError::Truncated),
            Kind::ChunkEnd | Kind::End | Kind::Framing | Kind::Trailer => {}
        }
        connection.buffer.advance(step.consumed);
        if step.kind == Kind::End {
            return Ok(page);
        }
        if page.len() > PAGE_BYTES {
            return Err(FetchError::TooLarge);
        }
    }
}

async fn read_to_end(connection: &mut Connection) -> Result<BytesMut, FetchError> {
    loop {
        match poll_fn(|cx| connection.poll_fill(cx)).await {
            Ok(0) => return Ok(connection.buffer.split()),
            Ok(_) if connection.buffer.len() > PAGE_BYTES => return Err(FetchError::TooLarge),
            Ok(_) => {}
            Err(_) => return Err(FetchError::Truncated),
        }
    }
}

async fn fill(connection: &mut Connection) -> Result<(), FetchError> {
    match poll_fn(|cx| connection.poll_fill(cx)).await {
        Ok(0) | Err(_) => Err(FetchError::Truncated),
        Ok(_) => Ok(()),
    }
}
