//! Requests of a worker to be shown a value, or a range of its parts.

use std::borrow::Cow;
use std::fmt;

use jsonptr::{Pointer, PointerBuf};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tree::Node;

/// End mark of a truncated name in a view.
pub(crate) const TRUNCATION_MARK: char = '…';

/// Place that a worker requests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExpandRequest {
    /// JSON Pointer of the place.
    Whole(String),
    /// Part of a place.
    Part(PartRange),
}

/// Parts of a collection or text from a start on, in the order of the document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRange {
    /// JSON Pointer of the collection or text.
    pub at: String,
    /// Start of the range.
    pub from: RangeStart,
}

/// Start of a range.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RangeStart {
    /// Number of parts, or of characters of a text, before the range.
    Number(u64),
    /// Name of a member; if it does not exist, the next name in order.
    Name(String),
}

impl ExpandRequest {
    /// Parses a request of a reply; `None` if it has another form.
    pub fn parse(value: &Value) -> Option<Self> {
        let request = <Self as Deserialize>::deserialize(value).ok()?;
        Pointer::parse(request.pointer()).is_ok().then_some(request)
    }

    /// Returns the JSON Pointer of the place.
    pub fn pointer(&self) -> &str {
        match self {
            Self::Whole(at) | Self::Part(PartRange { at, .. }) => at,
        }
    }

    /// Returns the JSON Pointer of the place, mutably.
    pub fn pointer_mut(&mut self) -> &mut String {
        match self {
            Self::Whole(at) | Self::Part(PartRange { at, .. }) => at,
        }
    }

    /// Returns the place; `None` if it is no JSON Pointer.
    pub fn place(&self) -> Option<PointerBuf> {
        PointerBuf::parse(self.pointer()).ok()
    }

    /// Returns the start of the range; `None` for a whole place.
    pub const fn start(&self) -> Option<&RangeStart> {
        match self {
            Self::Whole(_) => None,
            Self::Part(PartRange { from, .. }) => Some(from),
        }
    }
}

impl RangeStart {
    /// Returns the first member name of the range in an object; a truncated name is used without its mark.
    pub(crate) fn name_in(&self, object: &Node) -> Cow<'_, str> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Name(name) => {
                let begun = name.strip_suffix(TRUNCATION_MARK).filter(|_| object.child(name).is_none());
                Cow::Borrowed(begun.unwrap_or(name))
            }
        }
    }

    /// Returns the start as a number of characters; `None` if it is no number.
    pub fn characters(&self) -> Option<usize> {
        match self {
            Self::Number(number) => usize::try_from(*number).ok(),
            Self::Name(name) => name.parse().ok(),
        }
    }
}

impl From<&str> for ExpandRequest {
    fn from(at: &str) -> Self {
        Self::Whole(at.to_owned())
    }
}

impl fmt::Display for RangeStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for ExpandRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(at) => f.write_str(at),
            Self::Part(PartRange { at, from }) => write!(f, "{at} from {from}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_or_a_part_of_it_is_asked_for() {
        let forms = [
            (json!("/a/3"), "/a/3"),
            (json!({"at": "/m", "from": "key60"}), "/m from key60"),
            (json!({"at": "/t", "from": 3000}), "/t from 3000"),
        ];
        for (form, text) in forms {
            let asked = ExpandRequest::parse(&form).expect("it is a form");
            assert_eq!((json!(asked), asked.to_string().as_str()), (form, text));
        }
        let bad = [json!("a"), json!({"at": "/m"}), json!({"at": "m", "from": 1}), json!({"at": "/m", "from": -1})];
        for bad in bad.into_iter().chain([json!({"at": "/m", "from": 1, "to": 2}), json!(null), json!(["/a"])]) {
            assert_eq!(ExpandRequest::parse(&bad), None, "{bad}");
        }
    }
}
