//! Iterates over the parts of a container, in document order or by latest change. The latter uses the sums of nodes and
//! does not visit all parts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use jsonptr::{Pointer, PointerBuf};

use super::array::Top;
use super::array::chunk::{self, Chunk};
use super::object::trie::{self, Trie};
use super::stamp::{Revision, Stamp, Stamps};
use super::{Key, Node, equal_by_order};

/// Name of a part in its container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathSegment<'a> {
    /// The index of an element.
    Index(usize),
    /// The name of a member.
    Key(&'a Key),
}

impl PathSegment<'_> {
    /// Returns the place of the part in a container.
    pub(crate) fn below(self, container: &Pointer) -> PointerBuf {
        match self {
            Self::Index(index) => container.with_trailing_token(index),
            Self::Key(key) => container.with_trailing_token(key.as_str()),
        }
    }
}

/// Order of parts that changed with the same version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TieOrder {
    /// The lowest index or name first.
    First,
    /// The highest index or name first.
    Last,
}

/// Iterator over the parts of a container in document order.
#[derive(Clone, Debug)]
pub enum Parts<'a> {
    /// No parts.
    None,
    /// Elements of an array.
    Elements(std::iter::Enumerate<super::Elements<'a>>),
    /// Members of an object.
    Members(super::Members<'a>),
}

impl<'a> Iterator for Parts<'a> {
    type Item = (PathSegment<'a>, &'a Node);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::None => None,
            Self::Elements(elements) => elements.next().map(|(index, node)| (PathSegment::Index(index), node)),
            Self::Members(members) => members.next().map(|(key, node)| (PathSegment::Key(key), node)),
        }
    }
}

/// Iterator over the parts of a container, latest change first. The order is computed lazily.
///
/// The first `k` of `n` parts cost `k` times the logarithm of `n`.
#[derive(Clone, Debug)]
pub struct LatestFirst<'a> {
    best: BinaryHeap<Candidate<'a>>,
    floor: Revision,
    ties: TieOrder,
    /// Lower bound of the length of the common prefix of all keys, in bytes.
    shared: usize,
}

/// A run of parts, or of nodes with parts. None of them changed later than `changed`, or comes before the part of
/// `number` among those that changed then.
///
/// Small, because a heap moves it around.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    changed: Revision,
    ties: TieOrder,
    /// Remaining parts: neighbours that last changed with one version. Their order is known, so they are not sorted.
    run: Run,
    /// See [`PartSource::number`].
    number: u64,
    what: PartSource<'a>,
}

