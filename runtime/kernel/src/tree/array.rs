//! Arrays: a dense radix tree by index, whose shape depends on the length alone.

use std::slice;
use std::sync::Arc;

use super::stamp::{At, Loss, Losses, Stamp, Stamps};
use super::{Known, Node, Sum};

/// Children of one node; also part of the digest's format.
pub(super) const FAN_OUT: usize = 16;

/// An array.
#[derive(Clone, Debug)]
pub struct Array {
    /// The version by which an element last came or went.
    members: At,
    losses: Losses,
    root: Chunk,
}

/// A node of the radix tree.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) known: Known,
    pub(super) sum: Sum,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Leaf { items: Box<[Node]>, stamps: Stamps },
    Inner(Box<[Arc<Chunk>]>),
}

/// How many levels of inner nodes there are above the leaves.
fn height(len: usize) -> u32 {
    let mut height = 0;
    while capacity(height) < len {
        height += 1;
    }
    height
}

/// How many elements a node of this height holds.
const fn capacity(height: u32) -> usize {
    FAN_OUT.saturating_pow(height + 1)
}

impl Array {
    /// An array made by version `at`.
    pub(super) fn new(items: Vec<Node>, at: At) -> Self {
        let chunks = |rest: &mut std::vec::IntoIter<Node>| {
            let items: Box<[Node]> = rest.take(FAN_OUT).collect();
            (!items.is_empty()).then(|| Arc::new(Chunk::leaf(items, Stamps::uniform(at))))
        };
        let mut rest = items.into_iter();
        let leaves = std::iter::from_fn(|| chunks(&mut rest)).collect();
        Self { members: at, losses: Losses::default(), root: Chunk::of_leaves(leaves) }
    }

    /// How many elements it has.
    pub const fn len(&self) -> usize {
        self.root.sum.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An element.
    pub fn get(&self, index: usize) -> Option<&Node> {
        self.slot(index).map(|(node, _)| node)
    }

    /// An element and when its place last changed, as far as that is known here ([`Stamp::under`]).
    pub fn slot(&self, index: usize) -> Option<(&Node, Stamp)> {
        if index >= self.len() {
            return None;
        }
        let (mut chunk, mut index, mut below) = (&self.root, index, height(self.len()));
        loop {
            match &chunk.body {
                Body::Leaf { items, stamps } => return Some((&items[index], stamps.get(index))),
                Body::Inner(children) => {
                    below -= 1;
                    let span = capacity(below);
                    chunk = &children[index / span];
                    index %= span;
                }
            }
        }
    }

    /// The elements, in order.
    pub fn iter(&self) -> Elements<'_> {
        Elements::of(&self.root)
    }

