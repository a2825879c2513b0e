//! Part of a document shown by a view, as one JSON value: for workers that receive objects instead of lines.
//!
//! A container shown in part holds only the shown parts. An array with omitted elements becomes an object with the
//! indices of the shown ones as names. It thus reveals nothing of the others and is no larger.

use std::collections::BTreeMap;

use jsonptr::Pointer;
use serde_json::{Map, Value};

use crate::tree::Node;

/// Part of a document, with its shown contents.
#[derive(Debug)]
pub(crate) enum Projection<'a> {
    Whole(&'a Node),
    /// These members of an object.
    Object(BTreeMap<String, Self>),
    /// These elements of an array.
    Array {
        /// Shown elements by index.
        elements: BTreeMap<usize, Self>,
        /// Number of all elements.
        len: usize,
    },
}

impl<'a> Projection<'a> {
    /// Returns the excerpt with these places of a document; missing ones are skipped.
    pub(crate) fn from_places<'p>(document: &'a Node, places: impl IntoIterator<Item = &'p Pointer>) -> Self {
        let mut excerpt = Self::empty(document);
        for place in places {
            if document.get(place).is_some() {
                let tokens: Vec<String> = place.tokens().map(|token| token.decoded().into_owned()).collect();
                excerpt.include(document, &tokens);
            }
        }
        excerpt
    }

    fn empty(node: &Node) -> Self {
        match node {
            Node::Array(elements) => Self::Array { elements: BTreeMap::new(), len: elements.len() },
            _ => Self::Object(BTreeMap::new()),
        }
    }

    fn include(&mut self, node: &'a Node, tokens: &[String]) {
        let Some((token, rest)) = tokens.split_first() else {
            *self = Self::Whole(node);
            return;
        };
        let Some(child) = node.child(token) else { return };
        let part = match self {
            Self::Whole(_) => return,
            Self::Object(members) => members.entry(token.clone()).or_insert_with(|| Self::empty(child)),
            Self::Array { elements, .. } => {
                let Ok(index) = token.parse() else { return };
                elements.entry(index).or_insert_with(|| Self::empty(child))
            }
        };
        part.include(child, rest);
    }

    /// Returns the excerpt as JSON.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Whole(node) => node.to_value(),
            Self::Object(members) => {
                Value::Object(members.iter().map(|(name, part)| (name.clone(), part.to_value())).collect())
            }
            Self::Array { elements, len } if elements.len() == *len => elements.values().map(Self::to_value).collect(),
            Self::Array { elements, .. } => {
                let named = elements.iter().map(|(index, part)| (index.to_string(), part.to_value()));
                Value::Object(named.collect::<Map<_, _>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::digest::{Hasher, Salt};
    use crate::state::State;

    #[test]
    fn it_holds_what_was_shown_and_nothing_else() {
        let document =
            json!({"a": {"x": 1, "y": 2}, "list": ["p", "q", "r"], "all": [{"t": 1, "s": 2}, {"t": 3}], "e": []});
        let state = State::new(&document, &Hasher::new(&Salt::ZERO));
        for (places, expected) in [
            (vec![], json!({})),
            (vec!["/a/x", "/e"], json!({"a": {"x": 1}, "e": []})),
            (vec!["/list/1", "/gone"], json!({"list": {"1": "q"}})),
            (vec!["/list/0", "/list/1", "/list/2"], json!({"list": ["p", "q", "r"]})),
            (vec!["/all/0/t", "/all/1/t"], json!({"all": [{"t": 1}, {"t": 3}]})),
            (vec![""], document.clone()),
        ] {
            let pointers = places.iter().map(|place| Pointer::from_static(place));
            assert_eq!(Projection::from_places(state.root(), pointers).to_value(), expected, "{places:?}");
        }
    }
}
