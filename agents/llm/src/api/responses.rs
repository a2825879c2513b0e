//! OpenAI's Responses API, without state on the server: every request has the whole conversation.
//!
//! Items of the model's own turns are sent back unchanged, because reasoning is encrypted.

use serde_json::{Map, Value, json};

use super::{ParsedMessage, carry, chat_call, limit, list};

/// Member of an assistant's message that keeps its output items.
const ITEMS: &str = "responses_output";

pub(super) fn encode(body: &Value, has_include: bool) -> Value {
    let mut out = Map::new();
    carry(body, "model", &mut out, "model");
    let input: Vec<Value> = list(&body["messages"]).flat_map(items).collect();
    out.insert("input".into(), input.into());
    if let Some(limit) = limit(body) {
        out.insert("max_output_tokens".into(), limit.clone());
    }
    for name in ["temperature", "top_p"] {
        carry(body, name, &mut out, name);
    }
    let tools: Vec<Value> = list(&body["tools"])
        .filter_map(|tool| tool["function"].as_object())
        .map(|function| {
            let mut tool =
                Map::from_iter([("type".to_owned(), json!("function")), ("strict".to_owned(), json!(false))]);
            tool.extend(function.clone());
            tool.into()
        })
        .collect();
    if !tools.is_empty() {
        out.insert("tools".into(), tools.into());
    }
    let format = match body["response_format"]["type"].as_str() {
        Some("json_schema") => {
            let mut format = body["response_format"]["json_schema"].as_object().cloned().unwrap_or_default();
            format.insert("type".into(), json!("json_schema"));
            Some(Value::from(format))
        }
        Some("json_object") => Some(json!({"type": "json_object"})),
        _ => None,
    };
    if let Some(format) = format {
        out.insert("text".into(), json!({"format": format}));
    }
    if let Some(effort) = body.get("reasoning_effort").filter(|effort| !effort.is_null()) {
        out.insert("reasoning".into(), json!({"effort": effort}));
    }
    if body["stream"] == true {
        out.insert("stream".into(), true.into());
    }
    out.insert("store".into(), json!(false));
    if has_include {
        out.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    out.into()
}

fn items(message: &Value) -> Vec<Value> {
    if let Some(items) = message.get(ITEMS).and_then(Value::as_array) {
        return items.clone();
    }
    if message["role"] == "tool" {
        let (id, output) = (&message["tool_call_id"], &message["content"]);
        return vec![json!({"type": "function_call_output", "call_id": id, "output": output})];
    }
    let text = message["content"].as_str().filter(|text| !text.is_empty());
    let text = text.map(|text| json!({"role": message["role"], "content": text}));
    let calls = list(&message["tool_calls"]).map(|call| {
        let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
        json!({"type": "function_call", "call_id": call["id"], "name": name, "arguments": arguments})
    });
    text.into_iter().chain(calls).collect()
}

pub(super) fn decode(answer: &Value) -> Value {
    let (mut content, mut refusal, mut calls) = (String::new(), String::new(), Vec::new());
    for item in list(&answer["output"]) {
        match item["type"].as_str() {
            Some("message") => {
                content.push_str(item["content"].as_str().unwrap_or_default());
                for part in list(&item["content"]) {
                    content.push_str(part["text"].as_str().unwrap_or_default());
                    refusal.push_str(part["refusal"].as_str().unwrap_or_default());
                }
            }
            Some("function_call") => {
                calls.push(chat_call(&item["call_id"], &item["name"], item["arguments"].clone()));
            }
            _ => {}
        }
    }
    if content.is_empty() {
        // Some servers add this member for convenience.
        content.push_str(answer["output_text"].as_str().unwrap_or_default());
    }
    let finish = match answer["incomplete_details"]["reason"].as_str() {
        Some("max_output_tokens") => "length",
        Some("content_filter") => "content_filter",
        _ if matches!(answer["status"].as_str(), Some("queued" | "in_progress" | "cancelled")) => {
            answer["status"].as_str().unwrap_or_default()
        }
        _ if !calls.is_empty() => "tool_calls",
        _ => "stop",
    };
    let usage = &answer["usage"];
    let (prompt, completion) = (usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64());
    let cached = usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    let echo = ("output", ITEMS);
    ParsedMessage { content, calls, echo, finish, prompt, cached, completion }.chat_answer(answer, ("refusal", refusal))
}

#[cfg(test)]
mod tests;
