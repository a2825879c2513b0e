//! Stored form of a whole board, from which it is restored without its records (SPEC section 10).
//!
//! Defines the format below. [`crate::board`] defines the contents of a board, `tree/store.rs` splits trees into parts,
//! and the runtime stores the parts.
//!
//! # The format
//!
//! A snapshot is a *manifest* and the *parts* it names, each a text of compact JSON, stored under the SHA-256 of its
//! bytes. Equal parts are stored once, so consecutive snapshots share unchanged parts, and so do the trees of one
//! snapshot. The snapshot's digest is the SHA-256 of its manifest.
//!
//! **Manifest**: one object with these members, in order: `layout` ([`LAYOUT`]), `board`, `seal` (H(`50`) of the
//! board's hasher: without the salt, digests cannot be guessed), `head` (number and hash of the last record it
//! includes), `trees` (for each its version, state digest and value; the first is the state) and `rest` (the value of
//! an object with all other data).
//!
//! **Values**: null, booleans, numbers and texts are written as they are; texts with at least [`PART_BYTES_MIN`] bytes
//! of JSON are separate parts, `["t",HASH]`. An array is `["a",MEMBERS,LOSSES,NODE]`, an object
//! `["o",MEMBERS,LOSSES,NODE]`. MEMBERS is the version that last added or removed an element or member. LOSSES lists
//! the removals from the container, the oldest first, in one flat array; 0 if there are none. Each removal has four
//! numbers: the first index concerned (0 for a member), the 32-bit FNV-1a of the member's name (1 in place of 0; 0 for
//! elements, and for several removals merged), the version at which the oldest place concerned was added, and the
//! version of the removal.
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
//! TOUCHED is the version of the latest change below. STAMPS holds, for each element or member, the version at which
//! its place was added (`born`) and the version at which its value was last replaced as a whole (`changed`). It is one
//! number if all these are equal, else the flat array `[born,changed,born,changed,…]`; 0 if there are none. An empty
//! container has one empty chunk or bucket.
//!
//! **Parts**: a node is a separate part if its form, with parts below it replaced by their hashes, has at least
//! [`PART_BYTES_MIN`] bytes or [`PART_LEVELS_MIN`] nested nodes. This depends on the content alone, so equal boards
//! have equal digests.

use std::sync::Arc;

use crate::digest::Digest;

/// Number of the format.
pub const LAYOUT: u32 = 3;

/// Minimum size of a separate part, in bytes of JSON, for nodes and texts.
///
/// Sixteen hashes are a little longer, so that a level above parts is itself a part and a change rewrites little.
pub const PART_BYTES_MIN: usize = 1024;

/// Minimum nesting of a separate part, so that no part is nested deeper than the JSON reader allows.
pub const PART_LEVELS_MIN: u16 = 32;

/// Text to store under its hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPart {
    /// SHA-256 of the text.
    pub hash: Digest,
    /// The text.
    pub text: Arc<str>,
    /// Hashes of the parts it names, in order; each was emitted before.
    pub names: Vec<Digest>,
}

/// Returns the parts named by the text of a part or manifest, in order, as in [`SnapshotPart::names`]; `None` if it
/// does not have this layout. Does not check the text against its hash.
pub fn part_refs(text: &str) -> Option<Vec<Digest>> {
    crate::tree::names_of(text)
}

/// Reason why a stored snapshot cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A named part is not stored.
    #[error("its part {0} is missing")]
    Missing(Digest),
    /// A stored text does not match its hash.
    #[error("its part {0} was altered")]
    Altered(Digest),
    /// The snapshot has the layout of another version of this program.
    #[error("it has layout {0}, this version reads {LAYOUT}")]
    OtherLayout(u64),
    /// An earlier version wrote it without data that this version needs. The records have the data.
    #[error("it is from before snapshots kept {0}")]
    TooOld(&'static str),
    /// The hash is right, but the text is no snapshot of this board.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The storage reported an error.
    #[error("{0}")]
    Storage(String),
}

impl SnapshotError {
    /// Returns true if the snapshot is intact, as far as this version can judge, and usable by another version.
    pub const fn is_of_another_version(&self) -> bool {
        matches!(self, Self::OtherLayout(_) | Self::TooOld(_))
    }

    pub(crate) fn unreadable(what: impl Into<String>) -> Self {
        Self::Unreadable(what.into())
    }
}

/// Serialises maps with keys that are no texts as lists of pairs.
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

/// Serialises optional values as a list of zero or one, because `null` is a value.
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
