//! The schema accepts the examples and rejects members that architects may not write.

use patchboard_kernel::schema::Schema;

use super::*;
use crate::architect::prompt;
use patchboard_llm::key_order::OrderedJson;

#[test]
fn the_examples_of_the_prompt_fit_it_and_what_architects_may_not_do_does_not() {
    let schema = schema(&DesignLimits::default(), false);
    let compiled = Schema::compile(&schema, false).expect("a schema");
    for example in prompt::examples() {
        assert_eq!(compiled.violations(&example, 5), [], "{example}");
    }
    let good = prompt::examples().remove(0);
    for (pointer, value) in [
        ("/use", json!(["a.yaml"])),
        ("/models", json!({"x": "y"})),
        ("/workers", json!({"w": {"agent": "command", "role": "", "reads": [], "writes": []}})),
        ("/rules/0/trigger", json!("manual")),
        ("/rules/0/trigger", json!({"every": "* * * * *"})),
        ("/limits", json!({"tokens": 2_000_000})),
    ] {
        let mut bad = good.clone();
        match bad.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => bad[&pointer[1..]] = value,
        }
        assert!(!compiled.violations(&bad, 5).is_empty(), "{pointer}");
    }
}

#[test]
fn it_is_small_and_written_in_the_order_of_a_blueprint() {
    let schema = schema(&DesignLimits::default(), true);
    let text = OrderedJson::new(&schema, ORDER).json();
    assert!(text.len() < 6100, "{} bytes", text.len());
    let at = |name: &str| text.find(&format!("\"{name}\":{{")).unwrap_or_else(|| panic!("{name} is in {text}"));
    let places = ["name", "state", "workers", "rules", "done", "input"].map(at);
    assert!(places.is_sorted(), "{places:?}");
    for word in ["$ref", "$defs", "description\":\"", "oneOf", "uniqueItems", "program", "\"command\""] {
        assert!(!text.contains(word), "{word} is in {text}");
    }
}
