//! Conversion of trees from and to other forms of JSON, and their equality.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Number, Value};
use smol_str::SmolStr;

use super::{Array, Edit, Key, Long, Node, Object, SHORT_BYTES_MAX};
use crate::digest::{Hasher, Salt};
use crate::json;

impl Node {
    /// Builds the tree of a value with normalised numbers.
    pub fn from_value(value: &Value, edit: &Edit) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::text(text),
            Value::Array(items) => {
                let items = items.iter().map(|item| Self::from_value(item, edit)).collect();
                Self::Array(Array::new(items, edit.revision))
            }
            Value::Object(members) => {
                let members =
                    members.iter().map(|(key, value)| (Key::from(key), Self::from_value(value, edit))).collect();
                Self::Object(Object::new(members, edit.revision, &edit.hasher))
            }
        }
    }

    /// Builds a text node.
    pub fn text(text: &str) -> Self {
        if text.len() <= SHORT_BYTES_MAX {
            Self::Short(SmolStr::new(text))
        } else {
            let (digest, part) = Default::default();
            Self::Long(triomphe::Arc::new(Long { text: text.into(), bytes: json::text_size(text), digest, part }))
        }
    }

    /// Converts the tree to a `serde_json` value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Short(_) | Self::Long(_) => self.as_str().map_or(Value::Null, Value::from),
            Self::Array(array) => array.iter().map(Self::to_value).collect(),
            Self::Object(object) => object
                .iter()
                .map(|(key, node)| (key.to_string(), node.to_value()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

/// Builds the tree of a document outside of a board; its digests compare with others of that kind.
impl From<&Value> for Node {
    fn from(value: &Value) -> Self {
        Self::from_value(value, &Edit { revision: 0, hasher: Arc::new(Hasher::new(&Salt::ZERO)) })
    }
}

impl Node {
    /// Returns true if both trees are equal, with numbers compared by `same`.
    pub(crate) fn is_equal(&self, other: &Self, same: fn(&Number, &Number) -> bool) -> bool {
        if self.is_same(other) {
            return true;
        }
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(mine), Self::Bool(theirs)) => mine == theirs,
            (Self::Number(mine), Self::Number(theirs)) => same(mine, theirs),
            (Self::Array(mine), Self::Array(theirs)) => {
                let mut pairs = mine.iter().zip(theirs.iter());
                mine.len() == theirs.len() && pairs.all(|(mine, theirs)| mine.is_equal(theirs, same))
            }
            (Self::Object(mine), Self::Object(theirs)) => {
                let mut pairs = mine.iter().zip(theirs.iter());
                mine.len() == theirs.len()
                    && pairs.all(|(mine, theirs)| mine.0 == theirs.0 && mine.1.is_equal(theirs.1, same))
            }
            _ => self.as_str().is_some() && self.as_str() == other.as_str(),
        }
    }

    /// Returns true if the tree is that of a value, with numbers compared by `same`.
    pub(crate) fn is_of_value(&self, value: &Value, same: fn(&Number, &Number) -> bool) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(mine), Value::Bool(theirs)) => mine == theirs,
            (Self::Number(mine), Value::Number(theirs)) => same(mine, theirs),
            (Self::Array(mine), Value::Array(theirs)) => {
                let mut pairs = mine.iter().zip(theirs);
                mine.len() == theirs.len() && pairs.all(|(mine, theirs)| mine.is_of_value(theirs, same))
            }
            (Self::Object(mine), Value::Object(theirs)) => {
                let is_mine =
                    |(key, theirs): (&String, &Value)| mine.get(key).is_some_and(|mine| mine.is_of_value(theirs, same));
                mine.len() == theirs.len() && theirs.iter().all(is_mine)
            }
            (_, Value::String(theirs)) => self.as_str() == Some(theirs),
            _ => false,
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.is_equal(other, Number::eq)
    }
}

impl PartialEq<Value> for Node {
    fn eq(&self, other: &Value) -> bool {
        self.is_of_value(other, Number::eq)
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(*truth),
            Self::Number(number) => number.serialize(serializer),
            Self::Short(text) => serializer.serialize_str(text),
            Self::Long(long) => serializer.serialize_str(&long.text),
            Self::Array(array) => {
                let mut seq = serializer.serialize_seq(Some(array.len()))?;
                array.iter().try_for_each(|item| seq.serialize_element(item))?;
                seq.end()
            }
            Self::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                object.iter().try_for_each(|(key, node)| map.serialize_entry(key.as_str(), node))?;
                map.end()
            }
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Compact JSON.
impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("a tree is JSON"))
    }
}
