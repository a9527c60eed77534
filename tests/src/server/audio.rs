//! `/v1/audio/transcriptions`: a multipart form in, a text out.

use serde_json::json;

use super::adapter::resolve;
use super::error::Refusal;
use super::generation::compute;
use super::outlet::Whole;
use super::prompt::Prompt;
use super::shared::Shared;
use crate::answer::{Form, Limits, answer};

/// Bytes of a second of 16-bit mono sound at 16 kHz.
const BYTES_PER_SECOND: usize = 32_000;

/// Whisper's encoder makes 50 positions of a second; its decoder says about 3 tokens.
const WORDS_PER_SECOND: u32 = 3;

/// Answers a transcription request; the text depends on the file's bytes only.
pub(super) async fn transcribe(
    shared: &Shared,
    content_type: &str,
    body: &[u8],
) -> Result<Whole, Refusal> {
    let parts = parts(content_type, body).ok_or_else(|| Refusal::missing("file"))?;
    let text_of = |name: &str| {
        let part = parts.iter().find(|part| part.name == name);
        part.map(|part| String::from_utf8_lossy(part.content).into_owned()).unwrap_or_default()
    };
    let file = parts.iter().find(|part| part.name == "file");
    let file = file.ok_or_else(|| Refusal::missing("file"))?.content;
    let served = resolve(shared, &text_of("model"))?;
    let seconds = file.len().div_ceil(BYTES_PER_SECOND);
    let sound = Prompt::new(format!("{:016x}", xxhash_rust::xxh64::xxh64(file, 0)));
    compute(shared, &served, std::slice::from_ref(&sound)).await?;
    let words = (seconds as u32).saturating_mul(WORDS_PER_SECOND).min(1000);
    let limits = Limits { max_tokens: words, ignore_eos: true, ..Limits::default() };
    let text = answer(&shared.options.style, &sound.text, 0, Form::Prose, &limits).text();
    Ok(match text_of("response_format").as_str() {
        "text" => Whole::typed(200, "text/plain; charset=utf-8", text.into_bytes()),
        _ => Whole::json(
            200,
            &json!({
                "text": text, "usage": { "type": "duration", "seconds": seconds },
            }),
        ),
    })
}

struct Part<'a> {
    name: String,
    content: &'a [u8],
}

/// The parts of a form; `None` when it is not one (RFC 7578).
fn parts<'a>(content_type: &str, body: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let boundary = content_type.split_once("boundary=")?.1.split(';').next()?;
    let delimiter = format!("--{}", boundary.trim().trim_matches('"')).into_bytes();
    let mut parts = Vec::new();
    let mut rest = &body[find(body, &delimiter)? + delimiter.len()..];
    while let Some(end) = find(rest, &delimiter) {
        let part = rest[..end].strip_prefix(b"\r\n")?;
        let split = find(part, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&part[..split]);
        let name = head.split_once("name=\"")?.1.split('"').next()?.to_owned();
        let content = &part[split + 4..];
        parts.push(Part { name, content: content.strip_suffix(b"\r\n").unwrap_or(content) });
        rest = &rest[end + delimiter.len()..];
    }
    Some(parts)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_split_into_its_parts() {
        let body = b"--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n\
            --x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n\
            \x00\r\n\x01\r\n--x--\r\n";
        let parts = parts("multipart/form-data; boundary=x", body).unwrap();
        let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["model", "file"]);
        assert_eq!(parts[1].content, b"\x00\r\n\x01");
    }

    #[test]
    fn other_bodies_are_no_form() {
        assert!(parts("application/json", b"{}").is_none());
        assert!(parts("multipart/form-data; boundary=x", b"nothing").is_none());
    }
}
