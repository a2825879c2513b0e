//! Redacts the document that a board began with, and patches: committed ones by the numbers of their values, others by
//! place.

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value};

use super::super::lineage::{self, value_at};
use super::Rewriter;
use crate::id::Seq;

/// Maximum places outside the request that are compared with proposals and rejections.
const REGIONS_MAX: usize = 4096;

impl Rewriter<'_> {
    /// Redacts the document that the board began with.
    pub(super) fn redact_created(&mut self, values: &mut Map<String, Value>) {
        let numbers = self.shadow.document.clone();
        let of_request = numbers.get("request").filter(|_| values.get("request").is_some_and(|it| !it.is_null()));
        if let (Some(numbers), Some(request)) = (of_request, values.get_mut("request")) {
            self.erase_numbered(request, numbers, Seq(0), &PointerBuf::from_tokens(["request"]));
        }
        let document = values.get_mut("blueprint").and_then(|blueprint| blueprint.pointer_mut("/state/initial"));
        if let Some(document) = document {
            let of_request = of_request.is_some();
            match (document, &numbers) {
                (Value::Object(members), Value::Object(numbers)) => {
                    for (name, member) in members.iter_mut() {
                        // The request replaces the initial value of that name.
                        match numbers.get(name).filter(|_| !(of_request && name == "request")) {
                            Some(numbers) => {
                                let place = PointerBuf::from_tokens([name.as_str()]);
                                self.erase_numbered(member, numbers, Seq(0), &place);
                            }
                            None => self.erase_where(member, &mut |scalar| self.quotes_redacted(scalar)),
                        }
                    }
                    *members = self.renamed_members(std::mem::take(members));
                }
                (document, numbers) => self.erase_numbered(document, numbers, Seq(0), &PointerBuf::new()),
            }
        }
    }

    /// Redacts a committed patch: its values are identified by their numbers.
    pub(super) fn redact_committed(&mut self, seq: Seq, stored: &Value, patch: &mut Value) -> Result<(), String> {
        // Value numbers in the order of the operations; for tests, those of the values they compared.
        let mut numbers: Vec<Option<Value>> = Vec::new();
        let mut places = Vec::new();
        let ops = lineage::operations(stored)?;
        let mut shadow = std::mem::take(&mut self.shadow);
        let mut regions = Vec::new();
        for op in &ops {
            let one = Value::Array(vec![serde_json::to_value(op).map_err(|error| error.to_string())?]);
            let met = value_at(&shadow.document, op.path()).cloned();
            let mut lands = op.path().to_buf();
            shadow.patch(&one, &mut |done| lands.clone_from(&done.target))?;
            let there = match op {
                json_patch::PatchOperation::Test(_) => met,
                json_patch::PatchOperation::Remove(_) => None,
                _ => value_at(&shadow.document, &lands).cloned(),
            };
            if there.as_ref().is_some_and(|there| self.holds_erased(there)) {
                regions.push(lands.clone());
            }
            numbers.push(there.filter(|_| {
                use json_patch::PatchOperation as P;
                matches!(op, P::Add(_) | P::Replace(_) | P::Test(_))
            }));
            places.push(lands);
        }
        self.shadow = shadow;
        if self.regions.len() < REGIONS_MAX {
            self.regions.extend(regions);
        }
        let Value::Array(ops) = patch else { return Ok(()) };
        for place in &places {
            self.report_kept_name(seq, place);
        }
        for ((op, numbers), place) in ops.iter_mut().zip(&numbers).zip(&places) {
            if let (Some(value), Some(numbers)) = (op.get_mut("value"), numbers) {
                self.erase_numbered(value, numbers, seq, place);
            }
            self.rename_places(op);
        }
        Ok(())
    }

    /// Redacts a patch without effect, or a pending one: the values it would write at redacted places.
    pub(super) fn redact_proposed(&self, patch: &mut Value, is_asked: bool) {
        let Value::Array(ops) = patch else { return };
        for op in ops {
            let path = op.get("path").and_then(Value::as_str).and_then(|path| PointerBuf::parse(path).ok());
            if let (Some(path), Some(value)) = (path, op.get_mut("value")) {
                self.erase_proposed(value, &path, is_asked);
            }
            self.rename_places(op);
        }
    }

    fn erase_proposed(&self, value: &mut Value, place: &Pointer, is_asked: bool) {
        if is_asked || self.regions.iter().any(|region| place.starts_with(region)) {
            self.erase_where(value, &mut |_| true);
            return;
        }
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.erase_proposed(item, &place.to_buf().with_trailing_token(index), false);
                }
            }
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    self.erase_proposed(member, &place.to_buf().with_trailing_token(name.as_str()), false);
                }
                *members = self.renamed_members(std::mem::take(members));
            }
            scalar if self.quotes_redacted(scalar) => *scalar = self.mark(scalar),
            _ => {}
        }
    }
}
