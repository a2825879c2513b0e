//! Arrays: short arrays of scalars in one piece, all others as a radix tree.

pub(super) mod chunk;

use std::slice;

use triomphe::{Arc, ThinArc};

use self::chunk::{Body, Chunk, FAN_OUT, capacity, height};
use super::stamp::{Removal, Removals, Revision, Stamp, Stamps};
use super::{Change, Node, Sum};

/// An array; cheap to clone.
#[derive(Clone, Debug)]
pub struct Array(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// Without elements, created by this version.
    Empty(Revision),
    /// A few scalars that one version created. Their digest is not cached: recomputing it costs a few blocks of
    /// SHA-256.
    Few(ThinArc<Few, Node>),
    /// All other arrays.
    Tree(Arc<Tree>),
}

/// Header of an array of few scalars.
#[derive(Clone, Copy, Debug)]
struct Few {
    at: Revision,
    /// As in [`Sum`].
    bytes: u32,
}

/// Maximum length of few scalars, in bytes of JSON. Bounds the cost of their digest.
const FEW_BYTES_MAX: u32 = 128;

#[derive(Clone, Debug)]
struct Tree {
    /// The version that last added or removed an element.
    members: Revision,
    losses: Removals,
    root: Chunk,
}

/// Top level of an array.
pub(super) enum Top<'a> {
    /// Elements that this version created.
    Few(&'a [Node], Revision),
    Chunk(&'a Chunk),
}

impl Few {
    /// Returns `None` if elements with this sum are too many, too long, or not all scalars.
    fn try_new(sum: &Sum, at: Revision) -> Option<Self> {
        let bytes = u32::try_from(sum.bytes).ok().filter(|bytes| *bytes <= FEW_BYTES_MAX)?;
        (sum.len() <= FAN_OUT && sum.depth == 0).then_some(Self { at, bytes })
    }
}

impl Array {
    /// Creates an array at version `at`.
    pub(super) fn new(items: Vec<Node>, at: Revision) -> Self {
        if items.is_empty() {
            return Self(Repr::Empty(at));
        }
        if items.len() <= FAN_OUT
            && let Some(few) = Few::try_new(&Sum::from_nodes(&items), at)
        {
            return Self(Repr::Few(ThinArc::from_header_and_iter(few, items.into_iter())));
        }
        let chunks = |rest: &mut std::vec::IntoIter<Node>| {
            let items: Box<[Node]> = rest.take(FAN_OUT).collect();
            (!items.is_empty()).then(|| Arc::new(Chunk::leaf(items, Stamps::One(at))))
        };
        let mut rest = items.into_iter();
        let leaves = std::iter::from_fn(|| chunks(&mut rest)).collect();
        Self::of_tree(at, Removals::default(), Chunk::of_leaves(leaves))
    }

    fn of_tree(members: Revision, losses: Removals, root: Chunk) -> Self {
        Self(Repr::Tree(Arc::new(Tree { members, losses, root })))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self.top() {
            Top::Few(items, _) => items.len(),
            Top::Chunk(root) => root.sum().len(),
        }
    }

    /// Returns true if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an element.
    pub fn get(&self, index: usize) -> Option<&Node> {
        self.slot(index).map(|(node, _)| node)
    }

    /// Returns an element and the stamp of its place, as far as it is known here ([`Stamp::under`]).
    pub fn slot(&self, index: usize) -> Option<(&Node, Stamp)> {
        match self.top() {
            Top::Few(items, at) => items.get(index).map(|item| (item, Stamp::new(at))),
            Top::Chunk(root) => root.slot(index),
        }
    }

    /// Returns the elements, in order.
    pub fn iter(&self) -> Elements<'_> {
        match self.top() {
            Top::Few(items, _) => Elements { leaf: items.iter(), above: Vec::new(), left: items.len() },
            Top::Chunk(root) => Elements::new(root),
        }
    }

    /// Returns the version that last added or removed an element.
    pub fn members_changed(&self) -> Revision {
        match &self.0 {
            Repr::Empty(at) => *at,
            Repr::Few(few) => few.header.header.at,
            Repr::Tree(tree) => tree.members,
        }
    }

    /// Returns the last version that removed or shifted an element which existed at version `read`.
    pub fn removed_since(&self, read: Revision) -> Option<Revision> {
        self.losses().and_then(|losses| losses.since(read))
    }

    /// Returns the last version that removed or shifted the element at this index, which existed at version `read`.
    pub fn shifted_since(&self, index: usize, read: Revision) -> Option<Revision> {
        self.losses().and_then(|losses| losses.of_index(index, read))
    }

    /// Returns the elements that changed after a version, as a whole or inside, in order, with their stamps.
    pub fn changed_since(&self, at: Revision) -> Vec<(usize, &Node, Stamp)> {
        match self.top() {
            Top::Few(_, made) if made <= at => Vec::new(),
            Top::Few(items, made) => (0..).zip(items).map(|(index, item)| (index, item, Stamp::new(made))).collect(),
            Top::Chunk(root) => {
                let mut touched = Vec::new();
                root.touched_since(at, 0, height(self.len()), &mut touched);
                touched
            }
        }
    }

    /// Returns true if both share memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Repr::Few(mine), Repr::Few(theirs)) => std::ptr::eq(mine.as_ptr(), theirs.as_ptr()),
            (Repr::Tree(mine), Repr::Tree(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        }
    }

    pub(super) fn sum(&self) -> Sum {
        match &self.0 {
            Repr::Empty(_) => Sum::default(),
            Repr::Few(few) => {
                let Few { at, bytes } = few.header.header;
                let len = u32::try_from(few.slice.len()).unwrap_or(u32::MAX);
                Sum { bytes: bytes.into(), len, modified_at: at, depth: 0 }
            }
            Repr::Tree(tree) => tree.root.sum(),
        }
    }

    pub(super) fn losses(&self) -> Option<&Removals> {
        match &self.0 {
            Repr::Empty(_) | Repr::Few(_) => None,
            Repr::Tree(tree) => Some(&tree.losses),
        }
    }

    pub(super) fn top(&self) -> Top<'_> {
        match &self.0 {
            Repr::Empty(at) => Top::Few(&[], *at),
            Repr::Few(few) => Top::Few(&few.slice, few.header.header.at),
            Repr::Tree(tree) => Top::Chunk(&tree.root),
        }
    }

    /// Restores a stored array; `None` if its nodes do not fit its length.
    pub(super) fn restored(members: Revision, losses: Removals, root: Chunk) -> Option<Self> {
        if root.height() != height(root.sum().len()) {
            return None;
        }
        // In its original form, and so not larger than before it was stored.
        if losses.each().is_empty()
            && let Body::Leaf { items, stamps: Stamps::One(at) } = &root.body
            && (items.is_empty() || *at == members)
            && root.sum().modified_at == if items.is_empty() { 0 } else { *at }
            && Few::try_new(&root.sum(), members).is_some()
        {
            return Some(Self::new(items.to_vec(), members));
        }
        Some(Self::of_tree(members, losses, root))
    }

    // Edits; each belongs to version `at`.

    fn tree(&mut self) -> &mut Tree {
        if let Top::Few(items, at) = self.top() {
            *self = Self::of_tree(at, Removals::default(), Chunk::leaf(items.into(), Stamps::One(at)));
        }
        match &mut self.0 {
            Repr::Tree(tree) => Arc::make_mut(tree),
            Repr::Empty(_) | Repr::Few(_) => unreachable!("it was just made a tree"),
        }
    }

    /// Calls `change` with an element and its stamp.
    ///
    /// # Panics
    /// If there is no such element.
    pub(super) fn change(&mut self, index: usize, at: Revision, change: Change<'_>) {
        let height = height(self.len());
        self.tree().root.change(index, height, at, change);
    }

    /// # Panics
    /// If `index` is beyond the end.
    pub(super) fn insert(&mut self, index: usize, node: Node, at: Revision) {
        self.tree().insert(index, node, at);
    }

    /// # Panics
    /// If there is no such element.
    pub(super) fn remove(&mut self, index: usize, at: Revision) -> Node {
        self.tree().remove(index, at)
    }
}

