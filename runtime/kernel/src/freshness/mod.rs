//! Whether what a proposal depends on is still as its author saw it (SPEC section 5).
//!
//! A worker's view is taken of one version; what it showed is the worker's read set. A proposal is refused if, since
//! then, something that it writes has changed (`target`), or anything it has read (`reads`), or which members there are
//! in a collection it saw (`members`). Every place of the state knows when it last changed, so the question costs what
//! has changed, not what there is.
//!
//! `changes` finds what changed at a place; `targets` finds which places of the committed state a patch writes;
//! `reservation` keeps others from places that a refused worker is about to write again.

mod changes;
mod reservation;
mod targets;
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
use crate::planted::{self, Bug};
use crate::rejection::{Code, Stale, VIOLATIONS_MAX, Violation};
use crate::state::{SHOWN_BYTES_MAX, State};
use crate::tree::{At, Node};

use changes::{Change, Depth, What};
pub(crate) use reservation::{DECISIONS_MAX, LASTS_MS};
pub use reservation::{Reservation, Reservations};
pub(crate) use targets::{Action, Target, Targets, index_in};

/// Bytes of values and differences that the violations of one rejection hold at most; what comes after is named only.
const PAYLOAD_BYTES_MAX: u64 = 16 * 1024;

/// Characters that are taken for the rest of a word.
const WORD_MAX: usize = 24;

/// What a view was made of: the state it was taken of, and what of it was shown.
#[derive(Clone, PartialEq, Debug)]
pub struct Basis {
    /// The state, at the version of the view.
    pub state: State,
    /// Places whose whole values were shown; none lies below another.
    pub reads: Vec<PointerBuf>,
    /// Collections of which it was shown what members they have, but not the whole of them.
    pub members: Vec<PointerBuf>,
}

impl Basis {
    /// Whether something was there that its author could have been shown, but was not shown the whole of: that may not
    /// be written over or taken away (SPEC section 5). `readable`: of this state.
    pub(crate) fn is_unseen(&self, place: &Pointer, readable: &Readable<'_>) -> bool {
        let was_shown = self.reads.iter().any(|read| place.starts_with(read));
        !was_shown && self.state.get(place).is_some() && readable.may_read(place)
    }

    /// Nothing, of an empty document.
    pub(crate) fn nothing() -> Arc<Self> {
        let state = State::new(&Value::Null, &Hasher::new(&Salt::ZERO));
        Arc::new(Self { state, reads: Vec::new(), members: Vec::new() })
    }
}

/// Who made which version.
pub trait Commits {
    /// The record of the commit that made the version, and its author.
    fn by(&self, version: Version) -> Option<(Seq, WorkerName)>;
}

/// Where a proposal comes from, and what else is going on.
pub struct Context<'a> {
    /// The version it was written against.
    pub base: Version,
    /// What its author was shown; none for a proposal that nobody was asked for.
    pub basis: Option<&'a Basis>,
    /// The invocation it answers.
    pub invocation: Option<InvocationId>,
    /// How often it may still ask to be shown more.
    pub expansions_left: u32,
    /// Places kept for others.
    pub reservations: &'a Reservations,
    /// Who made which version.
    pub commits: &'a dyn Commits,
}

/// A proposal and what it is judged against.
pub(crate) struct Inputs<'a> {
    /// What is checked: what the blueprint wants, or more.
    pub(crate) mode: Freshness,
    /// Whether what its author could have seen, and was not shown, may not be written over.
    pub(crate) wants_seen: bool,
    /// The author's contract.
    pub(crate) contract: &'a Contract,
    /// The committed state.
    pub(crate) state: &'a State,
    /// Where it comes from.
    pub(crate) context: &'a Context<'a>,
}

/// What is wrong with the freshness of a proposal.
#[derive(Default)]
pub struct Conflict {
    /// What to tell its author; empty if nothing is wrong.
    pub violations: Vec<Violation>,
    /// Its targets, and what had changed under it: what must stay as it is for the next try to succeed. Empty if only
    /// others' reservations stood in its way.
    pub contested: Vec<PointerBuf>,
}

