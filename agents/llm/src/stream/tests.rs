//! Streams as servers write them, in every protocol: assembled, bounded, broken off, and split anywhere.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api;

fn assembled(text: &str) -> Result<Value, String> {
    assembled_of(Api::Chat, text, 7)
}

/// Assembles a stream that arrives in pieces of `piece` bytes.
fn assembled_of(api: Api, text: &str, piece: usize) -> Result<Value, String> {
    let mut assembly = StreamParser::new(api);
    for bytes in text.as_bytes().chunks(piece) {
        if assembly.feed(bytes)? {
            break;
        }
    }
    assembly.finish()
}

/// Serialises events as servers do.
fn events(events: &[Value]) -> String {
    let kind = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", kind(event))).collect()
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
        chunk(json!({"content": "[", "reasoning_content": "m", "mark": {"a": 1}}), Value::Null).replace('\n', "\r\n"),
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
fn lines_may_end_in_any_way_and_an_event_may_have_several() {
    let chunks = [
        json!({"choices": [{"delta": {"content": "[{\"a\": {}}"}}]}),
        json!({"choices": [{"delta": {"content": "]"}, "finish_reason": "stop"}]}),
    ];
    let pretty = |chunk: &Value| serde_json::to_string_pretty(chunk).expect("JSON").replace('\n', "\ndata: ");
    let text: String = chunks.iter().map(|chunk| format!("data: {}\n\n", pretty(chunk))).collect();
    let tight: String = chunks.iter().map(|chunk| format!("data:{chunk}\n")).collect();
    for text in [text, tight] {
        for end in ["\n", "\r\n", "\r"] {
            let answer = assembled(&text.replace('\n', end)).unwrap_or_else(|why| panic!("{end:?}: {why}"));
            assert_eq!(answer["choices"][0]["message"]["content"], "[{\"a\": {}}]", "{end:?}");
        }
    }
}

#[test]
fn json_without_events_is_read_line_by_line_or_as_a_whole() {
    let chunks = [
        json!({"choices": [{"delta": {"content": "["}}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "x"}}, {"index": 0, "delta": {"content": "]"}}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "y"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    let lines: String = chunks.iter().map(|chunk| format!("{chunk}\n")).collect();
    let answer = assembled(&lines).expect("whole");
    assert_eq!(answer["choices"][0]["message"]["content"], "[]", "of two choices the first one counts");
    let whole = json!({"choices": [{"message": {"content": "[]"}, "finish_reason": "stop"}]});
    for text in [whole.to_string(), serde_json::to_string_pretty(&whole).expect("JSON")] {
        assert_eq!(assembled(&text).expect("whole")["choices"][0]["message"]["content"], "[]");
    }
    assert!(assembled(&format!("{{\"a\": [1,\n{}", "}\n".repeat(100_000))).is_err());
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
        let read: Vec<_> =
            calls.iter().map(|call| (&call["id"], &call["function"]["name"], &call["function"]["arguments"])).collect();
        assert_eq!(
            read,
            [(&json!("a"), &json!("view"), &json!("{\"x\": 1}")), (&json!("b"), &json!("list"), &json!("{}"))]
        );
    }
}

#[test]
fn deltas_are_read_wherever_a_server_puts_them() {
    for name in ["message", "delta"] {
        let chunks: Vec<Value> =
            ["[1", ", 2]"].iter().map(|text| json!({"choices": [{name: {"content": text}}]})).collect();
        let answer = assembled(&events(&chunks)).expect("an answer");
        assert_eq!(answer["choices"][0]["message"]["content"], "[1, 2]", "{name}");
    }
    // The whole message at the end, and one that grows.
    for parts in [
        [json!({"delta": {"content": "[1"}}), json!({"message": {"content": "[1, 2]"}})],
        [json!({"message": {"content": "[1"}}), json!({"message": {"content": "[1, 2]"}})],
    ] {
        let chunks: Vec<Value> = parts.into_iter().map(|choice| json!({"choices": [choice]})).collect();
        let answer = assembled(&events(&chunks)).expect("an answer");
        assert_eq!(answer["choices"][0]["message"]["content"], "[1, 2]");
    }
    let chunks: Vec<Value> = ["[1", ", 2]"].iter().map(|text| json!({"choices": [{"text": text}]})).collect();
    assert_eq!(assembled(&events(&chunks)).expect("an answer")["choices"][0]["message"]["content"], "[1, 2]");
    let halves = [
        "{\"choices\": [{\"delta\": {\"content\": \"\\ud83c\"}}]}",
        "{\"choices\": [{\"delta\": {\"content\": \"\\udf89\"}}]}",
    ];
    let text: String = halves.iter().map(|half| format!("data: {half}\n\n")).collect();
    let answer = assembled(&text).expect("an answer");
    assert_eq!(answer["choices"][0]["message"]["content"], "\u{1f389}");
}

#[test]
fn a_call_with_the_index_of_one_that_is_whole_is_another_one() {
    let delta = |id: &str, name: &str, arguments: &str| {
        let call = json!({"index": 0, "id": id, "function": {"name": name, "arguments": arguments}});
        json!({"choices": [{"delta": {"tool_calls": [call]}}]})
    };
    let answer =
        assembled(&events(&[delta("c1", "list", "{}"), delta("c2", "view", "{\"path\""), delta("", "", ": 1}")]));
    let calls = answer.expect("an answer")["choices"][0]["message"]["tool_calls"].clone();
    let names: Vec<_> = [0, 1].map(|at| (&calls[at]["function"]["name"], &calls[at]["function"]["arguments"])).into();
    assert_eq!(names, [(&json!("list"), &json!("{}")), (&json!("view"), &json!("{\"path\": 1}"))]);
    // Some servers make up an id for each delta.
    let answer = assembled(&events(&[delta("a", "view", "{\"path\""), delta("b", "view", ": 1}")])).expect("an answer");
    assert_eq!(answer["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(1));
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
fn stream_contents_are_bounded() {
    let part = "x".repeat(64 * 1024);
    let delta = |kind: &str, name: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: part}});
    let output = |kind: &str| json!({"type": kind, "output_index": 0, "delta": part});
    for (api, event) in [
        (Api::Chat, part.clone()),
        (Api::Responses, part.clone()),
        (Api::Anthropic, part.clone()),
        (Api::Chat, chunk(json!({"content": part}), Value::Null)),
        (Api::Anthropic, events(&[delta("text_delta", "text")])),
        (Api::Anthropic, events(&[delta("thinking_delta", "thinking")])),
        (Api::Anthropic, events(&[delta("signature_delta", "signature")])),
        (Api::Anthropic, events(&[delta("input_json_delta", "partial_json")])),
        (Api::Anthropic, events(&[delta("citations_delta", "citation")])),
        (Api::Responses, events(&[output("response.output_text.delta")])),
        (Api::Responses, events(&[output("response.refusal.delta")])),
        (Api::Responses, events(&[output("response.function_call_arguments.delta")])),
    ] {
        let mut assembly = StreamParser::new(api);
        let ended = (0..100).find_map(|_| assembly.feed(event.as_bytes()).err()).expect("too long");
        assert!(ended.contains("longer"), "{ended}");
    }
    let block = |index: u64| json!({"type": "content_block_start", "index": index, "content_block": {"type": "text"}});
    let item = |index: u64| json!({"type": "response.output_item.added", "output_index": index, "item": {}});
    let part = |index: u64| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": index, "delta": ""});
    let many = |make: &dyn Fn(u64) -> Value| events(&(0..2000).map(make).collect::<Vec<_>>());
    for (api, text, list) in [
        (Api::Anthropic, many(&block), "/content"),
        (Api::Responses, many(&item), "/output"),
        (Api::Responses, many(&part), "/output/0/content"),
    ] {
        let answer = assembled_of(api, &text, 4096).expect("what came");
        assert_eq!(answer.pointer(list).and_then(Value::as_array).map(Vec::len), Some(PARTS_MAX), "{list}");
    }
}

#[test]
fn events_of_messages_become_the_message_with_blocks_of_every_type() {
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let start =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let text = events(&[
        json!({"type": "message_start", "message": {"id": "msg", "type": "message", "role": "assistant", "model": "m-1",
            "content": [], "stop_reason": null, "usage": {"input_tokens": 4, "cache_read_input_tokens": 8,
            "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig"})),
        json!({"type": "content_block_stop", "index": 0}),
        start(1, json!({"type": "redacted_thinking", "data": "x"})),
        start(2, json!({"type": "later_kind", "data": {"a": [1]}})),
        delta(2, json!({"type": "later_delta", "more": 1})),
        start(3, json!({"type": "text", "text": ""})),
        delta(3, json!({"type": "text_delta", "text": "I "})),
        json!({"type": "later_event", "index": 3}),
        delta(3, json!({"type": "text_delta", "text": "look."})),
        start(4, json!({"type": "tool_use", "id": "a", "name": "view", "input": {}})),
        delta(4, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(4, json!({"type": "input_json_delta", "partial_json": "{\"path\""})),
        delta(4, json!({"type": "input_json_delta", "partial_json": ": \"x\"}"})),
        start(5, json!({"type": "tool_use", "id": "b", "name": "list", "input": {}})),
        start(6, json!({"type": "tool_use", "id": "c", "name": "edit", "input": {}})),
        delta(6, json!({"type": "input_json_delta", "partial_json": "{\"te"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
        start(7, json!({"type": "text", "text": "late"})),
    ]);
    let answer = assembled_of(Api::Anthropic, &text, 7).expect("whole");
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "later_kind", "data": {"a": [1]}},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "view", "input": {"path": "x"}},
        {"type": "tool_use", "id": "b", "name": "list", "input": {}},
        {"type": "tool_use", "id": "c", "name": "edit", "input": "{\"te"},
    ]);
    assert_eq!(answer["content"], content);
    let usage = json!({"input_tokens": 4, "cache_read_input_tokens": 8, "output_tokens": 7});
    assert_eq!((&answer["usage"], &answer["stop_reason"], &answer["id"]), (&usage, &json!("tool_use"), &json!("msg")));
    // Truncated arguments are kept as received.
    let chat = api::decode(Api::Anthropic, answer);
    assert_eq!(chat.pointer("/choices/0/message/tool_calls/2/function/arguments"), Some(&json!("{\"te")));
}

#[test]
fn events_of_responses_become_the_last_one_or_the_items_that_came() {
    let reasoning = json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"});
    let call = json!({"type": "function_call", "call_id": "a", "name": "view", "arguments": "{\"x\": 1}"});
    let later = json!({"type": "later_kind", "data": 1});
    let start = [
        json!({"type": "response.created", "response": {"id": "resp", "model": "m-1", "status": "in_progress",
            "output": [], "error": null}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "r"}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message",
            "role": "assistant", "content": []}}),
        json!({"type": "response.content_part.added", "output_index": 1, "content_index": 0,
            "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "I "}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "look."}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call",
            "call_id": "a", "name": "view", "arguments": ""}}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"x\""}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ": 1}"}),
        json!({"type": "response.output_item.done", "output_index": 3, "item": later}),
        json!({"type": "response.later_event", "output_index": 2, "delta": "x"}),
    ];
    let text = json!({"type": "output_text", "text": "I look."});
    let message = json!({"type": "message", "role": "assistant", "content": [text]});
    let answer = assembled_of(Api::Responses, &events(&start), 7).expect("what came");
    assert_eq!(answer, json!({"id": "resp", "model": "m-1", "output": [reasoning, message, call, later]}));
    let usage = json!({"input_tokens": 12, "output_tokens": 3});
    for (kind, output, expected) in [
        ("response.completed", json!([message]), json!([message])),
        ("response.incomplete", json!([]), answer["output"].clone()),
        ("response.completed", Value::Null, answer["output"].clone()),
    ] {
        let whole = json!({"id": "resp", "output": output, "usage": usage});
        let end = [json!({"type": kind, "response": whole}), json!({"type": "error", "message": "late", "code": "x"})];
        let answer = assembled_of(Api::Responses, &(events(&start) + &events(&end)), 7).expect("whole");
        assert_eq!((&answer["output"], &answer["usage"]), (&expected, &usage));
    }
    // Complete texts replace their deltas.
    let done = [
        json!({"type": "response.output_text.delta", "delta": "[ "}),
        json!({"type": "response.output_text.done", "text": "[]"}),
        json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{}"}),
    ];
    let answer = assembled_of(Api::Responses, &events(&done), 7).expect("what came");
    assert_eq!(answer.pointer("/output/0/content/0/text"), Some(&json!("[]")));
    assert_eq!(answer.pointer("/output/1/arguments"), Some(&json!("{}")));
}

