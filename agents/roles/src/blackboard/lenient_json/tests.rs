//! Values as models write them.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn values_are_found_as_models_write_them() {
    for (text, expected) in [
        ("", vec![]),
        ("no value { in [ here", vec![]),
        ("before {\"a\": 1} between [2] after", vec![json!({"a": 1}), json!([2])]),
        ("```json\n{\"a\": \"b\"}\n```", vec![json!({"a": "b"})]),
        ("{{\"a\": \"b\"}}", vec![json!({"a": "b"})]),
        ("{'it': 'it's Ann's, no \"doubt\"', 'b': \"c\",}", vec![json!({"it": "it's Ann's, no \"doubt\"", "b": "c"})]),
        ("{\"a\": \"two\nlines\", 'b': [True, None, 1.5]}", vec![json!({"a": "two\nlines", "b": [true, null, 1.5]})]),
        (r#"{'a': '\frac{1}{2} \u00e9 \n'}"#, vec![json!({"a": "\\frac{1}{2} é \n"})]),
        ("{\"a\": \"cut off", vec![]),
        ("{a: 1}", vec![]),
        (r#"{'a': '\u00"#, vec![]),
        (r#"{'a': '\"#, vec![]),
    ] {
        assert_eq!(values(text), expected, "{text:?}");
    }
    assert!(values(&"{'a':".repeat(100_000)).is_empty());
    assert!(values(&"[".repeat(100_000)).is_empty());
}

proptest! {
    #[test]
    fn nothing_panics(text in "[{}\\[\\]'\",:\\\\ua1é\n .]{0,60}") {
        values(&text);
    }

    #[test]
    fn valid_json_is_read_unchanged(words in proptest::collection::vec(".{0,12}", 0..4)) {
        let value = json!({"words": words});
        prop_assert_eq!(values(&format!("x {value} y")), vec![value]);
    }
}