/// Judges what a patch writes, and what its author has read; the conditions of its reads within this allowance.
pub(crate) fn judge(inputs: &Inputs<'_>, targets: &[Target], allowance: &mut Allowance) -> Conflict {
    let mut conflict = Conflict::default();
    if targets.iter().all(|target| target.action == Action::Copies) {
        // What writes nothing depends on nothing.
        return conflict;
    }
    let basis = inputs.context.basis;
    let was_readable = basis.map(|basis| inputs.contract.readable_within(basis.state.root(), allowance));
    let mut report = Report { inputs, was_readable, left: PAYLOAD_BYTES_MAX, conflict: &mut conflict };
    for target in targets {
        report.check_reserved(target);
    }
    if inputs.mode != Freshness::None && !planted::is(Bug::TargetsForgotten) {
        for target in targets {
            report.check_target(target);
        }
    }
    if let (Freshness::Reads | Freshness::Members, Some(basis)) = (inputs.mode, inputs.context.basis)
        && !planted::is(Bug::ReadsForgotten)
    {
        report.check_reads(basis);
    }
    if !conflict.contested.is_empty() {
        let keeps = !planted::is(Bug::NarrowReservation);
        let written = targets.iter().filter(|target| keeps && target.action != Action::Copies);
        conflict.contested.extend(written.map(|target| target.place.clone()));
        conflict.contested.sort_unstable();
        conflict.contested.dedup();
        conflict.contested.truncate(reservation::PLACES_MAX);
    }
    conflict
}

/// A rejection in the making.
struct Report<'a> {
    inputs: &'a Inputs<'a>,
    /// What the author could read of the state that it was shown.
    was_readable: Option<Readable<'a>>,
    /// Bytes of payload that may still be shown.
    left: u64,
    conflict: &'a mut Conflict,
}

impl Report<'_> {
    fn root(&self) -> &Node {
        self.inputs.state.root()
    }

    fn base(&self) -> At {
        At::try_from(self.inputs.context.base.0).unwrap_or(At::MAX)
    }

    fn is_full(&self) -> bool {
        self.conflict.violations.len() >= VIOLATIONS_MAX
    }

    fn check_reserved(&mut self, target: &Target) {
        let holder = self.inputs.context.reservations.holder_of(target, self.inputs.context.invocation);
        if let Some((holder, place)) = holder.filter(|_| !self.is_full() && target.action != Action::Copies) {
            let message = format!("this place is kept for {holder} for a moment; what you read may change by then");
            let violation = Violation::new(Code::Reserved, place.as_str(), message).at_op(target.op);
            self.conflict.violations.push(violation);
        }
    }

    fn check_target(&mut self, target: &Target) {
        let (place, base, action) = (&*target.place, self.base(), target.action);
        let was_there = |place: &Pointer| Some(self.inputs.context.basis?.state.get(place).is_some());
        // What must be there for it to be applied: the place, or what would hold a new one.
        let needed = if action.needs_value() { Some(place) } else { place.parent() };
        if needed.is_some_and(|needed| was_there(needed) == Some(false) && self.inputs.state.get(needed).is_none()) {
            // Nobody was faster: it could be applied neither then nor now, and why is told at the next stage.
            return;
        }
        let changes = match changes::on_the_way(self.root(), place, base, &was_there, action.needs_value()) {
            Some(change) => vec![change],
            None => match action {
                // What came to be in it meanwhile would be lost as well.
                Action::Overwrites | Action::Removes | Action::Copies => {
                    changes::at_and_below(self.root(), place, base, Depth::Everything, VIOLATIONS_MAX)
                }
                // An index so far behind the end that there was never an element before it.
                Action::Creates if !self.could_be_appended(place) => Vec::new(),
                Action::Creates | Action::Inserts => {
                    changes::of_place(self.root(), place, base, &was_there).into_iter().collect()
                }
                // Elements that others appended are no reason not to append another. But an index that an element had
                // names that element, and it is not the last one's successor that was meant.
                Action::Appends => {
                    let meant =
                        target.lands_at.as_deref().filter(|made| target.names_index && was_there(made) == Some(true));
                    meant.and_then(|made| changes::of_place(self.root(), made, base, &was_there)).into_iter().collect()
                }
            },
        };
        if changes.is_empty() && self.inputs.wants_seen {
            self.check_seen(target);
        }
        let code = if action == Action::Copies { Code::StaleRead } else { Code::StaleTarget };
        for change in changes {
            self.stale(code, change, Some(target.op));
        }
    }

    /// Whether there was an element before this place when its author looked; true of what is no index of an array.
    fn could_be_appended(&self, place: &Pointer) -> bool {
        let (Some(basis), Some((above, token))) = (self.inputs.context.basis, place.split_back()) else { return true };
        if basis.state.get(above).is_some_and(|node| node.as_object().is_some()) {
            return true;
        }
        let Ok(index) = token.decoded().parse::<usize>() else { return true };
        let last = index.checked_sub(1).map(|last| above.with_trailing_token(last));
        last.is_none_or(|last| basis.state.get(&last).is_some())
    }

    /// What is written over or taken away must have been seen by whoever could see it.
    fn check_seen(&mut self, target: &Target) {
        let overwrites = matches!(target.action, Action::Overwrites | Action::Removes);
        let Some(basis) = self.inputs.context.basis.filter(|_| overwrites) else { return };
        let Some(was_readable) = &self.was_readable else { return };
        let place = &*target.place;
        let is_told = self
            .conflict
            .violations
            .iter()
            .any(|told| told.code == Code::UnseenTarget && told.pointer == place.as_str());
        if !is_told && !self.is_full() && basis.is_unseen(place, was_readable) {
            let message = "you were not shown the whole of it, so you cannot write over it; change only what you see";
            let mut violation = Violation::new(Code::UnseenTarget, place.as_str(), message).at_op(target.op);
            violation.found = self.payload(place);
            self.conflict.violations.push(violation);
            self.conflict.contested.push(target.place.clone());
        }
    }

    fn check_reads(&mut self, basis: &Basis) {
        let base = self.base();
        let was_there = |_: &Pointer| Some(true);
        let with_members = self.inputs.mode == Freshness::Members;
        let depth = if with_members { Depth::Everything } else { Depth::Values };
        for read in &basis.reads {
            if self.is_full() {
                return;
            }
            let changes = match changes::on_the_way(self.root(), read, base, &was_there, true) {
                Some(change) => vec![change],
                None => changes::at_and_below(self.root(), read, base, depth, VIOLATIONS_MAX),
            };
            changes.into_iter().for_each(|change| self.stale(Code::StaleRead, change, None));
        }
        for collection in basis.members.iter().filter(|_| with_members) {
            if self.is_full() {
                return;
            }
            let change = changes::on_the_way(self.root(), collection, base, &was_there, true)
                .or_else(|| changes::of_members(self.root(), collection, base));
            if let Some(change) = change {
                self.stale(Code::StaleRead, change, None);
            }
        }
    }

    fn stale(&mut self, code: Code, change: Change, op: Option<usize>) {
        let Change { place, at, what } = change;
        let is_known = |violation: &Violation| violation.stale.is_some() && violation.pointer == place.as_str();
        if self.is_full() || self.conflict.violations.iter().any(is_known) {
            return;
        }
        let now = Version(at.into());
        let by = self.inputs.context.commits.by(now);
        let message = match what {
            What::Value => "it was changed after you had read it",
            What::Gone => "it was taken away after you had read it",
            What::New => "something was put there after you had looked",
            What::Shifted => "elements came or went before it after you had read it, so it is at another index now",
            What::Parts => "parts of it were taken away or shifted after you had read it",
            What::Members => "members came or went after you had read it",
        };
        let mut violation = Violation::new(code, place.as_str(), message);
        violation.op = op;
        violation.found = self.payload(&place);
        violation.diff = self.difference(&place);
        violation.stale = by.map(|(seq, changed_by)| Stale { read_at: self.inputs.context.base, now, changed_by, seq });
        self.conflict.violations.push(violation);
        self.conflict.contested.push(place);
    }

    /// What is at a place, while there is room for it.
    fn payload(&mut self, place: &Pointer) -> Option<Value> {
        let node = self.inputs.state.get(place)?;
        let bytes = node.bytes();
        if bytes > SHOWN_BYTES_MAX {
            return None;
        }
        self.left = self.left.checked_sub(bytes)?;
        Some(node.to_value())
    }

    /// How what was read differs from what is there now: of a text what was taken out and put in, of anything else what
    /// was there.
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

