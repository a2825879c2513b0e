//! Takes the places with priority: locates them, takes their parts from a start on, and names parts that do not fit.

mod parts;

use jsonptr::{Pointer, PointerBuf, Token};

use super::super::PAGES;
use super::super::explanation::OutcomeReason;
use super::super::layout::Kind;
use super::super::search::{self, Found, Order, Search};
use super::super::summary;
use super::super::text;
use super::order::Collection;
use super::{PaidLine, Selector};
use crate::expand_request::RangeStart;
use crate::pattern::{Pattern, PatternToken};
use crate::tree::{Node, PathSegment, Revision};

/// Divisor of the budget that limits the names in requested collections: a quarter.
const NAMES_SHARE: usize = 4;
/// Member of an element that identifies it.
const ID: &str = "id";
/// Prefix of names that do not begin with the first part.
const FROM_THERE: &str = "from there on, ";
/// Suffix of an incomplete list of names.
const AND_MORE: &str = " and more";
/// Replacement for names that are too long.
const NO_ROOM: &str = "more than has room";
/// Prefix of names on a line of their own.
const LOOSE_WORDS: &str = ": not shown: ";
/// Steps of a search for a readable place in one part, because many parts may hold none.
const HELD_STEPS: usize = 256;
/// Maximum characters of a name that differs from the previous one within them. Of a longer one the beginning is named,
/// from which it can be requested.
const NAME_MAX: usize = 64;
/// Divisor of the characters for a page's names that limits one cut name differing earlier: a quarter, so that each
/// page makes progress.
const NAME_SHARE: usize = 4;

pub(in super::super) struct PriorityPlace<'a> {
    pub(in super::super) place: PointerBuf,
    pub(in super::super) why: OutcomeReason,
    /// The first requested part; `None`: any.
    pub(in super::super) from: Option<&'a RangeStart>,
}

struct LocatedPlace<'a> {
    /// The node that shows or contains it; `None` if only parts of it may be read.
    node: Option<usize>,
    path: Vec<PathSegment<'a>>,
    value: &'a Node,
    /// Version that put the value at this place.
    floor: Revision,
}

/// Names of the parts of a requested collection.
pub(super) struct Page<'a> {
    /// The node with the line for the names; `None`: they have a separate line.
    node: Option<usize>,
    place: PointerBuf,
    value: &'a Node,
    path: Vec<PathSegment<'a>>,
    /// The first part, by index and by name.
    first: (usize, String),
    is_from_start: bool,
    /// Maximum number of characters.
    chars: usize,
}