    /// The elements with their stamps, in order.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&Node, Stamp)> {
        self.root.leaves().into_iter().flat_map(|leaf| match &leaf.body {
            Body::Leaf { items, stamps } => items.iter().zip(stamps.all(items.len())).collect::<Vec<_>>(),
            Body::Inner(_) => Vec::new(),
        })
    }

    /// The version by which an element last came or went.
    pub const fn members_changed(&self) -> At {
        self.members
    }

    /// When last an element went away or was shifted that was there at version `read`.
    pub fn lost_since(&self, read: At) -> Option<At> {
        self.losses.since(read)
    }

    /// When last the element at this index, which was there at version `read`, went away or was shifted.
    pub fn shifted_since(&self, index: usize, read: At) -> Option<At> {
        self.losses.of_index(index, read)
    }

    /// The elements that changed after a version, wholly or inside, in order, with their stamps.
    pub fn touched_since(&self, at: At) -> Vec<(usize, &Node, Stamp)> {
        let mut touched = Vec::new();
        self.root.touched_since(at, 0, height(self.len()), &mut touched);
        touched
    }

    pub(super) const fn sum(&self) -> &Sum {
        &self.root.sum
    }

    pub(super) const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// An array as it was stored; none if its nodes are not those that its length demands.
    pub(super) fn restored(members: At, losses: Losses, root: Chunk) -> Option<Self> {
        (root.height() == height(root.sum.len)).then_some(Self { members, losses, root })
    }

    pub(super) const fn root(&self) -> &Chunk {
        &self.root
    }

    // Edits; each counts as made by version `at`.

    /// Lets an element and its stamp be changed.
    ///
    /// # Panics
    /// If there is no such element.
    pub(super) fn change(&mut self, index: usize, at: At, change: &mut dyn FnMut(&mut Node, &mut Stamp)) {
        let height = height(self.len());
        self.root.change(index, height, at, change);
    }

    pub(super) fn push(&mut self, node: Node, at: At) {
        let len = self.len();
        let mut height = height(len);
        if len == capacity(height) {
            let old = std::mem::replace(&mut self.root, Chunk::leaf(Box::default(), Stamps::uniform(0)));
            self.root = Chunk::inner(Box::new([Arc::new(old)]));
            height += 1;
        }
        self.root.push(node, height, at);
        self.members = at;
    }

    /// # Panics
    /// If `index` is behind the end.
    pub(super) fn insert(&mut self, index: usize, node: Node, at: At) {
        if index == self.len() {
            return self.push(node, at);
        }
        self.lose_from(index, at);
        self.rebuild(index, |slots, within| slots.insert(within, (node, Stamp::new(at))));
        self.members = at;
    }

    /// # Panics
    /// If there is no such element.
    pub(super) fn remove(&mut self, index: usize, at: At) -> Node {
        let mut removed = None;
        self.lose_from(index, at);
        self.rebuild(index, |slots, within| removed = Some(slots.remove(within).0));
        self.members = at;
        removed.expect("the element was there")
    }

    /// Notes that the elements from `index` on go to other places.
    fn lose_from(&mut self, index: usize, at: At) {
        let is_last = index + 1 == self.len();
        let born = match is_last {
            true => self.slot(index).map(|(_, stamp)| stamp.born),
            false => self.slots().skip(index).map(|(_, stamp)| stamp.born).min(),
        };
        let from = u32::try_from(index).unwrap_or(u32::MAX);
        self.losses.note(Loss { from, member: 0, born: born.unwrap_or(0), at });
    }

    /// Makes the tree anew from the leaf of `index` on; `edit` gets the elements from there, and the place of `index`
    /// among them.
    fn rebuild(&mut self, index: usize, edit: impl FnOnce(&mut Vec<(Node, Stamp)>, usize)) {
        let whole = index / FAN_OUT;
        let mut leaves: Vec<Arc<Chunk>> = self.root.shared_leaves(whole);
        let mut slots: Vec<_> = self.slots().skip(whole * FAN_OUT).map(|(node, stamp)| (node.clone(), stamp)).collect();
        edit(&mut slots, index % FAN_OUT);
        let mut rest = slots.into_iter().peekable();
        while rest.peek().is_some() {
            let (items, stamps): (Vec<_>, Vec<_>) = rest.by_ref().take(FAN_OUT).unzip();
            leaves.push(Arc::new(Chunk::leaf(items.into(), Stamps::of(stamps))));
        }
        self.root = Chunk::of_leaves(leaves);
    }
}

impl Chunk {
    fn leaf(items: Box<[Node]>, stamps: Stamps) -> Self {
        let mut sum = Sum { touched: stamps.latest(items.len()), ..Sum::default() };
        items.iter().for_each(|item| sum.add(item));
        Self { known: Known::default(), sum, body: Body::Leaf { items, stamps } }
    }

    fn inner(children: Box<[Arc<Self>]>) -> Self {
        let mut sum = Sum::default();
        children.iter().for_each(|child| sum.join(&child.sum));
        Self { known: Known::default(), sum, body: Body::Inner(children) }
    }

    /// A node as it was stored; none if it is not one that an array can have. `touched` is at least that of its parts.
    pub(super) fn restored(body: Body, touched: At) -> Option<Self> {
        let mut chunk = match body {
            Body::Leaf { items, stamps } if items.len() <= FAN_OUT => Self::leaf(items, stamps),
            Body::Inner(children) if (1..=FAN_OUT).contains(&children.len()) => {
                let height = children[0].height();
                let last = children.len() - 1;
                let is_dense = children.iter().enumerate().all(|(index, child)| {
                    let len = child.sum.len;
                    child.height() == height && len > 0 && (index == last || len == capacity(height))
                });
                is_dense.then(|| Self::inner(children))?
            }
            Body::Leaf { .. } | Body::Inner(_) => return None,
        };
        chunk.sum.touched = chunk.sum.touched.max(touched);
        Some(chunk)
    }

    pub(super) const fn sum(&self) -> &Sum {
        &self.sum
    }

    /// How many levels there are above its leaves.
    fn height(&self) -> u32 {
        match &self.body {
            Body::Leaf { .. } => 0,
            Body::Inner(children) => 1 + children[0].height(),
        }
    }

    /// The root above leaves, of which all but the last are full.
    fn of_leaves(mut level: Vec<Arc<Self>>) -> Self {
        while level.len() > 1 {
            level = level.chunks(FAN_OUT).map(|children| Arc::new(Self::inner(children.into()))).collect();
        }
        match level.pop() {
            Some(root) => Arc::unwrap_or_clone(root),
            None => Self::leaf(Box::default(), Stamps::uniform(0)),
        }
    }

