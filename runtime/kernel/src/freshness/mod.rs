//! Checks that the state a proposal depends on is unchanged since its author read it (SPEC section 5).
//!
//! A worker's view is taken of one version; the places it showed are the worker's read set. A proposal is rejected if a
//! place that it writes has changed since (`target`), also if a place that it read has (`reads`), or the membership of
//! a collection that it saw (`members`). Every place of the state records its last change, so a check costs as much as
//! the changes, not the state.
//!
//! `changes` finds the changes at a place; `targets` finds the places of the committed state that a patch writes.
//! `reservation` blocks others from the places that a rejected worker is about to write again.

mod changes;
mod reservation;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use crate::blueprint::Freshness;
use crate::contract::{Contract, Readable};
use crate::digest::{Hasher, Salt};
use crate::expr::Allowance;
use crate::id::{InvocationId, Seq, Version, WorkerName};
use crate::mutants::{self, Mutant};
use crate::rejection::{Code, ConflictingChange, VIOLATIONS_MAX, Violation};
use crate::state::{SHOWN_BYTES_MAX, State};
use crate::targets::{Target, TargetAction};
use crate::tree::{Node, Revision};

use changes::{Change, ChangeKind, Depth};
pub(crate) use reservation::{DECISIONS_MAX, LASTS_MS};
pub use reservation::{Reservation, Reservations};

/// Maximum bytes of values and differences in the violations of one rejection; later ones only name the place.
const PAYLOAD_BYTES_MAX: u64 = 16 * 1024;

/// Maximum characters by which a difference is extended to a word boundary.
const WORD_MAX: usize = 24;

/// The read set of a view, with the state it was taken of.
#[derive(Clone, PartialEq, Debug)]
pub struct ReadSet {
    /// The state, at the version of the view.
    pub state: State,
    /// Places shown with their whole values; none lies below another.
    pub reads: Vec<PointerBuf>,
    /// Collections shown with their membership, but not with all values.
    pub members: Vec<PointerBuf>,
}

impl ReadSet {
    /// Returns true if a value exists that its author could have read but was not shown in full. Such a value may not
    /// be overwritten or removed (SPEC section 5). `readable` refers to this state.
    pub(crate) fn is_unseen(&self, place: &Pointer, readable: &Readable<'_>) -> bool {
        let was_shown = self.reads.iter().any(|read| place.starts_with(read));
        !was_shown && self.state.get(place).is_some() && readable.may_read(place)
    }

    /// Returns an empty basis of an empty document.
    pub(crate) fn empty() -> Arc<Self> {
        let state = State::new(&Value::Null, &Hasher::new(&Salt::ZERO));
        Arc::new(Self { state, reads: Vec::new(), members: Vec::new() })
    }
}

/// Lookup of the commit that made a version.
pub trait CommitLookup {
    /// Returns the record of the commit that made the version, and its author.
    fn commit_of(&self, version: Version) -> Option<(Seq, WorkerName)>;
}

/// Origin of a proposal, and the concurrent activity on the board.
pub struct ProposalContext<'a> {
    /// The version it was written against.
    pub base: Version,
    /// The author's read set; `None` for an unsolicited proposal.
    pub basis: Option<&'a ReadSet>,
    /// Invocation that it answers.
    pub invocation: Option<InvocationId>,
    /// Number of view expansions that remain for its author.
    pub expansions_left: u32,
    /// Places reserved for other invocations.
    pub reservations: &'a Reservations,
    /// Lookup of the commit that made a version.
    pub commits: &'a dyn CommitLookup,
}

/// A proposal, and the state it is judged against.
pub(crate) struct Inputs<'a> {
    /// Freshness mode: the blueprint's, or a stricter one.
    pub(crate) mode: Freshness,
    /// Rejects overwriting values that the author could have read but was not shown.
    pub(crate) wants_seen: bool,
    pub(crate) contract: &'a Contract,
    pub(crate) state: &'a State,
    pub(crate) context: &'a ProposalContext<'a>,
}

