//! Parts of a reply: members in any spelling, marked answers, and values as text.

use serde_json::{Map, Value};

/// Greatest number of answer marks that are tried, from the last.
const MARKS_MAX: usize = 64;

/// Joins the quoted error and its explanation.
pub(super) fn critique(entry: &Map<String, Value>) -> Option<String> {
    let wrong = member(entry, "wrongmessage").map(value_text).unwrap_or_default();
    let why = member(entry, "explanation").map(value_text).unwrap_or_default();
    match (wrong.is_empty(), why.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("Wrong: {wrong}")),
        (true, false) => Some(why),
        (false, false) => Some(format!("Wrong: {wrong}\nWhy: {why}")),
    }
}

/// Returns the text itself, unless it attempts an object.
pub(super) fn prose(text: &str, values: &[Value]) -> Option<String> {
    let text = text.trim();
    (!values.iter().any(Value::is_object) && !text.contains("\"output\"") && !text.starts_with('{'))
        .then(|| text.to_owned())
}

/// Returns the answer from its own member.
pub(super) fn answer_of(values: &[Value]) -> Option<String> {
    let answer = member_of_any(values, "boxed").map(value_text)?;
    // Some models mark it there once more.
    let marked = boxed(&answer).map(|(inner, _)| inner);
    let answer = marked.unwrap_or(answer);
    (!answer.is_empty()).then_some(answer)
}

/// Returns the last bracketed answer after its mark, and the text that follows it. Brackets may be nested.
pub(super) fn boxed(text: &str) -> Option<(String, &str)> {
    const MARK: &str = "boxed";
    let lower = text.to_ascii_lowercase();
    let mut marks = lower.rmatch_indices(MARK).map(|(at, _)| at + MARK.len()).take(MARKS_MAX);
    marks.find_map(|at| {
        let rest = text[at..].trim_start();
        let open = rest.chars().next()?;
        let close = match open {
            '[' => ']',
            '{' => '}',
            '(' => ')',
            _ => return None,
        };
        let mut depth = 0_usize;
        for (at, c) in rest.char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
            }
            if depth == 0 {
                let answer = rest[open.len_utf8()..at].trim();
                let is_empty = answer.is_empty() || answer.chars().all(|c| c == '.' || c == '…');
                return (!is_empty).then(|| (answer.to_owned(), &rest[at + close.len_utf8()..]));
            }
        }
        None
    })
}

/// Returns the member of this name from the first object that has one.
pub(super) fn member_of_any<'v>(values: &'v [Value], name: &str) -> Option<&'v Value> {
    values.iter().filter_map(Value::as_object).find_map(|object| member(object, name))
}

/// Returns the member of this name, in any spelling.
pub(super) fn member<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    object.iter().find(|(written, _)| key(written) == name).map(|(_, value)| value)
}

/// Reduces a name to its letters and digits, in lower case.
pub(super) fn key(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Converts a value to text: a string itself, parts of other values on a line each.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.trim().to_owned(),
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(value_text).filter(|part| !part.is_empty()).collect();
            parts.join("\n")
        }
        Value::Object(members) => lines(members),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

pub(super) fn lines(members: &Map<String, Value>) -> String {
    let line = |(name, value): (&String, &Value)| format!("{name}: {}", value_text(value));
    members.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the words of a text in lower case, separated by single spaces.
pub(super) fn words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Collapses white space to single spaces.
pub(super) fn squash(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
