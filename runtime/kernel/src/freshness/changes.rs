//! What changed at a place since a version: asked of the stamps of the state, at the cost of what changed.

use jsonptr::{Pointer, PointerBuf};

use crate::tree::{At, Node, Stamp};

/// Something that is not as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// Where.
    pub(super) place: PointerBuf,
    /// The version that last made it so.
    pub(super) at: At,
    /// How.
    pub(super) what: What,
}

/// How something changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// There is another value.
    Value,
    /// There is nothing any more.
    Gone,
    /// There was nothing before.
    New,
    /// Elements came or went before it.
    Shifted,
    /// A part of it is gone or has another index.
    Parts,
    /// Members came or went.
    Members,
}

/// How much of what changed inside of a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// What was there is not as it was. What came beside it does not matter.
    Values,
    /// Also members that came or went.
    Everything,
}

/// Whether something on the way to a place, or the place itself, is another than at version `read`: replaced, gone or
/// shifted.
///
/// `was_there` says of a place whether it was there then, if that is known. `includes_place`: whether the place itself is
/// asked about, or only the way to it.
pub(super) fn on_the_way(
    root: &Node,
    place: &Pointer,
    read: At,
    was_there: &dyn Fn(&Pointer) -> Option<bool>,
    includes_place: bool,
) -> Option<Change> {
    let mut node = root;
    let mut floor = 0;
    let mut end = 0;
    for token in place.tokens() {
        end += 1 + token.encoded().len();
        // The way so far, in the last round all of it.
        let here = place.split_at_offset(end).map_or(place, |(here, _)| here);
        if here == place && !includes_place {
            return None;
        }
        let decoded = token.decoded();
        let change = |at, what| Some(Change { place: here.to_buf(), at, what });
        // What neither was there nor is was not shifted.
        let is_nothing = || node.slot(&decoded).is_none() && was_there(here) == Some(false);
        if let Some(at) = shifted(node, &decoded, read).filter(|_| !is_nothing()) {
            // What is there now may have come, or been written over, since.
            let at = node.slot(&decoded).map_or(at, |(_, stamp)| at.max(stamp.changed));
            return change(at, What::Shifted);
        }
        let Some((child, stamp)) = node.slot(&decoded) else {
            let lost = member_lost_since(node, &decoded, read);
            // Of what was never there nothing can have gone.
            return match was_there(here) {
                Some(true) => change(lost.unwrap_or(node.touched()).max(floor), What::Gone),
                Some(false) => None,
                None => change(lost?, What::Gone),
            };
        };
        let stamp = stamp.under(floor);
        if stamp.changed > read {
            let is_new = stamp.born > read && was_there(here) != Some(true);
            let what = if is_new { What::New } else { What::Value };
            return change(stamp.changed, what);
        }
        (node, floor) = (child, stamp.changed);
    }
    None
}

/// Whether a place whose container is the one that was there came to be, went or was shifted after version `read`.
pub(super) fn of_place(
    root: &Node,
    place: &Pointer,
    read: At,
    was_there: &dyn Fn(&Pointer) -> Option<bool>,
) -> Option<Change> {
    let (container, token) = place.split_back()?;
    let (node, token) = (root.get(container)?, token.decoded());
    if let Some(at) = shifted(node, &token, read) {
        return Some(Change { place: place.to_buf(), at, what: What::Shifted });
    }
    let change = |at, what| Some(Change { place: place.to_buf(), at, what });
    match node.slot(&token) {
        Some((_, stamp)) if stamp.born > read => change(stamp.changed, What::New),
        None if was_there(place) == Some(true) => change(member_lost_since(node, &token, read)?, What::Gone),
        _ => None,
    }
}

/// Whether members of the collection at a place came or went after version `read`.
pub(super) fn of_members(root: &Node, place: &Pointer, read: At) -> Option<Change> {
    let at = members_changed(root.get(place)?)?;
    (at > read).then(|| Change { place: place.to_buf(), at, what: What::Members })
}

/// What changed inside of the value at a place, which itself is the one that was there at version `read`; the highest
/// such places, at most `max`.
pub(super) fn at_and_below(root: &Node, place: &Pointer, read: At, depth: Depth, max: usize) -> Vec<Change> {
    let mut search = Search { read, depth, max, found: Vec::new() };
    if let Some(node) = root.get(place).filter(|node| node.touched() > read) {
        search.visit(node, &place.to_buf());
    }
    search.found
}

struct Search {
    read: At,
    depth: Depth,
    max: usize,
    found: Vec<Change>,
}

impl Search {
    fn visit(&mut self, node: &Node, place: &PointerBuf) {
        if node.touched() <= self.read || self.found.len() >= self.max {
            return;
        }
        let mut found = |at, what| self.found.push(Change { place: place.clone(), at, what });
        if let Some(at) = lost_since(node, self.read) {
            return found(at, What::Parts);
        }
        if self.depth == Depth::Everything
            && let Some(at) = members_changed(node)
            && at > self.read
        {
            return found(at, What::Members);
        }
        match node {
            Node::Array(array) => {
                for (index, child, stamp) in array.touched_since(self.read) {
                    self.child(child, stamp, || place.with_trailing_token(index));
                }
            }
            Node::Object(object) => {
                for (key, child, stamp) in object.touched_since(self.read) {
                    self.child(child, stamp, || place.with_trailing_token(key.as_str()));
                }
            }
            _ => {}
        }
    }

    fn child(&mut self, node: &Node, stamp: Stamp, place: impl Fn() -> PointerBuf) {
        // What came later was not read.
        if stamp.born > self.read || self.found.len() >= self.max {
            return;
        }
        if stamp.changed > self.read {
            self.found.push(Change { place: place(), at: stamp.changed, what: What::Value });
        } else {
            self.visit(node, &place());
        }
    }
}

fn shifted(node: &Node, token: &str, read: At) -> Option<At> {
    let array = node.as_array()?;
    array.shifted_since(token.parse().ok()?, read)
}

fn lost_since(node: &Node, read: At) -> Option<At> {
    match node {
        Node::Array(array) => array.lost_since(read),
        Node::Object(object) => object.lost_since(read),
        _ => None,
    }
}

/// When a member went away that was there at version `read`; if that is not known any more, when last any did.
fn member_lost_since(node: &Node, key: &str, read: At) -> Option<At> {
    let lost = lost_since(node, read)?;
    Some(node.as_object().and_then(|object| object.member_lost_since(key, read)).unwrap_or(lost))
}

fn members_changed(node: &Node) -> Option<At> {
    match node {
        Node::Array(array) => Some(array.members_changed()),
        Node::Object(object) => Some(object.members_changed()),
        _ => None,
    }
}
