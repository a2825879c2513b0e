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
        true => "; a key never stands in this file: api_key_env names the variable that holds it",
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
mod tests {
    use crate::config::Config;

    #[test]
    fn no_value_of_a_file_is_repeated() {
        let model = "[models.a]\nurl = \"http://h/v1\"\nmodel = \"m\"\n";
        for (lines, words) in [
            ("api_key = \"s3cret\"", "line 4, column 1: unknown field `api_key`"),
            ("api_key = \"s3cret\"", "api_key_env names the variable"),
            (
                "api_key_env = \"sk-s3cret\"",
                "line 4, column 15: api_key_env: this is the name of an environment variable",
            ),
            (
                "api_key_command = \"s3cret\"",
                "line 4, column 19: api_key_command: invalid type: a text, expected a sequence",
            ),
            ("context = \"s3cret\\\", expected x\"", "line 4, column 11: context: invalid type: a text, expected u32"),
            ("api = \"sk-s3cret-0123456789\"", "line 4, column 7: api: unknown variant, expected"),
            ("headers = { x = { env = \"s3cret-1\" } }", "line 4, column 17: headers: expected a text"),
            ("s3cret", "line 4"),
            ("c3cretC3cretS3cretQ==", "line 4"),
            ("api_key_env = \"K\"\nabS3cretS3cretS3cretZ= 1", "line 5"),
            ("api_key_env = 5303473", "line 4, column 15: api_key_env: invalid type: an integer, expected a string"),
            ("api_key_env = 530.3473", "line 4, column 15: api_key_env: invalid type: a number, expected a string"),
            ("s3cretS3cretS3cretS3cret0 = 1", "line 4, column 1: unknown field `s3cr…`"),
            ("api_key_env = \"K\" s3cret", "line 4"),
            ("api_key_env = \"s3cret", "line 4"),
            ("api_key_env = \"\"\"\ns3cret=\"\"\"", "line 4, column 15: api_key_env: this is the name"),
            ("api_key_env = \"K\"\napi_key_env = \"s3cret\"", "line 5"),
            ("patience = \"s3cret\"", "line 4, column 12: patience: a time is a whole number"),
            ("extra_body = { key = \"s3cret\", at = 2020-01-01 }", "line 4"),
            ("fallback = [\"a\", 1] # s3cret", "line 4"),
            ("[models.b]\nurl = \"http://me:s3cret@h/v1\"\nmodel = \"m\"", "line 5, column 7: url: credentials"),
            ("[models.b]\nurl = \"http://h/v1?key=s3cret\"\nmodel = \"m\"", "line 5, column 7: url: the address"),
        ] {
            let told = Config::parse(&format!("{model}{lines}\n"), "p").expect_err("refused").to_string();
            let is_told = ["s3cret", "S3cret", "303"].iter().any(|secret| told.contains(secret));
            assert!(told.starts_with("p: line ") && told.contains(words) && !is_told, "{lines}: {told}");
        }
    }
}
