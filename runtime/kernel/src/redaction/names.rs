//! Collects names of members in patches that changed nothing, and in the places of rejections.

use std::collections::BTreeSet;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use super::Request;
use crate::record::{Approval, Body, Expanded, Late, NoOp, Record, Rejected};

/// Collects the names of a record at requested places and below, or everywhere if the record itself is requested.
pub(super) fn proposed(record: &Record, body: &Body, request: &Request, names: &mut BTreeSet<String>) {
    let mut found = NameCollector { request, is_requested: request.records.contains(&record.seq), names };
    match body {
        Body::NoOp(NoOp { patch, .. })
        | Body::Expanded(Expanded { patch, .. })
        | Body::Approval(Approval { patch, .. }) => found.in_patch(patch),
        Body::Late(Late { reply, .. }) => found.in_reply(reply),
        Body::Rejected(rejected) => {
            let Rejected { reply, rejection, .. } = &**rejected;
            found.in_reply(reply);
            rejection.violations.iter().for_each(|violation| found.in_place(&violation.pointer));
        }
        _ => {}
    }
}

/// Returns the patches that a reply is or holds.
pub(super) fn patches(reply: &Value) -> impl Iterator<Item = &Value> {
    [Some(reply), reply.get("patch"), reply.pointer("/refuse/patch")].into_iter().flatten()
}

struct NameCollector<'a> {
    request: &'a Request,
    is_requested: bool,
    names: &'a mut BTreeSet<String>,
}

impl NameCollector<'_> {
    fn in_reply(&mut self, reply: &str) {
        let Ok(reply) = serde_json::from_str::<Value>(reply) else { return };
        patches(&reply).for_each(|patch| self.in_patch(patch));
    }

    fn in_patch(&mut self, patch: &Value) {
        for op in patch.as_array().into_iter().flatten() {
            for member in ["path", "from"] {
                if let Some(place) = op.get(member).and_then(Value::as_str) {
                    self.in_place(place);
                }
            }
            let place = op.get("path").and_then(Value::as_str).and_then(|place| PointerBuf::parse(place).ok());
            if let (Some(mut place), Some(value)) = (place, op.get("value")) {
                self.in_value(value, &mut place);
            }
        }
    }

    fn in_place(&mut self, place: &str) {
        let Ok(place) = Pointer::parse(place) else { return };
        let asked = self.request.places.iter().filter(|asked| place.starts_with(asked));
        let known = asked.map(|asked| asked.tokens().count()).min();
        if let Some(known) = if self.is_requested { Some(0) } else { known } {
            self.names.extend(place.tokens().skip(known).map(|token| token.decoded().into_owned()));
        }
    }

    fn in_value(&mut self, value: &Value, place: &mut PointerBuf) {
        match value {
            Value::Object(members) => {
                let is_within = self.is_requested || self.request.places.iter().any(|asked| place.starts_with(asked));
                for (name, member) in members {
                    if is_within {
                        self.names.insert(name.clone());
                    }
                    place.push_back(name.as_str());
                    self.in_value(member, place);
                    place.pop_back();
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    place.push_back(index);
                    self.in_value(item, place);
                    place.pop_back();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
