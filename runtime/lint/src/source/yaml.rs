//! Composes the events of a YAML parser into one JSON value and the positions of its parts.
//!
//! Owns the interpretation and the rejection of scalars. Uses an explicit stack instead of recursion, so that nested
//! text cannot overflow the thread's stack.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Span, Tag};

use super::{BYTES_MAX, COPIED_BYTES_MAX, DEPTH_MAX, Place, VALUES_MAX, push_token};
use crate::diagnostic::Position;
use patchboard_kernel::json;

/// Rejection of a text.
pub(super) struct YamlError {
    pub(super) code: &'static str,
    pub(super) position: Option<Position>,
    pub(super) message: String,
    pub(super) help: String,
}

impl YamlError {
    fn new(code: &'static str, position: Position, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, position: Some(position), message: message.into(), help: help.into() }
    }

    fn syntax(position: Position, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new("yaml_syntax", position, message, help)
    }

    fn too_large(position: Position, message: impl Into<String>) -> Self {
        Self::new("too_large", position, message, "Split the blueprint, or move parts of it to fragments (`use`).")
    }
}

/// Parses one document.
pub(super) fn compose(text: &str) -> Result<(Value, BTreeMap<String, Place>), YamlError> {
    let start = Position { line: 1, column: 1 };
    if text.len() > BYTES_MAX {
        return Err(YamlError::too_large(start, format!("the file has {} bytes, more than {BYTES_MAX}", text.len())));
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.disallow_directives = true;
    let mut composer = Composer::default();
    for item in Parser::new_from_str_with_options(text, options) {
        let (event, span) = item.map_err(|error| {
            if *error.kind() == ErrorKind::RecursionLimitExceeded {
                return YamlError::too_large(position(*error.marker()), format!("nested deeper than {DEPTH_MAX}"));
            }
            let help = "Check indentation, quotes and brackets here and before.";
            YamlError::syntax(position(*error.marker()), error.kind().to_string(), help)
        })?;
        composer.take(event, span, text)?;
    }
    let nothing = || YamlError::syntax(start, "the file is empty", "Write a blueprint: `blueprint: 2`, `name: …`, …");
    let value = composer.root.ok_or_else(nothing)?;
    Ok((value, composer.places))
}

#[derive(Default)]
struct Composer {
    root: Option<Value>,
    places: BTreeMap<String, Place>,
    /// Complete anchored values, with the pointers of their originals.
    anchors: BTreeMap<usize, (Value, String)>,
    /// The open objects and arrays, outermost first.
    open: Vec<Frame>,
    /// JSON Pointer of the next node; each open frame knows the length of its own part.
    pointer: String,
    documents: usize,
    values: usize,
    bytes: usize,
}

struct Frame {
    content: Content,
    anchor: usize,
    pointer_len: usize,
}

enum Content {
    Array(Vec<Value>),
    /// The members so far, and the key without a value yet.
    Object(Map<String, Value>, Option<String>),
}

impl Composer {
    fn take(&mut self, event: Event<'_>, span: Span, text: &str) -> Result<(), YamlError> {
        let at = position(span.start);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let help =
                        "A blueprint is one document: remove the `---` line and what follows, or make it a file.";
                    return Err(YamlError::syntax(at, "a second document begins here", help));
                }
            }
            Event::Scalar(content, style, anchor, tag) => {
                let written = (span.start.byte_offset(), span.end.byte_offset());
                let range = if let (Some(start), Some(end)) = written { Some((start, end)) } else { None };
                let raw = range.and_then(|(start, end)| text.get(start..end)).unwrap_or(&content);
                self.charge(at, 1, content.len())?;
                if self.expects_key() {
                    return self.key(&content, raw, style, at);
                }
                // Kept as text, so that other errors are found as well.
                let beyond_json = style == ScalarStyle::Plain && tag.is_none() && is_beyond_json(raw);
                let value =
                    if beyond_json { Value::from(raw) } else { scalar(&content, raw, style, tag.as_deref(), at)? };
                self.enter(at, range);
                if let Some(place) = self.places.get_mut(&self.pointer) {
                    place.beyond_json = beyond_json;
                }
                self.complete(value, anchor);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(Content::Array(Vec::new()), anchor, tag.as_deref(), at)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(Content::Object(Map::new(), None), anchor, tag.as_deref(), at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.open.pop() {
                    let value = match frame.content {
                        Content::Array(items) => Value::Array(items),
                        Content::Object(members, _) => Value::Object(members),
                    };
                    self.pointer.truncate(frame.pointer_len);
                    self.complete(value, frame.anchor);
                }
            }
            Event::Alias(anchor) => self.copy(anchor, at)?,
            // The remaining events carry no values: document ends, and events that the options disable.
            _ => {}
        }
        Ok(())
    }

    /// Returns true if the next node is the key of a member.
    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Frame { content: Content::Object(_, None), .. }))
    }

    fn key(&mut self, key: &str, raw: &str, style: ScalarStyle, at: Position) -> Result<(), YamlError> {
        let Some(Frame { content: Content::Object(members, waiting), .. }) = self.open.last_mut() else {
            return Ok(());
        };
        if style == ScalarStyle::Plain && key == "<<" {
            let help = "Write the members out, or put the common part into the schema's `$defs`.";
            return Err(YamlError::syntax(at, "merge keys (`<<`) are not part of YAML 1.2", help));
        }
        if raw.is_empty() {
            return Err(YamlError::syntax(
                at,
                "a key is missing before this `:`",
                "Write the key, in quotes if empty.",
            ));
        }
        if members.contains_key(key) {
            let mut pointer = self.pointer.clone();
            push_token(&mut pointer, key);
            let first = self.places.get(&pointer).map(|place| place.key.unwrap_or(place.value).line);
            let where_first = first.map_or_else(String::new, |line| format!(" (first on line {line})"));
            let message = format!("the key `{key}` occurs twice{where_first}");
            return Err(YamlError::new("duplicate_key", at, message, "Remove one of the two, or merge their values."));
        }
        *waiting = Some(key.to_owned());
        push_token(&mut self.pointer, key);
        let place = Place { file: 0, value: at, key: Some(at), written: None, beyond_json: false };
        self.places.insert(self.pointer.clone(), place);
        Ok(())
    }

    fn open(&mut self, content: Content, anchor: usize, tag: Option<&Tag>, at: Position) -> Result<(), YamlError> {
        if self.expects_key() {
            return Err(complex_key(at));
        }
        if let Some(tag) = tag {
            return Err(tagged(tag, at));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(YamlError::too_large(at, format!("nested deeper than {DEPTH_MAX}")));
        }
        self.charge(at, 1, 0)?;
        self.enter(at, None);
        self.open.push(Frame { content, anchor, pointer_len: self.pointer.len() });
        Ok(())
    }

    fn copy(&mut self, anchor: usize, at: Position) -> Result<(), YamlError> {
        if self.expects_key() {
            return Err(complex_key(at));
        }
        let Some((value, from)) = self.anchors.get(&anchor) else {
            let help = "Write the value out; a value cannot be part of itself.";
            return Err(YamlError::syntax(at, "this alias is inside the value it names", help));
        };
        let (value, from) = (value.clone(), from.clone());
        if self.open.len() + json::depth(&value) > DEPTH_MAX {
            return Err(YamlError::too_large(at, format!("nested deeper than {DEPTH_MAX}")));
        }
        let (values, bytes) = weigh(&value);
        self.charge(at, values, bytes)?;
        self.enter(at, None);
        // Errors below an alias are reported at the anchor, so copies keep the positions of the originals.
        let below = format!("{from}/");
        let copied: Vec<(String, Place)> = self
            .places
            .range(below.clone()..)
            .take_while(|(pointer, _)| pointer.starts_with(&below))
            .map(|(pointer, place)| (pointer[from.len()..].to_owned(), *place))
            .collect();
        let base = &self.pointer;
        self.places.extend(copied.into_iter().map(|(rest, place)| (format!("{base}{rest}"), place)));
        self.complete(value, 0);
        Ok(())
    }

    /// Charges values and string bytes to the limits.
    fn charge(&mut self, at: Position, values: usize, bytes: usize) -> Result<(), YamlError> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.values > VALUES_MAX {
            return Err(YamlError::too_large(at, format!("more than {VALUES_MAX} values, copies of aliases included")));
        }
        if self.bytes > COPIED_BYTES_MAX {
            let message = format!("more than {COPIED_BYTES_MAX} bytes of strings, copies of aliases included");
            return Err(YamlError::too_large(at, message));
        }
        Ok(())
    }

    /// Sets [`Self::pointer`] to the node that begins here, and records its position.
    fn enter(&mut self, at: Position, written: Option<(usize, usize)>) {
        if let Some(Frame { content: Content::Array(items), pointer_len, .. }) = self.open.last() {
            self.pointer.truncate(*pointer_len);
            push_token(&mut self.pointer, &items.len().to_string());
        }
        let key = self.places.get(&self.pointer).and_then(|place| place.key);
        self.places.insert(self.pointer.clone(), Place { file: 0, value: at, key, written, beyond_json: false });
    }

    /// Adds a complete value to its container; [`Self::pointer`] is its own.
    fn complete(&mut self, value: Value, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), self.pointer.clone()));
        }
        match self.open.last_mut() {
            Some(Frame { content, pointer_len, .. }) => {
                match content {
                    Content::Array(items) => items.push(value),
                    Content::Object(members, key) => {
                        if let Some(key) = key.take() {
                            members.insert(key, value);
                        }
                    }
                }
                self.pointer.truncate(*pointer_len);
            }
            None => self.root = Some(value),
        }
    }
}

