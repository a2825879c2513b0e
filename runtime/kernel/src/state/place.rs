//! Where a pointer leads in a document, and what it takes to put something there or take it away.
//!
//! Owns the reading of array indices and the counting of bytes. Changes nothing: see [`super::Candidate`].

use jsonptr::index::{Index, ParseIndexError};
use jsonptr::{Pointer, Token};

use crate::json;
use crate::rejection::{Code, Violation};
use crate::tree::Node;

/// Where a pointer leads: to something, or to a gap that something can fill.
pub(super) struct Place<'v> {
    pub(super) value: Option<&'v Node>,
    pub(super) slot: Slot,
}

/// A place as its container sees it.
pub(super) enum Slot {
    /// The whole document, which has no container.
    Whole,
    /// `members` are those that the object has, this one included if it exists.
    Member { key_bytes: u64, members: usize },
    /// `index` is at most `length`, where an element would be appended.
    Element { index: usize, length: usize },
}

impl Place<'_> {
    /// Bytes of the document once a value of `added` bytes is put here, overwriting or moving aside what is there.
    pub(super) fn bytes_after(&self, document: u64, added: u64) -> u64 {
        match self.slot {
            Slot::Whole => added,
            Slot::Member { key_bytes, members } => match self.value {
                Some(old) => document - old.bytes() + added,
                None => document + key_bytes + 1 + added + u64::from(members > 0),
            },
            Slot::Element { length, .. } => document + added + u64::from(length > 0),
        }
    }

    /// Bytes that go with `value`, which is here, if it is taken out: its own, its key's and a comma's.
    pub(super) fn bytes_with(&self, value: &Node) -> u64 {
        value.bytes()
            + match self.slot {
                Slot::Whole => 0,
                Slot::Member { key_bytes, members } => key_bytes + 1 + u64::from(members > 1),
                Slot::Element { length, .. } => u64::from(length > 1),
            }
    }
}

/// Why a pointer leads nowhere.
pub(super) struct Miss {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Miss {
    /// Nothing is in this slot.
    pub(super) fn absent(path: &Pointer, slot: &Slot) -> Self {
        match slot {
            Slot::Whole | Slot::Member { .. } => {
                let (object, key) = path.split_back().unwrap_or_else(|| (path, Token::new("")));
                let (object, key) = (json::shortened(object.as_str()), key.decoded());
                let message = format!("the object at {object:?} has no member {:?}", json::shortened(&key));
                Self { code: Code::PathNotFound, message }
            }
            Slot::Element { length, .. } => Self::beyond(*length),
        }
    }

    fn beyond(length: usize) -> Self {
        Self { code: Code::IndexOutOfRange, message: format!("the array has {length} elements, counted from 0") }
    }

    pub(super) fn at(self, path: &Pointer) -> Violation {
        Violation::new(self.code, path.as_str(), self.message)
    }
}

/// Finds the place of `pointer` in the document as it is, or as it would be without what is at `without`.
///
/// `without` must exist and not be the whole document.
pub(super) fn locate<'v>(root: &'v Node, pointer: &Pointer, without: Option<&Pointer>) -> Result<Place<'v>, Miss> {
    let mut place = Place { value: Some(root), slot: Slot::Whole };
    let mut rest = pointer;
    // What is left of `without` below the place reached, as long as the two pointers agree.
    let mut gone = without;
    while let Some((token, below)) = rest.split_front() {
        let (above, _) = pointer.split_at_offset(pointer.len() - rest.len()).unwrap_or_default();
        let container = place.value.ok_or_else(|| Miss::absent(above, &place.slot))?;
        let gone_here = gone.and_then(Pointer::split_front);
        let hole = gone_here.as_ref().filter(|(_, below)| below.is_root()).map(|(token, _)| token);
        place = child(container, &token, hole).map_err(|miss| Miss {
            message: format!("at {:?}: {}", json::shortened(above.as_str()), miss.message),
            ..miss
        })?;
        // Behind a hole in an array the same index means another element, so there the two pointers part.
        gone = gone_here.filter(|(front, below)| *front == token && !below.is_root()).map(|(_, below)| below);
        rest = below;
    }
    Ok(place)
}

/// The place that `token` names in a container, as it is without the child that `hole` names.
fn child<'v>(container: &'v Node, token: &Token<'_>, hole: Option<&Token<'_>>) -> Result<Place<'v>, Miss> {
    match container {
        Node::Object(members) => {
            let key = token.decoded();
            let value = if hole == Some(token) { None } else { members.get(&key) };
            let slot =
                Slot::Member { key_bytes: json::text_size(&key), members: members.len() - usize::from(hole.is_some()) };
            Ok(Place { value, slot })
        }
        Node::Array(items) => {
            let hole = match hole.map(Token::to_index) {
                Some(Ok(Index::Num(index))) => index,
                _ => usize::MAX,
            };
            let length = items.len() - usize::from(hole < items.len());
            let index = match token.to_index() {
                Ok(index) => index.for_len_incl(length).map_err(|_| Miss::beyond(length))?,
                // Digits beyond what a machine word holds.
                Err(ParseIndexError::InvalidInteger(_)) if !token.encoded().is_empty() => {
                    return Err(Miss::beyond(length));
                }
                Err(_) => {
                    let message = "an array has indices without leading zeros, and \"-\" for the place behind its end";
                    return Err(Miss { code: Code::PathNotFound, message: message.to_owned() });
                }
            };
            let value = if index < length { items.get(index + usize::from(index >= hole)) } else { None };
            Ok(Place { value, slot: Slot::Element { index, length } })
        }
        scalar => {
            let message = format!("the value is {} and contains nothing", scalar.kind());
            Err(Miss { code: Code::PathNotFound, message })
        }
    }
}
