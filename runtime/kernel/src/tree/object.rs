//! Objects. Their nodes are in `trie`.

mod members;
pub(super) mod trie;

use std::sync::Arc as StdArc;

use triomphe::Arc;

pub use self::members::Members;
use self::trie::Trie;
use super::stamp::{self, At, Loss, Losses, Stamp};
use super::{Key, Node, Sum};
use crate::digest::Hasher;

/// An object; cheap to clone.
#[derive(Clone, Debug)]
pub struct Object(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Without members, as this version made it.
    Empty(At),
    /// Any other.
    Tree(Arc<Tree>),
}

#[derive(Clone, Debug)]
struct Tree {
    /// The version by which a member last came or went.
    members: At,
    losses: Losses,
    root: Trie,
}

impl Object {
    /// An object made by version `at`. Of members with one key the last one stays.
    pub(super) fn new(mut members: Vec<(Key, Node)>, at: At, hasher: &StdArc<Hasher>) -> Self {
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        // `dedup_by` drops the later one of two; what is wanted is the last.
        members.reverse();
        members.dedup_by(|(later, _), (kept, _)| later == kept);
        members.reverse();
        if members.is_empty() {
            return Self(Form::Empty(at));
        }
        let entries = members.into_iter().map(|(key, node)| (key, node, Stamp::new(at))).collect();
        Self::of_tree(at, Losses::default(), Trie::of_entries(entries, 0, hasher))
    }

    fn of_tree(members: At, losses: Losses, root: Trie) -> Self {
        Self(Form::Tree(Arc::new(Tree { members, losses, root })))
    }

    /// How many members it has.
    pub fn len(&self) -> usize {
        self.sum().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A member.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.slot(key).map(|(node, _)| node)
    }

    /// A member and when its place last changed, as far as that is known here ([`Stamp::under`]).
    pub fn slot(&self, key: &str) -> Option<(&Node, Stamp)> {
        self.entry(key).map(|(_, node, stamp)| (node, stamp))
    }

    /// The same, with the name as it is kept here.
    pub(super) fn entry(&self, key: &str) -> Option<(&Key, &Node, Stamp)> {
        self.root()?.entry(key)
    }

    /// The members in the order of their keys.
    pub fn iter(&self) -> Members<'_> {
        Members::of(self.root())
    }

    /// Returns those from a key on, whether or not it is one of them. Looks at all parts of a large object.
    pub fn iter_from<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (&'a Key, &'a Node)> {
        let mut members = Members::starting_at(self.root(), key);
        std::iter::from_fn(move || members.next())
    }

    /// The version by which a member last came or went.
    pub fn members_changed(&self) -> At {
        match &self.0 {
            Form::Empty(at) => *at,
            Form::Tree(tree) => tree.members,
        }
    }

    /// When last a member went away that was there at version `read`.
    pub fn lost_since(&self, read: At) -> Option<At> {
        self.losses().and_then(|losses| losses.since(read))
    }

    /// When last this member, which was there at version `read`, went away; none also where that is not known any more.
    pub fn member_lost_since(&self, key: &str, read: At) -> Option<At> {
        self.losses().and_then(|losses| losses.of_member(key, read))
    }

    /// The members that changed after a version, wholly or inside, in the order of their keys, with their stamps.
    pub fn touched_since(&self, at: At) -> Vec<(&Key, &Node, Stamp)> {
        let mut touched = Vec::new();
        if let Some(root) = self.root() {
            root.touched_since(at, &mut touched);
        }
        touched.sort_unstable_by_key(|(key, ..)| *key);
        touched
    }

    /// Whether they are one in memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Tree(mine), Form::Tree(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        }
    }

    pub(super) fn sum(&self) -> Sum {
        self.root().map(Trie::sum).unwrap_or_default()
    }

    pub(super) fn losses(&self) -> Option<&Losses> {
        match &self.0 {
            Form::Empty(_) => None,
            Form::Tree(tree) => Some(&tree.losses),
        }
    }

    /// Its uppermost node; none if it is as it was made, without members.
    pub(super) fn root(&self) -> Option<&Trie> {
        match &self.0 {
            Form::Empty(_) => None,
            Form::Tree(tree) => Some(&tree.root),
        }
    }

    /// An object as it was stored.
    pub(super) fn restored(members: At, losses: Losses, root: Trie) -> Self {
        if root.sum() == Sum::default() && losses.each().is_empty() {
            return Self(Form::Empty(members));
        }
        Self::of_tree(members, losses, root)
    }

    // Edits; each counts as made by version `at`.

    fn tree(&mut self) -> &mut Tree {
        if let Form::Empty(at) = self.0 {
            *self = Self::of_tree(at, Losses::default(), Trie::default());
        }
        match &mut self.0 {
            Form::Tree(tree) => Arc::make_mut(tree),
            Form::Empty(_) => unreachable!("it was just made a tree"),
        }
    }

    /// Lets a member and its stamp be changed.
    ///
    /// # Panics
    /// If there is no such member.
    pub(super) fn change(&mut self, key: &str, at: At, change: &mut dyn FnMut(&mut Node, &mut Stamp)) {
        self.tree().root.change(key, None, 0, at, change);
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, key: Key, node: Node, at: At, hasher: &StdArc<Hasher>) {
        let tree = self.tree();
        tree.root.insert(key, node, None, 0, at, hasher);
        tree.members = at;
    }

    /// # Panics
    /// If there is no such member.
    pub(super) fn remove(&mut self, key: &str, at: At) -> Node {
        let tree = self.tree();
        let (node, stamp) = tree.root.remove(key, None, 0);
        tree.losses.note(Loss { from: 0, member: stamp::member(key), born: stamp.born, at });
        tree.members = at;
        node
    }
}
