//! Finds changes at a place since a version, by the change stamps of the state; the cost depends on the changes alone.

use jsonptr::{Pointer, PointerBuf};

use crate::tree::{Node, Revision, Stamp};

/// Returns true if a place existed in the state that was read; `None` if unknown.
pub(super) type WasThere<'a> = &'a dyn Fn(&Pointer) -> Option<bool>;

/// A change since the read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) place: PointerBuf,
    /// The latest version that changed it.
    pub(super) at: Revision,
    pub(super) kind: ChangeKind,
}

/// Kind of change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChangeKind {
    Value,
    Removed,
    /// The place was empty before.
    New,
    /// Elements were added or removed before it.
    Shifted,
    /// A part of it was removed or has another index.
    Parts,
    /// Members were added or removed.
    Members,
}

/// Changes inside a value that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// Changes of existing values; added values do not count.
    Values,
    /// Also added or removed members.
    Everything,
}

/// Returns the first change since version `read` on the path to a place: a replaced, removed or shifted value.
///
/// `was_there` reports whether a place existed at that version, if known. `includes_place` also checks the place
/// itself.
pub(super) fn on_path(
    root: &Node,
    place: &Pointer,
    read: Revision,
    was_there: WasThere<'_>,
    includes_place: bool,
) -> Option<Change> {
    let mut node = root;
    let mut floor = 0;
    let mut end = 0;
    for token in place.tokens() {
        end += 1 + token.encoded().len();
        // The path so far; in the last iteration all of it.
        let here = place.split_at_offset(end).map_or(place, |(here, _)| here);
        if here == place && !includes_place {
            return None;
        }
        let decoded = token.decoded();
        let change = |at, what| Some(Change { place: here.to_buf(), at, kind: what });
        // A place that was and is absent was not shifted.
        let is_nothing = || node.slot(&decoded).is_none() && was_there(here) == Some(false);
        if let Some(at) = shifted(node, &decoded, read).filter(|_| !is_nothing()) {
            // The present value may have been added or overwritten since.
            let at = node.slot(&decoded).map_or(at, |(_, stamp)| at.max(stamp.changed));
            return change(at, ChangeKind::Shifted);
        }
        let Some((child, stamp)) = node.slot(&decoded) else {
            let lost = member_removed_since(node, &decoded, read);
            // A place that was always absent cannot have been removed.
            return match was_there(here) {
                Some(true) => change(lost.unwrap_or(node.modified_at()).max(floor), ChangeKind::Removed),
                Some(false) => None,
                None => change(lost?, ChangeKind::Removed),
            };
        };
        let stamp = stamp.under(floor);
        if stamp.changed > read {
            let is_new = stamp.created > read && was_there(here) != Some(true);
            let what = if is_new { ChangeKind::New } else { ChangeKind::Value };
            return change(stamp.changed, what);
        }
        (node, floor) = (child, stamp.changed);
    }
    None
}

/// Returns a creation, removal or shift of a place after version `read`. Its container must be unchanged.
pub(super) fn of_place(root: &Node, place: &Pointer, read: Revision, was_there: WasThere<'_>) -> Option<Change> {
    let (container, token) = place.split_back()?;
    let (node, token) = (root.get(container)?, token.decoded());
    if let Some(at) = shifted(node, &token, read) {
        return Some(Change { place: place.to_buf(), at, kind: ChangeKind::Shifted });
    }
    let change = |at, what| Some(Change { place: place.to_buf(), at, kind: what });
    match node.slot(&token) {
        Some((_, stamp)) if stamp.created > read => change(stamp.changed, ChangeKind::New),
        None if was_there(place) == Some(true) => {
            change(member_removed_since(node, &token, read)?, ChangeKind::Removed)
        }
        _ => None,
    }
}

/// Returns an addition or removal of members of the collection at a place after version `read`.
pub(super) fn of_members(root: &Node, place: &Pointer, read: Revision) -> Option<Change> {
    let at = members_changed(root.get(place)?)?;
    (at > read).then(|| Change { place: place.to_buf(), at, kind: ChangeKind::Members })
}

/// Returns the changes inside the value at a place, which must itself be the one of version `read`. Only the topmost
/// changed places are returned, at most `max`.
pub(super) fn at_and_below(root: &Node, place: &Pointer, read: Revision, depth: Depth, max: usize) -> Vec<Change> {
    let mut search = Search { read, depth, max, found: Vec::new() };
    if let Some(node) = root.get(place).filter(|node| node.modified_at() > read) {
        search.visit(node, &place.to_buf());
    }
    search.found
}

struct Search {
    read: Revision,
    depth: Depth,
    max: usize,
    found: Vec<Change>,
}

impl Search {
    fn visit(&mut self, node: &Node, place: &PointerBuf) {
        if node.modified_at() <= self.read || self.found.len() >= self.max {
            return;
        }
        let mut found = |at, what| self.found.push(Change { place: place.clone(), at, kind: what });
        if let Some(at) = removed_since(node, self.read) {
            return found(at, ChangeKind::Parts);
        }
        if self.depth == Depth::Everything
            && let Some(at) = members_changed(node)
            && at > self.read
        {
            return found(at, ChangeKind::Members);
        }
        match node {
            Node::Array(array) => {
                for (index, child, stamp) in array.changed_since(self.read) {
                    self.child(child, stamp, || place.with_trailing_token(index));
                }
            }
            Node::Object(object) => {
                for (key, child, stamp) in object.changed_since(self.read) {
                    self.child(child, stamp, || place.with_trailing_token(key.as_str()));
                }
            }
            _ => {}
        }
    }

    fn child(&mut self, node: &Node, stamp: Stamp, place: impl Fn() -> PointerBuf) {
        // Later additions were not read.
        if stamp.created > self.read || self.found.len() >= self.max {
            return;
        }
        if stamp.changed > self.read {
            self.found.push(Change { place: place(), at: stamp.changed, kind: ChangeKind::Value });
        } else {
            self.visit(node, &place());
        }
    }
}

fn shifted(node: &Node, token: &str, read: Revision) -> Option<Revision> {
    let array = node.as_array()?;
    array.shifted_since(token.parse().ok()?, read)
}

fn removed_since(node: &Node, read: Revision) -> Option<Revision> {
    match node {
        Node::Array(array) => array.removed_since(read),
        Node::Object(object) => object.removed_since(read),
        _ => None,
    }
}

/// Returns the removal of a member that existed at version `read`; if that is no longer known, the last removal of any.
fn member_removed_since(node: &Node, key: &str, read: Revision) -> Option<Revision> {
    let lost = removed_since(node, read)?;
    Some(node.as_object().and_then(|object| object.member_removed_since(key, read)).unwrap_or(lost))
}

fn members_changed(node: &Node) -> Option<Revision> {
    match node {
        Node::Array(array) => Some(array.members_changed()),
        Node::Object(object) => Some(object.members_changed()),
        _ => None,
    }
}
