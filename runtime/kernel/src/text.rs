//! Text for people: truncation, counts with their nouns, numbers.
//!
//! Owns no wording of messages, and does not know blueprints.

use std::borrow::Cow;
use std::fmt::Display;

/// Truncates a text to one line of at most `max` characters. Control characters (terminal escapes included) and runs
/// of white space become one space each, because the text is untrusted and people read it.
pub fn one_line(text: &str, max: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut chars = words.flat_map(|word| std::iter::once(' ').chain(word.chars())).skip(1);
    let mut line: String = chars.by_ref().take(max).collect();
    if chars.next().is_some() {
        line.pop();
        line.push('…');
    }
    line
}

/// Truncates a text to its first `chars` characters, and adds an ellipsis if any are missing.
pub fn truncated(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

/// Formats a number with at most four decimals.
pub fn decimals(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a count with its noun: `1 line`, `2 lines`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// Returns the verb for a count: `is` or `are`.
pub fn is_or_are<N: PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::{counted, decimals, is_or_are, one_line, truncated};

    #[test]
    fn counts_of_one_are_singular() {
        let sentence = |count: u32| format!("{} {} there", counted(count, "line"), is_or_are(count));
        assert_eq!([0, 1, 2].map(sentence), ["0 lines are there", "1 line is there", "2 lines are there"]);
    }

    #[test]
    fn foreign_text_becomes_one_bounded_line_without_control_characters() {
        for (text, max, expected) in [
            ("", 5, ""),
            ("  a \n\t b\u{1b}[31m ", 20, "a b [31m"),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcde…"),
            ("äöüäöü", 3, "äö…"),
        ] {
            assert_eq!(one_line(text, max), expected, "{text:?}");
        }
    }

    #[test]
    fn a_truncated_text_ends_between_characters() {
        assert_eq!([0, 2, 3, 4].map(|chars| truncated("äöü", chars)), ["…", "äö…", "äöü", "äöü"]);
    }

    #[test]
    fn a_number_has_no_trailing_zeros() {
        assert_eq!([0.0, 0.5, 2.0, 1.0 / 3.0].map(decimals), ["0", "0.5", "2", "0.3333"]);
    }
}
