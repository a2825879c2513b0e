//! Assembles a stream of server-sent events into one completion.
//!
//! Pure: takes bytes as they come, keeps at most [`TEXT_MAX`] bytes of text. Of events only `data` is read. Deltas are
//! merged member by member, so that what a vendor adds to a message is in the completion, too.

use serde_json::{Map, Value, json};

use super::envelope;

/// The most bytes of text that are kept of one stream, and of one of its lines.
pub(super) const TEXT_MAX: usize = 4 * 1024 * 1024;

/// The most bytes of a stream, its framing included.
const STREAM_MAX: usize = 64 * 1024 * 1024;

/// Choices of tool calls that one message may have.
const CALLS_MAX: usize = 1024;

/// A completion in the making.
#[derive(Default)]
pub(super) struct Assembly {
    line: Vec<u8>,
    data: Vec<u8>,
    bytes: usize,
    text: usize,
    top: Map<String, Value>,
    message: Map<String, Value>,
    finish: Value,
    whole: Option<Value>,
    error: Option<Value>,
    events: usize,
    is_done: bool,
}

impl Assembly {
    /// Whether a body without a content type is a stream of events.
    pub(super) fn is_stream(body: &[u8]) -> bool {
        let start = body.trim_ascii_start();
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        [&b"data:"[..], b"event:", b": ", b"id:", b"retry:"].iter().any(|field| start.starts_with(field))
    }

