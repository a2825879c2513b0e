//! Nodes of objects: a small object is a bucket sorted by key, a larger one a trie over key hashes. The shape depends
//! on the key set alone.

use triomphe::Arc;

use super::super::cached::Cached;
use super::super::stamp::{Revision, Stamp, Stamps};
use super::super::{Change, Key, Node, Sum};
use crate::digest::Hasher;
use crate::json;

/// Salted hash of a key, if the object is so large that its nodes are found by it.
type Route<'r> = Option<&'r [u8; 32]>;

/// Maximum members of a bucket; also part of the digest's format.
pub(super) const BUCKET_MAX: usize = 32;

pub(in crate::tree) type Trie = Cached<Body>;

#[derive(Clone, Debug)]
pub(in crate::tree) enum Body {
    Bucket { entries: Box<[(Key, Node)]>, stamps: Stamps },
    Split(Box<Split>),
}

#[derive(Clone, Debug)]
pub(in crate::tree) struct Split {
    /// Children by the next nibble of the hashes of their keys.
    pub(in crate::tree) children: [Option<Arc<Trie>>; 16],
    /// The first and the last key in the order of keys.
    pub(super) first: Key,
    pub(super) last: Key,
    /// Hasher for keys. It is the board's, stored here so that a lookup does not need it as an argument.
    hasher: std::sync::Arc<Hasher>,
}

/// A member with its stamp, outside of a trie.
pub(super) type Entry = (Key, Node, Stamp);

fn nibble(route: &[u8; 32], at: usize) -> usize {
    let byte = route[at / 2];
    usize::from(if at.is_multiple_of(2) { byte >> 4 } else { byte & 0x0f })
}

fn find(entries: &[(Key, Node)], key: &str) -> Result<usize, usize> {
    entries.binary_search_by(|(mine, _)| mine.as_str().cmp(key))
}

/// A bucket without members.
impl Default for Trie {
    fn default() -> Self {
        Self::bucket(Vec::new())
    }
}

impl Trie {
    fn bucket(entries: Vec<Entry>) -> Self {
        let stamps = Stamps::from_stamps(&entries.iter().map(|(_, _, stamp)| *stamp).collect::<Vec<_>>());
        Self::bucket_of(entries.into_iter().map(|(key, node, _)| (key, node)).collect(), stamps)
    }

    fn bucket_of(entries: Box<[(Key, Node)]>, stamps: Stamps) -> Self {
        let mut sum = Sum { modified_at: stamps.latest(entries.len()), ..Sum::default() };
        for (key, node) in &*entries {
            sum.add(node);
            sum.bytes += json::text_size(key) + 1;
        }
        Self::new(sum, Body::Bucket { entries, stamps })
    }

    /// Builds the node of members that are sorted by key and have hashes with equal first `depth` nibbles.
    pub(super) fn of_entries(entries: Vec<Entry>, depth: usize, hasher: &std::sync::Arc<Hasher>) -> Self {
        if entries.len() <= BUCKET_MAX {
            return Self::bucket(entries);
        }
        let entries = entries.into_iter().map(|entry| (hasher.route(&entry.0), entry)).collect();
        Self::of_routed(entries, depth, hasher)
    }

    fn of_routed(entries: Vec<([u8; 32], Entry)>, depth: usize, hasher: &std::sync::Arc<Hasher>) -> Self {
        if entries.len() <= BUCKET_MAX {
            return Self::bucket(entries.into_iter().map(|(_, entry)| entry).collect());
        }
        let mut groups: [Vec<([u8; 32], Entry)>; 16] = Default::default();
        for entry in entries {
            groups[nibble(&entry.0, depth)].push(entry);
        }
        let group = |group: Vec<_>| (!group.is_empty()).then(|| Arc::new(Self::of_routed(group, depth + 1, hasher)));
        Self::split(groups.map(group), hasher)
    }

    fn split(children: [Option<Arc<Self>>; 16], hasher: &std::sync::Arc<Hasher>) -> Self {
        let mut sum = Sum::default();
        children.iter().flatten().for_each(|child| sum.join(&child.sum));
        let (first, last) = (first_of(&children), last_of(&children));
        let split = Split { children, first, last, hasher: std::sync::Arc::clone(hasher) };
        Self::new(sum, Body::Split(Box::new(split)))
    }

