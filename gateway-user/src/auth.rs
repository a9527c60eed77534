//! API keys.
//!
//! Keys are compared as SHA-256 digests and in constant time, all of them on
//! every request: neither their length nor their order shows in the answer's
//! timing. The plain text of a key is not kept.

use std::sync::Arc;

use gateway_core::http1::Fields;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Who may call, or anybody.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    known: Option<Vec<Known>>,
}

#[derive(Clone)]
struct Known {
    digest: [u8; 32],
    identity: Identity,
}

/// Whose key a request carried.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name of the key in the configuration.
    pub name: Arc<str>,
    /// Models it may use; `None` is all of them.
    models: Option<Arc<[String]>>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Keys {
    /// Lets everybody in.
    #[must_use]
    pub fn none() -> Self {
        Self { known: None }
    }

    /// Lets in whoever has one of these: name, key, models (empty: all).
    pub fn new<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str, &'a [String])>) -> Self {
        let known = keys
            .into_iter()
            .map(|(name, key, models)| Known {
                digest: Sha256::digest(key.as_bytes()).into(),
                identity: Identity {
                    name: name.into(),
                    models: (!models.is_empty()).then(|| models.into()),
                },
            })
            .collect();
        Self { known: Some(known) }
    }

    /// Whether a key is needed at all.
    #[must_use]
    pub fn required(&self) -> bool {
        self.known.is_some()
    }

    /// Finds the caller. `Ok(None)` when no key is needed.
    ///
    /// # Errors
    ///
    /// No key, or an unknown one.
    pub(crate) fn check(&self, fields: &Fields) -> Result<Option<Identity>, UnknownKey> {
        let Some(known) = &self.known else { return Ok(None) };
        let given = presented(fields).ok_or(UnknownKey)?;
        let digest: [u8; 32] = Sha256::digest(given).into();
        let mut found = None;
        for key in known {
            if bool::from(key.digest.ct_eq(&digest)) {
                found = Some(&key.identity);
            }
        }
        found.cloned().map(Some).ok_or(UnknownKey)
    }
}

/// The request carries no key that we know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownKey;

/// `Authorization: Bearer`, as OpenAI's clients send it, or Anthropic's `x-api-key`.
fn presented(fields: &Fields) -> Option<&[u8]> {
    if let Some(value) = fields.first("authorization") {
        let (scheme, key) = value.split_at_checked(7)?;
        return scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii());
    }
    fields.first("x-api-key").map(<[u8]>::trim_ascii)
}

impl Identity {
    /// Whether this key may use `model`.
    #[must_use]
    pub fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| allowed == model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::http1::RequestHead;

    fn check(keys: &Keys, header: &str) -> Option<String> {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{header}\r\n");
        let (head, _) = RequestHead::parse(head.as_bytes()).unwrap().unwrap();
        keys.check(head.fields()).ok().flatten().map(|identity| identity.name.to_string())
    }

    #[test]
    fn both_clients_headers_are_understood() {
        let keys = Keys::new([("a", "secret", &[][..]), ("b", "other", &[][..])]);
        assert_eq!(check(&keys, "Authorization: Bearer secret\r\n").as_deref(), Some("a"));
        assert_eq!(check(&keys, "authorization: bearer other\r\n").as_deref(), Some("b"));
        assert_eq!(check(&keys, "x-api-key: other\r\n").as_deref(), Some("b"));
    }

    #[test]
    fn wrong_missing_and_partial_keys_are_refused() {
        let keys = Keys::new([("a", "secret", &[][..])]);
        for header in ["", "Authorization: Bearer secre\r\n", "Authorization: Basic secret\r\n"] {
            assert_eq!(check(&keys, header), None, "{header}");
        }
    }

    #[test]
    fn a_key_is_not_in_its_debug_output() {
        let keys = Keys::new([("a", "secret", &[][..])]);
        assert!(!format!("{keys:?}").contains("secret"));
    }

    #[test]
    fn keys_may_be_limited_to_models() {
        let models = ["small".to_owned()];
        let keys = Keys::new([("a", "secret", &models[..])]);
        let identity = keys.known.as_ref().map(|known| known[0].identity.clone()).unwrap();
        assert!(identity.may_use("small"));
        assert!(!identity.may_use("large"));
    }
}
