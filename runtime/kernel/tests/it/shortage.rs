//! Values that exceed the view budget are recorded and named, and a larger budget fixes this.

use crate::played::Played;
use patchboard_kernel::record::Body;
use patchboard_kernel::view::TruncatedPlace;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns a board with five documents of some 2,000 characters, and a reader with this view.
fn library(view: Value) -> Played {
    let documents: Vec<String> = (0..5).map(|n| format!("{n}{}", "x".repeat(2000))).collect();
    Played::asked(
        json!({"documents": documents}),
        json!({
            "workers": {
                "reader": {"agent": "llm", "reads": ["/request/documents"], "view": view,
                    "writes": [{"path": "/notes", "ops": ["add"]}], "limits": {"attempts": 9}},
                "clerk": {"agent": "llm", "reads": ["/notes"], "writes": [{"path": "/end", "ops": ["add"]}]},
            },
            "rules": [
                {"name": "begin", "trigger": "start", "run": "reader"},
                {"name": "end", "trigger": {"op": "add", "path": "/notes"}, "run": "clerk"},
            ],
        }),
    )
}

fn unshown(played: &Played) -> Vec<Vec<TruncatedPlace>> {
    let invoked = played.bodies().filter_map(|body| match body {
        Body::Invoked(invoked) => Some(invoked.unshown),
        _ => None,
    });
    invoked.collect()
}

#[test]
fn a_call_names_what_its_view_has_no_room_for() {
    let mut played = library(json!({"budget": 4000}));
    let [of_reader] = &unshown(&played)[..] else { panic!("one call") };
    let [TruncatedPlace { at, shown: 1, of: 5, bytes: 10_000..11_000, is_least: false }] = &of_reader[..] else {
        panic!("{of_reader:?}")
    };
    assert_eq!(at, "/request/documents");
    let shortage = &played.board.shortages()["reader"];
    let sentences: Vec<String> = shortage.sentences("reader").collect();
    assert_eq!(
        sentences,
        [
            "reader sees 1 of 5 parts of /request/documents: all need up to 10,021 characters beside the rest, view.budget is \
          4,000"
        ]
    );

    // Only the first call of a worker is recorded, and workers that are shown everything are not named.
    played.answer(json!([{"op": "add", "path": "/end", "value": 1}]), None);
    played.answer(json!([{"op": "add", "path": "/notes", "value": "n"}]), None);
    assert_eq!(unshown(&played).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0]);
    assert_eq!(played.board.shortages().keys().map(ToString::to_string).collect::<Vec<_>>(), ["reader"]);
    let recovered = patchboard_kernel::board::Board::recover(&played.records, &PLANS).expect("the journal is enough");
    assert_eq!(recovered.shortages(), played.board.shortages());
    played.holds();
}

#[test]
fn a_view_without_a_given_budget_fits_ordinary_documents() {
    let played = library(json!({}));
    assert_eq!(unshown(&played), [[]]);
    assert!(played.view().contains("4xxx"), "the last document is shown");
    assert_eq!(played.seat("reader").worker.view.budget, Some(47_616), "and the board has the budget");
    played.holds();
}

#[test]
fn a_reduced_view_is_half_of_what_there_was_to_show() {
    let mut played = library(json!({}));
    let whole = played.view().chars().count();
    for _ in 0..3 {
        assert!(played.view().chars().count() >= whole, "it is not reduced yet");
        played.answer(json!([{"op": "add", "path": "/end", "value": 1}]), None);
    }
    assert!(played.view().chars().count() < whole * 2 / 3, "it is: {}", played.view().chars().count());
    assert_eq!(unshown(&played), vec![Vec::new(); 4], "a breaker hides on purpose");
    played.holds();
}

#[test]
fn a_smaller_view_is_tried_where_tokens_do_not_suffice_for_the_whole() {
    let played = |tokens: u64| {
        let documents: Vec<String> = (0..5).map(|n| format!("{n}{}", "x".repeat(2000))).collect();
        Played::asked(
            json!({"documents": documents}),
            json!({
                "workers": {"reader": {"agent": "llm", "reads": ["/request/documents"], "limits": {"reply_tokens": 100},
                    "writes": [{"path": "/notes", "ops": ["add"]}]}},
                "rules": [{"name": "begin", "trigger": "start", "run": "reader"}],
                "circuit": {"budget": {"then": "reduce_view"}},
                "limits": {"tokens": tokens},
            }),
        )
    };
    let kinds = |played: &Played| played.records.iter().map(|record| record.kind.to_string()).collect::<Vec<_>>();
    let mut enough = played(2200);
    assert_eq!(kinds(&enough), ["created", "scheduled", "budget", "breaker", "invoked"]);
    let chars = enough.view().chars().count();
    assert!((4000..6000).contains(&chars), "half of what there is: {chars}");
    enough.answer(json!([{"op": "add", "path": "/notes", "value": "n"}]), None);
    enough.holds();
    let short = played(300);
    assert_eq!(kinds(&short), ["created", "scheduled", "budget", "breaker", "budget", "breaker", "ended"]);
    let again: Vec<bool> = short
        .bodies()
        .filter_map(|body| if let Body::Budget(budget) = body { Some(budget.is_tried_again) } else { None })
        .collect();
    assert_eq!(again, [true, false]);
    short.holds();
}
