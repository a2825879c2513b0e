//! Uses of tools that a model has written as text, because its server does not know them as such.
//!
//! Small models on small servers write `{"name": "view", "arguments": {...}}`, between tags, in a fence or behind words, or
//! the name in a tag and the arguments behind it; the server passes that on as what the model says. No reply of a worker
//! looks like it. Where a text holds a reply as well, uses count only behind a tag: others are examples.

use serde_json::{Map, Value};

use super::reply::ToolCall;
use super::unwrap::balanced;

/// Places of one text at which a use may begin.
const PLACES_MAX: usize = 1024;

/// Uses that are taken from one text.
const CALLS_MAX: usize = 64;

/// Characters between a name in a tag and its arguments.
const GAP_MAX: usize = 80;

/// Tags with a tool's name behind them, and what ends the name.
const NAMED: [(&str, &[char]); 5] = [
    ("<function=", &['>']),
    ("[TOOL_CALLS]", &['[', '{']),
    ("<|tool_call_begin|>", &['<']),
    ("<｜tool▁sep｜>", &['\n', '{']),
    ("<|channel|>commentary to=", &[' ', '<']),
];

/// Uses of these tools that a text holds, in their order; without ids.
pub(super) fn spoken(text: &str, is_tool: impl Fn(&str) -> bool) -> Vec<ToolCall> {
    let mut calls: Vec<(ToolCall, bool)> = Vec::new();
    let mut has_reply = false;
    let mut at = 0;
    for _ in 0..PLACES_MAX {
        let Some(start) = text[at..].find(['{', '[', '<']).map(|start| at + start) else { break };
        let rest = &text[start..];
        if let Some((call, length)) = named(rest, &is_tool) {
            calls.push((call, true));
            at = start + length;
        } else if rest.starts_with('<') {
            at = start + 1;
        } else if let Some((value, length)) = value(rest) {
            // Behind a tag, or the name of one without its brackets.
            let before = text[..start].trim_end();
            let is_tagged = before.ends_with(['>', ']']);
            match uses(&value, &is_tool) {
                Some(found) => calls.extend(found.into_iter().map(|call| (call, is_tagged))),
                None => has_reply |= is_reply(&value),
            }
            at = start + length;
        } else if rest.starts_with("{{") {
            at = start + 1;
        } else {
            // Damaged JSON is a reply, and what it holds is a part of it.
            let length = balanced(rest);
            let part = &rest[..length.unwrap_or(rest.len())];
            let is_damaged = part.contains('"') && part.contains(':');
            has_reply |= is_damaged;
            at = start + if is_damaged { part.len() } else { 1 };
        }
    }
    calls.into_iter().filter(|(_, is_tagged)| *is_tagged || !has_reply).map(|(call, _)| call).take(CALLS_MAX).collect()
}

/// The JSON value that a text begins with, and its bytes.
fn value(text: &str) -> Option<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

fn is_reply(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        _ => false,
    }
}

/// Uses that a value consists of.
fn uses(value: &Value, is_tool: &impl Fn(&str) -> bool) -> Option<Vec<ToolCall>> {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(|item| call(item.as_object()?, is_tool)).collect(),
        Value::Object(members) => match members.get("tool_calls") {
            Some(calls @ Value::Array(_)) if members.len() == 1 => uses(calls, is_tool),
            _ => Some(vec![call(members, is_tool)?]),
        },
        _ => None,
    }
}

fn call(members: &Map<String, Value>, is_tool: &impl Fn(&str) -> bool) -> Option<ToolCall> {
    const KNOWN: [&str; 6] = ["name", "arguments", "parameters", "id", "type", "function"];
    if !members.keys().all(|name| KNOWN.contains(&name.as_str())) {
        return None;
    }
    if let Some(function) = members.get("function").and_then(Value::as_object) {
        return call(function, is_tool);
    }
    let name = members.get("name").or_else(|| members.get("function"))?.as_str()?;
    let arguments = members.get("arguments").or_else(|| members.get("parameters"))?;
    // Some write the arguments as text, as the protocol has them.
    let arguments = match arguments {
        Value::Object(_) => arguments.to_string(),
        Value::String(arguments) => arguments.clone(),
        _ => return None,
    };
    Some(made(tool(name, is_tool)?, arguments))
}

