//! What happened to a document: every version whole, and what each operation of each commit did to which place.
//!
//! Written from the rules alone. Everything is worked out from whole documents, and answered by comparing pointers.

use json_patch::PatchOperation as Op;
use serde_json::Value;

use super::place::{Place, index};

/// What an operation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Another value took the place of what was there.
    Overwritten,
    /// A new member, or an appended element: a new place that changes no other.
    Came,
    /// An element was put before those that are there from this index on.
    Inserted,
    /// A member was taken away.
    Taken,
    /// An element was taken away; those behind it moved up.
    Drawn,
}

/// One change that a commit made.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) what: What,
    pub(super) at: Place,
    /// For `Inserted` and `Drawn`: how many elements there were.
    len: usize,
}

impl Event {
    /// Whether `place` was there and is not the same any more: something else was put there or above, it or something
    /// above was taken away, or an insertion or removal by index shifted it.
    pub(super) fn changes(&self, place: &Place) -> bool {
        match self.what {
            What::Came => false,
            What::Overwritten | What::Taken => self.at.covers(place),
            What::Inserted | What::Drawn => {
                let (array, from) = self.element();
                place.index_in(&array).is_some_and(|index| index >= from && index < self.len)
            }
        }
    }

    /// Whether something changed that was at or below `place` in `base`.
    pub(super) fn changes_value(&self, place: &Place, base: &Value) -> bool {
        if self.changes(place) {
            return true;
        }
        match self.what {
            What::Came => false,
            What::Overwritten | What::Taken => place.covers(&self.at) && self.at.is_in(base),
            // The first of those that moved tells: an array of `base` that reaches further has it, too.
            What::Inserted | What::Drawn => place.covers(&self.element().0) && self.at.is_in(base),
        }
    }

    /// Whether anything at, above or below `place` came, changed or went.
    pub(super) fn changes_anything(&self, place: &Place) -> bool {
        self.changes(place) || place.covers(&self.at)
    }

    /// The collection in which a member came or went, if one did.
    pub(super) fn membership(&self) -> Option<Place> {
        match self.what {
            What::Overwritten => None,
            What::Came | What::Inserted | What::Taken | What::Drawn => Some(self.at.split()?.0),
        }
    }

    /// Whether there is something else at `place`, or below, because what was before it was shifted there.
    pub(super) fn makes(&self, place: &Place) -> bool {
        matches!(self.what, What::Inserted | What::Drawn) && {
            let (array, from) = self.element();
            place.index_in(&array).is_some_and(|index| index >= from)
        }
    }

    /// Whether something was taken out of a collection, or put between what was in it.
    pub(super) fn loses_of(&self, collection: &Place) -> bool {
        self.what != What::Came && self.membership().as_ref() == Some(collection)
    }

    /// Whether the element before which something would be inserted, the `before`th of `array`, was shifted.
    pub(super) fn shifts(&self, array: &Place, before: usize) -> bool {
        matches!(self.what, What::Inserted | What::Drawn) && {
            let (shifted, from) = self.element();
            shifted == *array && before >= from && before < self.len
        }
    }

    /// The index at which the `at`th element of `array` is after this, or the end of it if it has no such element; none if
    /// the element was taken away.
    fn follow(&self, array: &Place, at: usize) -> Option<usize> {
        if !self.makes(&array.child(at)) || self.element().0 != *array {
            return Some(at);
        }
        match self.what {
            What::Inserted => Some(at + 1),
            _ if self.element().1 == at => None,
            _ => at.checked_sub(1),
        }
    }

    fn element(&self) -> (Place, usize) {
        let (array, token) = self.at.split().expect("an element is in an array");
        (array, index(token).expect("an element has an index"))
    }
}

/// The version that last took the element away, or to another index, which stood at `place` before these events; or the
/// end of its array, if that was there.
pub(super) fn last_moved(events: &[Event], place: &Place) -> Option<u64> {
    let (array, token) = place.split()?;
    let (mut at, mut version) = (Some(index(token)?), None);
    for event in events {
        let Some(before) = at else { break };
        at = event.follow(&array, before);
        if at != Some(before) {
            version = Some(event.version);
        }
    }
    version
}

/// All versions of one document.
pub(super) struct History {
    documents: Vec<Value>,
    /// By version, from 1: the record of the commit and its author.
    commits: Vec<(u64, String)>,
    events: Vec<Event>,
}