/// Interprets a scalar. `content` is its text, `raw` the text as written.
fn scalar(content: &str, raw: &str, style: ScalarStyle, tag: Option<&Tag>, at: Position) -> Result<Value, YamlError> {
    if let Some(tag) = tag {
        if !tag.is_yaml_core_schema_tag("str") {
            return Err(tagged(tag, at));
        }
        return Ok(Value::from(if raw.is_empty() { "" } else { content }));
    }
    if style != ScalarStyle::Plain {
        return Ok(Value::from(content));
    }
    match raw {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    if is_json_number(raw) {
        let limits = json::Limits { bytes: BYTES_MAX, depth: 1 };
        return json::parse(raw.as_bytes(), limits).map_err(|refusal| {
            let help = "Numbers are 64-bit integers or doubles; put a longer one in quotes.";
            YamlError::syntax(at, refusal.message, help)
        });
    }
    if is_foreign_number(raw) {
        let help = format!("Write it as a decimal number, or as \"{raw}\" if it is a string.");
        return Err(YamlError::syntax(at, format!("readers of YAML disagree on what `{raw}` is"), help));
    }
    Ok(Value::from(content))
}

/// Checks the number syntax of RFC 8259, section 6.
fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let text = text.strip_prefix('-').unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text.starts_with('0')) {
        return false;
    }
    let mut rest = &text[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = digits(fraction);
        if length == 0 {
            return false;
        }
        rest = &fraction[length..];
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let length = digits(exponent);
        return length > 0 && length == exponent.len();
    }
    rest.is_empty()
}

