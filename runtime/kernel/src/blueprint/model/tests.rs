//! Tests of `model.rs`.

use serde_json::json;

use super::*;

fn several(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("m{number}")).collect()
}

#[test]
fn a_model_is_a_name_or_some_names_and_keeps_its_form() {
    for form in [json!("local"), json!(["small", "large"]), json!(["only"])] {
        let choice: ModelChoice = serde_json::from_value(form.clone()).expect("a form");
        assert_eq!(serde_json::to_value(&choice).expect("it is JSON"), form);
    }
    for bad in [json!([]), json!(several(ModelChoice::MODELS_MAX + 1)), json!([1]), json!({}), json!(null)] {
        assert!(serde_json::from_value::<ModelChoice>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn draws_are_spread_evenly_over_names() {
    const NAMES: usize = 10_000;
    for count in [2, 3, 7] {
        let models = several(count);
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for number in 0..NAMES {
            let name = WorkerName::from(format!("expert_{number}"));
            *seen.entry(draw(7, &name, &models).expect("there are models")).or_default() += 1;
        }
        // Five standard deviations of a fair draw.
        let expected = NAMES as f64 / count as f64;
        let most = 5.0 * (expected * (1.0 - 1.0 / count as f64)).sqrt();
        assert_eq!(seen.len(), count);
        for (model, times) in seen {
            assert!((times as f64 - expected).abs() < most, "{model} of {count}: {times}, not about {expected}");
        }
    }
}

#[test]
fn only_seed_and_name_decide() {
    let models = several(32);
    let names: Vec<WorkerName> = (0..200).map(|number| WorkerName::from(format!("w{number}"))).collect();
    let all = |seed| names.iter().map(|name| draw(seed, name, &models)).collect::<Vec<_>>();
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
    assert_ne!(all(0), all(u64::MAX));
    assert_eq!(draw(1, &"w".into(), &[]), None);
}

#[test]
fn language_models_are_drawn_for_and_others_are_not() {
    let blueprint: Blueprint = serde_json::from_value(json!({
        "blueprint": 1, "name": "d", "seed": 9, "state": {"schema": true},
        "models": {"default": "local", "crowd": ["small", "large"]},
        "workers": {
            "a": {"agent": "llm", "model": "crowd"}, "b": {"agent": "llm"},
            "c": {"agent": "remote", "model": "crowd"}, "d": {"agent": "llm", "model": "none"},
        },
    }))
    .expect("a blueprint");
    let drawn = blueprint.drawn_models();
    assert_eq!(drawn.keys().map(WorkerName::as_str).collect::<Vec<_>>(), ["a"]);
    assert_eq!(blueprint.model_of(&"a".into()), drawn.values().next().map(String::as_str));
    assert_eq!(blueprint.model_of(&"b".into()), Some("local"));
    assert_eq!(blueprint.model_of(&"d".into()), None);
}