/// Freshness violations of a proposal.
#[derive(Default)]
pub struct Conflict {
    /// Violations to report to the author; empty if there is no conflict.
    pub violations: Vec<Violation>,
    /// Places to reserve for the retry: its targets, and the changed places. Empty if only reservations of others
    /// conflicted.
    pub contested: Vec<PointerBuf>,
}

/// Checks a patch's targets and its author's read set. Conditions of read grants are evaluated within `allowance`.
pub(crate) fn judge(inputs: &Inputs<'_>, targets: &[Target], allowance: &mut Allowance) -> Conflict {
    let mut conflict = Conflict::default();
    if targets.iter().all(|target| target.action == TargetAction::Copies) {
        // A patch that writes nothing depends on nothing.
        return conflict;
    }
    let basis = inputs.context.basis;
    let was_readable = basis.map(|basis| inputs.contract.readable_within(basis.state.root(), allowance));
    let mut report = ConflictBuilder { inputs, was_readable, left: PAYLOAD_BYTES_MAX, conflict: &mut conflict };
    for target in targets {
        report.check_reserved(target);
    }
    if inputs.mode != Freshness::None && !mutants::is_active(Mutant::IgnoreTargets) {
        for target in targets {
            report.check_target(target);
        }
    }
    if let (Freshness::Reads | Freshness::Members, Some(basis)) = (inputs.mode, inputs.context.basis)
        && !mutants::is_active(Mutant::IgnoreReadSet)
    {
        report.check_reads(basis);
    }
    if !conflict.contested.is_empty() {
        let keeps = !mutants::is_active(Mutant::NarrowReservation);
        let written = targets.iter().filter(|target| keeps && target.action != TargetAction::Copies);
        conflict.contested.extend(written.map(|target| target.place.clone()));
        conflict.contested.sort_unstable();
        conflict.contested.dedup();
        conflict.contested.truncate(reservation::PLACES_MAX);
    }
    conflict
}

/// A rejection under construction.
struct ConflictBuilder<'a> {
    inputs: &'a Inputs<'a>,
    /// Places that the author could read in the state of its view.
    was_readable: Option<Readable<'a>>,
    /// Remaining payload bytes.
    left: u64,
    conflict: &'a mut Conflict,
}

