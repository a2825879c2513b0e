//! Strict JSON reader for proposals, blueprints and requests.
//!
//! Defines which texts are acceptable: RFC 8259 without duplicate keys, bounded in size and depth, with numbers that a
//! double or a 64-bit integer can hold. Also defines the canonical form of a number (SPEC section 2). Repairs nothing
//! and knows no patches; see [`crate::patch`].

use std::cell::Cell;
use std::io;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::de::SliceRead;
use serde_json::map::Entry;
use serde_json::{Deserializer, Map, Number, Value};

use crate::rejection::Code;
use crate::text::truncated;

/// Maximum nesting, whatever the limits allow; the bound of the underlying parser.
pub const DEPTH_MAX: usize = 127;

/// Largest safe integer, 2^53 − 1: each integer up to it has a distinct double.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Bounds of a document to read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum text size in bytes.
    pub bytes: usize,
    /// Maximum nesting of arrays and objects, capped at [`DEPTH_MAX`].
    pub depth: usize,
}

/// Reason to reject a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} (at byte {offset})")]
pub struct JsonError {
    /// One of the `syntax` codes.
    pub code: Code,
    /// Byte offset in the text.
    pub offset: usize,
    /// Message for people and models.
    pub message: String,
}

/// Returns true if `serde_json` keeps every value. With its features `raw_value` and `arbitrary_precision`, which any
/// crate of the program may enable, it reads an object with a reserved member name as another value, or not at all.
pub fn is_lossless() -> bool {
    let reserved = ["$serde_json::private::RawValue", "$serde_json::private::Number"];
    reserved.into_iter().all(|name| {
        let text = serde_json::json!({ name: "1" }).to_string();
        serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object())
    })
}

/// Reads one strict JSON document (RFC 8259, no duplicate keys, SPEC section 2 numbers).
///
/// Of several errors the first in the text is reported, except that the size is checked before anything is read. The
/// codes are `too_large`, `too_deep`, `duplicate_key`, `number_out_of_range` and `invalid_json`.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, JsonError> {
    bounded(text, limits, |strict, deserializer| strict.deserialize(deserializer))
}

/// Reads an object like [`parse`], but keeps its own members in text order, including duplicates. Fails with
/// `invalid_json` for any value but an object.
pub(crate) fn members(text: &[u8], limits: Limits) -> Result<Vec<(String, Value)>, JsonError> {
    bounded(text, limits, |strict, deserializer| deserializer.deserialize_map(InOrder(strict)))
}

/// Checks the bounds of a text and reads it with `read`.
fn bounded<T>(
    text: &[u8],
    limits: Limits,
    read: impl FnOnce(Strict<'_>, &mut Deserializer<SliceRead<'_>>) -> Result<T, serde_json::Error>,
) -> Result<T, JsonError> {
    if text.len() > limits.bytes {
        let message = format!("the text has {} bytes, at most {} are read", text.len(), limits.bytes);
        return Err(JsonError { code: Code::TooLarge, offset: limits.bytes, message });
    }
    let out_of_bounds = scan(text, limits.depth.min(DEPTH_MAX));
    match (whole(text, read), out_of_bounds) {
        (Ok(value), None) => Ok(value),
        (Ok(_), Some(refusal)) => Err(refusal),
        (Err(refusal), None) => Err(refusal),
        // The scan knows brackets and digits but no grammar, so its result is unreliable after the first syntax error.
        (Err(malformed), Some(refusal)) => Err(if malformed.offset < refusal.offset { malformed } else { refusal }),
    }
}

/// Brings the numbers of a value that was not read by [`parse`] into the canonical form that equality and digests
/// assume (SPEC section 2). Integral floats within ±(2^53−1) become integers, `-0.0` becomes `0`.
pub fn normalise(value: &mut Value) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Number(number) => {
                if let Some(integer) = number.as_f64().filter(|_| number.is_f64()).and_then(integral) {
                    *number = integer.into();
                }
            }
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => pending.extend(members.values_mut()),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
}

/// Returns true if [`normalise`] would not change the value. Recursion is as deep as the value's nesting.
pub(crate) fn is_normal(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64() || number.as_f64().and_then(integral).is_none(),
        _ => parts(value).all(is_normal),
    }
}

