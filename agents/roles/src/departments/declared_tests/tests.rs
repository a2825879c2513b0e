//! Test cases of the notes department, in the format of a manifest.

use serde_json::json;

use super::super::confirm::ResultStatus;
use super::*;

/// Returns the notes department with a change in its JSON.
pub(in crate::departments) fn changed(change: impl FnOnce(&mut Value)) -> Department {
    let mut department = serde_json::to_value(notes()).expect("JSON");
    change(&mut department);
    serde_json::from_value(department).expect("a department")
}

/// Returns the notes department of `docs/departments.md`.
pub(in crate::departments) fn notes() -> Department {
    let department = json!({
        "name": "notes",
        "storage": {
            "entity": "entry",
            "fields": {
                "list": {"type": "string", "enum": ["household", "office"], "ask": "which list"},
                "item": {"type": "string", "maxLength": 200, "ask": "which item"},
                "number": {"type": "integer", "ask": "how many"},
            },
            "identity": ["list", "item"],
        },
        "actions": {
            "add": {"does": "insert", "sets": ["list", "item"], "confirm": "Put {item} on the {list} list."},
            "remove": {"does": "delete", "finds": ["list", "item"], "confirm": "Took {item} off the {list} list."},
            "show": {"does": "select", "finds": ["list"], "confirm": "On the {list} list: {rows.item}."},
            "move": {"does": "update", "finds": ["list", "item"], "sets": ["list", "number"],
                "confirm": "Moved {item} from the {list} to the {new_list} list."},
        },
        "promises": {"entries": "rows", "first": "row", "count": "count"},
    });
    let department: Department = serde_json::from_value(department).expect("a department");
    assert_eq!(department.validation_errors(), []);
    department
}

fn row(list: &str, item: &str) -> Value {
    json!({"list": list, "item": item})
}

/// Runs a case that must succeed, and again with a wrong expected text, which must be reported.
fn check(case: Value) {
    let mut test: Test = serde_json::from_value(case).expect("a test");
    assert_eq!(run(&notes(), &test).expect("it runs"), [], "{test:#?}");
    test.expect.insert("text".to_owned(), "something else".into());
    assert_eq!(run(&notes(), &test).expect("it runs").len(), 1);
}

#[test]
fn bananas_on_two_lists_are_asked_for_and_the_answer_is_taken_up() {
    let both = [row("household", "bananas"), row("office", "bananas")];
    let remove = json!({"action": "remove", "slots": {"item": "bananas"}, "normalised": "remove bananas from a list"});
    let question = "which list, household or office?";
    check(json!({"rows": both, "classified": remove, "then": both,
        "expect": {"status": "clarification", "question": question, "options": [{"list": "household"}, {"list": "office"}]}}));
    check(json!({"rows": both, "classified": remove, "answers": ["The office one, please."], "then": [both[0]],
        "expect": {"status": "done", "text": "Took bananas off the office list.",
            "data": {"entries": [both[1]], "first": both[1], "count": 1}}}));
    let again = json!({"action": "remove", "slots": {}});
    let office = json!({"action": "none", "slots": {"list": "ofice"}});
    check(json!({"rows": both, "classified": remove, "answers": [again, again, office], "then": [both[0]],
        "expect": {"status": "done"}}));
    check(json!({"rows": both, "classified": remove, "answers": [again, again, again], "then": both,
        "expect": {"status": "error", "finding": "gave_up", "pending": null}}));
    check(json!({"rows": both, "classified": remove, "answers": ["No, leave it."], "then": both,
        "expect": {"status": "dismissed", "finding": "declined"}}));
}

