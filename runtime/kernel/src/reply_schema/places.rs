//! Finds the places where a write grant can be used, as far as the worker knows the document.
//!
//! A worker knows what its view showed, and what else it may read: if a place has a value, and the members of a
//! collection. No other part of the document is examined, so a list of places reveals nothing hidden. If this leaves
//! the set of places open, the search reports so. The cost is bounded by [`STEPS_MAX`] and by the view.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};

use super::expression;
use super::need::Need;
use crate::blueprint::Freshness;
use crate::call_context::CallContext;
use crate::contract::Readable;
use crate::expr::LookupStep;
use crate::freshness::ReadSet;
use crate::pattern::{Pattern, PatternToken, Walk, is_index};
use crate::plan::WorkerPlan;
use crate::schema::Schema;
use crate::tree::Node;

/// Maximum number of places that are listed one by one. Such a list is short compared with a view, and about as long as
/// a model can choose from.
pub(super) const PLACES_MAX: usize = 64;
/// Maximum number of places that one search examines.
const STEPS_MAX: usize = 4096;
/// A name that no member has.
const UNUSED_NAME: &str = "\u{1}";

/// A worker's knowledge of a document.
pub(super) struct KnownDocument<'a> {
    pub(super) worker_plan: &'a WorkerPlan,
    /// Readable places of the document.
    readable: Readable<'a>,
    pub(super) schema: &'a Schema,
    root: &'a Node,
    shown: ShownParts,
    basis: &'a ReadSet,
}

/// Parts shown at a place and below it.
#[derive(Default)]
struct ShownParts {
    whole: bool,
    /// The set of its members was shown.
    listed: bool,
    below: BTreeMap<String, ShownParts>,
}

/// A place, and the worker's knowledge of it.
#[derive(Clone)]
pub(super) struct KnownPlace<'a> {
    pub(super) place: PointerBuf,
    /// The value; `None` if it is absent or unknown.
    pub(super) node: Option<&'a Node>,
    knowledge: Knowledge<'a>,
}

/// Extent of the knowledge of a place.
#[derive(Clone, Copy)]
enum Knowledge<'a> {
    /// The whole value was shown.
    Whole,
    /// A part was shown, or may be read.
    Part(Option<&'a ShownParts>),
    /// Only the existence of a value is known.
    Exists,
    /// Nothing is known.
    Hidden,
}

/// Places where an operation is possible.
#[derive(Clone, Default)]
pub(super) struct Places {
    /// Places, in document order.
    pub(super) exact: Vec<PointerBuf>,
    /// Objects that accept new members, with an expression for their names.
    pub(super) free: Vec<(PointerBuf, String)>,
    /// Expressions that match all these places, and others.
    pub(super) general: Vec<String>,
    /// True if unknown parts of the document may have more places.
    pub(super) is_open: bool,
    /// True if there are too many to list.
    pub(super) is_cut: bool,
}

impl Places {
    /// Returns true if there is certainly no such place.
    pub(super) fn is_empty(&self) -> bool {
        self.is_listed() && self.exact.is_empty() && self.free.is_empty()
    }

    pub(super) const fn is_listed(&self) -> bool {
        !self.is_open && !self.is_cut
    }

    /// Adds the places of another result.
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

impl<'a> KnownDocument<'a> {
    pub(super) fn from_context(shown: &'a CallContext) -> Self {
        let basis = &**shown.basis();
        let mut known = ShownParts::default();
        for place in &basis.members {
            known.at(place).listed = true;
        }
        for place in &basis.reads {
            known.at(place).whole = true;
        }
        let (worker_plan, root) = (shown.worker_plan(), basis.state.root());
        let readable = worker_plan.contract.readable(root);
        Self { worker_plan, readable, schema: &shown.plan().schema, root, shown: known, basis }
    }

    fn whole(&self) -> KnownPlace<'_> {
        let sight = if self.shown.whole { Knowledge::Whole } else { Knowledge::Part(Some(&self.shown)) };
        KnownPlace { place: PointerBuf::root(), node: Some(self.root), knowledge: sight }
    }

