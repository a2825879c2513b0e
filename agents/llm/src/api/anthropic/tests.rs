//! Requests and answers of Messages, translated from and to the form of Chat Completions.

use super::*;

#[test]
fn a_request_with_tools_and_a_form_is_translated() {
    let body = json!({
        "model": "m", "max_tokens": 77, "temperature": 0.0, "stop": ["END"], "seed": 3, "stream": false,
        "reasoning_effort": "low",
        "messages": [
            {"role": "system", "content": "static"},
            {"role": "user", "content": "view"},
            {"role": "assistant", "content": null, "anthropic_content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "\n"},
                {"type": "tool_use", "id": "a", "name": "view", "input": {"path": "x"}}],
             "tool_calls": [{"id": "a", "type": "function", "function": {"name": "view", "arguments": "{\"path\":\"x\"}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "text"},
            {"role": "tool", "tool_call_id": "b", "content": "more"},
            {"role": "assistant", "content": "so", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "edit", "arguments": "not JSON"}}]},
        ],
        "tools": [{"type": "function", "function": {"name": "view", "description": "d", "parameters": {"type": "object"}}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}}},
    });
    assert_eq!(
        encode(&body),
        json!({
            "model": "m", "max_tokens": 77, "temperature": 0.0, "stop_sequences": ["END"],
            "system": [{"type": "text", "text": "static", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "view"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "a", "name": "view", "input": {"path": "x"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "text"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "more"}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "c", "name": "edit", "input": {}}]},
            ],
            "tools": [{"name": "view", "description": "d", "input_schema": {"type": "object"}}],
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"},
        })
    );
    assert_eq!(encode(&json!({"model": "m", "messages": []}))["max_tokens"], LIMIT);
}

#[test]
fn an_answer_is_translated_with_its_cache_and_its_end() {
    let answer = json!({
        "id": "msg", "model": "m-1", "type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "view", "input": {"path": "x"}}],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 5, "output_tokens": 7},
    });
    let chat = decode(&answer);
    let message = &chat["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning"]), (&json!("I look."), &json!("hm")));
    assert_eq!(message["tool_calls"][0]["function"], json!({"name": "view", "arguments": "{\"path\":\"x\"}"}));
    assert_eq!(message[BLOCKS], answer["content"]);
    assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
    let usage = json!({"prompt_tokens": 45, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}});
    assert_eq!(chat["usage"], usage);
    for (reason, finish) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("a new one", "stop"),
    ] {
        assert_eq!(decode(&json!({"stop_reason": reason}))["choices"][0]["finish_reason"], finish);
    }
    assert_eq!(decode(&json!({}))["usage"], Value::Null);
}
