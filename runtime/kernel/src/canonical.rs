//! Canonical JSON (RFC 8785), the form of record headers.
//!
//! Owns nothing but the choice of the form. Values of the state are fingerprinted by [`crate::digest`] instead,
//! because this form prints every number as a double.

use serde_json::Value;

/// The canonical text of a value. Integers beyond ±2^53 lose precision in this form (RFC 8785 section 3.2.2.3):
/// values of the state are fingerprinted by [`crate::digest`] instead.
pub fn to_string(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).expect("a JSON value holds no number that has no canonical text")
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

    proptest! {
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
