//! Represents places as lists of tokens (RFC 6901), and finds their values in documents.

use std::fmt;

use serde_json::Value;

/// A place in a document, existing or not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Place(Vec<String>);

impl Place {
    /// Parses a JSON Pointer.
    ///
    /// # Panics
    /// If the text is not a JSON Pointer; all of them here come from the kernel or from the driver.
    pub(super) fn parse(pointer: &str) -> Self {
        assert!(pointer.is_empty() || pointer.starts_with('/'), "{pointer:?} is no JSON Pointer");
        Self(pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect())
    }

    pub(super) fn tokens(&self) -> &[String] {
        &self.0
    }

    pub(super) fn child(&self, token: impl ToString) -> Self {
        let mut tokens = self.0.clone();
        tokens.push(token.to_string());
        Self(tokens)
    }

    /// Returns the place above and the last token; `None` for the whole document.
    pub(super) fn split(&self) -> Option<(Self, &str)> {
        let (last, above) = self.0.split_last()?;
        Some((Self(above.to_vec()), last))
    }

    /// Returns true if this place is `other` or lies above it.
    pub(super) fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Returns true if one of both covers the other.
    pub(super) fn touches(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Returns the index of `array` on the way to this place, if it lies below `array`.
    pub(super) fn index_in(&self, array: &Self) -> Option<usize> {
        if !array.covers(self) {
            return None;
        }
        index(self.0.get(array.0.len())?)
    }

    pub(super) fn of<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(document, |value, token| match value {
            Value::Array(elements) => elements.get(index(token)?),
            Value::Object(members) => members.get(token),
            _ => None,
        })
    }

    pub(super) fn is_in(&self, document: &Value) -> bool {
        self.of(document).is_some()
    }
}

/// Parses an array index as RFC 6901 writes it.
pub(super) fn index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    if is_plain { token.parse().ok() } else { None }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}
