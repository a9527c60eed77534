//! Aliases come back, and nothing else changes.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn rename(shape: Shape, text: &str, size: usize) -> String {
    let mut rename = Rename::new(shape, "target", "an \"alias\"");
    let mut out = Vec::new();
    for piece in text.as_bytes().chunks(size) {
        rename.push(piece, &mut out);
    }
    rename.finish(&mut out);
    String::from_utf8(out).unwrap()
}

fn json_renamed(text: &str) -> String {
    rename(Shape::Json, text, text.len().max(1))
}

#[test]
fn only_the_models_value_changes() {
    let text =
        r#"{ "id":1, "model" : "target","x":{"model":"target"},"t":"\"model\":\"target\"" }"#;
    let expected = text.replacen(r#": "target""#, r#": "an \"alias\"""#, 1);
    assert_eq!(json_renamed(text), expected);
}

#[test]
fn other_names_stay() {
    for name in
        ["targe", "targett", "Target", "", "a much longer name than the target could ever be"]
    {
        let text = format!(r#"{{"model":"{name}"}}"#);
        assert_eq!(json_renamed(&text), text);
    }
}

#[test]
fn a_name_written_with_escapes_is_the_same_name() {
    assert_eq!(json_renamed(r#"{"model":"t\u0061rget"}"#), r#"{"model":"an \"alias\""}"#);
}

#[test]
fn responses_and_messages_carry_it_one_level_down() {
    for key in ["response", "message"] {
        let text = format!(
            r#"{{"type":"x","{key}":{{"id":1,"model":"target","y":{{"model":"target"}}}}}}"#
        );
        assert_eq!(json_renamed(&text), text.replacen("\"target\"", "\"an \\\"alias\\\"\"", 1));
    }
}

#[test]
fn what_is_no_json_passes() {
    for text in [
        "",
        "oops",
        "[1]",
        "{\"model\":\"target\"",
        "{\"model\":\"targ",
        "{x \"model\":\"target\"}",
    ] {
        let out = json_renamed(text);
        assert_eq!(out.replace("an \\\"alias\\\"", "target"), text);
    }
}

#[test]
fn every_event_is_renamed() {
    let text = include_str!("../../tests/fixtures/vllm-chat-stream.txt");
    let mut rename = Rename::new(Shape::Events, "tiny", "big");
    let mut out = Vec::new();
    rename.push(text.as_bytes(), &mut out);
    rename.finish(&mut out);
    let expected = text.replace(r#""model":"tiny""#, r#""model":"big""#);
    assert_ne!(expected, text);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn little_is_held_back() {
    let mut rename = Rename::new(Shape::Json, "target", "alias");
    let mut out = Vec::new();
    rename.push(br#"{"model":"tar"#, &mut out);
    assert_eq!(out, br#"{"model":"#);
    rename.push(b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", &mut out);
    assert!(out.ends_with(b"xxxx"));
}

proptest! {
    #[test]
    fn any_split_gives_the_same_bytes(size in 1_usize..60, lines in prop::collection::vec(prop_oneof![
        Just("data: {\"model\":\"target\",\"n\":1}\n\n"),
        Just("data: {\"message\":{\"model\": \"target\"}}\r\n\r\n"),
        Just("data: {\"model\":\"tar\n\n"),
        Just("data: {\"model\":\"t\\u0061rget\"}\n"),
        Just("event: x\n: \"model\":\"target\"\n"),
        Just("data: [DONE]\n\n"),
        Just("data: {\"model\":\"other\",\"c\":\"日本\"}\n\n"),
    ], 0..8)) {
        let text = lines.concat();
        let whole = rename(Shape::Events, &text, text.len().max(1));
        prop_assert_eq!(rename(Shape::Events, &text, size), whole.clone());
        // Undone, nothing else has changed.
        let undone = whole.replace("\"an \\\"alias\\\"\"", "\"target\"");
        prop_assert_eq!(undone, text.replace("\"t\\u0061rget\"", "\"target\""));
    }

    #[test]
    fn a_full_parser_sees_the_alias(content: String, size in 1_usize..60) {
        let mut body = json!({"id": "x", "content": content, "model": "target", "usage": {"n": 1}});
        let out = rename(Shape::Json, &body.to_string(), size);
        body["model"] = Value::from("an \"alias\"");
        prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), body);
    }
}
