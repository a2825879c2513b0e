//! Read grants: a path pattern with an optional condition on the matched value.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Places that a worker may read. A grant without a condition is serialised as its pattern alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadGrant {
    /// Path pattern.
    pub path: String,
    /// CEL condition over `self` (the value at a matched place), `worker` (the reader's name) and `request`. Only
    /// places for which it is true may be read. Absent: all matched places.
    pub condition: Option<String>,
}

impl From<&str> for ReadGrant {
    fn from(path: &str) -> Self {
        Self { path: path.to_owned(), condition: None }
    }
}

/// Serialised form of a grant with a condition.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conditional {
    path: String,
    #[serde(rename = "where")]
    condition: String,
}

impl Serialize for ReadGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.condition.clone() {
            None => serializer.serialize_str(&self.path),
            Some(condition) => Conditional { path: self.path.clone(), condition }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ReadGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;

        impl<'de> Visitor<'de> for Forms {
            type Value = ReadGrant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path pattern, or an object with `path` and `where`")
            }

            fn visit_str<E>(self, path: &str) -> Result<ReadGrant, E> {
                Ok(path.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<ReadGrant, A::Error> {
                let Conditional { path, condition } = Conditional::deserialize(MapAccessDeserializer::new(members))?;
                Ok(ReadGrant { path, condition: Some(condition) })
            }
        }

        deserializer.deserialize_any(Forms)
    }
}
