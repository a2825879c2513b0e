//! Order of members, and YAML that is read as the same value.

use patchboard_lint::source::Source;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const FIRST: &[&str] = &["name", "state"];

#[test]
fn listed_members_come_first_at_every_depth() {
    let value = json!({"a": 1, "state": {"b": 2, "name": "x"}, "name": "notes"});
    let ordered = OrderedJson::new(&value, FIRST);
    assert_eq!(ordered.json(), r#"{"name":"notes","state":{"name":"x","b":2},"a":1}"#);
    assert_eq!(ordered.yaml(), "name: notes\nstate: {name: x, b: 2}\na: 1\n");
}

#[test]
fn long_values_are_written_as_yaml_blocks() {
    let long = "word ".repeat(30);
    let value = json!({"a": [{"name": "x", "text": long}, []], "b": {}});
    let yaml = OrderedJson::new(&value, FIRST).yaml();
    assert_eq!(yaml, format!("a:\n  -\n    name: x\n    text: \"{long}\"\n  - []\nb: {{}}\n"));
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[a-z:#&*!|>'\"%@`{}\\[\\], -]{0,12}", "(yes|no|null|~|1e3|0x1|.inf|-)"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..5)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn yaml_and_json_output_parses_to_the_same_value(value in value()) {
        let yaml = OrderedJson::new(&value, FIRST).yaml();
        let read = Source::read("test", &yaml).unwrap_or_else(|finding| panic!("{finding:?} in\n{yaml}"));
        prop_assert_eq!(read.value(), &value, "{}", yaml);
        let json = OrderedJson::new(&value, FIRST).json();
        prop_assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), value);
    }
}
