//! Trees as instances for `jsonschema`, through its traits.
//!
//! Only the values shown in messages become a `serde_json::Value`. Long values are described instead, because a message
//! about a large document must not cost as much as the document.

use std::borrow::Cow;

use jsonschema::JsonType;
use jsonschema::json::{Array as ArrayOf, Json, Node as NodeOf, NodeIdentity, Object as ObjectOf};
use serde_json::{Number, Value};
use smol_str::SmolStr;

use super::{equality, explain};
use crate::tree::{Array, Elements, Key, Members, Node, Object};

/// Tree representation for `jsonschema`.
pub(super) struct Tree;

/// Buffer for a member name that is validated as a text.
pub(super) struct Name(Node);

impl Default for Name {
    fn default() -> Self {
        Self(Node::Null)
    }
}

impl Json for Tree {
    type Node<'a> = &'a Node;
    type PreparedKey = Key;
    type StringBuffer = Name;

    // As for `serde_json`: a lookup compares keys in a sorted list.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> Key {
        Key::new(key)
    }

    fn with_string_node<T>(buffer: &mut Name, string: &str, f: impl FnOnce(&Node) -> T) -> T {
        buffer.0 = Node::Short(SmolStr::new(string));
        f(&buffer.0)
    }
}

impl<'a> NodeOf<'a, Tree> for &'a Node {
    type Object = &'a Object;
    type Array = &'a Array;
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Object> {
        Node::as_object(self)
    }

    fn as_array(&self) -> Option<&'a Array> {
        Node::as_array(self)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        Node::as_str(self).map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        match self {
            Node::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        match self {
            Node::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Node::Null)
    }

    fn json_type(&self) -> JsonType {
        match self {
            Node::Null => JsonType::Null,
            Node::Bool(_) => JsonType::Boolean,
            Node::Number(_) => JsonType::Number,
            Node::Short(_) | Node::Long(_) => JsonType::String,
            Node::Array(_) => JsonType::Array,
            Node::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equality::equals_value(self, expected)
    }

    /// Returns the value to show in messages. No other caller needs it, as `equals_value` and `is_unique` are
    /// overridden.
    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(explain::shorten_node(self))
    }

    /// Distinct places have distinct addresses, except for shared nodes, which are equal.
    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Node>(self) as usize))
    }
}

/// Members of an object, sorted by key.
pub(super) struct Named<'a>(Members<'a>);

impl<'a> Iterator for Named<'a> {
    type Item = (&'a str, &'a Node);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, node)| (key.as_str(), node))
    }
}

impl<'a> ObjectOf<'a, Tree> for &'a Object {
    type Node = &'a Node;
    type MemberName = &'a str;
    type MembersIter = Named<'a>;

    fn len(&self) -> usize {
        Object::len(self)
    }

    fn get(&self, key: &Key) -> Option<&'a Node> {
        Object::get(self, key)
    }

    fn members(&self) -> Named<'a> {
        Named(Object::iter(self))
    }
}

impl<'a> ArrayOf<'a, Tree> for &'a Array {
    type Node = &'a Node;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        Array::len(self)
    }

    fn elements(&self) -> Elements<'a> {
        Array::iter(self)
    }

    fn is_unique(&self) -> bool {
        equality::is_unique(self)
    }
}