/// Returns true if YAML reads this as a number that JSON cannot represent: `.inf`, `-.nan`, `1e400`.
fn is_beyond_json(text: &str) -> bool {
    let lower = text.strip_prefix(['-', '+']).unwrap_or(text).to_ascii_lowercase();
    let is_too_large = || text.contains(['e', 'E', '.']) && text.parse::<f64>().is_ok_and(f64::is_infinite);
    lower == ".inf" || lower == ".nan" || (is_json_number(text) && is_too_large())
}

/// Returns true if some YAML version reads this as a number that JSON writes otherwise: `0o17`, `017`, `0x1F`, `1_000`,
/// `+1`, `.5`.
fn is_foreign_number(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            return !digits.is_empty() && digits.chars().all(|c| c == '_' || c.is_digit(radix));
        }
    }
    let numeric = lower.chars().all(|c| c.is_ascii_digit() || matches!(c, '_' | '.' | 'e' | '+' | '-'));
    let begins = lower.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    numeric && begins && lower.replace('_', "").parse::<f64>().is_ok()
}

fn complex_key(at: Position) -> YamlError {
    YamlError::syntax(at, "a key must be a plain or quoted string", "JSON objects have strings as keys.")
}

fn tagged(tag: &Tag, at: Position) -> YamlError {
    let message = format!("the tag `{}` means nothing here", tag.original());
    YamlError::syntax(at, message, "Remove the tag; put a value in quotes to make it a string.")
}

/// Counts values, and bytes of strings and keys.
fn weigh(value: &Value) -> (usize, usize) {
    let sum = |(values, bytes): (usize, usize), (more, longer): (usize, usize)| (values + more, bytes + longer);
    match value {
        Value::Array(items) => items.iter().map(weigh).fold((1, 0), sum),
        Value::Object(members) => {
            members.iter().map(|(key, value)| sum((1, key.len()), weigh(value))).fold((1, 0), sum)
        }
        Value::String(text) => (1, text.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
    }
}

fn position(marker: Marker) -> Position {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: number(marker.line()), column: number(marker.col()).saturating_add(1) }
}

/// Returns the part of a raw scalar before byte `offset` of its content; `None` if they cannot be aligned.
///
/// The characters of the content are matched in order; the raw text between them is quotes, indentation and escapes.
pub(super) fn locate<'a>(written: &'a str, content: &str, offset: usize) -> Option<&'a str> {
    let wanted = content.char_indices().take_while(|(at, _)| *at <= offset).count();
    if offset >= content.len() {
        return None;
    }
    let mut raw = written.char_indices().peekable();
    if written.starts_with(['\'', '"']) {
        raw.next();
    }
    let mut found = None;
    for c in content.chars().take(wanted) {
        found = loop {
            let (at, written) = raw.next()?;
            // A folded line break is a space of the content.
            let folded = c == ' ' && written == '\n';
            if written == c || folded {
                while folded && raw.next_if(|(_, next)| *next == ' ').is_some() {}
                break Some(at);
            }
        };
    }
    written.get(..found?)
}
