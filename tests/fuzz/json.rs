//! Compares the strict JSON reader with `serde_json`, and values with what is read back after printing.

use std::fmt;

use jsonptr::Pointer;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::json::{self, DEPTH_MAX, JsonError, Limits};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::state::State;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Checks a text that is JSON or nearly so.
pub fn json(data: &[u8]) {
    check(data, Limits { bytes: usize::MAX, depth: usize::MAX });
    check(data, Limits { bytes: 1 << 20, depth: 64 });
    check(data, Limits { bytes: 48, depth: 3 });
}

fn check(text: &[u8], limits: Limits) {
    let read = json::parse(text, limits);
    if let Err(refusal) = &read {
        assert!(refusal.offset <= text.len(), "{refusal:?} is beyond the text's {} bytes", text.len());
        assert!(!refusal.message.is_empty() && refusal.message.len() < 512, "{refusal:?}");
    }
    if text.len() > limits.bytes {
        assert_eq!(read.map_err(|refusal| (refusal.code, refusal.offset)), Err((Code::TooLarge, limits.bytes)));
        return;
    }
    // `serde_json` has this grammar, and accepts at least the nesting depth of the strict reader.
    let Ok(plain) = serde_json::from_slice::<Plain>(text) else {
        let refusal = read.expect_err("what serde_json does not read is no JSON, or out of bounds");
        assert_ne!(refusal.code, Code::TooLarge, "{refusal:?}");
        return;
    };
    let depth_max = limits.depth.min(DEPTH_MAX);
    let out_of_bounds = first_out_of_bounds(text, depth_max);
    match read {
        Ok(value) => {
            assert_eq!(out_of_bounds, None, "it was to be refused");
            assert!(!plain.names_twice(), "a name that one object has twice was to be refused");
            let mut lenient: Value = serde_json::from_slice(text).expect("it was read already");
            json::normalise(&mut lenient);
            assert_eq!(value, lenient);
            check_value(&value, depth_max);
        }
        Err(JsonError { code: Code::DuplicateKey, offset, .. }) => {
            assert!(plain.names_twice(), "no object has a name twice");
            assert!(out_of_bounds.is_none_or(|(_, first)| offset <= first), "something before it is out of bounds");
        }
        Err(refusal) => {
            assert_eq!(Some((refusal.code, refusal.offset)), out_of_bounds, "{refusal}");
        }
    }
}

/// Checks the properties of every value that was read.
fn check_value(value: &Value, depth_max: usize) {
    let printed = value.to_string();
    assert_eq!(json::size(value), printed.len() as u64);
    assert!(json::depth(value) <= depth_max);
    let wide = Limits { bytes: usize::MAX, depth: DEPTH_MAX };
    let again = json::parse(printed.as_bytes(), wide).expect("what is printed can be read");
    assert_eq!(again, *value);
    assert_eq!(again.to_string(), printed);
    let mut normalised = value.clone();
    json::normalise(&mut normalised);
    assert_eq!(normalised.to_string(), printed, "numbers were not in their one form");
    // The value as the document of a board.
    let hasher = Hasher::new(&Salt::ZERO);
    let state = State::new(value, &hasher);
    assert_eq!(state.bytes(), printed.len() as u64);
    assert_eq!(usize::from(state.root().depth()), json::depth(value));
    assert_eq!(state.get(Pointer::root()).map(|root| root.to_value().to_string()), Some(printed));
    assert_eq!(state.digest(), State::new(&again, &hasher).digest());
}

/// Returns code and position of the first bracket that is too deep, or number out of range, in a valid JSON text.
fn first_out_of_bounds(text: &[u8], depth_max: usize) -> Option<(Code, usize)> {
    let mut depth = 0_usize;
    let mut bytes = text.iter().copied().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => loop {
                match bytes.next() {
                    Some((_, b'\\')) => drop(bytes.next()),
                    Some((_, b'"')) | None => break,
                    Some(_) => {}
                }
            },
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return Some((Code::TooDeep, at));
                }
            }
            b']' | b'}' => depth -= 1,
            b'-' | b'0'..=b'9' => {
                let mut number = String::from(char::from(byte));
                while let Some((_, more)) = bytes.next_if(|(_, byte)| b"0123456789+-.eE".contains(byte)) {
                    number.push(char::from(more));
                }
                if !can_be_held(&number) {
                    return Some((Code::NumberOutOfRange, at));
                }
            }
            _ => {}
        }
    }
    None
}

/// Applies the rule of SPEC section 2 to a number as written in JSON.
fn can_be_held(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        // `i128` holds all integers in range, and those just outside it.
        return number.parse::<i128>().is_ok_and(|int| (i64::MIN.into()..=u64::MAX.into()).contains(&int));
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.chars().all(|c| matches!(c, '-' | '0' | '.'));
    let double: f64 = number.parse().expect("numbers of JSON are numbers of Rust");
    double.is_finite() && (double == 0.0) == is_zero
}

/// JSON with member names only, repeated ones included.
enum Plain {
    Scalar,
    Array(Vec<Plain>),
    Object(Vec<(String, Plain)>),
}

impl Plain {
    fn names_twice(&self) -> bool {
        match self {
            Self::Scalar => false,
            Self::Array(items) => items.iter().any(Self::names_twice),
            Self::Object(members) => {
                let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
                names.sort_unstable();
                names.windows(2).any(|two| two[0] == two[1]) || members.iter().any(|(_, value)| value.names_twice())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Plain, E> {
        Ok(Plain::Scalar)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Plain, E> {
        Ok(Plain::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Plain, E> {
        Ok(Plain::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Plain, E> {
        Ok(Plain::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Plain, E> {
        Ok(Plain::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Plain, E> {
        Ok(Plain::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Plain, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = elements.next_element()? {
            items.push(item);
        }
        Ok(Plain::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Plain, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = entries.next_entry()? {
            members.push(member);
        }
        Ok(Plain::Object(members))
    }
}