#[test]
fn one_that_is_clear_is_done() {
    let rows = [row("household", "bananas"), row("household", "milk"), row("office", "coffee")];
    let case = |classified: Value, then: Value, text: &str| {
        check(
            json!({"rows": rows, "classified": classified, "then": then, "expect": {"status": "done", "text": text}}),
        );
    };
    case(
        json!({"action": "remove", "slots": {"item": "banana"}}),
        json!([rows[1], rows[2]]),
        "Took bananas off the household list.",
    );
    case(
        json!({"action": "show", "slots": {"list": "the household list"}}),
        json!(rows),
        "On the household list: bananas and milk.",
    );
    case(
        json!({"action": "add", "slots": {"list": "Office", "item": "bananas"}}),
        json!([rows[0], rows[1], rows[2], row("office", "bananas")]),
        "Put bananas on the office list.",
    );
    case(
        json!({"action": "move", "slots": {"item": "milk", "new_list": "office"}}),
        json!([rows[0], row("office", "milk"), rows[2]]),
        "Moved milk from the household to the office list.",
    );
    check(json!({"rows": [rows[2]], "classified": {"action": "show", "slots": {"list": "household"}},
        "expect": {"text": "On the household list: nothing.", "data": {"entries": [], "count": 0}}}));
}

#[test]
fn missing_slots_are_asked_for_one_at_a_time() {
    let add = json!({"action": "add", "slots": {}});
    let item = |item: &str| json!({"action": "add", "slots": {"item": item}});
    check(
        json!({"classified": add, "expect": {"status": "clarification", "question": "which list, household or office?"}}),
    );
    check(
        json!({"classified": add, "answers": ["office"], "expect": {"status": "clarification", "question": "which item?"}}),
    );
    check(json!({"classified": add, "answers": ["office", item("oat milk")], "then": [row("office", "oat milk")],
        "expect": {"status": "done", "text": "Put oat milk on the office list."}}));
    check(
        json!({"classified": add, "answers": ["office", item(&"x".repeat(201)), item("tea")], "then": [row("office", "tea")],
        "expect": {"status": "done"}}),
    );
    check(json!({"rows": [row("office", "tea")], "classified": {"action": "move", "slots": {"item": "tea"}},
        "answers": ["household"], "then": [row("household", "tea")], "expect": {"status": "done"}}));
}

#[test]
fn a_missing_entry_is_refused_with_a_proposed_correction() {
    let rows = [row("household", "banana bread"), row("office", "coffee")];
    let remove = |slots: Value| json!({"action": "remove", "slots": slots});
    let refused = json!({"rows": rows, "classified": remove(json!({"list": "garage", "item": "coffee"})), "then": rows,
        "expect": {"status": "refusal", "finding": "not_found",
            "text": "There is no entry with item coffee and list garage; most like it is the one with item coffee and list office. Is that one meant?",
            "patch": [{"op": "add", "path": "/classified/slots/list", "value": "office"}]}});
    check(refused.clone());
    let mut taken = refused.clone();
    (taken["answers"], taken["then"]) = (json!(["Yes, that one."]), json!([rows[0]]));
    taken["expect"] = json!({"status": "done", "text": "Took coffee off the office list."});
    check(taken);
    let mut other = refused;
    (other["answers"], other["expect"]) = (
        json!([{"action": "show", "slots": {"list": "office"}}]),
        json!({"status": "done", "text": "On the office list: coffee."}),
    );
    check(other);
    check(json!({"rows": rows, "classified": remove(json!({"item": "hammer"})),
        "expect": {"status": "error", "finding": "not_found", "text": "There is no entry with item hammer.", "patch": null, "pending": null}}));
    let moved = json!({"action": "move", "slots": {"item": "hammer", "new_list": "office"}});
    check(json!({"rows": rows, "classified": moved, "expect": {"status": "refusal", "patch": [
        {"op": "replace", "path": "/classified/action", "value": "add"},
        {"op": "add", "path": "/classified/slots/list", "value": "office"},
        {"op": "remove", "path": "/classified/slots/new_list"}]}}));
    check(json!({"rows": rows, "classified": moved, "answers": ["yes"],
        "then": [rows[0], rows[1], row("office", "hammer")], "expect": {"status": "done"}}));
}

