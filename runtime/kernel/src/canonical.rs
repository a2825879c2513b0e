//! Canonical JSON (RFC 8785), the form of record headers.
//!
//! Only selects the form. Values of the state are fingerprinted by [`crate::digest`] instead, because this form prints
//! every number as a double.

use serde_json::Value;

/// Returns the canonical text of a value. Integers beyond ±2^53 lose precision in this form (RFC 8785 section 3.2.2.3),
/// so values of the state are fingerprinted by [`crate::digest`] instead.
pub fn to_string(value: &Value) -> String {
    // Headers are plain, and their compact text takes a tenth of the time.
    if is_plain(value) {
        return serde_json::to_string(value).expect("a JSON value has a text");
    }
    sorted(value)
}

fn sorted(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).expect("a JSON value holds no number that has no canonical text")
}

/// Largest integer such that a double represents it and all smaller ones exactly, 2^53.
const INTEGER_MAX: u64 = 1 << 53;

/// Returns true if the compact text of a value is canonical. All members are in order, by names that sort alike by
/// bytes and UTF-16 units, and all numbers are integers that doubles represent exactly. Both forms escape texts alike.
///
/// Recursion is as deep as the value, like that of serialisation.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number
            .as_u64()
            .or_else(|| number.as_i64().map(i64::unsigned_abs))
            .is_some_and(|magnitude| magnitude <= INTEGER_MAX),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(members) => {
            members.iter().all(|(name, value)| name.is_ascii() && is_plain(value)) && members.keys().is_sorted()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_by_utf16_units_and_numbers_printed_as_ecmascript_does() {
        let value = json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7});
        assert_eq!(
            to_string(&value),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}"
        );
        assert_eq!(to_string(&json!([1e30, 4.5, 0.002, 1e-27, 1.0, -0.0])), "[1e+30,4.5,0.002,1e-27,1,0]");
    }

    /// Generates values, many of them plain and many narrowly not.
    fn value() -> impl Strategy<Value = Value> {
        let name = prop_oneof!["[a-c~\"\\\\]{0,3}", any::<String>()];
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-(1_i64 << 53) - 2..=(1_i64 << 53) + 2).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            Just(json!(-0.0)),
            Just(json!(1.0)),
            Just(json!("\u{0}\u{1f}\u{7f}\u{2028}\u{ffff}\"\\/\u{8}\t\n\u{c}\r")),
        ];
        scalar.prop_recursive(3, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn what_looks_like_a_header_is_plain() {
        let header = json!({"at": 1, "by": {"base": 7, "worker": "w"}, "kind": "committed", "reads": [], "x": null});
        assert!(is_plain(&header));
        for other in [json!(0.5), json!(1.0), json!((1_u64 << 53) + 1), json!({"\u{e9}": 1}), json!([-0.0])] {
            assert!(!is_plain(&other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_plain_value_has_the_same_text_either_way(value in value()) {
            prop_assert_eq!(to_string(&value), sorted(&value));
        }

        #[test]
        fn integers_up_to_2_to_the_53_keep_their_digits(integer in -(1_i64 << 53)..=(1_i64 << 53)) {
            prop_assert_eq!(to_string(&json!(integer)), integer.to_string());
        }

        #[test]
        fn every_double_and_integer_has_a_text(float in any::<f64>(), integer in any::<u64>()) {
            prop_assert!(!to_string(&json!([float, integer])).is_empty());
        }
    }
}
