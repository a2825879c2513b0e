//! Clear requests are resolved, unclear ones lead to a question, and nothing is guessed.

use proptest::prelude::*;
use serde_json::json;

use super::super::declared_tests::tests::notes;
use super::*;
use crate::departments::similarity::text_similarity;

pub(in crate::departments) fn values(values: Value) -> Values {
    values.as_object().cloned().expect("values")
}

pub(in crate::departments) fn rows(of: &[(&str, &str)]) -> Vec<Row> {
    let row = |(index, (list, item)): (usize, &(&str, &str))| Row {
        id: i64::try_from(index).expect("small") + 1,
        version: 1,
        values: values(json!({"list": list, "item": item})),
    };
    of.iter().enumerate().map(row).collect()
}

fn found(action: &str, slots: Value, of: &[(&str, &str)]) -> Resolution {
    resolve(&notes(), action, &values(slots), &rows(of))
}

#[test]
fn clear_matches_take_the_stored_spelling() {
    let there = [("household", "Bananas"), ("office", "oat milk"), ("office", "milk")];
    let resolved = found("remove", json!({"item": "banana"}), &there);
    assert_eq!((resolved.status, resolved.ids), (Status::Found, vec![1]));
    assert_eq!(resolved.slots, values(json!({"list": "household", "item": "Bananas"})));
    assert_eq!(found("remove", json!({"item": "milk"}), &there).ids, [3], "what is the same wins");
    assert_eq!(found("remove", json!({"item": "milk", "list": null}), &there).ids, [3], "null is not known");
    let shown = found("show", json!({"list": "offise"}), &there);
    assert_eq!((shown.status, shown.ids), (Status::Found, vec![2, 3]));
}

#[test]
fn ambiguous_matches_ask_for_the_first_differing_field() {
    let there = [("household", "milk"), ("office", "milk"), ("office", "soy milk"), ("office", "oat milk")];
    let resolved = found("remove", json!({"item": "milk"}), &there);
    assert_eq!((resolved.status, resolved.ask.as_deref()), (Status::Open, Some("which list")));
    assert_eq!(resolved.slots, values(json!({"item": "milk"})));
    let options: Vec<Values> = resolved.options.into_iter().map(|option| option.values).collect();
    assert_eq!(options, [values(json!({"list": "household"})), values(json!({"list": "office"}))]);
    let resolved = found("remove", json!({"item": "mlk", "list": "office"}), &there[2..]);
    assert_eq!(resolved.status, Status::None, "not alike enough");
    let resolved = found("remove", json!({"list": "office"}), &there[2..]);
    assert_eq!((resolved.status, resolved.field.as_deref()), (Status::Open, Some("item")));
    assert_eq!(found("show", json!({}), &there).field.as_deref(), Some("list"));
    let many: Vec<(&str, String)> = (0..40).map(|number| ("office", format!("thing number {number}"))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(list, item)| (*list, item.as_str())).collect();
    let resolved = found("remove", json!({"item": "thing number"}), &many);
    assert_eq!((resolved.options.len(), resolved.more), (12, 28));
}

#[test]
fn options_beyond_the_size_limit_are_counted() {
    let department = super::super::declared_tests::tests::changed(|department| {
        for name in ["remark", "other"] {
            department["storage"]["fields"][name] = json!({"type": "string", "maxLength": 1000});
        }
    });
    let long = |id: i64| {
        values(json!({"list": "office", "item": "milk", "remark": format!("{id}{}", "言".repeat(999)),
        "other": format!("{}{id}", "言".repeat(999))}))
    };
    let rows: Vec<Row> = (1..=12).map(|id| Row { id, version: 1, values: long(id) }).collect();
    let open = resolve(&department, "remove", &values(json!({"item": "milk"})), &rows);
    assert_eq!((open.status, open.options.len(), open.more), (Status::Open, 2, 10));
    assert!(serde_json::to_vec(&open).expect("JSON").len() < 32_768, "it can be written down");
}

#[test]
fn the_only_row_is_asked_for_where_nothing_names_it() {
    let there = [("household", "bananas")];
    for slots in [json!({}), json!({"list": "household"}), json!({"item": null}), json!({"item": " ", "number": 2})] {
        for action in ["remove", "move"] {
            let mut slots = values(slots.clone());
            slots.extend((action == "move").then(|| ("new_list".to_owned(), json!("office"))));
            let open = found(action, Value::Object(slots), &there);
            assert_eq!((open.status, open.ids.len(), open.options.len()), (Status::Open, 0, 1), "{open:?}");
            assert_eq!(open.options[0].ids, [1]);
            assert_eq!(open.options[0].values, values(json!({"list": "household", "item": "bananas"})));
        }
    }
    assert_eq!(found("remove", json!({"item": "banana"}), &there).ids, [1]);
    assert_eq!(found("show", json!({"list": "household"}), &there).status, Status::Found, "a look changes nothing");
}

