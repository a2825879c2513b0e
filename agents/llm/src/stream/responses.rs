//! Events of OpenAI's Responses.
//!
//! Items are kept unchanged, those of unknown types included: they go back to the server with tool calls. The last
//! event has the whole response; the assembled items count if it has none, or if it is missing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{PARTS_MAX, PartialAnswer, Progress, append_text};

#[derive(Default)]
pub(super) struct ResponsesAnswer {
    top: Map<String, Value>,
    items: BTreeMap<u64, Item>,
    progress: Progress,
}

struct Item {
    value: Value,
    kept: usize,
}

impl PartialAnswer for ResponsesAnswer {
    fn event(&mut self, event: Map<String, Value>) -> Option<Value> {
        let member = |name: &str| event.get(name).unwrap_or(&Value::Null);
        let index = member("output_index").as_u64();
        match member("type").as_str().or(member("object").as_str()).unwrap_or_default() {
            "response.created" => {
                for name in ["id", "model"] {
                    self.top.insert(name.to_owned(), member("response")[name].clone());
                }
            }
            "response.output_item.added" => self.item(index, member("item"), false),
            "response.output_item.done" => self.item(index, member("item"), true),
            "response.output_text.delta" => self.part(index, &event, ("output_text", "text"), "delta"),
            "response.output_text.done" => self.part(index, &event, ("output_text", "text"), "text"),
            "response.refusal.delta" => self.part(index, &event, ("refusal", "refusal"), "delta"),
            "response.refusal.done" => self.part(index, &event, ("refusal", "refusal"), "refusal"),
            "response.function_call_arguments.delta" => self.arguments(index, member("delta"), false),
            "response.function_call_arguments.done" => self.arguments(index, member("arguments"), true),
            "response.completed" | "response.incomplete" => self.end(member("response")),
            "response.failed" => {
                let error = Some(&member("response")["error"]).filter(|error| !error.is_null());
                let error = error.cloned().unwrap_or_else(|| json!({"message": "the response failed"}));
                return Some(json!({"error": error}));
            }
            // The whole response as one event.
            "response" => self.end(&Value::Object(event)),
            // The complete item includes the reasoning, encrypted where it goes back.
            kind => self.progress.has_content |= kind.starts_with("response.reasoning") && !member("delta").is_null(),
        }
        None
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn answer(self: Box<Self>) -> Value {
        let mut answer = self.top;
        if answer.get("output").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            answer.insert("output".to_owned(), self.items.into_values().map(|item| item.value).collect());
        }
        answer.into()
    }
}

impl ResponsesAnswer {
    /// Takes over the response of the last event.
    fn end(&mut self, response: &Value) {
        self.progress.is_over = true;
        if let Some(response) = response.as_object() {
            self.top.clone_from(response);
        }
    }

    /// Adds an item, at its start or complete. Deltas may have arrived before it.
    fn item(&mut self, index: Option<u64>, value: &Value, is_whole: bool) {
        let index =
            index.unwrap_or_else(|| self.last().map_or(0, |last| if is_whole { last } else { last.saturating_add(1) }));
        if !value.is_object() || self.items.len() >= PARTS_MAX && !self.items.contains_key(&index) {
            return;
        }
        // Messages and reasoning begin empty.
        let begins_empty = ["message", "reasoning"].iter().any(|kind| value["type"] == *kind);
        self.progress.has_content |= is_whole || !begins_empty;
        let kept = value.to_string().len();
        let before = self.items.insert(index, Item { value: value.clone(), kept });
        self.progress.kept = self.progress.kept - before.map_or(0, |item| item.kept) + kept;
    }

    fn last(&self) -> Option<u64> {
        self.items.keys().next_back().copied()
    }

    /// Edits the item of an index, or the last item, creating it if it is missing.
    fn edit(&mut self, index: Option<u64>, make: impl FnOnce() -> Value, edit: impl FnOnce(&mut Value) -> usize) {
        let index = index.or(self.last()).unwrap_or(0);
        if !self.items.contains_key(&index) {
            self.item(Some(index), &make(), false);
        }
        let Some(item) = self.items.get_mut(&index) else { return };
        let added = edit(&mut item.value);
        item.kept += added;
        self.progress.add(added);
    }

    /// Adds to a part of a message's content, or replaces its text if the event has all of it.
    fn part(&mut self, index: Option<u64>, event: &Map<String, Value>, (kind, name): (&str, &str), from: &str) {
        let text = event.get(from).unwrap_or(&Value::Null);
        let at = event.get("content_index").and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok());
        let make = || json!({"type": "message", "role": "assistant", "content": []});
        self.edit(index, make, |item| {
            let Some(item) = item.as_object_mut() else { return 0 };
            let content = item.entry("content").or_insert(Value::Null);
            if !content.is_array() {
                *content = json!([]);
            }
            let Some(parts) = content.as_array_mut() else { return 0 };
            let at = at.unwrap_or(parts.len().saturating_sub(1)).min(parts.len());
            let mut added = 0;
            if at == parts.len() {
                if at >= PARTS_MAX {
                    return 0;
                }
                let part = json!({"type": kind, name: ""});
                added = part.to_string().len();
                parts.push(part);
            }
            added + put(&mut parts[at], name, text, from != "delta")
        });
    }

    /// Adds to the arguments of a call, or replaces them.
    fn arguments(&mut self, index: Option<u64>, text: &Value, is_whole: bool) {
        let make = || json!({"type": "function_call"});
        self.edit(index, make, |item| put(item, "arguments", text, is_whole));
    }
}

/// Appends to a text, or replaces it by the complete one. Returns the number of added bytes.
fn put(part: &mut Value, name: &str, text: &Value, is_whole: bool) -> usize {
    let before = part[name].as_str().map_or(0, str::len);
    match (is_whole, text.as_str(), part.as_object_mut()) {
        (false, ..) => append_text(part, name, text),
        (true, Some(whole), Some(members)) => {
            members.insert(name.to_owned(), whole.into());
            whole.len().saturating_sub(before)
        }
        (true, ..) => 0,
    }
}
