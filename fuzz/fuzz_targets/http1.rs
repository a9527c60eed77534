//! A head means the same however it arrives, and an accepted one hides no line.
#![no_main]

use gateway_core::http1::{Framing, RequestHead, ResponseHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = RequestHead::parse(input);
    if let Ok(Some((head, length))) = &whole {
        let text = &input[..*length];
        assert!(text.ends_with(b"\r\n\r\n"));
        let lines = text.iter().filter(|&&b| b == b'\n').count();
        assert!(lines >= head.fields().iter().len() + 2);
        for (name, value) in head.fields().iter() {
            assert!(!name.is_empty() && !name.contains([' ', ':']));
            assert!(!value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')));
        }
        let has = |name| head.fields().first(name).is_some();
        assert_eq!(head.framing() == Framing::Chunked, has("transfer-encoding"));
        assert_eq!(matches!(head.framing(), Framing::Length(_)), has("content-length"));
        // Bytes after the head change nothing.
        let alone = RequestHead::parse(text).ok().flatten();
        assert_eq!(alone.map(|(_, length)| length), Some(*length));
    }
    for cut in [input.len() / 3, input.len() / 2, input.len().saturating_sub(1)] {
        match RequestHead::parse(&input[..cut]) {
            Err(_) => assert!(whole.is_err()),
            Ok(Some((_, length))) => {
                assert!(matches!(&whole, Ok(Some((_, whole))) if *whole == length));
            }
            Ok(None) => {}
        }
    }
    for prefix in [&b""[..], b"HTTP/1.1 200 OK\r\n"] {
        if let Ok(Some((head, _))) = ResponseHead::parse(&[prefix, input].concat()) {
            let _ = (head.framing("POST"), head.persistence("GET"), head.is_interim());
        }
    }
});
