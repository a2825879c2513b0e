//! What comes before all else: where it is, from which of its parts on, and which of them are named where they have no room.

use jsonptr::{Pointer, PointerBuf};

use super::super::explained::Why;
use super::super::layout::Kind;
use super::super::search::{self, Found, Order, Search};
use super::super::summary;
use super::super::text;
use super::order::Collection;
use super::{Choice, Paid};
use crate::asked::Start;
use crate::pattern::PatternToken;
use crate::tree::{At, Node, Step};

/// Part of the budget that the names of what was asked for may take: a quarter.
const NAMES_SHARE: usize = 4;
/// Member of an element that identifies it.
const ID: &str = "id";
/// What stands before names that do not begin with the first.
const FROM_THERE: &str = "from there on, ";
/// What stands behind names that are not all.
const AND_MORE: &str = " and more";

/// A place that comes before others.
pub(in super::super) struct First<'a> {
    pub(in super::super) place: PointerBuf,
    pub(in super::super) why: Why,
    /// The first part that is wanted; none: any.
    pub(in super::super) from: Option<&'a Start>,
}

/// Where a place is.
struct Spot<'a> {
    /// The node that shows it, or in which it is shown; none if no more than parts of it may be read.
    node: Option<usize>,
    /// Way from the root.
    path: Vec<Step<'a>>,
    value: &'a Node,
    /// When it came there.
    floor: At,
}

/// Names of the parts of what was asked for.
pub(super) struct Page<'a> {
    /// The node whose line has them.
    node: usize,
    value: &'a Node,
    path: Vec<Step<'a>>,
    /// The first part, by index and by name.
    first: (usize, String),
    is_from_start: bool,
    /// Maximum number of characters.
    chars: usize,
}

