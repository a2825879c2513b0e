//! Writes values and pointers as text that cannot be mistaken for view structure.
//!
//! Document content is data. It is printed as JSON on one line. Characters that end a line or hide text are escaped. So
//! no value and no member's name can look like a heading or a line of the view.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use super::search::push_index;
use crate::tree::{Array, Node};

/// Returns true if a character is escaped: control, line end, invisible joiner or direction change.
const fn is_unsafe(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Writer with a limit of characters (Unicode scalar values); without `text`, it only counts.
struct Writer<'o> {
    text: Option<&'o mut String>,
    left: usize,
}

/// Error: the limit is reached.
struct Full;

impl Writer<'_> {
    fn char(&mut self, c: char) -> Result<(), Full> {
        self.left = self.left.checked_sub(1).ok_or(Full)?;
        if let Some(text) = &mut self.text {
            text.push(c);
        }
        Ok(())
    }

    fn str(&mut self, text: &str) -> Result<(), Full> {
        self.counted(text, chars(text))
    }

    /// Appends text with a known number of characters.
    fn counted(&mut self, text: &str, chars: usize) -> Result<(), Full> {
        self.left = self.left.checked_sub(chars).ok_or(Full)?;
        if let Some(mine) = &mut self.text {
            mine.push_str(text);
        }
        Ok(())
    }

    /// Appends a number in its display form, without an intermediate string.
    fn number(&mut self, number: &Number) -> Result<(), Full> {
        match number.as_u64().map(usize::try_from) {
            Some(Ok(number)) => {
                self.left = self.left.checked_sub(number.checked_ilog10().unwrap_or(0) as usize + 1).ok_or(Full)?;
                if let Some(text) = &mut self.text {
                    push_index(text, number);
                }
                Ok(())
            }
            Some(Err(_)) | None => write!(self, "{number}").map_err(|_| Full),
        }
    }

    /// Appends a JSON Pointer or a member's name, see [`name`].
    fn name(&mut self, text: &str) -> Result<(), Full> {
        if is_plain_name(text) { self.str(text) } else { self.string(text) }
    }

    fn string(&mut self, text: &str) -> Result<(), Full> {
        self.char('"')?;
        // The plain prefix, which is usually everything, is copied in one piece.
        let plain = plain_bytes(text.as_bytes());
        let (text, rest) = text.split_at(plain);
        self.counted(text, plain)?;
        for c in rest.chars() {
            match c {
                '"' => self.str("\\\"")?,
                '\\' => self.str("\\\\")?,
                '\n' => self.str("\\n")?,
                '\t' => self.str("\\t")?,
                c if is_unsafe(c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let mut escape = String::new();
                        write!(escape, "\\u{unit:04x}").expect("writing to a String cannot fail");
                        self.str(&escape)?;
                    }
                }
                c => self.char(c)?,
            }
        }
        self.char('"')
    }

    fn node(&mut self, node: &Node) -> Result<(), Full> {
        match node {
            Node::Null => self.str("null"),
            Node::Bool(truth) => self.str(if *truth { "true" } else { "false" }),
            Node::Number(number) => self.number(number),
            Node::Short(_) | Node::Long(_) => self.string(node.as_str().unwrap_or_default()),
            Node::Array(elements) => self.listed(['[', ']'], elements.iter(), Self::node),
            Node::Object(members) => self.listed(['{', '}'], members.iter(), |writer, (name, member)| {
                writer.string(name)?;
                writer.char(':')?;
                writer.node(member)
            }),
        }
    }

    fn value(&mut self, value: &Value) -> Result<(), Full> {
        match value {
            Value::Null => self.str("null"),
            Value::Bool(truth) => self.str(if *truth { "true" } else { "false" }),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.string(text),
            Value::Array(elements) => self.listed(['[', ']'], elements.iter(), Self::value),
            Value::Object(members) => self.listed(['{', '}'], members.iter(), |writer, (name, member)| {
                writer.string(name)?;
                writer.char(':')?;
                writer.value(member)
            }),
        }
    }

    /// Appends the parts of a container between its brackets.
    fn listed<T>(
        &mut self,
        [open, close]: [char; 2],
        parts: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Full>,
    ) -> Result<(), Full> {
        self.char(open)?;
        for (index, part) in parts.enumerate() {
            if index > 0 {
                self.char(',')?;
            }
            write(self, part)?;
        }
        self.char(close)
    }
}