    /// Restores a stored bucket; `None` if no object can have it. `touched` is at least the latest change of its
    /// members.
    pub(in crate::tree) fn restored_bucket(
        entries: Box<[(Key, Node)]>,
        stamps: Stamps,
        touched: Revision,
    ) -> Option<Self> {
        let is_sorted = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if entries.len() > BUCKET_MAX || !is_sorted {
            return None;
        }
        let mut bucket = Self::bucket_of(entries, stamps);
        bucket.sum.modified_at = bucket.sum.modified_at.max(touched);
        Some(bucket)
    }

    /// Like [`Self::restored_bucket`], for a split. Does not check the positions of members against the hashes of their
    /// keys.
    pub(in crate::tree) fn restored_split(
        children: [Option<Arc<Self>>; 16],
        hasher: &std::sync::Arc<Hasher>,
        touched: Revision,
    ) -> Option<Self> {
        let mut split = Self::split(children, hasher);
        let has_empty = children_of(&split).any(|child| child.sum.len == 0);
        split.sum.modified_at = split.sum.modified_at.max(touched);
        (split.sum.len() > BUCKET_MAX && !has_empty).then_some(split)
    }

    /// Returns the member with this key; `self` must be a root.
    pub(super) fn entry(&self, key: &str) -> Option<(&Key, &Node, Stamp)> {
        let mut trie = self;
        let mut route = None;
        for depth in 0.. {
            match &trie.body {
                Body::Bucket { entries, stamps } => {
                    let index = find(entries, key).ok()?;
                    return Some((&entries[index].0, &entries[index].1, stamps.get(index)));
                }
                Body::Split(split) => {
                    let route = route.get_or_insert_with(|| split.hasher.route(key));
                    trie = split.children[nibble(route, depth)].as_ref()?;
                }
            }
        }
        None
    }

    pub(in crate::tree) fn first(&self) -> Option<&Key> {
        match &self.body {
            Body::Bucket { entries, .. } => entries.first().map(|(key, _)| key),
            Body::Split(split) => Some(&split.first),
        }
    }

    pub(in crate::tree) fn last(&self) -> Option<&Key> {
        match &self.body {
            Body::Bucket { entries, .. } => entries.last().map(|(key, _)| key),
            Body::Split(split) => Some(&split.last),
        }
    }

