//! Objects. `trie` defines their nodes.

mod members;
pub(super) mod trie;

use std::sync::Arc as StdArc;

use triomphe::Arc;

pub use self::members::Members;
use self::trie::Trie;
use super::stamp::{self, Removal, Removals, Revision, Stamp};
use super::{Change, Key, Node, Sum};
use crate::digest::Hasher;

/// An object; cheap to clone.
#[derive(Clone, Debug)]
pub struct Object(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// Without members, created by this version.
    Empty(Revision),
    /// All other objects.
    Tree(Arc<Tree>),
}

#[derive(Clone, Debug)]
struct Tree {
    /// The version that last added or removed a member.
    members: Revision,
    losses: Removals,
    root: Trie,
}

impl Object {
    /// Creates an object at version `at`. For duplicate keys the last member wins.
    pub(super) fn new(mut members: Vec<(Key, Node)>, at: Revision, hasher: &StdArc<Hasher>) -> Self {
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        // `dedup_by` drops the later duplicate, but the last one must stay.
        members.reverse();
        members.dedup_by(|(later, _), (kept, _)| later == kept);
        members.reverse();
        if members.is_empty() {
            return Self(Repr::Empty(at));
        }
        let entries = members.into_iter().map(|(key, node)| (key, node, Stamp::new(at))).collect();
        Self::of_tree(at, Removals::default(), Trie::of_entries(entries, 0, hasher))
    }

    fn of_tree(members: Revision, losses: Removals, root: Trie) -> Self {
        Self(Repr::Tree(Arc::new(Tree { members, losses, root })))
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.sum().len()
    }

    /// Returns true if it has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a member.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.slot(key).map(|(node, _)| node)
    }

    /// Returns a member and the stamp of its place, as far as it is known here ([`Stamp::under`]).
    pub fn slot(&self, key: &str) -> Option<(&Node, Stamp)> {
        self.entry(key).map(|(_, node, stamp)| (node, stamp))
    }

    /// Like [`Self::slot`], with the stored key.
    pub(super) fn entry(&self, key: &str) -> Option<(&Key, &Node, Stamp)> {
        self.root()?.entry(key)
    }

    /// Returns the members in key order.
    pub fn iter(&self) -> Members<'_> {
        Members::new(self.root())
    }

    /// Returns the members from a key on, in key order; the key itself may be absent. Visits all parts of a large
    /// object.
    pub fn iter_from<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (&'a Key, &'a Node)> {
        let mut members = Members::starting_at(self.root(), key);
        std::iter::from_fn(move || members.next())
    }

    /// Returns the version that last added or removed a member.
    pub fn members_changed(&self) -> Revision {
        match &self.0 {
            Repr::Empty(at) => *at,
            Repr::Tree(tree) => tree.members,
        }
    }

    /// Returns the last version that removed a member which existed at version `read`.
    pub fn removed_since(&self, read: Revision) -> Option<Revision> {
        self.losses().and_then(|losses| losses.since(read))
    }

    /// Returns the last version that removed this member, which existed at version `read`; `None` also if it is not
    /// known any more.
    pub fn member_removed_since(&self, key: &str, read: Revision) -> Option<Revision> {
        self.losses().and_then(|losses| losses.of_member(key, read))
    }

    /// Returns the members that changed after a version, as a whole or inside, in key order, with their stamps.
    pub fn changed_since(&self, at: Revision) -> Vec<(&Key, &Node, Stamp)> {
        let mut touched = Vec::new();
        if let Some(root) = self.root() {
            root.touched_since(at, &mut touched);
        }
        touched.sort_unstable_by_key(|(key, ..)| *key);
        touched
    }

    /// Returns true if both share memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Repr::Tree(mine), Repr::Tree(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        }
    }

    pub(super) fn sum(&self) -> Sum {
        self.root().map(Trie::sum).unwrap_or_default()
    }

    pub(super) fn losses(&self) -> Option<&Removals> {
        match &self.0 {
            Repr::Empty(_) => None,
            Repr::Tree(tree) => Some(&tree.losses),
        }
    }

    /// Returns the root node; `None` if it was created without members and has not changed.
    pub(super) fn root(&self) -> Option<&Trie> {
        match &self.0 {
            Repr::Empty(_) => None,
            Repr::Tree(tree) => Some(&tree.root),
        }
    }

    /// Restores a stored object.
    pub(super) fn restored(members: Revision, losses: Removals, root: Trie) -> Self {
        if root.sum() == Sum::default() && losses.each().is_empty() {
            return Self(Repr::Empty(members));
        }
        Self::of_tree(members, losses, root)
    }

    // Edits; each belongs to version `at`.

    fn tree(&mut self) -> &mut Tree {
        if let Repr::Empty(at) = self.0 {
            *self = Self::of_tree(at, Removals::default(), Trie::default());
        }
        match &mut self.0 {
            Repr::Tree(tree) => Arc::make_mut(tree),
            Repr::Empty(_) => unreachable!("it was just made a tree"),
        }
    }

    /// Calls `change` with a member and its stamp.
    ///
    /// # Panics
    /// If there is no such member.
    pub(super) fn change(&mut self, key: &str, at: Revision, change: Change<'_>) {
        self.tree().root.change(key, None, 0, at, change);
    }

    /// Adds a new member.
    pub(super) fn insert(&mut self, key: Key, node: Node, at: Revision, hasher: &StdArc<Hasher>) {
        let tree = self.tree();
        tree.root.insert(key, node, None, 0, at, hasher);
        tree.members = at;
    }

    /// # Panics
    /// If there is no such member.
    pub(super) fn remove(&mut self, key: &str, at: Revision) -> Node {
        let tree = self.tree();
        let (node, stamp) = tree.root.remove(key, None, 0);
        tree.losses.note(Removal { from: 0, member: stamp::member(key), created: stamp.created, at });
        tree.members = at;
        node
    }
}