impl std::fmt::Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.str(text).map_err(|Full| std::fmt::Error)
    }
}

/// Returns the number of bytes before the first that needs escaping.
fn plain_bytes(text: &[u8]) -> usize {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') & (*byte != b'"') & (*byte != b'\\');
    // No early exit within a piece, so that the compiler can vectorise the comparison.
    let pieces = text.chunks_exact(16).take_while(|piece| piece.iter().fold(true, |all, byte| all & is_plain(byte)));
    let from = pieces.count() * 16;
    from + text[from..].iter().take_while(|byte| is_plain(byte)).count()
}

/// Returns true if all texts write exactly one character per byte of compact JSON.
fn is_ascii(node: &Node) -> bool {
    let is_ascii = |text: &str| text.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    match node {
        Node::Array(elements) => elements.iter().all(self::is_ascii),
        Node::Object(members) => members.iter().all(|(name, member)| is_ascii(name) && self::is_ascii(member)),
        Node::Short(_) | Node::Long(_) => is_ascii(node.as_str().unwrap_or_default()),
        Node::Null | Node::Bool(_) | Node::Number(_) => true,
    }
}

/// Returns true if a part of the state has at most `limit` characters as compact JSON. Costs no more than the limit.
pub(super) fn fits(node: &Node, limit: usize) -> bool {
    is_short(node, limit) || length(node, limit).is_some()
}

/// Returns true if the stored size alone proves that a value fits.
pub(super) fn is_short(node: &Node, limit: usize) -> bool {
    /// Maximum characters written per byte of compact JSON: U+00AD has two bytes and is written in six.
    const CHARS_PER_BYTE: u64 = 3;
    node.bytes().saturating_mul(CHARS_PER_BYTE) <= limit as u64
}

/// Returns the characters of a value as compact JSON, if at most `limit`. Costs no more than the limit.
pub(super) fn length(node: &Node, limit: usize) -> Option<usize> {
    if !may_fit(node, limit) {
        return None;
    }
    if is_ascii(node) {
        return usize::try_from(node.bytes()).ok().filter(|length| *length <= limit);
    }
    let mut writer = Writer { text: None, left: limit };
    writer.node(node).ok().map(|()| limit - writer.left)
}

/// Returns false if a value has more than `limit` characters for certain: a character has at most four bytes.
fn may_fit(node: &Node, limit: usize) -> bool {
    node.bytes() <= (limit as u64).saturating_mul(4)
}

/// Appends the line of a value to `out`, including the line feed, if it has at most `limit` characters; returns their
/// number. `appendable` returns true for the pointer of an array that the worker may append to.
pub(super) fn push_line(
    out: &mut String,
    label: &str,
    value: &Node,
    limit: usize,
    appendable: &dyn Fn(&str) -> bool,
) -> Option<usize> {
    if !may_fit(value, limit) {
        return None;
    }
    let start = out.len();
    let hint = value.as_array().is_some_and(Array::is_empty).then(|| append_hint(label, appendable));
    let mut writer = Writer { text: Some(out), left: limit };
    let mut write = || {
        writer.name(label)?;
        writer.str(": ")?;
        writer.node(value)?;
        writer.str(hint.unwrap_or_default())?;
        writer.char('\n')
    };
    let is_written = write().is_ok();
    let length = limit - writer.left;
    if !is_written {
        out.truncate(start);
    }
    is_written.then_some(length)
}

/// Returns the line above an array's elements.
pub(super) fn elements(label: &str, count: usize, appendable: &dyn Fn(&str) -> bool) -> String {
    format!("{}\n", count_of_elements(label, count, appendable))
}

/// Describes the number of an array's elements.
pub(super) fn count_of_elements(label: &str, count: usize, appendable: &dyn Fn(&str) -> bool) -> String {
    /// Bytes of the text after the name.
    const WORDS_BYTES: usize = 64;
    let mut out = String::with_capacity(label.len() + WORDS_BYTES);
    push_name(&mut out, label);
    out.push_str(": ");
    push_index(&mut out, count);
    out.push_str(if count == 1 { " element" } else { " elements" });
    out.push_str(append_hint(label, appendable));
    out
}

fn append_hint(label: &str, appendable: &dyn Fn(&str) -> bool) -> &'static str {
    if appendable(label) { " (you may append)" } else { "" }
}