/// Returns the integer equal to a double, if it is integral and within ±(2^53−1).
pub(crate) fn integral(float: f64) -> Option<i64> {
    // Within these bounds the conversion is exact.
    (float.trunc() == float && float.abs() <= SAFE_INTEGER_MAX).then_some(float as i64)
}

/// Returns the nesting of a value: 0 for a scalar, 1 for an empty array or object.
pub fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut pending = vec![(value, 0)];
    while let Some((value, above)) = pending.pop() {
        if value.is_array() || value.is_object() {
            deepest = deepest.max(above + 1);
            pending.extend(parts(value).map(|part| (part, above + 1)));
        }
    }
    deepest
}

/// Returns the elements or members of a value; empty for a scalar.
pub(crate) fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let members = value.as_object().into_iter().flat_map(Map::values);
    value.as_array().into_iter().flatten().chain(members)
}

/// Memory of an object member: name, value, and the unused space in the nodes of its tree.
const MEMBER: usize = 192;

/// Memory of the smallest tree node of an object.
const OBJECT: usize = 704;

/// Estimates an upper bound of the memory that the parsed text takes, in bytes; does not parse and uses constant
/// memory.
///
/// Counts allocator sizes of a [`Value`]: small texts may take ninety times their length.
pub fn footprint(text: &[u8]) -> usize {
    /// Array element; the memory of an array grows by doubling.
    const ELEMENT: usize = 2 * size_of::<Value>();
    const ARRAY: usize = 4 * size_of::<Value>();
    let (mut bytes, mut at) = (ELEMENT, 0);
    while let Some(byte) = text.get(at) {
        let end = if *byte == b'"' { end_of_string(text, at) } else { at + 1 };
        bytes = bytes.saturating_add(match byte {
            b'"' => end - at + 16,
            b',' => ELEMENT,
            b':' => MEMBER,
            b'{' => OBJECT,
            b'[' => ARRAY,
            _ => 0,
        });
        at = end;
    }
    bytes
}

/// Estimates the memory of a value in bytes; at most the [`footprint`] of its text.
pub(crate) fn memory(value: &Value) -> u64 {
    let (mut bytes, mut pending) = (0, vec![value]);
    while let Some(value) = pending.pop() {
        bytes += size_of::<Value>() as u64;
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => {
                bytes += if members.is_empty() { 0 } else { OBJECT as u64 };
                bytes += members.keys().map(|key| (MEMBER + key.len()) as u64).sum::<u64>();
                pending.extend(members.values());
            }
            Value::String(text) => bytes += text.len() as u64 + 16,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    bytes
}

/// Returns the length of a value as compact JSON, in bytes, without building the text.
pub fn size(value: &Value) -> u64 {
    size_within(value, u64::MAX).unwrap_or(u64::MAX)
}

/// Like [`size`], but returns `None` for a value longer than `most`, and then stops early.
pub(crate) fn size_within(value: &Value, most: u64) -> Option<u64> {
    let mut bytes = 0;
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => {
                bytes += 2 + commas(items.len());
                if bytes <= most {
                    pending.extend(items);
                }
            }
            Value::Object(members) => {
                bytes += 2 + commas(members.len());
                if bytes <= most {
                    bytes += members.keys().map(|key| text_size(key) + 1).sum::<u64>();
                    pending.extend(members.values());
                }
            }
            Value::String(text) => bytes += text_size(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => bytes += serialised_size(value),
        }
        if bytes > most {
            return None;
        }
    }
    Some(bytes)
}

/// Returns the length of a string as JSON, quotes and escapes included, in bytes.
pub fn text_size(text: &str) -> u64 {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\x08' | b'\t' | b'\n' | b'\x0c' | b'\r' => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    2 + text.len() as u64 + text.bytes().map(escaped).sum::<u64>()
}

/// Returns the length of a number as JSON, in bytes.
pub(crate) fn number_size(number: &serde_json::Number) -> u64 {
    if let Some(natural) = number.as_u64() {
        return u64::from(natural.checked_ilog10().unwrap_or(0)) + 1;
    }
    serialised_size(number)
}

fn commas(entries: usize) -> u64 {
    entries.saturating_sub(1) as u64
}

