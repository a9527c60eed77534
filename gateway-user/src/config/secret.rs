//! Keys: written out, or named by an environment variable or a file.

use std::fmt;
use std::io::Read;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::at::{At, Place};
use super::error::ConfigError;

/// Text that is never shown: `Debug` and the configuration dump print a placeholder.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(String);

const PLACEHOLDER: &str = "<redacted>";

/// Largest file a key is read from, bytes.
const MAX_FILE: u64 = 64 << 10;

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PLACEHOLDER)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Serde's own message would quote what it found.
        let text = String::deserialize(deserializer);
        text.map(Self).map_err(|_| serde::de::Error::custom("a key must be text; quote it"))
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(PLACEHOLDER)
    }
}

/// Where a key comes from; exactly one is given.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct SecretSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<At<Secret>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_env: Option<At<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<At<String>>,
}

impl SecretSource {
    pub(crate) fn written(key: Secret) -> Self {
        Self { key: Some(At::of(key)), ..Self::default() }
    }

    /// The key itself. `place` is where the source as a whole stands.
    pub(crate) fn resolve(&self, place: Option<Place>) -> Result<Secret, ConfigError> {
        let (found, place) = match (&self.key, &self.key_env, &self.key_file) {
            (Some(key), None, None) => (key.value.clone(), key.place),
            (None, Some(name), None) => (from_environment(name)?, name.place),
            (None, None, Some(path)) => (from_file(path)?, path.place),
            _ => {
                let fix = "give exactly one of key, keyEnv, keyFile";
                return Err(ConfigError::placed(place, "a key has no source, or several", fix));
            }
        };
        let visible = |byte: u8| byte.is_ascii_graphic();
        if found.is_empty() || !found.bytes().all(visible) {
            let problem = "the key is empty or has characters that no header can carry";
            return Err(ConfigError::placed(place, problem, "use printable ASCII without spaces"));
        }
        Ok(found)
    }
}

fn from_environment(name: &At<String>) -> Result<Secret, ConfigError> {
    std::env::var(&**name).map(Secret).map_err(|_| {
        let problem = format!("environment variable `{}` is not set", &**name);
        ConfigError::at(name, problem, "set it, or use key or keyFile")
    })
}

/// The file's text without the line end that editors add.
fn from_file(path: &At<String>) -> Result<Secret, ConfigError> {
    let read = || -> std::io::Result<String> {
        let file = std::fs::File::open(&**path)?;
        // A pipe or a device might never end.
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| {
        let problem = format!("cannot read key file `{}`: {error}", &**path);
        ConfigError::at(path, problem, "check its path and who may read it")
    })?;
    Ok(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(key: &str) -> SecretSource {
        SecretSource::written(key.to_owned().into())
    }

    #[test]
    fn a_secret_does_not_show() {
        let source = written("hunter2");
        assert!(!format!("{source:?}").contains("hunter2"));
        assert!(!serde_saphyr::to_string(&source).unwrap().contains("hunter2"));
        assert_eq!(&*source.resolve(None).unwrap(), "hunter2");
    }

    #[test]
    fn a_key_has_one_source() {
        let none = SecretSource::default();
        assert!(none.resolve(None).unwrap_err().to_string().contains("exactly one"));
        let two = SecretSource { key_env: Some(At::of("HOME".to_owned())), ..written("a") };
        assert!(two.resolve(None).is_err());
    }

    #[test]
    fn a_key_file_loses_its_last_line_end() {
        let path = std::env::temp_dir().join(format!("gateway-key-{}", std::process::id()));
        std::fs::write(&path, "hunter2\n").unwrap();
        let name = path.to_str().unwrap().to_owned();
        let source = SecretSource { key_file: Some(At::of(name)), ..SecretSource::default() };
        let key = source.resolve(None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&*key.unwrap(), "hunter2");
        assert!(source.resolve(None).unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn an_unset_variable_is_named() {
        let name = "GATEWAY_TEST_SURELY_UNSET".to_owned();
        let source = SecretSource { key_env: Some(At::of(name)), ..SecretSource::default() };
        assert!(source.resolve(None).unwrap_err().to_string().contains("SURELY_UNSET"));
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_refused_without_showing_it() {
        for key in ["", "two words", "line\nend", "schl\u{fc}ssel"] {
            let error = written(key).resolve(None).unwrap_err().to_string();
            assert!(key.is_empty() || !error.contains(key), "{error}");
        }
    }
}
