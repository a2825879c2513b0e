//! Validation budgets: an instance representation that counts the accesses of `jsonschema`, called questions.
//!
//! A schema may judge nested values repeatedly: if `items` and `contains` lead to the same schema, an element at depth
//! `d` is judged 2^d times. The actual number depends on the document, since `jsonschema` caches some results and stops
//! early at others, so it is counted. After the budget is used up, every container appears empty. Validation then ends
//! soon, and its result is discarded.

use std::borrow::Cow;
use std::cell::Cell;
use std::marker::PhantomData;

use jsonschema::JsonType;
use jsonschema::json::{Array as ArrayOf, Json, Node as NodeOf, NodeIdentity, Object as ObjectOf};
use serde_json::Value;

/// Base budget of a verdict in questions, beside the allowance for the instance's size. A question takes 3 to 10 ns.
const VERDICT_BASE: u64 = 20_000_000;
/// Base budget for finding violations: nothing is cached, and a question takes ten times as long.
const FINDINGS_BASE: u64 = 4_000_000;
/// Budget for validating a change, regardless of document size; beyond it the whole document is validated.
const CHANGE_MAX: u64 = 4_000_000;
/// Cost of an error in questions. Each error is kept until all are found, in about a kilobyte.
const ERROR_COST: u64 = 50;
/// Base number of errors to keep, beside one for every [`BYTES_OF_ERROR`] bytes of the instance.
const ERRORS_BASE: u64 = FINDINGS_BASE / ERROR_COST;
const BYTES_OF_ERROR: u64 = 16;
/// Maximum additional questions for a schema that judges values more often than most do.
const WIDE_MAX: u64 = 100_000_000;
/// Minimum number of subschemas assumed to judge one value; those of an external meta-schema are not counted.
const APPLIED_MIN: u64 = 16;
/// Regular expression states that cost one question per byte of text. In the worst case a match is in all states at
/// once, and each takes as long as a question; usually it is in a few.
const STATES_OF_QUESTION: u64 = 8;
/// Maximum additional questions for regular expressions with many states.
const STATES_MAX: u64 = 30_000_000;

/// Upper bounds of a schema's cost for one value.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Weight {
    /// Number of subschema applications to the value.
    pub(super) applied: usize,
    /// States of the regular expressions matched with the value, weighted by their time.
    pub(super) states: usize,
}

/// Result of a validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Valid,
    Invalid,
    /// The budget was used up.
    Unknown,
}

impl Outcome {
    pub(super) fn from_verdict(is_valid: bool, meter: &Meter) -> Self {
        match (meter.is_spent(), is_valid) {
            (true, _) => Self::Unknown,
            (false, true) => Self::Valid,
            (false, false) => Self::Invalid,
        }
    }
}

impl Weight {
    /// Creates the budget of a verdict on an instance of `bytes` bytes.
    pub(super) fn verdict(self, bytes: u64) -> Meter {
        self.meter(VERDICT_BASE, bytes)
    }

    /// Creates the budget for finding the violations of an instance of `bytes` bytes.
    pub(super) fn findings(self, bytes: u64) -> Meter {
        let errors = ERRORS_BASE.saturating_add(bytes / BYTES_OF_ERROR);
        Meter { errors: Cell::new(errors), ..self.meter(FINDINGS_BASE, bytes) }
    }

    /// Creates the budget of a verdict on a change.
    pub(super) fn change(self) -> Meter {
        self.meter(CHANGE_MAX, 0)
    }

    /// Creates a budget. Every byte allows for judging its value once, so that no instance is too large. A value has at
    /// least two bytes, and each subschema asks about three questions. Allowances for thousands of subschemas or states
    /// are bounded, since a small blueprint can combine them with thousands of values or long texts.
    fn meter(self, base: u64, bytes: u64) -> Meter {
        let of_byte = |applied: u64| bytes.saturating_mul(applied.saturating_mul(2).saturating_add(8));
        let usual = of_byte(APPLIED_MIN);
        let wide = of_byte(self.applied as u64).saturating_sub(usual).min(WIDE_MAX);
        let of_states = self.states as u64 / STATES_OF_QUESTION;
        let matched = usual.saturating_mul(of_states).min(STATES_MAX);
        let left = [base, usual, wide, matched].into_iter().fold(0, u64::saturating_add);
        Meter { left: Cell::new(left), errors: Cell::new(u64::MAX), per_text_byte: 1 + of_states }
    }
}

/// Remaining budget.
#[derive(Debug)]
pub(super) struct Meter {
    left: Cell<u64>,
    /// Number of errors that may still be kept.
    errors: Cell<u64>,
    per_text_byte: u64,
}

