//! The workflow of a blueprint, inline or as a file name.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::workflow::Definition;

/// A workflow that is expanded into rules ([`crate::workflow::expand`]). Absent from the blueprint of a created board.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkflowSpec {
    /// A file, named relative to the blueprint's own directory.
    File(String),
    /// The definition itself.
    Inline(Definition),
}

impl Serialize for WorkflowSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(name) => name.serialize(serializer),
            Self::Inline(definition) => definition.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for WorkflowSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self::File(name)),
            value @ Value::Object(_) => serde_json::from_value(value).map(Self::Inline).map_err(D::Error::custom),
            _ => Err(D::Error::custom("a workflow is a definition, or the name of a file")),
        }
    }
}
