//! A JSON document as a persistent tree in which every node knows its digest and its latest change.
//!
//! A change copies the path to the root and shares all else. An old document is kept at the price of a pointer, and the
//! cost of a commit depends on its patch. Owns the structure and its bookkeeping (lengths, bytes, depths, stamps,
//! digests); [`crate::state`] owns the meaning and validity of operations.
//!
//! * `array`, `object`: the two containers, with shapes that depend on their contents alone; `array::chunk` and
//!   `object::trie` are their nodes;
//! * `stamp`: creation and change of places; `changes_since`: changes since a version; `part_iter`: latest changes;
//! * `edit`: changes at a path;
//! * `digest`: the Merkle digest, with the format of [`crate::digest`]; `convert`: conversion to and from other forms;
//! * `store`, `restore`: conversion to and from snapshot parts, with the format of [`crate::snapshot`].
//!
//! Recursion is as deep as the document, so the depth must be bounded, as in all that [`crate::json`] reads.

mod array;
mod cached;
mod changes_since;
mod convert;
mod digest;
mod edit;
mod object;
mod part_iter;
mod part_refs;
mod restore;
mod stamp;
mod store;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use jsonptr::Pointer;
use once_cell::race::OnceBox;
use serde_json::Number;
use smol_str::SmolStr;

use crate::pattern::is_index;
use triomphe::Arc;

use self::array::Top;
use crate::digest::Digest;

pub use array::{Array, Elements};
pub use changes_since::ChangesSince;
pub use edit::Edit;
pub use object::{Members, Object};
pub use part_iter::{LatestFirst, Parts, PathSegment, TieOrder};
pub(crate) use part_refs::refs_in_text as names_of;
pub(crate) use restore::Reader;
pub use stamp::{Revision, Stamp};
pub(crate) use store::{Mark, Writer};

/// The name of a member.
pub type Key = SmolStr;

/// Change of a place: its value and its stamp.
type Change<'c> = &'c mut dyn FnMut(&mut Node, &mut Stamp);

/// Derives equality and partial order of a type from its `Ord::cmp`.
macro_rules! equal_by_order {
    ($type:ty) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $type {}

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
    };
}
pub(crate) use equal_by_order;

/// A value in a tree; cheap to clone.
#[derive(Clone)]
pub enum Node {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A normalised number ([`crate::json::normalise`]).
    Number(Number),
    /// A text of at most [`SHORT_BYTES_MAX`] bytes.
    Short(SmolStr),
    /// A longer text, with a cached digest.
    Long(Arc<Long>),
    /// An array.
    Array(Array),
    /// An object.
    Object(Object),
}

/// Maximum length of a text that is included in digests as it is; also part of the digest's format.
pub const SHORT_BYTES_MAX: usize = 256;

/// A long text.
#[derive(Debug)]
pub struct Long {
    text: Box<str>,
    bytes: u64,
    digest: OnceLock<[u8; 32]>,
    part: Stored,
}

/// Hash of a node as snapshots have stored it. Only the few nodes that are parts have one, so it takes one word and is
/// allocated elsewhere.
type Stored = OnceBox<Digest>;

/// Summary of all values below a container's node.
///
/// There are as many of these as nodes, so the layout has no padding. A container of more than `u32::MAX` parts would
/// need a hundred gigabytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, packed(4))]
struct Sum {
    /// Bytes of the parts as compact JSON, including keys, without commas and brackets.
    bytes: u64,
    /// Number of elements or members.
    len: u32,
    /// Latest change of or inside any of them.
    modified_at: Revision,
    /// Maximum depth of the parts.
    depth: u16,
}

impl Sum {
    fn from_node(node: &Node) -> Self {
        Self { len: 1, bytes: node.bytes(), modified_at: node.modified_at(), depth: node.depth() }
    }

    /// Sums elements, without the stamps of their places.
    fn from_nodes(nodes: &[Node]) -> Self {
        let mut sum = Self::default();
        nodes.iter().for_each(|node| sum.add(node));
        sum
    }

    fn add(&mut self, node: &Node) {
        self.join(&Self::from_node(node));
    }

    const fn len(&self) -> usize {
        self.len as usize
    }

    fn join(&mut self, other: &Self) {
        self.len += other.len;
        self.bytes += other.bytes;
        self.modified_at = self.modified_at.max(other.modified_at);
        self.depth = self.depth.max(other.depth);
    }

    /// Replaces one of the parts at version `at`; returns true if the depth must be recomputed.
    fn exchange(&mut self, before: &Self, after: &Self, at: Revision) -> bool {
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.modified_at = self.modified_at.max(at);
        if after.depth >= self.depth {
            self.depth = after.depth;
            return false;
        }
        before.depth == self.depth
    }
}

