//! Tests of `canonical.rs`.

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
fn header_values_are_plain() {
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
