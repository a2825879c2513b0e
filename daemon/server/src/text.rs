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

/// Escapes characters that JSON permits unescaped. In JSON text these occur only inside strings.
fn escape_json(text: String) -> String {
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

/// Escapes these characters in a line of JSON; the line end is kept.
pub fn escaped_line(line: &str) -> String {
    escape_json(line.to_owned())
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
mod tests {
    use super::{clean, json_line, one_line, short};

    #[test]
    fn nothing_that_acts_on_a_terminal_is_left_in_text() {
        let hostile = "red \u{1b}[31malert\u{1b}[0m \u{1b}]0;title\u{7} \u{9b}2Jgone\u{202e}txt\r\nnext\tcell";
        let cleaned = clean(hostile);
        let shown = "red <U+001B>[31malert<U+001B>[0m <U+001B>]0;title<U+0007> <U+009B>2Jgone";
        assert!(cleaned.starts_with(shown), "{cleaned:?}");
        assert_eq!(clean("5\u{8}9\r, 9\r\n"), "5<U+0008>9<U+000D>, 9\n");
        assert!(cleaned.ends_with("\nnext\tcell"), "{cleaned:?}");
        assert!(!cleaned.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{cleaned:?}");
        assert!(cleaned.contains("gone<U+202E>txt"), "{cleaned:?}");
        assert!(!one_line(hostile).contains(['\n', '\t']));
    }

    #[test]
    fn escaping_json_leaves_the_value_the_same() {
        let value = serde_json::json!({"a\u{9b}": "\u{1b}[31m\u{202e}\u{7f}\u{2028}ü😀\u{e0041}\u{200b}"});
        let line = json_line(&value);
        assert!(line.chars().all(|c| !super::is_control_char(c) && !super::is_invisible_char(c)), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).expect("it is JSON"), value);
    }

    #[test]
    fn what_is_not_seen_is_written_out() {
        let hidden = [
            0xad, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x202a, 0x202e, 0x2060, 0x2064, 0x2066, 0x2069, 0xfeff,
            0xe0000, 0xe0041, 0xe007f, 0xe0100, 0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180f, 0x2800, 0x3164,
            0xfe00, 0xfe0e, 0xffa0, 0xfff0, 0x1bca0, 0x1d173, 0x1d17a,
        ];
        for code in hidden {
            let c = char::from_u32(code).expect("a character");
            for shown in [clean(&format!("a{c}b")), super::escape_invisible(&format!("a{c}b"))] {
                assert_eq!(shown, format!("a<U+{code:04X}>b"));
            }
            assert_eq!(one_line(&format!("a{c}\nb")), format!("a<U+{code:04X}> b"));
        }
        for plain in ["ü😀", "é\u{301}", "☂\u{fe0f}", "\u{1b}[31mred\u{1b}[0m"] {
            assert_eq!(super::escape_invisible(plain), plain);
        }
    }

    #[test]
    fn a_long_text_is_cut_by_characters() {
        assert_eq!(short("äöüß", 4), "äöüß");
        assert_eq!(short("äöüßä", 4), "äöü…");
    }
}