impl<'a> Selector<'a, '_> {
    /// Takes the places with priority if there was a request: the latest request, the trigger with the places it names,
    /// then earlier requests.
    pub(super) fn take_first(&mut self, asked: usize) {
        let (asked, others) = self.input.first.split_at(asked);
        let (newest, older) = asked.split_at(self.input.newest.min(asked.len()));
        self.is_first = true;
        self.take_round(newest);
        for PriorityPlace { place, why, .. } in others {
            self.reason = *why;
            self.take_at(place, None, &mut 0);
        }
        self.take_round(older);
        self.is_first = false;
    }

    /// Takes the places of one request: names of collections, complete values, then excerpts, each with its share of
    /// the room. Keeps up to half of the room for lines about the rest.
    fn take_round(&mut self, round: &[PriorityPlace<'_>]) {
        let names_max = (self.limit / NAMES_SHARE / round.len().max(1)).max(summary::HIDDEN_MAX);
        round.iter().for_each(|first| self.lay_out_page(first, names_max));
        self.reason = OutcomeReason::Asked;
        for PriorityPlace { place, .. } in round.iter().filter(|first| first.from.is_none()) {
            self.take_at(place, None, &mut 0);
        }
        let others: usize = self.tops().into_iter().map(|top| self.unpaid_max(top)).sum();
        let kept = others.min(self.left / 2);
        let parts: Vec<&PriorityPlace<'_>> = round.iter().filter(|first| !self.is_on_a_line(first)).collect();
        for may_begin in [false, true] {
            self.may_begin = may_begin;
            for (number, PriorityPlace { place, from, .. }) in parts.iter().enumerate() {
                let share = self.left.saturating_sub(kept) / (parts.len() - number);
                let rest = self.left - share;
                self.left = share;
                self.take_at(place, *from, &mut 0);
                self.left += rest;
            }
        }
        self.may_begin = false;
    }

    /// Returns true if a place is shown on one line.
    fn is_on_a_line(&mut self, first: &PriorityPlace<'_>) -> bool {
        let node = self.locate(&first.place).and_then(|spot| spot.node);
        node.is_some_and(|node| matches!(self.paid(node), Some(PaidLine::Value(_))))
    }

    /// Returns the maximum number of characters that a line about a node still costs.
    fn unpaid_max(&mut self, node: usize) -> usize {
        if self.paid(node).is_some() { 0 } else { self.summary_max(node) }
    }

    /// Pays for lines about the containers of requested places, as far as there is room.
    pub(super) fn mention_asked(&mut self) {
        let wanted = self.input;
        for first in wanted.first.iter().filter(|first| first.why == OutcomeReason::Asked) {
            let node = self.locate(&first.place).and_then(|spot| spot.node);
            let above: Vec<usize> = node.map(|node| self.layout.above(node).collect()).unwrap_or_default();
            for node in above {
                self.mention(node);
            }
        }
    }

    /// Pays for a line about a node, if there is room and none yet. Returns true if there is one.
    pub(super) fn mention(&mut self, node: usize) -> bool {
        if self.layout.nodes[node].kind == Kind::Place || self.paid(node).is_some() {
            return self.paid(node).is_some();
        }
        let size = self.summary_max(node);
        let Some(left) = self.left.checked_sub(size) else { return false };
        self.left = left;
        self.pay(node, PaidLine::Summary(size));
        true
    }

    /// Takes the places with priority in the order of compiler 4.
    pub(super) fn take_first_of_4(&mut self) {
        let wanted = self.input;
        for PriorityPlace { place, why, .. } in wanted.first {
            self.reason = *why;
            self.take_at(place, None, &mut 0);
        }
        self.may_begin = true;
        for PriorityPlace { place, why, .. } in wanted.first.iter().filter(|first| first.why == OutcomeReason::Asked) {
            self.reason = *why;
            self.take_at(place, None, &mut 0);
        }
        self.may_begin = false;
    }

    /// Adds a collection with named parts, and pays for the names.
    fn lay_out_page(&mut self, first: &PriorityPlace<'_>, most: usize) {
        let PriorityPlace { place, from, .. } = first;
        let Some(LocatedPlace { node, path, value, .. }) = self.locate(place) else { return };
        if !value.has_parts() || self.pages.iter().any(|page| page.place == *place) {
            return;
        }
        let node = match node {
            Some(node) if self.layout.nodes[node].kind == Kind::Line => return,
            Some(node) => Some(node),
            None => self.reads.patterns.iter().position(|read| is_parts_of(read, place)),
        };
        let first = self.first_part(value, &path, *from);
        let has_names = match value {
            Node::Array(elements) => {
                node.is_none() || elements.get(first.0).is_some_and(|element| element.child(ID).is_some())
            }
            _ => true,
        };
        if !has_names {
            // The line about it counts the hidden parts, before its parts take the room.
            if let Some(node) = node.filter(|_| self.input.compiler >= PAGES) {
                self.mention(node);
            }
            return;
        }
        let (place, is_from_start) = (place.clone(), from.is_none());
        let mut page = Page { node, place, value, path, first, is_from_start, chars: most };
        let names = self.names(&page, &|_| false).map_or(0, |names| text::chars(&names) + AND_MORE.len());
        page.chars = names.clamp(summary::HIDDEN_MAX, most);
        let is_paid = match node {
            Some(node) => {
                self.pages.push(page);
                let is_paid = self.mention(node);
                if !is_paid {
                    self.pages.pop();
                }
                return;
            }
            None => self.left.checked_sub(text::name_chars(page.place.as_str()) + LOOSE_WORDS.len() + page.chars + 1),
        };
        if let Some(left) = is_paid {
            self.left = left;
            self.pages.push(page);
        }
    }

    /// Returns the page with its names on the line of a node.
    pub(super) fn page(&self, node: usize) -> Option<&Page<'a>> {
        self.pages.iter().find(|page| page.node == Some(node))
    }

    /// Returns lines about collections that no other line covers.
    pub(super) fn loose_pages(&self, is_shown: &dyn Fn(usize) -> bool) -> Vec<String> {
        let loose = self.pages.iter().filter(|page| page.node.is_none());
        let line = |page: &Page<'a>| {
            let names = self.names(page, is_shown)?;
            Some(format!("{}{LOOSE_WORDS}{names}\n", text::name(page.place.as_str())))
        };
        loose.filter_map(line).collect()
    }

    /// Returns the maximum characters of the names on a collection's line.
    pub(super) fn names_max(&self, node: usize) -> usize {
        self.page(node).map_or(summary::HIDDEN_MAX, |page| page.chars + FROM_THERE.len())
    }

    /// Takes a place, its container, or its parts, whichever has a line. `misses` counts consecutive lines that did not
    /// fit.
    fn take_at(&mut self, wanted: &Pointer, from: Option<&RangeStart>, misses: &mut usize) {
        let Some(LocatedPlace { node, path, value, floor }) = self.locate(wanted) else { return };
        match (node, from) {
            (Some(node), Some(from)) if self.layout.nodes[node].kind == Kind::Line => {
                self.excerpt_start = from.characters().unwrap_or(0);
                self.expand(node, misses);
                self.excerpt_start = 0;
            }
            (_, Some(from)) => {
                let first = self.first_part(value, &path, Some(from));
                self.take_from(wanted, value, path, &first);
            }
            (Some(node), None) => {
                self.expand(node, misses);
                if self.may_begin && self.splits(node) {
                    self.expand(node, misses);
                }
            }
            // Only parts of it may be read.
            (None, None) => {
                for which in 0..self.reads.patterns.len() {
                    if self.reads.patterns[which].reaches_below(wanted) {
                        let search = Search::new(self.state, self.reads, which, Order::Latest, self.bounds.steps);
                        let search = Box::new(search.below(path.clone(), value, floor));
                        let shortest = self.shortest(which);
                        let mut below = Collection::of_places(which, search, shortest, *misses);
                        while !below.is_over {
                            self.advance(&mut below);
                        }
                        *misses = below.misses;
                    }
                }
            }
        }
    }

    /// Takes the parts of a container that fit, from a start on, in document order.
    fn take_from<'n>(
        &mut self,
        container: &Pointer,
        value: &'n Node,
        path: Vec<PathSegment<'n>>,
        (index, name): &'n (usize, String),
    ) where
        'a: 'n,
    {
        let (mut misses, mut way) = (0, path);
        for (step, part) in self.seen_parts(container, value, (*index, name)).take(self.bounds.steps) {
            if misses >= self.bounds.misses || self.is_exhausted() {
                break;
            }
            #[cfg(test)]
            super::super::tests::visit();
            let place = step.below(container);
            way.push(step);
            if self.holds_readable(&place, &way, part) {
                self.take_at(&place, None, &mut misses);
            }
            way.pop();
        }
    }

    /// Returns true if a part of the latest request is shown or named, or if nothing was requested.
    pub(super) fn finds_room(&mut self, is_shown: &dyn Fn(&Self, usize) -> bool) -> bool {
        let wanted = self.input;
        let newest = &wanted.first[..wanted.newest];
        newest.is_empty() || newest.iter().any(|first| self.finds_room_for(first, is_shown))
    }

    fn finds_room_for(&mut self, first: &PriorityPlace<'_>, is_shown: &dyn Fn(&Self, usize) -> bool) -> bool {
        let PriorityPlace { place, from, .. } = first;
        let Some(LocatedPlace { node, path, value, .. }) = self.locate(place) else { return false };
        let names = self.pages.iter().find(|page| page.place == *place);
        let names = names.and_then(|page| self.names(page, &|node| is_shown(self, node)));
        if names.is_some_and(|names| !names.ends_with(NO_ROOM)) {
            return true;
        }
        match (node, from) {
            (Some(node), from) if self.layout.nodes[node].kind == Kind::Line => match self.paid(node) {
                Some(PaidLine::Beginning(_)) => {
                    self.excerpt_starts.get(&node).copied() == Some(from.and_then(RangeStart::characters).unwrap_or(0))
                }
                paid => matches!(paid, Some(PaidLine::Value(_))),
            },
            (Some(node), None) => self.shows_any(node),
            (None, None) => self.shows_below(&path),
            (_, Some(from)) => {
                let (index, name) = self.first_part(value, &path, Some(from));
                let mut parts = self.seen_parts(place, value, (index, &name)).take(self.bounds.steps);
                parts.any(|(step, _)| {
                    let mut way = path.clone();
                    way.push(step);
                    let child = node.and_then(|node| self.layout.nodes[node].children.get([step].as_slice()));
                    child.map_or_else(|| self.shows_below(&way), |child| self.shows_any(*child))
                })
            }
        }
    }

    fn shows_any(&self, node: usize) -> bool {
        matches!(self.paid(node), Some(PaidLine::Value(_) | PaidLine::Beginning(_)))
            || self.layout.nodes[node].children.values().any(|child| self.shows_any(*child))
    }

    /// Returns true if any value below a place is shown by a pattern's node.
    fn shows_below(&self, path: &[PathSegment<'_>]) -> bool {
        (0..self.reads.patterns.len()).any(|root| {
            let mut below = self.layout.nodes[root].children.iter();
            below.any(|(way, child)| way.steps().starts_with(path) && self.shows_any(*child))
        })
    }

    /// Lays out a place, or the node that shows it.
    fn locate(&mut self, wanted: &Pointer) -> Option<LocatedPlace<'a>> {
        let (mut value, mut floor, mut path) = (self.state, 0, Vec::new());
        let mut tokens = wanted.tokens();
        let mut place = PointerBuf::new();
        loop {
            if let Some(root) = self.reads.patterns.iter().position(|pattern| pattern.covers(&place)) {
                let mut node = self.layout.top(root, Found { path: path.clone(), value, floor });
                for token in tokens {
                    if self.layout.nodes[node].kind == Kind::Line && !self.splits(node) {
                        break;
                    }
                    let (step, child, stamp) = value.part(&token.decoded())?;
                    (value, floor) = (child, stamp.under(floor).changed);
                    path.push(step);
                    node = self.layout.child(node, step, value, floor);
                }
                return Some(LocatedPlace { node: Some(node), path, value, floor });
            }
            let Some(token) = tokens.next() else { break };
            let token = token.decoded();
            let (step, child, stamp) = value.part(&token)?;
            (value, floor) = (child, stamp.under(floor).changed);
            path.push(step);
            place.push_back(token.as_ref());
        }
        Some(LocatedPlace { node: None, path, value, floor })
    }

    /// Splits a one-line value with priority that does not fit. Returns true if it did.
    fn splits(&mut self, node: usize) -> bool {
        let laid_out = &self.layout.nodes[node];
        let Some(value) = laid_out.value.filter(|_| self.is_first && laid_out.kind == Kind::Line) else { return false };
        if !value.has_parts() || self.paid(node).is_some() || text::fits(value, self.left) {
            return false;
        }
        self.layout.split(node);
        true
    }
}

/// Returns true for a pattern that covers exactly the parts of this place.
fn is_parts_of(read: &Pattern, place: &Pointer) -> bool {
    let [above @ .., PatternToken::Any] = read.tokens() else { return false };
    let is_it = |(token, name): (&PatternToken, Token<'_>)| matches!(token, PatternToken::Literal(literal) if *literal == name.decoded());
    above.len() == place.tokens().count() && above.iter().zip(place.tokens()).all(is_it)
}

fn pointer(path: &[PathSegment<'_>]) -> PointerBuf {
    let mut label = String::new();
    search::push_steps(&mut label, path);
    PointerBuf::parse(label).unwrap_or_default()
}

fn id_of(element: &Pointer) -> PointerBuf {
    element.with_trailing_token(ID)
}
