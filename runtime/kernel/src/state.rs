//! The document of a board, and the candidate a patch makes of it.
//!
//! All access to the document goes through [`State`] and [`Candidate`]; what is inside them may change. Owns what an
//! operation does and whether it can be done (RFC 6902 section 4, SPEC section 3). Does not know who may do it
//! ([`crate::contract`]) or whether the result is right ([`crate::schema`]).

use std::fmt;
use std::sync::Arc;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::blueprint::GrantOp;
use crate::digest::{Digest, Hasher};
use crate::json;
use crate::patch::{Op, kind_of};
use crate::rejection::{Code, Violation};

mod place;

use place::{Miss, Place, Slot, locate};

/// The largest value that a violation shows, in bytes of compact JSON; of a larger one it names the kind.
pub const SHOWN_BYTES_MAX: u64 = 4096;

/// A committed document; cheap to clone, never changed.
#[derive(Clone)]
pub struct State {
    root: Arc<Value>,
    digest: Digest,
    bytes: u64,
}

impl State {
    /// A document and its digest. Numbers must be normalised ([`crate::json::normalise`]).
    pub fn new(value: Value, hasher: &Hasher) -> Self {
        let digest = hasher.document(&value);
        let bytes = json::size(&value);
        Self { root: Arc::new(value), digest, bytes }
    }

    /// The whole document.
    pub fn root(&self) -> &Value {
        &self.root
    }

    /// What is at a place.
    pub fn get(&self, pointer: &Pointer) -> Option<&Value> {
        pointer.resolve(&*self.root).ok()
    }

    /// The digest of the whole document (SPEC section 2).
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Length of the document as compact JSON, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A copy to try a patch on.
    pub fn candidate(&self) -> Candidate {
        Candidate { base: self.clone(), root: Arc::clone(&self.root), bytes: self.bytes }
    }
}

impl fmt::Debug for State {
    /// The digest stands for the document, which may be large and is nobody's to print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("digest", &self.digest).field("bytes", &self.bytes).finish()
    }
}

/// A document that a patch is being tried on; dropped if the patch is refused.
pub struct Candidate {
    base: State,
    /// Shared with `base` until the first change, so that a patch refused before it costs no copy.
    root: Arc<Value>,
    /// Kept along, so that the bound on the result needs no walk over the document.
    bytes: u64,
}

/// Bounds of what a patch may make of a document.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    /// Bytes of compact JSON.
    pub bytes: u64,
    /// Nesting.
    pub depth: u32,
}

/// What an operation would do to the document it meets (SPEC section 3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The kind, judged by what is there; `None` for `test`. `move` and `copy` report what they do at `path`
    /// (add, replace or insert); that they are a move or a copy is known from the operation.
    pub kind: Option<GrantOp>,
    /// The place with `-` in place of an index that appends: `/claims/-`, also for `/claims/3` of three.
    pub granted_at: PointerBuf,
    /// The place after the operation: `/claims/3`, also for `/claims/-` of three.
    pub lands_at: PointerBuf,
}

impl Effect {
    fn at(path: &Pointer, kind: Option<GrantOp>) -> Self {
        Self { kind, granted_at: path.to_owned(), lands_at: path.to_owned() }
    }
}

impl Candidate {
    /// The whole document as it stands.
    pub fn root(&self) -> &Value {
        &self.root
    }

    /// What is at a place.
    pub fn get(&self, pointer: &Pointer) -> Option<&Value> {
        pointer.resolve(&*self.root).ok()
    }

