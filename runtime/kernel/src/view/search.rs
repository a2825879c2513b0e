//! Finds the places that a read pattern covers, one after another.
//!
//! Owns which pattern a place belongs to where several cover it: the highest covered place counts, and of several
//! patterns that cover it the first. Every part looked at counts as a step, and there is an end to steps, because a
//! pattern may match little of a large document.

use jsonptr::{PointerBuf, Token};

use crate::pattern::{Pattern, PatternToken};
use crate::tree::{At, Latest, Node, Parts, Step, Ties};

/// The most containers whose members a search gave wholly that are kept.
pub(super) const CONTAINERS_MAX: usize = 256;

/// An object with more members is kept by the hashes of their names: finding them in order takes longer.
const LARGE_MIN: usize = 32;
/// Steps that a member of such an object counts as.
const LARGE_COST: usize = 4;

/// In which order places are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// As they stand.
    Document,
    /// Those in what changed last first, wherever a pattern leaves open which.
    Latest,
}

/// A covered place; none above it is covered.
#[derive(Clone)]
pub(super) struct Found<'a> {
    /// The way from the root.
    pub(super) path: Vec<Step<'a>>,
    pub(super) value: &'a Node,
    /// When it came there; of what a `*` or `**` led to, 0 if found in the order of the document.
    pub(super) floor: At,
}

impl Found<'_> {
    /// JSON Pointer.
    pub(super) fn label(&self) -> String {
        let mut label = String::new();
        push_steps(&mut label, &self.path);
        label
    }
}