#[derive(Clone, Copy, Debug)]
enum PartSource<'a> {
    /// Elements that one version created.
    Few(&'a [Node], Revision),
    /// Items or children of an array's node, with the index of the node's first element.
    Elements(&'a Chunk, usize),
    /// Entries of a bucket.
    Members(&'a Trie),
    /// A node of the trie; its children are not in key order.
    Trie(&'a Trie),
}

/// Range of a node's remaining parts; a node has at most 32.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u8,
    to: u8,
}

impl Run {
    /// # Panics
    /// Never: no node has 256 parts.
    fn new(from: usize, to: usize) -> Self {
        let short = |index: usize| u8::try_from(index).expect("a node has at most 32 parts");
        Self { from: short(from), to: short(to) }
    }

    /// Returns the first index, and the rest of the run.
    const fn split(self, ties: TieOrder) -> (usize, Self) {
        match ties {
            TieOrder::First => (self.from as usize, Self { from: self.from + 1, to: self.to }),
            TieOrder::Last => (self.to as usize - 1, Self { from: self.from, to: self.to - 1 }),
        }
    }

    const fn is_empty(self) -> bool {
        self.from == self.to
    }
}

impl<'a> PartSource<'a> {
    /// Returns a number that orders most names: of the first or last remaining part, depending on `ties`. It is the
    /// index, or the eight key bytes after the common prefix of `shared` bytes, zero-padded. Keys with equal numbers
    /// are compared.
    fn number(self, run: Run, ties: TieOrder, shared: usize) -> u64 {
        let (index, _) = run.split(ties);
        match self {
            Self::Few(..) => return index as u64,
            Self::Elements(chunk, first) => {
                let start = start_of(chunk, first, index);
                return match ties {
                    TieOrder::First => start as u64,
                    TieOrder::Last => (start + len_of(chunk, index) - 1) as u64,
                };
            }
            Self::Members(_) | Self::Trie(_) => {}
        }
        let mut number = [0; 8];
        let rest = self.key(run, ties).as_bytes().get(shared..).unwrap_or_default();
        let len = rest.len().min(number.len());
        number[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(number)
    }

    /// Returns the key of the first or last remaining part; empty for elements.
    fn key(self, run: Run, ties: TieOrder) -> &'a str {
        let key = match (self, ties) {
            (Self::Few(..) | Self::Elements(..), _) => None,
            (Self::Members(trie), _) => entries(trie).0.get(run.split(ties).0).map(|(key, _)| key),
            (Self::Trie(trie), TieOrder::First) => trie.first(),
            (Self::Trie(trie), TieOrder::Last) => trie.last(),
        };
        key.map_or("", Key::as_str)
    }
}

/// Returns the entries of a bucket; empty for another node.
fn entries(trie: &Trie) -> (&[(Key, Node)], Option<&Stamps>) {
    match &trie.body {
        trie::Body::Bucket { entries, stamps } => (entries, Some(stamps)),
        trie::Body::Split(_) => (&[], None),
    }
}

/// Returns the index of the first element of an item or child, in a node that begins at `first`. All children but the
/// last are full.
fn start_of(chunk: &Chunk, first: usize, index: usize) -> usize {
    match &chunk.body {
        chunk::Body::Leaf { .. } => first + index,
        chunk::Body::Inner(children) => first + index * children[0].sum().len(),
    }
}

fn len_of(chunk: &Chunk, index: usize) -> usize {
    match &chunk.body {
        chunk::Body::Leaf { .. } => 1,
        chunk::Body::Inner(children) => children[index].sum().len(),
    }
}

equal_by_order!(Candidate<'_>);

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |candidate: &Self| candidate.what.key(candidate.run, candidate.ties);
        self.changed.cmp(&other.changed).then_with(|| {
            let by_name = self.number.cmp(&other.number).then_with(|| key(self).cmp(key(other)));
            match self.ties {
                TieOrder::First => by_name.reverse(),
                TieOrder::Last => by_name,
            }
        })
    }
}

impl Node {
    /// Returns the part that a decoded JSON Pointer token names, with its stamp. An index has no leading zeros.
    pub fn part(&self, token: &str) -> Option<(PathSegment<'_>, &Self, Stamp)> {
        match self {
            Self::Array(array) => {
                let index = super::index(token)?;
                array.slot(index).map(|(node, stamp)| (PathSegment::Index(index), node, stamp))
            }
            Self::Object(object) => object.entry(token).map(|(key, node, stamp)| (PathSegment::Key(key), node, stamp)),
            _ => None,
        }
    }

    /// Returns the elements or members in document order; empty for a scalar.
    pub fn parts(&self) -> Parts<'_> {
        match self {
            Self::Array(array) => Parts::Elements(array.iter().enumerate()),
            Self::Object(object) => Parts::Members(object.iter()),
            _ => Parts::None,
        }
    }

    /// Returns the elements from an index on, or the members from a name on, in document order; empty for a scalar.
    pub fn parts_from<'a>(
        &'a self,
        index: usize,
        name: &'a str,
    ) -> Box<dyn Iterator<Item = (PathSegment<'a>, &'a Self)> + 'a> {
        match self {
            Self::Array(array) => {
                Box::new((index..array.len()).map_while(|at| Some((PathSegment::Index(at), array.get(at)?))))
            }
            Self::Object(object) => Box::new(object.iter_from(name).map(|(key, node)| (PathSegment::Key(key), node))),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Returns the elements or members in document order, for callers that need only the first few; empty for a scalar.
    pub fn first_parts(&self) -> impl Iterator<Item = (PathSegment<'_>, &Self)> {
        // With this floor all parts have the same age.
        self.latest(Revision::MAX, TieOrder::First).map(|(step, node, _)| (step, node))
    }

    /// Returns the elements or members with their stamps, latest change first; empty for a scalar.
    ///
    /// A part changed when a value was last put at its place or inside it, but not before version `floor`. `floor` is
    /// the version that put its container at its place ([`Stamp::under`]).
    pub fn latest(&self, floor: Revision, ties: TieOrder) -> LatestFirst<'_> {
        /// Enough for two levels of descent.
        const CANDIDATES: usize = 32;
        let best = BinaryHeap::with_capacity(self.part_count().min(CANDIDATES));
        let mut latest = LatestFirst { best, floor, ties, shared: 0 };
        match self {
            Self::Array(array) => match array.top() {
                Top::Few(items, at) => latest.push_runs(PartSource::Few(items, at), items.len(), at, |_| at),
                Top::Chunk(root) => latest.enter_chunk(root, 0),
            },
            Self::Object(object) => {
                if let Some(trie) = object.root() {
                    if let (Some(first), Some(last)) = (trie.first(), trie.last()) {
                        latest.shared = first.bytes().zip(last.bytes()).take_while(|(one, other)| one == other).count();
                    }
                    latest.enter_trie(trie);
                }
            }
            _ => {}
        }
        latest
    }
}

