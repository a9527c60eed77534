//! An endpoint as it is written.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::at::At;

/// A model server: its address alone, or with more.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    pub(crate) address: At<String>,
    pub(crate) weight: At<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dcgm: Option<At<String>>,
}

impl From<String> for Endpoint {
    fn from(address: String) -> Self {
        Self { address: At::of(address), weight: At::of(1.0), dcgm: None }
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Full {
            address: At<String>,
            #[serde(default = "one")]
            weight: At<f64>,
            #[serde(default)]
            dcgm: Option<At<String>>,
        }

        fn one() -> At<f64> {
            At::of(1.0)
        }

        struct AddressOrFull;

        impl<'de> Visitor<'de> for AddressOrFull {
            type Value = Endpoint;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, or a section with an address")
            }

            fn visit_str<E: Error>(self, address: &str) -> Result<Endpoint, E> {
                Ok(Endpoint::from(address.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Endpoint, A::Error> {
                let full = Full::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Endpoint { address: full.address, weight: full.weight, dcgm: full.dcgm })
            }
        }

        deserializer.deserialize_any(AddressOrFull)
    }
}
