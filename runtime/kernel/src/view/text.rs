//! Writes values and pointers as text that cannot pass for anything else.
//!
//! What stands in documents is data. It is printed as JSON on one line, with every character escaped that ends a line
//! or hides what is written, so that no value and no member's name can look like a heading or a line of ours.

use std::fmt::Write as _;

use serde_json::Value;

use crate::tree::{Array, Node};

/// Whether a character is printed as an escape: it controls, ends a line, joins invisibly or turns the direction.
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

/// Text under a limit of characters (Unicode scalar values); none is kept if only its length matters.
struct Writer {
    text: Option<String>,
    left: usize,
}

/// The limit is reached.
struct Full;

impl Writer {
    fn char(&mut self, c: char) -> Result<(), Full> {
        self.left = self.left.checked_sub(1).ok_or(Full)?;
        if let Some(text) = &mut self.text {
            text.push(c);
        }
        Ok(())
    }

    fn str(&mut self, text: &str) -> Result<(), Full> {
        self.left = self.left.checked_sub(chars(text)).ok_or(Full)?;
        if let Some(mine) = &mut self.text {
            mine.push_str(text);
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Full> {
        self.char('"')?;
        // What is plain, which is nearly all, is taken over in one piece.
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        let plain = text.bytes().take_while(|byte| is_plain(byte)).count();
        let (plain, rest) = text.split_at(plain);
        self.str(plain)?;
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
            Node::Number(number) => self.str(&number.to_string()),
            Node::Short(_) | Node::Long(_) => self.string(node.as_str().unwrap_or_default()),
            Node::Array(elements) => {
                self.char('[')?;
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        self.char(',')?;
                    }
                    self.node(element)?;
                }
                self.char(']')
            }
            Node::Object(members) => {
                self.char('{')?;
                for (index, (name, member)) in members.iter().enumerate() {
                    if index > 0 {
                        self.char(',')?;
                    }
                    self.string(name)?;
                    self.char(':')?;
                    self.node(member)?;
                }
                self.char('}')
            }
        }
    }

    fn value(&mut self, value: &Value) -> Result<(), Full> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.str(&value.to_string()),
            Value::String(text) => self.string(text),
            Value::Array(elements) => {
                self.char('[')?;
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        self.char(',')?;
                    }
                    self.value(element)?;
                }
                self.char(']')
            }
            Value::Object(members) => {
                self.char('{')?;
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        self.char(',')?;
                    }
                    self.string(name)?;
                    self.char(':')?;
                    self.value(value)?;
                }
                self.char('}')
            }
        }
    }
}

/// Whether a part of the state has at most `limit` characters as compact JSON. Costs no more than the limit.
pub(super) fn fits(node: &Node, limit: usize) -> bool {
    /// The most characters that are written for a byte of compact JSON: U+00AD has two and is written in six.
    const CHARS_PER_BYTE: u64 = 3;
    let is_short = || node.bytes().saturating_mul(CHARS_PER_BYTE) <= limit as u64;
    is_short() || (may_fit(node, limit) && Writer { text: None, left: limit }.node(node).is_ok())
}

/// Whether it need not have more than `limit` characters: one has at most four bytes.
fn may_fit(node: &Node, limit: usize) -> bool {
    node.bytes() <= (limit as u64).saturating_mul(4)
}

/// The line of a value, line feed included, if it has at most `limit` characters; `appendable` says of a pointer
/// whether the worker may append to the array there.
pub(super) fn line(label: &str, value: &Node, limit: usize, appendable: &dyn Fn(&str) -> bool) -> Option<String> {
    if !may_fit(value, limit) {
        return None;
    }
    let mut writer = Writer { text: Some(name(label)), left: limit };
    writer.left = writer.left.checked_sub(writer.text.as_deref().map_or(0, chars))?;
    let hint = value.as_array().is_some_and(Array::is_empty).then(|| append_hint(label, appendable));
    let mut write = || {
        writer.str(": ")?;
        writer.node(value)?;
        writer.str(hint.unwrap_or_default())?;
        writer.char('\n')
    };
    write().ok().and(writer.text)
}

/// The line above an array's elements.
pub(super) fn elements(label: &str, count: usize, appendable: &dyn Fn(&str) -> bool) -> String {
    format!("{}\n", count_of_elements(label, count, appendable))
}

/// How many elements an array has.
pub(super) fn count_of_elements(label: &str, count: usize, appendable: &dyn Fn(&str) -> bool) -> String {
    let unit = if count == 1 { "element" } else { "elements" };
    format!("{}: {count} {unit}{}", name(label), append_hint(label, appendable))
}

fn append_hint(label: &str, appendable: &dyn Fn(&str) -> bool) -> &'static str {
    if appendable(label) { " (you may append)" } else { "" }
}

/// A value as compact JSON of at most `limit` characters; `None` if it is longer. Costs no more than the limit.
pub(super) fn json(value: &Value, limit: usize) -> Option<String> {
    let mut writer = Writer { text: Some(String::new()), left: limit };
    writer.value(value).ok().and(writer.text)
}

/// The same, whatever its length; for values that are bounded elsewhere.
pub(super) fn whole_json(value: &Value) -> String {
    json(value, usize::MAX).unwrap_or_default()
}

/// A JSON Pointer or a member's name as it stands, or as a JSON string where it could be misread.
pub(super) fn name(text: &str) -> String {
    let plain =
        !text.is_empty() && !text.contains(['"', ':', ';', ',']) && !text.contains(is_unsafe) && text.trim() == text;
    if plain { text.to_owned() } else { whole_json(&Value::from(text)) }
}

/// Prose on one line, at most `limit` characters; what is cut off is marked.
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

/// Characters, as budgets count them.
pub(super) fn chars(text: &str) -> usize {
    text.chars().count()
}

/// The text's first `limit` characters.
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
