//! A whole board as stored parts, from which the same board is made again without its records (SPEC section 10).
//!
//! Owns the format below and the words for it. What a board consists of is in [`crate::board`], how trees are cut in
//! `tree/store.rs`, and where parts are kept is the runtime's.
//!
//! # The format
//!
//! A snapshot is a *manifest* and the *parts* it names, each a text of compact JSON that is stored under the SHA-256 of
//! its bytes. Equal parts are stored once, so consecutive snapshots share what did not change, and so do the trees of
//! one snapshot. The snapshot's digest is the SHA-256 of its manifest.
//!
//! **Manifest**: one object with the members, in this order, `layout` ([`LAYOUT`]), `board`, `seal` (H(`50`) of the
//! board's hasher: without the salt nobody can guess what a digest stands for), `head` (number and hash of the last
//! record it includes), `trees` (for each: its version, its state digest, its value; the first is the state) and `rest`
//! (the value of an object that holds all else).
//!
//! **Values**: null, booleans, numbers and texts as themselves; a text whose JSON has at least [`PART_BYTES_MIN`] bytes
//! is a part of its own, `["t",HASH]`. An array is `["a",MEMBERS,LOSSES,NODE]`, an object `["o",MEMBERS,LOSSES,NODE]`.
//! MEMBERS is the version by which an element or member last came or went. LOSSES is what the container has lost, the
//! oldest first: for each loss the first index concerned (0 for a member), the 32-bit FNV-1a of the member's name (1 in
//! place of 0; 0 for elements, and where several losses were taken together), when the oldest place concerned had come to
//! be, and when it happened, all in one flat array; 0 if there are none.
//!
//! **Nodes** are those of the state digest ([`crate::digest`]):
//!
//! | node | form |
//! |---|---|
//! | chunk of an array | `["l",TOUCHED,STAMPS,[value,…]]` |
//! | level of an array | `["i",TOUCHED,[node,…]]` |
//! | bucket of an object | `["b",TOUCHED,STAMPS,[key,value,key,value,…]]`, sorted by the bytes of the keys |
//! | split of an object | `["s",TOUCHED,[node or null,…]]`, sixteen of them |
//! | a node that is a part | its HASH as a text |
//!
//! TOUCHED is the version of the latest change below. STAMPS says of each element or member when its place came to be
//! (`born`) and when another value was last put there (`changed`): one number if all these are the same, else the flat
//! array `[born,changed,born,changed,…]`; 0 for none. An empty container has one empty chunk or bucket.
//!
//! **Which nodes are parts**: those whose form, with parts below them replaced by their hashes, has at least
//! [`PART_BYTES_MIN`] bytes or [`PART_LEVELS_MIN`] nodes one inside the other. That depends on the content alone, so
//! equal boards have equal digests.

use std::sync::Arc;

use crate::digest::Digest;

/// The number of the format.
pub const LAYOUT: u32 = 3;

/// From this length on, in bytes of JSON, a node or a text is a part of its own.
///
/// Sixteen hashes are a little longer, so that a level above parts is itself a part and a change rewrites little.
pub const PART_BYTES_MIN: usize = 1024;

/// From this nesting on a node is a part of its own, so that no part is nested deeper than JSON is read.
pub const PART_LEVELS_MIN: u16 = 32;

/// A text to store under its hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// SHA-256 of the text.
    pub hash: Digest,
    /// The text.
    pub text: Arc<str>,
    /// The parts it names, in order; each was handed out before.
    pub names: Vec<Digest>,
}

/// The parts that the text of a part or of a manifest names, in order, as in [`Part::names`]; `None` if it is not one of
/// this layout. Whether the text is the one with its hash is not looked at.
pub fn names(text: &str) -> Option<Vec<Digest>> {
    crate::tree::names_of(text)
}

/// Why a stored snapshot cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Something it names is not stored.
    #[error("its part {0} is missing")]
    Missing(Digest),
    /// A stored text is not the one with its hash.
    #[error("its part {0} was altered")]
    Altered(Digest),
    /// Another version of this program wrote it.
    #[error("it has layout {0}, this version reads {LAYOUT}")]
    OtherLayout(u64),
    /// An earlier version wrote it, which did not keep all that this one needs. The records have it.
    #[error("it is from before snapshots kept {0}")]
    TooOld(&'static str),
    /// It has the right hash and is no snapshot of this board.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// Storage.
    #[error("{0}")]
    Storage(String),
}

impl SnapshotError {
    /// Returns true if the snapshot is sound, as far as this version can say, and another version can use it.
    pub const fn is_of_another_version(&self) -> bool {
        matches!(self, Self::OtherLayout(_) | Self::TooOld(_))
    }

    pub(crate) fn unreadable(what: impl Into<String>) -> Self {
        Self::Unreadable(what.into())
    }
}

/// Maps whose keys are no texts, as lists of pairs.
pub(crate) mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Values that may be absent, where `null` is a value: a list of none or one.
pub(crate) mod optional {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(value)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let mut values = Vec::<T>::deserialize(deserializer)?;
        match values.len() {
            0 | 1 => Ok(values.pop()),
            more => Err(D::Error::custom(format!("{more} values where at most one can be"))),
        }
    }
}
