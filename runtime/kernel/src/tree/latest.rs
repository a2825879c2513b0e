//! The parts of a container, in the order of the document or by how lately they changed; the latter is found by the
//! sums of its nodes and not by looking at all.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::stamp::{At, Stamp};
use super::{Key, Node, array, object};

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
    Chunk(&'a array::Chunk, usize),
    Trie(&'a object::Trie),
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
            Self::Array(array) => latest.enter_chunk(array.root(), 0),
            Self::Object(object) => latest.enter_trie(object.root()),
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

    fn push_part(&mut self, step: Step<'a>, node: &'a Node, stamp: Stamp) {
        self.push(stamp.changed.max(node.touched()), step, step, What::Part(step, node, stamp.under(self.floor)));
    }

    fn enter_chunk(&mut self, chunk: &'a array::Chunk, first: usize) {
        match &chunk.body {
            array::Body::Leaf { items, stamps } => {
                for (index, item) in items.iter().enumerate() {
                    self.push_part(Step::Index(first + index), item, stamps.get(index));
                }
            }
            array::Body::Inner(children) => {
                let mut from = first;
                for child in children {
                    let to = from + child.sum.len;
                    let what = What::Chunk(child, from);
                    self.push(child.sum.touched, Step::Index(from), Step::Index(to - 1), what);
                    from = to;
                }
            }
        }
    }

    fn enter_trie(&mut self, trie: &'a object::Trie) {
        match &trie.body {
            object::Body::Bucket { entries, stamps } => {
                for (index, (key, node)) in entries.iter().enumerate() {
                    self.push_part(Step::Key(key), node, stamps.get(index));
                }
            }
            object::Body::Split(split) => {
                for child in split.children.iter().flatten() {
                    if let (Some(first), Some(last)) = (child.first(), child.last()) {
                        self.push(child.sum.touched, Step::Key(first), Step::Key(last), What::Trie(child));
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
            }
        }
    }
}
