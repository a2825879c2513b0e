//! Finds the places that a write grant can be used for, as far as the worker knows the document.
//!
//! What a worker knows is what its view showed, and whatever else it may read: whether something is at such a place, and
//! which members a collection has. Nothing else of the document is looked at, so that no list of places tells what a
//! worker may not see; where that leaves open which places there are, the search says so. Its cost is bounded by
//! [`STEPS_MAX`] and by what was shown.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};

use super::expression;
use crate::blueprint::Freshness;
use crate::contract::Readable;
use crate::expr::Step;
use crate::freshness::Basis;
use crate::pattern::{Pattern, PatternToken, Walk, is_index};
use crate::plan::Seat;
use crate::schema::Schema;
use crate::shown::Shown;
use crate::tree::Node;

/// The most places that are named one by one. A list of this length is still short beside a view, and as long as one
/// that a model can be expected to choose from.
pub(super) const PLACES_MAX: usize = 64;
/// The most places one search looks at.
const STEPS_MAX: usize = 4096;
/// A name that nobody gives a member.
const NOBODYS_NAME: &str = "\u{1}";

/// What a worker knows of a document.
pub(super) struct Document<'a> {
    pub(super) seat: &'a Seat,
    /// What may be read of the document.
    readable: Readable<'a>,
    pub(super) schema: &'a Schema,
    root: &'a Node,
    shown: Known,
    basis: &'a Basis,
}

/// What was shown at a place and below it.
#[derive(Default)]
struct Known {
    /// Everything there.
    whole: bool,
    /// Which members it has.
    listed: bool,
    below: BTreeMap<String, Known>,
}

/// A place, and what is known of it.
#[derive(Clone)]
pub(super) struct Spot<'a> {
    pub(super) place: PointerBuf,
    /// What is there; none if nothing is, or if that is not known.
    pub(super) node: Option<&'a Node>,
    sight: Sight<'a>,
}

/// How much is known of a place.
#[derive(Clone, Copy)]
enum Sight<'a> {
    /// Everything was shown.
    Whole,
    /// Some of it was shown, or may be read.
    Part(Option<&'a Known>),
    /// That something is there, and no more.
    There,
    /// Nothing.
    Hidden,
}

/// What is to be done at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A member or element is to be made.
    Create,
    /// An element is to be put before the one that is there.
    Insert,
    /// What is there is to be written over or taken away.
    Overwrite,
}

/// Where something can be done.
#[derive(Clone, Default)]
pub(super) struct Places {
    /// Places, in the order of the document.
    pub(super) exact: Vec<PointerBuf>,
    /// Objects that can be given members, with an expression for their names.
    pub(super) free: Vec<(PointerBuf, String)>,
    /// Expressions that match all these places, and others.
    pub(super) general: Vec<String>,
    /// Whether there may be more places than are listed, because the worker knows no better.
    pub(super) is_open: bool,
    /// Whether there are too many to list.
    pub(super) is_cut: bool,
}

impl Places {
    /// Whether there is certainly no such place.
    pub(super) fn is_empty(&self) -> bool {
        self.is_listed() && self.exact.is_empty() && self.free.is_empty()
    }

    /// Whether all are listed.
    pub(super) const fn is_listed(&self) -> bool {
        !self.is_open && !self.is_cut
    }

    /// The places of both.
    pub(super) fn join(&mut self, other: Self) {
        for place in other.exact {
            if !self.exact.contains(&place) {
                self.exact.push(place);
            }
        }
        self.free.extend(other.free);
        self.general.extend(other.general.into_iter().filter(|one| !self.general.contains(one)).collect::<Vec<_>>());
        self.is_open |= other.is_open;
        self.is_cut |= other.is_cut || self.exact.len() > PLACES_MAX;
    }
}

impl<'a> Document<'a> {
    pub(super) fn of(shown: &'a Shown) -> Self {
        let basis = &**shown.basis();
        let mut known = Known::default();
        for place in &basis.members {
            known.at(place).listed = true;
        }
        for place in &basis.reads {
            known.at(place).whole = true;
        }
        let (seat, root) = (shown.seat(), basis.state.root());
        let readable = seat.contract.readable(root);
        Self { seat, readable, schema: &shown.plan().schema, root, shown: known, basis }
    }