impl ConflictBuilder<'_> {
    fn root(&self) -> &Node {
        self.inputs.state.root()
    }

    fn base(&self) -> Revision {
        Revision::try_from(self.inputs.context.base.0).unwrap_or(Revision::MAX)
    }

    fn is_full(&self) -> bool {
        self.conflict.violations.len() >= VIOLATIONS_MAX
    }

    fn check_reserved(&mut self, target: &Target) {
        let holder = self.inputs.context.reservations.holder_of(target, self.inputs.context.invocation);
        if let Some((holder, place)) = holder.filter(|_| !self.is_full() && target.action != TargetAction::Copies) {
            let message = format!("this place is kept for {holder} for a moment; what you read may change by then");
            let violation = Violation::new(Code::Reserved, place.as_str(), message).with_op(target.op);
            self.conflict.violations.push(violation);
        }
    }

    fn check_target(&mut self, target: &Target) {
        let (place, base, action) = (&*target.place, self.base(), target.action);
        let was_there = |place: &Pointer| Some(self.inputs.context.basis?.state.get(place).is_some());
        // The place that must exist for the operation to apply: the target, or the container of a new value.
        let needed = if action.needs_value() { Some(place) } else { place.parent() };
        if needed.is_some_and(|needed| was_there(needed) == Some(false) && self.inputs.state.get(needed).is_none()) {
            // No concurrent change caused this: it could never have been applied, and the next stage reports why.
            return;
        }
        let changes = match changes::on_path(self.root(), place, base, &was_there, action.needs_value()) {
            Some(change) => vec![change],
            None => match action {
                // Values added inside meanwhile would be lost as well.
                TargetAction::Overwrites | TargetAction::Removes | TargetAction::Copies => {
                    changes::at_and_below(self.root(), place, base, Depth::Everything, VIOLATIONS_MAX)
                }
                // The index is so far beyond the end that there was never an element before it.
                TargetAction::Creates if !self.could_be_appended(place) => Vec::new(),
                TargetAction::Creates | TargetAction::Inserts => {
                    changes::of_place(self.root(), place, base, &was_there).into_iter().collect()
                }
                // Concurrent appends do not conflict with each other. But an index that had an element names that
                // element, not the end of the array.
                TargetAction::Appends => {
                    let meant =
                        target.lands_at.as_deref().filter(|made| target.names_index && was_there(made) == Some(true));
                    meant.and_then(|made| changes::of_place(self.root(), made, base, &was_there)).into_iter().collect()
                }
            },
        };
        if changes.is_empty() && self.inputs.wants_seen {
            self.check_seen(target);
        }
        let code = if action == TargetAction::Copies { Code::StaleRead } else { Code::StaleTarget };
        for change in changes {
            self.stale(code, change, Some(target.op));
        }
    }

    /// Returns true if an element preceded this place in the author's view. Also true of any place that is no array
    /// index.
    fn could_be_appended(&self, place: &Pointer) -> bool {
        let (Some(basis), Some((above, token))) = (self.inputs.context.basis, place.split_back()) else { return true };
        if basis.state.get(above).is_some_and(|node| node.as_object().is_some()) {
            return true;
        }
        let Ok(index) = token.decoded().parse::<usize>() else { return true };
        let last = index.checked_sub(1).map(|last| above.with_trailing_token(last));
        last.is_none_or(|last| basis.state.get(&last).is_some())
    }

    /// Requires that an overwritten or removed value was shown to an author that could read it.
    fn check_seen(&mut self, target: &Target) {
        let overwrites = matches!(target.action, TargetAction::Overwrites | TargetAction::Removes);
        let Some(basis) = self.inputs.context.basis.filter(|_| overwrites) else { return };
        let Some(was_readable) = &self.was_readable else { return };
        let place = &*target.place;
        let mut known = self.conflict.violations.iter();
        let is_known = known.any(|known| known.code == Code::UnseenTarget && known.pointer == place.as_str());
        if !is_known && !self.is_full() && basis.is_unseen(place, was_readable) {
            let message = "you were not shown the whole of it, so you cannot write over it; change only what you see";
            let violation = Violation::new(Code::UnseenTarget, place.as_str(), message).with_op(target.op);
            let violation = violation.with_found(self.payload(place));
            self.conflict.violations.push(violation);
            self.conflict.contested.push(target.place.clone());
        }
    }

    fn check_reads(&mut self, basis: &ReadSet) {
        let base = self.base();
        let was_there = |_: &Pointer| Some(true);
        let with_members = self.inputs.mode == Freshness::Members;
        let depth = if with_members { Depth::Everything } else { Depth::Values };
        for read in &basis.reads {
            if self.is_full() {
                return;
            }
            let changes = match changes::on_path(self.root(), read, base, &was_there, true) {
                Some(change) => vec![change],
                None => changes::at_and_below(self.root(), read, base, depth, VIOLATIONS_MAX),
            };
            changes.into_iter().for_each(|change| self.stale(Code::StaleRead, change, None));
        }
        for collection in basis.members.iter().filter(|_| with_members) {
            if self.is_full() {
                return;
            }
            let change = changes::on_path(self.root(), collection, base, &was_there, true)
                .or_else(|| changes::of_members(self.root(), collection, base));
            if let Some(change) = change {
                self.stale(Code::StaleRead, change, None);
            }
        }
    }

    fn stale(&mut self, code: Code, change: Change, op: Option<usize>) {
        let Change { place, at, kind: what } = change;
        let is_known = |violation: &Violation| violation.stale.is_some() && violation.pointer == place.as_str();
        if self.is_full() || self.conflict.violations.iter().any(is_known) {
            return;
        }
        let now = Version(at.into());
        let by = self.inputs.context.commits.commit_of(now);
        let message = match what {
            ChangeKind::Value => "it was changed after you had read it",
            ChangeKind::Removed => "it was taken away after you had read it",
            ChangeKind::New => "something was put there after you had looked",
            ChangeKind::Shifted => {
                "elements came or went before it after you had read it, so it is at another index now"
            }
            ChangeKind::Parts => "parts of it were taken away or shifted after you had read it",
            ChangeKind::Members => "members came or went after you had read it",
        };
        let mut violation = Violation::new(code, place.as_str(), message);
        violation.op = op;
        violation.found = self.payload(&place);
        violation.diff = self.difference(&place);
        violation.stale =
            by.map(|(seq, changed_by)| ConflictingChange { read_at: self.inputs.context.base, now, changed_by, seq });
        self.conflict.violations.push(violation);
        self.conflict.contested.push(place);
    }

    /// Returns the value at a place, if it fits the remaining payload.
    fn payload(&mut self, place: &Pointer) -> Option<Value> {
        let node = self.inputs.state.get(place)?;
        let bytes = node.bytes();
        if bytes > SHOWN_BYTES_MAX {
            return None;
        }
        self.left = self.left.checked_sub(bytes)?;
        Some(node.to_value())
    }

    /// Returns the difference between the value read and the current one: for texts the removed and added parts,
    /// otherwise the old value.
    fn difference(&mut self, place: &Pointer) -> Option<Value> {
        let was = self.inputs.context.basis?.state.get(place)?;
        let difference = match (was.as_str(), self.inputs.state.get(place).and_then(Node::as_str)) {
            (Some(was), Some(now)) => text_difference(was, now),
            _ if was.bytes() <= SHOWN_BYTES_MAX => json!({ "was": was }),
            _ => return None,
        };
        let bytes = crate::json::size(&difference);
        if bytes > SHOWN_BYTES_MAX {
            return None;
        }
        self.left = self.left.checked_sub(bytes)?;
        Some(difference)
    }
}