impl History {
    pub(super) fn new(initial: Value) -> Self {
        Self { documents: vec![initial], commits: Vec::new(), events: Vec::new() }
    }

    pub(super) fn version(&self) -> u64 {
        self.commits.len() as u64
    }

    pub(super) fn now(&self) -> &Value {
        self.documents.last().expect("there is an initial document")
    }

    pub(super) fn at(&self, version: u64) -> &Value {
        &self.documents[usize::try_from(version).expect("versions are few")]
    }

    /// The record and the author of a version.
    pub(super) fn commit_of(&self, version: u64) -> Option<(u64, &str)> {
        let index = usize::try_from(version).ok()?.checked_sub(1)?;
        self.commits.get(index).map(|(seq, worker)| (*seq, worker.as_str()))
    }

    /// What happened after a version.
    pub(super) fn since(&self, base: u64) -> &[Event] {
        &self.events[self.events.partition_point(|event| event.version <= base)..]
    }

    /// Adds a version.
    ///
    /// # Panics
    /// If the patch does not apply: it was committed.
    pub(super) fn commit(&mut self, seq: u64, worker: &str, ops: &[Op]) {
        let version = self.version() + 1;
        let mut document = self.now().clone();
        for op in ops {
            for (what, at, len) in effects(&document, op) {
                self.events.push(Event { version, what, at, len });
            }
            apply(&mut document, op).unwrap_or_else(|()| panic!("version {version}: {op} was committed"));
        }
        self.documents.push(document);
        self.commits.push((seq, worker.to_owned()));
    }
}

/// Applies one operation, or leaves the document as it is.
pub(super) fn apply(document: &mut Value, op: &Op) -> Result<(), ()> {
    json_patch::patch(document, std::slice::from_ref(op)).map_err(|_| ())
}

/// What an operation that can be applied does to which place, from the document before it.
fn effects(before: &Value, op: &Op) -> Vec<(What, Place, usize)> {
    let place = |pointer: &dyn fmt::Display| Place::parse(&pointer.to_string());
    match op {
        Op::Test(_) => Vec::new(),
        Op::Replace(op) => overwriting(before, place(&op.path), &op.value).into_iter().collect(),
        Op::Add(op) => adding(before, &place(&op.path), &op.value).into_iter().collect(),
        Op::Remove(op) => removing(before, place(&op.path)).into_iter().collect(),
        Op::Copy(op) => {
            let value = place(&op.from).of(before).cloned().unwrap_or_default();
            adding(before, &place(&op.path), &value).into_iter().collect()
        }
        Op::Move(op) => {
            let from = place(&op.from);
            let value = from.of(before).cloned().unwrap_or_default();
            let mut between = before.clone();
            without(&mut between, &from);
            let adding = adding(&between, &place(&op.path), &value);
            removing(before, from).into_iter().chain(adding).collect()
        }
    }
}

fn overwriting(before: &Value, place: Place, value: &Value) -> Option<(What, Place, usize)> {
    (place.of(before) != Some(value)).then_some((What::Overwritten, place, 0))
}

fn adding(before: &Value, place: &Place, value: &Value) -> Option<(What, Place, usize)> {
    let (above, token) = place.split()?;
    match above.of(before) {
        Some(Value::Array(elements)) => {
            let len = elements.len();
            match index(token) {
                Some(index) if index < len => Some((What::Inserted, place.clone(), len)),
                _ => Some((What::Came, above.child(len), 0)),
            }
        }
        _ if place.is_in(before) => overwriting(before, place.clone(), value),
        _ => Some((What::Came, place.clone(), 0)),
    }
}

fn removing(before: &Value, place: Place) -> Option<(What, Place, usize)> {
    let (above, _) = place.split()?;
    match above.of(before) {
        Some(Value::Array(elements)) => Some((What::Drawn, place, elements.len())),
        _ => Some((What::Taken, place, 0)),
    }
}

/// Takes a place out of a document.
pub(super) fn without(document: &mut Value, place: &Place) {
    let Some((above, token)) = place.split() else { return };
    match document.pointer_mut(&above.to_string()) {
        Some(Value::Array(elements)) => {
            if let Some(index) = index(token).filter(|index| *index < elements.len()) {
                elements.remove(index);
            }
        }
        Some(Value::Object(members)) => drop(members.remove(token)),
        _ => {}
    }
}

use std::fmt;
