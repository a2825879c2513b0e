//! Finds the places that a read pattern covers, one after another.
//!
//! Owns the assignment of a place covered by several patterns: the topmost covered place counts, and of several
//! patterns that cover it the first. Every visited part costs a step, and the number of steps is bounded, because a
//! pattern may match little of a large document.

use jsonptr::{PointerBuf, Token};

use crate::pattern::{Pattern, PatternToken};
use crate::tree::{LatestFirst, Node, Parts, PathSegment, Revision, TieOrder};

/// Maximum number of fully listed containers that a search records.
pub(super) const CONTAINERS_MAX: usize = 256;

/// An object with more members is stored by the hashes of their names: listing them in order takes longer.
const LARGE_MIN: usize = 32;
/// Steps per member of such an object.
const LARGE_COST: usize = 4;

/// Order of the places found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Document,
    /// Latest change first, wherever a pattern leaves the choice open.
    Latest,
}

/// A topmost covered place.
#[derive(Clone)]
pub(super) struct Found<'a> {
    pub(super) path: Vec<PathSegment<'a>>,
    pub(super) value: &'a Node,
    /// Version that put the value at this place; 0 below a `*` or `**` in document order.
    pub(super) floor: Revision,
}

impl Found<'_> {
    /// Returns the JSON Pointer.
    pub(super) fn label(&self) -> String {
        let mut label = String::new();
        push_steps(&mut label, &self.path);
        label
    }
}

/// Read patterns, with their precomputed overlaps.
pub(super) struct Reads<'a> {
    pub(super) patterns: &'a [Pattern],
    /// By pattern: indices of others that may also claim a place it covers.
    rivals: Vec<Vec<usize>>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(patterns: &'a [Pattern]) -> Self {
        let is_below = |this: &Pattern, other: &Pattern| {
            this.tokens().len() > other.tokens().len() && this.tokens().starts_with(other.tokens())
        };
        let rivals_of = |(which, this): (usize, &Pattern)| {
            let is_rival = |(index, other): &(usize, &Pattern)| {
                // A fast check for plain places, because there may be many.
                let (is_above, is_same) = match this.is_place() && other.is_place() {
                    true => (is_below(this, other), this == *other),
                    false => (other.lies_above(this), *index < which && other.overlaps(this)),
                };
                *index != which && (is_above || (*index < which && is_same))
            };
            patterns.iter().enumerate().filter(is_rival).map(|(index, _)| index).collect()
        };
        Self { patterns, rivals: patterns.iter().enumerate().map(rivals_of).collect() }
    }
}

/// A search for the places that belong to one pattern.
pub(super) struct Search<'a> {
    reads: &'a Reads<'a>,
    /// The pattern's index.
    which: usize,
    order: Order,
    /// Index of the pattern's first `**`; before it, tokens of pattern and path correspond.
    deep: usize,
    /// The path to the current place.
    path: Vec<PathSegment<'a>>,
    open: Vec<Open<'a>>,
    start: Option<(&'a Node, Revision)>,
    steps: usize,
    is_cut: bool,
    /// Containers with all parts visited, because the pattern leaves the choice open.
    containers: Vec<String>,
}

/// A container on the path.
struct Open<'a> {
    parts: Rest<'a>,
    floor: Revision,
    /// Steps per part.
    cost: usize,
}

/// The unvisited parts of a container.
enum Rest<'a> {
    One(Option<(PathSegment<'a>, &'a Node, Revision)>),
    Document(Parts<'a>),
    Latest(LatestFirst<'a>),
}

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<(PathSegment<'a>, &'a Node, Revision)> {
        match self {
            Self::One(part) => part.take(),
            Self::Document(parts) => parts.next().map(|(step, node)| (step, node, 0)),
            Self::Latest(parts) => parts.next().map(|(step, node, stamp)| (step, node, stamp.changed)),
        }
    }
}

impl<'a> Search<'a> {
    /// Creates a search of the whole document, with at most `steps` steps.
    pub(super) fn new(state: &'a Node, reads: &'a Reads<'a>, which: usize, order: Order, steps: usize) -> Self {
        let this = &reads.patterns[which];
        let deep = this.tokens().iter().position(|token| *token == PatternToken::Deep).unwrap_or(usize::MAX);
        let (path, open, containers) = (Vec::new(), Vec::new(), Vec::new());
        Self { reads, which, order, deep, path, open, start: Some((state, 0)), steps, is_cut: false, containers }
    }

    /// Restricts the search to a place. No pattern covers it, and this one must reach below it.
    pub(super) fn below(mut self, path: Vec<PathSegment<'a>>, value: &'a Node, floor: Revision) -> Self {
        (self.path, self.start) = (path, Some((value, floor)));
        self
    }

    /// Returns the containers with all parts visited, outermost first; empty if the search was cut off. At most
    /// [`CONTAINERS_MAX`].
    pub(super) fn containers(&mut self) -> Vec<String> {
        if self.is_cut { Vec::new() } else { std::mem::take(&mut self.containers) }
    }

