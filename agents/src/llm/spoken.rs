//! Uses of tools that a model has written as text, because its server does not know them as such.
//!
//! Small models on small servers write `{"name": "view", "arguments": {...}}`, between tags or in a fence, or with doubled
//! braces; the server passes that on as what the model says. No reply of a worker looks like it.

use serde_json::{Map, Value};

use super::reply::ToolCall;

/// What may stand around a use of a tool: tags and fences by these names, and signs.
const AROUND: [&str; 5] = ["tool_call", "tool", "json", "function", "python_tag"];

/// The use of one of these tools that a text consists of, if it is one.
pub(super) fn spoken(text: &str, id: String, is_tool: impl Fn(&str) -> bool) -> Option<ToolCall> {
    let (start, end) = (text.find('{')?, text.rfind('}')?);
    let inner = text.get(start..=end)?;
    if !is_around(&text[..start]) || !is_around(&text[end + 1..]) {
        return None;
    }
    let doubled = inner.strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
    let read = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let mut said = read(inner).or_else(|| read(doubled?))?;
    let (name, arguments) = (said.remove("name")?, said.remove("arguments").or_else(|| said.remove("parameters"))?);
    let name = name.as_str().filter(|name| is_tool(name))?.to_owned();
    // Some write the arguments as text, as the protocol has them.
    let arguments = match arguments {
        Value::Object(_) => arguments.to_string(),
        Value::String(arguments) => arguments,
        _ => return None,
    };
    said.is_empty().then_some(ToolCall { id, name, arguments })
}

fn is_around(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.all(|word| AROUND.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Option<(String, String)> {
        spoken(text, "1".to_owned(), |name| matches!(name, "view" | "answer")).map(|call| (call.name, call.arguments))
    }

    #[test]
    fn a_use_of_a_tool_is_heard_in_the_forms_that_models_write() {
        let view = Some(("view".to_owned(), r#"{"path":"a.py"}"#.to_owned()));
        for text in [
            r#"{"name": "view", "arguments": {"path": "a.py"}}"#,
            "<tool_call>\n{\"name\": \"view\", \"arguments\": {\"path\": \"a.py\"}}\n</tool_call>",
            "```json\n{\"arguments\": {\"path\": \"a.py\"}, \"name\": \"view\"}\n```\n\n\n",
            r#"<{{"name": "view", "arguments": {"path": "a.py"}}}>"#,
            "<|python_tag|>{\"name\": \"view\", \"parameters\": {\"path\": \"a.py\"}}",
            r#"{"name": "view", "arguments": "{\"path\":\"a.py\"}"}"#,
        ] {
            assert_eq!(heard(text), view, "{text}");
        }
        let text = r#"{"name": "answer", "arguments": {"patch": []}}"#;
        assert_eq!(heard(text), Some(("answer".to_owned(), r#"{"patch":[]}"#.to_owned())));
    }

    #[test]
    fn what_is_no_use_of_a_tool_is_none() {
        for text in [
            "",
            "}{",
            "I would use {\"name\": \"view\", \"arguments\": {}}",
            r#"{"patch": [{"op": "add", "path": "/name", "value": 1}]}"#,
            r#"{"name": "rm", "arguments": {}}"#,
            r#"{"name": "view", "arguments": {}, "patch": []}"#,
            r#"{"name": "view", "arguments": [1]}"#,
            r#"{"name": "view"}"#,
            "{\"name\": \"view\", \"arguments\": {}}\n{\"name\": \"view\", \"arguments\": {}}",
            "{{{{",
        ] {
            assert_eq!(heard(text), None, "{text}");
        }
    }
}
