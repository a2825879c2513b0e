//! Bindings of the names in path templates, for one invocation.
//!
//! Bindings follow from the trigger: its path template names tokens of the event's place, `bind` of a rule on a signal
//! names values of its payload. Bindings are not stored; the recorded trigger and the rule determine them.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value};

use crate::expand_request::ExpandRequest;
use crate::expr::Variable;
use crate::pattern::{Pattern, PatternToken};
use crate::placeholder::is_placeholder;

/// Maximum tokens of a JSON Pointer in which names are replaced.
const POINTER_TOKENS_MAX: usize = 64;
/// Maximum bytes of a token from a signal.
const SIGNAL_TOKEN_MAX: usize = 4096;

/// Names and their bound tokens, without escapes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bindings(BTreeMap<String, String>);

/// Sources of a rule's bindings.
#[derive(Clone, Debug)]
pub enum BindingSource {
    /// Tokens of the event's place: for each wildcard of the trigger's path, in order, its name, if it has one.
    Captures(Vec<Option<String>>),
    /// Texts or whole numbers in the signal's payload, by JSON Pointers.
    Values(BTreeMap<String, PointerBuf>),
}

impl BindingSource {
    /// Reads the names of a trigger's path template.
    pub fn from_template(template: &Pattern) -> Self {
        let name = |token: &PatternToken| match token {
            PatternToken::Bound(name) => Some(Some(name.clone())),
            PatternToken::Any | PatternToken::Deep => Some(None),
            PatternToken::Literal(_) | PatternToken::Append => None,
        };
        Self::Captures(template.tokens().iter().filter_map(name).collect())
    }

    /// Returns the names, in order.
    pub fn names(&self) -> BTreeSet<&str> {
        match self {
            Self::Captures(names) => names.iter().flatten().map(String::as_str).collect(),
            Self::Values(names) => names.keys().map(String::as_str).collect(),
        }
    }

    /// Returns the bindings of an event with these captures.
    pub(crate) fn bind_captures(&self, captures: &[String]) -> Bindings {
        let Self::Captures(names) = self else { return Bindings::default() };
        Bindings::from_pairs(
            names.iter().zip(captures).filter_map(|(name, token)| Some((name.as_deref()?, token.clone()))),
        )
    }

    /// Returns the bindings of a signal with this payload. The error is a human-readable message with the name that
    /// cannot be bound; it omits the value.
    pub(crate) fn bind_signal(&self, value: &Variable<'_>) -> Result<Bindings, String> {
        let Self::Values(names) = self else { return Ok(Bindings::default()) };
        let found = names.iter().map(|(name, at)| {
            // A redacted value names nothing.
            let text = value.text_at(at).filter(|text| !is_placeholder(text)).map(str::to_owned);
            let token = text.or_else(|| value.count_at(at).map(|index| index.to_string()));
            // `-` would be the append position.
            let token = token.filter(|token| token.len() <= SIGNAL_TOKEN_MAX && token != "-");
            let missing =
                || format!("the signal carries no name and no index at `{at}` that `{{{name}}}` could stand for");
            token.map(|token| (name.as_str(), token)).ok_or_else(missing)
        });
        Ok(Bindings::from_pairs(found.collect::<Result<Vec<_>, _>>()?))
    }
}

impl Bindings {
    /// Binds names to tokens without escapes. Any token can be bound: a wildcard like `*` is an ordinary name here.
    pub fn from_pairs<'n>(names: impl IntoIterator<Item = (&'n str, String)>) -> Self {
        Self(names.into_iter().map(|(name, token)| (name.to_owned(), token)).collect())
    }

    /// Returns true if nothing is bound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the token to which a name is bound.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Iterates over names and tokens, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, token)| (name.as_str(), token.as_str()))
    }

    /// Keeps only the bindings of these names.
    #[must_use]
    pub(crate) fn restricted_to(&self, names: &BTreeSet<String>) -> Self {
        Self(self.0.iter().filter(|(name, _)| names.contains(*name)).map(|(n, t)| (n.clone(), t.clone())).collect())
    }

    /// Returns an object of names and tokens.
    pub fn to_value(&self) -> Value {
        let members = self.0.iter().map(|(name, token)| (name.clone(), Value::from(token.as_str())));
        Value::Object(members.collect::<Map<_, _>>())
    }

    /// Replaces names in a JSON Pointer by their tokens; `None` if the text is no pointer.
    pub fn resolve(&self, text: &str) -> Option<PointerBuf> {
        let pointer = Pointer::parse(text).ok()?;
        let token = |token: jsonptr::Token<'_>| {
            let decoded = token.decoded().into_owned();
            match decoded.strip_prefix('{').and_then(|rest| self.get(rest.strip_suffix('}')?)) {
                Some(bound) => bound.to_owned(),
                None => decoded,
            }
        };
        Some(PointerBuf::from_tokens(pointer.tokens().map(token).collect::<Vec<_>>()))
    }

    /// Replaces names in the operations of a patch and in requested places by their tokens; returns true if any was
    /// replaced.
    pub(crate) fn substitute(&self, patch: &mut Value, expand: &mut Vec<ExpandRequest>) -> bool {
        let mut is_filled = false;
        let mut fill = |text: &mut String| {
            // A longer path cannot be a place of a grant.
            let is_short = text.bytes().filter(|byte| *byte == b'/').count() <= POINTER_TOKENS_MAX;
            let place = is_short.then(|| self.resolve(text)).flatten();
            if let Some(place) = place.filter(|place| place.as_str() != text) {
                *text = place.to_string();
                is_filled = true;
            }
        };
        expand.iter_mut().map(ExpandRequest::pointer_mut).for_each(&mut fill);
        let mut known = BTreeSet::new();
        expand.retain(|request| known.insert(request.clone()));
        for op in patch.as_array_mut().into_iter().flatten() {
            for member in ["path", "from"] {
                if let Some(Value::String(text)) = op.get_mut(member) {
                    fill(text);
                }
            }
        }
        is_filled
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bound(pairs: &[(&str, &str)]) -> Bindings {
        Bindings::from_pairs(pairs.iter().map(|(name, token)| (*name, (*token).to_owned())))
    }

    #[test]
    fn names_in_a_reply_are_replaced_by_their_bindings() {
        let bindings = bound(&[("note", "3"), ("doc", "a/b")]);
        let mut patch = json!([
            {"op": "copy", "from": "/docs/{doc}/x", "path": "/notes/{note}/x"},
            {"op": "add", "path": "/n/a{note}", "value": "/{note}"},
            {"op": "add", "path": "/{other}", "value": 1},
            {"op": "add", "path": "{note}", "value": 1},
            {"op": "remove", "path": "/notes/{note}"},
        ]);
        let mut expand = vec![ExpandRequest::from("/docs/{doc}"), "/notes".into()];
        assert!(bindings.substitute(&mut patch, &mut expand));
        assert_eq!(
            patch,
            json!([
                {"op": "copy", "from": "/docs/a~1b/x", "path": "/notes/3/x"},
                {"op": "add", "path": "/n/a{note}", "value": "/{note}"},
                {"op": "add", "path": "/{other}", "value": 1},
                {"op": "add", "path": "{note}", "value": 1},
                {"op": "remove", "path": "/notes/3"},
            ])
        );
        assert_eq!(expand, [ExpandRequest::from("/docs/a~1b"), "/notes".into()]);
        assert!(!bindings.substitute(&mut patch, &mut expand), "nothing is left to put in");
    }
}