    /// Returns true if the search ran out of steps.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns true if the current place belongs to the pattern; otherwise opens a container that may have matches
    /// below.
    fn visit(&mut self, value: &'a Node, floor: Revision) -> bool {
        let this = &self.reads.patterns[self.which];
        let depth = self.path.len();
        let is_covered = if self.deep == usize::MAX {
            depth == this.tokens().len()
        } else {
            self.may_end_here() && this.covers(&self.place())
        };
        let rivals = &self.reads.rivals[self.which];
        if !rivals.is_empty() {
            let place = self.place();
            let covers = |rival: usize| self.reads.patterns[rival].covers(&place);
            if rivals.iter().any(|rival| (!is_covered || *rival < self.which) && covers(*rival)) {
                return false;
            }
        }
        if is_covered {
            return true;
        }
        // Before the first `**`, only matching parts are entered; from there on, every part.
        if !matches!(value, Node::Array(_) | Node::Object(_)) {
            return false;
        }
        let one = |name: &str| {
            Rest::One(value.part(name).map(|(step, node, stamp)| (step, node, stamp.under(floor).changed)))
        };
        let parts = match this.tokens().get(depth).filter(|_| depth < self.deep) {
            Some(PatternToken::Literal(name)) => one(name),
            Some(PatternToken::Append) => one("-"),
            // An unbound name matches nothing.
            Some(PatternToken::Bound(_)) => return false,
            Some(PatternToken::Any | PatternToken::Deep) | None => match self.order {
                Order::Document => Rest::Document(value.parts()),
                Order::Latest => Rest::Latest(value.latest(floor, TieOrder::Last)),
            },
        };
        if !matches!(parts, Rest::One(_)) && self.containers.len() < CONTAINERS_MAX {
            self.containers.push(self.label());
        }
        let is_large = value.as_object().is_some() && value.part_count() > LARGE_MIN && !matches!(parts, Rest::One(_));
        self.open.push(Open { parts, floor, cost: if is_large { LARGE_COST } else { 1 } });
        false
    }

    /// Returns true if the pattern can end with the last token.
    fn may_end_here(&self) -> bool {
        match (self.reads.patterns[self.which].tokens().last(), self.path.last()) {
            (Some(PatternToken::Literal(name)), Some(PathSegment::Key(key))) => name == key.as_str(),
            (Some(PatternToken::Literal(_)), None) | (Some(PatternToken::Bound(_)), _) => false,
            _ => true,
        }
    }

    fn label(&self) -> String {
        let mut label = String::new();
        push_steps(&mut label, &self.path);
        label
    }

    fn place(&self) -> PointerBuf {
        PointerBuf::parse(self.label()).expect("its tokens are encoded")
    }

    fn found(&self, value: &'a Node, floor: Revision) -> Found<'a> {
        Found { path: self.path.clone(), value, floor }
    }
}

impl<'a> Iterator for Search<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        if let Some((value, floor)) = self.start.take()
            && self.visit(value, floor)
        {
            return Some(self.found(value, floor));
        }
        while let Some(open) = self.open.last_mut() {
            let Some((step, value, floor)) = open.parts.next() else {
                self.open.pop();
                if !self.open.is_empty() {
                    self.path.pop();
                }
                continue;
            };
            let (floor, cost) = (floor.max(open.floor), open.cost);
            let Some(steps) = self.steps.checked_sub(cost) else {
                self.is_cut = true;
                self.open.clear();
                return None;
            };
            self.steps = steps;
            #[cfg(test)]
            super::tests::visit();
            self.path.push(step);
            let before = self.open.len();
            let found = self.visit(value, floor).then(|| self.found(value, floor));
            if self.open.len() == before {
                self.path.pop();
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Appends the JSON Pointer of a path from the root.
pub(super) fn push_steps(label: &mut String, steps: &[PathSegment<'_>]) {
    steps.iter().for_each(|step| push_step(label, *step));
}

/// Appends the JSON Pointer token of a part, including the slash.
pub(super) fn push_step(label: &mut String, step: PathSegment<'_>) {
    label.push('/');
    match step {
        PathSegment::Index(index) => push_index(label, index),
        PathSegment::Key(key) => label.push_str(Token::new(key.as_str()).encoded()),
    }
}

/// Appends a number like `write!`, but several times as fast.
pub(super) fn push_index(label: &mut String, index: usize) {
    if index >= 10 {
        push_index(label, index / 10);
    }
    label.extend(char::from_digit((index % 10) as u32, 10));
}

/// A pattern that covers exactly the parts of one container: its matches are known without a search.
pub(super) struct Members<'a> {
    /// JSON Pointer of the container.
    pub(super) label: String,
    pub(super) container: &'a Node,
    /// Parts that belong to other patterns, in document order.
    pub(super) foreign: Vec<PathSegment<'a>>,
}

impl<'a> Members<'a> {
    /// Returns `None` if the pattern has another form, the container is absent, or the parts of other patterns are not
    /// known.
    pub(super) fn find(state: &'a Node, reads: &[Pattern], which: usize) -> Option<Self> {
        let this = &reads[which];
        let (PatternToken::Any, above) = this.tokens().split_last()? else { return None };
        let mut place = PointerBuf::new();
        let mut container = state;
        for token in above {
            let PatternToken::Literal(name) = token else { return None };
            container = container.child(name)?;
            place.push_back(name.as_str());
        }
        if reads.iter().any(|other| other.covers(&place)) {
            return None;
        }
        let mut foreign = Vec::new();
        for other in reads[..which].iter().filter(|other| other.overlaps(this)) {
            match other.tokens().split_last() {
                Some((PatternToken::Literal(name), others)) if others == above => {
                    foreign.extend(container.part(name).map(|(step, ..)| step));
                }
                _ => return None,
            }
        }
        foreign.sort_unstable();
        foreign.dedup();
        Some(Self { label: place.to_string(), container, foreign })
    }

    /// Returns the number of parts that belong to the pattern.
    pub(super) fn count(&self) -> usize {
        self.container.part_count() - self.foreign.len()
    }
}
