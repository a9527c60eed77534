//! Facts from hand-made bodies, and against a full JSON parser.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn scan(body: &[u8]) -> Result<RequestFacts, ScanError> {
    scan_pieces([body])
}

fn scan_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<RequestFacts, ScanError> {
    let mut scanner = Scanner::json(ScanSettings::default());
    for piece in pieces {
        scanner.push(piece)?;
    }
    scanner.finish()
}

fn facts(body: &str) -> RequestFacts {
    scan(body.as_bytes()).unwrap()
}

fn fault(body: &str) -> Fault {
    scan(body.as_bytes()).unwrap_err().fault
}

#[test]
fn a_chat_request_is_understood() {
    let facts = facts(
        r#" {"model":"org/llama","messages":[{"role":"user","content":"hi"}],"stream":true,
            "stream_options":{"include_usage":true,"x":{}},"max_tokens":20,
            "max_completion_tokens":10,"n":2,"user":"u","session_id":"s","cache_salt":"c"} "#,
    );
    assert_eq!(facts.model.as_deref(), Some("org/llama"));
    assert!(facts.stream && facts.include_usage);
    assert_eq!(facts.max_output_tokens, Some(10));
    assert_eq!(facts.choices, Some(2));
    assert_eq!(facts.user.as_deref(), Some("u"));
    assert_eq!(facts.session_id.as_deref(), Some("s"));
    assert_eq!(facts.cache_salt.as_deref(), Some("c"));
    assert_eq!(facts.prompt_bytes, 32);
    assert_eq!(facts.prompt_tokens, 8);
}

#[test]
fn the_span_is_the_value_with_its_quotes() {
    let body = r#"{"a":[1],"model" : "m\u0031" ,"b":2}"#;
    let facts = facts(body);
    assert_eq!(facts.model.as_deref(), Some("m1"));
    assert_eq!(&body[facts.model_span.unwrap()], r#""m\u0031""#);
}

#[test]
fn a_nested_or_quoted_model_is_not_the_model() {
    let body = r#"{"messages":[{"model":"no","content":"\",\"model\":\"no\""}],
        "metadata":{"model":"no"},"stream_options":{"model":"no"},"x":"{\"model\":\"no\"}"}"#;
    assert_eq!(facts(body).model, None);
}

