//! The parts of a container, in the order of the document or by how lately they changed; the latter is found by the
//! sums of its nodes and not by looking at all.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use super::array::Top;
use super::array::chunk::{self, Chunk};
use super::object::trie::{self, Trie};
use super::stamp::{At, Stamp, Stamps};
use super::{Key, Node};

/// What names a part in its container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step<'a> {
    /// The index of an element.
    Index(usize),
    /// The name of a member.
    Key(&'a Key),
}

/// Which of several parts that changed with one version comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ties {
    /// That with the lowest index or name.
    First,
    /// That with the highest.
    Last,
}

/// The parts of a container in the order of the document.
#[derive(Clone, Debug)]
pub enum Parts<'a> {
    /// There are none.
    None,
    /// Those of an array.
    Elements(std::iter::Enumerate<super::Elements<'a>>),
    /// Those of an object.
    Members(super::Members<'a>),
}

impl<'a> Iterator for Parts<'a> {
    type Item = (Step<'a>, &'a Node);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::None => None,
            Self::Elements(elements) => elements.next().map(|(index, node)| (Step::Index(index), node)),
            Self::Members(members) => members.next().map(|(key, node)| (Step::Key(key), node)),
        }
    }
}

/// The parts of a container, that which changed last first; as much of the order is worked out as is asked for.
///
/// The first `k` of `n` cost `k` times the logarithm of `n`.
#[derive(Clone, Debug)]
pub struct Latest<'a> {
    best: BinaryHeap<Candidate<'a>>,
    floor: At,
    ties: Ties,
}

/// A part, or a node with parts in it: none of them changed later or, at the same time, comes before what it names.
#[derive(Clone, Debug)]
struct Candidate<'a> {
    changed: At,
    order: Order<'a>,
    what: What<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Order<'a> {
    First(Reverse<Step<'a>>),
    Last(Step<'a>),
}

#[derive(Clone, Debug)]
enum What<'a> {
    Part(Step<'a>, &'a Node, Stamp),
    /// With the index of its first element.
    Chunk(&'a Chunk, usize),
    Trie(&'a Trie),
    /// Parts of a leaf that are all of one age, and which of them are left: they need not be looked at to be sorted.
    Run(Leaf<'a>, Range<usize>),
}

/// A node that has parts and no nodes below it.
#[derive(Clone, Copy, Debug)]
enum Leaf<'a> {
    /// With the index of the first element.
    Array(&'a [Node], &'a Stamps, usize),
    /// As one version made them.
    Few(&'a [Node], At),
    Object(&'a [(Key, Node)], &'a Stamps),
}

impl<'a> Leaf<'a> {
    const fn len(&self) -> usize {
        match self {
            Self::Array(items, ..) | Self::Few(items, _) => items.len(),
            Self::Object(entries, _) => entries.len(),
        }
    }

    fn step(&self, index: usize) -> Step<'a> {
        match self {
            Self::Array(_, _, first) => Step::Index(first + index),
            Self::Few(..) => Step::Index(index),
            Self::Object(entries, _) => Step::Key(&entries[index].0),
        }
    }

    fn part(&self, index: usize) -> (&'a Node, Stamp) {
        match self {
            Self::Array(items, stamps, _) => (&items[index], stamps.get(index)),
            Self::Few(items, at) => (&items[index], Stamp::new(*at)),
            Self::Object(entries, stamps) => (&entries[index].1, stamps.get(index)),
        }
    }
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate<'_> {}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.changed.cmp(&other.changed).then_with(|| self.order.cmp(&other.order))
    }
}

impl Node {
    /// What a decoded token of a JSON Pointer names in it, with its stamp. An index is written without leading zeros.
    pub fn part(&self, token: &str) -> Option<(Step<'_>, &Self, Stamp)> {
        match self {
            Self::Array(array) => {
                let index = super::index(token)?;
                array.slot(index).map(|(node, stamp)| (Step::Index(index), node, stamp))
            }
            Self::Object(object) => object.entry(token).map(|(key, node, stamp)| (Step::Key(key), node, stamp)),
            _ => None,
        }
    }

    /// Its elements or members in the order of the document; nothing for a scalar.
    pub fn parts(&self) -> Parts<'_> {
        match self {
            Self::Array(array) => Parts::Elements(array.iter().enumerate()),
            Self::Object(object) => Parts::Members(object.iter()),
            _ => Parts::None,
        }
    }

    /// Its elements or members, that which changed last first, with their stamps; nothing for a scalar.
    ///
    /// A part changed when something was last put in its place or in it, but not before version `floor`, by which its
    /// container came to where it is ([`Stamp::under`]).
    pub fn latest(&self, floor: At, ties: Ties) -> Latest<'_> {
        let mut latest = Latest { best: BinaryHeap::new(), floor, ties };
        match self {
            Self::Array(array) => match array.top() {
                Top::Few(items, at) => latest.enter_leaf(Leaf::Few(items, at), at),
                Top::Chunk(root) => latest.enter_chunk(root, 0),
            },
            Self::Object(object) => object.root().into_iter().for_each(|root| latest.enter_trie(root)),
            _ => {}
        }
        latest
    }
}