/// Returns the differing part of two texts, in whole words: its position in characters, and both versions.
fn text_difference(was: &str, now: &str) -> Value {
    let head = shared(was.chars().zip(now.chars()));
    let (was_rest, now_rest) = (&was[head..], &now[head..]);
    let tail = shared(was_rest.chars().rev().zip(now_rest.chars().rev()));
    // Whole words are clearer: "jumps" became "leaps", not "jum" became "lea".
    let parts = [&was_rest[..was_rest.len() - tail], &now_rest[..now_rest.len() - tail]];
    let in_word = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace());
    let begins_in_word = parts.iter().any(|part| in_word(part.chars().next()));
    let ends_in_word = parts.iter().any(|part| in_word(part.chars().next_back()));
    let before = if begins_in_word { rest_of_word(was[..head].chars().rev()) } else { 0 };
    let behind = if ends_in_word { rest_of_word(was[was.len() - tail..].chars()) } else { 0 };
    let (head, tail) = (head - before, tail - behind);
    let (removed, added) = (&was[head..was.len() - tail], &now[head..now.len() - tail]);
    json!({"at": was[..head].chars().count(), "removed": removed, "added": added})
}

/// Returns the bytes of the characters with which both texts begin.
fn shared(pairs: impl Iterator<Item = (char, char)>) -> usize {
    pairs.take_while(|(was, now)| was == now).map(|(c, _)| c.len_utf8()).sum()
}

/// Returns the bytes up to the end of the word, at most [`WORD_MAX`] characters.
fn rest_of_word(text: impl Iterator<Item = char>) -> usize {
    text.take_while(|c| !c.is_whitespace()).take(WORD_MAX).map(char::len_utf8).sum()
}