    /// Returns the places with a value that was shown in full.
    pub(super) fn read(&self) -> impl Iterator<Item = KnownPlace<'_>> {
        self.basis.reads.iter().filter_map(|place| {
            let node = self.basis.state.get(place)?;
            Some(KnownPlace { place: place.clone(), node: Some(node), knowledge: Knowledge::Whole })
        })
    }

    /// Returns the value at a place, if it may be read.
    pub(super) fn value(&self, place: &Pointer) -> Option<&Node> {
        self.basis.state.get(place).filter(|_| self.may_read(place))
    }

    fn may_read(&self, place: &Pointer) -> bool {
        self.readable.may_read(place)
    }

    fn child<'s>(&'s self, at: &KnownPlace<'s>, name: &str) -> KnownPlace<'s> {
        let place = at.place.with_trailing_token(name);
        let sight = match at.knowledge {
            Knowledge::Whole => Knowledge::Whole,
            Knowledge::Exists | Knowledge::Hidden => Knowledge::Hidden,
            Knowledge::Part(known) => match known.and_then(|known| known.below.get(name)) {
                Some(below) if below.whole => Knowledge::Whole,
                Some(below) => Knowledge::Part(Some(below)),
                None if self.may_read(&place) => Knowledge::Part(None),
                None if known.is_some_and(|known| known.listed) => Knowledge::Exists,
                None => Knowledge::Hidden,
            },
        };
        let node = match sight {
            Knowledge::Hidden => None,
            Knowledge::Whole | Knowledge::Part(_) | Knowledge::Exists => at.node.and_then(|node| node.child(name)),
        };
        KnownPlace { place, node, knowledge: sight }
    }

    /// Returns the names of the known children, and true if there are no others.
    fn children<'s>(&'s self, at: &KnownPlace<'s>, need: Need, max: usize) -> (Vec<String>, bool) {
        let Some(node) = at.node else { return (Vec::new(), false) };
        let everything = || match node {
            Node::Object(object) => object.iter().take(max).map(|(name, _)| name.to_string()).collect(),
            node => {
                (0..node.as_array().map_or(0, |array| array.len()).min(max)).map(|index| index.to_string()).collect()
            }
        };
        match at.knowledge {
            Knowledge::Whole => (everything(), true),
            Knowledge::Exists | Knowledge::Hidden => (Vec::new(), false),
            Knowledge::Part(known) => {
                let all_readable = self.may_read(&at.place.with_trailing_token(UNUSED_NAME));
                let is_listed = all_readable || known.is_some_and(|known| known.listed);
                // A readable value that was not shown may not be overwritten.
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

    /// Returns the values at the end of a path, if all of them were shown or there are certainly none.
    pub(super) fn values(&self, steps: &[LookupStep]) -> Option<Vec<Node>> {
        // If all of them may be read, the number of containers on the way is no secret.
        let somewhere = PointerBuf::from_tokens(steps.iter().map(|step| match step {
            LookupStep::Member(name) => name,
            LookupStep::Any | LookupStep::Element => UNUSED_NAME,
        }));
        let mut values = Vec::new();
        self.collect(&self.whole(), steps, self.may_read(&somewhere), &mut values)?;
        Some(values)
    }

    fn collect(
        &self,
        at: &KnownPlace<'_>,
        steps: &[LookupStep],
        all_readable: bool,
        values: &mut Vec<Node>,
    ) -> Option<()> {
        match steps.split_first() {
            _ if at.is_absent() => {}
            None if values.len() < STEPS_MAX => {
                values.push(at.node.filter(|_| matches!(at.knowledge, Knowledge::Whole)).cloned()?);
            }
            None => return None,
            Some((LookupStep::Member(name), rest)) => {
                self.collect(&self.child(at, name), rest, all_readable, values)?
            }
            Some((LookupStep::Any | LookupStep::Element, rest)) => {
                // A loop over an object yields names, or values that are not listed here.
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

    /// Returns the length of the array at the end of a path, if the worker knows it.
    pub(super) fn count(&self, steps: &[LookupStep]) -> Option<usize> {
        let mut at = self.whole();
        for step in steps {
            let LookupStep::Member(name) = step else { return None };
            at = self.child(&at, name);
        }
        let (_, is_all) = self.children(&at, Need::Create, 0);
        at.node.and_then(Node::as_array).filter(|_| is_all).map(|array| array.len())
    }

    /// Returns the worker's knowledge of a place.
    pub(super) fn at(&self, place: &Pointer) -> KnownPlace<'_> {
        place.tokens().fold(self.whole(), |at, token| self.child(&at, &token.decoded()))
    }

    /// Returns the array that a place is or may be an element of, with its length if known.
    pub(super) fn array_of<'p>(&self, place: &'p Pointer) -> Option<(&'p Pointer, Option<usize>)> {
        let (above, token) = place.split_back()?;
        let container = self.at(above);
        if !container.is_type_known() {
            return is_index(token.encoded()).then_some((above, None));
        }
        container.node.and_then(Node::as_array).map(|array| (above, Some(array.len())))
    }

    fn checks_freshness(&self) -> bool {
        self.worker_plan.worker.freshness != Freshness::None
    }

    /// Returns the places of a pattern where the operation is possible.
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
        found.general =
            vec![expression::of_pattern(self.worker_plan.contract.template(pattern), self.schema, Some(need))];
        found
    }
}

impl ShownParts {
    fn at(&mut self, place: &Pointer) -> &mut Self {
        place.tokens().fold(self, |known, token| known.below.entry(token.decoded().into_owned()).or_default())
    }
}

impl KnownPlace<'_> {
    /// Returns true if there is certainly no value.
    fn is_absent(&self) -> bool {
        self.node.is_none() && !matches!(self.knowledge, Knowledge::Hidden)
    }

    const fn is_type_known(&self) -> bool {
        matches!(self.knowledge, Knowledge::Whole | Knowledge::Part(_))
    }
}