impl Meter {
    /// Spends questions; returns false if too few were left.
    pub(super) fn spend(&self, questions: u64) -> bool {
        let rest = self.left.get().checked_sub(questions);
        self.left.set(rest.unwrap_or(0));
        rest.is_some()
    }

    /// Spends the cost of an error. Excess errors end the search.
    fn spend_error(&self) {
        let rest = self.errors.get().checked_sub(1);
        self.errors.set(rest.unwrap_or(0));
        self.spend(if rest.is_some() { ERROR_COST } else { u64::MAX });
    }

    /// Spends the cost of a text, which may be matched with regular expressions.
    fn spend_text(&self, text: &str) -> bool {
        self.spend((text.len() as u64).saturating_mul(self.per_text_byte).saturating_add(1))
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// Wraps an instance, so that this meter counts its accesses.
    pub(super) fn count<'a, J: Json>(&'a self, node: J::Node<'a>) -> Counted<'a, J> {
        Counted { node, meter: Some(self) }
    }
}

/// A metered representation of another one.
pub(super) struct Metered<J>(PhantomData<fn() -> J>);

impl<J: Json> Json for Metered<J> {
    type Node<'a> = Counted<'a, J>;
    type PreparedKey = J::PreparedKey;
    type StringBuffer = J::StringBuffer;

    const KEYS_PER_LOOKUP: usize = J::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> J::PreparedKey {
        J::prepare_key(key)
    }

    fn with_string_node<T>(buffer: &mut J::StringBuffer, string: &str, f: impl FnOnce(Counted<'_, J>) -> T) -> T {
        // A name has no contents, and its object was already counted.
        J::with_string_node(buffer, string, |node| f(Counted { node, meter: None }))
    }
}

/// A metered node.
pub(super) struct Counted<'a, J: Json> {
    node: J::Node<'a>,
    meter: Option<&'a Meter>,
}

impl<J: Json> Clone for Counted<'_, J> {
    fn clone(&self) -> Self {
        Self { node: self.node.clone(), meter: self.meter }
    }
}

impl<J: Json> Counted<'_, J> {
    fn ask(&self, questions: u64) -> bool {
        self.meter.is_none_or(|meter| meter.spend(questions))
    }
}

impl<'a, J: Json> NodeOf<'a, Metered<J>> for Counted<'a, J> {
    type Object = CountedPart<'a, <J::Node<'a> as NodeOf<'a, J>>::Object>;
    type Array = CountedPart<'a, <J::Node<'a> as NodeOf<'a, J>>::Array>;
    type Number = <J::Node<'a> as NodeOf<'a, J>>::Number;

    fn as_object(&self) -> Option<Self::Object> {
        let part = if self.ask(1) { self.node.as_object()? } else { return None };
        Some(CountedPart { part, meter: self.meter })
    }

    fn as_array(&self) -> Option<Self::Array> {
        let part = if self.ask(1) { self.node.as_array()? } else { return None };
        Some(CountedPart { part, meter: self.meter })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.node.as_string();
        // A single match of a long text can take seconds, and cannot be interrupted.
        let is_left = self.meter.is_none_or(|meter| meter.spend_text(text.as_deref().unwrap_or_default()));
        text.filter(|_| is_left)
    }

    fn as_number(&self) -> Option<Self::Number> {
        self.ask(1);
        self.node.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.ask(1);
        self.node.as_boolean()
    }

    fn is_null(&self) -> bool {
        self.node.is_null()
    }

    fn is_number(&self) -> bool {
        self.node.is_number()
    }

    fn is_string(&self) -> bool {
        self.node.is_string()
    }

    fn json_type(&self) -> JsonType {
        self.ask(1);
        self.node.json_type()
    }

    fn string_length(&self) -> Option<u64> {
        self.ask(1);
        self.node.string_length()
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.ask(1);
        self.node.equals_value(expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        if let Some(meter) = self.meter {
            meter.spend_error();
        }
        self.node.to_value()
    }

    fn identity(&self) -> Option<NodeIdentity> {
        self.node.identity()
    }

    fn container_identity(&self) -> Option<NodeIdentity> {
        self.node.container_identity()
    }
}

/// A metered object or array.
pub(super) struct CountedPart<'a, P> {
    part: P,
    meter: Option<&'a Meter>,
}

impl<P> CountedPart<'_, P> {
    fn ask(&self, questions: u64) -> bool {
        self.meter.is_none_or(|meter| meter.spend(questions))
    }
}