impl<'a> Latest<'a> {
    /// How many nodes and parts were looked at and not yet asked for.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> usize {
        self.best.len()
    }

    fn push(&mut self, changed: At, first: Step<'a>, last: Step<'a>, what: What<'a>) {
        let order = match self.ties {
            Ties::First => Order::First(Reverse(first)),
            Ties::Last => Order::Last(last),
        };
        self.best.push(Candidate { changed: changed.max(self.floor), order, what });
    }

    fn push_run(&mut self, leaf: Leaf<'a>, left: Range<usize>) {
        if !left.is_empty() {
            self.push(self.floor, leaf.step(left.start), leaf.step(left.end - 1), What::Run(leaf, left));
        }
    }

    fn enter_leaf(&mut self, leaf: Leaf<'a>, touched: At) {
        if touched <= self.floor {
            return self.push_run(leaf, 0..leaf.len());
        }
        for index in 0..leaf.len() {
            let (step, (node, stamp)) = (leaf.step(index), leaf.part(index));
            let changed = stamp.changed.max(node.touched());
            self.push(changed, step, step, What::Part(step, node, stamp.under(self.floor)));
        }
    }

    fn enter_chunk(&mut self, chunk: &'a Chunk, first: usize) {
        match &chunk.body {
            chunk::Body::Leaf { items, stamps } => {
                self.enter_leaf(Leaf::Array(items, stamps, first), chunk.sum().touched);
            }
            chunk::Body::Inner(children) => {
                let mut from = first;
                for child in children {
                    let to = from + child.sum().len();
                    let what = What::Chunk(child, from);
                    self.push(child.sum().touched, Step::Index(from), Step::Index(to - 1), what);
                    from = to;
                }
            }
        }
    }

    fn enter_trie(&mut self, trie: &'a Trie) {
        match &trie.body {
            trie::Body::Bucket { entries, stamps } => {
                self.enter_leaf(Leaf::Object(entries, stamps), trie.sum().touched);
            }
            trie::Body::Split(split) => {
                for child in split.children.iter().flatten() {
                    if let (Some(first), Some(last)) = (child.first(), child.last()) {
                        self.push(child.sum().touched, Step::Key(first), Step::Key(last), What::Trie(child));
                    }
                }
            }
        }
    }
}

impl<'a> Iterator for Latest<'a> {
    type Item = (Step<'a>, &'a Node, Stamp);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.best.pop()?.what {
                What::Part(step, node, stamp) => return Some((step, node, stamp)),
                What::Chunk(chunk, first) => self.enter_chunk(chunk, first),
                What::Trie(trie) => self.enter_trie(trie),
                What::Run(leaf, left) => {
                    let (index, left) = match self.ties {
                        Ties::First => (left.start, left.start + 1..left.end),
                        Ties::Last => (left.end - 1, left.start..left.end - 1),
                    };
                    self.push_run(leaf, left);
                    let (node, stamp) = leaf.part(index);
                    return Some((leaf.step(index), node, stamp.under(self.floor)));
                }
            }
        }
    }
}