/// Read patterns, and what is worked out once of how they stand to each other.
pub(super) struct Reads<'a> {
    pub(super) patterns: &'a [Pattern],
    /// Of each pattern, indices of others to which a place that it covers could belong.
    rivals: Vec<Vec<usize>>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(patterns: &'a [Pattern]) -> Self {
        let is_below = |this: &Pattern, other: &Pattern| {
            this.tokens().len() > other.tokens().len() && this.tokens().starts_with(other.tokens())
        };
        let rivals_of = |(which, this): (usize, &Pattern)| {
            let is_rival = |(index, other): &(usize, &Pattern)| {
                // Of places there may be many.
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
    /// Where the pattern's first `**` is; up to there, a token of the pattern is one of the path.
    deep: usize,
    /// The way to the place reached.
    path: Vec<Step<'a>>,
    open: Vec<Open<'a>>,
    start: Option<(&'a Node, At)>,
    steps: usize,
    is_cut: bool,
    /// Containers all of whose parts are looked at because the pattern leaves open which.
    containers: Vec<String>,
}

/// A container on the way.
struct Open<'a> {
    parts: Rest<'a>,
    floor: At,
    /// Steps that each part counts as.
    cost: usize,
}

/// What is left to be looked at of a container.
enum Rest<'a> {
    One(Option<(Step<'a>, &'a Node, At)>),
    Document(Parts<'a>),
    Latest(Latest<'a>),
}

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<(Step<'a>, &'a Node, At)> {
        match self {
            Self::One(part) => part.take(),
            Self::Document(parts) => parts.next().map(|(step, node)| (step, node, 0)),
            Self::Latest(parts) => parts.next().map(|(step, node, stamp)| (step, node, stamp.changed)),
        }
    }
}

impl<'a> Search<'a> {
    /// Looks in the whole document, with at most `steps` steps.
    pub(super) fn new(state: &'a Node, reads: &'a Reads<'a>, which: usize, order: Order, steps: usize) -> Self {
        let this = &reads.patterns[which];
        let deep = this.tokens().iter().position(|token| *token == PatternToken::Deep);
        Self {
            reads,
            which,
            order,
            deep: deep.unwrap_or(usize::MAX),
            path: Vec::new(),
            open: Vec::new(),
            start: Some((state, 0)),
            steps,
            is_cut: false,
            containers: Vec::new(),
        }
    }

    /// Looks below a place only, which no pattern covers and which this one must reach below.
    pub(super) fn below(mut self, path: Vec<Step<'a>>, value: &'a Node, floor: At) -> Self {
        (self.path, self.start) = (path, Some((value, floor)));
        self
    }

    /// The containers all of whose parts were looked at, outermost first, if the search came to its end;
    /// at most [`CONTAINERS_MAX`].
    pub(super) fn containers(&mut self) -> Vec<String> {
        if self.is_cut { Vec::new() } else { std::mem::take(&mut self.containers) }
    }

    /// Whether it ended before all was looked at.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether the place reached belongs to the pattern; if not, its container is opened where more may be below.
    fn visit(&mut self, value: &'a Node, floor: At) -> bool {
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
        // Up to the first `**` only what matches is entered, and from there it may lead anywhere.
        if !matches!(value, Node::Array(_) | Node::Object(_)) {
            return false;
        }
        let one = |name: &str| {
            Rest::One(value.part(name).map(|(step, node, stamp)| (step, node, stamp.under(floor).changed)))
        };
        let parts = match this.tokens().get(depth).filter(|_| depth < self.deep) {
            Some(PatternToken::Literal(name)) => one(name),
            Some(PatternToken::Append) => one("-"),
            // A name that is not bound leads nowhere.
            Some(PatternToken::Bound(_)) => return false,
            Some(PatternToken::Any | PatternToken::Deep) | None => match self.order {
                Order::Document => Rest::Document(value.parts()),
                Order::Latest => Rest::Latest(value.latest(floor, Ties::Last)),
            },
        };
        if !matches!(parts, Rest::One(_)) && self.containers.len() < CONTAINERS_MAX {
            self.containers.push(self.label());
        }
        let is_large = value.as_object().is_some() && value.part_count() > LARGE_MIN && !matches!(parts, Rest::One(_));
        self.open.push(Open { parts, floor, cost: if is_large { LARGE_COST } else { 1 } });
        false
    }

    /// Whether the last token is one that the pattern can end with.
    fn may_end_here(&self) -> bool {
        match (self.reads.patterns[self.which].tokens().last(), self.path.last()) {
            (Some(PatternToken::Literal(name)), Some(Step::Key(key))) => name == key.as_str(),
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

    fn found(&self, value: &'a Node, floor: At) -> Found<'a> {
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

/// The JSON Pointer of a way from the root.
pub(super) fn push_steps(label: &mut String, steps: &[Step<'_>]) {
    steps.iter().for_each(|step| push_step(label, *step));
}

/// The token of a JSON Pointer that names a part, with the slash before it.
pub(super) fn push_step(label: &mut String, step: Step<'_>) {
    label.push('/');
    match step {
        Step::Index(index) => push_index(label, index),
        Step::Key(key) => label.push_str(Token::new(key.as_str()).encoded()),
    }
}

/// A number as `write!` has it, which takes several times as long.
pub(super) fn push_index(label: &mut String, index: usize) {
    if index >= 10 {
        push_index(label, index / 10);
    }
    label.extend(char::from_digit((index % 10) as u32, 10));
}

/// A pattern that covers the parts of one container and nothing else: what belongs to it is known without looking.
pub(super) struct Members<'a> {
    /// JSON Pointer of the container.
    pub(super) label: String,
    pub(super) container: &'a Node,
    /// Parts of it that belong to other patterns, in the order of the document.
    pub(super) foreign: Vec<Step<'a>>,
}

impl<'a> Members<'a> {
    /// None if the pattern has another form, the container is not there, or other patterns leave open what is theirs.
    pub(super) fn of(state: &'a Node, reads: &[Pattern], which: usize) -> Option<Self> {
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

    /// How many parts belong to the pattern.
    pub(super) fn count(&self) -> usize {
        self.container.part_count() - self.foreign.len()
    }
}
