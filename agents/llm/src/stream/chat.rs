//! Chunks of Chat Completions. Deltas are merged member by member, so that vendor additions to a message are kept.

use serde_json::{Map, Value, json};

use super::{PARTS_MAX, PartialAnswer, Progress, append};

/// Tries at parsing the arguments of calls: each is as long as the reply.
const PARSED_MAX: u32 = 64;

#[derive(Default)]
pub(super) struct ChatAnswer {
    progress: Progress,
    top: Map<String, Value>,
    message: Map<String, Value>,
    finish: Value,
    whole: Option<Value>,
    /// Times that the arguments of a call were parsed.
    parsed: u32,
}

impl PartialAnswer for ChatAnswer {
    fn event(&mut self, chunk: Map<String, Value>) -> Option<Value> {
        for (name, value) in &chunk {
            let is_first = matches!(name.as_str(), "id" | "model" | "created" | "system_fingerprint");
            let is_last = matches!(name.as_str(), "usage" | "x_groq");
            if (is_first && !self.top.contains_key(name) || is_last) && !value.is_null() {
                self.top.insert(name.clone(), value.clone());
            }
        }
        let choice = first_choice(chunk.get("choices")?)?;
        if let Some(message) = choice["message"].as_object() {
            let content = |message: Option<&Value>| {
                message.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
            };
            let before = match &self.whole {
                Some(whole) => content(first(whole)),
                None => self.message.get("content").and_then(Value::as_str).unwrap_or_default().to_owned(),
            };
            // The whole message, or its content so far. Some servers send a delta as `message`.
            if content(Some(&choice["message"])).starts_with(&before) {
                self.progress.add(serde_json::to_string(message).map_or(0, |text| text.len()));
                self.whole = Some(Value::Object(chunk));
                return None;
            }
            let whole = self.whole.take();
            for (name, value) in whole.as_ref().and_then(first).and_then(Value::as_object).into_iter().flatten() {
                self.merge(name, value);
            }
        }
        // Older servers put the text into the choice itself.
        let delta = choice["delta"].as_object().or_else(|| choice["message"].as_object());
        for (name, value) in delta.into_iter().flatten() {
            self.merge(name, value);
        }
        if let (None, text @ Value::String(_)) = (delta, &choice["text"]) {
            self.merge("content", text);
        }
        if choice["finish_reason"].is_string() {
            self.finish = choice["finish_reason"].clone();
        }
        let error = choice.get("error").filter(|error| !error.is_null());
        error.map(|error| json!({"error": error}))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn is_finished(&self) -> bool {
        self.whole.is_some() || self.finish.is_string()
    }

    fn answer(self: Box<Self>) -> Value {
        if let Some(whole) = self.whole {
            return whole;
        }
        let mut answer = self.top;
        // An incomplete reply was cut off here.
        let finish = if self.finish.is_null() { json!("the stream ended") } else { self.finish };
        let choice = json!({"index": 0, "message": self.message, "finish_reason": finish});
        answer.insert("choices".to_owned(), Value::Array(vec![choice]));
        Value::Object(answer)
    }
}

impl ChatAnswer {
    fn merge(&mut self, name: &str, value: &Value) {
        if value.is_null() {
            return;
        }
        if !matches!(name, "role") && *value != "" {
            self.progress.add(value.to_string().len());
        }
        match name {
            "tool_calls" => {
                let calls = self.message.entry(name.to_owned()).or_insert_with(|| json!([]));
                if let (Some(calls), Some(deltas)) = (calls.as_array_mut(), value.as_array()) {
                    deltas.iter().for_each(|delta| tool_call(calls, delta, &mut self.parsed));
                }
            }
            "function_call" => function(self.message.entry(name.to_owned()).or_insert_with(|| json!({})), value),
            "role" => {
                self.message.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
            _ => append(self.message.entry(name.to_owned()).or_insert(Value::Null), value),
        }
    }
}

/// Returns the first choice by index, at any position in the list.
fn first_choice(choices: &Value) -> Option<&Value> {
    choices.as_array()?.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0)
}

/// Returns the message of a whole answer.
fn first(whole: &Value) -> Option<&Value> {
    first_choice(whole.get("choices")?)?.get("message")
}

fn tool_call(calls: &mut Vec<Value>, delta: &Value, parsed: &mut u32) {
    let id = delta["id"].as_str().filter(|id| !id.is_empty());
    let known = match delta["index"].as_u64() {
        Some(index) => {
            calls.iter().rposition(|call| call["index"] == index).filter(|at| !is_next(&calls[*at], delta, parsed))
        }
        None => match id {
            Some(id) => calls.iter().position(|call| call["id"] == id),
            None => calls.len().checked_sub(1),
        },
    };
    let Some(at) = known.or_else(|| {
        (calls.len() < PARTS_MAX).then(|| {
            calls.push(json!({"function": {}}));
            calls.len() - 1
        })
    }) else {
        return;
    };
    let (Some(call), Some(delta)) = (calls[at].as_object_mut(), delta.as_object()) else { return };
    for (name, value) in delta.iter().filter(|(_, value)| !value.is_null() && **value != "") {
        match name.as_str() {
            "function" => function(call.entry("function").or_insert_with(|| json!({})), value),
            _ => {
                call.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

/// Returns true if a delta begins another call with the index of a complete call: some servers do not number calls.
fn is_next(call: &Value, delta: &Value, parsed: &mut u32) -> bool {
    let (known, id) = (call["id"].as_str().unwrap_or_default(), delta["id"].as_str().unwrap_or_default());
    let has_name = delta["function"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let is_whole = |arguments: &str| serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
    if !has_name || id.is_empty() || id == known || *parsed >= PARSED_MAX {
        return false;
    }
    *parsed += 1;
    call["function"]["arguments"].as_str().is_some_and(is_whole)
}

fn function(there: &mut Value, delta: &Value) {
    let (Some(there), Some(delta)) = (there.as_object_mut(), delta.as_object()) else { return };
    for (name, value) in delta.iter().filter(|(_, value)| !value.is_null()) {
        let known = there.entry(name.clone()).or_insert(Value::Null);
        // Some servers repeat the name with each delta.
        if name != "name" || known != value {
            append(known, value);
        }
    }
}