    fn whole(&self) -> Spot<'_> {
        let sight = if self.shown.whole { Sight::Whole } else { Sight::Part(Some(&self.shown)) };
        Spot { place: PointerBuf::root(), node: Some(self.root), sight }
    }

    /// The places whose whole values were shown.
    pub(super) fn read(&self) -> impl Iterator<Item = Spot<'_>> {
        self.basis.reads.iter().filter_map(|place| {
            let node = self.basis.state.get(place)?;
            Some(Spot { place: place.clone(), node: Some(node), sight: Sight::Whole })
        })
    }

    /// What is at a place that may be read.
    pub(super) fn value(&self, place: &Pointer) -> Option<&Node> {
        self.basis.state.get(place).filter(|_| self.may_read(place))
    }

    fn may_read(&self, place: &Pointer) -> bool {
        self.readable.may_read(place)
    }

    /// Whether every member or element there may be read.
    fn may_read_children(&self, place: &Pointer) -> bool {
        self.may_read(&place.with_trailing_token(NOBODYS_NAME))
    }

    fn child<'s>(&'s self, at: &Spot<'s>, name: &str) -> Spot<'s> {
        let place = at.place.with_trailing_token(name);
        let sight = match at.sight {
            Sight::Whole => Sight::Whole,
            Sight::There | Sight::Hidden => Sight::Hidden,
            Sight::Part(known) => match known.and_then(|known| known.below.get(name)) {
                Some(below) if below.whole => Sight::Whole,
                Some(below) => Sight::Part(Some(below)),
                None if self.may_read(&place) => Sight::Part(None),
                None if known.is_some_and(|known| known.listed) => Sight::There,
                None => Sight::Hidden,
            },
        };
        let node = match sight {
            Sight::Hidden => None,
            Sight::Whole | Sight::Part(_) | Sight::There => at.node.and_then(|node| node.child(name)),
        };
        Spot { place, node, sight }
    }

    /// The names of the children that are known, and whether these are all.
    fn children<'s>(&'s self, at: &Spot<'s>, need: Need, max: usize) -> (Vec<String>, bool) {
        let Some(node) = at.node else { return (Vec::new(), false) };
        let everything = || match node {
            Node::Object(object) => object.iter().take(max).map(|(name, _)| name.to_string()).collect(),
            node => {
                (0..node.as_array().map_or(0, |array| array.len()).min(max)).map(|index| index.to_string()).collect()
            }
        };
        match at.sight {
            Sight::Whole => (everything(), true),
            Sight::There | Sight::Hidden => (Vec::new(), false),
            Sight::Part(known) => {
                let all_readable = self.may_read_children(&at.place);
                let is_listed = all_readable || known.is_some_and(|known| known.listed);
                // What may be read and was not shown may not be written over, however much of it there is.
                let only_shown = need == Need::Overwrite && all_readable && self.checks_freshness();
                if is_listed && !only_shown {
                    return (everything(), true);
                }
                let mut names = known.map_or_else(Vec::new, |known| known.below.keys().cloned().collect::<Vec<_>>());
                if node.as_array().is_some() {
                    names.sort_by_key(|name| name.parse::<usize>().unwrap_or(usize::MAX));
                }
                (names, only_shown)
            }
        }
    }

    /// The values at the end of a way, if the worker was shown all of them, or knows that there are none.
    pub(super) fn values(&self, steps: &[Step]) -> Option<Vec<Node>> {
        // Where all of them may be read, it is no secret how many containers there are on the way.
        let somewhere = PointerBuf::from_tokens(steps.iter().map(|step| match step {
            Step::Member(name) => name,
            Step::Any | Step::Element => NOBODYS_NAME,
        }));
        let mut values = Vec::new();
        self.collect(&self.whole(), steps, self.may_read(&somewhere), &mut values)?;
        Some(values)
    }

    fn collect(&self, at: &Spot<'_>, steps: &[Step], all_readable: bool, values: &mut Vec<Node>) -> Option<()> {
        match steps.split_first() {
            _ if at.is_absent() => {}
            None if values.len() < STEPS_MAX => {
                values.push(at.node.filter(|_| matches!(at.sight, Sight::Whole)).cloned()?);
            }
            None => return None,
            Some((Step::Member(name), rest)) => self.collect(&self.child(at, name), rest, all_readable, values)?,
            Some((Step::Any | Step::Element, rest)) => {
                // Of an object, a loop goes over names, or over what is not listed here.
                let array = at.node.and_then(Node::as_array)?;
                let is_known = all_readable || self.children(at, Need::Create, 0).1;
                if !is_known || array.len() >= STEPS_MAX {
                    return None;
                }
                let names = (0..array.len()).map(|index| index.to_string());
                names
                    .into_iter()
                    .try_for_each(|name| self.collect(&self.child(at, &name), rest, all_readable, values))?;
            }
        }
        Some(())
    }

    /// How many elements the array at the end of a way has, if the worker knows.
    pub(super) fn count(&self, steps: &[Step]) -> Option<usize> {
        let mut at = self.whole();
        for step in steps {
            let Step::Member(name) = step else { return None };
            at = self.child(&at, name);
        }
        let (_, is_all) = self.children(&at, Need::Create, 0);
        at.node.and_then(Node::as_array).filter(|_| is_all).map(|array| array.len())
    }

    /// What is known of a place.
    pub(super) fn at(&self, place: &Pointer) -> Spot<'_> {
        place.tokens().fold(self.whole(), |at, token| self.child(&at, &token.decoded()))
    }

    /// The array that a place is or may be an element of, with its length if that is known.
    pub(super) fn array_of<'p>(&self, place: &'p Pointer) -> Option<(&'p Pointer, Option<usize>)> {
        let (above, token) = place.split_back()?;
        let container = self.at(above);
        if !container.is_in_sight() {
            return is_index(token.encoded()).then_some((above, None));
        }
        container.node.and_then(Node::as_array).map(|array| (above, Some(array.len())))
    }

    fn checks_freshness(&self) -> bool {
        self.seat.worker.freshness != Freshness::None
    }

    /// Where a pattern can be used for what is needed.
    pub(super) fn places(&self, pattern: &Pattern, need: Need) -> Places {
        // The whole document is never granted.
        let Some((last, above)) = pattern.tokens().split_last() else { return Places::default() };
        let is_member = *last != PatternToken::Deep && !self.schema.may_be_array(&pattern.prefix(above.len()));
        if need == Need::Insert && is_member {
            return Places::default();
        }
        let mut search = Search { document: self, need, found: Places::default(), steps: 0 };
        search.visit(None, &self.whole(), pattern.walk());
        let mut found = search.found;
        let mut seen = BTreeSet::new();
        found.exact.retain(|place| seen.insert(place.clone()));
        found.general = vec![expression::of_pattern(self.seat.contract.template(pattern), self.schema, Some(need))];
        found
    }
}

