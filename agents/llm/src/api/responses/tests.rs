//! Requests and answers of Responses, translated from and to the form of Chat Completions.

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
