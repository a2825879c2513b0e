//! Parses tool calls that a model has written as text, because its server does not support them.
//!
//! Small models on small servers write `{"name": "view", "arguments": {...}}`, between tags, in a fence or after
//! words. Others write the name in a tag and the arguments after it. The server passes that on as content. No reply of
//! a worker looks like it. If a text contains a reply as well, only calls after a tag count: others are examples.

use serde_json::{Map, Value};

use super::reply::ToolCall;
use super::reply_text::{balanced, first_value, is_reply};

/// Places of one text that are tried as the start of a call.
const PLACES_MAX: usize = 1024;

/// Calls that are taken from one text.
const CALLS_MAX: usize = 64;

/// Characters between a name in a tag and its arguments.
const GAP_MAX: usize = 80;

/// Tags before a tool's name, each with the characters that end the name.
const NAMED: [(&str, &[char]); 8] = [
    ("<function=", &['>']),
    ("<invoke name=\"", &['"']),
    ("<tool_call>", &['\n', '<']),
    ("[TOOL_CALLS]", &['[', '{']),
    ("<|tool_call_begin|>", &['<']),
    ("<｜tool▁call▁begin｜>", &['<']),
    ("<｜tool▁sep｜>", &['\n', '{']),
    ("<|channel|>commentary to=", &[' ', '<']),
];

/// Tags of [`NAMED`] with parameters in tags after the name. Each has its end tag, and the text before and after a
/// parameter's name and after its value.
const TAGGED: [(&str, &str, [&str; 3]); 3] = [
    ("<function=", "</function>", ["<parameter=", ">", "</parameter>"]),
    ("<invoke name=\"", "</invoke>", ["<parameter name=\"", "\">", "</parameter>"]),
    ("<tool_call>", "</tool_call>", ["<arg_key>", "</arg_key>", "</arg_value>"]),
];

/// Returns the calls of these tools in a text, in their order; without ids.
pub(super) fn parse_inline_calls(text: &str, is_tool: impl Fn(&str) -> bool) -> Vec<ToolCall> {
    let mut calls: Vec<(ToolCall, bool)> = Vec::new();
    let mut has_reply = false;
    let mut at = 0;
    for _ in 0..PLACES_MAX {
        let Some(start) = text[at..].find(['{', '[', '<']).map(|start| at + start) else { break };
        let rest = &text[start..];
        if let Some((call, length)) = named(rest, &is_tool) {
            calls.push((call, true));
            at = start + length;
        } else if let Some((found, length)) = pythonic(rest, &is_tool) {
            calls.extend(found.into_iter().map(|call| (call, false)));
            at = start + length;
        } else if rest.starts_with('<') {
            at = start + 1;
        } else if let Some((value, length)) = first_value(rest) {
            // Follows a tag, or the name of one without its brackets.
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
            // Damaged JSON counts as a reply, including its content.
            let length = balanced(rest);
            let part = &rest[..length.unwrap_or(rest.len())];
            let is_damaged = part.contains('"') && part.contains(':');
            has_reply |= is_damaged;
            at = start + if is_damaged { part.len() } else { 1 };
        }
    }
    calls.into_iter().filter(|(_, is_tagged)| *is_tagged || !has_reply).map(|(call, _)| call).take(CALLS_MAX).collect()
}

/// Converts a value into calls, if it consists of them.
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

/// Parses a list of Python calls at the start of a text: `[view(path="a.py")]`, with its length in bytes.
fn pythonic(text: &str, is_tool: &impl Fn(&str) -> bool) -> Option<(Vec<ToolCall>, usize)> {
    let mut rest = text.strip_prefix('[')?.trim_start();
    let mut calls = Vec::new();
    loop {
        let (name, behind) = before(rest, '(')?;
        let name = tool(name, is_tool)?;
        let mut members = Map::new();
        rest = behind.trim_start();
        while !rest.starts_with(')') {
            let (member, behind) = before(rest, '=')?;
            let is_word = member.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let (value, length) = literal(behind.trim_start()).filter(|_| is_word)?;
            members.insert(member.trim().to_owned(), value);
            rest = behind.trim_start()[length..].trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        calls.push(new_call(name, Value::Object(members).to_string()));
        rest = rest[1..].trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None => break,
        }
    }
    let rest = rest.strip_prefix(']')?;
    Some((calls, text.len() - rest.len()))
}

