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
mod tests {
    use super::*;

    #[test]
    fn a_request_with_tools_and_a_form_is_translated() {
        let body = json!({
            "model": "m", "max_completion_tokens": 77, "temperature": 0.0, "seed": 3, "reasoning_effort": "low",
            "messages": [
                {"role": "system", "content": "static"},
                {"role": "user", "content": "view"},
                {"role": "assistant", "content": null, "responses_output": [
                    {"type": "reasoning", "id": "r", "encrypted_content": "e"},
                    {"type": "function_call", "call_id": "a", "name": "view", "arguments": "{}"}],
                 "tool_calls": [{"id": "a", "type": "function", "function": {"name": "view", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "text"},
                {"role": "assistant", "content": "so", "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "edit", "arguments": "{}"}}]},
            ],
            "tools": [{"type": "function", "function": {"name": "view", "description": "d", "parameters": {"type": "object"}}}],
            "response_format": {"type": "json_schema",
                "json_schema": {"name": "reply", "strict": false, "schema": {"type": "object"}}},
        });
        assert_eq!(
            encode(&body, true),
            json!({
                "model": "m", "max_output_tokens": 77, "temperature": 0.0,
                "input": [
                    {"role": "system", "content": "static"},
                    {"role": "user", "content": "view"},
                    {"type": "reasoning", "id": "r", "encrypted_content": "e"},
                    {"type": "function_call", "call_id": "a", "name": "view", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "a", "output": "text"},
                    {"role": "assistant", "content": "so"},
                    {"type": "function_call", "call_id": "c", "name": "edit", "arguments": "{}"},
                ],
                "tools": [{"type": "function", "strict": false, "name": "view", "description": "d",
                    "parameters": {"type": "object"}}],
                "text": {"format": {"type": "json_schema", "name": "reply", "strict": false, "schema": {"type": "object"}}},
                "reasoning": {"effort": "low"}, "store": false, "include": ["reasoning.encrypted_content"],
            })
        );
        let object = encode(&json!({"messages": [], "response_format": {"type": "json_object"}}), true);
        assert_eq!(object["text"], json!({"format": {"type": "json_object"}}));
    }

    #[test]
    fn an_answer_is_translated_with_its_items_and_its_end() {
        let answer = json!({
            "id": "resp", "model": "m-1", "status": "completed",
            "output": [
                {"type": "reasoning", "id": "r", "encrypted_content": "e", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "a", "name": "view", "arguments": "{\"path\":\"x\"}"}],
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7},
        });
        let chat = decode(&answer);
        let message = &chat["choices"][0]["message"];
        assert_eq!((&message["content"], &message[ITEMS]), (&json!("I look."), &answer["output"]));
        assert_eq!(message["tool_calls"][0], chat_call(&json!("a"), &json!("view"), json!("{\"path\":\"x\"}")));
        assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}});
        assert_eq!(chat["usage"], usage);
        let cut = json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []});
        assert_eq!(decode(&cut)["choices"][0]["finish_reason"], "length");
        let cancelled = decode(&json!({"status": "cancelled", "output": []}));
        assert_eq!(cancelled["choices"][0]["finish_reason"], "cancelled");
        for text in [
            json!({"status": "completed", "output_text": "[]"}),
            json!({"output": [{"type": "message", "content": "[]"}], "output_text": "[]"}),
        ] {
            assert_eq!(decode(&text)["choices"][0]["message"]["content"], "[]");
        }
        let refused = json!({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]});
        assert_eq!(decode(&refused)["choices"][0]["message"]["refusal"], "no");
    }
}
