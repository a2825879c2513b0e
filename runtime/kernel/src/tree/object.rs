//! Objects: a bucket sorted by key while small, else a trie on the hash of the key, whose shape depends on the key set
//! alone.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::slice;
use std::sync::Arc;

use super::stamp::{self, At, Loss, Losses, Stamp, Stamps};
use super::{Key, Known, Node, Sum};
use crate::digest::Hasher;
use crate::json;

/// Members that a bucket holds at most; also part of the digest's format.
pub(super) const BUCKET_MAX: usize = 32;

/// An object.
#[derive(Clone, Debug)]
pub struct Object {
    /// The version by which a member last came or went.
    members: At,
    losses: Losses,
    root: Trie,
}

/// A node of the trie.
#[derive(Clone, Debug)]
pub(super) struct Trie {
    pub(super) known: Known,
    pub(super) sum: Sum,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Bucket { entries: Box<[(Key, Node)]>, stamps: Stamps },
    Split(Box<Split>),
}

#[derive(Clone, Debug)]
pub(super) struct Split {
    /// By the next nibble of the hashes of their keys.
    pub(super) children: [Option<Arc<Trie>>; 16],
    /// The first and the last key in the order of keys.
    first: Key,
    last: Key,
    /// What hashes keys. It is the board's, and here so that a member can be found without it at hand.
    hasher: Arc<Hasher>,
}

/// A member with its stamp, outside of a trie.
type Entry = (Key, Node, Stamp);

fn nibble(route: &[u8; 32], at: usize) -> usize {
    let byte = route[at / 2];
    usize::from(if at.is_multiple_of(2) { byte >> 4 } else { byte & 0x0f })
}

/// Bytes of a member as compact JSON, without its comma.
fn entry_bytes(key: &str, node: &Node) -> u64 {
    json::text_size(key) + 1 + node.bytes()
}

impl Object {
    /// An object made by version `at`. Of members with one key the last one stays.
    pub(super) fn new(mut members: Vec<(Key, Node)>, at: At, hasher: &Arc<Hasher>) -> Self {
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        // `dedup_by` drops the later one of two; what is wanted is the last.
        members.reverse();
        members.dedup_by(|(later, _), (kept, _)| later == kept);
        members.reverse();
        let entries = members.into_iter().map(|(key, node)| (key, node, Stamp::new(at))).collect();
        Self { members: at, losses: Losses::default(), root: Trie::of_entries(entries, 0, hasher) }
    }

    /// How many members it has.
    pub const fn len(&self) -> usize {
        self.root.sum.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
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
        let mut trie = &self.root;
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

    /// The members in the order of their keys.
    pub fn iter(&self) -> Members<'_> {
        let mut members = Members { bucket: [].iter(), parts: BinaryHeap::new(), left: self.len() };
        match &self.root.body {
            Body::Bucket { entries, .. } => members.bucket = entries.iter(),
            Body::Split(_) => members.enter(&self.root),
        }
        members
    }

    /// The version by which a member last came or went.
    pub const fn members_changed(&self) -> At {
        self.members
    }

    /// When last a member went away that was there at version `read`.
    pub fn lost_since(&self, read: At) -> Option<At> {
        self.losses.since(read)
    }

    /// When last this member, which was there at version `read`, went away; none also where that is not known any more.
    pub fn member_lost_since(&self, key: &str, read: At) -> Option<At> {
        self.losses.of_member(key, read)
    }

    /// The members that changed after a version, wholly or inside, in the order of their keys, with their stamps.
    pub fn touched_since(&self, at: At) -> Vec<(&Key, &Node, Stamp)> {
        let mut touched = Vec::new();
        self.root.touched_since(at, &mut touched);
        touched.sort_unstable_by_key(|(key, ..)| *key);
        touched
    }

    pub(super) const fn sum(&self) -> &Sum {
        &self.root.sum
    }

