//! Document of a board, and the candidate that a patch makes of it.
//!
//! All access to the document goes through [`State`] and [`Candidate`]; their internals may change. Decides what an
//! operation does and if it can be applied (RFC 6902 section 4, SPEC section 3). Permissions are decided in
//! [`crate::contract`], validity of the result in [`crate::schema`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jsonptr::Pointer;
use serde_json::Value;

use crate::blueprint::GrantOp;
use crate::digest::{Digest, Hasher};
use crate::id::Version;
use crate::json;
use crate::patch::{Op, kind_of};
use crate::rejection::{Code, Violation, getters};
use crate::tree::{Edit, Node, Revision};

mod place;

use place::{Place, PlaceError, Slot, locate};

/// Largest value included in a violation, in bytes of compact JSON; a larger one is described by its kind.
pub const SHOWN_BYTES_MAX: u64 = 4096;

/// Committed document; cheap to clone, immutable.
#[derive(Clone)]
pub struct State {
    root: Node,
    revision: Revision,
    digest: Digest,
    hasher: Arc<Hasher>,
}

impl State {
    /// Creates the document of version 0 and computes its digest. Numbers must be normalised
    /// ([`crate::json::normalise`]).
    pub fn new(value: &Value, hasher: &Hasher) -> Self {
        let edit = Edit { revision: 0, hasher: Arc::new(hasher.clone()) };
        let root = Node::from_value(value, &edit);
        Self { digest: hasher.tree(&root), root, revision: 0, hasher: edit.hasher }
    }

    /// Restores the stored document of a version; `None` if the digest differs.
    pub(crate) fn restored(root: Node, at: Revision, digest: Digest, hasher: &Arc<Hasher>) -> Option<Self> {
        (hasher.tree(&root) == digest).then(|| Self { root, revision: at, digest, hasher: Arc::clone(hasher) })
    }

    getters! { self:
        /// Returns the whole document.
        pub root -> &Node = &self.root;
        /// Returns the digest of the whole document (SPEC section 2).
        pub digest -> Digest = self.digest;
        /// Returns the version as a revision stamp of the tree.
        pub revision -> Revision = self.revision;
    }

    /// Returns the value at a place.
    pub fn get(&self, pointer: &Pointer) -> Option<&Node> {
        self.root.get(pointer)
    }

    /// Returns the digest that another document would have on this board. Numbers must be normalised
    /// ([`crate::json::normalise`]).
    pub fn digest_of(&self, other: &Value) -> Digest {
        self.hasher.document(other)
    }

    /// Returns the number of commits.
    pub fn version(&self) -> Version {
        Version(self.revision.into())
    }

    /// Returns the length of the document as compact JSON, in bytes.
    pub fn bytes(&self) -> u64 {
        self.root.bytes()
    }

    /// Creates a copy on which a patch is tried. Costs a pointer; untouched values stay shared.
    pub fn candidate(&self) -> Candidate {
        // A board stops before the stamps overflow.
        let edit = Edit { revision: self.revision.saturating_add(1), hasher: Arc::clone(&self.hasher) };
        Candidate { root: self.root.clone(), edit }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        (self.revision, self.digest) == (other.revision, other.digest)
    }
}

impl fmt::Debug for State {
    /// Prints the digest instead of the document, which may be large or confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("version", &self.revision).field("digest", &self.digest).finish()
    }
}

/// Document to which a patch is applied tentatively; dropped if the patch is rejected.
pub struct Candidate {
    root: Node,
    edit: Edit,
}

/// Bounds of the resulting document.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    /// Maximum bytes of compact JSON.
    pub bytes: u64,
    /// Maximum nesting.
    pub depth: u32,
}

/// Values removed and added by an operation.
#[derive(Clone, Debug, Default)]
pub struct AppliedOp {
    /// Value removed at `path`, or at `from` of a `move`.
    pub removed: Option<Node>,
    /// Overwritten value; for a `move`, as it was after the removal.
    pub overwritten: Option<Node>,
    /// Value now at the target place.
    pub made: Option<Node>,
}

/// Effect of an operation on the document (SPEC section 3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpEffect<'a> {
    /// Kind of the effect, judged by the current value; `None` for `test`. `move` and `copy` report their effect at
    /// `path` (add, replace or insert); the operation itself shows that it is a move or a copy.
    pub kind: Option<GrantOp>,
    /// Place with `-` instead of an index that appends: `/claims/-`, also for `/claims/3` of three.
    pub granted_at: Cow<'a, Pointer>,
    /// Place after the operation: `/claims/3`, also for `/claims/-` of three.
    pub lands_at: Cow<'a, Pointer>,
}

impl<'a> OpEffect<'a> {
    const fn at(path: &'a Pointer, kind: Option<GrantOp>) -> Self {
        Self { kind, granted_at: Cow::Borrowed(path), lands_at: Cow::Borrowed(path) }
    }
}