fn made(name: &str, arguments: String) -> ToolCall {
    ToolCall { id: String::new(), name: name.to_owned(), arguments, extra: Map::new(), extra_function: Map::new() }
}

/// The tool that is meant by a name: some write `functions.view`, or number their uses.
fn tool<'a>(name: &'a str, is_tool: &impl Fn(&str) -> bool) -> Option<&'a str> {
    let name = name.trim();
    let unnumbered = name.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix(':').unwrap_or(name);
    let last = unnumbered.rsplit(['.', ':', '/']).next().unwrap_or(unnumbered);
    [name, unnumbered, last].into_iter().find(|name| is_tool(name))
}

/// The use that a text begins with whose name stands in a tag, and its bytes.
fn named(text: &str, is_tool: &impl Fn(&str) -> bool) -> Option<(ToolCall, usize)> {
    let (tag, ends) = NAMED.into_iter().find(|(tag, _)| text.starts_with(tag))?;
    let rest = &text[tag.len()..];
    let name = &rest[..rest.find(ends)?];
    let (written, name) = (name, tool(name, is_tool)?);
    let at = tag.len() + written.len();
    let behind = &text[at..];
    if tag == "<function=" {
        let end = behind.find("</function>");
        let (inner, close) =
            (&behind[1..end.unwrap_or(behind.len())], if end.is_some() { "</function>".len() } else { 0 });
        let arguments = match value(inner.trim_start()) {
            Some((Value::Object(members), _)) => members,
            Some(_) => return None,
            None => parameters(inner),
        };
        return Some((made(name, Value::Object(arguments).to_string()), at + 1 + inner.len() + close));
    }
    let open = behind.find('{').filter(|open| *open <= GAP_MAX)?;
    let (arguments, length) = value(&behind[open..])?;
    Some((made(name, arguments.to_string()), at + open + length))
}

/// Parameters that are written as tags: `<parameter=path>a.py</parameter>`.
fn parameters(mut text: &str) -> Map<String, Value> {
    let mut all = Map::new();
    while let Some(rest) = text.find("<parameter=").map(|at| &text[at + "<parameter=".len()..]) {
        let Some((name, rest)) = rest.split_once('>') else { break };
        let end = rest.find("</parameter>").unwrap_or(rest.len());
        let said = rest[..end].strip_prefix('\n').unwrap_or(&rest[..end]);
        let said = said.strip_suffix('\n').unwrap_or(said);
        // What is no text is written as JSON.
        let parsed = serde_json::from_str::<Value>(said.trim()).ok().filter(|value| !value.is_string());
        all.insert(name.trim().to_owned(), parsed.unwrap_or_else(|| Value::String(said.to_owned())));
        text = &rest[end..];
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(text: &str) -> Vec<(String, String)> {
        let is_tool = |name: &str| matches!(name, "view" | "answer");
        spoken(text, is_tool).into_iter().map(|call| (call.name, call.arguments)).collect()
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
    fn what_is_no_use_of_a_tool_is_none() {
        let view = r#"{"name": "view", "arguments": {"path": "a.py"}}"#;
        let patch = r#"{"patch": [{"op": "add", "path": "/name", "value": 1}]}"#;
        for text in [
            String::new(),
            "}{".to_owned(),
            patch.to_owned(),
            // An example beside the reply.
            format!("I could use {view}, but I know: {patch}"),
            // The reply quotes it.
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
            text in "(<function=|view|>|</function>|\\[TOOL_CALLS\\]|\\{|\\}|\"name\"|:|\"|<parameter=|<｜tool▁sep｜>|\n|é| ){0,30}"
        ) {
            drop(heard(&text));
        }
    }
}
