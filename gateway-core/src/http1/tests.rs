//! Heads that are right, heads that smuggle, and heads of no kind.

use super::*;
use proptest::prelude::*;

fn request(text: &str) -> Result<RequestHead, HeadError> {
    let (head, length) = RequestHead::parse(text.as_bytes())?.expect("the head is complete");
    assert_eq!(length, text.len());
    Ok(head)
}

fn get(fields: &str) -> Result<RequestHead, HeadError> {
    request(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
}

fn response(text: &str) -> Result<ResponseHead, HeadError> {
    Ok(ResponseHead::parse(text.as_bytes())?.expect("the head is complete").0)
}

#[test]
fn a_request_is_kept_as_it_came() {
    let head = request(
        "POST /v1/models/org%2Fname?q=%20#x HTTP/1.1\r\nHost: h:80\r\nX-A: 1\r\nx-a:  two words \r\nEmpty:\r\n\r\n",
    )
    .unwrap();
    assert_eq!(head.method(), "POST");
    assert_eq!(head.target(), "/v1/models/org%2Fname?q=%20#x");
    assert_eq!((head.path(), head.query()), ("/v1/models/org%2Fname", Some("q=%20#x")));
    let fields: Vec<_> = head.fields().iter().collect();
    let expected: [(&str, &[u8]); 4] =
        [("Host", b"h:80"), ("X-A", b"1"), ("x-a", b"two words"), ("Empty", b"")];
    assert_eq!(fields, expected);
    assert_eq!(head.fields().all("X-a").count(), 2);
    assert_eq!((head.framing(), head.persistence()), (Framing::None, Persistence::KeepAlive));
}

#[test]
fn an_absolute_target_is_accepted() {
    for (target, path) in [
        ("http://h:80/v1/x?q", "/v1/x"),
        ("http://h", "/"),
        ("http://h?q", "/"),
        ("/a://b/c", "/a://b/c"),
        ("*", "*"),
    ] {
        let head = request(&format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n")).unwrap();
        assert_eq!((head.target(), head.path()), (target, path));
    }
}

#[test]
fn more_bytes_are_asked_for_until_the_head_is_whole() {
    let text = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for cut in 0..text.len() {
        assert!(RequestHead::parse(&text.as_bytes()[..cut]).unwrap().is_none(), "cut at {cut}");
    }
    let pipelined = format!("\r\n{text}GET /next");
    let (_, length) = RequestHead::parse(pipelined.as_bytes()).unwrap().unwrap();
    assert_eq!(&pipelined[length..], "GET /next");
}

#[test]
fn framing_is_length_or_chunks_or_none() {
    for (fields, framing) in [
        ("Content-Length: 5\r\n", Framing::Length(5)),
        ("Content-Length: 0\r\n", Framing::Length(0)),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Framing::Length(5)),
        ("Content-Length: 5, 5\r\n", Framing::Length(5)),
        ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
        ("transfer-encoding: Chunked\r\n", Framing::Chunked),
    ] {
        assert_eq!(get(fields).unwrap().framing(), framing, "{fields}");
    }
}

#[test]
fn smuggling_is_refused() {
    for (fields, error) in [
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", HeadError::LengthAndEncoding),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", HeadError::LengthAndEncoding),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", HeadError::ContentLength),
        ("Content-Length: 5, 6\r\n", HeadError::ContentLength),
        ("Content-Length: +5\r\n", HeadError::ContentLength),
        ("Content-Length: -5\r\n", HeadError::ContentLength),
        ("Content-Length: 0x5\r\n", HeadError::ContentLength),
        ("Content-Length: 5 5\r\n", HeadError::ContentLength),
        ("Content-Length: \r\n", HeadError::ContentLength),
        ("Content-Length: 99999999999999999999\r\n", HeadError::ContentLength),
        ("Transfer-Encoding: gzip, chunked\r\n", HeadError::TransferEncoding),
        ("Transfer-Encoding: chunked, chunked\r\n", HeadError::TransferEncoding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            HeadError::TransferEncoding,
        ),
        ("Transfer-Encoding: xchunked\r\n", HeadError::TransferEncoding),
        ("Transfer-Encoding: \x0bchunked\r\n", HeadError::Field),
        ("Transfer-Encoding : chunked\r\n", HeadError::Field),
        ("Transfer-Encoding\r\n : chunked\r\n", HeadError::Field),
        ("X: a\r\n b\r\n", HeadError::Field),
        (" X: a\r\n", HeadError::Field),
        ("X: a\0b\r\n", HeadError::Field),
        ("X: a\x7fb\r\n", HeadError::Field),
        ("X Y: a\r\n", HeadError::Field),
        (": a\r\n", HeadError::Field),
        ("X: a\nY: b\r\n", HeadError::BareLineEnd),
        ("X: a\rY: b\r\n", HeadError::Field),
        ("X\r\n", HeadError::Field),
    ] {
        assert_eq!(get(fields).unwrap_err(), error, "{}", fields.escape_debug());
    }
    let http10 = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(http10).unwrap_err(), HeadError::EncodingInHttp10);
}

