//! Tool calls in the forms that models write, and texts that are none.

use proptest::prelude::*;

use super::*;

fn heard(text: &str) -> Vec<(String, String)> {
    let is_tool = |name: &str| matches!(name, "view" | "answer");
    parse_inline_calls(text, is_tool).into_iter().map(|call| (call.name, call.arguments)).collect()
}

#[test]
fn a_use_of_a_tool_is_heard_in_the_forms_that_models_write() {
    let view = ("view".to_owned(), r#"{"path":"a.py"}"#.to_owned());
    for text in [
        r#"{"name": "view", "arguments": {"path": "a.py"}}"#,
        "<tool_call>\n{\"name\": \"view\", \"arguments\": {\"path\": \"a.py\"}}\n</tool_call>",
        "```json\n{\"arguments\": {\"path\": \"a.py\"}, \"name\": \"view\"}\n```\n\n\n",
        r#"<{{"name": "view", "arguments": {"path": "a.py"}}}>"#,
        "<|python_tag|>{\"name\": \"view\", \"parameters\": {\"path\": \"a.py\"}}",
        r#"{"name": "view", "arguments": "{\"path\":\"a.py\"}"}"#,
        "I will look at [it] {first}.\n<tool_call>{\"name\": \"view\", \"arguments\": {\"path\": \"a.py\"}}",
        "I will look at the file.\n```json\n{\"name\": \"view\", \"arguments\": {\"path\": \"a.py\"}}\n```\nThen I answer.",
        "Let me see: {\"name\": \"functions.view\", \"arguments\": {\"path\": \"a.py\"}}",
        r#"{"type": "function", "function": {"name": "view", "arguments": {"path": "a.py"}}}"#,
        r#"{"tool_calls": [{"id": "1", "name": "view", "arguments": {"path": "a.py"}}]}"#,
        "<function=view>{\"path\": \"a.py\"}</function>",
        "I look.\n<tool_call>\n<function=view>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>",
        "[TOOL_CALLS][{\"name\": \"view\", \"arguments\": {\"path\": \"a.py\"}}]",
        "[TOOL_CALLS] [{\"name\": \"view\", \"arguments\": {\"path\": \"a.py\"}}]",
        "[TOOL_CALLS]view[ARGS]{\"path\": \"a.py\"}",
        "[TOOL_CALLS]view{\"path\": \"a.py\"}",
        "<|tool_call_begin|>functions.view:0<|tool_call_argument_begin|>{\"path\": \"a.py\"}<|tool_call_end|>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>view\n```json\n{\"path\": \"a.py\"}\n```<｜tool▁call▁end｜>",
        "<|channel|>commentary to=functions.view <|constrain|>json<|message|>{\"path\": \"a.py\"}<|call|>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>view<｜tool▁sep｜>{\"path\": \"a.py\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<tool_call>view\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>",
        "<invoke name=\"view\">\n<parameter name=\"path\">a.py</parameter>\n</invoke>",
        "<minimax:tool_call>\n<invoke name=\"view\">\n<parameter name=\"path\">a.py</parameter>\n</invoke>\n</minimax:tool_call>",
        "[view(path=\"a.py\")]",
        "I look.\n[functions.view(path='a.py')]",
    ] {
        assert_eq!(heard(text), std::slice::from_ref(&view), "{text}");
    }
    let text = r#"{"name": "answer", "arguments": {"patch": []}}"#;
    assert_eq!(heard(text), [("answer".to_owned(), r#"{"patch":[]}"#.to_owned())]);
}

#[test]
fn several_uses_are_heard_in_their_order() {
    let one = |path: &str| format!(r#"{{"name": "view", "arguments": {{"path": "{path}"}}}}"#);
    let (a, b) = (one("a"), one("b"));
    for text in [
        format!("<tool_call>{a}</tool_call>\n<tool_call>{b}</tool_call>"),
        format!("First <tool_call>{a}</tool_call> then <tool_call>{b}</tool_call>."),
        format!("{a}\n{b}"),
        format!("[TOOL_CALLS][{a}, {b}]"),
        format!("<|python_tag|>{a}; {b}"),
        "<function=view>{\"path\": \"a\"}</function><function=view>{\"path\":\"b\"}</function>".to_owned(),
    ] {
        let paths: Vec<String> = heard(&text).into_iter().map(|(_, arguments)| arguments).collect();
        assert_eq!(paths, [r#"{"path":"a"}"#, r#"{"path":"b"}"#], "{text}");
    }
}

#[test]
fn a_parameter_in_a_tag_is_text_unless_it_is_other_json() {
    let text = "<function=view><parameter=path>a b</parameter><parameter=range>[1, 2]</parameter>\
                <parameter=all>true</parameter><parameter=text>\"x\"</parameter></function>";
    let expected = serde_json::json!({"path": "a b", "range": [1, 2], "all": true, "text": "\"x\""});
    let (_, arguments) = heard(text).remove(0);
    assert_eq!(serde_json::from_str::<Value>(&arguments).expect("JSON"), expected);
}

#[test]
fn tool_calls_are_recognised_only_when_complete_and_outside_a_reply() {
    let view = r#"{"name": "view", "arguments": {"path": "a.py"}}"#;
    let patch = r#"{"patch": [{"op": "add", "path": "/name", "value": 1}]}"#;
    for text in [
        String::new(),
        "}{".to_owned(),
        patch.to_owned(),
        // An example next to the reply.
        format!("I could use {view}, but I know: {patch}"),
        // A quotation in the reply.
        serde_json::json!({"patch": [{"op": "add", "path": "/a", "value": format!("<tool_call>{view}</tool_call>")}]})
            .to_string(),
        format!("Here: {{\"patch\": [{{\"value\": {view}}}]}}"),
        format!("{{\"patch\": [{{\"value\": {view}}},]}}"),
        format!("{{\"patch\": [{{\"value\": {view}"),
        r#"{"name": "rm", "arguments": {}}"#.to_owned(),
        r#"{"name": "view", "arguments": {}, "patch": []}"#.to_owned(),
        r#"{"name": "view", "arguments": [1]}"#.to_owned(),
        r#"{"name": "view"}"#.to_owned(),
        "<function=rm>{}</function>".to_owned(),
        "{{{{".to_owned(),
    ] {
        assert_eq!(heard(&text), [], "{text}");
    }
    let text = format!("<tool_call>{view}</tool_call> It says: {patch}");
    assert_eq!(heard(&text).len(), 1, "what a model makes up behind a use is no reply");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(
        text in "(<function=|<invoke name=\"|<tool_call>|<arg_key>|view|>|</function>|\\[TOOL_CALLS\\]|\\[|\\(|\\)|'|=|\\{|\\}|\"name\"|:|\"|<parameter=|<｜tool▁sep｜>|\n|é| ){0,30}"
    ) {
        drop(heard(&text));
    }
}