#[test]
fn an_error_of_another_protocol_is_the_answer_before_content_and_the_end_after_it() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let failed = json!({"type": "response.failed", "response": {"status": "failed",
        "error": {"code": "server_error", "message": "busy"}}});
    let flat = json!({"type": "error", "code": "rate_limit_exceeded", "message": "busy", "param": null});
    let begun = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}});
    let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "["}});
    let output = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "["});
    let thought = json!({"type": "response.reasoning_text.delta", "output_index": 0, "delta": "hm"});
    for (api, start, contents, error, body) in [
        (Api::Anthropic, &begun, vec![&text], &overloaded, &overloaded),
        (Api::Responses, &added, vec![&output, &thought], &failed, &json!({"error": failed["response"]["error"]})),
        (Api::Responses, &added, vec![&output, &thought], &flat, &flat),
    ] {
        let early = events(&[start.clone(), error.clone()]);
        assert_eq!(assembled_of(api, &early, 7).as_ref(), Ok(body));
        for content in contents {
            let late = assembled_of(api, &events(&[start.clone(), content.clone(), error.clone()]), 7);
            assert!(late.expect_err("broken").contains("busy"));
        }
    }
}

/// Generates text from whole events, parts of them, and arbitrary characters.
fn piece() -> impl Strategy<Value = String> {
    const KINDS: [&str; 23] = [
        "message_start",
        "message",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
        "response",
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.reasoning_text.delta",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "other",
    ];
    const MEMBERS: [&str; 24] = [
        "type",
        "index",
        "output_index",
        "content_index",
        "content_block",
        "delta",
        "message",
        "content",
        "text",
        "thinking",
        "signature",
        "partial_json",
        "citation",
        "stop_reason",
        "usage",
        "output_tokens",
        "item",
        "part",
        "response",
        "output",
        "arguments",
        "refusal",
        "error",
        "input",
    ];
    const DELTAS: [&str; 8] = [
        "text_delta",
        "thinking_delta",
        "signature_delta",
        "input_json_delta",
        "citations_delta",
        "text",
        "message",
        "function_call",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        (0_u64..3).prop_map(Value::from),
        Just(json!(u64::MAX)),
        "[a-zé{}\"]{0,3}".prop_map(Value::from),
        proptest::sample::select(&DELTAS[..]).prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(proptest::sample::select(&MEMBERS[..]), inner, 0..4)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    });
    let members = proptest::collection::btree_map(proptest::sample::select(&MEMBERS[1..]), value, 0..5);
    let event = (proptest::sample::select(&KINDS[..]), members).prop_map(|(kind, members)| {
        let mut event: Map<String, Value> = members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        event.insert("type".to_owned(), kind.into());
        format!("data: {}\n\n", Value::from(event))
    });
    prop_oneof![
        8 => event,
        1 => ".{0,20}\n",
        1 => Just("data: ".to_owned()),
        1 => Just("\n\n".to_owned()),
        1 => Just("data: [DONE]\n".to_owned()),
        1 => Just("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":1},2],\"content\":[1]}}]}\n".to_owned()),
        1 => Just("data: {\"choices\":[{\"delta\":{\"tool_calls\":{},\"function_call\":{\"name\":{}}}}]}\n\n".to_owned()),
    ]
}

proptest! {
    #[test]
    fn stream_parsing_is_independent_of_chunk_boundaries(
        parts in proptest::collection::vec(piece(), 0..20),
        size in 1_usize..200,
    ) {
        let text = parts.concat();
        for api in [Api::Chat, Api::Responses, Api::Anthropic] {
            let whole = assembled_of(api, &text, usize::MAX);
            prop_assert_eq!(&assembled_of(api, &text, size), &whole);
            if let Ok(answer) = whole {
                let chat = api::decode(api, answer);
                drop(api::encode(api, json!({"messages": [chat["choices"][0]["message"]]}), true, &Map::new()));
            }
        }
    }
}