#[test]
fn a_host_is_needed_once() {
    for (text, error) in [
        ("GET / HTTP/1.1\r\n\r\n", HeadError::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", HeadError::Host),
        ("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", HeadError::Host),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HeadError::Host),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HeadError::Host),
        ("GET / HTTP/1.1\r\nHost: u@b\r\n\r\n", HeadError::Host),
    ] {
        assert_eq!(request(text).unwrap_err(), error, "{}", text.escape_debug());
    }
    assert!(request("GET / HTTP/1.0\r\n\r\n").is_ok());
    assert!(request("GET / HTTP/1.1\r\nHost:\r\n\r\n").is_ok());
    assert!(request("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").is_ok());
}

#[test]
fn start_lines_are_strict() {
    for (text, error) in [
        ("\x16\x03\x01", HeadError::StartLine),
        (" GET / HTTP/1.1\r\n\r\n", HeadError::StartLine),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", HeadError::StartLine),
        ("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", HeadError::StartLine),
        ("GET /\r\nHost: h\r\n\r\n", HeadError::StartLine),
        ("G(T / HTTP/1.1\r\nHost: h\r\n\r\n", HeadError::StartLine),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", HeadError::Version),
        ("GET / HTTP/1.1\nHost: h\n\n", HeadError::BareLineEnd),
    ] {
        let parsed = RequestHead::parse(text.as_bytes());
        let status = parsed.as_ref().err().map(|error| error.status());
        assert_eq!(status, Some(error.status()), "{}: {parsed:?}", text.escape_debug());
    }
}

#[test]
fn heads_are_bounded() {
    let large = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    assert_eq!(request(&large).unwrap_err().status(), 431);
    // Also before the end has arrived.
    assert_eq!(RequestHead::parse(&large.as_bytes()[..66_000]).unwrap_err(), HeadError::TooLarge);
    let many = "X: 1\r\n".repeat(MAX_FIELDS);
    assert_eq!(get(&many).unwrap_err(), HeadError::TooManyFields);
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(20_000));
    assert_eq!(request(&long).unwrap_err().status(), 414);
}

