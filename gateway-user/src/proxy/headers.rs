//! Which header fields pass the gateway, and which are its own.

use std::net::SocketAddr;

use gateway_core::http1::{Fields, RequestHead, ResponseHead};

use super::reply::push_field;
use crate::endpoint::Endpoint;

/// Fields that mean something to the gateway (or to its relatives) and must never
/// reach an engine from a client: they are stripped, not appended to.
const OWNED: &[&str] = &[
    "x-gateway-base-model-name",
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-fairness-id",
    "x-gateway-inference-objective",
    "x-gateway-model-name",
    "x-gateway-model-name-rewrite",
    "x-llm-d-inference-fairness-id",
    "x-llm-d-inference-objective",
];

/// Prefix of the fields that only this gateway sets.
const OWN_PREFIX: &str = "x-inference-gateway-";

/// What happens to the client's `Authorization`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credentials<'a> {
    /// Nobody but the engine reads it.
    Pass,
    /// It was meant for the gateway, and ends here.
    Remove,
    /// The engine has a key of its own.
    Replace(&'a str),
}

/// What a request to an endpoint differs in from the client's.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) peer: SocketAddr,
    pub(crate) request_id: &'a str,
    pub(crate) credentials: Credentials<'a>,
    /// Length of the body, or `None` for a chunked one.
    pub(crate) length: Option<u64>,
    /// Whether the request has a body at all.
    pub(crate) has_body: bool,
    /// Whether the answer will be rewritten, so it must not come compressed.
    pub(crate) plain_answer: bool,
}

