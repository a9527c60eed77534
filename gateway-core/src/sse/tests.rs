//! Streams of real engines and of public bug reports, whole and cut everywhere.

use super::*;
use proptest::prelude::*;

const VLLM_CHAT: &str = include_str!("../../tests/fixtures/vllm-chat-stream.txt");
const VLLM_COMPLETION: &str = include_str!("../../tests/fixtures/vllm-completion-stream.txt");
const VLLM_MESSAGES: &str = include_str!("../../tests/fixtures/vllm-messages-stream.txt");
const VLLM_RESPONSE: &str = include_str!("../../tests/fixtures/vllm-responses.json");
const LLAMACPP_CHAT: &str = include_str!("../../tests/fixtures/llamacpp-chat-stream.txt");
const LLAMACPP_MESSAGE: &str = include_str!("../../tests/fixtures/llamacpp-messages.json");
const SGLANG_CHAT: &str = include_str!("../../tests/fixtures/sglang-chat-stream.txt");

/// All that a watcher says of a whole answer.
#[derive(Debug, PartialEq)]
struct Seen {
    progress: Progress,
    usage: Option<Usage>,
    events: u64,
    content: u64,
    completion: Completion,
    at_boundary: bool,
}

fn watch<'a>(mut watch: Watch, pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut progress = Progress::Nothing;
    for piece in pieces {
        progress = progress.max(watch.push(piece));
    }
    Seen {
        progress,
        usage: watch.usage(),
        events: watch.events_seen(),
        content: watch.content_events(),
        completion: watch.completion(),
        at_boundary: watch.at_event_boundary(),
    }
}

fn events(stream: &str) -> Seen {
    watch(Watch::events(), [stream.as_bytes()])
}

fn usage(prompt: u64, output: u64, cached: Option<u64>) -> Usage {
    Usage { prompt: Some(prompt), output: Some(output), cached }
}

#[test]
fn real_streams_are_understood() {
    for (stream, expected_usage, content) in [
        (VLLM_CHAT, Some(usage(11, 6, Some(0))), 6),
        (VLLM_COMPLETION, None, 6),
        (VLLM_MESSAGES, Some(usage(11, 4, Some(0))), 4),
        (LLAMACPP_CHAT, Some(usage(37, 6, Some(36))), 6),
        (SGLANG_CHAT, Some(usage(31, 4, None)), 4),
    ] {
        let seen = events(stream);
        assert_eq!(seen.usage, expected_usage, "{stream}");
        assert_eq!(seen.content, content, "{stream}");
        assert_eq!(seen.completion, Completion::Complete, "{stream}");
        assert!(seen.at_boundary);
    }
}

#[test]
fn json_answers_yield_their_usage_wherever_it_stands() {
    let seen = watch(Watch::json(), [VLLM_RESPONSE.as_bytes()]);
    assert_eq!(seen.usage, Some(usage(11, 4, Some(0))));
    assert_eq!(seen.completion, Completion::Complete);
    let seen = watch(Watch::json(), [LLAMACPP_MESSAGE.as_bytes()]);
    assert_eq!(seen.usage, Some(usage(31, 4, Some(30))));
    let body = format!(
        r#"{{"usage":{{"prompt_tokens":5,"completion_tokens":6}},"data":[{}],"usages":{{"prompt_tokens":1}}}}"#,
        vec!["0.5"; 100_000].join(","),
    );
    assert_eq!(watch(Watch::json(), body.as_bytes().chunks(1_000)).usage, Some(usage(5, 6, None)));
}

#[test]
fn an_empty_role_delta_is_no_first_token() {
    let mut watch = Watch::events();
    let role = br#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    assert_eq!(watch.push(&[&role[..], b"\n\n"].concat()), Progress::Event);
    assert_eq!(watch.push(b": ping\n\n"), Progress::Nothing);
    assert_eq!(watch.push(br#"data: {"choices":[{"delta":{"content":"a"}}]}"#), Progress::Nothing);
    assert_eq!(watch.push(b"\n\n"), Progress::Content);
    assert_eq!(watch.events_seen(), 2);
}

#[test]
fn reasoning_and_tool_calls_are_content() {
    for delta in [
        r#"{"reasoning_content":"hm","content":null}"#,
        r#"{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}"#,
        r#"{ "content" : "x" }"#,
    ] {
        let stream = format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
        assert_eq!(events(&stream).progress, Progress::Content, "{delta}");
    }
}

#[test]
fn data_without_a_space_and_any_line_end_are_accepted() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!(
            "data:{{\"choices\":[{{\"text\":\"a\"}}]}}{end}{end}event: ping{end}data: {{}}{end}{end}\
             : OPENROUTER PROCESSING{end}{end}id: 7{end}data: [DONE]{end}{end}"
        );
        let seen = events(&stream);
        assert_eq!((seen.events, seen.content), (3, 1), "{}", end.escape_debug());
        assert_eq!(seen.completion, Completion::Complete);
    }
}

