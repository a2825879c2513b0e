//! Ranks the candidates for a view. In order: requested places, places of the trigger, short fields, the latest changes
//! of every collection, long fields, and the rest of the collections by latest change.
//!
//! An incomplete collection has a summary line, which is paid for beforehand.

use super::super::layout::Kind;
use super::super::search::{Order, Search};
use super::super::text;
use super::OutcomeReason;
use super::Selector;
use crate::tree::{LatestFirst, PathSegment, TieOrder};

/// Maximum size of a field that is taken before collections.
const SMALL_FIELD_MAX: usize = 200;
/// Number of parts taken from every collection before the rest of any.
const NEWEST: usize = 3;

/// A topmost collection, and its untried parts.
pub(super) struct Collection<'a> {
    node: usize,
    /// The pattern above it.
    root: usize,
    rest: Rest<'a>,
    /// See [`Selector::shortest`].
    shortest: usize,
    /// Consecutive lines that did not fit.
    pub(super) misses: usize,
    pub(super) is_over: bool,
}

enum Rest<'a> {
    Parts(LatestFirst<'a>),
    Places(Box<Search<'a>>),
}

impl<'a> Collection<'a> {
    const fn new(node: usize, root: usize, rest: Rest<'a>, shortest: usize) -> Self {
        Self { node, root, rest, shortest, misses: 0, is_over: false }
    }

    /// Creates the collection of the places that a pattern matches, after `misses` lines that did not fit.
    pub(super) fn of_places(root: usize, places: Box<Search<'a>>, shortest: usize, misses: usize) -> Self {
        Self { misses, ..Self::new(root, root, Rest::Places(places), shortest) }
    }
}

impl<'a> Selector<'a, '_> {
    /// Takes the lines that fit, most wanted first.
    pub(super) fn take_by_rank(&mut self) {
        let (mut long, mut collections) = (Vec::new(), Vec::new());
        self.reason = OutcomeReason::ShortField;
        for top in self.tops() {
            let root = self.layout.above(top).last().unwrap_or(top);
            self.take_fields(top, root, &mut long, &mut collections);
        }
        self.reason = OutcomeReason::ChangedLast;
        for _ in 0..NEWEST {
            collections.iter_mut().for_each(|collection| self.advance(collection));
        }
        self.reason = OutcomeReason::LongField;
        for field in long {
            self.take(field);
        }
        self.reason = OutcomeReason::Room;
        for of_one_root in collections.chunk_by_mut(|a, b| a.root == b.root) {
            while of_one_root.iter().any(|collection| !collection.is_over) {
                of_one_root.iter_mut().for_each(|collection| self.advance(collection));
            }
        }
    }

    /// Takes the short values outside collections; collects the long ones and the collections.
    fn take_fields(&mut self, node: usize, root: usize, long: &mut Vec<usize>, collections: &mut Vec<Collection<'a>>) {
        let layout = &self.layout.nodes[node];
        let Some(value) = layout.value else {
            let search = Search::new(self.state, self.reads, node, Order::Latest, self.bounds.steps);
            return collections.push(Collection::of_places(node, Box::new(search), self.shortest(node), 0));
        };
        if self.layout.is_collection(node) {
            let parts = value.latest(layout.floor, TieOrder::Last);
            return collections.push(Collection::new(node, root, Rest::Parts(parts), self.shortest(node)));
        }
        if layout.kind == Kind::Line {
            if text::fits(value, SMALL_FIELD_MAX) {
                self.take(node);
            } else {
                long.push(node);
            }
            return;
        }
        for child in self.fields(node) {
            self.take_fields(child, root, long, collections);
        }
    }

    /// Lays out the members of an object that is no collection.
    fn fields(&mut self, node: usize) -> Vec<usize> {
        let Some(value) = self.layout.nodes[node].value else { return Vec::new() };
        let floor = self.layout.nodes[node].floor;
        let mut fields = Vec::new();
        for (step, member) in value.parts() {
            if self.is_exhausted() {
                break;
            }
            let PathSegment::Key(key) = step else { continue };
            let changed = value.part(key).map_or(0, |(_, _, stamp)| stamp.changed);
            fields.push(self.layout.child(node, step, member, changed.max(floor)));
        }
        fields
    }

    /// Returns the minimum characters of a line about a part of the value. Its label is followed by a slash, a colon, a
    /// space, a value and a line feed.
    pub(super) fn shortest(&mut self, node: usize) -> usize {
        let label = if self.layout.nodes[node].kind == Kind::Pattern { 0 } else { text::chars(self.label(node)) };
        label + 5
    }

    /// Takes the lines that fit from the next part of a collection.
    pub(super) fn advance(&mut self, collection: &mut Collection<'a>) {
        if collection.is_over || self.left < collection.shortest || self.is_exhausted() {
            collection.is_over = true;
            return;
        }
        let floor = self.layout.nodes[collection.node].floor;
        let next = match &mut collection.rest {
            Rest::Parts(parts) => parts.next().map(|(step, value, stamp)| {
                self.layout.child(collection.node, step, value, stamp.under(floor).changed)
            }),
            Rest::Places(places) => places.next().map(|found| self.layout.top(collection.node, found)),
        };
        match next {
            Some(part) => self.expand(part, &mut collection.misses),
            None => collection.is_over = true,
        }
        collection.is_over |= collection.misses >= self.bounds.misses;
    }

    /// Takes the lines of a value that fit. `misses` counts consecutive lines that did not fit.
    pub(super) fn expand(&mut self, node: usize, misses: &mut usize) {
        let layout = &self.layout.nodes[node];
        let (Some(value), floor) = (layout.value, layout.floor) else { return };
        if layout.kind == Kind::Line {
            *misses = if self.take(node) { 0 } else { *misses + 1 };
        } else if self.layout.is_collection(node) {
            let is_outermost = !self.layout.above(node).any(|above| self.layout.is_collection(above));
            // Within a part of a collection, ties follow document order, so that it reads from its beginning.
            let ties = if is_outermost { TieOrder::Last } else { TieOrder::First };
            let shortest = self.shortest(node);
            for (step, part, stamp) in value.latest(floor, ties) {
                if *misses >= self.bounds.misses || self.left < shortest || self.is_exhausted() {
                    break;
                }
                let child = self.layout.child(node, step, part, stamp.changed);
                self.expand(child, misses);
            }
        } else {
            for child in self.fields(node) {
                if *misses >= self.bounds.misses {
                    break;
                }
                self.expand(child, misses);
            }
        }
    }
}
