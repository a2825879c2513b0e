//! Tests of `json.rs`.

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
fn numbers_that_would_change_are_rejected_at_their_offset() {
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
fn a_repeated_key_is_rejected_at_any_depth_and_in_any_spelling() {
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
fn malformed_text_is_rejected_with_its_byte_offset() {
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
    for (text, float) in [("31.245270191439438", 31.245270191439438_f64), ("121.48791951161945", 121.48791951161945)] {
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
    fn printed_values_parse_back_and_match_the_computed_size(value in any_value()) {
        let text = value.to_string();
        prop_assert_eq!(size(&value), text.len() as u64);
        prop_assert_eq!(parse(text.as_bytes(), LIMITS), Ok(value));
    }

    #[test]
    fn any_bytes_are_read_or_rejected(text in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Err(refusal) = parse(&text, LIMITS) {
            prop_assert!(refusal.offset <= text.len());
        }
    }

    #[test]
    fn any_json_like_text_is_read_or_rejected(text in r#"[\[\]{}",:0-9eE.+\-\\ntu\n ]{0,48}"#) {
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

#[test]
fn no_crate_of_the_workspace_enables_a_feature_that_changes_values() {
    assert!(is_lossless());
}
