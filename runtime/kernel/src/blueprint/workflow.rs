//! The workflow of a blueprint, or the file that it is in.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::workflow::Definition;

/// A workflow that becomes rules ([`crate::workflow::expand`]). A blueprint that a board is made of has none any more.
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