#[test]
fn persistence_follows_version_and_connection() {
    for (version, connection, expected) in [
        ("1.1", "", Persistence::KeepAlive),
        ("1.1", "Connection: foo, Close\r\n", Persistence::Close),
        ("1.1", "Connection: x\r\nConnection: close\r\n", Persistence::Close),
        ("1.1", "Connection: closed\r\n", Persistence::KeepAlive),
        ("1.0", "", Persistence::Close),
        ("1.0", "Connection: Keep-Alive\r\n", Persistence::KeepAlive),
        ("1.0", "Connection: keep-alive, close\r\n", Persistence::Close),
    ] {
        let head =
            request(&format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n")).unwrap();
        assert_eq!(head.persistence(), expected, "{version} {connection}");
    }
}

#[test]
fn continue_is_expected_only_with_a_body() {
    let body = "Content-Length: 5\r\n";
    assert!(get(&format!("Expect: 100-Continue\r\n{body}")).unwrap().expects_continue());
    assert!(!get("Expect: 100-continue\r\n").unwrap().expects_continue());
    assert!(!get(body).unwrap().expects_continue());
    assert_eq!(get(&format!("Expect: tea\r\n{body}")).unwrap_err().status(), 417);
}

#[test]
fn nominated_fields_are_hop_by_hop() {
    let head =
        get("Connection: close, X-Secret\r\nX-Secret: 1\r\nX-Open: 2\r\nTE: trailers\r\n").unwrap();
    for (name, expected) in [
        ("x-secret", true),
        ("X-Open", false),
        ("te", true),
        ("Connection", true),
        ("Keep-Alive", true),
        ("Proxy-Authorization", true),
        ("Transfer-Encoding", true),
        ("Upgrade", true),
        ("Host", false),
    ] {
        assert_eq!(head.fields().is_hop_by_hop(name), expected, "{name}");
    }
}

#[test]
fn a_response_is_framed_by_its_request() {
    for (head, method, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "GET", ResponseFraming::Length(5)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "HEAD", ResponseFraming::None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "POST", ResponseFraming::Chunked),
        ("HTTP/1.1 200 OK\r\n", "POST", ResponseFraming::UntilClose),
        ("HTTP/1.0 200\r\n", "POST", ResponseFraming::UntilClose),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", "POST", ResponseFraming::None),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", "GET", ResponseFraming::None),
        ("HTTP/1.1 100 Continue\r\n", "POST", ResponseFraming::None),
    ] {
        let parsed = response(&format!("{head}\r\n")).unwrap();
        assert_eq!(parsed.framing(method), expected, "{head}");
        if expected == ResponseFraming::UntilClose {
            assert_eq!(parsed.persistence(method), Persistence::Close);
        }
    }
}

#[test]
fn interim_responses_are_told_apart() {
    for (status, expected) in [(100, true), (103, true), (101, false), (200, false)] {
        let head = response(&format!("HTTP/1.1 {status} X Y\r\n\r\n")).unwrap();
        assert_eq!((head.is_interim(), head.status(), head.reason()), (expected, status, "X Y"));
    }
}

#[test]
fn ambiguous_responses_are_refused() {
    for text in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 200 OK\nX: a\n\n",
        "HTTP/1.1 999 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/3 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH",
    ] {
        assert!(ResponseHead::parse(text.as_bytes()).is_err(), "{}", text.escape_debug());
    }
}

proptest! {
    #[test]
    fn a_head_means_the_same_however_it_arrives(
        bytes in prop::collection::vec(prop_oneof![
            Just(b"GET / HTTP/1.1\r\n".to_vec()), Just(b"Host: h\r\n".to_vec()), Just(b"\r\n".to_vec()),
            Just(b"Content-Length: 5\r\n".to_vec()), Just(b"\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ], 0..8),
    ) {
        let bytes = bytes.concat();
        let whole = RequestHead::parse(&bytes).map(|parsed| parsed.map(|(_, length)| length));
        for cut in 0..bytes.len() {
            match RequestHead::parse(&bytes[..cut]) {
                // Once it is refused or complete, more bytes do not change that.
                Err(_) => prop_assert!(whole.is_err()),
                Ok(Some((_, length))) => prop_assert_eq!(&whole, &Ok(Some(length))),
                Ok(None) => {}
            }
        }
    }

    #[test]
    fn accepted_fields_have_no_hidden_lines(value in prop::collection::vec(any::<u8>(), 0..20)) {
        let text = [b"GET / HTTP/1.1\r\nHost: h\r\nX: ", &value[..], b"\r\n\r\n"].concat();
        if let Ok(Some((head, length))) = RequestHead::parse(&text)
            && length == text.len() && head.fields().iter().len() == 2
        {
            let kept = head.fields().first("x").unwrap();
            prop_assert_eq!(kept, value.trim_ascii());
            prop_assert!(!kept.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = RequestHead::parse(&bytes);
        let _ = ResponseHead::parse(&[b"HTTP/1.1 200 ", &bytes[..]].concat());
    }
}