impl Node {
    /// Returns the text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Short(text) => Some(text),
            Self::Long(long) => Some(&long.text),
            _ => None,
        }
    }

    /// Returns the array, if it is one.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Prefetches the first memory of a node that is accessed.
    fn fetch(&self) -> usize {
        let known = |digest: &OnceLock<[u8; 32]>| usize::from(digest.get().is_some());
        match self {
            Self::Array(array) => match array.top() {
                Top::Few(items, _) => items.len(),
                Top::Chunk(root) => root.sum().len() + known(&root.digest),
            },
            Self::Object(object) => object.root().map_or(0, |root| root.sum().len() + known(&root.digest)),
            Self::Long(long) => known(&long.digest),
            _ => 0,
        }
    }

    /// Returns true if it has elements or members.
    pub fn has_parts(&self) -> bool {
        self.part_count() > 0
    }

    /// Returns the number of elements or members; 0 for a scalar.
    pub fn part_count(&self) -> usize {
        match self {
            Self::Array(array) => array.len(),
            Self::Object(object) => object.len(),
            _ => 0,
        }
    }

    /// Returns the part that a decoded JSON Pointer token names. An index has no leading zeros.
    pub fn child(&self, token: &str) -> Option<&Self> {
        self.slot(token).map(|(node, _)| node)
    }

    /// Like [`Self::child`], with the stamp of the place.
    pub fn slot(&self, token: &str) -> Option<(&Self, Stamp)> {
        match self {
            Self::Array(array) => array.slot(index(token)?),
            Self::Object(object) => object.slot(token),
            _ => None,
        }
    }

    /// Returns the value at a place.
    pub fn get(&self, place: &Pointer) -> Option<&Self> {
        place.tokens().try_fold(self, |node, token| node.child(&token.decoded()))
    }

    /// Returns the version that last put a value at a place or above it, or changed the value inside; `None` if there
    /// is no value. Elements that were only shifted keep their version.
    pub fn last_changed(&self, place: &Pointer) -> Option<Revision> {
        let (mut node, mut floor) = (self, 0);
        for token in place.tokens() {
            let (child, stamp) = node.slot(&token.decoded())?;
            (node, floor) = (child, stamp.under(floor).changed);
        }
        Some(floor.max(node.modified_at()))
    }

    /// Returns true if two nodes share memory; otherwise they may still be equal.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Long(mine), Self::Long(theirs)) => Arc::ptr_eq(mine, theirs),
            (Self::Array(mine), Self::Array(theirs)) => mine.is_same(theirs),
            (Self::Object(mine), Self::Object(theirs)) => mine.is_same(theirs),
            _ => false,
        }
    }

    /// Returns the length as compact JSON, in bytes. Free except for texts and numbers, which are short or store it.
    pub fn bytes(&self) -> u64 {
        let container = |sum: Sum| 2 + sum.bytes + u64::from(sum.len).saturating_sub(1);
        match self {
            Self::Null => 4,
            Self::Bool(truth) => 5 - u64::from(*truth),
            Self::Number(number) => crate::json::number_size(number),
            Self::Short(text) => crate::json::text_size(text),
            Self::Long(long) => long.bytes,
            Self::Array(array) => container(array.sum()),
            Self::Object(object) => container(object.sum()),
        }
    }

    /// Returns the nesting depth: 0 for a scalar, 1 for an empty array or object.
    pub fn depth(&self) -> u16 {
        match self {
            Self::Array(array) => array.sum().depth.saturating_add(1),
            Self::Object(object) => object.sum().depth.saturating_add(1),
            _ => 0,
        }
    }

    /// Returns the latest change inside; 0 for a scalar, because only its place has a stamp.
    pub fn modified_at(&self) -> Revision {
        match self {
            Self::Array(array) => array.sum().modified_at.max(array.members_changed()),
            Self::Object(object) => object.sum().modified_at.max(object.members_changed()),
            _ => 0,
        }
    }

    /// Describes the value for people: `an array of 3`.
    pub fn kind(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(_) => "a boolean".to_owned(),
            Self::Number(_) => "a number".to_owned(),
            Self::Short(_) | Self::Long(_) => "a string".to_owned(),
            Self::Array(array) => format!("an array of {}", array.len()),
            Self::Object(object) => format!("an object of {}", object.len()),
        }
    }
}

/// Returns a member by name; `null` if there is none, like `serde_json`.
impl std::ops::Index<&str> for Node {
    type Output = Self;

    fn index(&self, name: &str) -> &Self {
        self.as_object().and_then(|object| object.get(name)).unwrap_or(&Self::Null)
    }
}

/// Returns an element; `null` if there is none.
impl std::ops::Index<usize> for Node {
    type Output = Self;

    fn index(&self, index: usize) -> &Self {
        self.as_array().and_then(|array| array.get(index)).unwrap_or(&Self::Null)
    }
}

/// Returns the array index that a decoded token denotes.
fn index(token: &str) -> Option<usize> {
    is_index(token).then(|| token.parse().ok()).flatten()
}
