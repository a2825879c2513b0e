//! Changes of a document since a version.

use super::{Node, Revision, Stamp};

/// A part of a document, or the whole, and the version to compare it with.
///
/// Nothing here walks a document: unchanged parts are not entered.
#[derive(Clone, Copy, Debug)]
pub struct ChangesSince<'a> {
    /// The current value.
    pub node: &'a Node,
    /// The version that last put the whole value there, or at a place above.
    pub changed: Revision,
    /// The version to compare with.
    pub version: Revision,
}

impl<'a> ChangesSince<'a> {
    /// Creates the comparison of a whole document since `version`. `replaced` is the version that last replaced the
    /// whole document, or 0. The tree does not know it, because stamps belong to places, and a root has none.
    pub const fn new(root: &'a Node, replaced: Revision, version: Revision) -> Self {
        Self { node: root, changed: replaced, version }
    }

    /// Creates a part that counts as changed completely.
    pub const fn all_changed(node: &'a Node) -> Self {
        Self { node, changed: Revision::MAX, version: 0 }
    }

    /// Returns the part at a place directly below this one.
    pub fn below(&self, (node, stamp): (&'a Node, Stamp)) -> Self {
        Self { node, changed: stamp.under(self.changed).changed, version: self.version }
    }

    /// Returns true if it was put there as a whole since then, so that no part of it can be compared with the old
    /// value.
    pub const fn is_new(&self) -> bool {
        self.changed > self.version
    }

    /// Returns true if any part of it changed.
    pub fn is_changed(&self) -> bool {
        self.is_new() || self.node.modified_at() > self.version
    }

    /// Returns true if the result of following members by name may have changed: the value at the end, or the point
    /// where the path stops. Names follow members only: an array ends the path, regardless of its content.
    pub fn may_have_changed<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> bool {
        let mut here = *self;
        for name in names {
            if here.is_new() {
                return true;
            }
            // A value that became an object, or was one, was put there as a whole.
            let Node::Object(object) = here.node else { return false };
            match object.slot(name) {
                Some(slot) => here = here.below(slot),
                None => return object.removed_since(here.version).is_some(),
            }
        }
        here.is_changed()
    }
}