impl Known {
    fn at(&mut self, place: &Pointer) -> &mut Self {
        place.tokens().fold(self, |known, token| known.below.entry(token.decoded().into_owned()).or_default())
    }
}

impl Spot<'_> {
    /// Whether certainly nothing is there.
    fn is_absent(&self) -> bool {
        self.node.is_none() && !matches!(self.sight, Sight::Hidden)
    }

    /// Whether it is known what kind of thing is there.
    const fn is_in_sight(&self) -> bool {
        matches!(self.sight, Sight::Whole | Sight::Part(_))
    }
}

fn is_container(node: &Node) -> bool {
    node.as_array().is_some() || node.as_object().is_some()
}

/// One search.
struct Search<'a> {
    document: &'a Document<'a>,
    need: Need,
    found: Places,
    steps: usize,
}

impl<'a> Search<'a> {
    // As deep as the document is, and below that as long as the pattern is.
    fn visit(&mut self, container: Option<&Spot<'a>>, spot: &Spot<'a>, walk: Walk<'_>) {
        self.steps += 1;
        if self.steps > STEPS_MAX || self.found.exact.len() > PLACES_MAX || self.found.free.len() > PLACES_MAX {
            self.found.is_cut = true;
        }
        if self.found.is_cut || spot.is_absent() {
            return;
        }
        match self.need {
            Need::Create => self.create(spot, walk),
            Need::Insert | Need::Overwrite => {
                if let Some(container) = container.filter(|_| walk.is_end()) {
                    self.take(container, spot);
                }
            }
        }
        let goes_on = |token: &PatternToken| matches!(token, PatternToken::Any | PatternToken::Deep);
        let names = if walk.wanted().any(goes_on) {
            let (names, is_complete) = match spot.node {
                Some(node) if spot.is_in_sight() && !is_container(node) => (Vec::new(), true),
                _ => self.document.children(spot, self.need, STEPS_MAX),
            };
            self.found.is_open |= !is_complete;
            names
        } else {
            let literal = |token: &PatternToken| match token {
                PatternToken::Literal(name) => Some(name.clone()),
                _ => None,
            };
            walk.wanted().filter_map(literal).collect()
        };
        for name in names {
            if let Some(walk) = walk.step(&name, false) {
                self.visit(Some(spot), &self.document.child(spot, &name), walk);
            }
        }
    }