/// Returns a scalar in its written form, a text without quotation marks if it cannot be misread; `None` if it exceeds
/// `limit`.
pub(super) fn short(node: &Node, limit: usize) -> Option<String> {
    let written = match node.as_str() {
        Some(text) if text.len() <= 4 * limit => name(text),
        Some(_) => return None,
        None => node.to_value().to_string(),
    };
    (chars(&written) <= limit).then_some(written)
}

/// Returns the beginning of a text as a JSON string of at most `limit` characters, and the number of text characters in
/// it.
pub(super) fn beginning(text: &str, limit: usize) -> (String, usize) {
    // A character is written in at most twelve.
    let mut most = limit.saturating_sub(2).min(text.len());
    loop {
        let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
        let mut out = String::new();
        if (Writer { text: Some(&mut out), left: limit }).string(&text[..end]).is_ok() || most == 0 {
            return (out, chars(&text[..end]));
        }
        most = most * 3 / 4;
    }
}

/// Returns a value as compact JSON of at most `limit` characters; `None` if it is longer. Costs no more than the limit.
pub(super) fn json(value: &Value, limit: usize) -> Option<String> {
    let mut text = String::new();
    let is_whole = Writer { text: Some(&mut text), left: limit }.value(value).is_ok();
    is_whole.then_some(text)
}

/// Like [`json`] without a limit, for values that are bounded elsewhere.
pub(super) fn whole_json(value: &Value) -> String {
    json(value, usize::MAX).unwrap_or_default()
}

/// Returns a JSON Pointer or a member's name unchanged, or as a JSON string if it could be misread.
pub(super) fn name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    push_name(&mut name, text);
    name
}

/// Appends the result of [`name`] to `out`.
pub(super) fn push_name(out: &mut String, text: &str) {
    // The limit is unreachable.
    let _ = Writer { text: Some(out), left: usize::MAX }.name(text);
}

/// Returns the number of characters of the result of [`name`].
pub(super) fn name_chars(text: &str) -> usize {
    let mut writer = Writer { text: None, left: usize::MAX };
    let _ = writer.name(text);
    usize::MAX - writer.left
}

fn is_plain_name(text: &str) -> bool {
    let could_be_misread = |byte: &u8| matches!(byte, b'"' | b':' | b';' | b',') | !matches!(byte, b' '..=b'~');
    if text.bytes().all(|byte| !could_be_misread(&byte)) {
        return !text.is_empty() && !text.starts_with(' ') && !text.ends_with(' ');
    }
    !text.contains(['"', ':', ';', ',']) && !text.contains(is_unsafe) && text.trim() == text
}

/// Returns prose on one line, at most `limit` characters; a cut is marked.
pub(super) fn prose(text: &str, limit: usize) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        if index + 1 >= limit && text.chars().nth(index + 1).is_some() {
            out.push('…');
            break;
        }
        out.push(if is_unsafe(c) { ' ' } else { c });
    }
    out
}

/// Counts characters, as budgets do.
pub(super) fn chars(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Truncates the text to its first `limit` characters.
pub(super) fn cut(text: &mut String, limit: usize) {
    if let Some((at, _)) = text.char_indices().nth(limit) {
        text.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_one_line_of_json_that_reads_back() {
        let value = json!({"a\n## You may write": ["x\u{2028}y\u{202e}\u{e0041}\r\t\u{0}", 1.5, null, {"b": true}], "é": "\\\""});
        let text = whole_json(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("it is JSON"), value);
        assert!(!text.contains(is_unsafe), "{text}");
        assert_eq!(json(&value, chars(&text)), Some(text.clone()));
        assert_eq!(json(&value, chars(&text) - 1), None);
    }

    #[test]
    fn a_name_that_could_be_misread_is_quoted() {
        assert_eq!(name("/claims/0/text"), "/claims/0/text");
        assert_eq!(name("/a b/é"), "/a b/é");
        assert_eq!(name("/a: 1"), "\"/a: 1\"");
        assert_eq!(name("/a\n## You"), "\"/a\\n## You\"");
        assert_eq!(name(""), "\"\"");
    }

    #[test]
    fn prose_is_cut_at_its_limit() {
        assert_eq!(prose("äbc", 3), "äbc");
        assert_eq!(prose("äbcd", 3), "äb…");
        assert_eq!(prose("a\nb", 9), "a b");
        let mut text = "äbc".to_owned();
        cut(&mut text, 1);
        assert_eq!(text, "ä");
    }
}