#[test]
fn usage_of_every_way_a_response_ends_is_kept() {
    for (kind, completion) in [
        ("response.completed", Completion::Complete),
        ("response.incomplete", Completion::Complete),
        ("response.failed", Completion::Failed),
    ] {
        let text = "x".repeat(20_000);
        let stream = format!(
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"response\":{{\"output\":[\"{text}\"],\"usage\":\
             {{\"input_tokens\":3,\"output_tokens\":4,\"input_tokens_details\":{{\"cached_tokens\":2}}}}}}}}\n\n"
        );
        for size in [7, 1_000, 100_000] {
            let seen = watch(Watch::events(), stream.as_bytes().chunks(size));
            assert_eq!(seen.usage, Some(usage(3, 4, Some(2))), "{kind} in pieces of {size}");
            assert_eq!(seen.completion, completion);
        }
    }
}

#[test]
fn anthropic_records_are_merged_and_cached_tokens_counted_in() {
    let seen = events(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\
         \"cache_read_input_tokens\":90,\"cache_creation_input_tokens\":5,\"output_tokens\":1}}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":42}}\n\n",
    );
    assert_eq!(seen.usage, Some(usage(105, 42, Some(90))));
    assert_eq!(seen.content, 0);
}

#[test]
fn usage_in_a_text_is_not_usage() {
    let seen = events(
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":1}\"}}],\"usage\":null}\n\n",
    );
    assert_eq!(seen.usage, None);
}

#[test]
fn errors_in_a_stream_are_seen() {
    for stream in [
        "data: {\"error\":{\"message\":\"boom\"}}\n\ndata: [DONE]\n\n",
        "event: error\ndata: {\"type\":\"error\"}\n\n",
        "data: {\"object\":\"error\",\"message\":\"boom\"}\n\n",
        "data: {\"type\": \"error\"}\n\n",
    ] {
        assert_eq!(events(stream).completion, Completion::Failed, "{stream}");
    }
}

#[test]
fn boundaries_are_only_between_events() {
    let mut watch = Watch::events();
    assert!(watch.at_event_boundary());
    for (piece, expected) in [
        ("data: x", false),
        ("\n", false),
        ("\n", true),
        (": c", false),
        ("\n", true),
        ("id: 1\n", false),
        ("\n", true),
        ("d", false),
        ("ata: y\r\n", false),
        ("\r\n", true),
    ] {
        watch.push(piece.as_bytes());
        assert_eq!(watch.at_event_boundary(), expected, "after {piece:?}");
    }
}

#[test]
fn the_content_type_decides() {
    for (content_type, expected) in [
        ("text/event-stream; charset=utf-8", Completion::Complete),
        ("application/json", Completion::Open),
        ("audio/mpeg", Completion::Open),
    ] {
        let seen = watch(Watch::for_content_type(Some(content_type)), [&b"data: [DONE]\n\n"[..]]);
        assert_eq!(seen.completion, expected, "{content_type}");
    }
}

fn stream() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("data: {\"choices\":[{\"delta\":{\"content\":\"日本\"}}]}".to_owned()),
        Just("data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}".to_owned()),
        Just("data:{\"type\":\"message_stop\"}".to_owned()),
        Just("event: content_block_delta".to_owned()),
        Just("event: error".to_owned()),
        Just(": ping".to_owned()),
        Just("data".to_owned()),
        Just(String::new()),
        "[a-z: {}\"]{0,12}",
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\n\n"), Just("\r")];
    prop::collection::vec((line, end), 0..12).prop_map(|lines| {
        lines.into_iter().flat_map(|(line, end)| [line, end.to_owned()]).collect()
    })
}

proptest! {
    #[test]
    fn any_split_shows_the_same(stream in stream(), size in 1_usize..40) {
        prop_assert_eq!(watch(Watch::events(), stream.as_bytes().chunks(size)), events(&stream));
    }

    #[test]
    fn real_streams_may_be_cut_anywhere(size in 1_usize..600) {
        for stream in [VLLM_CHAT, VLLM_MESSAGES, LLAMACPP_CHAT] {
            prop_assert_eq!(watch(Watch::events(), stream.as_bytes().chunks(size)), events(stream));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        watch(Watch::events(), bytes.chunks(11));
        watch(Watch::json(), bytes.chunks(11));
    }
}
