//! Reads a request's body and finds what routing needs, while it comes in.
//!
//! Small bodies are kept whole: they can be sent again when an endpoint fails.
//! Of a large one only the beginning is kept, and as soon as the model is known
//! the rest streams through: a thousand slow uploads of 100 MB cost a thousand
//! times [`KEEP_BYTES`], not a hundred gigabytes. A large body that has not named
//! its model yet (it may come last) waits in memory that all such bodies share.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gateway_core::body::{RequestFacts, ScanError, ScanSettings, Scanner};
use gateway_core::http1::{Framing, RequestHead};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ProxyError;
use super::upload::{More, Upload};

/// Bodies up to here are kept whole, and can be retried.
pub(crate) const KEEP_BYTES: usize = 1024 * 1024;
/// How long a client may send nothing in the middle of its body.
const SILENCE: Duration = Duration::from_mins(1);

/// A request's body, or its beginning.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) facts: RequestFacts,
    pub(crate) body: Bytes,
    /// Whether the upload has more than `body`.
    pub(crate) more: More,
    /// Shared memory this body holds; given back when the request ends.
    _shared: Option<OwnedSemaphorePermit>,
}

/// Bounds of one intake.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Largest body any pool takes, bytes.
    pub(crate) largest: u64,
    /// Memory for bodies that must wait beyond [`KEEP_BYTES`], in KiB.
    pub(crate) shared: Arc<Semaphore>,
}

/// Reads until the body is whole, or large and routable.
///
/// # Errors
///
/// What is wrong with the body or the client's connection.
pub(crate) async fn read(
    head: &RequestHead,
    upload: &mut Upload<'_>,
    bounds: &Bounds,
) -> Result<Intake, ProxyError> {
    let mut shared = None;
    if !has_body(head, upload) || upload.remaining() == Some(0) {
        return Ok(Intake::new(RequestFacts::default(), BytesMut::new(), More::No, shared));
    }
    let expected = upload.remaining();
    if expected.is_some_and(|length| length > bounds.largest) {
        return Err(ProxyError::TooLarge { limit: bounds.largest });
    }
    let mut scanner = scanner(head)?;
    let mut body =
        BytesMut::with_capacity(expected.map_or(8192, |length| (length as usize).min(KEEP_BYTES)));
    loop {
        let before = body.len();
        let more = append(upload, &mut body).await?;
        scanner.push(&body[before..]).map_err(bad_body)?;
        if body.len() as u64 > bounds.largest {
            return Err(ProxyError::TooLarge { limit: bounds.largest });
        }
        if more == More::No && body.is_empty() {
            return Ok(Intake::new(RequestFacts::default(), body, more, shared));
        }
        if more == More::No {
            return Ok(Intake::new(scanner.finish().map_err(bad_body)?, body, more, shared));
        }
        if body.len() >= KEEP_BYTES {
            if scanner.model().is_some() {
                return Ok(Intake::new(scanner.so_far(), body, more, shared));
            }
            hold(body.len() - KEEP_BYTES, &mut shared, &bounds.shared)?;
        }
    }
}

impl Intake {
    fn new(
        facts: RequestFacts,
        body: BytesMut,
        more: More,
        shared: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { facts, body: body.freeze(), more, _shared: shared }
    }

    /// Puts the engine's name for the model where the client's is; no other byte
    /// changes.
    pub(crate) fn rename_model(&mut self, target: &str) {
        let Some(span) = self.facts.model_span.take() else { return };
        let Some(old) = self.body.get(span.clone()) else { return };
        let name = if old.starts_with(b"\"") {
            serde_json::Value::from(target).to_string()
        } else {
            target.to_owned()
        };
        let mut renamed = BytesMut::with_capacity(self.body.len() + name.len());
        renamed.extend_from_slice(&self.body[..span.start]);
        renamed.extend_from_slice(name.as_bytes());
        renamed.extend_from_slice(&self.body[span.end..]);
        self.body = renamed.freeze();
    }
}

fn bad_body(error: ScanError) -> ProxyError {
    ProxyError::BadBody(error.to_string())
}

/// One piece of the body, unless the client falls silent.
pub(crate) async fn append(
    upload: &mut Upload<'_>,
    body: &mut BytesMut,
) -> Result<More, ProxyError> {
    match tokio::time::timeout(SILENCE, upload.append(body)).await {
        Ok(more) => more,
        Err(_) => Err(ProxyError::UploadTimeout),
    }
}

/// Takes shared memory for `beyond` bytes more than a body's own allowance.
fn hold(
    beyond: usize,
    held: &mut Option<OwnedSemaphorePermit>,
    shared: &Arc<Semaphore>,
) -> Result<(), ProxyError> {
    let have = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let needed = beyond.div_ceil(1024).saturating_sub(have);
    if needed == 0 {
        return Ok(());
    }
    // In steps of 1 MiB, so that a long body does not ask for every piece.
    let step = u32::try_from(needed.max(1024)).unwrap_or(u32::MAX);
    let permit =
        Arc::clone(shared).try_acquire_many_owned(step).map_err(|_| ProxyError::BufferFull)?;
    match held {
        Some(all) => all.merge(permit),
        None => *held = Some(permit),
    }
    Ok(())
}

pub(crate) fn has_body(head: &RequestHead, upload: &Upload<'_>) -> bool {
    match upload {
        Upload::Http1(_) => head.framing() != Framing::None,
        Upload::Http2(_) => upload.remaining() != Some(0),
    }
}

fn scanner(head: &RequestHead) -> Result<Scanner, ProxyError> {
    let fields = head.fields();
    if let Some(encoding) = fields.text_of("content-encoding")
        && !encoding.eq_ignore_ascii_case("identity")
    {
        return Err(ProxyError::UnsupportedEncoding(encoding.to_owned()));
    }
    Scanner::for_content_type(fields.text_of("content-type"), ScanSettings::default())
        .map_err(bad_body)
}
