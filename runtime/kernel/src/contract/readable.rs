//! Places that a worker may read in one state: those of its unconditional read grants, and those where a conditional
//! grant's condition holds.
//!
//! Readability is always computed for a state. Without conditions it is the contract's patterns as they are, at no
//! cost. Otherwise every place that a conditional pattern matches is evaluated, up to a bound. Those where the
//! condition is true become patterns of their own. Places with an evaluation error, and places beyond the bound, may
//! not be read. Users of these patterns (views, forms, searches) therefore need no conditions, and a hidden place looks
//! like an absent one.

use std::borrow::Cow;

use jsonptr::{Pointer, PointerBuf};

use super::{ConditionalRead, Contract};
use crate::expr::Allowance;
use crate::pattern::Pattern;
use crate::tree::Node;

/// Maximum number of places that are evaluated for one conditional pattern, in document order.
pub const PLACES_MAX: usize = 256;
/// Maximum for all conditional patterns of a worker.
const ALL_PLACES_MAX: usize = 4 * PLACES_MAX;

/// Places that a worker may read in one state.
#[derive(Clone)]
pub struct Readable<'a> {
    /// The unconditional patterns, then one for each of `places`.
    patterns: Cow<'a, [Pattern]>,
    /// Places where a condition holds. None lies at or below another, nor in an unconditionally readable place.
    places: Vec<PointerBuf>,
    contract: &'a Contract,
}

/// Readable places before a patch, and those of the candidate while operations are applied.
pub(crate) struct ReadCheck<'a> {
    /// The state that the candidate is made from.
    pub(super) state: &'a Node,
    pub(crate) before: Readable<'a>,
    now: Readable<'a>,
    /// True if the candidate has changed since `now` was computed.
    is_old: bool,
}

impl<'a> ReadCheck<'a> {
    /// Computes the readable places of the state that the candidate is made from.
    pub(crate) fn new(contract: &'a Contract, state: &'a Node, allowance: &mut Allowance) -> Self {
        let before = contract.readable_within(state, allowance);
        Self { state, now: before.clone(), before, is_old: false }
    }

    /// Marks the candidate as changed.
    pub(crate) const fn outdate(&mut self) {
        self.is_old = true;
    }

    /// Returns the readable places of the candidate; recomputes them only if it has changed.
    pub(crate) fn now(&mut self, candidate: &Node, allowance: &mut Allowance) -> &Readable<'a> {
        if self.is_old && self.now.has_conditions() {
            self.now = self.now.contract.readable_within(candidate, allowance);
        }
        self.is_old = false;
        &self.now
    }
}

impl Contract {
    /// Returns the places of a document that the worker may read.
    pub fn readable(&self, document: &Node) -> Readable<'_> {
        self.readable_within(document, &mut Allowance::new())
    }

    /// Like [`Self::readable`], within the rest of an allowance; beyond it no condition holds.
    pub(crate) fn readable_within(&self, document: &Node, allowance: &mut Allowance) -> Readable<'_> {
        let mut readable =
            Readable { patterns: Cow::Borrowed(self.reads.as_slice()), places: Vec::new(), contract: self };
        if self.has_conditions() {
            readable.set(self.places(document, allowance));
        }
        readable
    }

    /// Returns the places at which a condition holds, in the order of the grants.
    fn places(&self, document: &Node, allowance: &mut Allowance) -> Vec<PointerBuf> {
        let mut left = ALL_PLACES_MAX;
        let mut places = Vec::new();
        let mut variables = self.variables(document);
        for ConditionalRead { pattern, condition } in &self.conditional {
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
    /// Replaces the conditional places.
    fn set(&mut self, mut places: Vec<PointerBuf>) {
        // Sorted by depth, so that a place precedes those inside it.
        places.sort_by_cached_key(|place| (place.count(), place.to_string()));
        self.places.clear();
        let mut patterns = self.contract.reads.clone();
        for place in places {
            let is_covered = |pattern: &Pattern| pattern.covers(&place);
            // A place too deep for any pattern is left out.
            if let Some(pattern) = Pattern::from_place(&place).filter(|_| !patterns.iter().any(is_covered)) {
                patterns.push(pattern);
                self.places.push(place);
            }
        }
        self.patterns = Cow::Owned(patterns);
    }

    /// Restricts it to places that may also be read in another state with these [`places`](Self::places).
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

    /// Returns true if readability depends on the state.
    pub const fn has_conditions(&self) -> bool {
        self.contract.has_conditions()
    }

    /// Returns true if the worker may read the place whatever its names are bound to.
    pub(crate) fn may_always_read(&self, place: &Pointer) -> bool {
        let is_template = |pattern: &Pattern| self.contract.templates.iter().any(|(bound, _)| bound == pattern);
        self.patterns.iter().any(|pattern| pattern.covers(place) && !is_template(pattern))
    }

    /// Returns true if a condition or a binding hides places from the worker.
    pub(crate) const fn hides_any(&self) -> bool {
        self.contract.hides_any()
    }

    /// Returns patterns that cover exactly the readable places.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Returns the places that may be read because a condition holds there.
    pub fn places(&self) -> &[PointerBuf] {
        &self.places
    }

    /// Returns true if the whole value at this place may be read.
    pub fn may_read(&self, place: &Pointer) -> bool {
        self.patterns.iter().any(|pattern| pattern.covers(place))
    }

    /// Returns true if the worker may request the place: it may read the place, or a part of it.
    pub fn may_ask_for(&self, place: &Pointer) -> bool {
        self.patterns.iter().any(|read| read.covers(place) || read.reaches_below(place))
    }

    /// Returns true if the place itself is hidden: a condition decides there, and does not hold.
    pub fn hides(&self, place: &Pointer) -> bool {
        self.contract.is_conditional(place) && !self.may_read(place)
    }

    /// Returns true if a hidden value may be at the place, above or below it.
    pub fn may_hide_at(&self, place: &Pointer) -> bool {
        self.contract.reaches_condition(place) && !self.may_read(place)
    }

    /// Returns the longest beginning of a place that may be named to the worker.
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
