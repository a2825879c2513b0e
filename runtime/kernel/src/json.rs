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

/// Reads one strict JSON document (RFC 8259, no duplicate keys, SPEC section 2 numbers).
///
/// Of several errors the first in the text is reported, except that the size is checked before anything is read.
///
/// # Errors
/// Returns `too_large`, `too_deep`, `duplicate_key`, `number_out_of_range` or `invalid_json`.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, JsonError> {
    bounded(text, limits, |strict, deserializer| strict.deserialize(deserializer))
}

/// Reads an object like [`parse`], but keeps its own members in text order, including duplicates.
///
/// # Errors
/// Like [`parse`]; also `invalid_json` for any value but an object.
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
        return Err(JsonError {
            code: Code::TooLarge,
            offset: limits.bytes,
            message: format!("the text has {} bytes, at most {} are read", text.len(), limits.bytes),
        });
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
        Value::Array(items) => items.iter().all(is_normal),
        Value::Object(members) => members.values().all(is_normal),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
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
        match value {
            Value::Array(items) => {
                deepest = deepest.max(above + 1);
                pending.extend(items.iter().map(|item| (item, above + 1)));
            }
            Value::Object(members) => {
                deepest = deepest.max(above + 1);
                pending.extend(members.values().map(|member| (member, above + 1)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    deepest
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
                    return Some(JsonError {
                        code: Code::TooDeep,
                        offset: at,
                        message: format!("nested more than {depth_max} levels deep"),
                    });
                }
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let length = text[at..].iter().take_while(|byte| is_number_byte(**byte)).count();
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

fn is_number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
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
            Some(key) => JsonError {
                code: Code::DuplicateKey,
                offset,
                message: format!("the key {:?} occurs twice in one object", shortened(&key)),
            },
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
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const LIMITS: Limits = Limits { bytes: 1 << 20, depth: 64 };

    #[test]
    fn a_value_takes_no_more_memory_than_its_text_foretells() {
        let texts =
            ["null", "17", r#""text""#, "[]", "{}", "[1,2,3]", r#"{"a":[{"":0},{"":0}],"b":"text","c":{"d":null}}"#];
        for text in texts {
            let value: Value = serde_json::from_str(text).expect("JSON");
            let (memory, foretold) = (memory(&value), footprint(text.as_bytes()) as u64);
            assert!(memory <= foretold, "{text}: {memory} of {foretold}");
        }
        assert!(memory(&json!({"": 0})) > 10 * size(&json!({"": 0})));
    }

    fn read_text(text: &str) -> Result<Value, (Code, usize)> {
        parse(text.as_bytes(), LIMITS).map_err(|refusal| (refusal.code, refusal.offset))
    }

    #[test]
    fn members_in_order_may_repeat_and_what_is_below_them_may_not() {
        let read = |text: &str| members(text.as_bytes(), LIMITS).map_err(|refusal| refusal.code);
        let pair = |name: &str, value| (name.to_owned(), value);
        let expected = vec![pair("b", json!(1)), pair("a", json!({"x": 2})), pair("b", json!([]))];
        assert_eq!(read(r#"{"b": 1.0, "a": {"x": 2}, "b": []}"#), Ok(expected));
        assert_eq!(read(r#"{"a": {"x": 1, "x": 2}}"#), Err(Code::DuplicateKey));
        for text in ["[]", "1", "{\"a\": 1} x", ""] {
            assert_eq!(read(text), Err(Code::InvalidJson), "{text}");
        }
        assert_eq!(read(&format!("{{\"a\": {}}}", nested(64))), Err(Code::TooDeep));
    }

    fn nested(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }

    #[test]
    fn integral_floats_become_integers_and_other_numbers_stay_what_they_are() {
        for (text, value) in [
            ("1.0", json!(1)),
            ("-0.0", json!(0)),
            ("-0", json!(0)),
            ("0e9999999999999999999999", json!(0)),
            ("1e2", json!(100)),
            ("9007199254740991.0", json!(9_007_199_254_740_991_i64)),
            ("-9007199254740991.0", json!(-9_007_199_254_740_991_i64)),
            ("9007199254740992.0", json!(9_007_199_254_740_992.0)),
            ("9007199254740993", json!(9_007_199_254_740_993_u64)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1E22", json!(1e22)),
            ("0.1", json!(0.1)),
            ("5e-324", json!(5e-324)),
        ] {
            assert_eq!(read_text(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn numbers_that_would_change_are_refused_where_they_stand() {
        for text in [
            "18446744073709551616",
            "-9223372036854775809",
            "100000000000000000000",
            "1e309",
            "-1e400",
            "1e99999999999999999999",
            "1e-400",
            "0.0000001e-400",
        ] {
            assert_eq!(read_text(text), Err((Code::NumberOutOfRange, 0)), "{text}");
            assert_eq!(read_text(&format!("{{\"a\": [{text}]}}")), Err((Code::NumberOutOfRange, 7)), "{text}");
            assert_eq!(read_text(&format!("\"{text}\"")), Ok(json!(text)), "in a string it is only text");
        }
    }

    #[test]
    fn a_repeated_key_is_refused_at_any_depth_also_when_it_is_spelt_differently() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"a":3}}]"#, r#"{"a":1,"\u0061":2}"#] {
            assert_eq!(read_text(text).map_err(|(code, _)| code), Err(Code::DuplicateKey), "{text}");
        }
        assert_eq!(read_text(r#"{"a":{"a":1}}"#), Ok(json!({"a": {"a": 1}})));
    }

    #[test]
    fn the_depth_limit_admits_its_own_number_of_levels_and_no_more() {
        for limit in [0, 1, 64, DEPTH_MAX] {
            let limits = Limits { bytes: usize::MAX, depth: limit };
            let deepest = if limit == 0 { "1".to_owned() } else { nested(limit) };
            let value = parse(deepest.as_bytes(), limits).expect("the limit itself is allowed");
            assert_eq!(depth(&value), limit);
            let refusal = parse(nested(limit + 1).as_bytes(), limits).expect_err("one more is not");
            assert_eq!((refusal.code, refusal.offset), (Code::TooDeep, limit));
        }
    }

    #[test]
    fn limits_beyond_the_parsers_own_do_not_overflow_the_stack() {
        let limits = Limits { bytes: usize::MAX, depth: usize::MAX };
        let refusal = parse("[".repeat(1_000_000).as_bytes(), limits).expect_err("too deep");
        assert_eq!((refusal.code, refusal.offset), (Code::TooDeep, DEPTH_MAX));
    }

    #[test]
    fn brackets_and_quotes_in_strings_count_for_nothing() {
        let text = format!(r#"["{}", "\"{}\\"]"#, "[".repeat(200), "{".repeat(200));
        assert!(read_text(&text).is_ok());
    }

    #[test]
    fn text_that_is_too_large_is_not_read_at_all() {
        let limits = Limits { bytes: 4, depth: 64 };
        assert_eq!(parse(b"null", limits), Ok(Value::Null));
        let refusal = parse(b"nulls", limits).expect_err("five bytes");
        assert_eq!((refusal.code, refusal.offset), (Code::TooLarge, 4));
    }

    #[test]
    fn malformed_text_is_refused_with_the_byte_at_which_it_breaks() {
        for (text, offset) in [
            ("", 0),
            ("{\"a\": 1", 7),
            ("[1 2]", 3),
            ("[\n1,\n]", 5),
            ("\u{feff}{}", 0),
            ("{} x", 3),
            ("nul", 3),
            ("Here it is: [99999999999999999999]", 0),
            ("He said \"[", 0),
        ] {
            assert_eq!(read_text(text), Err((Code::InvalidJson, offset)), "{text:?}");
        }
        for text in [&b"\"\xff\""[..], b"\xff", b"{\"\xc3\x28\":1}", b"\"\\ud800\"", b"\"a\x00b\""] {
            assert_eq!(parse(text, LIMITS).map_err(|refusal| refusal.code), Err(Code::InvalidJson), "{text:?}");
        }
    }

    #[test]
    fn of_several_faults_the_first_one_is_reported() {
        assert_eq!(read_text("[1e999, ,]"), Err((Code::NumberOutOfRange, 1)));
        assert_eq!(read_text("[,1e999]"), Err((Code::InvalidJson, 1)));
        assert_eq!(read_text(r#"{"a":1,"a":2,"b":1e999}"#).map_err(|(code, _)| code), Err(Code::DuplicateKey));
    }

    #[test]
    fn normalising_twice_is_normalising_once_and_reaches_every_level() {
        let mut value = json!({"a": [1.0, {"b": -0.0}], "c": 1.5, "d": 1e300, "e": 9_007_199_254_740_992.0});
        normalise(&mut value);
        assert_eq!(value, json!({"a": [1, {"b": 0}], "c": 1.5, "d": 1e300, "e": 9_007_199_254_740_992.0}));
        let once = value.clone();
        normalise(&mut value);
        assert_eq!(value, once);
    }

    // Digests, equality and the order of members rest on these features; another crate of the workspace could turn
    // one on or off for all.
    #[test]
    fn serde_json_is_built_with_the_features_that_documents_rely_on() {
        let keys = json!({"b": 1, "a": 2});
        let keys: Vec<_> = keys.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(keys, ["a", "b"], "`preserve_order` must stay off: members are kept sorted");
        assert_eq!(json!(1.10).to_string(), "1.1");
        let number: Value = serde_json::from_str("1.10").expect("a number");
        assert_eq!(number.to_string(), "1.1", "`arbitrary_precision` must stay off: numbers are doubles or integers");
        assert!(serde_json::from_str::<Value>("1e1000").is_err(), "`arbitrary_precision` must stay off");
        for (text, float) in
            [("31.245270191439438", 31.245270191439438_f64), ("121.48791951161945", 121.48791951161945)]
        {
            let read: f64 = serde_json::from_str(text).expect("a number");
            assert_eq!(read.to_bits(), float.to_bits(), "`float_roundtrip` must stay on");
        }
    }

    #[test]
    fn the_size_of_every_character_is_known() {
        for character in ('\0'..='\u{2ff}').chain(['\u{2028}', '\u{ffff}', '\u{1f600}']) {
            let text = format!("a{character}b");
            assert_eq!(text_size(&text), serialised_size(text.as_str()), "{character:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back_as_it_was_and_its_size_was_known(value in any_value()) {
            let text = value.to_string();
            prop_assert_eq!(size(&value), text.len() as u64);
            prop_assert_eq!(parse(text.as_bytes(), LIMITS), Ok(value));
        }

        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Err(refusal) = parse(&text, LIMITS) {
                prop_assert!(refusal.offset <= text.len());
            }
        }

        #[test]
        fn any_json_like_text_is_read_or_refused(text in r#"[\[\]{}",:0-9eE.+\-\\ntu\n ]{0,48}"#) {
            let strict = parse(text.as_bytes(), LIMITS);
            if let Ok(value) = strict {
                let mut lenient: Value = serde_json::from_str(&text).expect("strict JSON is JSON");
                normalise(&mut lenient);
                prop_assert_eq!(value, lenient);
            }
        }

        #[test]
        fn a_double_is_read_as_the_nearest_to_its_digits(text in r"-?(0|[1-9][0-9]{0,24})\.[0-9]{1,24}([eE][+\-]?[0-9]{1,3})?") {
            let nearest: f64 = text.parse().expect("a number");
            if let Ok(value) = parse(text.as_bytes(), LIMITS) {
                prop_assert_eq!(value.as_f64(), Some(if nearest == 0.0 { 0.0 } else { nearest }));
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(|float| {
                let mut value = Value::from(if float.is_finite() { float } else { 0.5 });
                normalise(&mut value);
                value
            }),
            ".{0,12}".prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }
}
