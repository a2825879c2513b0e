//! Members of an object in key order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::slice;

use super::super::{Key, Node, equal_by_order};
use super::trie::{Body, Split, Trie};

/// Iterator over the members of an object in key order. The order is computed lazily.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    /// Remaining entries of an object with one bucket.
    bucket: slice::Iter<'a, (Key, Node)>,
    /// Remaining entries of each part of a larger object; the part with the smallest key is on top.
    parts: BinaryHeap<Reverse<Part<'a>>>,
    left: usize,
    /// Keys before this one are skipped.
    from: &'a str,
}

#[derive(Clone, Debug)]
struct Part<'a> {
    first: &'a Key,
    rest: Rest<'a>,
}

#[derive(Clone, Debug)]
enum Rest<'a> {
    Entries(&'a Node, slice::Iter<'a, (Key, Node)>),
    Split(&'a Split),
}

equal_by_order!(Part<'_>);

impl Ord for Part<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.first.cmp(other.first)
    }
}

impl<'a> Members<'a> {
    /// Returns the members of an empty object, or of one with this root.
    pub(super) fn new(root: Option<&'a Trie>) -> Self {
        Self::starting_at(root, "")
    }

    /// Skips the members before a key; `size_hint` counts them nevertheless.
    pub(super) fn starting_at(root: Option<&'a Trie>, from: &'a str) -> Self {
        let mut members = Self { bucket: [].iter(), parts: BinaryHeap::new(), left: 0, from };
        if let Some(root) = root {
            members.left = root.sum().len();
            match &root.body {
                Body::Bucket { entries, .. } => members.bucket = members.rest_of(entries),
                Body::Split(_) => members.enter(root),
            }
        }
        members
    }

    fn enter(&mut self, trie: &'a Trie) {
        match &trie.body {
            Body::Bucket { entries, .. } => self.go_on(self.rest_of(entries)),
            Body::Split(split) if split.last.as_str() < self.from => {}
            Body::Split(split) => self.parts.push(Reverse(Part { first: &split.first, rest: Rest::Split(split) })),
        }
    }

    fn rest_of(&self, entries: &'a [(Key, Node)]) -> slice::Iter<'a, (Key, Node)> {
        entries[entries.partition_point(|(key, _)| key.as_str() < self.from)..].iter()
    }

    fn go_on(&mut self, mut entries: slice::Iter<'a, (Key, Node)>) {
        if let Some((first, node)) = entries.next() {
            self.parts.push(Reverse(Part { first, rest: Rest::Entries(node, entries) }));
        }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a Key, &'a Node);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((key, node)) = self.bucket.next() {
            self.left -= 1;
            return Some((key, node));
        }
        loop {
            let Reverse(Part { first, rest }) = self.parts.pop()?;
            match rest {
                Rest::Entries(node, entries) => {
                    self.go_on(entries);
                    self.left -= 1;
                    return Some((first, node));
                }
                Rest::Split(split) => split.children.iter().flatten().for_each(|child| self.enter(child)),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Members<'_> {}
