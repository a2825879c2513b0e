//! Nodes of arrays: a dense radix tree by index, with a shape that depends on the length alone.

use triomphe::Arc;

use super::super::cached::Cached;
use super::super::stamp::{Revision, Stamp, Stamps};
use super::super::{Change, Node, Sum};

/// Maximum children of one node; also part of the digest's format.
pub(super) const FAN_OUT: usize = 16;

/// A node of the radix tree.
pub(in crate::tree) type Chunk = Cached<Body>;

#[derive(Clone, Debug)]
pub(in crate::tree) enum Body {
    Leaf { items: Box<[Node]>, stamps: Stamps },
    Inner(Box<[Arc<Chunk>]>),
}

/// Returns the number of levels of inner nodes above the leaves.
pub(super) fn height(len: usize) -> u32 {
    let mut height = 0;
    while capacity(height) < len {
        height += 1;
    }
    height
}

/// Returns the number of elements that a node of this height can hold.
pub(super) const fn capacity(height: u32) -> usize {
    FAN_OUT.saturating_pow(height + 1)
}

impl Chunk {
    pub(super) fn leaf(items: Box<[Node]>, stamps: Stamps) -> Self {
        let mut sum = Sum::from_nodes(&items);
        sum.modified_at = sum.modified_at.max(stamps.latest(items.len()));
        Self::new(sum, Body::Leaf { items, stamps })
    }

    pub(super) fn inner(children: Box<[Arc<Self>]>) -> Self {
        let mut sum = Sum::default();
        children.iter().for_each(|child| sum.join(&child.sum));
        Self::new(sum, Body::Inner(children))
    }

    /// Restores a stored node; `None` if no array can have it. `touched` is at least the latest change of its parts.
    pub(in crate::tree) fn restored(body: Body, touched: Revision) -> Option<Self> {
        let mut chunk = match body {
            Body::Leaf { items, stamps } if items.len() <= FAN_OUT => Self::leaf(items, stamps),
            Body::Inner(children) if (1..=FAN_OUT).contains(&children.len()) => {
                let height = children[0].height();
                let last = children.len() - 1;
                let is_dense = children.iter().enumerate().all(|(index, child)| {
                    let len = child.sum.len();
                    child.height() == height && len > 0 && (index == last || len == capacity(height))
                });
                is_dense.then(|| Self::inner(children))?
            }
            Body::Leaf { .. } | Body::Inner(_) => return None,
        };
        chunk.sum.modified_at = chunk.sum.modified_at.max(touched);
        Some(chunk)
    }

    /// Returns an element and its stamp; `self` must be a root.
    pub(super) fn slot(&self, index: usize) -> Option<(&Node, Stamp)> {
        if index >= self.sum.len() {
            return None;
        }
        let (mut chunk, mut index, mut below) = (self, index, height(self.sum.len()));
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

    /// Returns the elements with their stamps, in order.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&Node, Stamp)> {
        self.leaves().into_iter().flat_map(|leaf| match &leaf.body {
            Body::Leaf { items, stamps } => items.iter().zip(stamps.all(items.len())).collect::<Vec<_>>(),
            Body::Inner(_) => Vec::new(),
        })
    }

    /// Returns the number of levels above its leaves.
    pub(super) fn height(&self) -> u32 {
        match &self.body {
            Body::Leaf { .. } => 0,
            Body::Inner(children) => 1 + children[0].height(),
        }
    }

    /// Builds the root above leaves; all leaves but the last must be full.
    pub(super) fn of_leaves(mut level: Vec<Arc<Self>>) -> Self {
        while level.len() > 1 {
            level = level.chunks(FAN_OUT).map(|children| Arc::new(Self::inner(children.into()))).collect();
        }
        match level.pop() {
            Some(root) => Arc::unwrap_or_clone(root),
            None => Self::leaf(Box::default(), Stamps::One(0)),
        }
    }

    pub(super) fn leaves(&self) -> Vec<&Self> {
        match &self.body {
            Body::Leaf { .. } => vec![self],
            Body::Inner(children) => children.iter().flat_map(|child| child.leaves()).collect(),
        }
    }

    /// Returns the first `count` leaves; a root that is itself a leaf is copied.
    pub(super) fn shared_leaves(&self, count: usize) -> Vec<Arc<Self>> {
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

    pub(super) fn touched_since<'a>(
        &'a self,
        at: Revision,
        first: usize,
        height: u32,
        touched: &mut Vec<(usize, &'a Node, Stamp)>,
    ) {
        if self.sum.modified_at <= at {
            return;
        }
        match &self.body {
            Body::Leaf { items, stamps } => {
                for (index, item) in items.iter().enumerate() {
                    let stamp = stamps.get(index);
                    if stamp.changed > at || item.modified_at() > at {
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

    pub(super) fn change(&mut self, index: usize, height: u32, at: Revision, change: Change<'_>) {
        self.clear_cache();
        let (before, after) = match &mut self.body {
            Body::Leaf { items, stamps } => {
                let before = Sum::from_node(&items[index]);
                let mut stamp = stamps.get(index);
                change(&mut items[index], &mut stamp);
                stamps.set(index, items.len(), stamp);
                (before, Sum::from_node(&items[index]))
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

    /// Prefetches the memory that a copy of this node will share, all at once. Incrementing the reference counts and
    /// digesting the copy would otherwise incur one cache miss after another.
    fn fetch(&self) {
        let near: usize = match &self.body {
            Body::Leaf { items, .. } => items.iter().map(Node::fetch).sum(),
            Body::Inner(children) => {
                children.iter().map(|child| child.sum.len() + usize::from(child.digest.get().is_some())).sum()
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

    /// Appends an element; there must be room.
    pub(super) fn push(&mut self, node: Node, height: u32, at: Revision) {
        self.clear_cache();
        self.sum.add(&node);
        self.sum.modified_at = self.sum.modified_at.max(at);
        match &mut self.body {
            Body::Leaf { items, stamps } => {
                let len = items.len();
                stamps.insert(len, len, Stamp::new(at));
                *items = std::mem::take(items).into_iter().chain([node]).collect();
            }
            Body::Inner(children) => match children.last_mut() {
                Some(last) if last.sum.len() < capacity(height - 1) => {
                    last.fetch();
                    Arc::make_mut(last).push(node, height - 1, at);
                }
                _ => {
                    let mut chain = Self::leaf(Box::new([node]), Stamps::One(at));
                    for _ in 1..height {
                        chain = Self::inner(Box::new([Arc::new(chain)]));
                    }
                    *children = std::mem::take(children).into_iter().chain([Arc::new(chain)]).collect();
                }
            },
        }
    }
}
