//! Keeps the history of a document: every version in full, and the effects of each operation of each commit on places.
//!
//! Written from the rules alone. Everything is derived from whole documents by comparing pointers.

use json_patch::PatchOperation as Op;
use serde_json::Value;

use super::place::{Place, index};

/// Effect of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Replacement of an existing value.
    Overwritten,
    /// New member, or appended element: a new place that changes no other.
    Came,
    /// Insertion of an element before those from this index on.
    Inserted,
    /// Removal of a member.
    Taken,
    /// Removal of an element; those behind it move up.
    Drawn,
}

/// One change made by a commit.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) what: What,
    pub(super) at: Place,
    /// Number of elements before an `Inserted` or `Drawn`.
    len: usize,
}

impl Event {
    /// Returns true if `place` existed and no longer holds its value. It or a place above was replaced or removed, or
    /// an insertion or removal by index shifted it.
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

    /// Returns true if a value at or below `place` in `base` changed.
    pub(super) fn changes_value(&self, place: &Place, base: &Value) -> bool {
        if self.changes(place) {
            return true;
        }
        match self.what {
            What::Came => false,
            What::Overwritten | What::Taken => place.covers(&self.at) && self.at.is_in(base),
            // The first shifted element decides: a longer array in `base` has it, too.
            What::Inserted | What::Drawn => place.covers(&self.element().0) && self.at.is_in(base),
        }
    }

    /// Returns true if `place` changed, or a value at or below it was added, changed or removed.
    pub(super) fn changes_anything(&self, place: &Place) -> bool {
        self.changes(place) || place.covers(&self.at)
    }

    /// Returns the collection in which a member was added or removed, if any.
    pub(super) fn membership(&self) -> Option<Place> {
        match self.what {
            What::Overwritten => None,
            What::Came | What::Inserted | What::Taken | What::Drawn => Some(self.at.split()?.0),
        }
    }

    /// Returns true if a shift of elements put another value at `place`, or below.
    pub(super) fn makes(&self, place: &Place) -> bool {
        matches!(self.what, What::Inserted | What::Drawn) && {
            let (array, from) = self.element();
            place.index_in(&array).is_some_and(|index| index >= from)
        }
    }

    /// Returns true if an element or member was removed from `collection`, or an element inserted before others.
    pub(super) fn loses_of(&self, collection: &Place) -> bool {
        self.what != What::Came && self.membership().as_ref() == Some(collection)
    }

    /// Returns true if the `before`th element of `array`, as an insertion point, was shifted.
    pub(super) fn shifts(&self, array: &Place, before: usize) -> bool {
        matches!(self.what, What::Inserted | What::Drawn) && {
            let (shifted, from) = self.element();
            shifted == *array && before >= from && before < self.len
        }
    }

    /// Returns the index of the `at`th element of `array` after this event, or of the array's end if there is no such
    /// element. `None` if it was removed.
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

/// Returns the last version that removed or shifted the element at `place`, as of before these events. If `place` was
/// the end of its array, follows the end instead.
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
    /// Record of the commit and its author, by version from 1.
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

    /// Returns the record and the author of a version.
    pub(super) fn commit_of(&self, version: u64) -> Option<(u64, &str)> {
        let index = usize::try_from(version).ok()?.checked_sub(1)?;
        self.commits.get(index).map(|(seq, worker)| (*seq, worker.as_str()))
    }

    /// Returns the events after a version.
    pub(super) fn since(&self, base: u64) -> &[Event] {
        &self.events[self.events.partition_point(|event| event.version <= base)..]
    }

    /// Adds a version.
    ///
    /// # Panics
    /// If the patch, which was committed, does not apply.
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

/// Returns the effects of an applicable operation on places, from the document before it.
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

/// Removes a place from a document.
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