/// The part in which two texts differ, by whole words: where it begins, in characters, and what it was and is.
fn text_difference(was: &str, now: &str) -> Value {
    let head: usize = was.chars().zip(now.chars()).take_while(|(was, now)| was == now).map(|(c, _)| c.len_utf8()).sum();
    let (was_rest, now_rest) = (&was[head..], &now[head..]);
    let tail: usize = was_rest
        .chars()
        .rev()
        .zip(now_rest.chars().rev())
        .take_while(|(was, now)| was == now)
        .map(|(c, _)| c.len_utf8())
        .sum();
    // "jum" became "lea" says less than "jumps" became "leaps".
    let parts = [&was_rest[..was_rest.len() - tail], &now_rest[..now_rest.len() - tail]];
    let in_word = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace());
    let begins_in_word = parts.iter().any(|part| in_word(part.chars().next()));
    let ends_in_word = parts.iter().any(|part| in_word(part.chars().next_back()));
    let before = if begins_in_word { rest_of_word(was[..head].chars().rev()) } else { 0 };
    let behind = if ends_in_word { rest_of_word(was[was.len() - tail..].chars()) } else { 0 };
    let (head, tail) = (head - before, tail - behind);
    json!({
        "at": was[..head].chars().count(),
        "removed": &was[head..was.len() - tail],
        "added": &now[head..now.len() - tail],
    })
}

/// Bytes of what is left of a word, or of as much of it as words are long.
fn rest_of_word(text: impl Iterator<Item = char>) -> usize {
    text.take_while(|c| !c.is_whitespace()).take(WORD_MAX).map(char::len_utf8).sum()
}