    pub(super) fn touched_since<'a>(&'a self, at: Revision, touched: &mut Vec<(&'a Key, &'a Node, Stamp)>) {
        if self.sum.modified_at <= at {
            return;
        }
        match &self.body {
            Body::Bucket { entries, stamps } => {
                for (index, (key, node)) in entries.iter().enumerate() {
                    let stamp = stamps.get(index);
                    if stamp.changed > at || node.modified_at() > at {
                        touched.push((key, node, stamp));
                    }
                }
            }
            Body::Split(split) => {
                split.children.iter().flatten().for_each(|child| child.touched_since(at, touched));
            }
        }
    }

    fn entries(&self, into: &mut Vec<Entry>) {
        match &self.body {
            Body::Bucket { entries, stamps } => {
                let stamps = stamps.all(entries.len());
                into.extend(entries.iter().zip(stamps).map(|((key, node), stamp)| (key.clone(), node.clone(), stamp)));
            }
            Body::Split(split) => split.children.iter().flatten().for_each(|child| child.entries(into)),
        }
    }

    pub(super) fn change(&mut self, key: &str, route: Route<'_>, depth: usize, at: Revision, change: Change<'_>) {
        self.clear_cache();
        let (before, after) = match &mut self.body {
            Body::Bucket { entries, stamps } => {
                let index = find(entries, key).expect("the member was found before");
                let node = &mut entries[index].1;
                let before = Sum::from_node(node);
                let mut stamp = stamps.get(index);
                change(node, &mut stamp);
                let after = Sum::from_node(node);
                stamps.set(index, entries.len(), stamp);
                (before, after)
            }
            Body::Split(split) => {
                let route = route.copied().unwrap_or_else(|| split.hasher.route(key));
                let child = split.children[nibble(&route, depth)].as_mut().expect("the member was found before");
                let before = child.sum;
                Arc::make_mut(child).change(key, Some(&route), depth + 1, at, change);
                (before, child.sum)
            }
        };
        if self.sum.exchange(&before, &after, at) {
            self.sum.depth = self.depth();
        }
    }

    fn depth(&self) -> u16 {
        match &self.body {
            Body::Bucket { entries, .. } => entries.iter().map(|(_, node)| node.depth()).max().unwrap_or(0),
            Body::Split(split) => split.children.iter().flatten().map(|child| child.sum.depth).max().unwrap_or(0),
        }
    }

    fn touched(&self) -> Revision {
        match &self.body {
            Body::Bucket { entries, stamps } => {
                entries.iter().map(|(_, node)| node.modified_at()).fold(stamps.latest(entries.len()), Revision::max)
            }
            Body::Split(split) => split.children.iter().flatten().map(|child| child.sum.modified_at).max().unwrap_or(0),
        }
    }

    pub(super) fn insert(
        &mut self,
        key: Key,
        node: Node,
        route: Route<'_>,
        depth: usize,
        at: Revision,
        hasher: &std::sync::Arc<Hasher>,
    ) {
        self.clear_cache();
        self.sum.add(&node);
        self.sum.bytes += json::text_size(&key) + 1;
        self.sum.modified_at = self.sum.modified_at.max(at);
        match &mut self.body {
            Body::Bucket { entries, stamps } if entries.len() < BUCKET_MAX => {
                let index = find(entries, &key).expect_err("the member is new");
                stamps.insert(index, entries.len(), Stamp::new(at));
                let mut all = std::mem::take(entries).into_vec();
                all.insert(index, (key, node));
                *entries = all.into();
            }
            Body::Bucket { .. } => {
                let mut entries = Vec::with_capacity(BUCKET_MAX + 1);
                self.entries(&mut entries);
                let index = entries.binary_search_by(|(mine, ..)| mine.cmp(&key)).expect_err("the member is new");
                entries.insert(index, (key, node, Stamp::new(at)));
                *self = Self::of_entries(entries, depth, hasher);
            }
            Body::Split(split) => {
                let route = route.copied().unwrap_or_else(|| split.hasher.route(&key));
                if key < split.first {
                    split.first = key.clone();
                } else if key > split.last {
                    split.last = key.clone();
                }
                match &mut split.children[nibble(&route, depth)] {
                    Some(child) => Arc::make_mut(child).insert(key, node, Some(&route), depth + 1, at, hasher),
                    vacant => *vacant = Some(Arc::new(Self::bucket(vec![(key, node, Stamp::new(at))]))),
                }
            }
        }
    }

    pub(super) fn remove(&mut self, key: &str, route: Route<'_>, depth: usize) -> (Node, Stamp) {
        self.clear_cache();
        let removed = match &mut self.body {
            Body::Bucket { entries, stamps } => {
                let index = find(entries, key).expect("the member was found before");
                let stamp = stamps.remove(index, entries.len());
                let mut all = std::mem::take(entries).into_vec();
                let (_, node) = all.remove(index);
                *entries = all.into();
                (node, stamp)
            }
            Body::Split(split) => {
                let route = route.copied().unwrap_or_else(|| split.hasher.route(key));
                let place = &mut split.children[nibble(&route, depth)];
                let child = place.as_mut().expect("the member was found before");
                let removed = Arc::make_mut(child).remove(key, Some(&route), depth + 1);
                if child.sum.len == 0 {
                    *place = None;
                }
                if *split.first == *key && self.sum.len() > BUCKET_MAX + 1 {
                    split.first = first_of(&split.children);
                } else if *split.last == *key && self.sum.len() > BUCKET_MAX + 1 {
                    split.last = last_of(&split.children);
                }
                removed
            }
        };
        self.sum.len -= 1;
        self.sum.bytes -= json::text_size(key) + 1 + removed.0.bytes();
        // Recomputed from the remaining parts: the object records the removal itself, and counting it here would
        // mislead `part_iter`.
        self.sum.modified_at = self.touched();
        if removed.0.depth() == self.sum.depth {
            self.sum.depth = self.depth();
        }
        if self.sum.len() <= BUCKET_MAX && matches!(self.body, Body::Split(_)) {
            let mut entries = Vec::with_capacity(self.sum.len());
            self.entries(&mut entries);
            entries.sort_unstable_by(|(a, ..), (b, ..)| a.cmp(b));
            *self = Self::bucket(entries);
        }
        removed
    }
}

fn children_of(trie: &Trie) -> impl Iterator<Item = &Arc<Trie>> {
    match &trie.body {
        Body::Bucket { .. } => None,
        Body::Split(split) => Some(split.children.iter().flatten()),
    }
    .into_iter()
    .flatten()
}

fn first_of(children: &[Option<Arc<Trie>>; 16]) -> Key {
    children.iter().flatten().filter_map(|child| child.first()).min().cloned().unwrap_or_default()
}

fn last_of(children: &[Option<Arc<Trie>>; 16]) -> Key {
    children.iter().flatten().filter_map(|child| child.last()).max().cloned().unwrap_or_default()
}
