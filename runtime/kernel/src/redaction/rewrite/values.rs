//! Redacts values and names, and reports the copies that remain.

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value};

use super::super::lineage::each_number;
use super::super::{REPORTED_MAX, RemainingCopy};
use super::{Rewriter, renamed};
use crate::id::Seq;
use crate::placeholder::{is_placeholder, name_placeholder, placeholder};

impl Rewriter<'_> {
    pub(super) fn is_number_erased(&self, number: &Value) -> bool {
        let number = number.as_u64().and_then(|number| u32::try_from(number).ok());
        number.is_some_and(|number| self.traces.is_erased(number))
    }

    pub(super) fn holds_erased(&self, numbers: &Value) -> bool {
        let (mut number_holds, mut name_holds) = (false, false);
        each_number(numbers, &mut |number| number_holds |= self.traces.is_erased(number), &mut |name| {
            name_holds |= self.names.contains(name)
        });
        number_holds || name_holds
    }

    /// Redacts the parts of a value by their numbers. Reports kept values that contain a redacted text.
    pub(super) fn erase_numbered(&mut self, value: &mut Value, numbers: &Value, seq: Seq, place: &Pointer) {
        match (value, numbers) {
            (Value::Array(items), Value::Array(numbers)) => {
                for (index, (item, numbers)) in items.iter_mut().zip(numbers).enumerate() {
                    self.erase_numbered(item, numbers, seq, &place.to_buf().with_trailing_token(index));
                }
            }
            (Value::Object(members), Value::Object(numbers)) => {
                for (name, member) in members.iter_mut() {
                    let place = place.to_buf().with_trailing_token(name.as_str());
                    if self.is_kept(name) {
                        self.report_remaining(seq, &place);
                    }
                    if let Some(numbers) = numbers.get(name) {
                        self.erase_numbered(member, numbers, seq, &place);
                    }
                }
                *members = self.renamed_members(std::mem::take(members));
            }
            (scalar, number) if self.is_number_erased(number) => *scalar = self.mark(scalar),
            (scalar, _) => {
                if self.quotes_redacted(scalar) {
                    self.report_remaining(seq, place);
                }
            }
        }
    }

    /// Returns true for a kept name that contains a redacted text or that a requested place ends with.
    fn is_kept(&self, name: &str) -> bool {
        !self.names.contains(name) && (self.traces.is_kept(name) || self.needles.occur_in(name))
    }

    /// Reports the first prefix of a place that ends with a kept name.
    pub(super) fn report_kept_name(&mut self, seq: Seq, place: &Pointer) {
        let mut above = PointerBuf::new();
        for token in place.tokens() {
            let name = token.decoded();
            above.push_back(name.as_ref());
            if self.is_kept(&name) {
                self.report_remaining(seq, &above);
                return;
            }
        }
    }

    fn report_remaining(&mut self, seq: Seq, place: &Pointer) {
        if self.result.remaining.len() < REPORTED_MAX {
            let place = renamed(place.as_str(), self.names, self.hasher);
            self.result.remaining.push(RemainingCopy { seq, place });
        }
    }

    /// Redacts the scalars of a value for which `is_erased` holds, and all redacted names.
    pub(super) fn erase_where(&self, value: &mut Value, is_erased: &mut dyn FnMut(&Value) -> bool) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.erase_where(item, is_erased)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.erase_where(member, is_erased));
                *members = self.renamed_members(std::mem::take(members));
            }
            scalar if is_erased(scalar) => *scalar = self.mark(scalar),
            _ => {}
        }
    }

    /// Redacts names that contain a redacted text, in a value outside the document.
    pub(super) fn rename_quoting(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename_quoting(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.rename_quoting(member));
                let named = |name: String| match !is_placeholder(&name) && self.needles.occur_in(&name) {
                    true => name_placeholder(self.hasher, &name),
                    false => name,
                };
                *members = std::mem::take(members).into_iter().map(|(name, member)| (named(name), member)).collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    pub(super) fn mark(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if is_placeholder(text) => value.clone(),
            other => placeholder(self.hasher, other),
        }
    }

    pub(super) fn quotes_redacted(&self, value: &Value) -> bool {
        self.needles.occur_in_value(value)
    }

    pub(super) fn renamed_members(&self, members: Map<String, Value>) -> Map<String, Value> {
        let named = |name: String| if self.names.contains(&name) { name_placeholder(self.hasher, &name) } else { name };
        members.into_iter().map(|(name, member)| (named(name), member)).collect()
    }

    pub(super) fn rename_places(&self, op: &mut Value) {
        for member in ["path", "from"] {
            if let Some(place) = op.get_mut(member) {
                self.rename(place);
            }
        }
    }

    pub(super) fn rename_trigger(&self, values: &mut Map<String, Value>) {
        if let Some(path) = values.get_mut("trigger").and_then(|trigger| trigger.get_mut("path")) {
            self.rename(path);
        }
    }

    fn rename(&self, pointer: &mut Value) {
        if let Value::String(text) = pointer {
            *text = renamed(text, self.names, self.hasher);
        }
    }

    /// Redacts lists of places.
    pub(super) fn pointers(&self, values: &mut Map<String, Value>, is_asked: bool) {
        for field in ["expand", "reads", "members", "places", "targets", "unshown"] {
            let pointers = values.get_mut(field).and_then(Value::as_array_mut);
            for pointer in pointers.into_iter().flatten() {
                // `from` may be the name of a member, the `id` of an element, or any other value of the author.
                if let Some(from) = pointer.get_mut("from") {
                    match from {
                        Value::String(name) if self.names.contains(name) => *name = name_placeholder(self.hasher, name),
                        _ if is_asked || self.quotes_redacted(from) => *from = self.mark(from),
                        _ => {}
                    }
                }
                match pointer.get_mut("at") {
                    Some(place) => self.rename(place),
                    None => self.rename(pointer),
                }
            }
        }
    }
}