    /// Takes the next bytes. Returns whether the stream is over.
    ///
    /// # Errors
    /// The stream is too long.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        for byte in bytes {
            if self.is_done {
                break;
            }
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    self.line(&line);
                }
                byte => self.line.push(*byte),
            }
            if self.line.len() + self.data.len() + self.text > TEXT_MAX || self.bytes > STREAM_MAX {
                return Err(format!("the answer is longer than {TEXT_MAX} bytes"));
            }
        }
        Ok(self.is_done)
    }

    /// Whether the model said that it has finished.
    pub(super) fn is_finished(&self) -> bool {
        self.is_done || self.whole.is_some() || self.error.is_some() || self.finish.is_string()
    }

    /// Whether anything of a reply has come.
    fn has_content(&self) -> bool {
        self.text > 0
    }

    /// The completion; an error of the server is returned as its body.
    ///
    /// # Errors
    /// The stream had no event, or an error after parts of the reply.
    pub(super) fn finish(mut self) -> Result<Value, String> {
        let line = std::mem::take(&mut self.line);
        self.line(&line);
        self.event();
        if let Some(error) = self.error.take() {
            return if self.has_content() {
                Err(format!("the stream ended with an error: {}", super::reasons::said(&error.to_string())))
            } else {
                Ok(error)
            };
        }
        if let Some(whole) = self.whole {
            return Ok(whole);
        }
        if self.events == 0 {
            return Err("the stream had no events".to_owned());
        }
        let mut answer = self.top;
        let choice = json!({"index": 0, "message": self.message, "finish_reason": self.finish});
        answer.insert("choices".to_owned(), Value::Array(vec![choice]));
        Ok(Value::Object(answer))
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            self.event();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            // Some servers leave out the empty line between events.
            if !self.data.is_empty() && data.trim_ascii_start().starts_with(b"{") {
                self.event();
            }
            if data.trim_ascii() == b"[DONE]" {
                self.event();
                self.is_done = true;
            } else {
                self.data.extend_from_slice(data);
            }
        } else if self.events == 0 && self.data.is_empty() && line.trim_ascii_start().starts_with(b"{") {
            // An error that is no event.
            self.data.extend_from_slice(line);
            self.event();
        }
    }

    fn event(&mut self) {
        let data = std::mem::take(&mut self.data);
        let Ok(Value::Object(chunk)) = envelope::json(&String::from_utf8_lossy(&data)) else { return };
        self.events += 1;
        let is_error = chunk.get("error").is_some_and(|error| !error.is_null())
            || (chunk.get("object").is_some_and(|kind| kind == "error"))
            || chunk.get("choices").is_none() && chunk.contains_key("message") && chunk.contains_key("code");
        if is_error {
            self.error.get_or_insert(Value::Object(chunk));
            return;
        }
        for (name, value) in &chunk {
            let is_first = matches!(name.as_str(), "id" | "model" | "created" | "system_fingerprint");
            let is_last = matches!(name.as_str(), "usage" | "x_groq");
            if (is_first && !self.top.contains_key(name) || is_last) && !value.is_null() {
                self.top.insert(name.clone(), value.clone());
            }
        }
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else { return };
        if choice.get("message").is_some_and(Value::is_object) {
            self.text += choice["message"].to_string().len();
            self.whole = Some(Value::Object(chunk));
            return;
        }
        if let Some(delta) = choice["delta"].as_object() {
            for (name, value) in delta {
                self.merge(name, value);
            }
        }
        if choice["finish_reason"].is_string() {
            self.finish = choice["finish_reason"].clone();
        }
        if choice.get("error").is_some_and(|error| !error.is_null()) {
            self.error.get_or_insert(json!({"error": choice["error"]}));
        }
    }

    fn merge(&mut self, name: &str, value: &Value) {
        if value.is_null() {
            return;
        }
        if !matches!(name, "role") && *value != "" {
            self.text += value.to_string().len();
        }
        match name {
            "tool_calls" => {
                let calls = self.message.entry(name.to_owned()).or_insert_with(|| json!([]));
                if let (Some(calls), Some(deltas)) = (calls.as_array_mut(), value.as_array()) {
                    deltas.iter().for_each(|delta| tool_call(calls, delta));
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

/// Puts a delta behind what has come of the same member.
fn append(there: &mut Value, delta: &Value) {
    match (there, delta) {
        (Value::String(text), Value::String(more)) => text.push_str(more),
        (Value::Array(items), Value::Array(more)) => items.extend(more.iter().cloned()),
        (there, delta) => *there = delta.clone(),
    }
}

fn tool_call(calls: &mut Vec<Value>, delta: &Value) {
    let id = delta["id"].as_str().filter(|id| !id.is_empty());
    let known = match delta["index"].as_u64() {
        Some(index) => calls.iter().position(|call| call["index"] == index),
        None => match id {
            Some(id) => calls.iter().position(|call| call["id"] == id),
            None => calls.len().checked_sub(1),
        },
    };
    let Some(at) = known.or_else(|| {
        (calls.len() < CALLS_MAX).then(|| {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assembled(text: &str) -> Result<Value, String> {
        let mut assembly = Assembly::default();
        for bytes in text.as_bytes().chunks(7) {
            if assembly.feed(bytes)? {
                break;
            }
        }
        assembly.finish()
    }

    fn chunk(delta: Value, finish: Value) -> String {
        format!("data: {}\n\n", json!({"id": "x", "choices": [{"delta": delta, "finish_reason": finish}]}))
    }

    #[test]
    fn deltas_become_one_message_with_all_its_members() {
        let usage = json!({"id": "x", "choices": [], "usage": {"prompt_tokens": 3}});
        let text = [
            ": comment\n\n".to_owned(),
            chunk(json!({"role": "assistant", "content": "", "reasoning_content": "h"}), Value::Null),
            chunk(json!({"content": "[", "reasoning_content": "m", "mark": {"a": 1}}), Value::Null)
                .replace('\n', "\r\n"),
            chunk(json!({"content": "]"}), Value::Null),
            chunk(json!({}), json!("stop")),
            format!("data: {usage}\n\ndata: [DONE]\n\ndata: {{\"id\": \"late\"}}\n\n"),
        ];
        let answer = assembled(&text.concat()).expect("whole");
        let message = json!({"role": "assistant", "content": "[]", "reasoning_content": "hm", "mark": {"a": 1}});
        assert_eq!(answer["choices"][0], json!({"index": 0, "message": message, "finish_reason": "stop"}));
        assert_eq!((&answer["id"], &answer["usage"]), (&json!("x"), &json!({"prompt_tokens": 3})));
    }

    #[test]
    fn calls_of_tools_are_put_together_by_index_by_id_or_in_their_order() {
        let call = |index: Value, id: Value, name: Value, arguments: &str| json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]});
        for (first, second) in [(json!(0), json!(1)), (Value::Null, Value::Null)] {
            let text = [
                chunk(call(first.clone(), json!("a"), json!("view"), "{\"x\""), Value::Null),
                chunk(call(first, Value::Null, json!("view"), ": 1}"), Value::Null),
                chunk(call(second.clone(), json!("b"), json!("list"), ""), Value::Null),
                chunk(call(second, json!(""), Value::Null, "{}"), json!("tool_calls")),
            ];
            let answer = assembled(&text.concat()).expect("whole");
            let calls = answer["choices"][0]["message"]["tool_calls"].as_array().expect("calls").clone();
            let read: Vec<_> = calls
                .iter()
                .map(|call| (&call["id"], &call["function"]["name"], &call["function"]["arguments"]))
                .collect();
            assert_eq!(
                read,
                [(&json!("a"), &json!("view"), &json!("{\"x\": 1}")), (&json!("b"), &json!("list"), &json!("{}"))]
            );
        }
    }

    #[test]
    fn an_error_is_the_answer_before_content_and_the_end_after_it() {
        let error = json!({"error": {"message": "busy", "code": 429}});
        let event = format!("data: {error}\n\n");
        assert_eq!(assembled(&event), Ok(error.clone()));
        assert_eq!(assembled(&format!("event: error\n{event}")), Ok(error.clone()));
        assert_eq!(assembled(&error.to_string()), Ok(error));
        let late = assembled(&(chunk(json!({"content": "["}), Value::Null) + &event)).expect_err("broken");
        assert!(late.contains("busy"), "{late}");
        assert!(assembled(": nothing\n\n").is_err());
        let whole = json!({"choices": [{"message": {"content": "[]"}}]});
        assert_eq!(assembled(&format!("data: {whole}\n\n")), Ok(whole));
    }

    #[test]
    fn what_a_stream_may_hold_is_bounded() {
        let mut assembly = Assembly::default();
        let part = vec![b'x'; 64 * 1024];
        let ended = (0..100).find_map(|_| assembly.feed(&part).err()).expect("too long");
        assert!(ended.contains("longer"), "{ended}");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_assembled_or_refused(
            parts in proptest::collection::vec(prop_oneof![
                ".{0,20}\n", Just("data: ".to_owned()), Just("\n\n".to_owned()), Just("[DONE]\n".to_owned()),
                Just("{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":1},2],\"content\":[1]}}]}\n".to_owned()),
                Just("{\"choices\":[{\"delta\":{\"tool_calls\":{},\"function_call\":{\"name\":{}}}}]}\n\n".to_owned()),
            ], 0..20)
        ) {
            drop(assembled(&parts.concat()));
        }
    }
}