fn is_container(node: &Node) -> bool {
    node.as_array().is_some() || node.as_object().is_some()
}

struct Search<'a> {
    document: &'a KnownDocument<'a>,
    need: Need,
    found: Places,
    steps: usize,
}

impl<'a> Search<'a> {
    // Recursion is bounded by the depth of the document, and below it by the length of the pattern.
    fn visit(&mut self, container: Option<&KnownPlace<'a>>, spot: &KnownPlace<'a>, walk: Walk<'_>) {
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
                    self.add_existing(container, spot);
                }
            }
        }
        let goes_on = |token: &PatternToken| matches!(token, PatternToken::Any | PatternToken::Deep);
        let names = if walk.next_tokens().any(goes_on) {
            let (names, is_complete) = match spot.node {
                Some(node) if spot.is_type_known() && !is_container(node) => (Vec::new(), true),
                _ => self.document.children(spot, self.need, STEPS_MAX),
            };
            self.found.is_open |= !is_complete;
            names
        } else {
            let literal = |token: &PatternToken| match token {
                PatternToken::Literal(name) => Some(name.clone()),
                _ => None,
            };
            walk.next_tokens().filter_map(literal).collect()
        };
        for name in names {
            if let Some(walk) = walk.step(&name, false) {
                self.visit(Some(spot), &self.document.child(spot, &name), walk);
            }
        }
    }

    fn add_existing(&mut self, container: &KnownPlace<'a>, spot: &KnownPlace<'a>) {
        let document = self.document;
        let fits = match self.need {
            Need::Insert if container.is_type_known() => container.node.is_some_and(|node| node.as_array().is_some()),
            Need::Insert => spot.place.back().is_some_and(|token| is_index(token.encoded())),
            Need::Overwrite | Need::Create => {
                !document.checks_freshness() || !document.basis.is_unseen(&spot.place, &document.readable)
            }
        };
        if fits && document.schema.has_place(&spot.place) {
            self.found.exact.push(spot.place.clone());
        }
    }

    /// Adds the places in a container where a value can be created.
    fn create(&mut self, container: &KnownPlace<'a>, walk: Walk<'_>) {
        let document = self.document;
        let ends = |name: &str, append: bool| walk.step(name, append).is_some_and(Walk::is_end);
        let array = container.node.filter(|_| container.is_type_known()).and_then(Node::as_array);
        let is_object = container.is_type_known() && container.node.is_some_and(|node| node.as_object().is_some());
        if container.is_type_known() && array.is_none() && !is_object {
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
            && (array.is_some() || walk.next_tokens().any(|token| *token == PatternToken::Append))
        {
            offer("-");
        }
        for token in walk.next_tokens() {
            let PatternToken::Literal(name) = token else { continue };
            let is_gap = match array {
                Some(array) => *name == array.len().to_string() && !ends("-", true),
                None => document.child(container, name).node.is_none(),
            };
            if is_gap && ends(name, false) {
                offer(name);
            }
        }
        if !is_object || !ends(UNUSED_NAME, false) {
            return;
        }
        match document.schema.names_at(&container.place) {
            None => self.found.free.push((container.place.clone(), expression::NAME.to_owned())),
            Some(names) => {
                let absent = |name: &&String| document.child(container, name).node.is_none();
                names.known.iter().filter(absent).filter(|name| ends(name, false)).for_each(|name| offer(name));
                for pattern in &names.patterns {
                    // A name with a slash would need escaping.
                    let name = expression::portable(pattern).filter(|name| !name.contains(['/', '~']));
                    let name = name.map_or_else(|| expression::NAME.to_owned(), |name| format!("({name})"));
                    self.found.free.push((container.place.clone(), name));
                }
            }
        }
    }
}