    /// Takes a place where something is.
    fn take(&mut self, container: &Spot<'a>, spot: &Spot<'a>) {
        let document = self.document;
        let fits = match self.need {
            Need::Insert if container.is_in_sight() => container.node.is_some_and(|node| node.as_array().is_some()),
            Need::Insert => spot.place.back().is_some_and(|token| is_index(token.encoded())),
            Need::Overwrite | Need::Create => {
                !document.checks_freshness() || !document.basis.is_unseen(&spot.place, &document.readable)
            }
        };
        if fits && document.schema.has_place(&spot.place) {
            self.found.exact.push(spot.place.clone());
        }
    }

    /// Takes the places in a container where something can be made.
    fn create(&mut self, container: &Spot<'a>, walk: Walk<'_>) {
        let document = self.document;
        let ends = |name: &str, append: bool| walk.step(name, append).is_some_and(Walk::is_end);
        let array = container.node.filter(|_| container.is_in_sight()).and_then(Node::as_array);
        let is_object = container.is_in_sight() && container.node.is_some_and(|node| node.as_object().is_some());
        if container.is_in_sight() && array.is_none() && !is_object {
            return;
        }
        let mut offer = |name: &str| {
            let place = container.place.with_trailing_token(name);
            if document.schema.has_place(&place) {
                self.found.exact.push(place);
            }
        };
        if !is_object
            && ends("-", true)
            && (array.is_some() || walk.wanted().any(|token| *token == PatternToken::Append))
        {
            offer("-");
        }
        for token in walk.wanted() {
            let PatternToken::Literal(name) = token else { continue };
            let is_gap = match array {
                Some(array) => *name == array.len().to_string() && !ends("-", true),
                None => document.child(container, name).node.is_none(),
            };
            if is_gap && ends(name, false) {
                offer(name);
            }
        }
        if !is_object || !ends(NOBODYS_NAME, false) {
            return;
        }
        match document.schema.names_at(&container.place) {
            None => self.found.free.push((container.place.clone(), expression::NAME.to_owned())),
            Some(names) => {
                let absent = |name: &&String| document.child(container, name).node.is_none();
                names.known.iter().filter(absent).filter(|name| ends(name, false)).for_each(|name| offer(name));
                for pattern in &names.patterns {
                    // A name with a slash would have to be escaped.
                    let name = expression::portable(pattern).filter(|name| !name.contains(['/', '~']));
                    let name = name.map_or_else(|| expression::NAME.to_owned(), |name| format!("({name})"));
                    self.found.free.push((container.place.clone(), name));
                }
            }
        }
    }
}
