//! A JSON document as a persistent tree in which every node knows its digest and when it last changed.
//!
//! A change copies the path to the root and shares everything else, so an old document stays as it was at the price of
//! a pointer, and a commit costs what its patch costs. Owns the structure and its arithmetic (lengths, bytes, depths,
//! stamps, digests); what an operation means and whether it can be done is [`crate::state`]'s.
//!
//! * `array`, `object`: the two containers, whose shapes depend on their contents alone; `array::chunk` and
//!   `object::trie` are the nodes they are made of;
//! * `stamp`: when places came to be and changed; `since`: what did since a version; `latest`: which did so last;
//! * `edit`: changes at a path;
//! * `digest`: the Merkle digest, whose format [`crate::digest`] gives; `convert`: to and from other forms;
//! * `store`, `restore`: to and from the parts of a snapshot, whose format [`crate::snapshot`] gives.
//!
//! Recursion is as deep as documents are nested, so that must be bounded, as all that [`crate::json`] reads is.

mod array;
mod convert;
mod digest;
mod edit;
mod latest;
mod named;
mod object;
mod restore;
mod since;
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
pub use edit::Edit;
pub use latest::{Latest, Parts, Step, Ties};
pub(crate) use named::of_text as names_of;
pub use object::{Members, Object};
pub(crate) use restore::Reader;
pub use since::Since;
pub use stamp::{At, Stamp};
pub(crate) use store::{Mark, Writer};

/// The name of a member.
pub type Key = SmolStr;

/// A value in a tree; cheap to clone.
#[derive(Clone)]
pub enum Node {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number in its one form ([`crate::json::normalise`]).
    Number(Number),
    /// A text of at most [`SHORT_BYTES_MAX`] bytes.
    Short(SmolStr),
    /// A longer text, whose digest is kept.
    Long(Arc<Long>),
    /// An array.
    Array(Array),
    /// An object.
    Object(Object),
}

/// The longest text that enters digests as it is; also part of the digest's format.
pub const SHORT_BYTES_MAX: usize = 256;

/// A long text.
#[derive(Debug)]
pub struct Long {
    text: Box<str>,
    bytes: u64,
    digest: OnceLock<[u8; 32]>,
    part: Stored,
}

/// The hash under which snapshots have stored a node. Only the few nodes that are parts have one, so it takes a word
/// elsewhere.
type Stored = OnceBox<Digest>;

/// What a node of a container keeps of all below it.
///
/// There are as many of these as nodes, so they are not to have gaps. A container of more than `u32::MAX` parts would
/// need a hundred gigabytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, packed(4))]
struct Sum {
    /// Bytes of them as compact JSON, keys included, commas and brackets not.
    bytes: u64,
    /// Elements or members.
    len: u32,
    /// The latest change of or in any of them.
    touched: At,
    /// The deepest of them.
    depth: u16,
}

impl Sum {
    fn of(node: &Node) -> Self {
        Self { len: 1, bytes: node.bytes(), touched: node.touched(), depth: node.depth() }
    }

    /// Of elements, as far as they themselves know.
    fn of_all(nodes: &[Node]) -> Self {
        let mut sum = Self::default();
        nodes.iter().for_each(|node| sum.add(node));
        sum
    }

    fn add(&mut self, node: &Node) {
        self.join(&Self::of(node));
    }

    const fn len(&self) -> usize {
        self.len as usize
    }

    fn join(&mut self, other: &Self) {
        self.len += other.len;
        self.bytes += other.bytes;
        self.touched = self.touched.max(other.touched);
        self.depth = self.depth.max(other.depth);
    }

    /// Exchanges one of the parts at version `at`; true if the depth must be worked out again.
    fn exchange(&mut self, before: &Self, after: &Self, at: At) -> bool {
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.touched = self.touched.max(at);
        if after.depth >= self.depth {
            self.depth = after.depth;
            return false;
        }
        before.depth == self.depth
    }
}

impl Node {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Short(text) => Some(text),
            Self::Long(long) => Some(&long.text),
            _ => None,
        }
    }

    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Reads what is looked at first of a node, so that it is near.
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

    /// Whether there are elements or members in it.
    pub fn has_parts(&self) -> bool {
        self.part_count() > 0
    }

    /// How many elements or members it has; 0 for a scalar.
    pub fn part_count(&self) -> usize {
        match self {
            Self::Array(array) => array.len(),
            Self::Object(object) => object.len(),
            _ => 0,
        }
    }

    /// What a decoded token of a JSON Pointer names in it. An index is written without leading zeros.
    pub fn child(&self, token: &str) -> Option<&Self> {
        self.slot(token).map(|(node, _)| node)
    }

    /// The same, with the stamp of the place.
    pub fn slot(&self, token: &str) -> Option<(&Self, Stamp)> {
        match self {
            Self::Array(array) => array.slot(index(token)?),
            Self::Object(object) => object.slot(token),
            _ => None,
        }
    }

    /// What is at a place.
    pub fn get(&self, place: &Pointer) -> Option<&Self> {
        place.tokens().try_fold(self, |node, token| node.child(&token.decoded()))
    }

    /// The version that last put something at a place or above it, or changed something in it; none if nothing is
    /// there. Elements that were only shifted keep theirs.
    pub fn last_changed(&self, place: &Pointer) -> Option<At> {
        let (mut node, mut floor) = (self, 0);
        for token in place.tokens() {
            let (child, stamp) = node.slot(&token.decoded())?;
            (node, floor) = (child, stamp.under(floor).changed);
        }
        Some(floor.max(node.touched()))
    }

    /// Whether two nodes are one in memory; if not, they may still be equal.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Long(mine), Self::Long(theirs)) => Arc::ptr_eq(mine, theirs),
            (Self::Array(mine), Self::Array(theirs)) => mine.is_same(theirs),
            (Self::Object(mine), Self::Object(theirs)) => mine.is_same(theirs),
            _ => false,
        }
    }

    /// Length as compact JSON, in bytes. Costs nothing but for texts and numbers, which are short or know it.
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

    /// Nesting: 0 for a scalar, 1 for an empty array or object.
    pub fn depth(&self) -> u16 {
        match self {
            Self::Array(array) => array.sum().depth.saturating_add(1),
            Self::Object(object) => object.sum().depth.saturating_add(1),
            _ => 0,
        }
    }

    /// The latest change in it; 0 for a scalar, of which only its place knows.
    pub fn touched(&self) -> At {
        match self {
            Self::Array(array) => array.sum().touched.max(array.members_changed()),
            Self::Object(object) => object.sum().touched.max(object.members_changed()),
            _ => 0,
        }
    }

    /// What it is, for people: `an array of 3`.
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

/// A member by its name; `null` if there is none, as `serde_json` has it.
impl std::ops::Index<&str> for Node {
    type Output = Self;

    fn index(&self, name: &str) -> &Self {
        self.as_object().and_then(|object| object.get(name)).unwrap_or(&Self::Null)
    }
}

/// An element; `null` if there is none.
impl std::ops::Index<usize> for Node {
    type Output = Self;

    fn index(&self, index: usize) -> &Self {
        self.as_array().and_then(|array| array.get(index)).unwrap_or(&Self::Null)
    }
}

/// The array index that a decoded token is.
fn index(token: &str) -> Option<usize> {
    is_index(token).then(|| token.parse().ok()).flatten()
}