#[test]
fn keys_may_be_escaped() {
    assert_eq!(facts(r#"{"m\u006fdel":"yes"}"#).model.as_deref(), Some("yes"));
    assert_eq!(facts(r#"{"mod\\u0065l":"no"}"#).model, None);
}

#[test]
fn of_duplicates_the_last_wins() {
    let last = facts(
        r#"{"model":"a","stream":true,"max_tokens":1,"stream":false,"model":"b","max_tokens":9}"#,
    );
    assert_eq!(last.model.as_deref(), Some("b"));
    assert!(!last.stream);
    assert_eq!(last.max_output_tokens, Some(9));
    assert_eq!(facts(r#"{"model":"a","model":null}"#).model, None);
    let twice = facts(r#"{"prompt":"abcdefgh","prompt":"abcd"}"#);
    assert_eq!(twice.prompt_bytes, 4);
}

#[test]
fn null_is_absent() {
    let facts = facts(
        r#"{"model":null,"stream":null,"max_tokens":null,"stream_options":null,"user":null}"#,
    );
    assert_eq!(facts, RequestFacts::default());
}

#[test]
fn the_model_is_known_before_the_body_ends() {
    let mut scanner = Scanner::json(ScanSettings::default());
    scanner.push(br#"{"model":"early","#).unwrap();
    assert_eq!(scanner.model(), Some("early"));
    assert_eq!(scanner.finish().unwrap_err().fault, Fault::Incomplete);
}

#[test]
fn a_model_after_megabytes_of_messages_is_found() {
    let body = format!(
        r#"{{"messages":[{{"content":"{}"}}],"model":"late"}}"#,
        "x\\n\\\"".repeat(400_000)
    );
    let facts = scan_pieces(body.as_bytes().chunks(65_536)).unwrap();
    assert_eq!(facts.model.as_deref(), Some("late"));
    assert_eq!(facts.blocks.len(), 2048);
}

#[test]
fn broken_bodies_are_refused() {
    for (body, expected) in [
        ("", Fault::Incomplete),
        ("[]", Fault::Syntax),
        ("null", Fault::Syntax),
        ("{", Fault::Incomplete),
        (r#"{"model":"a""#, Fault::Incomplete),
        (r#"{"model":"a"#, Fault::Incomplete),
        (r#"{"messages":[{"a":1}"#, Fault::Incomplete),
        (r#"{"model" "a"}"#, Fault::Syntax),
        (r#"{"model":"a" "b":1}"#, Fault::Syntax),
        (r#"{"model":"a",}"#, Fault::Syntax),
        (r#"{,"model":"a"}"#, Fault::Syntax),
        (r#"{"model":}"#, Fault::Syntax),
        (r#"{"model":tru}"#, Fault::Syntax),
        (r#"{"x":01}"#, Fault::Syntax),
        (r#"{"model":"\q",x}"#, Fault::String),
        ("{model:1}", Fault::Syntax),
        ("{'model':1}", Fault::Syntax),
        (r#"{"model":"a"}}"#, Fault::Trailing),
        (r#"{"model":"a"}{"#, Fault::Trailing),
        (r#"{"model":5}"#, Fault::Type),
        (r#"{"model":["a"]}"#, Fault::Type),
        (r#"{"model":{"a":1}}"#, Fault::Type),
        (r#"{"model":"\q"}"#, Fault::String),
    ] {
        assert_eq!(fault(body), expected, "{body}");
    }
    assert_eq!(scan(b"{\"model\":\"\xff\"}").unwrap_err().fault, Fault::String);
}

#[test]
fn depth_and_names_are_bounded() {
    assert_eq!(fault(&format!(r#"{{"a":{}"#, "[".repeat(2_000))), Fault::TooDeep);
    assert_eq!(fault(&format!(r#"{{"model":"{}"}}"#, "a".repeat(5_000))), Fault::TooLong);
    // Other fields may be of any length; they only lose their meaning.
    assert_eq!(facts(&format!(r#"{{"user":"{}"}}"#, "a".repeat(5_000))).user, None);
}

#[test]
fn an_error_stays() {
    let mut scanner = Scanner::json(ScanSettings::default());
    let error = scanner.push(b"[").unwrap_err();
    assert_eq!(scanner.push(b"{}"), Err(error));
    assert_eq!(scanner.finish(), Err(error));
}

#[test]
fn token_ids_are_counted() {
    for (body, tokens) in [
        (r#"{"prompt":[1, 22, 333]}"#, 3),
        (r#"{"prompt":[[1,2],[3]]}"#, 3),
        (r#"{"input":["12345678"]}"#, 3),
        (r#"{"prompt":[]}"#, 0),
        (r#"{"prompt":"12345678"}"#, 2),
    ] {
        assert_eq!(facts(body).prompt_tokens, tokens, "{body}");
    }
}

#[test]
fn an_image_is_not_taken_for_text() {
    let image = "A".repeat(1_000_000);
    let body = format!(
        r#"{{"messages":[{{"content":[{{"image_url":{{"url":"data:image/png;base64,{image}"}}}}]}}]}}"#
    );
    let tokens = facts(&body).prompt_tokens;
    assert!((1_000..1_100).contains(&tokens), "{tokens}");
    assert_eq!(scan_pieces(body.as_bytes().chunks(13)).unwrap().prompt_tokens, tokens);
}

#[test]
fn a_conversation_keeps_its_prefix_as_it_grows() {
    let turn = |n: usize| {
        let message = json!({"role": "user", "content": "x".repeat(100)});
        let body = json!({"messages": vec![message; n], "model": "m"});
        facts(&body.to_string()).prefix("m", None)
    };
    let (first, second) = (turn(2), turn(3));
    assert!(first.len() >= 3);
    // The block with the closing bracket may differ.
    let shared = first.len() - 1;
    assert_eq!(first[..shared], second[..shared]);
}

#[test]
fn tools_and_instructions_come_before_the_messages() {
    let base = r#""messages":[{"role":"user","content":"hi"}]"#;
    let long = "y".repeat(200);
    let a = facts(&format!(r#"{{{base},"system":"{long}"}}"#));
    let b = facts(&format!(r#"{{"system":"{long}",{base}}}"#));
    assert_eq!(a.blocks, b.blocks);
    assert_eq!(a.blocks.len(), 4);
    let c = facts(&format!(r#"{{"tools":[1],"system":"{long}",{base}}}"#));
    assert_ne!(a.prefix("m", None)[0], c.prefix("m", None)[0]);
    assert_ne!(a.prefix("m", None)[0], a.prefix("m", Some("lora"))[0]);
}

#[test]
fn a_salt_that_cannot_be_kept_matches_nothing() {
    let prompt = "y".repeat(200);
    let salt = "s".repeat(5_000);
    assert!(facts(&format!(r#"{{"prompt":"{prompt}","cache_salt":"{salt}"}}"#)).blocks.is_empty());
}

const FORM: &str = "preamble\r\n--b o\r\nContent-Disposition: form-data; name=\"file\"; \
    filename=\"model\"\r\n\r\n\x01\r\n--b \r\r\n--b o\r\ncontent-disposition: form-data; \
    name=\"model\"\r\n\r\nwhisper\r\n--b o\r\nContent-Disposition: form-data; name=stream\r\n\r\n\
    true\r\n--b o--\r\nepilogue";

fn scan_form<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<RequestFacts, ScanError> {
    let mut scanner = Scanner::for_content_type(
        Some("multipart/form-data; boundary=\"b o\""),
        ScanSettings::default(),
    )?;
    for piece in pieces {
        scanner.push(piece)?;
    }
    scanner.finish()
}

#[test]
fn a_form_yields_model_and_stream() {
    for size in 1..FORM.len() {
        let facts = scan_form(FORM.as_bytes().chunks(size)).unwrap();
        assert_eq!(facts.model.as_deref(), Some("whisper"), "pieces of {size}");
        assert_eq!(&FORM[facts.model_span.unwrap()], "whisper");
        assert!(facts.stream);
    }
}

#[test]
fn broken_forms_are_refused() {
    let cut = &FORM.as_bytes()[..FORM.len() - 20];
    assert_eq!(scan_form([cut].into_iter()).unwrap_err().fault, Fault::Incomplete);
    assert_eq!(scan_form([&b"--b oX"[..]].into_iter()).unwrap_err().fault, Fault::Syntax);
    for content_type in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\u{1}\"",
    ] {
        let error = Scanner::multipart(content_type, ScanSettings::default()).unwrap_err();
        assert_eq!(error.fault, Fault::Boundary, "{content_type}");
    }
}

/// Any JSON value, with the words that matter among its keys and texts.
fn value() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("model".to_owned()),
        Just("\"model\":\"x\"".to_owned()),
        Just("stream".to_owned()),
        Just("prompt\\".to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn a_full_parser_agrees(fields in prop::collection::vec(("(model|stream|user|messages|x)", value()), 0..6), pretty: bool) {
        let body = Value::from_iter(fields);
        let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
        match scan(text.as_bytes()) {
            Ok(facts) => {
                prop_assert_eq!(facts.model.as_deref(), body["model"].as_str());
                prop_assert_eq!(facts.stream, body["stream"] == json!(true) || body["stream"] == json!(1));
                prop_assert_eq!(facts.user.as_deref(), body["user"].as_str());
                if let Some(span) = facts.model_span {
                    prop_assert_eq!(&serde_json::from_str::<Value>(&text[span]).unwrap(), &body["model"]);
                }
            }
            Err(error) => {
                prop_assert_eq!(error.fault, Fault::Type);
                prop_assert!(!body["model"].is_string() && !body["model"].is_null());
            }
        }
    }

    #[test]
    fn any_split_gives_the_same_facts(
        body in value(), size in 1_usize..50,
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut text = json!({"a": body, "model": "m", "messages": [body]}).to_string().into_bytes();
        if let Some((at, byte)) = damage {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let whole = scan(&text).map_err(|error| error.fault);
        let split = scan_pieces(text.chunks(size)).map_err(|error| error.fault);
        prop_assert_eq!(split, whole);
    }

    #[test]
    fn nothing_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = scan(&text);
        let _ = scan_form(text.chunks(7));
    }

    #[test]
    fn damaged_forms_do_not_depend_on_the_split(
        size in 1_usize..30, at: prop::sample::Index, byte: u8,
    ) {
        let mut form = FORM.as_bytes().to_vec();
        let at = at.index(form.len());
        form[at] = byte;
        let whole = scan_form([&form[..]].into_iter()).map_err(|error| error.fault);
        let split = scan_form(form.chunks(size)).map_err(|error| error.fault);
        prop_assert_eq!(split, whole);
    }
}