#[test]
fn the_patch_proposed_by_a_refusal_resolves_to_an_entry() {
    let rows = [row("household", "banana bread"), row("office", "coffee")];
    let given = rows.each_ref().map(|row| row.as_object().cloned().expect("a row"));
    for classified in [
        json!({"action": "remove", "slots": {"list": "garage", "item": "coffee"}, "normalised": "x"}),
        json!({"action": "remove", "slots": {"list": "garage", "item": "banana bread"}, "normalised": "x"}),
        json!({"action": "move", "slots": {"item": "coffee", "list": "garage", "new_list": "household"}, "normalised": "x"}),
        json!({"action": "move", "slots": {"item": "hammer", "new_list": "office"}, "normalised": "x"}),
    ] {
        let storage = Storage::in_memory();
        let case = Case { department: &notes(), storage: &storage };
        assert_eq!(case.prepare(&given).expect("rows"), None);
        let rows = storage.rows(&notes()).expect("rows");
        let resolved = |document: &Value| {
            let slots = document["classified"]["slots"].as_object().expect("slots");
            let action = document["classified"]["action"].as_str().expect("an action");
            resolve(&notes(), action, slots, &rows)
        };
        let mut document = json!({"classified": classified});
        let before = resolved(&document);
        assert_eq!(before.status, Status::None, "{document}");
        let result = confirm::not_done(&notes(), &before, Timestamp(0), RESULT_BYTES_MAX);
        assert_eq!(
            (result.status, result.finding.is_some(), result.evidence.is_some()),
            (ResultStatus::Refusal, true, true),
            "{result:?}"
        );
        let patch: json_patch::Patch = serde_json::from_value(result.patch.into()).expect("a patch");
        json_patch::patch(&mut document, &patch).expect("it can be applied");
        let after = resolved(&document);
        assert_eq!(after.status, Status::Found, "{document}");
        let outcome = execute(&storage, &notes(), "it", &after, Timestamp(9), RESULT_BYTES_MAX).expect("no fault");
        assert_eq!(outcome.wrong, None, "{document}");
    }
}

#[test]
fn impossible_actions_are_errors_and_leave_the_rows_unchanged() {
    let rows = [row("household", "Bananas")];
    check(
        json!({"rows": rows, "classified": {"action": "add", "slots": {"list": "household", "item": "bananas"}}, "then": rows,
        "expect": {"status": "error", "text": "One entry with item bananas and list household is there already."}}),
    );
    check(json!({"classified": {"action": "burn"}, "expect": {"status": "error", "finding": "unknown_action",
        "text": "That is nothing the department notes does; it does add, move, remove and show."}}));
}

#[test]
fn a_test_that_cannot_be_set_up_says_so() {
    let twice = [row("office", "tea"), row("office", "tea")];
    let test = json!({"rows": twice, "classified": {"action": "show"}, "expect": {"status": "done"}});
    let misses = run(&notes(), &serde_json::from_value(test).expect("a test")).expect("it runs");
    assert_eq!(misses[0].at, "rows/1");
    // An unclear answer needs a model, and the case has none.
    for words in ["What?", "Put tea on the office list.", "not the office one", "tea"] {
        let test = json!({"classified": {"action": "add"}, "answers": [words], "expect": {"status": "done"}});
        let misses = run(&notes(), &serde_json::from_value(test).expect("a test")).expect("it runs");
        assert_eq!((misses[0].at.as_str(), &misses[0].found), ("answers/0", &json!(words)));
    }
    let test = json!({"rows": [twice[0]], "classified": {"action": "show"}, "then": []});
    let misses = run(&notes(), &serde_json::from_value(test).expect("a test")).expect("it runs");
    assert_eq!(misses, [FailedExpectation { at: "rows".into(), expected: json!([]), found: json!([twice[0]]) }]);
    assert_eq!(json!(ResultStatus::Done), "done");
}