impl Candidate {
    /// Returns the current document.
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the value at a place.
    pub fn get(&self, pointer: &Pointer) -> Option<&Node> {
        self.root.get(pointer)
    }

    /// Returns the length of the current document as compact JSON, in bytes.
    pub fn bytes(&self) -> u64 {
        self.root.bytes()
    }

    /// Returns the effect of the operation, even if it would fail: an impossible placement counts as an `add` at the
    /// path as written.
    ///
    /// A `move` is judged at `path` in the document after the removal of `from` (RFC 6902 section 4.4): moving the
    /// first of three elements to index 2 appends.
    pub fn effect<'a>(&self, op: &Op<'a>) -> OpEffect<'a> {
        match *op {
            Op::Test { path, .. } => OpEffect::at(path, None),
            Op::Remove { path } => OpEffect::at(path, Some(GrantOp::Remove)),
            Op::Replace { path, .. } => OpEffect::at(path, Some(GrantOp::Replace)),
            Op::Add { path, .. } | Op::Copy { path, .. } => self.write_effect(path, None),
            Op::Move { from, path } => {
                let can_leave = !from.is_root() && self.get(from).is_some();
                self.write_effect(path, can_leave.then_some(from))
            }
        }
    }

    /// Returns the effect of putting a value at `path` after the removal of `without`.
    fn write_effect<'a>(&self, path: &'a Pointer, without: Option<&Pointer>) -> OpEffect<'a> {
        let Ok(place) = locate(&self.root, path, without) else {
            return OpEffect::at(path, Some(GrantOp::Add));
        };
        match place.slot {
            Slot::Whole => OpEffect::at(path, Some(GrantOp::Replace)),
            Slot::Member { .. } if place.value.is_some() => OpEffect::at(path, Some(GrantOp::Replace)),
            Slot::Member { .. } => OpEffect::at(path, Some(GrantOp::Add)),
            Slot::Element { index, length } if index < length => OpEffect::at(path, Some(GrantOp::Insert)),
            Slot::Element { index, .. } => {
                let array = path.parent().unwrap_or_default();
                let (granted_at, lands_at) = (array.with_trailing_token("-"), array.with_trailing_token(index));
                OpEffect { kind: Some(GrantOp::Add), granted_at: granted_at.into(), lands_at: lands_at.into() }
            }
        }
    }

    /// Applies one operation, completely or not at all. `test` compares as defined in SPEC section 2. For values with
    /// canonical numbers, as [`crate::patch::parse`] and [`crate::json`] return them, this is equality.
    ///
    /// An operation that shrinks the document is accepted even if the result is still larger than the limit. Messages
    /// name kinds and lengths, but neither values nor keys beyond those in the operation; values are only in `found`.
    /// Fails with `path_not_found`, `test_failed`, `index_out_of_range` or `result_too_large` and the place, and leaves
    /// the candidate unchanged. Never panics, whatever the operation.
    pub fn apply(&mut self, op: &Op<'_>, limits: ResultLimits) -> Result<AppliedOp, Violation> {
        if let Op::Test { path, value } = op {
            return self.test(path, value, limits).map(|()| AppliedOp::default());
        }
        let arriving = self.check(op, limits)?;
        let taken = match op {
            Op::Move { from, .. } | Op::Remove { path: from } => Some(self.root.remove(from, &self.edit)),
            _ => None,
        };
        Ok(match arriving {
            Some(value) => AppliedOp { removed: taken, ..self.put(op, value) },
            None => AppliedOp { removed: taken, ..AppliedOp::default() },
        })
    }

    /// Replaces the value at a place, or inserts a new one.
    fn put(&mut self, op: &Op<'_>, value: Node) -> AppliedOp {
        let path = op.path();
        let there = match path.split_back() {
            None => Some(&self.root),
            Some((container, token)) => match self.get(container) {
                // Adding to an array inserts an element.
                Some(Node::Array(_)) if !matches!(op, Op::Replace { .. }) => None,
                container => container.and_then(|container| container.child(&token.decoded())),
            },
        };
        let over = there.cloned();
        let made = match &over {
            // Writing an equal value is no change (SPEC section 5).
            Some(there) if *there == value => there.clone(),
            Some(_) => {
                self.root.replace(path, value.clone(), &self.edit);
                value
            }
            None => {
                self.root.insert(path, value.clone(), &self.edit);
                value
            }
        };
        AppliedOp { removed: None, overwritten: over, made: Some(made) }
    }

    /// Checks that an operation other than `test` can be applied within the limits; returns the value for its path.
    ///
    /// Measures before any change, so that a patch that multiplies existing values is rejected early. The size of a
    /// written value is bounded by the patch.
    fn check(&self, op: &Op<'_>, limits: ResultLimits) -> Result<Option<Node>, Violation> {
        let before = self.bytes();
        let admitted = |path: &Pointer, node: Node, bytes: u64| {
            admit(path, node.depth().into(), bytes, before, limits)?;
            Ok(Some(node))
        };
        match *op {
            Op::Test { .. } => Ok(None),
            Op::Remove { path } => match self.existing(path)?.0.slot {
                Slot::Whole => {
                    let message = "the whole document cannot be removed";
                    Err(Violation::new(Code::PathNotFound, "", message))
                }
                Slot::Member { .. } | Slot::Element { .. } => Ok(None),
            },
            Op::Replace { path, value } => {
                let (_, there) = self.existing(path)?;
                let node = Node::from_value(value, &self.edit);
                let bytes = before - there.bytes() + node.bytes();
                admitted(path, node, bytes)
            }
            Op::Add { path, value } => {
                let place = self.writable_place(path, None)?;
                let node = Node::from_value(value, &self.edit);
                let bytes = place.bytes_after(before, node.bytes());
                admitted(path, node, bytes)
            }
            Op::Copy { from, path } => {
                let (_, value) = self.existing(from)?;
                let place = self.writable_place(path, None)?;
                admitted(path, value.clone(), place.bytes_after(before, value.bytes()))
            }
            Op::Move { from, path } => {
                let (source, value) = self.existing(from)?;
                if let Slot::Whole = source.slot {
                    let message = "the whole document cannot be moved";
                    return Err(Violation::new(Code::PathNotFound, "", message));
                }
                if path.starts_with(from) && path != from {
                    let message = "a value cannot be moved into itself: with it, this place would be gone";
                    return Err(Violation::new(Code::PathNotFound, path.as_str(), message));
                }
                let place = self.writable_place(path, Some(from))?;
                // A source inside the overwritten member disappears with it and must not be subtracted twice.
                let goes_with_target = matches!(place.slot, Slot::Member { .. }) && from.starts_with(path);
                let leaving = if goes_with_target && place.value.is_some() { 0 } else { source.bytes_with(value) };
                admitted(path, value.clone(), place.bytes_after(before - leaving, value.bytes()))
            }
        }
    }

    fn test(&self, path: &Pointer, expected: &Value, limits: ResultLimits) -> Result<(), Violation> {
        let depth_max = limits.depth as usize;
        let mut violation = match self.existing(path) {
            Ok((_, found)) if found == expected => return Ok(()),
            Ok((_, found)) => {
                let (is, should) = (found.kind(), kind_of(expected));
                let message = if is == should {
                    format!("the value is {is} other than the expected one")
                } else {
                    format!("the value is {is}, {should} was expected")
                };
                let is_shown = usize::from(found.depth()) <= depth_max && found.bytes() <= SHOWN_BYTES_MAX;
                let shown = is_shown.then(|| found.to_value());
                Violation::new(Code::TestFailed, path.as_str(), message).with_found(shown)
            }
            Err(violation) => violation,
        };
        let is_shown = json::depth(expected) <= depth_max && json::size(expected) <= SHOWN_BYTES_MAX;
        violation.expected = is_shown.then(|| expected.clone());
        Err(violation)
    }

    fn existing(&self, path: &Pointer) -> Result<(Place<'_>, &Node), Violation> {
        let place = locate(&self.root, path, None).map_err(|miss| miss.at(path))?;
        match place.value {
            Some(value) => Ok((place, value)),
            None => Err(PlaceError::absent(path, &place.slot).at(path)),
        }
    }

    /// Returns a place where a value can be put after the removal of `without`.
    fn writable_place(&self, path: &Pointer, without: Option<&Pointer>) -> Result<Place<'_>, Violation> {
        locate(&self.root, path, without).map_err(|miss| miss.at(path))
    }

    /// Turns the candidate into a state.
    pub fn into_state(self) -> State {
        let Edit { revision: at, hasher } = self.edit;
        State { digest: hasher.tree(&self.root), root: self.root, revision: at, hasher }
    }
}

/// Checks if a value with nesting `value_depth` may be put at `path`. `bytes` and `before` are the sizes of the whole
/// document with and without it.
fn admit(path: &Pointer, value_depth: usize, bytes: u64, before: u64, limits: ResultLimits) -> Result<(), Violation> {
    let too_large = |message| Err(Violation::new(Code::ResultTooLarge, path.as_str(), message));
    if bytes > limits.bytes && bytes > before {
        return too_large(format!("the document would have {bytes} bytes, at most {} are allowed", limits.bytes));
    }
    let depth = path.count() + value_depth;
    if depth > limits.depth as usize {
        return too_large(format!("the document would be nested {depth} deep, at most {} is allowed", limits.depth));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