impl<'a> Choice<'a, '_> {
    /// Notes of which collections the parts are named, and how much room their names may take.
    pub(super) fn lay_out_pages(&mut self) {
        let wanted = self.wanted;
        let asked: Vec<&First<'_>> = wanted.first.iter().filter(|first| first.why == Why::Asked).collect();
        let most = (self.limit / NAMES_SHARE / asked.len().max(1)).max(summary::HIDDEN_MAX);
        for First { place, from, .. } in asked {
            let Some(Spot { node, path, value, .. }) = self.locate(place) else { continue };
            let node = match node {
                Some(node) => Some(node).filter(|node| self.layout.nodes[*node].kind != Kind::Line),
                None => self.reads.patterns.iter().position(|read| {
                    let (above, last) = (place.tokens().count(), read.tokens().len());
                    above + 1 == last && read.reaches_below(place)
                }),
            };
            let Some(node) = node.filter(|node| !self.pages.iter().any(|page| page.node == *node)) else { continue };
            let first = self.first_part(value, &path, *from);
            let has_names = match value {
                Node::Array(elements) => elements.get(first.0).is_some_and(|element| element.child(ID).is_some()),
                _ => true,
            };
            if has_names {
                let is_from_start = from.is_none();
                let mut page = Page { node, value, path, first, is_from_start, chars: most };
                let names = self.names(&page, &|_| false).map_or(0, |names| text::chars(&names));
                page.chars = names.max(summary::HIDDEN_MAX);
                self.pages.push(page);
            }
        }
    }

    /// Returns the page whose names the line of a node has.
    pub(super) fn page(&self, node: usize) -> Option<&Page<'a>> {
        self.pages.iter().find(|page| page.node == node)
    }

    /// Returns the maximum number of characters of what a line about a collection names.
    pub(super) fn names_max(&self, node: usize) -> usize {
        self.page(node).map_or(summary::HIDDEN_MAX, |page| page.chars + FROM_THERE.len())
    }

    /// Takes what was asked for, and what else comes first.
    pub(super) fn take_first(&mut self) {
        let wanted = self.wanted;
        for First { place, why, from } in wanted.first {
            self.because = *why;
            self.take_at(place, *from);
        }
        // What was asked for and does not fit is begun, with what room the others left.
        self.may_begin = true;
        for First { place, why, from } in wanted.first.iter().filter(|first| first.why == Why::Asked) {
            self.because = *why;
            let is_text = || self.state.get(place).is_some_and(|value| value.as_str().is_some());
            if from.is_none() || is_text() {
                self.take_at(place, *from);
            }
        }
        self.may_begin = false;
    }

    /// Takes what is on one line with a place: it, what it is in, or what is in it.
    fn take_at(&mut self, wanted: &Pointer, from: Option<&Start>) {
        let Some(Spot { node, path, value, floor }) = self.locate(wanted) else { return };
        match (node, from) {
            (Some(node), Some(from)) if self.layout.nodes[node].kind == Kind::Line => {
                self.begins_at = from.characters();
                self.expand(node, &mut 0);
                self.begins_at = 0;
            }
            (_, Some(from)) => {
                let first = self.first_part(value, &path, Some(from));
                self.take_from(wanted, value, &first);
            }
            (Some(node), None) => self.expand(node, &mut 0),
            // No more than parts of it may be read.
            (None, None) => {
                for which in 0..self.reads.patterns.len() {
                    if self.reads.patterns[which].reaches_below(wanted) {
                        let search = Search::new(self.state, self.reads, which, Order::Latest, self.bounds.steps);
                        let search = Box::new(search.below(path.clone(), value, floor));
                        let mut below = Collection::of_places(which, search, self.shortest(which));
                        while !below.is_over {
                            self.advance(&mut below);
                        }
                    }
                }
            }
        }
    }

    /// Takes what fits of the parts of a container from one on, in the order of the document.
    fn take_from(&mut self, container: &Pointer, value: &'a Node, (index, name): &(usize, String)) {
        let mut misses = 0;
        for (step, _) in self.seen_parts(container, value, (*index, name)).take(self.bounds.steps) {
            if misses >= self.bounds.misses || self.is_worn_out() {
                break;
            }
            let left = self.left;
            self.take_at(&below(container, step), None);
            misses = if self.left == left { misses + 1 } else { 0 };
        }
    }

    /// Returns, for each of the newest places, whether anything of it is shown or named.
    pub(super) fn finds_room(&mut self) -> bool {
        let wanted = self.wanted;
        let newest = &wanted.first[..wanted.newest];
        newest.is_empty()
            || newest.iter().any(|First { place, .. }| {
                let Some(Spot { node, path, .. }) = self.locate(place) else { return false };
                match node {
                    Some(node) => self.shows_something(node) || self.page(node).is_some(),
                    None => (0..self.reads.patterns.len()).any(|root| {
                        let below = self.layout.nodes[root].children.iter();
                        let below = below.filter(|(way, _)| way.steps().starts_with(&path));
                        below.clone().any(|(_, child)| self.shows_something(*child))
                    }),
                }
            })
    }

    fn shows_something(&self, node: usize) -> bool {
        matches!(self.paid(node), Some(Paid::Value(_) | Paid::Beginning(_)))
            || self.layout.nodes[node].children.values().any(|child| self.shows_something(*child))
    }

    /// Lays out a place, or what shows it.
    fn locate(&mut self, wanted: &Pointer) -> Option<Spot<'a>> {
        let (mut value, mut floor, mut path) = (self.state, 0, Vec::new());
        let mut tokens = wanted.tokens();
        let mut place = PointerBuf::new();
        loop {
            if let Some(root) = self.reads.patterns.iter().position(|pattern| pattern.covers(&place)) {
                let mut node = self.layout.top(root, Found { path: path.clone(), value, floor });
                for token in tokens {
                    if self.layout.nodes[node].kind == Kind::Line {
                        break;
                    }
                    let (step, child, stamp) = value.part(&token.decoded())?;
                    (value, floor) = (child, stamp.under(floor).changed);
                    path.push(step);
                    node = self.layout.child(node, step, value, floor);
                }
                return Some(Spot { node: Some(node), path, value, floor });
            }
            let Some(token) = tokens.next() else { break };
            let token = token.decoded();
            let (step, child, stamp) = value.part(&token)?;
            (value, floor) = (child, stamp.under(floor).changed);
            path.push(step);
            place.push_back(token.as_ref());
        }
        Some(Spot { node: None, path, value, floor })
    }

    /// Returns the first part that is wanted of a container, by index and by name: a number is an index, or a name in an
    /// object; a name is the `id` of an element in an array, or an index.
    fn first_part(&self, value: &Node, path: &[Step<'_>], from: Option<&Start>) -> (usize, String) {
        let name = match from {
            None => return (0, String::new()),
            Some(Start::Number(number)) => {
                return (usize::try_from(*number).unwrap_or(usize::MAX), number.to_string());
            }
            Some(Start::Name(name)) => name,
        };
        let Node::Array(elements) = value else { return (0, name.clone()) };
        let container = pointer(path);
        let has_id = |(index, element): (usize, &Node)| {
            let is_it = element.child(ID).and_then(Node::as_str) == Some(name);
            is_it && self.may_read(&id_of(&below(&container, Step::Index(index))))
        };
        let by_id = elements.iter().enumerate().position(has_id);
        let by_index = || name.parse().ok().filter(|index: &usize| index.to_string() == *name);
        (by_id.or_else(by_index).unwrap_or(elements.len()), name.clone())
    }

    /// Names the parts of a page that are not shown; none if there are none.
    pub(super) fn names(&self, page: &Page<'_>, is_shown: &dyn Fn(usize) -> bool) -> Option<String> {
        let Page { node, value, path, first: (index, name), is_from_start, chars } = page;
        let (container, children) = (pointer(path), &self.layout.nodes[*node].children);
        let (mut out, mut is_cut, mut way) = (String::new(), false, path.clone());
        for (number, (step, part)) in self.seen_parts(&container, value, (*index, name)).enumerate() {
            let place = below(&container, step);
            way.truncate(path.len());
            way.push(step);
            let child = children.get([step].as_slice()).or_else(|| children.get(way.as_slice()));
            if child.is_some_and(|child| is_shown(*child)) {
                continue;
            }
            let end = out.len();
            if end > 0 {
                out.push_str(", ");
            }
            match step {
                Step::Key(name) => text::push_name(&mut out, name),
                Step::Index(index) => {
                    search::push_index(&mut out, index);
                    let id = part.child(ID).filter(|id| !id.has_parts() && self.may_read(&id_of(&place)));
                    if let Some(id) = id.and_then(|id| text::short(id, summary::ID_MAX)) {
                        out.push_str(&format!(" ({id})"));
                    }
                }
            }
            if number >= self.bounds.steps || text::chars(&out) + AND_MORE.len() > *chars {
                out.truncate(end);
                is_cut = true;
                break;
            }
        }
        let more = match (out.is_empty(), is_cut) {
            (true, false) => return None,
            (true, true) => "more than has room",
            (false, true) => AND_MORE,
            (false, false) => "",
        };
        Some([if *is_from_start { "" } else { FROM_THERE }, &out, more].concat())
    }

    /// Returns true if the place may be read.
    fn may_read(&self, place: &Pointer) -> bool {
        self.reads.patterns.iter().any(|read| read.covers(place))
    }

    /// Returns the parts of a container of which something may be read, from one on. Where patterns name them, no others are
    /// looked at, so that these make no difference.
    fn seen_parts<'n>(
        &self,
        container: &Pointer,
        value: &'n Node,
        (index, name): (usize, &'n str),
    ) -> Box<dyn Iterator<Item = (Step<'n>, &'n Node)> + 'n>
    where
        'a: 'n,
    {
        let depth = container.tokens().count();
        let reading = self.reads.patterns.iter().filter(|read| read.covers(container) || read.reaches_below(container));
        let mut named = Vec::new();
        for read in reading {
            let tokens = read.tokens();
            match tokens.get(depth) {
                Some(PatternToken::Literal(name)) if !tokens[..depth].contains(&PatternToken::Deep) => {
                    named.extend(value.part(name).map(|(step, part, _)| (step, part)));
                }
                // Matches nothing that is there.
                Some(PatternToken::Bound(_) | PatternToken::Append) => {}
                _ => return value.parts_from(index, name),
            }
        }
        named.sort_unstable_by_key(|(step, _)| *step);
        named.dedup_by_key(|(step, _)| *step);
        named.retain(|(step, _)| match step {
            Step::Index(at) => *at >= index,
            Step::Key(key) => key.as_str() >= name,
        });
        Box::new(named.into_iter())
    }
}

fn pointer(path: &[Step<'_>]) -> PointerBuf {
    let mut label = String::new();
    search::push_steps(&mut label, path);
    PointerBuf::parse(label).unwrap_or_default()
}

/// Returns the place of a part of a container.
fn below(container: &Pointer, step: Step<'_>) -> PointerBuf {
    let mut place = container.to_buf();
    match step {
        Step::Index(index) => place.push_back(index),
        Step::Key(key) => place.push_back(key.as_str()),
    }
    place
}

fn id_of(element: &Pointer) -> PointerBuf {
    element.with_trailing_token(ID)
}