impl<'a, J: Json, P: ObjectOf<'a, J, Node = J::Node<'a>>> ObjectOf<'a, Metered<J>> for CountedPart<'a, P> {
    type Node = Counted<'a, J>;
    type MemberName = P::MemberName;
    type MembersIter = CountedMembers<'a, J, P::MembersIter>;

    fn len(&self) -> usize {
        self.part.len()
    }

    fn get(&self, key: &J::PreparedKey) -> Option<Counted<'a, J>> {
        let node = if self.ask(1) { self.part.get(key)? } else { return None };
        Some(Counted { node, meter: self.meter })
    }

    fn members(&self) -> Self::MembersIter {
        CountedMembers(CountedParts { parts: self.part.members(), meter: self.meter, of: PhantomData })
    }
}

impl<'a, J: Json, P: ArrayOf<'a, J, Node = J::Node<'a>>> ArrayOf<'a, Metered<J>> for CountedPart<'a, P> {
    type Node = Counted<'a, J>;
    type ElementsIter = CountedElements<'a, J, P::ElementsIter>;

    fn len(&self) -> usize {
        self.part.len()
    }

    fn elements(&self) -> Self::ElementsIter {
        CountedElements(CountedParts { parts: self.part.elements(), meter: self.meter, of: PhantomData })
    }

    fn is_unique(&self) -> bool {
        self.ask(self.part.len() as u64) && self.part.is_unique()
    }
}

/// Parts of a metered container.
pub(super) struct CountedParts<'a, J, I> {
    parts: I,
    meter: Option<&'a Meter>,
    of: PhantomData<fn() -> J>,
}

impl<J, I: Iterator> CountedParts<'_, J, I> {
    fn next_part(&mut self) -> Option<I::Item> {
        let is_left = self.meter.is_none_or(|meter| meter.spend(1));
        if is_left { self.parts.next() } else { None }
    }
}

/// Members of a metered object.
pub(super) struct CountedMembers<'a, J, I>(CountedParts<'a, J, I>);

impl<'a, J: Json, N: AsRef<str>, I: Iterator<Item = (N, J::Node<'a>)>> Iterator for CountedMembers<'a, J, I> {
    type Item = (N, Counted<'a, J>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, node) = self.0.next_part()?;
        let meter = self.0.meter;
        let is_left = meter.is_none_or(|meter| meter.spend_text(name.as_ref()));
        is_left.then_some((name, Counted { node, meter }))
    }
}

/// Elements of a metered array.
pub(super) struct CountedElements<'a, J, I>(CountedParts<'a, J, I>);

impl<'a, J: Json, I: Iterator<Item = J::Node<'a>>> Iterator for CountedElements<'a, J, I> {
    type Item = Counted<'a, J>;

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.0.next_part()?;
        Some(Counted { node, meter: self.0.meter })
    }
}

#[cfg(test)]
mod tests {
    use jsonschema::json::{Node, SerdeJson};
    use serde_json::Value;

    use super::{STATES_MAX, STATES_OF_QUESTION, VERDICT_BASE, WIDE_MAX, Weight};

    #[test]
    fn a_budget_grows_with_the_instance_and_with_the_schema_to_a_bound() {
        let left = |applied, bytes| Weight { applied, states: 0 }.verdict(bytes).left.get();
        assert_eq!(left(16, 1 << 20), VERDICT_BASE + 40 * (1 << 20));
        assert_eq!(left(60, 100_000), VERDICT_BASE + 128 * 100_000, "few values may be judged by many");
        for applied in [10_000, usize::MAX / 4] {
            assert_eq!(left(applied, 1 << 20), VERDICT_BASE + 40 * (1 << 20) + WIDE_MAX);
        }
        assert!(left(16, 1 << 30) > 40 << 30, "no instance is too large");
    }

    #[test]
    fn states_of_regular_expressions_add_to_a_budget_to_a_bound() {
        let left = |states, bytes| Weight { applied: 1, states }.verdict(bytes).left.get();
        let eight = 3 * STATES_OF_QUESTION as usize;
        assert_eq!(left(eight, 1_000), VERDICT_BASE + 4 * 40 * 1_000);
        assert_eq!(left(8_192, 1 << 20), VERDICT_BASE + 40 * (1 << 20) + STATES_MAX);
    }

    #[test]
    fn a_text_is_not_shown_to_those_who_match_it_once_the_budget_is_used_up() {
        let text = Value::from("a".repeat(1_000));
        let meter = Weight { applied: 1, states: 8_000 }.change();
        let matches = (0..10).filter(|_| meter.count::<SerdeJson>(&text).as_string().is_some()).count();
        assert_eq!((matches, meter.is_spent()), (3, true), "a million questions each, of four");
    }
}
