//! Parses the answers of chat endpoints, with tolerance for omissions and additions of vendors.
//!
//! Owns the places of the text, the finish reason and the token counts in an answer. `super::reply_text` strips the
//! wrapping around a text. The kernel parses the text strictly.

use std::borrow::Cow;

use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::Reply;
use serde_json::{Map, Value, json};

use super::{markers, reply_text};

/// Largest plausible token count of one call.
const TOKENS_MAX: f64 = 1e9;

/// The first choice of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Text of the reply; empty if there is none.
    pub text: String,
    /// Text before its wrapping was removed.
    pub raw: String,
    /// Requested tool calls, in their order.
    pub calls: Vec<ToolCall>,
    /// Finish reason.
    pub end: FinishReason,
    /// Members of the message that only the provider understands; some require them back.
    pub extra: Map<String, Value>,
    /// Usage reported by the provider.
    pub usage: Option<Usage>,
}

/// A tool call of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolCall {
    /// Id that the result refers to; empty if the server gives none.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments, as JSON if the model wrote valid text.
    pub arguments: String,
    /// Members of the call that only the provider understands; some require them back.
    pub extra: Map<String, Value>,
    /// Members of the call's function that only the provider understands.
    pub extra_function: Map<String, Value>,
}

/// Finish reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FinishReason {
    /// Normal end.
    Stopped,
    /// Unknown reason.
    Other(String),
    /// Token limit of the reply.
    Length,
    /// Refused by the model or a content filter, with the reason, if one is given.
    Refused(String),
}

impl Completion {
    /// Reads an answer; returns `None` if it has no choice. If no tools were offered, a tool call is the reply.
    pub fn read(answer: &Value, has_tools: bool) -> Option<Self> {
        let choices = answer["choices"].as_array()?;
        let is_first = |choice: &&Value| choice["index"].as_u64().unwrap_or(0) == 0;
        let choice = choices.iter().find(is_first).or(choices.first()).filter(|choice| choice.is_object())?;
        let message = ["message", "delta"].iter().map(|name| &choice[name]).find(|message| !message.is_null());
        let message = message.unwrap_or(&Value::Null);
        let parts = || message["content"].as_array().into_iter().flatten();
        let refused = std::iter::once(message).chain(parts()).find_map(|part| part["refusal"].as_str());
        let refusal = refused.filter(|why| !why.is_empty());
        let end = match (ended(choice["finish_reason"].as_str().unwrap_or_default()), refusal) {
            (FinishReason::Refused(_) | FinishReason::Stopped | FinishReason::Other(_), Some(why)) => {
                FinishReason::Refused(why.to_owned())
            }
            (end, _) => end,
        };
        let mut calls: Vec<ToolCall> = match &message["tool_calls"] {
            Value::Array(calls) => calls.iter().map(tool_call).collect(),
            one @ Value::Object(_) => vec![tool_call(one)],
            _ => Vec::new(),
        };
        // Tool calls as parts of the content, in Anthropic's form.
        let of_part =
            |part: &Value| tool_call(&json!({"id": part["id"], "name": part["name"], "arguments": part["input"]}));
        if calls.is_empty() {
            calls.extend(parts().filter(|part| part["type"] == "tool_use").map(of_part));
        }
        let legacy = &message["function_call"];
        if calls.is_empty() && legacy.is_object() {
            calls.push(tool_call(&json!({"function": legacy})));
        }
        // Older servers put the text into the choice itself.
        let content = match message {
            Value::Null => &choice["text"],
            Value::String(_) => message,
            _ => &message["content"],
        };
        let mut text = text(content);
        if !has_tools {
            // A server may repeat the same call.
            let is_one = |first: &ToolCall| calls.iter().all(|call| call.arguments == first.arguments);
            if let Some(call) = calls.first().filter(|call| text.trim().is_empty() && is_one(call)) {
                text.clone_from(&call.arguments);
            }
            calls.clear();
        }
        if calls.is_empty() && text.trim().is_empty() {
            let places = ["/reasoning_content", "/reasoning", "/reasoning_details/0/text"];
            let reasoning = places.iter().find_map(|place| message.pointer(place)?.as_str());
            text = reasoning.and_then(reply_text::try_extract_json).unwrap_or_default();
        }
        let extra = unread(message, &["role", "content", "tool_calls", "function_call", "refusal", "annotations"]);
        Some(Self { text, raw: String::new(), calls, end, extra, usage: usage(&answer["usage"]) })
    }

    pub(super) fn strip_wrapping(&mut self, is_json: bool) {
        let text = if is_json {
            reply_text::extract_json(&self.text)
        } else {
            Cow::Borrowed(reply_text::strip_wrapping(&self.text))
        };
        let mut text = text.into_owned();
        if text.is_empty() && is_json && self.end == FinishReason::Stopped {
            // Reasoning without an end, with the reply in it.
            text = reply_text::only(&self.text).map(Cow::into_owned).unwrap_or_default();
        }
        self.raw = markers::unescape_markers(&self.text).into_owned();
        self.text = markers::unescape_markers(&text).into_owned();
    }

