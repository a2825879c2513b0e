//! Converts user input to values of fields.

use patchboard_kernel::json;
use patchboard_protocols::department::{Field, FieldType};
use serde::Serialize;
use serde_json::Value;

use super::similarity::{MatchThresholds, SAME, best_matches, display_text, text_similarity};

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Interpretation {
    Value(Value),
    /// One of several values.
    Among(Vec<Value>),
    /// Invalid input, with the reason.
    Wrong(String),
}

/// Returns the size of a value as JSON, in bytes.
pub(super) fn bytes_of(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

/// Counts the first of these sizes that stay within `max` together.
pub(super) fn count_within(max: usize, sizes: impl Iterator<Item = usize>) -> usize {
    let mut sum = 0_usize;
    let fits = |size: &usize| {
        sum = sum.saturating_add(*size);
        sum <= max
    };
    sizes.take_while(fits).count()
}

/// Returns whether a field is given at all. Empty texts count as missing, because forms are also filled in with
/// nothing.
pub(super) fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    }
}

pub(super) fn interpret(field: &Field, given: &Value, bar: MatchThresholds) -> Interpretation {
    if !field.allowed_values.is_empty() {
        let all: Vec<String> = field.allowed_values.iter().map(display_text).collect();
        let given = display_text(given);
        return match best_matches(&given, &all, bar).as_slice() {
            [] => Interpretation::Wrong(format!("{} is none of {}", quoted(&given), all.join(", "))),
            [one] => Interpretation::Value(field.allowed_values[*one].clone()),
            several => {
                Interpretation::Among(several.iter().map(|&index| field.allowed_values[index].clone()).collect())
            }
        };
    }
    let value = typed(field.kind, given).unwrap_or_else(|| given.clone());
    match field.value_error(&value) {
        Some(why) => Interpretation::Wrong(format!("{} {why}", quoted(&display_text(given)))),
        None => Interpretation::Value(value),
    }
}

/// Converts a value to this type; `None` if it does not fit.
fn typed(kind: FieldType, value: &Value) -> Option<Value> {
    let text = value.as_str().map(str::trim);
    match kind {
        FieldType::String => match value {
            Value::String(_) => text.filter(|text| !text.is_empty()).map(Value::from),
            Value::Number(number) => Some(number.to_string().into()),
            _ => None,
        },
        FieldType::Integer => match text {
            Some(text) => text.parse::<i64>().ok(),
            None => value.as_i64().or_else(|| whole(value.as_f64()?)),
        }
        .map(Value::from),
        FieldType::Number => {
            let number = text.map_or_else(|| value.as_f64(), |text| text.parse::<f64>().ok());
            // JSON has only finite numbers.
            number.filter(|number| number.is_finite()).map(number_of)
        }
        FieldType::Boolean => match text.map(str::to_lowercase).as_deref() {
            Some("yes" | "true") => Some(true),
            Some("no" | "false") => Some(false),
            Some(_) => None,
            None => value.as_bool(),
        }
        .map(Value::from),
    }
}

/// Converts a value to the form that its table stores.
pub(super) fn stored(field: &Field, value: Value) -> Value {
    if let (FieldType::Number, Some(number)) = (field.kind, value.as_f64()) { number_of(number) } else { value }
}

/// Normalises a number to its only form on boards.
pub(super) fn number_of(number: f64) -> Value {
    let mut number = Value::from(number);
    json::normalise(&mut number);
    number
}

/// Returns a number without a fraction, which a model may write as `3.0`.
fn whole(number: f64) -> Option<i64> {
    let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
    is_whole.then_some(number as i64)
}

/// Returns the similarity of a row's value to the given one.
pub(super) fn value_similarity(field: &Field, value: &Value, has: Option<&Value>) -> u32 {
    let Some(has) = has else { return 0 };
    if field.kind == FieldType::String {
        return text_similarity(&display_text(value), &display_text(has));
    }
    if typed(field.kind, value).as_ref() == Some(has) { SAME } else { 0 }
}

/// Quotes foreign words within a sentence, truncated to stay one sentence.
pub(super) fn quoted(words: &str) -> String {
    format!("\"{}\"", patchboard_kernel::text::one_line(words, 80))
}