#[test]
fn identical_rows_resolve_to_one() {
    let resolved = found("remove", json!({"item": "milk"}), &[("office", "milk"), ("office", "milk")]);
    assert_eq!((resolved.status, resolved.ids), (Status::Found, vec![1]));
}

#[test]
fn missing_fields_of_an_insert_are_asked_for() {
    let add = |slots: Value| found("add", slots, &[]);
    assert_eq!(add(json!({"list": "office", "item": " tea "})).slots, values(json!({"list": "office", "item": "tea"})));
    assert_eq!(
        add(json!({"list": "garage", "item": "tea"})).because.as_deref(),
        Some("\"garage\" is none of household, office")
    );
    let open = add(json!({"list": "office", "item": ["tea"]}));
    assert_eq!((open.status, open.field.as_deref(), open.options.len()), (Status::Open, Some("item"), 0));
    assert_eq!(open.slots, values(json!({"list": "office"})), "what is no value is not kept");
}

#[test]
fn a_slot_that_is_filled_with_nothing_is_not_said() {
    for nothing in [json!(null), json!(""), json!(" \t")] {
        let open = found("add", json!({"list": "office", "item": nothing}), &[]);
        assert_eq!((open.status, open.field.as_deref(), open.because), (Status::Open, Some("item"), None));
        let there = [("household", "milk"), ("office", "milk")];
        let open = found("remove", json!({"item": "milk", "list": nothing}), &there);
        assert_eq!((open.status, open.field.as_deref(), open.options.len()), (Status::Open, Some("list"), 2));
    }
}

#[test]
fn missing_entries_are_reported_with_the_nearest_rows() {
    let there = [("household", "banana bread"), ("office", "coffee"), ("office", "tea")];
    let none = found("remove", json!({"item": "coffees", "list": "garage"}), &there);
    assert_eq!((none.status, none.why), (Status::None, Some(UnresolvedReason::NotFound)));
    assert_eq!(none.nearest[0].values, values(json!({"list": "office", "item": "coffee"})));
    assert_eq!(found("remove", json!({"item": "hammer"}), &there).nearest, []);
    assert_eq!(found("burn", json!({}), &there).why, Some(UnresolvedReason::UnknownAction));
}

fn word() -> impl Strategy<Value = String> {
    "[ab]{1,3}( [abc]{2,4})?"
}

proptest! {
    /// Checks the gap: the row found is like the request, and every other row is clearly less so.
    #[test]
    fn it_never_guesses(
        there in proptest::collection::vec((prop_oneof![Just("household"), Just("office")], word()), 0..8),
        item in proptest::option::of(word()),
        list in proptest::option::of(prop_oneof![Just("household"), Just("offic"), Just("hous")]),
        action in prop_oneof![Just("remove"), Just("move")],
    ) {
        let there: Vec<(&str, &str)> = there.iter().map(|(list, item)| (*list, item.as_str())).collect();
        let rows = rows(&there);
        let mut slots = values(json!({"number": 1}));
        slots.extend(item.clone().map(|item| ("item".to_owned(), item.into())));
        slots.extend(list.map(|list| ("list".to_owned(), list.into())));
        let resolved = resolve(&notes(), action, &slots, &rows);
        let likes = |row: &Row| {
            let like = |field: &str| match slots.get(field) {
                Some(said) => text_similarity(said.as_str().expect("a text"), row.values[field].as_str().expect("a text")),
                None => SAME,
            };
            (like("item"), like("list"))
        };
        let score = |row: &Row| likes(row).0 * likes(row).1 / SAME;
        let is_like = |row: &Row| likes(row).0 >= 750 && likes(row).1 >= 750;
        match resolved.status {
            Status::Found => {
                let [id] = resolved.ids.as_slice() else { panic!("one row: {resolved:?}") };
                let one = rows.iter().find(|row| row.id == *id).expect("it is there");
                prop_assert!(is_like(one) && item.is_some());
                for other in rows.iter().filter(|row| row.values != one.values) {
                    // Rounding a product down twice may be off by one.
                    prop_assert!(score(other) + 100 <= score(one) + 1, "{one:?} {other:?}");
                }
            }
            Status::Open => {
                let best = rows.iter().filter(|row| is_like(row)).map(score).max().expect("one is like it");
                let close = |row: &Row| best < score(row) + 101;
                prop_assert!(resolved.options.len() >= 2 || item.is_none());
                for option in &resolved.options {
                    let row = rows.iter().find(|row| row.id == option.ids[0]).expect("it is there");
                    prop_assert!(close(row), "{row:?}");
                }
                let differ = |field: &str| resolved.options.iter().any(|option| option.values.get(field) != resolved.options[0].values.get(field));
                prop_assert!(differ(resolved.field.as_deref().expect("a field")) || resolved.options.len() == 1);
            }
            Status::None => prop_assert!(!rows.iter().any(is_like), "{rows:?}"),
        }
    }
}