    pub(super) fn into_reply(self) -> Reply {
        let raw = (self.raw != self.text).then_some(self.raw);
        Reply { raw, ..Reply::new(self.text, self.usage) }
    }

    /// Returns true if nothing is missing although the model ended at the limit.
    pub(super) fn is_whole(&self, is_json: bool) -> bool {
        let is_document = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        match self.calls.is_empty() {
            true => is_json && is_document(&self.text),
            false => self.calls.iter().all(|call| is_document(&call.arguments)),
        }
    }

    pub(super) fn is_cut_off(&self, is_json: bool) -> bool {
        let is_open =
            |text: &str| text.find(['{', '[']).is_some_and(|start| reply_text::balanced(&text[start..]).is_none());
        match self.calls.is_empty() {
            true => is_json && is_open(&self.text),
            false => self.calls.iter().any(|call| is_open(&call.arguments)),
        }
    }
}

/// Maps a vendor's finish reason.
fn ended(reason: &str) -> FinishReason {
    let name = reason.trim().to_ascii_lowercase().replace(['-', ' '], "_");
    match name.as_str() {
        "" | "stop" | "tool_calls" | "function_call" | "tool_use" | "end_turn" | "stop_sequence" | "eos"
        | "eos_token" => FinishReason::Stopped,
        "length"
        | "max_tokens"
        | "model_length"
        | "max_length"
        | "max_output_tokens"
        | "model_context_window_exceeded" => FinishReason::Length,
        "content_filter" | "sensitive" | "safety" | "refusal" | "recitation" | "blocklist" | "prohibited_content"
        | "spii" => {
            let by_filter = "the provider's content filter";
            FinishReason::Refused(if name == "content_filter" {
                by_filter.to_owned()
            } else {
                format!("{by_filter} ({name})")
            })
        }
        _ => FinishReason::Other(name),
    }
}

/// Returns the non-null members of an object apart from these.
fn unread(object: &Value, read: &[&str]) -> Map<String, Value> {
    let members = object.as_object().into_iter().flatten();
    let unread = members.filter(|(name, value)| !read.contains(&name.as_str()) && !value.is_null());
    unread.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns content as text. Some vendors send a list of parts, a part, or the JSON value itself.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.iter().any(|part| part["text"].is_string()) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect()
        }
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(Value::is_string) => {
            parts.iter().filter_map(Value::as_str).collect()
        }
        Value::Object(part) if part.contains_key("type") && part.get("text").is_some_and(Value::is_string) => {
            part["text"].as_str().unwrap_or_default().to_owned()
        }
        Value::Object(_) => content.to_string(),
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(|part| part.get("type").is_none()) => {
            content.to_string()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => String::new(),
    }
}

/// Reads a tool call. Some vendors send the arguments as a value instead of a text.
fn tool_call(call: &Value) -> ToolCall {
    // Some omit the wrapper.
    let function = if call["function"].is_object() { &call["function"] } else { call };
    let arguments = match &function["arguments"] {
        // Some encode the arguments twice.
        Value::String(text) => serde_json::from_str::<String>(text).unwrap_or_else(|_| text.clone()),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    ToolCall {
        id: call["id"].as_str().unwrap_or_default().to_owned(),
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        arguments: markers::unescape_markers(&arguments).into_owned(),
        extra: unread(call, &["id", "type", "index", "function", "name", "arguments"]),
        extra_function: unread(&call["function"], &["name", "arguments"]),
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    let count = |names: [&str; 2]| names.iter().find_map(|name| tokens(&usage[name]));
    let cached = [
        &usage["prompt_tokens_details"]["cached_tokens"],
        &usage["input_tokens_details"]["cached_tokens"],
        // DeepSeek, Moonshot.
        &usage["prompt_cache_hit_tokens"],
        &usage["cached_tokens"],
    ];
    Some(Usage {
        prompt: count(["prompt_tokens", "input_tokens"])?,
        // Some vendors omit the count of an empty reply.
        completion: count(["completion_tokens", "output_tokens"]).unwrap_or(0),
        cached: cached.iter().find_map(|count| tokens(count)).unwrap_or(0),
        ..Usage::default()
    })
}

/// Reads a plausible token count, given as a number or a text.
fn tokens(count: &Value) -> Option<u64> {
    let number = match count {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let number = number.filter(|number| (0.0..=TOKENS_MAX).contains(number))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and TOKENS_MAX")]
    let whole = number as u64;
    Some(whole)
}

/// Estimates the tokens of a text at four characters each, rounded up.
pub const fn estimate(chars: usize) -> u64 {
    (chars as u64).div_ceil(4)
}

#[cfg(test)]
mod tests;
