//! Random model selection: the board records it and adheres to it.

use std::collections::BTreeMap;

use crate::played::Played;
use patchboard_kernel::board::Board;
use patchboard_kernel::digest::Hasher;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, GENESIS, Record};
use patchboard_protocols::PLANS;
use serde_json::json;

/// Returns a board with drawn models for all workers but one.
fn drawing(seed: u64) -> Played {
    let seat = |model: &str| json!({"agent": "llm", "model": model, "writes": [{"path": "/list/-", "ops": ["add"]}]});
    Played::new(json!({
        "seed": seed, "models": {"one": "local", "crowd": ["small", "middle", "large"]},
        "workers": {"ada": seat("crowd"), "bob": seat("crowd"), "cid": seat("one"), "dan": seat("crowd")},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "ada"}],
    }))
}

fn drawn(records: &[Record]) -> BTreeMap<String, String> {
    let Body::Created(created) = records[0].body().expect("readable") else { panic!("the first creates") };
    created.drawn.iter().map(|(worker, model)| (worker.to_string(), model.clone())).collect()
}

/// Test vector of docs/semantics.md, section 11; a draw never changes.
#[test]
fn drawn_models_are_recorded_and_follow_from_seed_and_name() {
    let expected = |models: [&str; 3]| -> BTreeMap<String, String> {
        ["ada", "bob", "dan"].into_iter().zip(models).map(|(name, model)| (name.to_owned(), model.to_owned())).collect()
    };
    assert_eq!(drawn(&drawing(0).records), expected(["middle", "large", "small"]));
    assert_eq!(drawn(&drawing(8).records), expected(["middle", "middle", "large"]));
    let played = drawing(8);
    played.holds();
    // Without a draw, the header has no such entry.
    let plain = Played::new(json!({"workers": {"ada": {"agent": "llm"}}}));
    assert!(played.records[0].header.contains("drawn") && !plain.records[0].header.contains("drawn"));
}

#[test]
fn a_record_that_says_another_draw_is_no_board() {
    let records = drawing(8).records;
    let mut body = records[0].body().expect("readable").clone();
    let Body::Created(created) = &mut body else { panic!("the first creates") };
    created.drawn.insert("ada".into(), "none".to_owned());
    let hasher = Hasher::new(&created.salt);
    let forged = Record::seal(GENESIS, records[0].seq, Timestamp(0), body, &hasher);
    let error = Board::recover([&forged], &PLANS).err().expect("it is refused").to_string();
    assert!(error.contains("were drawn"), "{error}");
}
