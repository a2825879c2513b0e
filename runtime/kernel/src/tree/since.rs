//! What of a document changed since a version.

use super::{At, Node, Stamp};

/// A part of a document, or the whole, and the version since which its changes are asked for.
///
/// Nothing here walks a document: what did not change is not entered.
#[derive(Clone, Copy, Debug)]
pub struct Since<'a> {
    /// What is there now.
    pub node: &'a Node,
    /// The version that last put something there as a whole, or at a place above.
    pub changed: At,
    /// The version that is compared with.
    pub version: At,
}

impl<'a> Since<'a> {
    /// A whole document since `version`. `replaced`: the version that last put another document in place of the whole;
    /// 0 if none did. The tree does not know it, because stamps belong to places, and a root has none.
    pub const fn new(root: &'a Node, replaced: At, version: At) -> Self {
        Self { node: root, changed: replaced, version }
    }

    /// A part of which all counts as changed.
    pub const fn anew(node: &'a Node) -> Self {
        Self { node, changed: At::MAX, version: 0 }
    }

    /// The part at a place right below this one.
    pub fn below(&self, (node, stamp): (&'a Node, Stamp)) -> Self {
        Self { node, changed: stamp.under(self.changed).changed, version: self.version }
    }

    /// Whether it was put there as a whole since then, so that nothing in it can be compared with what was there.
    pub const fn is_new(&self) -> bool {
        self.changed > self.version
    }

    /// Whether anything of it changed.
    pub fn is_touched(&self) -> bool {
        self.is_new() || self.node.touched() > self.version
    }

    /// Whether what following members by name comes to may have changed: the value at the end, or, where the way ends
    /// before, that it ends there. Names follow members only: an array on the way is an end, whatever it holds.
    pub fn touches<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> bool {
        let mut here = *self;
        for name in names {
            if here.is_new() {
                return true;
            }
            // What became an object, or was one, was put there as a whole.
            let Node::Object(object) = here.node else { return false };
            match object.slot(name) {
                Some(slot) => here = here.below(slot),
                None => return object.lost_since(here.version).is_some(),
            }
        }
        here.is_touched()
    }
}
