//! Anthropic's Messages API.
//!
//! The system message is the static part of a prompt, so it is marked for the provider's cache. Content blocks of the
//! model's own messages are sent back unchanged, because thinking blocks are signed.

use serde_json::{Map, Value, json};

use super::{ParsedMessage, carry, chat_call, limit, list};

/// Token limit of a reply if the request has none: the API requires one.
const LIMIT: u32 = 4096;

/// Member of an assistant's message that keeps its content blocks.
const BLOCKS: &str = "anthropic_content";

pub(super) fn encode(body: &Value) -> Value {
    let mut out = Map::new();
    carry(body, "model", &mut out, "model");
    out.insert("max_tokens".into(), limit(body).cloned().unwrap_or(json!(LIMIT)));
    let mut system = Vec::new();
    let mut messages: Vec<Value> = Vec::new();
    for message in list(&body["messages"]) {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "system" {
            let cached = json!({"type": "ephemeral"});
            system.push(json!({"type": "text", "text": message["content"], "cache_control": cached}));
            continue;
        }
        let role = if role == "assistant" { "assistant" } else { "user" };
        let blocks = blocks(message);
        // Tool results form one user message.
        match messages.last_mut().filter(|last| last["role"] == role).and_then(|last| last["content"].as_array_mut()) {
            Some(content) => content.extend(blocks),
            None => messages.push(json!({"role": role, "content": blocks})),
        }
    }
    if !system.is_empty() {
        out.insert("system".into(), system.into());
    }
    out.insert("messages".into(), messages.into());
    for name in ["temperature", "top_p"] {
        carry(body, name, &mut out, name);
    }
    carry(body, "stop", &mut out, "stop_sequences");
    if body["stream"] == true {
        out.insert("stream".into(), true.into());
    }
    let tools: Vec<Value> = list(&body["tools"])
        .map(|tool| &tool["function"])
        .map(|tool| json!({"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}))
        .collect();
    if !tools.is_empty() {
        out.insert("tools".into(), tools.into());
    }
    let mut output = Map::new();
    if let Some(schema) = body.pointer("/response_format/json_schema/schema") {
        output.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    carry(body, "reasoning_effort", &mut output, "effort");
    if !output.is_empty() {
        out.insert("output_config".into(), output.into());
    }
    out.into()
}

fn blocks(message: &Value) -> Vec<Value> {
    if let Some(blocks) = message.get(BLOCKS).and_then(Value::as_array) {
        // The API rejects a blank text.
        let is_blank =
            |block: &Value| block["type"] == "text" && block["text"].as_str().unwrap_or_default().trim() == "";
        return blocks.iter().filter(|block| !is_blank(block)).map(returned).collect();
    }
    if message["role"] == "tool" {
        let (id, content) = (&message["tool_call_id"], &message["content"]);
        return vec![json!({"type": "tool_result", "tool_use_id": id, "content": content})];
    }
    let text = message["content"].as_str().filter(|text| !text.is_empty());
    let text = text.map(|text| json!({"type": "text", "text": text}));
    let calls = list(&message["tool_calls"]).map(|call| {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input})
    });
    text.into_iter().chain(calls).collect()
}

/// Prepares a block for sending back: the API rejects an input that is no object.
fn returned(block: &Value) -> Value {
    let mut block = block.clone();
    if block["type"] == "tool_use" && !block["input"].is_object() {
        block["input"] = json!({});
    }
    block
}

pub(super) fn decode(answer: &Value) -> Value {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    // Some gateways send the text alone.
    content.push_str(answer["content"].as_str().unwrap_or_default());
    for block in list(&answer["content"]) {
        match block["type"].as_str() {
            Some("text") => content.push_str(block["text"].as_str().unwrap_or_default()),
            Some("thinking") => reasoning.push_str(block["thinking"].as_str().unwrap_or_default()),
            Some("tool_use") => {
                let input = block["input"].as_str().map_or_else(|| block["input"].to_string(), str::to_owned);
                calls.push(chat_call(&block["id"], &block["name"], input.into()));
            }
            _ => {}
        }
    }
    let finish = match answer["stop_reason"].as_str().unwrap_or_default() {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        _ => "stop",
    };
    let count = |name: &str| answer["usage"][name].as_u64();
    let cached = count("cache_read_input_tokens").unwrap_or(0);
    let written = count("cache_creation_input_tokens").unwrap_or(0);
    // Cached tokens are not part of the input tokens.
    let prompt = count("input_tokens").map(|input| input.saturating_add(cached).saturating_add(written));
    let (echo, completion) = (("content", BLOCKS), count("output_tokens"));
    ParsedMessage { content, calls, echo, finish, prompt, cached, completion }
        .chat_answer(answer, ("reasoning", reasoning))
}

#[cfg(test)]
mod tests;
