//! Describes TOML errors without values of the file, since a value may be a key in the wrong place.

use toml::de::Error;

use super::redacted;

/// Greatest length of a message in characters.
const SAID_MAX: usize = 500;

/// Longest unknown variant, in bytes, that a message repeats.
const VARIANT_MAX: usize = 16;

/// Describes a TOML error by line, column and key, without the line itself and without string values.
pub fn toml_error(text: &str, error: &Error) -> String {
    let what = without_values(error.message());
    let advice = match what.starts_with("unknown field `api_key`") {
        true => "; this file never contains a key: api_key_env names the variable that holds it",
        false => "",
    };
    located(text, error, &format!("{}{advice}", patchboard_runtime::tools::cut(what, SAID_MAX)))
}

/// Prefixes a message with line, column and key.
pub(super) fn located(text: &str, error: &Error, what: &str) -> String {
    let before = &text[..text.floor_char_boundary(error.span().map_or(0, |span| span.start))];
    let line = before.matches('\n').count() + 1;
    let begun = before.rsplit('\n').next().unwrap_or_default();
    let column = begun.chars().count() + 1;
    let whole = &text[before.len() - begun.len()..];
    match key(whole.lines().next().unwrap_or_default()).filter(|key| !what.contains(key)) {
        Some(key) => format!("line {line}, column {column}: {key}: {}", what.trim_end()),
        None => format!("line {line}, column {column}: {}", what.trim_end()),
    }
}

/// Returns the key at the beginning of a line. A key with capitals or digits is no setting: it may be a secret that
/// ends with `=`.
fn key(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let is_bare = key.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '-' | '.'));
    (is_bare && !key.is_empty()).then_some(key)
}

/// Removes the values that a serde message repeats: texts and numbers, as in `invalid type: string "…", expected u32`,
/// a name that looks like a key, and an `unknown variant` too long for a typing error.
fn without_values(message: &str) -> String {
    let message = message.split_once(", not \"").map_or(message, |(wanted, _)| wanted);
    let field = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    if let Some((field, rest)) = field {
        return format!("unknown field `{}`{rest}", redacted(field));
    }
    for (number, word) in [("integer `", "an integer"), ("floating point `", "a number")] {
        let value = message.split_once(number).and_then(|(before, rest)| Some((before, rest.split_once('`')?.1)));
        if let Some((before, rest)) = value {
            return format!("{before}{word}{rest}");
        }
    }
    let variant = message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected"));
    if let Some((_, expected)) = variant.filter(|(variant, _)| variant.len() > VARIANT_MAX) {
        return format!("unknown variant, expected{expected}");
    }
    let Some((before, rest)) = message.split_once("string \"") else { return message.to_owned() };
    match rest.rfind("\", expected") {
        Some(end) => format!("{before}a text{}", &rest[end + 1..]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