impl<'a> LatestFirst<'a> {
    /// Returns the number of nodes and parts that were visited and not yet returned.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> usize {
        self.best.len()
    }

    fn candidate(&self, changed: Revision, run: Run, what: PartSource<'a>) -> Candidate<'a> {
        let number = what.number(run, self.ties, self.shared);
        Candidate { changed, ties: self.ties, run, number, what }
    }

    fn push(&mut self, changed: Revision, run: Run, what: PartSource<'a>) {
        let candidate = self.candidate(changed, run, what);
        self.best.push(candidate);
    }

    /// Adds a node's parts, unchanged after `touched`, as runs of parts with the same change.
    fn push_runs(&mut self, what: PartSource<'a>, len: usize, touched: Revision, changed: impl Fn(usize) -> Revision) {
        if touched <= self.floor {
            if len > 0 {
                self.push(self.floor, Run::new(0, len), what);
            }
            return;
        }
        let mut from = 0;
        let mut next = (len > 0).then(|| changed(0).max(self.floor));
        while let Some(at) = next {
            let mut to = from;
            while next == Some(at) {
                to += 1;
                next = (to < len).then(|| changed(to).max(self.floor));
            }
            self.push(at, Run::new(from, to), what);
            from = to;
        }
    }

    fn enter_chunk(&mut self, chunk: &'a Chunk, first: usize) {
        let (what, touched) = (PartSource::Elements(chunk, first), chunk.sum().modified_at);
        match &chunk.body {
            chunk::Body::Leaf { items, stamps } => {
                let changed = |index: usize| stamps.get(index).changed.max(items[index].modified_at());
                self.push_runs(what, items.len(), touched, changed);
            }
            chunk::Body::Inner(children) => {
                self.push_runs(what, children.len(), touched, |index| children[index].sum().modified_at);
            }
        }
    }

    fn enter_trie(&mut self, trie: &'a Trie) {
        match &trie.body {
            trie::Body::Bucket { entries, stamps } => {
                let changed = |index: usize| stamps.get(index).changed.max(entries[index].1.modified_at());
                self.push_runs(PartSource::Members(trie), entries.len(), trie.sum().modified_at, changed);
            }
            trie::Body::Split(split) => {
                for child in split.children.iter().flatten() {
                    match &child.body {
                        // All parts have the same age, so they are already a run.
                        trie::Body::Bucket { .. } if child.sum().modified_at <= self.floor => self.enter_trie(child),
                        _ => {
                            self.push(child.sum().modified_at.max(self.floor), Run::new(0, 1), PartSource::Trie(child))
                        }
                    }
                }
            }
        }
    }
}

impl<'a> Iterator for LatestFirst<'a> {
    type Item = (PathSegment<'a>, &'a Node, Stamp);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Candidate { changed, run, what, .. } = *self.best.peek()?;
            let (index, rest) = run.split(self.ties);
            // The rest of a run is often the best candidate again, and then need not move.
            let rest = (!rest.is_empty()).then(|| self.candidate(changed, rest, what));
            match (rest, self.best.peek_mut()) {
                (Some(rest), Some(mut best)) => *best = rest,
                (None, Some(best)) => drop(PeekMut::pop(best)),
                (_, None) => {}
            }
            match what {
                PartSource::Trie(trie) => self.enter_trie(trie),
                PartSource::Few(items, at) => {
                    return Some((PathSegment::Index(index), &items[index], Stamp::new(at).under(self.floor)));
                }
                PartSource::Members(trie) => {
                    let (entries, stamps) = entries(trie);
                    let ((key, node), stamps) = entries.get(index).zip(stamps)?;
                    return Some((PathSegment::Key(key), node, stamps.get(index).under(self.floor)));
                }
                PartSource::Elements(chunk, first) => {
                    let first = start_of(chunk, first, index);
                    match &chunk.body {
                        chunk::Body::Inner(children) => self.enter_chunk(&children[index], first),
                        chunk::Body::Leaf { items, stamps } => {
                            let stamp = stamps.get(index).under(self.floor);
                            return Some((PathSegment::Index(first), &items[index], stamp));
                        }
                    }
                }
            }
        }
    }
}
