//! Events of Anthropic's Messages.
//!
//! Blocks are kept unchanged, those of unknown types included: they go back to the server with tool calls.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{PARTS_MAX, PartialAnswer, Progress, append_text};

/// Counts of tokens. Those of a later event replace those of an earlier one.
const COUNTS: [&str; 4] = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];

#[derive(Default)]
pub(super) struct AnthropicAnswer {
    top: Map<String, Value>,
    usage: Map<String, Value>,
    blocks: BTreeMap<u64, Block>,
    progress: Progress,
}

struct Block {
    value: Value,
    /// Text of its `input`.
    input: String,
}

impl PartialAnswer for AnthropicAnswer {
    fn event(&mut self, event: Map<String, Value>) -> Option<Value> {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let index = event.get("index").and_then(Value::as_u64);
        match kind {
            "message_start" => self.message(event.get("message")?.as_object()?),
            // The whole message as one event.
            "message" => {
                self.message(&event);
                self.progress.is_over = true;
            }
            "content_block_start" => {
                let block = event.get("content_block")?;
                let next = || self.last().map_or(0, |last| last.saturating_add(1));
                let index = index.unwrap_or_else(next);
                self.block(index, || block.clone());
            }
            "content_block_delta" => self.delta(index, event.get("delta")?),
            "message_delta" => {
                self.keep(event.get("delta").and_then(Value::as_object), &["stop_reason", "stop_sequence"]);
                self.count(event.get("usage"));
            }
            "message_stop" => self.progress.is_over = true,
            _ => {}
        }
        None
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn is_finished(&self) -> bool {
        self.progress.is_over || self.top.get("stop_reason").is_some_and(Value::is_string)
    }

    fn answer(self: Box<Self>) -> Value {
        let mut answer = self.top;
        answer.insert("content".to_owned(), self.blocks.into_values().map(Block::whole).collect());
        if !self.usage.is_empty() {
            answer.insert("usage".to_owned(), self.usage.into());
        }
        answer.into()
    }
}

impl AnthropicAnswer {
    fn message(&mut self, message: &Map<String, Value>) {
        self.keep(Some(message), &["id", "model", "role", "stop_reason", "stop_sequence"]);
        self.count(message.get("usage"));
        let blocks = message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, block) in (0..).zip(blocks) {
            self.block(index, || block.clone());
        }
    }

    fn keep(&mut self, members: Option<&Map<String, Value>>, names: &[&str]) {
        for name in names {
            if let Some(value) = members.and_then(|members| members.get(*name)).filter(|value| !value.is_null()) {
                self.top.insert((*name).to_owned(), value.clone());
            }
        }
    }

    fn count(&mut self, usage: Option<&Value>) {
        for name in COUNTS {
            if let Some(count) = usage.and_then(|usage| usage.get(name)).filter(|count| count.is_number()) {
                self.usage.insert(name.to_owned(), count.clone());
            }
        }
    }

    fn last(&self) -> Option<u64> {
        self.blocks.keys().next_back().copied()
    }

    /// Returns the block of an index, creating it if it is missing.
    fn block(&mut self, index: u64, make: impl FnOnce() -> Value) -> Option<&mut Block> {
        if !self.blocks.contains_key(&index) {
            if self.blocks.len() >= PARTS_MAX {
                return None;
            }
            let value = make();
            self.progress.kept += value.to_string().len();
            // A block begins with an empty text, or complete.
            let is_text = ["text", "thinking"].iter().any(|name| value["type"] == *name && value[name] == "");
            self.progress.has_content |= !is_text;
            self.blocks.insert(index, Block { value, input: String::new() });
        }
        self.blocks.get_mut(&index)
    }

    /// Adds a delta to the block of an index, or to the last block.
    fn delta(&mut self, index: Option<u64>, delta: &Value) {
        let kind = delta["type"].as_str().unwrap_or_default();
        let empty = match kind {
            "text_delta" | "citations_delta" => json!({"type": "text", "text": ""}),
            "thinking_delta" | "signature_delta" => json!({"type": "thinking", "thinking": ""}),
            "input_json_delta" => json!({"type": "tool_use", "input": {}}),
            _ => return,
        };
        let index = index.or(self.last()).unwrap_or(0);
        let Some(block) = self.block(index, || empty) else { return };
        let added = match kind {
            "text_delta" => append_text(&mut block.value, "text", &delta["text"]),
            "thinking_delta" => append_text(&mut block.value, "thinking", &delta["thinking"]),
            "signature_delta" => append_text(&mut block.value, "signature", &delta["signature"]),
            "citations_delta" => block.cite(&delta["citation"]),
            _ => {
                let text = delta["partial_json"].as_str().unwrap_or_default();
                block.input.push_str(text);
                text.len()
            }
        };
        self.progress.add(added);
    }
}

impl Block {
    /// Adds a citation. Returns its length.
    fn cite(&mut self, citation: &Value) -> usize {
        let Some(members) = self.value.as_object_mut() else { return 0 };
        match members.entry("citations").or_insert(Value::Null) {
            Value::Array(all) => all.push(citation.clone()),
            other => *other = json!([citation]),
        }
        citation.to_string().len()
    }

    /// Returns the block with its input: the JSON value, or the text if it does not parse.
    fn whole(mut self) -> Value {
        if let (false, Some(members)) = (self.input.is_empty(), self.value.as_object_mut()) {
            let input = serde_json::from_str(&self.input).unwrap_or(Value::String(self.input));
            members.insert("input".to_owned(), input);
        }
        self.value
    }
}
