//! One line of JSON per finished request.
//!
//! Lines are handed to a thread of their own, so that a slow terminal or a full
//! pipe never holds up a request; when that thread cannot keep up, lines are
//! dropped and counted, not queued without bound. A line never carries a prompt,
//! an answer or a credential: it is built from [`Line`]'s fields and from nothing
//! else.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::Serialize;

/// Lines that may wait for the writer.
const WAITING_LINES: usize = 8192;

/// What is known of a finished request. Times are milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    pub(crate) time: f64,
    pub(crate) request_id: &'a str,
    pub(crate) method: &'a str,
    pub(crate) api: &'a str,
    pub(crate) status: u16,
    pub(crate) outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<&'a str>,
    pub(crate) attempts: u32,
    pub(crate) duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queued_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttft_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) predicted_ttft_ms: Option<f64>,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
    pub(crate) path: &'a str,
}

/// Where lines go. Cloning shares the writer.
#[derive(Clone, Debug, Default)]
pub struct AccessLog {
    lines: Option<SyncSender<Vec<u8>>>,
}

impl AccessLog {
    /// A log that writes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self { lines: None }
    }

    /// A log that writes to standard output.
    ///
    /// # Errors
    ///
    /// The writer's thread cannot be started.
    pub fn to_stdout() -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_LINES);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_lines(&receiver))?;
        Ok(Self { lines: Some(sender) })
    }

    /// Whether lines are worth building.
    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn write(&self, line: &Line<'_>) {
        let Some(lines) = &self.lines else { return };
        let mut text = Vec::with_capacity(512);
        if serde_json::to_writer(&mut text, line).is_ok() {
            text.push(b'\n');
            // Full or gone: the request matters more than its line.
            let _ = lines.try_send(text);
        }
    }
}

/// Writes what has gathered in one call, then waits for more.
fn write_lines(lines: &Receiver<Vec<u8>>) {
    let mut out = std::io::stdout();
    while let Ok(mut batch) = lines.recv() {
        while let Ok(next) = lines.try_recv() {
            batch.extend_from_slice(&next);
            if batch.len() > 256 * 1024 {
                break;
            }
        }
        if out.write_all(&batch).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
