//! The parts of a container, in the order of the document or by how lately they changed; the latter is found by the
//! sums of its nodes and not by looking at all.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

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
    /// How many bytes all keys begin with together, at least.
    shared: usize,
}

/// Parts, or nodes with parts in them: none of them changed later or, at the same time, comes before what it names.
///
/// Small, because a heap moves them about.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    changed: At,
    ties: Ties,
    /// Which of its parts are left: neighbours that changed last at one time. They are not looked at to be sorted,
    /// because their order is known.
    run: Run,
    /// See [`What::number`].
    number: u64,
    what: What<'a>,
}

#[derive(Clone, Copy, Debug)]
enum What<'a> {
    /// Elements that one version made.
    Few(&'a [Node], At),
    /// Items or children of an array's node, with the index of the node's first element.
    Elements(&'a Chunk, usize),
    /// Entries of a bucket.
    Members(&'a Trie),
    /// A node of the trie; its children are in no order of keys.
    Trie(&'a Trie),
}

/// Which of a node's parts are left; a node has at most 32.
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

    /// The index that comes first, and the others.
    const fn split(self, ties: Ties) -> (usize, Self) {
        match ties {
            Ties::First => (self.from as usize, Self { from: self.from + 1, to: self.to }),
            Ties::Last => (self.to as usize - 1, Self { from: self.from, to: self.to - 1 }),
        }
    }

    const fn is_empty(self) -> bool {
        self.from == self.to
    }
}

impl<'a> What<'a> {
    /// What the first, or the last, of those left is called: by a number in which most names differ. It is the index,
    /// or the eight bytes of the key behind the `shared` ones that all keys begin with, zeros where it is shorter;
    /// where that is the same of two, their keys decide.
    fn number(self, run: Run, ties: Ties, shared: usize) -> u64 {
        let (index, _) = run.split(ties);
        match self {
            Self::Few(..) => return index as u64,
            Self::Elements(chunk, first) => {
                let start = start_of(chunk, first, index);
                return match ties {
                    Ties::First => start as u64,
                    Ties::Last => (start + len_of(chunk, index) - 1) as u64,
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

    /// The key of the first, or the last, of those left; none of elements.
    fn key(self, run: Run, ties: Ties) -> &'a str {
        let key = match (self, ties) {
            (Self::Few(..) | Self::Elements(..), _) => None,
            (Self::Members(trie), _) => entries(trie).0.get(run.split(ties).0).map(|(key, _)| key),
            (Self::Trie(trie), Ties::First) => trie.first(),
            (Self::Trie(trie), Ties::Last) => trie.last(),
        };
        key.map_or("", Key::as_str)
    }
}

/// What is in a bucket; nothing where it is none.
fn entries(trie: &Trie) -> (&[(Key, Node)], Option<&Stamps>) {
    match &trie.body {
        trie::Body::Bucket { entries, stamps } => (entries, Some(stamps)),
        trie::Body::Split(_) => (&[], None),
    }
}

/// The index of the first element of an item or child of a node that begins at `first`. All children but the last are
/// full.
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
        let key = |candidate: &Self| candidate.what.key(candidate.run, candidate.ties);
        self.changed.cmp(&other.changed).then_with(|| {
            let by_name = self.number.cmp(&other.number).then_with(|| key(self).cmp(key(other)));
            match self.ties {
                Ties::First => by_name.reverse(),
                Ties::Last => by_name,
            }
        })
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

    /// Returns its elements from an index on, or its members from a name on, in the order of the document; nothing for a
    /// scalar.
    pub fn parts_from<'a>(
        &'a self,
        index: usize,
        name: &'a str,
    ) -> Box<dyn Iterator<Item = (Step<'a>, &'a Self)> + 'a> {
        match self {
            Self::Array(array) => {
                Box::new((index..array.len()).map_while(|at| Some((Step::Index(at), array.get(at)?))))
            }
            Self::Object(object) => Box::new(object.iter_from(name).map(|(key, node)| (Step::Key(key), node))),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Its elements or members in the order of the document, of which only the first few are asked for; nothing for a
    /// scalar.
    pub fn first_parts(&self) -> impl Iterator<Item = (Step<'_>, &Self)> {
        // After this all are of one age.
        self.latest(At::MAX, Ties::First).map(|(step, node, _)| (step, node))
    }

    /// Its elements or members, that which changed last first, with their stamps; nothing for a scalar.
    ///
    /// A part changed when something was last put in its place or in it, but not before version `floor`, by which its
    /// container came to where it is ([`Stamp::under`]).
    pub fn latest(&self, floor: At, ties: Ties) -> Latest<'_> {
        /// What two levels of a way down take.
        const CANDIDATES: usize = 32;
        let best = BinaryHeap::with_capacity(self.part_count().min(CANDIDATES));
        let mut latest = Latest { best, floor, ties, shared: 0 };
        match self {
            Self::Array(array) => match array.top() {
                Top::Few(items, at) => latest.push_runs(What::Few(items, at), items.len(), at, |_| at),
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

impl<'a> Latest<'a> {
    /// How many nodes and parts were looked at and not yet asked for.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> usize {
        self.best.len()
    }

    fn candidate(&self, changed: At, run: Run, what: What<'a>) -> Candidate<'a> {
        let number = what.number(run, self.ties, self.shared);
        Candidate { changed, ties: self.ties, run, number, what }
    }

    fn push(&mut self, changed: At, run: Run, what: What<'a>) {
        let candidate = self.candidate(changed, run, what);
        self.best.push(candidate);
    }

    /// Takes in a node's parts, none of which changed after `touched`, as runs of those that changed at one time.
    fn push_runs(&mut self, what: What<'a>, len: usize, touched: At, changed: impl Fn(usize) -> At) {
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
        let (what, touched) = (What::Elements(chunk, first), chunk.sum().touched);
        match &chunk.body {
            chunk::Body::Leaf { items, stamps } => {
                let changed = |index: usize| stamps.get(index).changed.max(items[index].touched());
                self.push_runs(what, items.len(), touched, changed);
            }
            chunk::Body::Inner(children) => {
                self.push_runs(what, children.len(), touched, |index| children[index].sum().touched);
            }
        }
    }

    fn enter_trie(&mut self, trie: &'a Trie) {
        match &trie.body {
            trie::Body::Bucket { entries, stamps } => {
                let changed = |index: usize| stamps.get(index).changed.max(entries[index].1.touched());
                self.push_runs(What::Members(trie), entries.len(), trie.sum().touched, changed);
            }
            trie::Body::Split(split) => {
                for child in split.children.iter().flatten() {
                    match &child.body {
                        // All of one age: it is a run already.
                        trie::Body::Bucket { .. } if child.sum().touched <= self.floor => self.enter_trie(child),
                        _ => self.push(child.sum().touched.max(self.floor), Run::new(0, 1), What::Trie(child)),
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
            let Candidate { changed, run, what, .. } = *self.best.peek()?;
            let (index, rest) = run.split(self.ties);
            // What is left of a run often is the best again: then it need not move.
            let rest = (!rest.is_empty()).then(|| self.candidate(changed, rest, what));
            match (rest, self.best.peek_mut()) {
                (Some(rest), Some(mut best)) => *best = rest,
                (None, Some(best)) => drop(PeekMut::pop(best)),
                (_, None) => {}
            }
            match what {
                What::Trie(trie) => self.enter_trie(trie),
                What::Few(items, at) => {
                    return Some((Step::Index(index), &items[index], Stamp::new(at).under(self.floor)));
                }
                What::Members(trie) => {
                    let (entries, stamps) = entries(trie);
                    let ((key, node), stamps) = entries.get(index).zip(stamps)?;
                    return Some((Step::Key(key), node, stamps.get(index).under(self.floor)));
                }
                What::Elements(chunk, first) => {
                    let first = start_of(chunk, first, index);
                    match &chunk.body {
                        chunk::Body::Inner(children) => self.enter_chunk(&children[index], first),
                        chunk::Body::Leaf { items, stamps } => {
                            return Some((Step::Index(first), &items[index], stamps.get(index).under(self.floor)));
                        }
                    }
                }
            }
        }
    }
}