/// Writes the head of a request to an endpoint. Order and case of the client's
/// fields stay as they are.
pub(crate) fn request(out: &mut Vec<u8>, outgoing: &Outgoing<'_>) {
    let head = outgoing.head;
    out.extend_from_slice(head.method().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.path_and_query().as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    push_field(out, "host", outgoing.endpoint.authority.as_bytes());
    let nominated = head.fields().first("connection").is_some();
    let mut forwarded_for = Vec::new();
    for (name, value) in head.fields().iter() {
        if passes(head.fields(), name, nominated) && !replaced(name, outgoing) {
            if name.eq_ignore_ascii_case("x-forwarded-for") {
                // Several lines are one list (RFC 9110, 5.3).
                forwarded_for.extend_from_slice(value);
                forwarded_for.extend_from_slice(b", ");
            } else {
                push_field(out, name, value);
            }
        }
    }
    forwarded_for.extend_from_slice(outgoing.peer.ip().to_canonical().to_string().as_bytes());
    push_field(out, "x-forwarded-for", &forwarded_for);
    push_field(out, "x-request-id", outgoing.request_id.as_bytes());
    if let Credentials::Replace(key) = outgoing.credentials {
        push_field(out, "authorization", format!("Bearer {key}").as_bytes());
    }
    match outgoing.length {
        Some(length) if outgoing.has_body => {
            push_field(out, "content-length", length.to_string().as_bytes());
        }
        None if outgoing.has_body => push_field(out, "transfer-encoding", b"chunked"),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether a client's field is replaced by one of ours, or left out.
fn replaced(name: &str, outgoing: &Outgoing<'_>) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let removes_key = !matches!(outgoing.credentials, Credentials::Pass);
    is("host")
        || is("content-length")
        || is("expect")
        || is("x-request-id")
        || (removes_key && (is("authorization") || is("x-api-key") || is("api-key")))
        || (outgoing.plain_answer && is("accept-encoding"))
        || OWNED.iter().any(|owned| is(owned))
        || name.get(..OWN_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN_PREFIX))
}

/// Copies the fields of an engine's answer, without those that frame its body.
pub(crate) fn response(out: &mut Vec<u8>, head: &ResponseHead, request_id: &str) {
    let nominated = head.fields().first("connection").is_some();
    let mut has_id = false;
    for (name, value) in head.fields().iter() {
        let framing = name.eq_ignore_ascii_case("content-length");
        let ours = name
            .get(..OWN_PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(OWN_PREFIX));
        if passes(head.fields(), name, nominated) && !framing && !ours {
            has_id |= name.eq_ignore_ascii_case("x-request-id");
            push_field(out, name, value);
        }
    }
    if !has_id {
        push_field(out, "x-request-id", request_id.as_bytes());
    }
}

/// Whether a field is end to end. `nominated`: whether a `Connection` field is
/// there at all, which is asked once per head instead of once per field.
fn passes(fields: &Fields, name: &str, nominated: bool) -> bool {
    if nominated { !fields.is_hop_by_hop(name) } else { !gateway_core::http1::is_hop_by_hop(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::pool::EndpointId;

    fn parse(head: &str) -> RequestHead {
        RequestHead::parse(head.as_bytes()).unwrap().unwrap().0
    }

    fn sent(head: &str, credentials: Credentials<'_>) -> String {
        let mut out = Vec::new();
        let endpoint = Endpoint::new(EndpointId(0), "10.0.0.1", 8000);
        request(
            &mut out,
            &Outgoing {
                head: &parse(head),
                endpoint: &endpoint,
                peer: "192.0.2.7:5".parse().unwrap(),
                request_id: "id-1",
                credentials,
                length: Some(2),
                has_body: true,
                plain_answer: false,
            },
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn query_method_case_and_order_are_kept() {
        let sent = sent(
            "POST /v1/x?a=b%20c HTTP/1.1\r\nHost: h\r\nX-Second: 2\r\nx-FIRST: 1\r\nContent-Length: 2\r\n\r\n",
            Credentials::Pass,
        );
        assert!(sent.starts_with("POST /v1/x?a=b%20c HTTP/1.1\r\nhost: 10.0.0.1:8000\r\nX-Second: 2\r\nx-FIRST: 1\r\n"), "{sent}");
        assert!(sent.ends_with("content-length: 2\r\n\r\n"), "{sent}");
    }

    #[test]
    fn gateway_owned_headers_from_clients_are_stripped() {
        let sent = sent(
            "POST /v1/x HTTP/1.1\r\nHost: h\r\nX-Gateway-Destination-Endpoint: evil:1\r\nX-Inference-Gateway-Endpoint: e\r\nx-session-id: s\r\n\r\n",
            Credentials::Pass,
        );
        assert!(!sent.to_lowercase().contains("evil"), "{sent}");
        assert!(!sent.to_lowercase().contains("x-inference-gateway"), "{sent}");
        assert!(sent.contains("x-session-id: s\r\n"), "{sent}");
    }

    #[test]
    fn what_connection_nominates_stays_here() {
        let sent = sent(
            "POST /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close, x-secret\r\nX-Secret: 1\r\nTE: trailers\r\n\r\n",
            Credentials::Pass,
        );
        assert!(!sent.to_lowercase().contains("secret"), "{sent}");
        assert!(!sent.to_lowercase().contains("trailers"), "{sent}");
    }

    #[test]
    fn the_clients_key_never_reaches_an_engine_with_a_key_of_its_own() {
        let head = "POST /v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer client\r\n\r\n";
        let replaced = sent(head, Credentials::Replace("engine"));
        assert!(!replaced.contains("client"), "{replaced}");
        assert!(replaced.contains("authorization: Bearer engine\r\n"), "{replaced}");
        assert!(!sent(head, Credentials::Remove).to_lowercase().contains("authorization"));
        assert!(sent(head, Credentials::Pass).contains("Authorization: Bearer client\r\n"));
    }

    #[test]
    fn forwarded_for_grows_by_the_peer() {
        let sent = sent(
            "POST /v1/x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n",
            Credentials::Pass,
        );
        assert!(sent.contains("x-forwarded-for: 198.51.100.1, 192.0.2.7\r\n"), "{sent}");
    }
}
