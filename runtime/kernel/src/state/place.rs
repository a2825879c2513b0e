//! Resolves a pointer in a document, and computes the size change of an insertion or removal there.
//!
//! Owns the parsing of array indices and the byte accounting. Changes nothing: see [`super::Candidate`].

use jsonptr::index::{Index, ParseIndexError};
use jsonptr::{Pointer, Token};

use crate::json;
use crate::rejection::{Code, Violation};
use crate::tree::Node;

/// A resolved pointer: an existing value, or a slot that a value can fill.
pub(super) struct Place<'v> {
    pub(super) value: Option<&'v Node>,
    pub(super) slot: Slot,
}

pub(super) enum Slot {
    /// The whole document, which has no container.
    Whole,
    /// `members` is the object's member count, including this one if it exists.
    Member { key_bytes: u64, members: usize },
    /// `index` is at most `length`, the append position.
    Element { index: usize, length: usize },
}

impl Place<'_> {
    /// Returns the document's size in bytes after a value of `added` bytes is put here, replacing or shifting the
    /// existing one.
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

    /// Returns the bytes that removing `value` from here frees: the value, its key and a comma.
    pub(super) fn bytes_with(&self, value: &Node) -> u64 {
        value.bytes()
            + match self.slot {
                Slot::Whole => 0,
                Slot::Member { key_bytes, members } => key_bytes + 1 + u64::from(members > 1),
                Slot::Element { length, .. } => u64::from(length > 1),
            }
    }
}

/// Failed resolution of a pointer.
pub(super) struct PlaceError {
    pub(super) code: Code,
    pub(super) message: String,
}

impl PlaceError {
    /// The slot is empty.
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

/// Resolves `pointer` in the document as it is, or as it would be without the value at `without`.
///
/// `without` must exist and not be the whole document.
pub(super) fn locate<'v>(
    root: &'v Node,
    pointer: &Pointer,
    without: Option<&Pointer>,
) -> Result<Place<'v>, PlaceError> {
    let mut place = Place { value: Some(root), slot: Slot::Whole };
    let mut rest = pointer;
    // Rest of `without` below the current place, while the two pointers agree.
    let mut gone = without;
    while let Some((token, below)) = rest.split_front() {
        let (above, _) = pointer.split_at_offset(pointer.len() - rest.len()).unwrap_or_default();
        let container = place.value.ok_or_else(|| PlaceError::absent(above, &place.slot))?;
        let gone_here = gone.and_then(Pointer::split_front);
        let hole = gone_here.as_ref().filter(|(_, below)| below.is_root()).map(|(token, _)| token);
        place = child(container, &token, hole).map_err(|miss| PlaceError {
            message: format!("at {:?}: {}", json::shortened(above.as_str()), miss.message),
            ..miss
        })?;
        // Behind a hole in an array the same index means another element, so the two pointers diverge.
        gone = gone_here.filter(|(front, below)| *front == token && !below.is_root()).map(|(_, below)| below);
        rest = below;
    }
    Ok(place)
}

/// Resolves `token` in a container, as if the child that `hole` names were removed.
fn child<'v>(container: &'v Node, token: &Token<'_>, hole: Option<&Token<'_>>) -> Result<Place<'v>, PlaceError> {
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
                Ok(index) => index.for_len_incl(length).map_err(|_| PlaceError::beyond(length))?,
                // The index exceeds a machine word.
                Err(ParseIndexError::InvalidInteger(_)) if !token.encoded().is_empty() => {
                    return Err(PlaceError::beyond(length));
                }
                Err(_) => {
                    let message = "an array has indices without leading zeros, and \"-\" for the place behind its end";
                    return Err(PlaceError { code: Code::PathNotFound, message: message.to_owned() });
                }
            };
            let value = if index < length { items.get(index + usize::from(index >= hole)) } else { None };
            Ok(Place { value, slot: Slot::Element { index, length } })
        }
        scalar => {
            let message = format!("the value is {} and contains nothing", scalar.kind());
            Err(PlaceError { code: Code::PathNotFound, message })
        }
    }
}
