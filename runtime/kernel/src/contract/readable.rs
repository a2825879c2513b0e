//! What a worker may read of one state: the places of its unconditional read grants, and those of its conditional ones
//! whose condition holds there.
//!
//! Nobody can ask a contract what is readable without a state. Where a worker has no conditions the answer is its patterns
//! as they are, and costs nothing. Otherwise every place that a conditional pattern matches is looked at, up to a bound,
//! and those where the condition is true become patterns of their own; whatever goes wrong with a condition, and whatever
//! lies beyond the bound, may not be read. Whoever works with patterns (views, forms, searches) therefore knows nothing of
//! conditions, and cannot tell of a place that is hidden, not even that there is one.

use std::borrow::Cow;

use jsonptr::{Pointer, PointerBuf};

use super::{Conditional, Contract};
use crate::expr::Allowance;
use crate::pattern::Pattern;
use crate::tree::Node;

/// The most places of one conditional pattern that are looked at: the first in the order of the document.
pub const PLACES_MAX: usize = 256;
/// The most of all conditional patterns of a worker.
const ALL_PLACES_MAX: usize = 4 * PLACES_MAX;

/// What a worker may read of one state.
#[derive(Clone)]
pub struct Readable<'a> {
    /// The unconditional patterns, then one for each of `places`.
    patterns: Cow<'a, [Pattern]>,
    /// Where a condition holds; none lies at or below another, nor in what may be read without.
    places: Vec<PointerBuf>,
    contract: &'a Contract,
}

/// What a worker may read before its operations change a candidate, and of the candidate as they go on.
pub(crate) struct Reading<'a> {
    /// The state that the candidate is made from.
    pub(super) state: &'a Node,
    pub(crate) before: Readable<'a>,
    now: Readable<'a>,
    /// Whether `now` is of a candidate that has changed since.
    is_old: bool,
}

impl<'a> Reading<'a> {
    /// Of the state that the candidate is made from.
    pub(crate) fn new(contract: &'a Contract, state: &'a Node, allowance: &mut Allowance) -> Self {
        let before = contract.readable_within(state, allowance);
        Self { state, now: before.clone(), before, is_old: false }
    }

    /// An operation has changed the candidate.
    pub(crate) const fn outdate(&mut self) {
        self.is_old = true;
    }

    /// Of the candidate, worked out again only if it has changed.
    pub(crate) fn now(&mut self, candidate: &Node, allowance: &mut Allowance) -> &Readable<'a> {
        if self.is_old && self.now.has_conditions() {
            self.now = self.now.contract.readable_within(candidate, allowance);
        }
        self.is_old = false;
        &self.now
    }
}

impl Contract {
    /// What it lets its worker read of a document.
    pub fn readable(&self, document: &Node) -> Readable<'_> {
        self.readable_within(document, &mut Allowance::new())
    }

    /// The same within what is left of an allowance; beyond it no condition holds.
    pub(crate) fn readable_within(&self, document: &Node, allowance: &mut Allowance) -> Readable<'_> {
        let mut readable =
            Readable { patterns: Cow::Borrowed(self.reads.as_slice()), places: Vec::new(), contract: self };
        if self.has_conditions() {
            readable.set(self.places(document, allowance));
        }
        readable
    }

    /// The places at which a condition holds, in the order of the grants.
    fn places(&self, document: &Node, allowance: &mut Allowance) -> Vec<PointerBuf> {
        let mut left = ALL_PLACES_MAX;
        let mut places = Vec::new();
        let mut variables = self.variables(document);
        for Conditional { pattern, condition } in &self.conditional {
            let instances = pattern.instances(document, PLACES_MAX.min(left));
            left -= instances.len();
            for instance in instances {
                variables.insert("self", instance.part.node.into());
                if condition.evaluate_within(&variables, allowance) == Ok(true) {
                    places.push(instance.place);
                }
            }
        }
        places
    }
}

impl<'a> Readable<'a> {
    /// Puts these places in the place of those it has.
    fn set(&mut self, mut places: Vec<PointerBuf>) {
        // In this order what lies in another comes after it.
        places.sort_by_cached_key(|place| (place.count(), place.to_string()));
        self.places.clear();
        let mut patterns = self.contract.reads.clone();
        for place in places {
            let is_covered = |pattern: &Pattern| pattern.covers(&place);
            // One that no pattern can name is too deep.
            if let Some(pattern) = Pattern::of_place(&place).filter(|_| !patterns.iter().any(is_covered)) {
                patterns.push(pattern);
                self.places.push(place);
            }
        }
        self.patterns = Cow::Owned(patterns);
    }

    /// Only what may also be read of another state, of which these were the [`places`](Self::places).
    #[must_use]
    pub fn within(mut self, places: &[PointerBuf]) -> Self {
        let lies_in = |place: &PointerBuf, others: &[PointerBuf]| others.iter().any(|other| place.starts_with(other));
        let mine = self.places.iter().filter(|place| lies_in(place, places));
        let theirs = places.iter().filter(|place| lies_in(place, &self.places));
        let both: Vec<PointerBuf> = mine.chain(theirs).cloned().collect();
        if self.contract.has_conditions() {
            self.set(both);
        }
        self
    }

    /// Whether it depends on the state.
    pub const fn has_conditions(&self) -> bool {
        self.contract.has_conditions()
    }

    /// Returns true if the worker may read the place whatever its names are bound to.
    pub(crate) fn may_always_read(&self, place: &Pointer) -> bool {
        self.patterns.iter().any(|pattern| pattern.covers(place) && !self.contract.is_template(pattern))
    }

    /// Returns true if a condition or a binding hides places from the worker.
    pub(crate) const fn hides_something(&self) -> bool {
        self.contract.hides_something()
    }

    /// What covers all that may be read, and nothing else.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The places that may be read because a condition holds there.
    pub fn places(&self) -> &[PointerBuf] {
        &self.places
    }

    /// Whether the whole value at this place may be read.
    pub fn may_read(&self, place: &Pointer) -> bool {
        self.patterns.iter().any(|pattern| pattern.covers(place))
    }

    /// Whether the worker may ask to be shown the place: it may read it, or something in it.
    pub fn may_ask_for(&self, place: &Pointer) -> bool {
        self.patterns.iter().any(|read| read.covers(place) || read.reaches_below(place))
    }

    /// Whether the place itself is hidden: it lies where a condition decides what may be read, and does not hold.
    pub fn hides(&self, place: &Pointer) -> bool {
        self.contract.is_conditional(place) && !self.may_read(place)
    }

    /// Whether something hidden may be at the place, above or below it.
    pub fn may_hide_at(&self, place: &Pointer) -> bool {
        self.contract.reaches_condition(place) && !self.may_read(place)
    }

    /// As much of a place as may be named to the worker.
    pub fn named<'p>(&self, place: &'p Pointer) -> &'p Pointer {
        if !self.hides(place) {
            return place;
        }
        let mut named = place;
        while let Some(above) = named.parent().filter(|_| self.contract.is_conditional(named)) {
            named = above;
        }
        named
    }
}