    pub(super) const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// An object as it was stored.
    pub(super) const fn restored(members: At, losses: Losses, root: Trie) -> Self {
        Self { members, losses, root }
    }

    pub(super) const fn root(&self) -> &Trie {
        &self.root
    }

    // Edits; each counts as made by version `at`.

    /// Lets a member and its stamp be changed.
    ///
    /// # Panics
    /// If there is no such member.
    pub(super) fn change(&mut self, key: &str, at: At, change: &mut dyn FnMut(&mut Node, &mut Stamp)) {
        self.root.change(key, None, 0, at, change);
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, key: Key, node: Node, at: At, hasher: &Arc<Hasher>) {
        self.root.insert(key, node, None, 0, at, hasher);
        self.members = at;
    }

    /// # Panics
    /// If there is no such member.
    pub(super) fn remove(&mut self, key: &str, at: At) -> Node {
        let (node, stamp) = self.root.remove(key, None, 0);
        self.losses.note(Loss { from: 0, member: stamp::member(key), born: stamp.born, at });
        self.members = at;
        node
    }
}

fn find(entries: &[(Key, Node)], key: &str) -> Result<usize, usize> {
    entries.binary_search_by(|(mine, _)| mine.as_str().cmp(key))
}

impl Trie {
    fn bucket(entries: Vec<Entry>) -> Self {
        let stamps = Stamps::of(entries.iter().map(|(_, _, stamp)| *stamp).collect());
        Self::bucket_of(entries.into_iter().map(|(key, node, _)| (key, node)).collect(), stamps)
    }

    fn bucket_of(entries: Box<[(Key, Node)]>, stamps: Stamps) -> Self {
        let mut sum = Sum { touched: stamps.latest(entries.len()), ..Sum::default() };
        for (key, node) in &*entries {
            sum.add(node);
            sum.bytes += json::text_size(key) + 1;
        }
        Self { known: Known::default(), sum, body: Body::Bucket { entries, stamps } }
    }

    /// The node of members, sorted by key, whose routes agree in the first `depth` nibbles.
    fn of_entries(entries: Vec<Entry>, depth: usize, hasher: &Arc<Hasher>) -> Self {
        if entries.len() <= BUCKET_MAX {
            return Self::bucket(entries);
        }
        let entries = entries.into_iter().map(|entry| (hasher.route(&entry.0), entry)).collect();
        Self::of_routed(entries, depth, hasher)
    }