    /// Length of the document as it stands, as compact JSON, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the operation would do here, even where it would fail: what cannot be placed counts as an `add` at the
    /// path as it was written.
    ///
    /// A `move` is judged at `path` as the document is after `from` is taken out (RFC 6902 section 4.4): moving the
    /// first of three elements to index 2 appends.
    pub fn effect(&self, op: &Op) -> Effect {
        match op {
            Op::Test(op) => Effect::at(&op.path, None),
            Op::Remove(op) => Effect::at(&op.path, Some(GrantOp::Remove)),
            Op::Replace(op) => Effect::at(&op.path, Some(GrantOp::Replace)),
            Op::Add(op) => self.arrival(&op.path, None),
            Op::Copy(op) => self.arrival(&op.path, None),
            Op::Move(op) => {
                let can_leave = !op.from.is_root() && self.get(&op.from).is_some();
                self.arrival(&op.path, can_leave.then_some(&*op.from))
            }
        }
    }

    /// What a value does that is put at `path` once `without` is gone.
    fn arrival(&self, path: &Pointer, without: Option<&Pointer>) -> Effect {
        let Ok(place) = locate(&self.root, path, without) else {
            return Effect::at(path, Some(GrantOp::Add));
        };
        match place.slot {
            Slot::Whole => Effect::at(path, Some(GrantOp::Replace)),
            Slot::Member { .. } if place.value.is_some() => Effect::at(path, Some(GrantOp::Replace)),
            Slot::Member { .. } => Effect::at(path, Some(GrantOp::Add)),
            Slot::Element { index, length } => {
                let array = path.parent().unwrap_or_default();
                let lands_at = array.with_trailing_token(index);
                if index < length {
                    Effect { kind: Some(GrantOp::Insert), granted_at: lands_at.clone(), lands_at }
                } else {
                    Effect { kind: Some(GrantOp::Add), granted_at: array.with_trailing_token("-"), lands_at }
                }
            }
        }
    }

    /// Applies one operation, wholly or not at all. `test` compares as SPEC section 2 has it, which for values whose
    /// numbers are in their one form, as [`crate::patch::parse`] and [`crate::json`] leave them, is equality.
    ///
    /// An operation that shrinks the document is let through even if the result is still larger than the limit.
    /// Messages name kinds and lengths, never values or keys beyond those the operation itself names; values are only
    /// in `found`.
    ///
    /// # Errors
    /// `path_not_found`, `test_failed`, `index_out_of_range` or `result_too_large`, pointing at the place. The candidate
    /// is then as it was. Never panics, whatever the operation.
    pub fn apply(&mut self, op: &Op, limits: ResultLimits) -> Result<(), Violation> {
        if let Op::Test(op) = op {
            return self.test(&op.path, &op.value, limits);
        }
        let bytes = self.check(op, limits)?;
        // The crate may lose data when a `move` fails half-way, so nothing that could fail is left to it.
        json_patch::patch_unsafe(Arc::make_mut(&mut self.root), std::slice::from_ref(op))
            .expect("every place the operation needs has been found, by the same rules");
        self.bytes = bytes;
        Ok(())
    }

    /// Whether an operation other than `test` can be applied within the limits, and how large the document is then.
    ///
    /// Copies nothing, so that a patch which multiplies what is there costs nothing before it is refused.
    fn check(&self, op: &Op, limits: ResultLimits) -> Result<u64, Violation> {
        let incoming = match op {
            Op::Test(_) => return Ok(self.bytes),
            Op::Remove(op) => {
                let (place, value) = self.existing(&op.path)?;
                let Slot::Whole = place.slot else {
                    return Ok(self.bytes - place.bytes_with(value));
                };
                let message = "the whole document cannot be removed";
                return Err(Violation::new(Code::PathNotFound, "", message));
            }
            Op::Replace(op) => {
                let (_, value) = self.existing(&op.path)?;
                let added = json::size(&op.value);
                Incoming { value: &op.value, path: &op.path, bytes: self.bytes - json::size(value) + added }
            }
            Op::Add(op) => {
                let place = self.vacancy(&op.path, None)?;
                Incoming { value: &op.value, path: &op.path, bytes: place.bytes_after(self.bytes, &op.value) }
            }
            Op::Copy(op) => {
                let (_, value) = self.existing(&op.from)?;
                let place = self.vacancy(&op.path, None)?;
                Incoming { value, path: &op.path, bytes: place.bytes_after(self.bytes, value) }
            }
            Op::Move(op) => {
                let (source, value) = self.existing(&op.from)?;
                if let Slot::Whole = source.slot {
                    let message = "the whole document cannot be moved";
                    return Err(Violation::new(Code::PathNotFound, "", message));
                }
                if op.path.starts_with(&op.from) && op.path != op.from {
                    let message = "a value cannot be moved into itself: with it, this place would be gone";
                    return Err(Violation::new(Code::PathNotFound, op.path.as_str(), message));
                }
                let place = self.vacancy(&op.path, Some(&op.from))?;
                // Put over a member that contains it, it goes with that member and is not to be counted twice.
                let goes_with_target = matches!(place.slot, Slot::Member { .. }) && op.from.starts_with(&op.path);
                let leaving = if goes_with_target && place.value.is_some() { 0 } else { source.bytes_with(value) };
                let remaining = self.bytes - leaving;
                Incoming { value, path: &op.path, bytes: place.bytes_after(remaining, value) }
            }
        };
        incoming.admit(self.bytes, limits)
    }

