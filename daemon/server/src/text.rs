//! Text without characters that control a terminal, and JSON with these escaped.
//!
//! Text by models or documents passes through [`clean`] or [`one_line`], which escape control characters. All output of
//! commands finally passes through [`escape_invisible`], which writes invisible characters and changes of direction as
//! `<U+200B>`. JSON output escapes all of these, which preserves the value.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

/// Formats a value as compact JSON, with terminal control characters escaped.
pub fn json_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("what we print has string keys and finite numbers");
    escape_json(text)
}

/// Formats a value as indented JSON, with terminal control characters escaped.
pub fn json_pretty(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("what we print has string keys and finite numbers");
    escape_json(text)
}

/// Escapes characters that JSON permits unescaped, except line ends. In JSON text these occur only inside strings.
pub fn escape_json(text: String) -> String {
    let is_escaped = |c: char| (is_control_char(c) && c != '\n') || is_invisible_char(c);
    if !text.chars().any(is_escaped) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(escaped, "\\u{unit:04x}").expect("a string takes everything");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Escapes control and invisible characters of a text of several lines as `<U+001B>`.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_spelled = |c| is_invisible_char(c) || is_control_char(c) && c != '\n' && c != '\t';
    if !text.contains(is_spelled) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(escape_chars(&text.replace("\r\n", "\n"), is_spelled).into_owned())
}

/// Returns true if a text has neither control nor invisible characters.
pub fn is_printable(text: &str) -> bool {
    !text.contains(|c| is_control_char(c) || is_invisible_char(c))
}

/// Escapes invisible characters as `<U+200B>`.
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    escape_chars(text, is_invisible_char)
}

/// Replaces some characters by their numbers.
fn escape_chars(text: &str, is_spelled: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_spelled) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_spelled(c) {
            write!(shown, "<U+{:04X}>", u32::from(c)).expect("a string takes everything");
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Escapes control and invisible characters as `<U+001B>`, including line ends.
pub fn escape_all(text: &str) -> Cow<'_, str> {
    escape_chars(text, |c| is_control_char(c) || is_invisible_char(c))
}

/// Returns a text on one line, without control characters; runs of white space become one space.
pub fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a text on one line, truncated to a number of characters, with an ellipsis.
pub fn short(text: &str, chars_max: usize) -> String {
    let line = one_line(text);
    if line.chars().count() <= chars_max {
        return line;
    }
    let mut cut: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Returns true for control characters (C0, DEL, C1), which a terminal interprets.
const fn is_control_char(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// Returns true for characters that are invisible or misleading: zero width (also the soft hyphen, joiners and tag
/// letters), marks of direction, and line breaks that not all programs recognise.
const fn is_invisible_char(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0e}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Joins segments to a path and percent-encodes them.
pub fn path(segments: &[&str]) -> String {
    let mut url = reqwest::Url::parse("http://daemon").expect("it is an address");
    url.path_segments_mut().expect("it has a path").clear().extend(segments);
    url.path().to_owned()
}

#[cfg(test)]
mod tests;
