//! Events of a commit, place by place: all that rules see of a commit.

use std::collections::BTreeSet;

use jsonptr::PointerBuf;

use crate::blueprint::{EventOp, GrantOp};
use crate::pattern::Pattern;
use crate::tree::Node;

/// Effect of one operation on its place.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// Place, with a real index where the operation appended.
    pub path: PointerBuf,
    /// Value before the operation; `None` if the operation created the place.
    pub before: Option<Node>,
    /// Value after the operation; `None` if the operation removed the place.
    pub after: Option<Node>,
}

/// Addition, replacement or removal at one place.
#[derive(Clone, PartialEq, Debug)]
pub struct Event<'a> {
    /// Kind of event.
    pub op: EventOp,
    /// Changed place.
    pub path: PointerBuf,
    /// Current value; for a removal, the removed value.
    pub value: &'a Node,
}

/// Returns the events of a commit, operation by operation, each place before those below it.
///
/// An ancestor of a written place has no event. Every place below it that was added, removed or changed has one:
/// replacing an empty array by three elements adds three (SPEC section 6).
pub fn events(changes: &[Change]) -> Vec<Event<'_>> {
    let mut events = Vec::new();
    for change in changes {
        compare(&change.path, change.before.as_ref(), change.after.as_ref(), &mut events);
    }
    events
}

/// Compares two values and their parts. Recursion is bounded by the depth of the state, which the blueprint limits.
fn compare<'a>(path: &PointerBuf, before: Option<&'a Node>, after: Option<&'a Node>, events: &mut Vec<Event<'a>>) {
    let (op, value) = match (before, after) {
        (None, None) => return,
        (None, Some(after)) => (EventOp::Add, after),
        (Some(before), None) => (EventOp::Remove, before),
        (Some(before), Some(after)) if before == after => return,
        (Some(_), Some(after)) => (EventOp::Replace, after),
    };
    events.push(Event { op, path: path.clone(), value });
    for token in children(before, after) {
        let below = |value: Option<&'a Node>| value.and_then(|value| value.child(&token));
        let place = path.with_trailing_token(token.as_str());
        compare(&place, below(before), below(after), events);
    }
}

/// Returns the names of all children of either value: members in their order, then elements by index.
fn children(before: Option<&Node>, after: Option<&Node>) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    let mut length = 0;
    for value in [before, after].into_iter().flatten() {
        match value {
            Node::Object(members) => names.extend(members.iter().map(|(name, _)| name.to_string())),
            Node::Array(elements) => length = length.max(elements.len()),
            _ => {}
        }
    }
    names.into_iter().chain((0..length).map(|index| index.to_string())).collect()
}

/// Returns the events that a write grant with these operations may cause at the places of another pattern. A place
/// below the write has events for added and removed values; a place above it has none.
pub fn possible_events(written: &Pattern, ops: &[GrantOp], place: &Pattern) -> impl Iterator<Item = EventOp> {
    let (is_there, is_above) = (written.collides(place), written.lies_above(place));
    let of_op = move |op: &GrantOp| {
        let there: &[EventOp] = match op {
            _ if !is_there => &[],
            GrantOp::Add | GrantOp::Insert => &[EventOp::Add],
            GrantOp::Replace => &[EventOp::Replace],
            GrantOp::Remove => &[EventOp::Remove],
            // A value that is moved or copied to a place is new, or replaces another.
            GrantOp::Move | GrantOp::Copy => &[EventOp::Add, EventOp::Replace],
        };
        let below: &[EventOp] = match op {
            _ if !is_above => &[],
            GrantOp::Add | GrantOp::Insert => &[EventOp::Add],
            GrantOp::Remove => &[EventOp::Remove],
            GrantOp::Replace | GrantOp::Move | GrantOp::Copy => EventOp::ALL,
        };
        there.iter().chain(below).copied()
    };
    ops.iter().flat_map(of_op).collect::<BTreeSet<_>>().into_iter()
}

#[cfg(test)]
mod tests;