    fn test(&self, path: &Pointer, expected: &Value, limits: ResultLimits) -> Result<(), Violation> {
        let depth_max = limits.depth as usize;
        let shown = |value: &Value| (json::depth(value) <= depth_max && is_shown(value)).then(|| value.clone());
        let mut violation = match self.existing(path) {
            Ok((_, found)) if found == expected => return Ok(()),
            Ok((_, found)) => {
                let (is, should) = (kind_of(found), kind_of(expected));
                let message = if is == should {
                    format!("the value is {is} other than the expected one")
                } else {
                    format!("the value is {is}, {should} was expected")
                };
                let mut violation = Violation::new(Code::TestFailed, path.as_str(), message);
                violation.found = shown(found);
                violation
            }
            Err(violation) => violation,
        };
        violation.expected = shown(expected);
        Err(violation)
    }

    /// A place where something is.
    fn existing(&self, path: &Pointer) -> Result<(Place<'_>, &Value), Violation> {
        let place = locate(&self.root, path, None).map_err(|miss| miss.at(path))?;
        match place.value {
            Some(value) => Ok((place, value)),
            None => Err(Miss::absent(path, &place.slot).at(path)),
        }
    }

    /// A place where something can be put once `without` is gone.
    fn vacancy(&self, path: &Pointer, without: Option<&Pointer>) -> Result<Place<'_>, Violation> {
        locate(&self.root, path, without).map_err(|miss| miss.at(path))
    }

    /// Ends the trial and makes it the state. `hasher` must be the board's, as it was for the state before.
    pub fn into_state(self, hasher: &Hasher) -> State {
        if Arc::ptr_eq(&self.base.root, &self.root) {
            return self.base;
        }
        State { digest: hasher.document(&self.root), root: self.root, bytes: self.bytes }
    }
}

fn is_shown(value: &Value) -> bool {
    json::size(value) <= SHOWN_BYTES_MAX
}

/// A value about to be put somewhere.
struct Incoming<'v> {
    value: &'v Value,
    path: &'v Pointer,
    /// Of the whole document with it.
    bytes: u64,
}

impl Incoming<'_> {
    fn admit(&self, bytes_before: u64, limits: ResultLimits) -> Result<u64, Violation> {
        let too_large = |message| Err(Violation::new(Code::ResultTooLarge, self.path.as_str(), message));
        if self.bytes > limits.bytes && self.bytes > bytes_before {
            return too_large(format!(
                "the document would have {} bytes, at most {} are allowed",
                self.bytes, limits.bytes
            ));
        }
        let depth = self.path.count() + json::depth(self.value);
        if depth > limits.depth as usize {
            return too_large(format!(
                "the document would be nested {depth} deep, at most {} is allowed",
                limits.depth
            ));
        }
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests;