/// Splits a text at a character, if that is near enough.
fn before(text: &str, end: char) -> Option<(&str, &str)> {
    let (at, _) = text.char_indices().take(GAP_MAX).find(|(_, c)| *c == end)?;
    Some((&text[..at], &text[at + end.len_utf8()..]))
}

/// Parses a Python literal at the start of a text, with its length in bytes.
fn literal(text: &str) -> Option<(Value, usize)> {
    let words = [("True", Value::Bool(true)), ("False", Value::Bool(false)), ("None", Value::Null)];
    if let Some((word, value)) = words.into_iter().find(|(word, _)| text.starts_with(word)) {
        return Some((value, word.len()));
    }
    let Some(inner) = text.strip_prefix('\'') else { return first_value(text) };
    let mut said = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some((Value::String(said), at + 2)),
            '\\' => said.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            c => said.push(c),
        }
    }
    None
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
    // Some write the arguments as text, as in the protocol.
    let arguments = match arguments {
        Value::Object(_) => arguments.to_string(),
        Value::String(arguments) => arguments.clone(),
        _ => return None,
    };
    Some(new_call(tool(name, is_tool)?, arguments))
}

fn new_call(name: &str, arguments: String) -> ToolCall {
    ToolCall { id: String::new(), name: name.to_owned(), arguments, extra: Map::new(), extra_function: Map::new() }
}

/// Finds the tool for a name: some models write `functions.view`, or number their calls.
fn tool<'a>(name: &'a str, is_tool: &impl Fn(&str) -> bool) -> Option<&'a str> {
    let name = name.trim();
    let unnumbered = name.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix(':').unwrap_or(name);
    let last = unnumbered.rsplit(['.', ':', '/']).next().unwrap_or(unnumbered);
    [name, unnumbered, last].into_iter().find(|name| is_tool(name))
}

/// Parses the call at the start of a text with its name in a tag; returns its length in bytes, too.
fn named(text: &str, is_tool: &impl Fn(&str) -> bool) -> Option<(ToolCall, usize)> {
    let (tag, ends) = NAMED.into_iter().find(|(tag, _)| text.starts_with(tag))?;
    let rest = &text[tag.len()..];
    let name = &rest[..rest.find(ends)?];
    let (written, name) = (name, tool(name, is_tool)?);
    let at = tag.len() + written.len();
    let behind = &text[at..];
    if let Some((_, last, tags)) = TAGGED.into_iter().find(|(tagged, ..)| *tagged == tag) {
        let end = behind.find(last);
        let inner = &behind[..end.unwrap_or(behind.len())];
        let close = if end.is_some() { last.len() } else { 0 };
        let arguments = match first_value(inner.trim_start_matches(['"', '>']).trim_start()) {
            Some((Value::Object(members), _)) => members,
            Some(_) => return None,
            None => parameters(inner, tags),
        };
        return Some((new_call(name, Value::Object(arguments).to_string()), at + inner.len() + close));
    }
    let open = behind.find('{').filter(|open| *open <= GAP_MAX)?;
    let (arguments, length) = first_value(&behind[open..])?;
    Some((new_call(name, arguments.to_string()), at + open + length))
}

/// Parses parameters in tags: `<parameter=path>a.py</parameter>`.
fn parameters(mut text: &str, [before, behind, close]: [&str; 3]) -> Map<String, Value> {
    let mut all = Map::new();
    while let Some(rest) = text.find(before).map(|at| &text[at + before.len()..]) {
        let Some((name, rest)) = rest.split_once(behind) else { break };
        let rest = rest.trim_start().strip_prefix("<arg_value>").unwrap_or(rest);
        let end = rest.find(close).unwrap_or(rest.len());
        let said = rest[..end].strip_prefix('\n').unwrap_or(&rest[..end]);
        let said = said.strip_suffix('\n').unwrap_or(said);
        // Values other than text are written as JSON.
        let parsed = serde_json::from_str::<Value>(said.trim()).ok().filter(|value| !value.is_string());
        all.insert(name.trim().to_owned(), parsed.unwrap_or_else(|| Value::String(said.to_owned())));
        text = &rest[end..];
    }
    all
}

#[cfg(test)]
mod tests;
