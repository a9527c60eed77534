//! How fast bodies are scanned: `cargo bench -p gateway-core --bench scan`.
//!
//! Bodies arrive in pieces, as from a socket. "above reading" subtracts the time
//! that a plain pass over the same bytes takes. `--json FILE` writes
//! `{"rows":[{"body","bytes","ns","gb_per_s","read_ns"}]}`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gateway_core::body::{ScanSettings, Scanner};
use gateway_core::engine::{Engine, Mapping};
use gateway_core::http1::RequestHead;
use gateway_core::rename::{Rename, Shape};
use gateway_core::sse::Watch;

const PIECE: usize = 128 << 10;
const MIB: usize = 1 << 20;

struct Row {
    body: &'static str,
    bytes: usize,
    scan: Duration,
    read: Duration,
}

fn main() {
    let bodies = [
        ("100 B chat", chat("Say hello.", 1)),
        ("8 KB chat", chat(&prose(8_000, 60), 1)),
        ("128 KB chat", chat(&prose(128_000, 60), 1)),
        ("16 MiB, plain text", chat(&"lorem ipsum dolor ".repeat(16 * MIB / 18), 1)),
        ("16 MiB, \\n every 60 bytes", chat(&prose(16 * MIB, 60), 1)),
        ("16 MiB, \\\" every 30 bytes", chat(&quotes(16 * MIB, 30), 1)),
        ("500,000 tiny messages", chat("a", 500_000)),
        ("16 MiB of token ids", ids(16 * MIB)),
    ];
    let mut rows: Vec<Row> = bodies.iter().map(|(name, body)| measure(name, body)).collect();
    rows.extend([metrics_page(), chunk_of_stream(), renamed_chunk(), request_head()]);
    println!(
        "{:28} {:>11} {:>12} {:>8} {:>14}",
        "body", "bytes", "scan ns", "GB/s", "above reading"
    );
    for row in &rows {
        let above = row.scan.saturating_sub(row.read);
        println!(
            "{:28} {:>11} {:>12} {:>8.1} {:>12} ns",
            row.body,
            row.bytes,
            row.scan.as_nanos(),
            rate(row),
            above.as_nanos(),
        );
    }
    let mut args = std::env::args().skip_while(|arg| arg != "--json").skip(1);
    if let Some(file) = args.next() {
        std::fs::write(&file, json(&rows))
            .unwrap_or_else(|error| panic!("cannot write {file}: {error}"));
    }
}

fn measure(body: &'static str, bytes: &[u8]) -> Row {
    let scan = best(bytes.len(), || {
        let mut scanner = Scanner::json(ScanSettings::default());
        for piece in bytes.chunks(PIECE) {
            scanner.push(black_box(piece)).unwrap_or_else(|error| panic!("{error}"));
        }
        black_box(scanner.finish().unwrap_or_else(|error| panic!("{error}")));
    });
    let read = best(bytes.len(), || {
        for piece in bytes.chunks(PIECE) {
            black_box(black_box(piece).iter().fold(0_u8, |sum, byte| sum ^ byte));
        }
    });
    Row { body, bytes: bytes.len(), scan, read }
}

fn metrics_page() -> Row {
    let page = include_bytes!("../tests/fixtures/vllm-metrics.txt");
    let mapping = Mapping::of(Engine::Vllm);
    let scan = best(page.len(), || {
        black_box(mapping.read(black_box(page), Some("tiny")));
    });
    Row { body: "vLLM metrics page", bytes: page.len(), scan, read: Duration::ZERO }
}

fn event() -> Vec<u8> {
    let content = "x".repeat(100);
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1795963065,\
         \"model\":\"llama\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n"
    )
    .into_bytes()
}

fn chunk_of_stream() -> Row {
    let event = event();
    let mut watch = Watch::events();
    let scan = best(event.len(), || {
        black_box(watch.push(black_box(&event)));
    });
    Row { body: "event of a stream", bytes: event.len(), scan, read: Duration::ZERO }
}

fn renamed_chunk() -> Row {
    let event = event();
    let mut rename = Rename::new(Shape::Events, "llama", "alias");
    let mut out = Vec::new();
    let scan = best(event.len(), || {
        out.clear();
        rename.push(black_box(&event), &mut out);
        black_box(&out);
    });
    Row { body: "event of a stream, renamed", bytes: event.len(), scan, read: Duration::ZERO }
}

fn request_head() -> Row {
    let head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway:8080\r\nAccept: application/json\r\n\
        Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n\
        User-Agent: OpenAI/Python 1.99.0\r\nAuthorization: Bearer sk-0123456789abcdef\r\n\
        X-Stainless-Lang: python\r\nX-Stainless-OS: Linux\r\nContent-Length: 321\r\n\r\n";
    let scan = best(head.len(), || {
        black_box(RequestHead::parse(black_box(head)).is_ok());
    });
    Row { body: "request head", bytes: head.len(), scan, read: Duration::ZERO }
}

/// The least of many runs, for the other core's noise only adds.
fn best(bytes: usize, mut run: impl FnMut()) -> Duration {
    let repeat = (MIB / bytes.max(1)).clamp(1, 2_000) as u32;
    let once = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..repeat).for_each(|_| run());
        start.elapsed() / repeat
    };
    (0..40).map(|_| once(&mut run)).min().unwrap_or_default()
}

fn chat(content: &str, messages: usize) -> Vec<u8> {
    let message = format!(r#"{{"role":"user","content":"{content}"}}"#);
    let messages = vec![message; messages].join(",");
    format!(r#"{{"model":"llama-3.1-8b","messages":[{messages}],"stream":true}}"#).into_bytes()
}

fn prose(bytes: usize, line: usize) -> String {
    let line = format!("{}\\n", "word ".repeat(line / 5));
    line.repeat(bytes / line.len())
}

fn quotes(bytes: usize, every: usize) -> String {
    let word = format!("{}\\\"", "x".repeat(every - 2));
    word.repeat(bytes / word.len())
}

fn ids(bytes: usize) -> Vec<u8> {
    let ids: Vec<String> = (0..bytes / 6).map(|i| (10_000 + i % 80_000).to_string()).collect();
    format!(r#"{{"model":"llama-3.1-8b","prompt":[{}]}}"#, ids.join(",")).into_bytes()
}

fn rate(row: &Row) -> f64 {
    row.bytes as f64 / row.scan.as_secs_f64() / 1e9
}

fn json(rows: &[Row]) -> String {
    let mut text = String::from("{\"rows\":[");
    for (i, row) in rows.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let name = row.body.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(
            text,
            "{comma}{{\"body\":\"{name}\",\"bytes\":{},\"ns\":{},\"gb_per_s\":{:.2},\"read_ns\":{}}}",
            row.bytes,
            row.scan.as_nanos(),
            rate(row),
            row.read.as_nanos(),
        );
    }
    text + "]}\n"
}
