//! What one validation may take: a representation of instances that counts how often `jsonschema` asks it.
//!
//! A schema may judge what is nested again and again: where `items` and `contains` both lead to the same schema, an
//! element `d` deep is judged 2^d times. How often that happens to one document is not known from the schema, since
//! `jsonschema` remembers some results and stops at others. So it is counted. When the budget is used up, every
//! container looks empty, which ends the validation soon; what it then says is thrown away.

use std::borrow::Cow;
use std::cell::Cell;
use std::marker::PhantomData;

use jsonschema::JsonType;
use jsonschema::json::{Array as ArrayOf, Json, Node as NodeOf, NodeIdentity, Object as ObjectOf};
use serde_json::Value;

/// Questions that a verdict may take, beside those that the size of the instance allows. A question takes 3 to 10 ns.
const VERDICT_BASE: u64 = 20_000_000;
/// The same for finding what is wrong: nothing is remembered on the way, and a question takes ten times as long.
const FINDINGS_BASE: u64 = 4_000_000;
/// What validating a change may take, however large the document is, before all of it is validated instead.
const CHANGE_MAX: u64 = 4_000_000;
/// What an error counts for. It is kept, in about a kilobyte, until all are found.
const ERROR_COST: u64 = 50;
/// Errors that are kept, beside those that the size of the instance allows: one for so many bytes of it.
const ERRORS_BASE: u64 = FINDINGS_BASE / ERROR_COST;
const BYTES_OF_ERROR: u64 = 16;
/// The most questions that a schema which judges values more often than most do adds to those of others.
const WIDE_MAX: u64 = 100_000_000;
/// The fewest subschemas that are taken to judge one value: those of a meta-schema outside of the document are not seen.
const APPLIED_MIN: u64 = 16;
/// States of regular expressions that count for one question with each byte of a text. Where a text is in all of them at
/// once, each takes as long as a question; in most expressions it is in a few.
const STATES_OF_QUESTION: u64 = 8;
/// The most questions that regular expressions of many states add to those of others.
const STATES_MAX: u64 = 30_000_000;

/// What a schema asks of one value at most.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Weight {
    /// Subschemas that judge it, each as often as it does.
    pub(super) applied: usize,
    /// States of the regular expressions that it is matched with, by the time that they take.
    pub(super) states: usize,
}

/// What came of a validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Valid,
    Invalid,
    /// The budget was used up.
    Unknown,
}

impl Outcome {
    pub(super) fn of(is_valid: bool, meter: &Meter) -> Self {
        match (meter.is_spent(), is_valid) {
            (true, _) => Self::Unknown,
            (false, true) => Self::Valid,
            (false, false) => Self::Invalid,
        }
    }
}

impl Weight {
    /// For a verdict on an instance of so many bytes.
    pub(super) fn verdict(self, bytes: u64) -> Meter {
        self.meter(VERDICT_BASE, bytes)
    }

    /// For finding what is wrong with one.
    pub(super) fn findings(self, bytes: u64) -> Meter {
        let errors = ERRORS_BASE.saturating_add(bytes / BYTES_OF_ERROR);
        Meter { errors: Cell::new(errors), ..self.meter(FINDINGS_BASE, bytes) }
    }

    /// For a verdict on what changed in an instance.
    pub(super) fn change(self) -> Meter {
        self.meter(CHANGE_MAX, 0)
    }

    /// Every byte allows for what judges its value once, so that an instance is never too large: the value has two bytes
    /// or more, and each subschema asks about three questions of it. Where thousands of subschemas judge thousands of values,
    /// or thousands of states are gone through for long texts, that is bounded: a small blueprint can have both.
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

/// What is left of a budget.
#[derive(Debug)]
pub(super) struct Meter {
    left: Cell<u64>,
    /// Errors that may still be kept.
    errors: Cell<u64>,
    per_text_byte: u64,
}

impl Meter {
    /// Takes so much from the budget; false if it was not there.
    pub(super) fn spend(&self, questions: u64) -> bool {
        let rest = self.left.get().checked_sub(questions);
        self.left.set(rest.unwrap_or(0));
        rest.is_some()
    }

    /// Takes what an error counts for. One that is too many ends the search.
    fn spend_error(&self) {
        let rest = self.errors.get().checked_sub(1);
        self.errors.set(rest.unwrap_or(0));
        self.spend(if rest.is_some() { ERROR_COST } else { u64::MAX });
    }

    /// Takes what a text counts for: it may be matched with regular expressions.
    fn spend_text(&self, text: &str) -> bool {
        self.spend((text.len() as u64).saturating_mul(self.per_text_byte).saturating_add(1))
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// An instance that is counted with this.
    pub(super) fn of<'a, J: Json>(&'a self, node: J::Node<'a>) -> Counted<'a, J> {
        Counted { node, meter: Some(self) }
    }
}

/// Another representation, with a meter.
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
        // A name has nothing inside, and the object that has it was counted.
        J::with_string_node(buffer, string, |node| f(Counted { node, meter: None }))
    }
}

/// A node that is counted.
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
        // One match of a long text can take seconds, and nothing ends it.
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

/// An object or an array that is counted.
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

/// The parts of a counted container.
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

/// The members of a counted object.
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

/// The elements of a counted array.
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
        let matches = (0..10).filter(|_| meter.of::<SerdeJson>(&text).as_string().is_some()).count();
        assert_eq!((matches, meter.is_spent()), (3, true), "a million questions each, of four");
    }
}