    fn of_routed(entries: Vec<([u8; 32], Entry)>, depth: usize, hasher: &Arc<Hasher>) -> Self {
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

    fn split(children: [Option<Arc<Self>>; 16], hasher: &Arc<Hasher>) -> Self {
        let mut sum = Sum::default();
        children.iter().flatten().for_each(|child| sum.join(&child.sum));
        let (first, last) = (first_of(&children), last_of(&children));
        let split = Split { children, first, last, hasher: Arc::clone(hasher) };
        Self { known: Known::default(), sum, body: Body::Split(Box::new(split)) }
    }

    /// A bucket as it was stored; none if it is not one that an object can have. `touched` is at least that of its
    /// members.
    pub(super) fn restored_bucket(entries: Box<[(Key, Node)]>, stamps: Stamps, touched: At) -> Option<Self> {
        let is_sorted = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if entries.len() > BUCKET_MAX || !is_sorted {
            return None;
        }
        let mut bucket = Self::bucket_of(entries, stamps);
        bucket.sum.touched = bucket.sum.touched.max(touched);
        Some(bucket)
    }

    /// The same for a split. Whether its members are where their keys lead is not looked at.
    pub(super) fn restored_split(children: [Option<Arc<Self>>; 16], hasher: &Arc<Hasher>, touched: At) -> Option<Self> {
        let mut split = Self::split(children, hasher);
        let has_empty = children_of(&split).any(|child| child.sum.len == 0);
        split.sum.touched = split.sum.touched.max(touched);
        (split.sum.len > BUCKET_MAX && !has_empty).then_some(split)
    }

    pub(super) const fn sum(&self) -> &Sum {
        &self.sum
    }

    pub(super) fn first(&self) -> Option<&Key> {
        match &self.body {
            Body::Bucket { entries, .. } => entries.first().map(|(key, _)| key),
            Body::Split(split) => Some(&split.first),
        }
    }

    pub(super) fn last(&self) -> Option<&Key> {
        match &self.body {
            Body::Bucket { entries, .. } => entries.last().map(|(key, _)| key),
            Body::Split(split) => Some(&split.last),
        }
    }

    fn touched_since<'a>(&'a self, at: At, touched: &mut Vec<(&'a Key, &'a Node, Stamp)>) {
        if self.sum.touched <= at {
            return;
        }
        match &self.body {
            Body::Bucket { entries, stamps } => {
                for (index, (key, node)) in entries.iter().enumerate() {
                    let stamp = stamps.get(index);
                    if stamp.changed > at || node.touched() > at {
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

    fn change(
        &mut self,
        key: &str,
        route: Option<&[u8; 32]>,
        depth: usize,
        at: At,
        change: &mut dyn FnMut(&mut Node, &mut Stamp),
    ) {
        self.known = Known::default();
        let (before, after) = match &mut self.body {
            Body::Bucket { entries, stamps } => {
                let index = find(entries, key).expect("the member was found before");
                let node = &mut entries[index].1;
                let before = Sum::of(node);
                let mut stamp = stamps.get(index);
                change(node, &mut stamp);
                let after = Sum::of(node);
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

    fn touched(&self) -> At {
        match &self.body {
            Body::Bucket { entries, stamps } => {
                entries.iter().map(|(_, node)| node.touched()).fold(stamps.latest(entries.len()), At::max)
            }
            Body::Split(split) => split.children.iter().flatten().map(|child| child.sum.touched).max().unwrap_or(0),
        }
    }

    fn insert(&mut self, key: Key, node: Node, route: Option<&[u8; 32]>, depth: usize, at: At, hasher: &Arc<Hasher>) {
        self.known = Known::default();
        self.sum.add(&node);
        self.sum.bytes += json::text_size(&key) + 1;
        self.sum.touched = self.sum.touched.max(at);
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

    fn remove(&mut self, key: &str, route: Option<&[u8; 32]>, depth: usize) -> (Node, Stamp) {
        self.known = Known::default();
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
                if *split.first == *key && self.sum.len > BUCKET_MAX + 1 {
                    split.first = first_of(&split.children);
                } else if *split.last == *key && self.sum.len > BUCKET_MAX + 1 {
                    split.last = last_of(&split.children);
                }
                removed
            }
        };
        self.sum.len -= 1;
        self.sum.bytes -= entry_bytes(key, &removed.0);
        // Of what is left: that something went away is the object's to know, and would lead `latest` astray here.
        self.sum.touched = self.touched();
        if removed.0.depth() == self.sum.depth {
            self.sum.depth = self.depth();
        }
        if self.sum.len <= BUCKET_MAX && matches!(self.body, Body::Split(_)) {
            let mut entries = Vec::with_capacity(self.sum.len);
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

/// The members of an object in the order of their keys; as much of the order is worked out as is asked for.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    /// What is left of an object that is one bucket.
    bucket: slice::Iter<'a, (Key, Node)>,
    /// What is left of each part of a larger one, the part with the first key on top.
    parts: BinaryHeap<Reverse<Part<'a>>>,
    left: usize,
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

impl PartialEq for Part<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first
    }
}

impl Eq for Part<'_> {}

impl PartialOrd for Part<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Part<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.first.cmp(other.first)
    }
}

impl<'a> Members<'a> {
    fn enter(&mut self, trie: &'a Trie) {
        match &trie.body {
            Body::Bucket { entries, .. } => self.go_on(entries.iter()),
            Body::Split(split) => self.parts.push(Reverse(Part { first: &split.first, rest: Rest::Split(split) })),
        }
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