impl Tree {
    const fn len(&self) -> usize {
        self.root.sum().len()
    }

    fn push(&mut self, node: Node, at: Revision) {
        let len = self.len();
        let mut height = height(len);
        if len == capacity(height) {
            let old = std::mem::replace(&mut self.root, Chunk::leaf(Box::default(), Stamps::One(0)));
            self.root = Chunk::inner(Box::new([Arc::new(old)]));
            height += 1;
        }
        self.root.push(node, height, at);
        self.members = at;
    }

    fn insert(&mut self, index: usize, node: Node, at: Revision) {
        if index == self.len() {
            return self.push(node, at);
        }
        self.lose_from(index, at);
        self.rebuild(index, |slots, within| slots.insert(within, (node, Stamp::new(at))));
        self.members = at;
    }

    fn remove(&mut self, index: usize, at: Revision) -> Node {
        let mut removed = None;
        self.lose_from(index, at);
        self.rebuild(index, |slots, within| removed = Some(slots.remove(within).0));
        self.members = at;
        removed.expect("the element was there")
    }

    /// Records that the elements from `index` on are shifted or removed.
    fn lose_from(&mut self, index: usize, at: Revision) {
        let is_last = index + 1 == self.len();
        let born = match is_last {
            true => self.root.slot(index).map(|(_, stamp)| stamp.created),
            false => self.root.slots().skip(index).map(|(_, stamp)| stamp.created).min(),
        };
        let from = u32::try_from(index).unwrap_or(u32::MAX);
        self.losses.note(Removal { from, member: 0, created: born.unwrap_or(0), at });
    }

