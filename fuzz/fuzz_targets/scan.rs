//! A body's facts do not depend on the split, and a full parser agrees on them.
#![no_main]

use gateway_core::body::{RequestFacts, ScanError, ScanSettings, Scanner};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn scan<'a>(
    mut scanner: Scanner,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<RequestFacts, ScanError> {
    for piece in pieces {
        scanner.push(piece)?;
    }
    scanner.finish()
}

fuzz_target!(|input: &[u8]| {
    let (whole, pieces) = gateway_fuzz::cut(input);
    let settings = ScanSettings { max_string: 64, ..ScanSettings::default() };

    let found = scan(Scanner::json(settings), [whole]).map_err(|error| error.fault);
    let split = scan(Scanner::json(settings), pieces.iter().copied());
    assert_eq!(split.map_err(|error| error.fault), found);
    if let (Ok(facts), Ok(Value::Object(body))) = (&found, serde_json::from_slice(whole)) {
        assert_eq!(facts.model.as_deref(), body.get("model").and_then(Value::as_str));
        assert_eq!(facts.stream, body.get("stream").is_some_and(|s| *s == true || *s == 1));
        if let Some(span) = facts.model_span.clone() {
            let written: Option<String> = serde_json::from_slice(&whole[span]).ok();
            assert_eq!(written, facts.model);
        }
    }

    let form = || Scanner::multipart("multipart/form-data; boundary=b", settings).ok();
    if let (Some(one), Some(other)) = (form(), form()) {
        let found = scan(one, [whole]).map_err(|error| error.fault);
        assert_eq!(scan(other, pieces).map_err(|error| error.fault), found);
        if let Ok(RequestFacts { model: Some(model), model_span: Some(span), .. }) = found {
            assert_eq!(&whole[span], model.as_bytes());
        }
    }
    // The rest of the input as a content type.
    if let Ok(text) = std::str::from_utf8(whole) {
        let _ = Scanner::for_content_type(Some(text), settings);
    }
});