fn serialised_size(scalar: &(impl serde::Serialize + ?Sized)) -> u64 {
    struct Counter(u64);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, scalar).expect("a JSON scalar has a text, and counting cannot fail");
    counter.0
}

/// Finds the first bracket that is too deep or number that cannot be represented, looking only at bytes outside
/// strings.
///
/// Runs before any value is built and in constant memory, so that a hostile text costs no more than its length.
fn scan(text: &[u8], depth_max: usize) -> Option<JsonError> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    let message = format!("nested more than {depth_max} levels deep");
                    return Some(JsonError { code: Code::TooDeep, offset: at, message });
                }
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let length = text[at..]
                    .iter()
                    .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .count();
                if let Some(message) = unholdable(&text[at..at + length]) {
                    return Some(JsonError { code: Code::NumberOutOfRange, offset: at, message });
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// Returns the offset after the string that opens at `start`; the end of the text if it does not close.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the reason a number cannot be represented exactly; `None` also for malformed numbers, which the parser
/// rejects.
fn unholdable(literal: &[u8]) -> Option<String> {
    let literal = std::str::from_utf8(literal).ok()?;
    let reason = if literal.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        let float = literal.parse::<f64>().ok()?;
        let mantissa = literal.split(['e', 'E']).next()?;
        if float.is_infinite() {
            "is beyond the range of a double"
        } else if float == 0.0 && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9')) {
            "is not zero, but too small for a double"
        } else {
            return None;
        }
    } else {
        let digits = literal.strip_prefix('-').unwrap_or(literal);
        let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_integer || literal.parse::<i64>().is_ok() || literal.parse::<u64>().is_ok() {
            return None;
        }
        "does not fit a 64-bit integer"
    };
    Some(format!("the number {} {reason}", shortened(literal)))
}

/// Truncates a text to a recognisable prefix.
pub(crate) fn shortened(text: &str) -> std::borrow::Cow<'_, str> {
    truncated(text, 48)
}

/// Reads a text to its end, or reports the offset of the syntax error.
fn whole<T>(
    text: &[u8],
    read: impl FnOnce(Strict<'_>, &mut Deserializer<SliceRead<'_>>) -> Result<T, serde_json::Error>,
) -> Result<T, JsonError> {
    let repeated = Cell::new(None);
    let mut deserializer = Deserializer::from_slice(text);
    let value =
        read(Strict { repeated: &repeated }, &mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| {
        let offset = offset_of(&error, text);
        match repeated.take() {
            Some(key) => {
                let message = format!("the key {:?} occurs twice in one object", shortened(&key));
                JsonError { code: Code::DuplicateKey, offset, message }
            }
            None => JsonError { code: Code::InvalidJson, offset, message: format!("not JSON: {}", reason_of(&error)) },
        }
    })
}

/// Converts the error position to an offset. The parser reports lines from 1 and, within a line, the bytes consumed.
fn offset_of(error: &serde_json::Error, text: &[u8]) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let line_start = match error.line().checked_sub(2) {
        Some(newlines) => text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(newlines),
        None => None,
    }
    .map_or(0, |(newline, _)| newline + 1);
    (line_start + error.column()).saturating_sub(1).min(text.len())
}

fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Builds a [`Value`] as serde_json does, but rejects duplicate keys and normalises numbers.
///
/// Recursion is bounded by the parser at [`DEPTH_MAX`].
#[derive(Clone, Copy)]
struct Strict<'a> {
    /// Receives a duplicate key for `full`, because an error of the parser carries only text.
    repeated: &'a Cell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = integral(value).map(Number::from).or_else(|| Number::from_f64(value));
        number.map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = elements.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            match members.entry(key) {
                Entry::Occupied(entry) => {
                    self.repeated.set(Some(entry.key().clone()));
                    return Err(A::Error::custom("duplicate key"));
                }
                Entry::Vacant(entry) => {
                    entry.insert(entries.next_value_seed(self)?);
                }
            }
        }
        Ok(Value::Object(members))
    }
}

/// Builds the members of an object in their order, each as [`Strict`] does.
struct InOrder<'a>(Strict<'a>);

impl<'de> Visitor<'de> for InOrder<'_> {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            members.push((name, entries.next_value_seed(self.0)?));
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests;