    /// Rebuilds the tree from the leaf of `index` on. `edit` gets the elements from there, and the position of `index`
    /// among them.
    fn rebuild(&mut self, index: usize, edit: impl FnOnce(&mut Vec<(Node, Stamp)>, usize)) {
        let whole = index / FAN_OUT;
        let mut leaves: Vec<Arc<Chunk>> = self.root.shared_leaves(whole);
        let mut slots: Vec<_> =
            self.root.slots().skip(whole * FAN_OUT).map(|(node, stamp)| (node.clone(), stamp)).collect();
        edit(&mut slots, index % FAN_OUT);
        let mut rest = slots.into_iter().peekable();
        while rest.peek().is_some() {
            let (items, stamps): (Vec<_>, Vec<_>) = rest.by_ref().take(FAN_OUT).unzip();
            leaves.push(Arc::new(Chunk::leaf(items.into(), Stamps::from_stamps(&stamps))));
        }
        self.root = Chunk::of_leaves(leaves);
    }
}

/// Iterator over the elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    leaf: slice::Iter<'a, Node>,
    /// Remaining children of the inner nodes on the path.
    above: Vec<slice::Iter<'a, Arc<Chunk>>>,
    left: usize,
}

impl<'a> Elements<'a> {
    fn new(root: &'a Chunk) -> Self {
        let (leaf, above) = match &root.body {
            Body::Leaf { items, .. } => (items.iter(), Vec::new()),
            Body::Inner(children) => ([].iter(), vec![children.iter()]),
        };
        Self { leaf, above, left: root.sum().len() }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a Node;

    fn next(&mut self) -> Option<&'a Node> {
        loop {
            if let Some(node) = self.leaf.next() {
                self.left -= 1;
                return Some(node);
            }
            match self.above.last_mut()?.next() {
                Some(chunk) => match &chunk.body {
                    Body::Leaf { items, .. } => self.leaf = items.iter(),
                    Body::Inner(children) => self.above.push(children.iter()),
                },
                None => drop(self.above.pop()),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Elements<'_> {}