    fn leaves(&self) -> Vec<&Self> {
        match &self.body {
            Body::Leaf { .. } => vec![self],
            Body::Inner(children) => children.iter().flat_map(|child| child.leaves()).collect(),
        }
    }

    /// The first `count` leaves; a root that is a leaf itself is copied.
    fn shared_leaves(&self, count: usize) -> Vec<Arc<Self>> {
        fn collect(chunk: &Arc<Chunk>, count: usize, leaves: &mut Vec<Arc<Chunk>>) {
            match &chunk.body {
                _ if leaves.len() == count => {}
                Body::Leaf { .. } => leaves.push(Arc::clone(chunk)),
                Body::Inner(children) => children.iter().for_each(|child| collect(child, count, leaves)),
            }
        }
        let mut leaves = Vec::with_capacity(count);
        if let Body::Inner(children) = &self.body {
            children.iter().for_each(|child| collect(child, count, &mut leaves));
        } else if count > 0 {
            leaves.push(Arc::new(self.clone()));
        }
        leaves
    }

    fn touched_since<'a>(&'a self, at: At, first: usize, height: u32, touched: &mut Vec<(usize, &'a Node, Stamp)>) {
        if self.sum.touched <= at {
            return;
        }
        match &self.body {
            Body::Leaf { items, stamps } => {
                for (index, item) in items.iter().enumerate() {
                    let stamp = stamps.get(index);
                    if stamp.changed > at || item.touched() > at {
                        touched.push((first + index, item, stamp));
                    }
                }
            }
            Body::Inner(children) => {
                let span = capacity(height - 1);
                for (index, child) in children.iter().enumerate() {
                    child.touched_since(at, first + index * span, height - 1, touched);
                }
            }
        }
    }

    fn change(&mut self, index: usize, height: u32, at: At, change: &mut dyn FnMut(&mut Node, &mut Stamp)) {
        self.known = Known::default();
        let (before, after) = match &mut self.body {
            Body::Leaf { items, stamps } => {
                let before = Sum::of(&items[index]);
                let mut stamp = stamps.get(index);
                change(&mut items[index], &mut stamp);
                stamps.set(index, items.len(), stamp);
                (before, Sum::of(&items[index]))
            }
            Body::Inner(children) => {
                let span = capacity(height - 1);
                let child = &mut children[index / span];
                let before = child.sum;
                child.fetch();
                Arc::make_mut(child).change(index % span, height - 1, at, change);
                (before, child.sum)
            }
        };
        if self.sum.exchange(&before, &after, at) {
            self.sum.depth = self.depth();
        }
    }

    /// Has what a copy of this node will share read from memory all at once. Counting the references to it, and digesting
    /// the copy, would wait for one after the other.
    fn fetch(&self) {
        let near: usize = match &self.body {
            Body::Leaf { items, .. } => items.iter().map(Node::fetch).sum(),
            Body::Inner(children) => {
                children.iter().map(|child| child.sum.len + usize::from(child.known.digest.get().is_some())).sum()
            }
        };
        std::hint::black_box(near);
    }

    fn depth(&self) -> u16 {
        match &self.body {
            Body::Leaf { items, .. } => items.iter().map(Node::depth).max().unwrap_or(0),
            Body::Inner(children) => children.iter().map(|child| child.sum.depth).max().unwrap_or(0),
        }
    }

    /// There must be room.
    fn push(&mut self, node: Node, height: u32, at: At) {
        self.known = Known::default();
        self.sum.add(&node);
        self.sum.touched = self.sum.touched.max(at);
        match &mut self.body {
            Body::Leaf { items, stamps } => {
                let len = items.len();
                stamps.insert(len, len, Stamp::new(at));
                *items = std::mem::take(items).into_iter().chain([node]).collect();
            }
            Body::Inner(children) => match children.last_mut() {
                Some(last) if last.sum.len < capacity(height - 1) => {
                    last.fetch();
                    Arc::make_mut(last).push(node, height - 1, at);
                }
                _ => {
                    let mut chain = Self::leaf(Box::new([node]), Stamps::uniform(at));
                    for _ in 1..height {
                        chain = Self::inner(Box::new([Arc::new(chain)]));
                    }
                    *children = std::mem::take(children).into_iter().chain([Arc::new(chain)]).collect();
                }
            },
        }
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    leaf: slice::Iter<'a, Node>,
    /// What is left of the nodes above.
    above: Vec<slice::Iter<'a, Arc<Chunk>>>,
    left: usize,
}

impl<'a> Elements<'a> {
    fn of(root: &'a Chunk) -> Self {
        let (leaf, above) = match &root.body {
            Body::Leaf { items, .. } => (items.iter(), Vec::new()),
            Body::Inner(children) => ([].iter(), vec![children.iter()]),
        };
        Self { leaf, above, left: root.sum.len }
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
