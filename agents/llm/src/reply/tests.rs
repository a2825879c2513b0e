//! Answers with omissions and additions of vendors.

use super::*;

#[test]
fn an_answer_is_read_whatever_a_vendor_leaves_out() {
    let end = |answer: Value| Completion::read(&answer, true).expect("a choice").end;
    let message = |text: Value| json!({"choices": [{"message": {"content": text}}]});
    for (answer, text) in [
        (message(json!("[]")), "[]"),
        (message(json!(null)), ""),
        (message(json!([{"type": "text", "text": "["}, {"type": "text", "text": "]"}])), "[]"),
        (json!({"choices": [{}]}), ""),
        (json!({"choices": [{"message": "[]"}]}), "[]"),
        (json!({"choices": [{"delta": {"content": "[]"}}]}), "[]"),
        (json!({"choices": [{"text": "[]"}]}), "[]"),
        (message(json!(["[", "]"])), "[]"),
        (json!({"choices": [{"index": 1, "message": {"content": "x"}}, {"message": {"content": "[]"}}]}), "[]"),
        (json!({"choices": [{"message": {"reasoning_details": [{"text": "so: [{\"a\": 1}]"}]}}]}), "[{\"a\": 1}]"),
    ] {
        let read = Completion::read(&answer, true).expect("a choice");
        assert_eq!((read.text.as_str(), read.end, read.usage), (text, FinishReason::Stopped, None), "{answer}");
    }
    assert_eq!(end(json!({"choices": [{"finish_reason": "length"}]})), FinishReason::Length);
    assert!(matches!(end(json!({"choices": [{"finish_reason": "content_filter"}]})), FinishReason::Refused(_)));
    assert_eq!(end(json!({"choices": [{"message": {"refusal": "no"}}]})), FinishReason::Refused("no".into()));
    assert_eq!(end(message(json!([{"type": "refusal", "refusal": "no"}]))), FinishReason::Refused("no".into()));
    for answer in [json!({}), json!({"choices": []}), json!({"choices": {}}), json!([]), json!("x")] {
        assert_eq!(Completion::read(&answer, true), None, "{answer}");
    }
}

#[test]
fn calls_are_read_wherever_a_vendor_puts_them() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "view", "arguments": "{}"}});
    let part = json!({"type": "tool_use", "id": "a", "name": "view", "input": {}});
    for message in [json!({"tool_calls": call}), json!({"content": [{"type": "text", "text": ""}, part]})] {
        let answer = json!({"choices": [{"message": message}]});
        let read = Completion::read(&answer, true).expect("a choice");
        let calls: Vec<_> = read.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!((calls, read.text.as_str()), (vec![("a", "view", "{}")], ""), "{answer}");
    }
}

#[test]
fn the_reply_in_reasoning_without_an_end_counts_if_the_model_ended_by_itself() {
    for (finish, expected) in [("stop", "[{\"a\": 1}]"), ("length", "")] {
        let message = json!({"content": "<think>So it is [{\"a\": 1}]"});
        let answer = json!({"choices": [{"finish_reason": finish, "message": message}]});
        let mut read = Completion::read(&answer, false).expect("a choice");
        read.strip_wrapping(true);
        assert_eq!(read.text, expected, "{finish}");
    }
}

#[test]
fn an_unasked_call_is_the_reply_where_all_are_the_same() {
    let answer = |all: &[&str]| {
        let calls: Vec<Value> = all.iter().map(|text| json!({"function": {"name": "x", "arguments": text}})).collect();
        let answer = json!({"choices": [{"message": {"content": null, "tool_calls": calls}}]});
        Completion::read(&answer, false).expect("a choice").text
    };
    assert_eq!([answer(&["[]"]), answer(&["[]", "[]"]), answer(&["[]", "[1]"])], ["[]", "[]", ""]);
}

#[test]
fn calls_of_tools_are_read_whatever_a_vendor_makes_of_their_arguments() {
    let call = |id: Value, arguments: Value| json!({"id": id, "function": {"name": "view", "arguments": arguments}});
    let calls = [
        (call(json!("a"), json!("{\"x\": 1}")), ("a", "view", "{\"x\": 1}")),
        (call(json!(""), json!({"x": 1})), ("", "view", "{\"x\":1}")),
        (call(Value::Null, Value::Null), ("", "view", "")),
        (json!({}), ("", "", "")),
        (json!({"id": "a", "name": "view", "arguments": "{}"}), ("a", "view", "{}")),
    ];
    let sent: Vec<_> = calls.iter().map(|(sent, _)| sent).collect();
    let answer =
        json!({"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls": sent}}]});
    let read = Completion::read(&answer, true).expect("a choice");
    assert_eq!((read.text.as_str(), read.end), ("", FinishReason::Stopped));
    for (call, (_, (id, name, arguments))) in read.calls.iter().zip(calls) {
        assert_eq!((call.id.as_str(), call.name.as_str(), call.arguments.as_str()), (id, name, arguments));
    }
}

#[test]
fn the_reasons_of_vendors_for_an_end_are_understood() {
    for (reason, expected) in [
        (json!("stop"), "stopped"),
        (json!(null), "stopped"),
        (json!("eos_token"), "stopped"),
        (json!("length"), "length"),
        (json!("MAX_TOKENS"), "length"),
        (json!("max_tokens"), "length"),
        (json!("model_length"), "length"),
        (json!("SAFETY"), "refused"),
        (json!("refusal"), "refused"),
        (json!("RECITATION"), "refused"),
        (json!("blocklist"), "refused"),
        (json!("PROHIBITED_CONTENT"), "refused"),
        (json!("content-filter"), "refused"),
        (json!("abort"), "other"),
    ] {
        let answer = json!({"choices": [{"finish_reason": reason, "message": {"content": "[]"}}]});
        let end = match Completion::read(&answer, false).expect("a choice").end {
            FinishReason::Stopped => "stopped",
            FinishReason::Length => "length",
            FinishReason::Refused(_) => "refused",
            FinishReason::Other(_) => "other",
        };
        assert_eq!(end, expected, "{reason}");
    }
}

#[test]
fn members_of_a_call_that_only_its_provider_understands_are_kept() {
    let call = json!({"id": "a", "index": 0, "type": "function", "extra_content": {"google": {"thought_signature": "s"}},
        "function": {"name": "view", "arguments": "{}", "thought": 1}});
    let answer = json!({"choices": [{"message": {"tool_calls": [call]}}]});
    let read = Completion::read(&answer, true).expect("a choice").calls.remove(0);
    assert_eq!(Value::Object(read.extra), json!({"extra_content": {"google": {"thought_signature": "s"}}}));
    assert_eq!(Value::Object(read.extra_function), json!({"thought": 1}));
}

#[test]
fn token_counts_hold_what_the_provider_had_cached() {
    let answer = json!({"choices": [{}], "usage": {"prompt_tokens": 9, "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 5}}});
    let usage = Completion::read(&answer, true).expect("a choice").usage;
    assert_eq!(usage, Some(Usage { prompt: 9, completion: 2, cached: 5, estimated: false, money: 0 }));
    assert_eq!([0, 1, 4, 5].map(estimate), [0, 1, 1, 2]);
}
